"""Bounds compared on assumed records: noise as plans have it, losses and the best bound as simulated records have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import InvalidSpec
from dpdist.machine.engine import inline
from dpdist.machine.store import Store
from dpdist.privacy.ledger import opened
from dpdist.release import trades
from dpdist.release.context import Context, silent
from dpdist.release.plan import plan
from dpdist.release.predicted import predicted
from dpdist.release.trades import Compared, compared
from dpdist.spec import assumed
from tests import small
from tests.command_line import CommandLine

ASKED: dict[str, Any] = {
    "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 4}},
    "domain": {"branch": {"categories": ["a", "b"]}},
    "sums": {"paid": {"from": 0, "to": 100, "unit": "EUR"}},
    "workload": [{"marginals": {"of": [["branch"]]}}, {"marginals": {"of": [["branch"]]}, "sum": "paid"}],
    "mechanism": "identity",
    "budget": {"rho": 0.02},
    "assume": {"persons": 4000, "records_per_person": "geometric 3", "amounts": {"paid": "lognormal 20 1"}},
}


def found(folder: Path, **changes: Any) -> list[Compared]:
    context = Context(folder, Store(folder / "store"), inline(), silent)
    return compared(context, assumed(small.write(folder / "spec", **{**ASKED, **changes})))


def simulated(most: int, to: float) -> tuple[float, float, float, float]:
    """Records and euros of one of two branches, all of them and those within the bounds; of 200,000 persons, scaled down to 4,000."""
    random = np.random.default_rng(11)
    per_person = random.geometric(1 / 3, 200_000)
    place = np.arange(per_person.sum()) - np.repeat(np.cumsum(per_person) - per_person, per_person)
    paid = 20 * np.exp(random.standard_normal(place.size))
    counts = place < most
    scaled = 4000 / 200_000 / 2
    return place.size * scaled, counts.sum() * scaled, paid.sum() * scaled, np.minimum(paid[counts], to).sum() * scaled


def test_losses_are_those_of_simulated_records(tmp_path: Path) -> None:
    records, amounts = found(tmp_path)
    for tried, bounds in (
        (records.tried, [(each.value, 100) for each in records.tried]),
        (amounts.tried, [(4, e.value) for e in amounts.tried]),
    ):
        for each, (most, to) in zip(tried, bounds, strict=True):
            every, counted, paid, added = simulated(int(most), to)
            of_records, of_euros = each.groups
            assert of_records.answer == pytest.approx(every, rel=0.01)
            assert of_records.answer - of_records.lost == pytest.approx(counted, rel=0.01)
            assert of_euros.answer == pytest.approx(paid, rel=0.02)
            assert of_euros.answer - of_euros.lost == pytest.approx(added, rel=0.01)
    assert [each.lost for each in records.tried] == pytest.approx(
        [(2 / 3) ** each.value for each in records.tried], abs=1e-9
    )
    assert (amounts.tried[0].groups[1].unit, amounts.tried[0].groups[0].unit) == ("EUR", "records")


def test_noise_is_that_of_a_plan_with_the_bound(tmp_path: Path) -> None:
    records, _ = found(tmp_path)
    given = assumed(small.write(tmp_path / "spec", **ASKED))
    assert given is not None
    bound = next(given.bounds())
    for each in records.tried[::4]:
        planned = plan(Context(tmp_path, Store(tmp_path / "store"), inline(), silent), bound.over(each.value))
        assert [of.half_width for of in each.groups] == [of.half_width for of in predicted(planned)]
    one = next(each for each in records.tried if each.value == 1)
    assert [
        of.half_width / first.half_width for of, first in zip(records.best.groups, one.groups, strict=True)
    ] == pytest.approx([records.best.value] * 2)


def test_the_best_bound_has_the_least_error_of_noise_and_loss(tmp_path: Path) -> None:
    """More noise takes a smaller bound, and none loses anything where all records count."""
    (records, _), (noisy, _) = found(tmp_path / "some"), found(tmp_path / "more", budget={"rho": 0.0002})
    assert 1 < noisy.best.value < records.best.value
    errors = [
        np.mean([((of.half_width / 1.96) ** 2 + of.lost**2) / of.answer**2 for of in each.groups]) ** 0.5
        for each in records.tried
    ]
    assert records.best is records.tried[int(np.argmin(errors))]
    assert [each.error for each in records.tried] == pytest.approx(errors, rel=1e-4)
    (fixed, *_) = found(tmp_path / "fixed", assume={"records": 9000, "records_per_person": "fixed 3"})
    assert [(each.value, round(each.lost, 9)) for each in fixed.tried] == [(1, round(2 / 3, 9)), (3, 0), (4, 0)]
    assert fixed.best.value == 3


@pytest.mark.slow
def test_a_loss_that_is_forgotten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: amounts that are not cut."""
    true = trades.assumed

    def wrong(workload: Any, block: Any, records: float, shape: Any, amounts: Any) -> Any:
        return true(workload, block, records, shape, dict.fromkeys(amounts, 33.0))

    monkeypatch.setattr("dpdist.release.trades.assumed", wrong)
    _, amounts = found(tmp_path)
    _, _, _, added = simulated(4, amounts.tried[0].value)
    of_euros = amounts.tried[0].groups[1]
    assert of_euros.answer - of_euros.lost != pytest.approx(added, rel=0.1)


