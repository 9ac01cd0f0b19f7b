"""Sums under a bound on the total of a person: what is published, how well its intervals cover, repeats and refusals."""

from __future__ import annotations

import json
import re
import signal
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.counting import contribution_bounding
from dpdist.counting.histogram_counting import _count_digest
from dpdist.errors import DpdistError, InvalidSpec, ReleaseConflict
from dpdist.pipeline.histogram import count
from dpdist.pipeline.query_answers import answer
from dpdist.planner.release_plan import plan
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.query.linear_functions import LinearFunction
from dpdist.query.published_release import UNPUBLISHED, PublishedRelease
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.statistics.ratio_intervals import fieller
from dpdist.storage.array_store import Store
from tests.pipeline.test_sums import noises_of
from tests.support import small_release
from tests.support.forked_programs import exit_code, killed_run
from tests.support.measurement_readers import measured
from tests.support.standardised_errors import covered_share_limits

TO, MOST, RECORDS = 100, 200, 8
ASKED: list[dict[str, Any]] = [
    {"marginals": {"of": [[], ["branch"]]}},
    {"marginals": {"of": [[], ["branch"]]}, "sum": "amount"},
    {"marginals": {"of": [["branch"]]}, "mean": "amount"},
]


def table(rows: int = 900, seed: int = 2) -> pa.Table:
    """Persons with about six records of money in cents, most of whom spend more than the bound."""
    state = np.random.default_rng(seed)
    amounts = np.round(state.gamma(2, 30, rows), 2)
    mask = state.random(rows) < 0.1
    return pa.table(
        {
            "branch": state.choice(["a", "b"], rows),
            "amount": pa.array(amounts, mask=mask),
            "person": state.integers(0, rows // 6, rows),
        }
    )


def changes(**other: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "domain": {"branch": {"categories": ["a", "b"]}},
        "sums": {"amount": {"from": 0, "to": TO, "step": 0.01, "missing": "drop", "most_per_person": MOST}},
        "records": {"path": "records.parquet", "person": {"column": "person", "most_records": RECORDS}},
        "workload": ASKED,
        "mechanism": "coa",
        "ledger": {"dataset": "small", "cap": {"rho": 1}},
    }
    return {**spec, **other}


def truth(records: pa.Table) -> dict[str, tuple[int, int]]:
    """Cents and records by branch, in whole numbers, after the bounds; where nothing asks for records without an amount."""
    of: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in records.to_pylist():
        of[row["person"]].append(row)
    out = {"a": (0, 0), "b": (0, 0)}
    for rows in of.values():
        kept = [row for row in rows if row["amount"] is not None][:RECORDS]
        cents = [min(int(Decimal(str(row["amount"])) * 100), TO * 100) for row in kept]
        total, most = sum(cents), MOST * 100
        for row, amount in zip(kept, cents, strict=True):
            money, number = out[row["branch"]]
            out[row["branch"]] = money + (amount if total <= most else amount * most // total), number + 1
    return out


def planned_in(folder: Path, records: pa.Table, **other: Any) -> tuple[Context, Any]:
    path = small_release.write(folder / "data", table=records, **changes(**other))
    context = Context(folder / "home", Store(folder / "home" / "store"), engine.inline(), ignore_progress)
    return context, plan(context, load(path))


LAPLACE = {"mechanism": "p-identity", "budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}}


@pytest.mark.statistical
@pytest.mark.parametrize("draws", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["gaussian", pytest.param("laplace", marks=pytest.mark.slow)])
def test_intervals_cover_the_bounded_sums_and_means(kind: str, draws: int, home: Path) -> None:
    """Of 2,000 simulated releases, as in ``test_sums``; Laplace's Fieller intervals cover more."""
    records = table()
    context, planned = planned_in(home.parent, records, workload=ASKED[1:], **(LAPLACE if kind == "laplace" else {}))
    counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
    z = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
    found = answer(context, planned, context.store.put(context.store.scratch(), z))
    exact, half = (column.read(0, 5) for column in (found.answer, found.half_width))
    true = truth(records)
    sums, numbers = ([each[place] / (100, 1)[place] for each in true.values()] for place in (0, 1))
    assert exact == pytest.approx([sum(sums), *sums, *numbers], rel=1e-9)
    noise = noises_of(planned, draws)
    inside = (np.abs(noise) <= half).mean(axis=0)
    least, most = covered_share_limits(draws)
    assert (inside >= least).all()
    assert (inside <= most).all()
    domain = planned.job.measured.domain
    published = PublishedRelease(
        UNPUBLISHED,
        Measurement(planned.measurement.measured_space(ArrayVector(z), domain.shape, MOST_BYTES), domain, planned.noise),
    )
    ends = np.array(domain.attributes[-1].amounts.ends)
    asked = [LinearFunction(((1.0, {0: one, 1: row}),)) for one in np.eye(2) for row in (ends, np.ones(2))]
    covariance = published.covariance_of(asked)
    width = float(planned.noise.half_width_95(1.0))
    for place in (0, 1):
        order, both = [1 + place, 3 + place], slice(2 * place, 2 * place + 2)
        covered = []
        for each in exact[order] + noise[:, order]:
            interval = fieller(each, covariance[both, both], width)
            covered.append(interval is None or interval[0] <= sums[place] / numbers[place] <= interval[1])
        assert least <= np.mean(covered) <= (most if kind == "gaussian" else 0.99)


def test_sums_are_more_precise_than_under_the_bound_on_records(home: Path) -> None:
    """The noise of a sum falls nearly as the bound does, here from eight to two and to one times the largest amount."""
    errors = {}
    for most in (None, 2 * TO, TO):
        sums = {"amount": {"from": 0, "to": TO, "missing": "drop", **({"most_per_person": most} if most else {})}}
        context, planned = planned_in(home.parent / str(most), table(9), workload=ASKED[:2], sums=sums)
        z = context.store.put(context.store.scratch(), np.zeros(planned.measurement.rows, dtype=np.int64))
        errors[most] = answer(context, planned, z).error.read(0, 6)
        row = next(each for each in planned.table if each.mechanism == planned.strategy.name)
        weighed = float(np.sqrt(np.mean((planned.workload.weights * errors[most]) ** 2)))
        assert row.rmse(6, planned.noise_multiplier) == pytest.approx(weighed, rel=1e-3)
        assert (row.gap is None) is (most is not None)
    assert errors[2 * TO][3] < 0.35 * errors[None][3]
    assert errors[TO][3] < 0.18 * errors[None][3]
    assert errors[TO][0] < 1.3 * errors[None][0]


def test_page_and_certificate_say_what_is_excluded_and_not_how_much(home: Path) -> None:
    done = small_release.run(small_release.write(home.parent / "data", table=table(), **changes()), home)
    folder = Path(done.folder)
    certificate = json.loads((folder / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    assert certificate["method"]["sums"]["amount"]["most_per_person"] == MOST
    assert "possible" not in certificate["confidence"]  # cells may hold negative shares of records
    assert certificate["privacy"]["most_records_of_one_person"] == RECORDS
    assert certificate["mechanism"]["certified_gap"] is None
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "the amounts of a person that add up to more than 200 are scaled down to it in proportion" in page
    assert "too small where somebody has more" in page
    headings = re.findall(r'<h3 id="name-(\d+)">([^<]*)', page)
    assert "Records with amount by branch</option>" in page  # in the table, but no chart beside the count of all records
    assert not any("with amount" in text for _, text in headings)
    assert headings
    assert set(re.findall(r'href="#group-(\d+)"', page)) == {name for name, _ in headings}
    true = truth(table())  # records without an amount count here, which moves it by less than the noise
    (total,) = done.ask("total of amount")
    assert abs(float(total.value) - sum(money for money, _ in true.values()) / 100) < 6 * float(total.standard_error)
    for mean, (money, number) in zip(done.ask("mean of amount by branch"), true.values(), strict=True):
        value = money / 100 / number
        assert abs(float(mean.value) - value) < 5 * float(mean.standard_error)
        assert 25 < value < float(mean.high or 0)  # beyond the end of the column
    assert all(str(money) not in json.dumps(certificate) for money, _ in true.values())


KILLS = [
    ("dpdist.privacy.noise.Noise", "draw"),
    pytest.param("dpdist.privacy.ledger.budget_ledger.Ledger", "commit", marks=pytest.mark.slow),
]


def without_counts(home: Path) -> None:
    """Forget what was counted: the next run counts again."""
    store = Store(home / "store")
    for name in store.folders("histograms"):
        store.delete(f"histograms/{name}")


@pytest.mark.parametrize(("point", "name"), KILLS)
def test_a_killed_release_is_counted_again_and_finished_with_the_same_bytes(point: str, name: str, home: Path) -> None:
    path = small_release.write(home.parent / "data", table=table(200), **changes())
    expected = small_release.undisturbed(path, home)
    assert exit_code(killed_run, point, name, path, home) == -signal.SIGKILL
    without_counts(home)
    assert small_release.tree(small_release.run(path, home).folder) == expected


def test_a_bound_that_another_run_keeps_otherwise_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above is not blind: with a bound by chance the second count differs, and the charge that is bound to the first refuses."""
    path = small_release.write(home.parent / "data", table=table(200), **changes())
    small_release.reserved(path, home)
    without_counts(home)
    within_total = contribution_bounding.scale_to_total
    state = np.random.default_rng(1)

    def by_chance(rows: Any, domain: Any) -> np.ndarray:
        return within_total(rows[np.sort(state.permutation(rows.size)[1:])], domain)

    monkeypatch.setattr(contribution_bounding, "scale_to_total", by_chance)
    with pytest.raises(ReleaseConflict):
        small_release.run(path, home)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"records": {"path": "records.parquet", "person": {"most_records": 4}}}, "name the 'column' that identifies persons"),
    ({"sums": {"amount": {"from": 0, "to": 100, "most_per_person": 150}}}, "give 100 or 200, or another 'to'"),
    ({"sums": {"amount": {"from": 0, "to": 100, "most_per_person": 50}}}, "found 50 with 'to: 100'; give 100 or 200"),
    ({"sums": {"amount": {"from": 0, "to": 100, "most_per_person": -100}}}, "found -100"),
    ({"sums": {"amount": {"from": 5, "to": 100, "most_per_person": 200}}}, "set 'from: 0', or leave"),
    ({"sums": {"amount": {"from": 0, "to": 100, "most_per_person": 800}}}, "raise 'most_records'"),
    (
        {
            "sums": {"amount": {"from": 0, "to": 100, "most_per_person": 200}, "tip": {"from": 0, "to": 9}},
            "workload": [*ASKED, {**ASKED[1], "sum": "tip"}],
        },
        "there is one column of amounts",
    ),
    ({"workload": ASKED[:2], "postprocess": {"non_negative": True}}, "the cells of the ends may be negative"),
    ({"mechanism": "marginals"}, "counts whole records"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_bounds_are_refused_in_one_line_before_a_charge(change: dict[str, Any], message: str, home: Path) -> None:
    with pytest.raises(DpdistError) as caught:
        small_release.run(small_release.write(home.parent / "data", table=table(9), **changes(**change)), home)
    assert isinstance(caught.value, InvalidSpec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


def test_another_bound_is_another_release(home: Path) -> None:
    """The bound is part of what was asked and of what is counted."""
    found = []
    for most in (TO, MOST, None):
        sums = {"amount": {**changes()["sums"]["amount"], "most_per_person": most}}
        spec = load(small_release.write(home.parent / "data", table=table(9), **changes(sums=sums)))
        found.append((spec.digest, _count_digest(spec.source.files, spec.measured.domain, ())))
    assert all(len(set(each)) == 3 for each in zip(*found, strict=True))
