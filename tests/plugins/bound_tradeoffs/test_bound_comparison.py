"""Bounds compared on assumed records: noise as plans have it, losses and the best bound as simulated records have them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dpdist as dp
from dpdist.domain.numeric_columns import DEVIATION, PRESENCE, SQUARE
from dpdist.engine import inline
from dpdist.errors import InvalidSpec
from dpdist.planner.error_prediction import predict_errors, standard_errors
from dpdist.planner.release_plan import plan
from dpdist.planner.simulated_answers import AmountMoments
from dpdist.plugins.bound_tradeoffs import bound_comparison
from dpdist.plugins.bound_tradeoffs.bound_comparison import BoundComparison, compare_bounds, mean_clipped_total
from dpdist.plugins.bound_tradeoffs.distributions import Distribution
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress, open_context
from dpdist.session import PlannedRelease
from dpdist.spec import assumed
from dpdist.storage.array_store import Store
from flows.commands import console_output
from tests.support import small_release
from tests.support.command_line import CommandLine

ASKED: dict[str, Any] = {
    "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 4}},
    "domain": {"branch": {"categories": ["a", "b"]}},
    "sums": {"paid": {"from": 0, "to": 100, "unit": "EUR"}},
    "workload": [{"marginals": {"of": [["branch"]]}}, {"marginals": {"of": [["branch"]]}, "sum": "paid"}],
    "mechanism": "identity",
    "budget": {"rho": 0.02},
    "assume": {"persons": 4000, "records_per_person": "geometric 3", "amounts": {"paid": "lognormal 20 1"}},
}


def comparisons(folder: Path, **changes: Any) -> tuple[BoundComparison, ...]:
    context = Context(folder, Store(folder / "store"), inline(), ignore_progress)
    assumptions = assumed(small_release.write(folder / "spec", **{**ASKED, **changes}))
    assert assumptions is not None
    return compare_bounds(context, assumptions)


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
    records, amounts = comparisons(tmp_path)
    for tried, bounds in (
        (records.predictions, [(each.value, 100) for each in records.predictions]),
        (amounts.predictions, [(4, e.value) for e in amounts.predictions]),
    ):
        for each, (most, to) in zip(tried, bounds, strict=True):
            every, counted, paid, added = simulated(int(most), to)
            of_records, of_euros = each.groups
            assert of_records.answer == pytest.approx(every, rel=0.01)
            assert of_records.answer - of_records.lost == pytest.approx(counted, rel=0.01)
            assert of_euros.answer == pytest.approx(paid, rel=0.02)
            assert of_euros.answer - of_euros.lost == pytest.approx(added, rel=0.01)
    assert [each.lost for each in records.predictions] == pytest.approx(
        [(2 / 3) ** each.value for each in records.predictions], abs=1e-9
    )
    assert (amounts.predictions[0].groups[1].unit, amounts.predictions[0].groups[0].unit) == ("EUR", "records")


def test_noise_is_that_of_a_plan_with_the_bound(tmp_path: Path) -> None:
    records, _ = comparisons(tmp_path)
    given = assumed(small_release.write(tmp_path / "spec", **ASKED))
    assert given is not None
    bound = next(given.bounds())
    for each in records.predictions[::4]:
        planned = plan(
            Context(tmp_path, Store(tmp_path / "store"), inline(), ignore_progress), bound.job_with_value(each.value)
        )
        assert [of.half_width for of in each.groups] == [of.half_width for of in predict_errors(planned)]
    one = next(each for each in records.predictions if each.value == 1)
    assert [
        of.half_width / first.half_width for of, first in zip(records.best.groups, one.groups, strict=True)
    ] == pytest.approx([records.best.value] * 2)


def test_the_best_bound_has_the_least_error_of_noise_and_loss(tmp_path: Path) -> None:
    """More noise takes a smaller bound, and none loses anything where all records count."""
    (records, _), (noisy, _) = comparisons(tmp_path / "some"), comparisons(tmp_path / "more", budget={"rho": 0.0002})
    assert 1 < noisy.best.value < records.best.value
    errors = [
        np.mean([((of.half_width / 1.96) ** 2 + of.lost**2) / of.answer**2 for of in each.groups]) ** 0.5
        for each in records.predictions
    ]
    assert records.best is records.predictions[int(np.argmin(errors))]
    assert [each.error for each in records.predictions] == pytest.approx(errors, rel=1e-4)
    (fixed, *_) = comparisons(tmp_path / "fixed", assume={"records": 9000, "records_per_person": "fixed 3"})
    assert [(each.value, round(each.lost, 9)) for each in fixed.predictions] == [(1, round(2 / 3, 9)), (3, 0), (4, 0)]
    assert fixed.best.value == 3


@pytest.mark.slow
def test_a_loss_that_is_forgotten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: amounts that are not cut."""
    true = bound_comparison.mean_answer

    def wrong(workload: Any, block: Any, records: float, amounts: Any, steps: Any) -> Any:
        return true(workload, block, records, dict.fromkeys(amounts, AmountMoments(33.0, 2000.0)), steps)

    monkeypatch.setattr("dpdist.plugins.bound_tradeoffs.bound_comparison.mean_answer", wrong)
    _, amounts = comparisons(tmp_path)
    _, _, _, added = simulated(4, amounts.predictions[0].value)
    of_euros = amounts.predictions[0].groups[1]
    assert of_euros.answer - of_euros.lost != pytest.approx(added, rel=0.1)