def test_persons_by_group_lose_groups(tmp_path: Path) -> None:
    records = {"path": "records.parquet", "count": "persons", "person": {"column": "person", "most_groups": 2}}
    asked = {"records": records, "sums": {}, "workload": [{"marginals": {"of": [["branch"]]}}]}
    (groups,) = found(tmp_path, **asked, assume={"persons": 1000, "groups_per_person": "fixed 2"})
    assert [(each.value, each.lost) for each in groups.tried] == [(1, 0.5), (2, 0.0)]
    assert groups.tried[1].groups[0].answer == 1000
    assert groups.best.value == 2


def test_the_command_prints_them_and_charges_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, command = small.write(home.parent / "data", **ASKED), CommandLine(monkeypatch, capsys)
    monkeypatch.setenv("DPDIST_HOME", str(home))
    printed = command("plan", str(spec)).out
    assert "assumed, no record was read: 12,000 records; records per person geometric 3; paid lognormal 20 1." in printed
    assert "most_records lost branch (records) sum of paid by branch (EUR) error" in printed
    assert "as in the spec" in printed
    assert printed.count(" least") >= 2
    told = json.loads(command("plan", str(spec), "--json").out)["bounds"]
    assert [(each["bound"], each["own"]) for each in told] == [("most_records", 4), ("sums.paid.to", 100)]
    assert all(each["least"] in [one["value"] for one in each["tried"]] for each in told)
    with opened(home) as ledger:
        assert ledger.receipt("small-1") is None


TOTAL = {
    "records": {
        "path": "records.parquet",
        "count": "persons",
        "person": {"column": "person", "most_groups": 2},
    },
    "domain": {"branch": {"categories": ["a", "b"], "total": "any"}},
    "workload": [{"marginals": {"ways": [1]}}],
    "sums": {},
    "assume": {"persons": 4000, "groups_per_person": "geometric 3"},
}
VARIANCE = {"marginals": {"of": [["branch"]]}, "variance": "paid"}
PER_PERSON = {"paid": {"from": 0, "to": 100, "most_per_person": 300}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (TOTAL, "leave 'assume' out, or compare the bounds in a spec without 'total'"),
        (
            {"workload": [ASKED["workload"][0], VARIANCE]},
            "leave 'paid' out of 'assume', or compare them in a spec that asks for",
        ),
        ({"sums": PER_PERSON}, "compare the bounds in a spec without 'most_per_person'"),
    ],
)
def test_what_is_not_compared_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        found(tmp_path, **changes)


def test_bounds_of_persons_are_compared_beside_variances(tmp_path: Path) -> None:
    """Counts alone are compared where nothing is assumed of the amounts."""
    assume = {"persons": 4000, "records_per_person": "geometric 3"}
    (records,) = found(tmp_path, workload=[ASKED["workload"][0], VARIANCE], assume=assume)
    assert all([each.group for each in tried.groups] == ["branch"] for tried in records.tried)
