"""Variances, covariances and correlations of amounts: what is published is what the records say, and intervals cover it."""

from __future__ import annotations

import csv
import json
import math
import re
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.content import measurement_file
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.content.table_rows import COLUMNS_OF_TABLES
from dpdist.domain import numeric_columns
from dpdist.domain.numeric_columns import AMOUNT, DEVIATION, PRESENCE, SPLINE_PIECES, SQUARE, Amounts
from dpdist.errors import InvalidInput
from dpdist.pipeline.histogram import count
from dpdist.planner.derived_statistics import statistics
from dpdist.query.linear_functions import ALL_RECORDS
from dpdist.query.published_release import UNPUBLISHED, PublishedRelease
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.statistics.value_powers import bin_summands
from dpdist.statistics.variance_statistics import correlation_of, covariance_of, variance_of
from tests.pipeline.test_sums import MECHANISMS, mechanism_changes, noises_of, planned_in
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.forked_programs import exit_code, killed_run
from tests.support.measurement_readers import measured
from tests.support.standardised_errors import covered_share_limits

SUMS: dict[str, Any] = {
    "amount": {"from": 5, "to": 105, "step": 0.5, "missing": "drop", "title": "Amount paid", "unit": "EUR"},
    "tip": {"from": 0, "to": 12},
}
BY_BRANCH: dict[str, Any] = {"marginals": {"of": [["branch"]]}}
ASKED: list[dict[str, Any]] = [
    {**BY_BRANCH, "variance": "amount"},
    {**BY_BRANCH, "correlation": ["tip", "amount"]},
    {"ranges": {"of": ["age"], "list": [[0, 1], [1, 3]]}, "covariance": ["amount", "tip"]},
]
DOMAIN = {"branch": {"categories": ["a", "b"], "title": "Branch"}, "age": {"from": 0, "to": 3}}


def table(rows: int = 800) -> pa.Table:
    """Money beyond the range and missing, and tips that go with it."""
    state = np.random.default_rng(3)
    amounts = np.round(state.gamma(2, 30, rows) - 10, 2)
    tips = np.clip(np.round(amounts / 12 + state.normal(0, 2, rows)), 0, 20).astype(int)
    missing = state.random(rows) < 0.1
    return pa.table(
        {
            "branch": state.choice(["a", "b"], rows),
            "age": state.integers(0, 4, rows),
            "amount": pa.array(amounts, mask=missing),
            "tip": tips,
        }
    )


def changes(**other: Any) -> dict[str, Any]:
    return {"domain": DOMAIN, "sums": SUMS, "workload": ASKED, **other}


def truth(records: pa.Table, keep: Any) -> dict[str, float]:
    """Statistics of the clamped and rounded amounts, from their definitions."""
    rows = [row for row in records.to_pylist() if keep(row) and row["amount"] is not None]
    x = np.array([5 + np.rint((min(max(row["amount"], 5), 105) - 5) / 0.5) * 0.5 for row in rows])
    y = np.array([min(row["tip"], 12) for row in rows], dtype=float)
    both = float(np.mean((x - x.mean()) * (y - y.mean())))
    spread = {"variance": float(x.var()), "standard deviation": float(x.std()), "covariance": both}
    return {**spread, "correlation": both / float(x.std() * y.std())}


def bases(steps: int) -> list[list[Fraction]]:
    """Quadratic B-splines at every step, by the recursion of Cox and de Boor in exact fractions."""
    knots = [Fraction(0)] * 2 + [Fraction(k, SPLINE_PIECES) for k in range(SPLINE_PIECES + 1)] + [Fraction(1)] * 2

    def spline(place: int, degree: int, x: Fraction) -> Fraction:
        if degree == 0:
            last = x == 1 and knots[place] < knots[place + 1] == 1
            return Fraction(knots[place] <= x < knots[place + 1] or last)
        out = Fraction(0)
        for first, away in ((place, x - knots[place]), (place + 1, knots[place + degree + 1] - x)):
            width = knots[first + degree] - knots[first]
            if width:
                out += away / width * spline(first, degree - 1, x)
        return out

    return [[spline(place, 2, Fraction(v, steps)) for place in range(SPLINE_PIECES + 2)] for v in range(steps + 1)]


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 6, 8, 21, 40])
def test_a_record_is_divided_by_splines_that_give_its_square_back(steps: int) -> None:
    amounts = Amounts(Fraction(-2), Fraction(3, 7), steps, squares=True)
    first, parts = amounts.divide_records(np.arange(steps + 1))
    middle = amounts.first + amounts.step * steps / 2
    for v, spline in enumerate(bases(steps)):
        shares = [0] * amounts.bins
        for place in range(3):
            shares[first[v] + place] = int(parts[place, v])
        assert shares == [amounts.shares_per_record * each for each in spline]
        x = amounts.first + v * amounts.step
        for what, value in ((PRESENCE, 1), (AMOUNT, x), (DEVIATION, x - middle), (SQUARE, (x - middle) ** 2)):
            assert shares @ amounts.values(what) / amounts.shares_per_record == pytest.approx(float(value), abs=1e-9)