def test_persons_by_group_lose_groups(tmp_path: Path) -> None:
    records = {"path": "records.parquet", "count": "persons", "person": {"column": "person", "most_groups": 2}}
    asked = {"records": records, "sums": {}, "workload": [{"marginals": {"of": [["branch"]]}}]}
    (groups,) = comparisons(tmp_path, **asked, assume={"persons": 1000, "groups_per_person": "fixed 2"})
    assert [(each.value, each.lost) for each in groups.predictions] == [(1, 0.5), (2, 0.0)]
    assert groups.predictions[1].groups[0].answer == 1000
    assert groups.best.value == 2


def test_the_command_prints_them_and_charges_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, command = small_release.write(home.parent / "data", **ASKED), CommandLine(monkeypatch, capsys)
    monkeypatch.setenv("DPDIST_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")  # however wide the terminal is
    monkeypatch.setattr("flows.commands.plan_output.console", console_output.ConsoleOutput())
    printed = command("plan", str(spec)).out
    assert "assumed, no record was read: 12,000 records; records per person geometric 3; paid lognormal 20 1." in printed
    assert "most_records lost branch (records) sum of paid by branch (EUR) error" in printed
    assert "as in the spec" in printed
    told = {each["group"]: each for each in json.loads(command("plan", str(spec), "--json").out)["errors"]}
    paid = told["sum of paid by branch"]
    assert paid["share"] == pytest.approx(paid["half_width"] / (6000 * 20 * math.exp(0.5)), rel=1e-3)
    assert printed.count(" least") >= 2
    told = json.loads(command("plan", str(spec), "--json").out)["bounds"]
    assert [(each["bound"], each["own"]) for each in told] == [("most_records", 4), ("sums.paid.to", 100)]
    assert all(each["least"] in [one["value"] for one in each["tried"]] for each in told)
    with open_ledger(home) as ledger:
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
PER_PERSON = {"paid": {"from": 0, "to": 100, "most_per_person": 200}}
TIPS = {"paid": {"from": 0, "to": 100}, "tip": {"from": 0, "to": 20}}
BOTH = {
    "sums": TIPS,
    "workload": [{"marginals": {"of": [["branch"]]}, "covariance": ["tip", "paid"]}],
    "assume": {"persons": 9, "amounts": {"paid": "uniform 0 9", "tip": "uniform 0 9"}},
}


