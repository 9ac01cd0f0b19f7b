"""Streams: a series that grows from release to release, charged once."""

from __future__ import annotations

import dataclasses
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.arrays.causal_filters import FilterSquareRoot, root_of
from dpdist.arrays.lazy_vector import scaled, to_array
from dpdist.errors import InvalidInput, InvalidSpec, LedgerError
from dpdist.measurement.filter_measurement import FilterMeasurement
from dpdist.pipeline import query_answers
from dpdist.privacy.accounting import rho_for
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.publish import release_folder
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.complete_tree import installed_mechanisms
from tests.support.small_release import run
from tests.support.standardised_errors import assert_errors_fit

FILTERS = {"of": "age", "by": ["sex"], "apply": [{"exponential": 0.8}]}


def upto(step: int, table: pa.Table | None = None) -> pa.Table:
    whole = small_release.records() if table is None else table
    return whole.filter(pa.compute.less_equal(whole["age"], step))


def release(home: Path, number: int, through: int, table: pa.Table | None = None, **changes: Any) -> Path:
    """The spec of a release of the stream, with the records that were there at the time."""
    content = {
        "release": f"part-{number}",
        "workload": [{"filters": FILTERS}],
        "stream": {"name": "ages", "through": through},
        **changes,
    }
    return small_release.write(home.parent / f"data-{number}", table=upto(through) if table is None else table, **content)


def truth(path: Path, steps: int) -> np.ndarray:
    counts = np.zeros((12, 2))
    for row in small_release.records().to_pylist():
        counts[row["age"], "fm".index(row["sex"])] += 1
    return np.asarray(
        load(path).guarantee.release_mode.queries_of_steps(steps).unweighted.matvec(np.repeat(counts[:steps].ravel() / 3, 3))
    )


@pytest.mark.statistical
def test_a_stream_goes_on_without_paying_again(home: Path) -> None:
    """Old answers stay as they were, new ones follow; the whole is one filter's measurement of the whole series."""
    answers: list[np.ndarray] = []
    measured, plan = [], None
    for number, through in enumerate((3, 4, 11)):
        path = release(home, number, through, mechanism="square-root")
        done = run(path, home)
        assert done.charged == (number == 0)
        table, certificate = release_folder.load_release(done.folder)
        assert table.num_rows == 2 * (through + 1) == certificate["queries"]
        assert certificate["stream"] == {"name": "ages", "steps": through + 1, "of": 72}
        assert certificate["privacy"]["rho"] == "1/10"
        found, errors = table["answer"].to_numpy(), table["standard_error"].to_numpy()
        for before in answers:
            np.testing.assert_allclose(found[: before.size], before, atol=0.01)
        answers.append(found)
        assert_errors_fit(found - truth(path, through + 1), errors)
        store = Store(home / "store")
        measured.append(store.read_array(store.open(f"measurements/part-{number}")))
        plan = done.plan
    assert [z.size for z in measured] == [8, 2, 14]
    assert table["query"].to_pylist()[-1] == "age at 11, sex m"
    # the noise of all parts together against the exact measurement of the whole series
    assert plan is not None
    grid = plan.measurement
    assert isinstance(grid, FilterMeasurement)
    counts = np.zeros((12, 2), dtype=np.int64)
    for row in small_release.records().to_pylist():
        counts[row["age"], "fm".index(row["sex"])] += 1
    noise = (np.concatenate(measured) - grid.measure(counts)) / plan.noise.deviation
    assert_errors_fit(noise, np.ones(noise.size), mixed=np.eye(noise.size))
    assert len(set(np.round(noise, 6))) == noise.size  # fresh noise for every step
    with open_ledger(home) as ledger:
        assert ledger.budgets()[0].spent.rho == Fraction(1, 10)
        assert ledger.verify().releases == 3
    path = release(home, 1, 4, mechanism="square-root")
    again = run(path, home)
    assert not again.charged
    shutil.rmtree(again.folder)
    np.testing.assert_array_equal(release_folder.load_release(run(path, home).folder)[0]["answer"].to_numpy(), answers[1])


