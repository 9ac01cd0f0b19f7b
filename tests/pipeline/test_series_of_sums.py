"""Filters that add up amounts: what is published is what the records say, intervals cover it, and bad input is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.content import measurement_file
from dpdist.errors import InvalidInput
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.pipeline.histogram import count
from dpdist.pipeline.query_answers import answer
from dpdist.session import PlannedRelease
from dpdist.spec import load
from tests.pipeline.test_sums import noises_of, planned_in
from tests.support import small_release
from tests.support.complete_tree import needs_plugin
from tests.support.measurement_readers import measured
from tests.support.standardised_errors import covered_share_limits

SUMS: dict[str, Any] = {"amount": {"from": 2, "to": 60, "step": 0.25, "missing": "drop", "unit": "EUR", "title": "Paid"}}
FILTERS: dict[str, Any] = {"of": "hour", "by": ["branch"], "apply": [{"running_sum": True}, {"window": 3}]}
ASKED: list[dict[str, Any]] = [{"filters": FILTERS, "sum": "amount"}]
PAST: list[dict[str, Any]] = [{"filters": {**FILTERS, "apply": [{"running_sum": True}]}, "sum": "amount"}]
BY_BRANCH: dict[str, Any] = {"marginals": {"of": [["branch"]]}}


def table(rows: int = 500) -> pa.Table:
    """Money beyond the range and missing, over the hours of a day."""
    state = np.random.default_rng(6)
    amounts = np.round(state.gamma(2, 15, rows), 2)
    columns = {"hour": state.integers(0, 8, rows), "branch": state.choice(["a", "b"], rows)}
    return pa.table({**columns, "amount": pa.array(amounts, mask=state.random(rows) < 0.1)})


def changes(**other: Any) -> dict[str, Any]:
    domain = {"hour": {"from": 0, "to": 7}, "branch": {"categories": ["a", "b"]}}
    return {"domain": domain, "sums": SUMS, "workload": ASKED, **other}


def truth(records: pa.Table) -> np.ndarray:
    """Sums of the clamped and rounded amounts, (hours, branches)."""
    sums = np.zeros((8, 2))
    for row in records.to_pylist():
        if row["amount"] is not None:
            sums[row["hour"], "ab".index(row["branch"])] += np.rint((min(max(row["amount"], 2), 60) - 2) / 0.25) * 0.25 + 2
    return sums


MECHANISMS = ("convolution", "coa", "identity", "square-root")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in MECHANISMS[:1] else pytest.mark.slow) for n in MECHANISMS]
)
def test_answers_without_noise_are_the_filtered_sums(name: str, home: Path) -> None:
    records = table()
    asked = PAST if name == "square-root" else ASKED
    context, planned = planned_in(home.parent, records, **changes(workload=asked, mechanism=name))
    counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
    z = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
    found = answer(context, planned, context.store.put(context.store.scratch(), z))
    sums = np.cumsum(truth(records), axis=0)
    np.testing.assert_allclose(found.answer.read(0, 16), sums.ravel(), rtol=1e-6)
    if asked is ASKED:
        window = sums - np.concatenate([np.zeros((3, 2)), sums[:-3]])
        np.testing.assert_allclose(found.answer.read(16, 32), window.ravel(), rtol=1e-6)


@pytest.mark.statistical
def test_intervals_cover(home: Path) -> None:
    """Of 20,000 simulated releases: of each answer of a series and of all of them, and the errors are those that were predicted.

    Each of the three errs by chance for less than one seed in 10,000: the mean of the answers deviates no more than one of them, the
    intervals of 32 answers have 5 standard deviations each, and so have their errors.
    """
    draws = 20_000
    context, planned = planned_in(home.parent, table(), **changes(mechanism="coa"))
    z = context.store.put(context.store.scratch(), np.zeros(planned.measurement.rows, dtype=np.int64))
    found = answer(context, planned, z)
    half, error = (column.read(0, 32) for column in (found.half_width, found.error))
    noise = noises_of(planned, draws) * planned.job.measured.domain.shares_per_record / planned.job.measured.domain.scale
    inside = (np.abs(noise) <= half).mean(axis=0)
    least, most = covered_share_limits(draws)
    assert least <= inside.mean() <= most
    assert (np.abs(inside - 0.95) <= 5 * np.sqrt(0.95 * 0.05 / draws)).all()
    np.testing.assert_allclose(noise.std(axis=0), error, rtol=5 / np.sqrt(2 * draws))
    row = next(each for each in planned.table if each.mechanism == "coa")
    assert row.rmse(32, planned.noise_multiplier) == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=1e-3)


def test_a_series_is_published_and_asked_for_in_its_unit(home: Path) -> None:
    released = small_release.run(
        small_release.write(home.parent / "data", table=table(), **changes(budget={"rho": 0.2})), home
    )
    folder = released.folder
    assert isinstance(folder, Path)
    rows = released.answers.arrow.to_pylist()
    assert {row["group"] for row in rows} == {
        "sum of amount, running sum by branch",
        "sum of amount, sum of 3 steps by branch",
    }
    errors = (truth(table()).cumsum(axis=0).ravel() - [row["answer"] for row in rows[:16]]) / [
        row["standard_error"] for row in rows[:16]
    ]
    assert np.abs(errors).max() < 5
    totals = released.ask("total of amount by branch")
    assert [each.value for each in totals] == pytest.approx([row["answer"] for row in rows[14:16]], abs=0.06)
    for question in ("sum of branch=a", "mean of amount", "top 1 of branch", "median of hour"):
        with pytest.raises(InvalidInput, match="measured sums of 'amount' alone") as refused:
            released.ask(question)
        assert "\n" not in str(refused.value)
    with pytest.raises(InvalidInput, match="measured sums of 'amount' alone"):
        released.covariance(["branch=a"])
    assert measurement_file.read_measurement(folder / "measurement.npz").format == 3
    page = (folder / "index.html").read_text()
    assert "EUR" in page
    (asked,) = released.certificate["method"]["asked"]
    assert asked.startswith("the series of sums of amount over hour, filtered, for each branch")


def test_what_a_plan_says_of_assumed_records_is_what_a_release_of_them_has(home: Path) -> None:
    """The half widths, and their share of a usual sum, which holds the amounts and not the number of records."""
    assume = {"records": 450, "amounts": {"amount": "uniform 2 58"}}
    path = small_release.write(home.parent / "data", table=table(), **changes(budget={"rho": 0.2}, assume=assume))
    told = PlannedRelease.read(path).errors.groups
    rows = small_release.run(path, home).answers.arrow.to_pylist()
    true = truth(table()).cumsum(axis=0)
    for each in told:
        own = [row for row in rows if row["group"] == each.group]
        halves = [(row["high_95"] - row["low_95"]) / 2 for row in own]
        assert each.half_width == pytest.approx(max(halves), rel=0.01)
        assert each.unit == "EUR"
    running = next(each for each in told if "running sum" in each.group)
    assert running.share == pytest.approx(running.half_width / true.mean(), rel=0.15)


def test_series_and_tables_of_sums_are_measured_together(home: Path) -> None:
    """All of them are sums of one column; one certified optimum covers both."""
    records = table()
    asked = [*ASKED, {**BY_BRANCH, "sum": "amount"}]
    context, planned = planned_in(home.parent, records, **changes(workload=asked))
    counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
    z = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
    found = answer(context, planned, context.store.put(context.store.scratch(), z))
    np.testing.assert_allclose(found.answer.read(32, 34), truth(records).sum(axis=0), rtol=1e-6)
    assert planned.strategy.gap <= 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workload": [{**ASKED[0], "mean": "amount", "sum": None}]}, "filters add up amounts with 'sum'"),
        ({"workload": [{"filters": {**FILTERS, "around": 3}, "sum": "amount"}]}, "filters add up amounts with 'sum'"),
        ({"workload": [*ASKED, BY_BRANCH]}, "every group of the workload asks for the 'sum' of the same column"),
        ({"workload": [*ASKED, {**BY_BRANCH, "mean": "amount"}]}, "every group of the workload asks for the 'sum'"),
        ({"sums": {"amount": {"from": -5, "to": 60}}}, "'from' is 0 or a whole number of steps above it"),
        ({"sums": {"amount": {"from": 0.5, "to": 60.5}}}, "'from' is 0 or a whole number of steps above it"),
        ({"sums": {"amount": {"from": 0, "to": 20_000, "step": 0.02}}, "workload": ASKED}, None),
        (
            {"sums": {"amount": {"from": 20_000, "to": 30_000, "step": 0.02}}},
            "the shares of all amounts multiply to 1,500,000",
        ),
        (
            {"domain": {"hour": {"from": 0, "to": 2**23}, "branch": {"categories": ["a", "b"]}}},
            "a series that is too long to be held",
        ),
        pytest.param(
            {"mechanism": "buffered"},
            "this mechanism counts whole records",
            marks=needs_plugin("mechanism.buffered"),
        ),
        ({"postprocess": {"known": [{"count": 9}]}}, "sums alone"),
        (
            {
                "sums": {"amount": {"from": 0, "to": 60, "most_per_person": 120}},
                "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 4}},
            },
            "where the total of a person is bounded, series of sums are not known",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(change: dict[str, Any], message: str | None, tmp_path: Path) -> None:
    path = small_release.write(tmp_path, table=table(20), **changes(**change))
    if message is None:  # the most steps
        assert load(path).measured.domain.shares_per_record == 1_000_000
        return
    small_release.refused_in_one_line(path, message)


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_of_sums_takes_them(name: str, tmp_path: Path) -> None:
    job = load(small_release.write(tmp_path, table=table(20), **changes(workload=PAST, mechanism=name)))
    REGISTRY[name].check(job.workload.queries)
    assert job.measured.domain.attributes[-1].amounts is not None