def of_persons(persons: int = 5000) -> list[list[NDArray[np.float64]]]:
    """Of simulated persons the amounts of each of their groups: both numbers are geometric with a mean of 3."""
    random = np.random.default_rng(3)
    return [
        [20 * np.exp(random.standard_normal(random.geometric(1 / 3))) for _ in range(random.geometric(1 / 3))]
        for _ in range(persons)
    ]


def test_what_a_bound_on_totals_cuts_off_is_that_of_simulated_persons(tmp_path: Path) -> None:
    """Amounts are moved into the range and to a step, and those of whoever has more scaled down to a step below, as counting does it."""
    records, amounts = comparisons(tmp_path, sums=PER_PERSON)
    assert [each.value for each in amounts.predictions] == [50, 100, 200]  # of which the bound is a whole number of times
    random = np.random.default_rng(5)
    per_person = random.geometric(1 / 3, 400_000)
    person = np.repeat(np.arange(per_person.size), per_person)
    place = np.arange(person.size) - np.repeat(np.cumsum(per_person) - per_person, per_person)
    paid = 20 * np.exp(random.standard_normal(person.size))
    tried = [(each, int(each.value), 100) for each in records.predictions] + [
        (each, 4, each.value) for each in amounts.predictions
    ]
    for each, most, to in tried:
        steps = np.rint(np.minimum(paid, to)).astype(np.int64)[place < most]
        totals = np.bincount(person[place < most], steps)
        total = np.maximum(totals[person[place < most]].astype(np.int64), 1)
        cut = np.where(total > 200, steps * 200 // total, steps)
        of_records, of_euros = each.groups
        assert of_euros.answer - of_euros.lost == pytest.approx(cut.sum() * 4000 / 400_000 / 2, rel=0.006)
        assert of_records.answer - of_records.lost == pytest.approx((place < most).sum() * 4000 / 400_000 / 2, rel=0.01)


def test_totals_of_persons_in_several_groups_are_those_of_simulated_persons(tmp_path: Path) -> None:
    """Of a person up to two records in each of up to two groups count, and their amounts up to 60 euros together."""
    person = {"column": "person", "most_records": 2, "most_groups": 2}
    assume = {"persons": 1000, "records_per_person": "geometric 3", "groups_per_person": "geometric 3"}
    changes = {
        "records": {"path": "records.parquet", "person": person},
        "domain": {"branch": {"from": 0, "to": 499}},  # so many that nobody is in all of them
        "sums": {"paid": {"from": 0, "to": 60, "most_per_person": 60}},
        "assume": {**assume, "amounts": ASKED["assume"]["amounts"]},
    }
    records, groups, _ = comparisons(tmp_path, **changes)
    kept = [np.concatenate([each[:2] for each in of[:2]]) for of in of_persons()]
    added = np.array(
        [min(60.0, np.minimum(each, 60).sum()) - (np.minimum(each, 60).sum() > 60) * each.size / 2 for each in kept]
    )
    for bound in (records, groups):
        (own,) = (each for each in bound.predictions if each.value == 2)
        counts, sums = own.groups
        assert counts.answer == pytest.approx(1000 * 9 / 500, rel=1e-6)
        assert counts.answer - counts.lost == pytest.approx(np.mean([each.size for each in kept]) * 1000 / 500, rel=0.03)
        assert sums.answer - sums.lost == pytest.approx(added.mean() * 1000 / 500, rel=0.03)


def test_totals_of_groups_are_those_of_simulated_persons(tmp_path: Path) -> None:
    """Two attributes with totals and one without: a person's groups are different ones, and the first of each table count."""
    domain = {
        "branch": {"categories": ["a", "b"], "total": "any"},
        "sex": {"categories": ["f", "m"]},
        "age": {"from": 0, "to": 2, "total": "all"},
    }
    (groups,) = comparisons(tmp_path, **{**TOTAL, "domain": domain, "workload": [{"marginals": {"ways": [3]}}]})
    random, rows = np.random.default_rng(7), 12 + 6 + 4 + 2
    there = []  # of each person the groups in each of the four tables
    for number in np.minimum(random.geometric(1 / 3, 5000), 12):
        sets = [set[tuple[int, ...]]() for _ in range(4)]
        for branch, sex, age in zip(*np.unravel_index(random.permutation(12)[:number], (2, 2, 3)), strict=True):
            for some, cell in zip(sets, [(branch, sex, age), (sex, age), (branch, sex), (sex,)], strict=True):
                some.add(tuple(map(int, cell)))
        there.append([len(each) for each in sets])
    told = np.array(there)
    assert {1, 2}.issubset(each.value for each in groups.predictions)
    for each in groups.predictions:
        (of,) = each.groups
        assert of.answer == pytest.approx(told.sum() / rows * 4000 / 5000, rel=0.03)
        assert of.answer - of.lost == pytest.approx(np.minimum(told, each.value).sum() / rows * 4000 / 5000, rel=0.03)


def test_persons_by_levels_are_those_of_simulated_persons(tmp_path: Path) -> None:
    """Of five weeks a person counts in two at most, whatever the bound on days."""
    day = {
        "dates": {"from": "2026-09-07", "to": "2026-10-11", "every": "day"},
        "levels": {"week": "week"},
        "most_groups": {"week": 2},
    }
    (groups,) = comparisons(
        tmp_path, **{**TOTAL, "domain": {"day": day}, "workload": [{"marginals": {"of": [["day"], ["week"]]}}]}
    )
    random = np.random.default_rng(7)
    days = np.minimum(random.geometric(1 / 3, 5000), 35)
    weeks = np.array([len(set(random.permutation(35)[:number] // 7)) for number in days])
    assert {1, 2}.issubset(each.value for each in groups.predictions)
    for each in groups.predictions:
        by_day, by_week = each.groups
        assert by_day.answer - by_day.lost == pytest.approx(np.minimum(days, each.value).sum() / 35 * 4000 / 5000, rel=0.03)
        assert by_week.answer == pytest.approx(weeks.sum() / 5 * 4000 / 5000, rel=0.03)
        assert by_week.answer - by_week.lost == pytest.approx(
            np.minimum(weeks, min(2, each.value)).sum() / 5 * 4000 / 5000, rel=0.03
        )


def test_standard_deviations_are_those_of_simulated_releases(home: Path, tmp_path: Path) -> None:
    """Their usual answer, what the range takes of it, and their noise, which to first order is that of drawn measurements."""
    changes = {"workload": [ASKED["workload"][0], VARIANCE], "budget": {"rho": 0.05}}
    _, amounts = comparisons(tmp_path, **changes)
    assert [each.group for each in amounts.predictions[0].groups] == [
        "branch", "count of paid by branch", "standard deviation of paid by branch"
    ]  # fmt: skip
    paid = 20 * np.exp(np.random.default_rng(5).standard_normal(400_000))
    for each in amounts.predictions:
        of = each.groups[-1]
        assert (of.unit, of.answer) == ("EUR", pytest.approx(paid.std(), rel=0.02))
        assert of.answer - of.lost == pytest.approx(np.minimum(paid, each.value).std(), rel=0.01)
    assert amounts.predictions[0].value < amounts.best.value < amounts.predictions[-1].value
    (own,) = (each for each in amounts.predictions if each.value == 100)
    planned = PlannedRelease.read(tmp_path / "spec" / "release.yaml").plan
    sums = standard_errors(planned)[[2, 4, 6]]  # of one branch: mechanism 'identity' measures each bin by itself
    column = planned.job.measured.domain.attribute("paid").amounts
    assert column is not None
    rows = np.stack([column.values(what) for what in (PRESENCE, DEVIATION, SQUARE)])
    noise = np.random.default_rng(9).standard_normal((4000, 6)) * sums[0] / math.sqrt(6)
    assert np.sqrt((rows**2).sum(1) / 6) * sums[0] == pytest.approx(sums, rel=1e-6)
    kept, moved = own.groups[1].answer - own.groups[1].lost, np.minimum(paid, 100) - 50
    number, away, square = np.array([1, moved.mean(), (moved**2).mean()])[:, None] * kept + rows @ noise.T
    spread = np.sqrt(square / number - (away / number) ** 2).std() * 1.96
    assert own.groups[-1].half_width == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (BOTH, "how 'tip' and 'paid' go together is not assumed; leave both out of 'assume', or compare"),
        (
            {"sums": PER_PERSON, "assume": {"persons": 9, "amounts": ASKED["assume"]["amounts"]}},
            "what 'most_per_person' cuts off depends on all records of a person; give 'records_per_person', too",
        ),
        (
            {"records": {"path": "x.csv", "person": {"column": "person", "most_records": 4, "participations": 2}}},
            "leave 'assume' out, or compare the bounds in a spec without 'participations'",
        ),
    ],
)
def test_what_is_not_compared_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        comparisons(tmp_path, **changes)


def test_bounds_of_persons_are_compared_beside_variances(tmp_path: Path) -> None:
    """Counts alone are compared where nothing is assumed of the amounts."""
    assume = {"persons": 4000, "records_per_person": "geometric 3"}
    (records,) = comparisons(tmp_path, workload=[ASKED["workload"][0], VARIANCE], assume=assume)
    assert all([each.group for each in tried.groups] == ["branch"] for tried in records.predictions)


def test_amounts_that_are_scaled_down_lose_half_a_step_each() -> None:
    """Few large steps: of persons with six amounts of 1 to 10, and at most 20 together; and what nobody exceeds is what is there."""
    amounts = Distribution(np.arange(1.0, 11), np.full(10, 0.1))
    steps = np.random.default_rng(2).integers(1, 11, (100_000, 6))
    totals = steps.sum(axis=1, keepdims=True)
    scaled = np.where(totals > 20, steps * 20 // totals, steps).sum(axis=1).mean()
    kept = np.array([0, 0, 0, 0, 0, 0, 1.0])
    assert mean_clipped_total(kept, amounts, 20, 1) == pytest.approx(scaled, rel=0.01)
    assert mean_clipped_total(kept, amounts, 20, 0.001) > 1.1 * scaled
    assert mean_clipped_total(kept, amounts, 60, 1) == pytest.approx(6 * 5.5)


def test_other_bounds_are_compared_on_assumed_records(home: Path) -> None:
    """As ``dpdist plan`` of the same spec compares them; none is read, and nothing is charged."""
    content = {key: each for key, each in ASKED.items() if key not in ("records", "assume")}
    whole = small_release.spec(**content)
    session = dp.Session("visits", cap=dp.Budget(rho=1), protect=dp.Persons("person", most_records=4))
    session.domain(whole["domain"])
    planned = session.plan(
        *(dp.question(whole["sums"], **each) for each in whole["workload"]),
        budget=dp.Budget(rho=0.02),
        mechanism="identity",
        assume=ASKED["assume"],
    )
    path = home / "asked.yaml"
    planned.to_yaml(path)
    with open_context("inline") as context:
        given = assumed(path)
        assert given is not None
        told = compare_bounds(context, given)
    assert planned.bounds.compared == tuple(told)
    assert planned.bounds.best_values == {each.key: each.best.value for each in told}
    rows = planned.bounds.pandas()
    assert rows[rows.as_planned].value.tolist() == [4.0, 100.0]
    assert rows.groupby("bound").least.sum().tolist() == [1, 1]
    assert repr(planned.bounds).splitlines()[0].startswith("assumed: 12,000 records; records per person geometric 3")
    assert "<td>as planned</td>" in planned.bounds._repr_html_()
    assert PlannedRelease({**planned.content, "release": "other"}, home).bounds.compared == tuple(told)
    with pytest.raises(InvalidSpec, match="nothing is assumed of the records; plan with assume="):
        _ = PlannedRelease({key: each for key, each in planned.content.items() if key != "assume"}).bounds
    with open_ledger(home) as ledger:
        assert not ledger.budgets()