@pytest.mark.parametrize("finished_parts", [0, 1])
def test_an_interrupted_part_resumes_with_the_same_bytes(finished_parts: int, home: Path) -> None:
    for number in range(finished_parts):
        run(release(home, number, 3), home)
    path = release(home, finished_parts, 8)
    with mock.patch.object(Ledger, "begin_drawing", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(path, home)
    with pytest.raises(LedgerError, match=f"'part-{finished_parts}' is not finished"):
        run(release(home, 2, 9), home)
    files = small_release.undisturbed(path, home)
    assert small_release.tree(run(path, home).folder) == files


def test_a_stream_survives_other_versions_of_the_solvers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients and noise are those of the first release, though both come out a little different now."""
    budget = {
        "budget": {"epsilon": 0.4, "delta": 1e-6},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1, "delta": 1e-6}},
    }
    first = run(release(home, 0, 3, **budget), home)

    def root_of_another_solver(*given: Any) -> FilterSquareRoot:
        root = root_of(*given)
        return dataclasses.replace(root, coefficients=scaled(root.coefficients, 1 + 1e-7))

    monkeypatch.setattr("dpdist.strategies.filter_strategies.root_of", root_of_another_solver)
    monkeypatch.setattr("dpdist.spec.sections.budgets.rho_for", lambda *given: rho_for(*given) - Fraction(1, 10**10))
    second = run(release(home, 1, 8, **budget), home)
    assert second.plan.measurement.digest == first.plan.measurement.digest
    assert (second.plan.noise, second.plan.loss) == (first.plan.noise, first.plan.loss)
    assert not second.charged


def test_what_a_stream_does_not_allow(home: Path) -> None:
    with pytest.raises(InvalidSpec, match="one filter of the past"):
        run(release(home, 9, 3, workload=[{"filters": FILTERS}, {"filters": {**FILTERS, "apply": [{"window": 2}]}}]), home)
    with pytest.raises(InvalidSpec, match="one filter of the past"):
        run(release(home, 9, 3, workload=[{"filters": {**FILTERS, "apply": [{"trend": 5.0}]}}]), home)
    with pytest.raises(InvalidSpec, match="'through' is a value of 'age'"):
        run(release(home, 9, 12), home)
    with pytest.raises(InvalidSpec, match="uses Gaussian noise"):
        run(release(home, 9, 3, budget={"epsilon": 1}, ledger={"dataset": "small", "cap": {"epsilon": 1}}), home)
    run(release(home, 0, 3), home)
    with pytest.raises(InvalidInput, match="first 4 steps of stream 'ages' were already released, last by 'part-0'"):
        run(release(home, 1, 3), home)
    changed = pa.concat_tables([upto(5), upto(5).slice(0, 1)])
    with pytest.raises(InvalidInput, match="its past is final"):
        run(release(home, 1, 5, table=changed), home)
    with pytest.raises(LedgerError, match="measured in another way"):
        run(release(home, 1, 5, budget={"rho": 0.05}), home)
    with pytest.raises(LedgerError, match="measured in another way"):
        run(release(home, 1, 5, workload=[{"filters": {**FILTERS, "apply": [{"exponential": 0.7}]}}]), home)
    with open_ledger(home) as ledger:
        assert [r.release for r in ledger.stream("small", "ages")] == ["part-0"]
        ledger.verify()


def test_distances_from_another_count_are_another_stream(home: Path) -> None:
    """The count around which distances are filtered is part of what all releases of a stream measure."""
    whole: dict[str, Any] = {**FILTERS, "by": ["sex", "work"]}
    around = [[{"filters": {**whole, "around": number}}] for number in (9, 10)]
    run(release(home, 0, 3, workload=around[0]), home)
    with pytest.raises(LedgerError, match="measured in another way"):
        run(release(home, 1, 5, workload=around[1]), home)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["square-root", *installed_mechanisms("triangular", "buffered")])
def test_whole_running_sums_add_up_never_change_and_are_covered(
    home: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 24 intervals of 95 % 18 hold the true sums at least: if their errors are independent, 17 or fewer do once in 10,000 times.

    A sum is the difference of two published numbers, so days add up to any span of days whatever was rounded.
    """
    sums = [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}]
    before, unrounded = np.zeros(0), list[np.ndarray]()
    estimate = query_answers._unrounded_answers

    def note(*arguments: Any) -> Any:
        estimated = estimate(*arguments)
        unrounded.append(to_array(estimated.answer))
        return estimated

    monkeypatch.setattr(query_answers, "_unrounded_answers", note)
    for number, through in enumerate((3, 4, 11)):
        path = release(home, number, through, workload=sums, mechanism=mechanism, postprocess={"integer": True})
        table, certificate = release_folder.load_release(run(path, home).folder)
        found, errors = table["answer"].to_numpy(), table["standard_error"].to_numpy()
        np.testing.assert_array_equal(found, np.rint(found))
        assert np.abs(found - unrounded[-1]).max() <= 0.5
        np.testing.assert_array_equal(found[: before.size], before)
        before = found
        assert certificate["rounding"] == {"rule": "nearest", "deviation": 0.5, "adds_up": False, "apart": []}
    low, high = table["low_95"].to_numpy(), table["high_95"].to_numpy()
    np.testing.assert_allclose(high - found, 1.96 * errors + 0.5, rtol=1e-3)
    counts = np.zeros((12, 2))
    for row in small_release.records().to_pylist():
        counts[row["age"], "fm".index(row["sex"])] += 1
    true = np.cumsum(counts, axis=0).ravel()
    assert ((low <= true) & (true <= high)).sum() >= 18
    assert_errors_fit(found - true, np.hypot(errors, 12**-0.5))


def test_a_stream_is_not_rounded_without_a_bias(home: Path) -> None:
    with pytest.raises(InvalidSpec, match="set 'integer: true'"):
        run(release(home, 9, 3, postprocess={"integer": "unbiased"}), home)
