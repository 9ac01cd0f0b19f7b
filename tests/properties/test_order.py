"""What a release is charged to and bound to: weeks and days, the chain of rows, the measurement that the ledger knows."""

from __future__ import annotations

import datetime
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseConflict, StoreError
from dpdist.measurement.dense_measurement import DenseMeasurement
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.pipeline import measure
from dpdist.pipeline.distributed_noise import noisy_array
from dpdist.privacy.ledger import database as tables
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.storage.array_store import Store
from flows.prefect import release_flow as flow
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.complete_tree import needs_plugin
from tests.support.small_release import run

WEEKLY: dict[str, Any] = {
    "dataset": "small",
    "cap": {"rho": 0.15, "per": "week"},
}


@pytest.mark.parametrize(
    ("first", "second", "week"),
    slow_after_first(
        1,
        [
            ("2026-12-31", "2027-01-01", "2026-W53"),  # a week that begins in one year and ends in the next
            ("2024-12-30", "2025-01-02", "2025-W01"),
            ("2020-12-28", "2021-01-03", "2020-W53"),
        ],
    ),
)
def test_a_week_has_one_budget_when_the_year_ends_in_it(first: str, second: str, week: str, home: Path) -> None:
    run(small_release.write(home.parent / "data", period=first, release=f"on-{first}", ledger=WEEKLY), home)
    with pytest.raises(BudgetExceeded):
        run(small_release.write(home.parent / "data", period=second, release=f"on-{second}", ledger=WEEKLY), home)
    with open_ledger(home) as ledger:
        assert [budget.period for budget in ledger.budgets()] == [week]
    monday = datetime.date.fromisocalendar(int(week[:4]), int(week[-2:]), 1)
    after = (monday + datetime.timedelta(days=7)).isoformat()
    later = small_release.write(
        home.parent / "later", table=small_release.records(seed=1), period=after, release=f"on-{after}", ledger=WEEKLY
    )
    assert run(later, home).charged  # the next week has a budget of its own


@pytest.mark.parametrize(
    ("moment", "timezone", "day"),
    [
        ("2026-11-20T16:00", "Asia/Tokyo", "2026-11-20"),  # one in the morning of the 21st there
        ("2026-11-20T14:59", "Asia/Tokyo", "2026-11-19"),
        ("2026-11-20T16:00", "UTC", "2026-11-19"),
        ("2026-11-20T03:00", "America/New_York", "2026-11-18"),
        ("2026-03-09T03:59", "America/New_York", "2026-03-07"),  # midnight after the day that has 23 hours
        ("2026-03-09T04:00", "America/New_York", "2026-03-08"),
        ("2026-11-02T04:59", "America/New_York", "2026-10-31"),  # and after the one that has 25
        ("2026-11-02T05:00", "America/New_York", "2026-11-01"),
    ],
)
def test_days_end_at_midnight_where_the_release_is(
    moment: str, timezone: str, day: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC)
    monkeypatch.setattr(flow, "_scheduled", lambda: scheduled)
    last = datetime.date.fromisoformat(day)
    assert flow._days(None, "day", 0, timezone) == [last]
    assert flow._days(None, "day", 2, timezone) == [last - datetime.timedelta(days=n) for n in (2, 1, 0)]
    given = last - datetime.timedelta(days=40)
    assert flow._days(given, "day", 2, timezone) == [given - datetime.timedelta(days=n) for n in (2, 1, 0)]
    assert flow._days(given, None, 0, timezone) == [given]


def test_no_row_can_be_rewritten_even_with_a_fresh_digest(home: Path) -> None:
    """Every row names the one before: whoever alters one has to alter all that follow, and the noted head tells."""
    run(small_release.write(home.parent / "data"), home)
    with open_ledger(home) as ledger:
        whole = ledger.verify()
        rows = ledger.entries()
    assert len(rows) >= 3
    for altered in rows:
        copy = home.parent / f"copy-{altered['sequence']}"
        shutil.copytree(home, copy)
        with sqlite3.connect(copy / "ledger.db") as database:
            database.row_factory = sqlite3.Row
            (row,) = database.execute("SELECT * FROM dpdist_rows WHERE sequence = ?", (altered["sequence"],))
            content = {**dict(row), "written_at": "2001-01-01T00:00:00+00:00"}
            digest = tables.row_digest(content)
            assert digest != row["digest"]
            change = "UPDATE dpdist_rows SET written_at = ?, digest = ? WHERE sequence = ?"
            database.execute(change, (content["written_at"], digest, row["sequence"]))
        with open_ledger(copy) as ledger:
            if altered is rows[-1]:
                ledger.verify()  # nothing follows the last row: its digest, noted elsewhere, is what tells
            with pytest.raises(LedgerError, match="restore a backup"):
                ledger.verify(whole.head)
            if altered is not rows[-1]:
                with pytest.raises(LedgerError, match=f"row {altered['sequence'] + 1} does not continue the chain"):
                    ledger.verify()