def test_too_many_steps_for_squares_are_refused_in_one_line() -> None:
    assert Amounts(Fraction(0), Fraction(1), 2896, squares=True).shares_per_record <= 2**20
    with pytest.raises(InvalidInput, match="at most 2,896 steps where 4 divides") as refused:
        Amounts(Fraction(0), Fraction(1), 2900, squares=True)
    assert "\n" not in str(refused.value)


def exact(planned: Any, context: Any) -> Measurement:
    """The measurement of a plan without noise."""
    counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
    z = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
    domain = planned.job.measured.domain
    return Measurement(planned.measurement.measured_space(ArrayVector(z), domain.shape, MOST_BYTES), domain, planned.noise)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "coa" else pytest.mark.slow) for n in MECHANISMS])
def test_statistics_without_noise_are_those_of_the_records(name: str, home: Path) -> None:
    """Every mechanism, from the file to the published table, with the noise left out; and as a reader asks for them."""
    records = table()
    context, planned = planned_in(home.parent, records, **changes(**mechanism_changes(name)))
    found = exact(planned, context)
    rows = statistics(planned.job.workload, found)["variances"]
    branches = {each: truth(records, lambda row, each=each: row["branch"] == each) for each in "ab"}
    for row in rows.to_pylist():
        if row["branch"]:
            assert row["value"] == pytest.approx(branches[row["branch"]][row["statistic"]], rel=2e-3, abs=2e-3), row
    ranges = [truth(records, lambda row, i=i, j=j: i <= row["age"] <= j)["covariance"] for i, j in ((0, 1), (1, 3))]
    assert rows["value"].to_pylist()[-2:] == pytest.approx(ranges, rel=2e-3)
    assert rows.num_rows == 2 + 2 + 2 + 2 + 2
    asked = PublishedRelease(UNPUBLISHED, found)
    for statistic, of in (("variance", "amount"), ("standard deviation", "amount"), ("correlation", "amount and tip")):
        for each in asked.ask(f"{statistic} of {of} by branch"):
            assert each.value == pytest.approx(branches[each.group["branch"]][statistic], rel=1e-6)


