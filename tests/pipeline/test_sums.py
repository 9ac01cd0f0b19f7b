"""Sums and means of amounts: what is published is what the records say, its errors are those of its noise, and bad input is refused."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.content.number_format import digits_for, format_number
from dpdist.content.release_summary import compared_error_text
from dpdist.domain import Domain, amounts_attribute
from dpdist.domain.numeric_columns import Amounts
from dpdist.errors import DpdistError, InvalidInput
from dpdist.pipeline.histogram import count
from dpdist.pipeline.query_answers import answer
from dpdist.planner.derived_statistics import statistics
from dpdist.planner.release_plan import plan
from dpdist.query.linear_functions import LinearFunction
from dpdist.query.published_release import UNPUBLISHED, PublishedRelease
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import Sizes
from dpdist.spec import load
from dpdist.statistics.ratio_intervals import fieller
from dpdist.storage.array_store import Store
from dpdist.strategies.strategy import Strategy
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.complete_tree import installed_releases, needs_plugin
from tests.support.measurement_readers import Remembering, measured
from tests.support.standardised_errors import covered_share_limits

ASKED: list[dict[str, Any]] = [
    {"marginals": {"of": [[], ["branch"], ["branch", "age"]]}},
    {"marginals": {"of": [[], ["branch"]]}, "sum": "amount"},
    {"marginals": {"of": [["branch"]]}, "mean": "amount"},
    {"ranges": {"of": ["age"], "by": ["branch"]}, "sum": "amount"},
    {"predicates": ["branch == 'a' and age >= 2"], "sum": "amount"},
]
"""Tables, ranges and conditions of counts, sums and means."""
OR: dict[str, Any] = {"predicates": ["branch == 'a' or age >= 2"], "mean": "amount"}
"""A condition that is no product over attributes."""


def table(rows: int = 400, seed: int = 0, missing: bool = True) -> pa.Table:
    """Money in cents, some of it beyond the range on either side, some of it missing."""
    state = np.random.default_rng(seed)
    amounts = np.round(state.gamma(2, 30, rows) - 10, 2)
    mask = state.random(rows) < (0.1 if missing else 0)
    return pa.table(
        {
            "branch": state.choice(["a", "b"], rows),
            "age": state.integers(0, 4, rows),
            "amount": pa.array(amounts, mask=mask),
            "person": state.integers(0, rows // 3, rows),
        }
    )


def changes(**other: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "domain": {"branch": {"categories": ["a", "b"], "title": "Branch"}, "age": {"from": 0, "to": 3}},
        "sums": {"amount": {"from": 5, "to": 105, "step": 0.01, "missing": "drop", "title": "Amount paid"}},
        "workload": ASKED,
    }
    return {**spec, **other}


def planned_in(folder: Path, records: pa.Table, **other: Any) -> tuple[Context, Any]:
    path = small_release.write(folder / "data", table=records, **changes(**other))
    context = Context(folder / "home", Store(folder / "home" / "store"), engine.inline(), ignore_progress)
    return context, plan(context, load(path))


def truth(records: pa.Table, condition: Any = None) -> tuple[Fraction, int]:
    """Sum and number of clamped amounts, in exact cents."""
    total, number = Fraction(0), 0
    for row in records.to_pylist():
        if row["amount"] is not None and (condition is None or condition(row)):
            total += min(max(Fraction(Decimal(str(row["amount"]))), Fraction(5)), Fraction(105))
            number += 1
    return total, number


MECHANISMS = installed_releases(
    {
        "coa": {"mechanism": "coa"},
        "identity": {"mechanism": "identity"},
        "eigen": {"mechanism": "eigen"},
        "residual": {"mechanism": "residual"},
        "p-identity": {"mechanism": "p-identity", "pure": True},
        "p-identity-products": {"mechanism": "p-identity-products", "pure": True},
        "weighted-design": {"mechanism": "weighted-design", "pure": True},
        "low-rank, Laplace noise": {"mechanism": "low-rank", "pure": True},
        "identity, Laplace noise": {"mechanism": "identity", "pure": True},
    }
)
SMALL = ("coa", "residual", "p-identity-products")


def mechanism_changes(name: str) -> dict[str, Any]:
    pure = MECHANISMS[name].get("pure", False)
    return {
        "mechanism": MECHANISMS[name]["mechanism"],
        "budget": {"epsilon": 1} if pure else {"rho": 0.1},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1} if pure else {"rho": 0.25}},
    }


def test_auto_leaves_out_what_counts_whole_records_only(tmp_path: Path) -> None:
    """Where the optimum is out of reach: ``oblique`` would have less error than ``residual`` here, if these were counts."""
    asked = [{"cdf": {"of": "age", "by": ["branch"]}}, {"cdf": {"of": "age"}, "sum": "amount"}]
    _, planned = planned_in(tmp_path, table(), workload=asked, limits={"memory_gib": 1e-6})
    assert planned.strategy.name == "residual"


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in SMALL else pytest.mark.slow) for n in MECHANISMS])
def test_answers_without_noise_are_exact_cents(name: str, home: Path) -> None:
    """Every published number of every mechanism, from the file to the answer, with the noise left out."""
    records = table()
    separable = name in ("residual", "p-identity-products")
    context, planned = planned_in(
        home.parent, records, **mechanism_changes(name), workload=ASKED if separable else [*ASKED, OR]
    )
    counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
    z = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
    found = answer(context, planned, context.store.put(context.store.scratch(), z))
    values = found.answer.read(0, found.answer.size)
    by = {each: truth(records, lambda row, each=each: row["branch"] == each) for each in "ab"}
    total = truth(records)
    assert values[0] == pytest.approx(400, rel=1e-9)
    both = [float(by["a"][0]), float(by["b"][0])]
    assert values[11:14] == pytest.approx([float(total[0]), *both], rel=1e-9)
    assert values[14:16] == pytest.approx([by["a"][1], by["b"][1]], rel=1e-9)  # the sums of the mean stand at 12 and 13
    ranges = [
        float(truth(records, lambda row, b=b, i=i, j=j: row["branch"] == b and i <= row["age"] <= j)[0])
        for b in "ab"
        for i in range(4)
        for j in range(i, 4)
    ]
    assert values[16:36] == pytest.approx(ranges, rel=1e-9)
    assert values[36] == pytest.approx(float(truth(records, lambda row: row["branch"] == "a" and row["age"] >= 2)[0]))
    if not separable:
        either = truth(records, lambda row: row["branch"] == "a" or row["age"] >= 2)
        assert values[37:39] == pytest.approx([either[1], float(either[0])], rel=1e-9)
    space = planned.measurement.measured_space(ArrayVector(z), planned.job.measured.domain.shape, MOST_BYTES)
    ratios = statistics(planned.job.workload, Measurement(space, planned.job.measured.domain, planned.noise))["means"]
    expected = [float(s / n) for s, n in by.values()]
    assert ratios["mean"].to_pylist()[:2] == pytest.approx(expected, abs=2e-3)


def test_predicted_errors_are_those_of_the_answers(home: Path) -> None:
    """In the units of the amounts, weighed as the optimiser weighs them: an error of the largest amount as one record."""
    context, planned = planned_in(home.parent, table())
    z = context.store.put(context.store.scratch(), np.zeros(planned.measurement.rows, dtype=np.int64))
    found = answer(context, planned, z)
    errors = found.error.read(0, found.error.size)
    row = next(each for each in planned.table if each.mechanism == planned.strategy.name)
    weighed = float(np.sqrt(np.mean((planned.workload.weights * errors) ** 2)))
    assert row.rmse(errors.size, planned.noise_multiplier) == pytest.approx(weighed, rel=1e-8)
    assert planned.strategy.gap <= 1e-5  # of the whole numbers, for which amounts leave few bits


@pytest.mark.parametrize("weights", [(1, 1), (1, 3)])
def test_errors_that_are_shown_have_one_unit(home: Path, weights: tuple[float, float]) -> None:
    """Of sums alone the error is in their unit, though the optimiser weighs them; of counts and sums together none is shown."""
    sums = {"amount": {"from": 0, "to": 80, "step": 0.01, "unit": "EUR", "missing": "drop"}}
    tables: list[dict[str, Any]] = [
        {"marginals": {"of": [of]}, "weight": w} for of, w in zip(([], ["branch"]), weights, strict=True)
    ]
    alone = [{**each, "sum": "amount"} for each in tables]
    context, planned = planned_in(home.parent, table(), workload=alone, sums=sums)
    found = answer(
        context, planned, context.store.put(context.store.scratch(), np.zeros(planned.measurement.rows, dtype=np.int64))
    )
    errors, squares = found.error.read(0, found.error.size), planned.workload.weights**2
    facts = planned.certificate()["mechanism"]
    assert facts["unit"] == "EUR"
    assert facts["rmse"] == pytest.approx(float(np.sqrt(squares @ errors**2 / squares.sum())), rel=1e-8)
    assert facts["compared"][0]["worst"] == pytest.approx(errors.max(), rel=1e-6)
    assert f"with RMSE {facts['rmse']:.4g} EUR" in repr(planned)
    _, mixed = planned_in(home.parent, table(), workload=[*tables, *alone], sums=sums)
    facts = mixed.certificate()["mechanism"]
    assert (facts["unit"], facts["rmse"], {row["worst"] for row in facts["compared"]}) == (None, None, {None})
    assert "RMSE" not in repr(mixed) + mixed._repr_html_()
    assert compared_error_text(facts["compared"][0], facts).endswith(f" times that of {facts['name']}")


def test_one_cell_costs_what_was_proven(home: Path) -> None:
    """A count and a sum of weight one over the largest amount: 2.618 = (3 + sqrt 5) / 2; measured apart they cost 4."""
    asked = [{"marginals": {"of": [[]]}}, {"marginals": {"of": [[]]}, "sum": "amount"}]
    sums = {"amount": {"from": 0, "to": 100, "step": 0.01}}
    _, planned = planned_in(home.parent, table(missing=False), workload=asked, sums=sums)
    assert planned.strategy.workload_cost == pytest.approx((3 + 5**0.5) / 2, rel=1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize("draws", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["coa", "p-identity"])
def test_intervals_of_sums_and_means_cover(name: str, draws: int, home: Path) -> None:
    """Of 2,000 simulated releases: noise as a release draws it, on counts and sums of the records.

    One check in 10,000 errs by chance; Laplace noise is covered more often than it says, as its Fieller intervals take the widest noise.
    """
    records = table()
    context, planned = planned_in(home.parent, records, **mechanism_changes(name), workload=[{**ASKED[2]}])
    counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
    z = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
    found = answer(context, planned, context.store.put(context.store.scratch(), z))
    exact, half = (column.read(0, 4) for column in (found.answer, found.half_width))
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
    covariance = published.covariance_of([each for pair in pairs_of(planned) for each in pair])
    np.testing.assert_allclose(np.cov(noise[:, [2, 0, 3, 1]].T), covariance, atol=0.1 * np.abs(covariance).max())
    width = float(planned.noise.half_width_95(1.0))
    for place in (0, 1):
        both = slice(2 * place, 2 * place + 2)
        order = [2 + place, place]
        true = exact[2 + place] / exact[place]
        covered = []
        for each in exact[order] + noise[:, order]:
            interval = fieller(each, covariance[both, both], width)
            covered.append(interval is None or interval[0] <= true <= interval[1])
        assert least <= np.mean(covered) <= (most if planned.noise.kind == "gaussian" else 0.99)


def noises_of(planned: Any, draws: int) -> np.ndarray:
    """What the noise of so many releases makes of their answers, (draws, queries): drawn on the grid, read as answers are."""
    grid, rows = planned.measurement, planned.measurement.rows
    probes = (2**20 * np.eye(rows)).astype(np.int64)
    read = [
        grid.answers(planned.workload, ArrayVector(each), planned.noise, AnswerRequest("answers", Remembering()))
        for each in probes
    ]
    weights = np.array([to_array(each.answer) for each in read]) / 2**20
    drawn = planned.noise.draw(b"4" * 32, count=draws * rows).reshape(draws, rows)
    return np.asarray(drawn @ weights / planned.job.measured.domain.shares_per_record)


def pairs_of(planned: Any) -> list[tuple[Any, Any]]:
    """Sum and number of the records of each branch, as linear functions."""
    ends, present = np.array([5.0, 105.0]), np.ones(2)
    return [
        (LinearFunction(((1.0, {0: one, 2: ends}),)), LinearFunction(((1.0, {0: one, 2: present}),))) for one in np.eye(2)
    ]


@needs_plugin("export")
def test_means_and_sums_are_published_shown_and_asked_for_alike(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    released = small_release.run(small_release.write(home.parent / "data", table=table(), **changes()), home)
    folder = released.folder
    assert isinstance(folder, Path)
    certificate = json.loads((folder / "release.json").read_text())
    assert certificate["means"] == {
        "file": "means.csv",
        "rows": 2,
        "interval": "Fieller 1954, within the range of the amounts",
    }
    assert certificate["method"]["sums"]["amount"]["from"] == 5.0
    assert certificate["measurement"]["format"] == 2
    rows = list(csv.DictReader((folder / "means.csv").open()))
    asked = released.ask("mean of amount by branch")
    assert [row["branch"] for row in rows] == [each.group["branch"] for each in asked]
    for row, each in zip(rows, asked, strict=True):
        assert float(row["mean"]) == pytest.approx(float(each.value), abs=0.01)
        assert float(row["low_95"]) == pytest.approx(float(each.low), abs=0.01)
    printed = CommandLine(monkeypatch, capsys)("show", str(folder)).out
    assert all(f"branch {row['branch']} {row['mean']} {row['standard_error']}" in printed for row in rows)
    answers = {row["query"]: row for row in released.answers.arrow.to_pylist()}
    (total,) = released.ask("total of amount")
    assert answers["amount sum"]["answer"] == pytest.approx(float(total.value), abs=0.01)
    assert answers["amount sum"]["standard_error"] == pytest.approx(total.standard_error, rel=1e-4)
    assert answers["branch a, amount sum"]["amount"] == "sum"
    assert answers["branch a, amount count"]["amount"] == "count"
    assert released.ask("sum of branch=a")[0].value == pytest.approx(answers["branch a"]["answer"], abs=0.01)
    true, number = truth(table())
    assert abs(float(total.value) - float(true)) < 6 * float(total.standard_error)
    page = (folder / "index.html").read_text()
    assert "an amount below 5 is added up as 5, one above 105 as 105, and one in between to the nearest 0.01" in page
    assert "records without an amount are left out of sums and means" in page
    assert 'id="means"' in page
    assert ">Sum of Amount paid by Branch<" in page
    half = (float(rows[0]["high_95"]) - float(rows[0]["low_95"])) / 2
    assert f"<td>{format_number(float(rows[0]['mean']), digits_for(half, float(rows[0]['mean'])))}</td>" in page
    assert str(number) not in certificate["method"]["sums"].values()


def test_records_are_counted_alike_however_they_are_cut(home: Path) -> None:
    """Row groups, files, CSV, a task of pairs in place of one of all counts, and amounts as decimals."""
    records = table()
    folder = home.parent
    context, planned = planned_in(folder, records)
    whole = context.store.read_array(count(context, planned.job.source, planned.job.measured, planned.layout)[0])
    assert whole.sum() == 400 * 10_000
    places = {name: folder / name for name in ("groups.parquet", "rows.csv", "parts")}
    pyarrow.parquet.write_table(records, places["groups.parquet"], row_group_size=7)
    pyarrow.csv.write_csv(records, places["rows.csv"])
    places["parts"].mkdir()
    pyarrow.parquet.write_table(records.slice(0, 150), places["parts"] / "1.parquet")
    pyarrow.csv.write_csv(records.slice(150), places["parts"] / "2.csv")
    exact = records.set_column(2, "amount", records["amount"].cast(pa.decimal128(9, 2)))
    pyarrow.parquet.write_table(exact, folder / "decimals.parquet")
    for place in (*places.values(), folder / "decimals.parquet"):
        found, _ = count(context, planned.job.with_records(place).source, planned.job.measured, planned.layout)
        np.testing.assert_array_equal(context.store.read_array(found), whole)
    little = engine.Engine(workers=2, memory_bytes=10**6, threads=1, connect=None, local=True)  # too little for all counts
    pairs = Context(
        folder / "home", Store(folder / "pairs", Sizes(shard_bytes=8 * 4, pending_pairs=5)), little, ignore_progress
    )
    found, _ = count(pairs, planned.job.source, planned.job.measured, planned.layout)
    np.testing.assert_array_equal(pairs.store.read_array(found), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sums": {"amount": {"from": 5, "to": 5}}}, "'from' must be smaller than 'to'"),
        ({"sums": {"amount": {"from": 0, "to": 1, "step": 0.3}}}, "a whole number of steps apart"),
        ({"sums": {"amount": {"from": 0, "to": 50_000, "step": 0.01}}}, "from 1 to 1,048,576, found 5,000,000"),
        ({"sums": {"amount": {"from": 0, "to": 9, "missing": "none"}}}, "'missing' of a sum is 'drop'"),
        ({"sums": {"age": {"from": 0, "to": 9}}}, "call its bins 'age_in_bins'"),
        ({"sums": {"amount": {"from": 0, "to": 9}, "tip": {"from": 0, "to": 9}}}, "no group of the workload asks for 'tip'"),
        ({"sums": {}}, "there are no amounts 'amount' to add up; declared under 'sums' are none"),
        (
            {"workload": [{**ASKED[0], "sum": "amuont"}]},
            "no amounts 'amuont' to add up .did you mean 'amount'",
        ),
        (
            {"workload": [{**ASKED[0], "sum": "money"}, ASKED[1]]},
            "no amounts 'money' to add up; declared under 'sums' are amount",
        ),
        ({"workload": [{**ASKED[0], "sum": "amount", "mean": "amount"}]}, "at most one of 'sum', 'mean'"),
        ({"workload": [ASKED[1], {"marginals": {"of": [["amount"]]}}]}, "of 'amount' sums are measured and no numbers"),
        ({"workload": [ASKED[1], {"predicates": ["amount > 5"]}]}, "of 'amount' sums are measured and no numbers"),
        ({"mechanism": "marginals"}, "this mechanism counts whole records only"),
        pytest.param(
            {"mechanism": "oblique", "workload": ASKED[:4]},
            "this mechanism counts whole records only",
            marks=needs_plugin("mechanism.oblique"),
        ),
        (
            {"mechanism": "dawa", **{k: v for k, v in mechanism_changes("p-identity").items() if k != "mechanism"}},
            "partitions one ordered attribute",
        ),
        (
            {"workload": [ASKED[1], {"filters": {"of": "age", "apply": [{"running_sum": True}]}}]},
            "every group of the workload asks for the 'sum' of the same column",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = small_release.write(tmp_path, table=table(20), **changes(**change))
    small_release.refused_in_one_line(path, message)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, None]), "holds records without 'amount'; set 'missing: drop' for it under 'sums'"),
        (None, "amount"),
    ],
)
def test_columns_that_hold_no_amounts_are_refused_before_the_charge(column: Any, message: str, home: Path) -> None:
    records = pa.table({"branch": ["a", "b"], "age": [1, 2], **({} if column is None else {"amount": column})})
    path = small_release.write(home.parent / "data", table=records, **changes(sums={"amount": {"from": 0, "to": 9}}))
    with pytest.raises(DpdistError, match=message) as refused:
        small_release.run(path, home)
    assert "\n" not in str(refused.value)
    assert not list((home / "store").glob("measurements/*"))


def test_a_record_is_divided_between_the_ends_so_that_its_mean_is_its_amount() -> None:
    amounts = Amounts(Fraction(-2), Fraction(1, 2), 8)
    values = np.array([-9, -2, -1.75, -1.7, 0.0, 1.99, 2.0, np.inf, -np.inf, np.nan])
    assert amounts.steps_of(values).tolist() == [0, 0, 0, 1, 4, 8, 8, 8, 0, -1]
    assert amounts.ends == (-2.0, 2.0)
    with pytest.raises(InvalidInput, match="1 to 1,048,576 steps"):
        Amounts(Fraction(0), Fraction(1), 2**20 + 1)


def test_two_columns_of_amounts_are_divided_together(home: Path) -> None:
    """Their shares multiply; each sum is exact beside the other."""
    records = table(missing=False).append_column("tip", pa.array(np.random.default_rng(5).integers(0, 12, 400)))
    asked = [{"marginals": {"of": [["branch"]]}, "sum": name} for name in ("amount", "tip")]
    sums = {"amount": {"from": 0, "to": 100, "step": 0.5}, "tip": {"from": 0, "to": 10}}
    context, planned = planned_in(home.parent, records, sums=sums, workload=asked)
    assert planned.job.measured.domain.shares_per_record == 2000
    counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
    z = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
    found = answer(context, planned, context.store.put(context.store.scratch(), z))
    tips = {b: sum(min(r["tip"], 10) for r in records.to_pylist() if r["branch"] == b) for b in "ab"}
    np.testing.assert_allclose(found.answer.read(2, 4), [tips["a"], tips["b"]], rtol=1e-9)


def test_every_strategy_says_itself_whether_it_measures_shares() -> None:
    """A strategy that is measured in a way of its own does not inherit that another one knows of shares."""

    def below(kind: type) -> list[type]:
        return [kind, *(each for sub in kind.__subclasses__() for each in below(sub))]

    measured = [kind for kind in below(Strategy)[1:] if "_measurement" in vars(kind)]
    assert len({kind for kind in measured if kind.supports_fractional_records}) > 1
    for kind in measured:
        if kind.supports_fractional_records:
            assert "supports_fractional_records" in vars(kind) or kind.__name__ == "ProductsStrategy", kind


def test_a_range_of_one_step_is_a_column_of_amounts_like_any_other(home: Path) -> None:
    """Yes and no as 1 and 0: a record is one share, at one end or the other."""
    records = table().append_column("member", pa.array(np.arange(400) % 3 == 0).cast(pa.int8()))
    asked = [{"marginals": {"ways": [1]}}, {"marginals": {"of": [["branch"]]}, "mean": "member"}]
    _, planned = planned_in(home.parent, records, sums={"member": {"from": 0, "to": 1}}, workload=asked)
    assert planned.job.measured.domain.shares_per_record == 1
    assert [block.name for block in planned.workload.blocks][:2] == ["branch", "age"]
    domain = planned.job.measured.domain
    space = planned.measurement.measured_space(
        ArrayVector(np.zeros(planned.measurement.rows, dtype=np.int64)), domain.shape, MOST_BYTES
    )
    assert Measurement(space, domain, planned.noise).format == 2


def test_a_domain_needs_attributes_beside_amounts() -> None:
    alone = amounts_attribute("amount", Amounts(Fraction(0), Fraction(1), 5), None)
    with pytest.raises(InvalidInput, match="come after all other attributes"):
        Domain((alone,))


@pytest.mark.parametrize(
    "options",
    [{"known": [{"count": 400}]}, pytest.param({"non_negative": True, "integer": True}, marks=pytest.mark.slow)],
)
def test_sums_go_with_known_counts_and_cells_that_are_not_negative(options: dict[str, Any], home: Path) -> None:
    """Both are about records: what is known is a count of records, and no cell holds less than nothing of them."""
    changed = changes(workload=[ASKED[0], ASKED[1]], postprocess=options)
    released = small_release.run(small_release.write(home.parent / "data", table=table(), **changed), home)
    answers = {row["query"]: row["answer"] for row in released.answers.arrow.to_pylist()}
    assert answers["all"] == pytest.approx(400, abs=0 if "known" in options else 60)
    assert answers["amount sum"] == pytest.approx(float(truth(table())[0]), rel=0.2)