def swap(home: Path, one: str, other: str) -> None:
    """Two whole measurements in each other's place, as from the backup of another store: the store finds no fault in them."""
    store = Store(home / "store")
    found = {name: store.open(f"measurements/{name}") for name in (one, other)}
    values = {name: store.read_array(stored) for name, stored in found.items()}
    for name, from_ in ((one, other), (other, one)):
        store.delete(f"measurements/{name}")
        plan = noisy_array(store, f"measurements/{name}", values[from_].size)
        store.begin(plan)
        digests = [store.write_shard(plan, i, values[from_][slice(*plan.bounds(i))]) for i in range(plan.shards)]
        store.check(store.finish(plan, digests, found[from_].facts))


TABLES = [{"marginals": {"ways": [1, 2]}}]
BY_SEX = [{"cdf": {"of": "age", "by": ["sex"]}}]


@needs_plugin("postprocess.consistent_with")
def test_a_swapped_measurement_is_not_combined_with_others(home: Path) -> None:
    """Two releases of one spec over other records: the measurement of one in the place of the other's."""
    data = home.parent / "data"
    cap = {"dataset": "small", "cap": {"rho": 1}}
    run(
        small_release.write(
            home.parent / "other", table=small_release.records(seed=5), workload=TABLES, release="other", ledger=cap
        ),
        home,
    )
    earlier = small_release.write(data, workload=TABLES, release="earlier", ledger=cap).rename(data / "earlier.yaml")
    run(earlier, home)
    later = {"workload": BY_SEX, "release": "later", "postprocess": {"consistent_with": ["earlier.yaml"]}, "ledger": cap}
    swap(home, "earlier", "other")
    with pytest.raises(StoreError, match="is not what the ledger knows"):
        run(small_release.write(data, **later), home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("later") is None  # refused before the charge
    swap(home, "earlier", "other")
    run(small_release.write(data, **later), home)


def test_a_swapped_measurement_is_not_published(home: Path) -> None:
    data, cap = home.parent / "data", {"dataset": "small", "cap": {"rho": 1}}
    first = run(small_release.write(data, release="first", ledger=cap), home)
    run(small_release.write(home.parent / "other", table=small_release.records(seed=5), release="other", ledger=cap), home)
    shutil.rmtree(first.folder)
    swap(home, "first", "other")
    with pytest.raises(StoreError, match="is not what the ledger knows"):
        run(small_release.write(data, release="first", ledger=cap), home)


def test_one_noise_is_never_on_two_grids(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reserved release whose scale or grid would be another one now, from the same spec, is refused: nothing is drawn."""
    path = small_release.write(home.parent / "data")
    small_release.reserved(path, home)
    noise, digest = IntegerMeasurement.noise, DenseMeasurement.digest

    def louder(self: IntegerMeasurement, budget: Any) -> Any:
        found = noise(self, budget)
        return type(found)(found.kind, found.scale + 1)

    for patch in (("noise", louder), ("digest", property(lambda self: "0" * 64))):
        with monkeypatch.context() as changed:
            changed.setattr(IntegerMeasurement if patch[0] == "noise" else DenseMeasurement, *patch)
            with pytest.raises((ReleaseConflict, InvalidInput)):
                run(path, home)
        assert not Store(home / "store").exists("measurements/small-1")
    assert (IntegerMeasurement.noise, DenseMeasurement.digest) == (noise, digest)
    assert run(path, home).charged is False


def test_every_part_of_what_is_drawn_decides_the_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same salt, same root: another grid, another scale, other records or another spec draw from another key."""
    monkeypatch.setattr("dpdist.privacy.ledger.budget_ledger._new_salt", lambda: bytes(range(32)))
    (home / "root.key").write_text("5c" * 32 + "\n")
    keys: list[bytes] = []
    draw = measure.draw

    def recorded(store: Any, name: str, noisy: Any, facts: Any) -> Any:
        keys.append(noisy.key.reveal())
        return draw(store, name, noisy, facts)

    monkeypatch.setattr(measure, "draw", recorded)
    variants: list[dict[str, Any]] = [
        {},
        {"mechanism": "identity"},
        {"budget": {"rho": 0.05}},
        {"table": small_release.records(seed=1)},
        {"neighbours": "replace-one"},
        {"records": {"path": "records.parquet", "person": {"most_records": 2}}},
    ]
    for number, changes in enumerate([*variants, {}]):
        away = home.parent / f"home-{number}"
        shutil.copytree(home, away)
        run(small_release.write(home.parent / "data", output={"folder": f"out-{number}"}, **changes), away)
    assert keys[0] == keys[-1]
    assert len(set(keys)) == len(variants)