@pytest.mark.parametrize(("pieces", "cost"), [(1, 7.828), (3, 6.511), (SPLINE_PIECES, 6.41715)])
def test_one_cell_costs_what_was_proven(pieces: int, cost: float, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, deviations and squares, each of weight one over its largest, for so many pieces of the range."""
    monkeypatch.setattr(numeric_columns, "SPLINE_PIECES", pieces)
    asked = [{"marginals": {"of": [[]]}, "variance": "amount"}]
    sums = {"amount": {"from": 0, "to": 100, "step": 1}}
    _, planned = planned_in(home.parent, table(), **changes(workload=asked, sums=sums))
    assert planned.strategy.workload_cost == pytest.approx(cost, rel=1e-4)


def test_no_strategy_for_the_parabola_costs_less_than_was_said() -> None:
    """The dual bound of records (1, t, t^2) with weights of their own: the square of the trace of the root of their gram."""
    weights, records = np.array([0.45, 0.10, 0.45]), np.array([[1.0, t, t**2] for t in (-1.0, 0.0, 1.0)])
    roots = np.sqrt(np.linalg.eigvalsh(records.T * weights @ records))
    assert roots.sum() ** 2 == pytest.approx(6.400, abs=5e-4)


@pytest.mark.statistical
@pytest.mark.parametrize("draws", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["coa", pytest.param("p-identity", marks=pytest.mark.slow)])
def test_intervals_cover(name: str, draws: int, home: Path) -> None:
    """Of 2,000 simulated releases, noise as a release draws it: variance, standard deviation, covariance and correlation.

    One check in 10,000 errs by chance; Laplace noise is covered more often than it says, as the intervals take the widest noise.
    """
    records = table()
    asked = [{**BY_BRANCH, "correlation": ["tip", "amount"]}]
    context, planned = planned_in(home.parent, records, **changes(**mechanism_changes(name), workload=asked))
    published = PublishedRelease(UNPUBLISHED, exact(planned, context))
    noise = noises_of(planned, draws)
    width = float(planned.noise.half_width_95(1.0))
    true = truth(records, lambda row: row["branch"] == "a")
    linear = sums_of_branch(published, 0)
    values, covariance = published.estimate_functions(linear).values, published.covariance_of(linear)
    covered: dict[str, list[bool]] = {name: [] for name in true}
    one, three = [0, 2, 5], [0, 1, 2, 3]
    for each in values + noise[:, ::2]:
        spread = variance_of(each[one], covariance[np.ix_(one, one)], width, 2500.0)
        both = covariance_of(each[three], covariance[np.ix_(three, three)], width, 300.0)
        for found in (*spread, both, correlation_of(each, covariance, width)):
            covered[found.statistic].append(found.low <= true[found.statistic] <= found.high)
    for statistic, inside in covered.items():
        least, most = covered_share_limits(draws)
        assert least <= np.mean(inside) <= (most if name == "coa" else 0.99), (statistic, np.mean(inside))


def sums_of_branch(published: PublishedRelease, place: int) -> list[Any]:
    """The six sums of one branch in the order of the workload: number, deviations, products, squares."""
    domain = published.measurement.domain
    of = [domain.axis("tip"), domain.axis("amount")]
    among = ALL_RECORDS.times_vectors({0: np.eye(2)[place]})
    factors = [
        {axis: bin_summands(domain.attributes[axis], what) for axis, what in zip(of, each, strict=True)}
        for each in STATISTICS["correlation"].summands
    ]
    return [among.times_vectors(each) for each in factors]


def test_statistics_at_the_ends_of_what_is_possible() -> None:
    """No records, no variance, or a perfect correlation: the whole range, and never a number beyond it."""
    quiet, noisy = np.eye(6) * 1e-9, np.eye(6)
    for found in variance_of(np.array([-3.0, 0.0, 5.0]), noisy[:3, :3], 2.0, 25.0):
        assert (found.low, found.high, found.standard_error) == (0.0, 5.0 if found.statistic != "variance" else 25.0, None)
    spread, root = variance_of(np.array([100.0, 0.0, -1.0]), noisy[:3, :3], 2.0, 25.0)
    assert spread.value == root.value == spread.low == 0.0
    assert root.standard_error is None
    assert covariance_of(np.array([0.0, 1, 1, 1]), noisy[:4, :4], 2.0, 9.0).high == 9.0
    for sums in ([10.0, 0, 0, 11, 10, 10], [10.0, 0, 0, 1, -1, 10], [0.0] * 6):
        found = correlation_of(np.array(sums), quiet, 2.0)
        assert (found.low, found.high, found.standard_error) == (-1.0, 1.0, None)
    assert correlation_of(np.array([10.0, 0, 0, 5, 10, 10]), quiet, 2.0).value == pytest.approx(0.5)


def test_the_error_of_a_correlation_is_its_slope_times_the_noise() -> None:
    """Against finite differences of the definition."""
    values = np.array([90.0, 12.0, -20.0, 30.0, 60.0, 70.0])
    root = np.random.default_rng(1).normal(size=(6, 6))
    covariance = root @ root.T

    def defined(sums: np.ndarray) -> float:
        number, one, two, both, first, second = sums
        spread = (first / number - (one / number) ** 2) * (second / number - (two / number) ** 2)
        return float((both / number - one * two / number**2) / math.sqrt(spread))

    slope = np.array([(defined(values + 1e-5 * e) - defined(values - 1e-5 * e)) / 2e-5 for e in np.eye(6)])
    found = correlation_of(values, covariance, 1.96)
    assert found.value == pytest.approx(defined(values))
    assert found.standard_error == pytest.approx(math.sqrt(slope @ covariance @ slope), rel=1e-6)


def test_variances_are_published_shown_and_asked_for_alike(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = small_release.write(home.parent / "data", table=table(), **changes())
    released = small_release.run(spec, home)
    folder = released.folder
    assert isinstance(folder, Path)
    certificate = json.loads((folder / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    assert certificate["variances"]["rows"] == 10
    assert certificate["measurement"]["format"] == 3
    assert measurement_file.read_measurement(folder / "measurement.npz").domain.amounts[0].amounts == Amounts(
        Fraction(5), Fraction(1, 2), 200, squares=True
    )
    rows = list(csv.DictReader((folder / "variances.csv").open()))
    for statistic, of in (("variance", "amount"), ("standard deviation", "amount"), ("covariance", "tip and amount")):
        published = [row for row in rows if row["statistic"] == statistic and row["branch"]]
        for row, each in zip(published, released.ask(f"{statistic} of {of} by branch"), strict=True):
            assert row["branch"] == each.group["branch"]
            for column, value in (("value", each.value), ("low_95", each.low), ("high_95", each.high)):
                assert float(row[column]) == pytest.approx(value, rel=1e-3, abs=1e-3)
    monkeypatch.setenv("DPDIST_HOME", str(home))
    for words in (("show", str(folder)), ("run", str(spec))):
        printed = CommandLine(monkeypatch, capsys)(*words).out
        assert all(f"{row['value']} {row['standard_error']}" in printed for row in rows)
    page = (folder / "index.html").read_text()
    assert 'id="variances"' in page
    assert (
        re.search(r"<h3[^>]*>Squares of Amount paid by Branch<", page) is None
    )  # it only serves the variances, which are drawn themselves
    assert "Variance of Amount paid by Branch" in page
    assert "EUR squared" in page
    assert "Standard deviation of Amount paid by Branch" in page
    assert "'squares' of their squares" in (folder / "answers.csv-metadata.json").read_text()


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("dpdist.pipeline.publish", "statistics"),
        pytest.param("dpdist.pipeline.publish", "published_measurements", marks=pytest.mark.slow),
        pytest.param("dpdist.privacy.noise.Noise", "draw", marks=pytest.mark.slow),
        pytest.param("dpdist.privacy.ledger.budget_ledger.Ledger", "commit", marks=pytest.mark.slow),
    ],
)
def test_a_killed_release_is_finished_with_the_same_bytes(point: str, name: str, home: Path) -> None:
    """Means and variances: whatever else is published goes the same way as counts (tests/faults/test_steps.py)."""
    path = small_release.write(
        home.parent / "data",
        table=table(60),
        **changes(workload=[ASKED[0], {**BY_BRANCH, "mean": "amount"}], sums={"amount": SUMS["amount"]}),
    )
    expected = small_release.undisturbed(path, home)
    assert {"means.csv", "variances.csv"} <= expected.keys()
    assert exit_code(killed_run, point, name, path, home) == -signal.SIGKILL
    assert small_release.tree(small_release.run(path, home).folder) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workload": [{**BY_BRANCH, "variance": "money"}, *ASKED]}, "no amounts 'money' to add up"),
        (
            {"workload": [{**BY_BRANCH, "variance": "amount", "mean": "tip"}, *ASKED]},
            "at most one of 'sum', 'mean', 'variance'",
        ),
        ({"workload": [{**BY_BRANCH, "covariance": ["tip", "tip"]}, *ASKED]}, "a covariance is that of two columns"),
        ({"workload": [{**BY_BRANCH, "covariance": ["tip"]}, *ASKED]}, "covariance"),
        ({"workload": [{**BY_BRANCH, "variance": "amount", "target": 3}, *ASKED]}, "a 'target' is the error of a count"),
        ({"sums": {**SUMS, "amount": {"from": 0, "to": 60, "step": 0.01}}}, "at most 2,896 steps where 4 divides"),
        (
            {"sums": {"amount": {"from": 0, "to": 1000}, "tip": {"from": 0, "to": 12}}},
            "the shares of all amounts multiply to",
        ),
        (
            {
                "sums": {"amount": {"from": 0, "to": 100, "most_per_person": 200}},
                "workload": ASKED[:1],
                "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 4}},
            },
            "where the total of a person is bounded, squares are not known",
        ),
        ({"mechanism": "marginals"}, "this mechanism counts whole records"),
        (
            {"workload": [*ASKED, {"filters": {"of": "age", "apply": [{"running_sum": True}]}, "variance": "amount"}]},
            "filters add up amounts with 'sum'",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = small_release.write(tmp_path, table=table(20), **changes(**change))
    small_release.refused_in_one_line(path, message)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("variance of tip by branch", "this release did not measure squares of 'tip'"),
        ("covariance of tip", "a covariance is that of two columns"),
        ("correlation of tip and tip", "a correlation is that of two columns"),
        ("variance of branch", "are no numbers"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused_in_one_line(question: str, message: str, home: Path) -> None:
    asked = [{**BY_BRANCH, "mean": "tip"}]
    context, planned = planned_in(home.parent, table(60), **changes(workload=asked, sums={"tip": SUMS["tip"]}))
    with pytest.raises(InvalidInput, match=message) as refused:
        PublishedRelease(UNPUBLISHED, exact(planned, context)).ask(question)
    assert "\n" not in str(refused.value)


def test_the_variance_of_an_attribute_needs_no_sums(home: Path) -> None:
    """Whole numbers that are counted one by one have squares of their own."""
    records = table()
    context, planned = planned_in(
        home.parent, records, domain=DOMAIN, sums={}, workload=[{"marginals": {"of": [["branch", "age"]]}}]
    )
    for each in PublishedRelease(UNPUBLISHED, exact(planned, context)).ask("variance of age by branch"):
        ages = [row["age"] for row in records.to_pylist() if row["branch"] == each.group["branch"]]
        assert each.value == pytest.approx(np.var(ages))


@pytest.mark.parametrize("name", sorted(COLUMNS_OF_TABLES))
def test_an_attribute_may_be_called_like_a_column_of_the_published_tables(name: str, home: Path, tmp_path: Path) -> None:
    """It has a column of its own in all of them; a table of means failed on its texts once the release was charged."""
    records = table().rename_columns([name if column == "branch" else column for column in table().column_names])
    spec = small_release.write(
        tmp_path / "data",
        table=records,
        domain={name if attribute == "branch" else attribute: of for attribute, of in DOMAIN.items()},
        sums={"amount": SUMS["amount"]},
        workload=[{"marginals": {"of": [[name]]}, statistic: "amount"} for statistic in ("mean", "variance")],
    )
    folder = Path(small_release.run(spec, home).folder)
    for file in ("answers.csv", "means.csv", "variances.csv"):
        with (folder / file).open(encoding="utf-8", newline="") as opened:
            assert {row[f"attribute_{name}"] for row in csv.DictReader(opened)} == {"a", "b"}, file
    with (folder / "variances.csv").open(encoding="utf-8", newline="") as opened:
        assert {row["statistic"] for row in csv.DictReader(opened)} == {"variance", "standard deviation"}


def test_columns_whose_names_hold_the_words_of_titles_are_told_apart(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their errors were said to be in one unit with those of counts, and a plan of their means was refused."""
    name, records = "tip and tax by day", table()
    spec = small_release.write(
        tmp_path,
        table=records.rename_columns([name if column == "amount" else column for column in records.column_names]),
        domain=DOMAIN,
        sums={name: {**SUMS["amount"], "title": "Tips and taxes"}, "tip": SUMS["tip"]},
        workload=[{**BY_BRANCH, "mean": name}, {**BY_BRANCH, "covariance": ["tip", name]}],
    )
    monkeypatch.setenv("DPDIST_HOME", str(home))
    planned = CommandLine(monkeypatch, capsys)("plan", str(spec), "--records", "800").out
    assert re.search("mean of tip and tax by day by branch .*EUR", planned)
    done = small_release.run(spec, home)
    assert done.certificate["mechanism"]["rmse"] is None
    page = (Path(done.folder) / "index.html").read_text(encoding="utf-8")
    assert "Mean of Tips and taxes by Branch" in page
    assert "Covariance of tip and Tips and taxes by Branch" in page
