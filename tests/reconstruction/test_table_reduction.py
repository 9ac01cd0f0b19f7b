"""Tables that are read from noisy cells by additions: the same bits as from rows, whatever is read at a time, and each cell read once."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Domain
from dpdist.operators import Dense, Identity, Matrix
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind
from dpdist.reconstruction import table_reduction
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.reconstruction.least_squares import LeastSquares
from dpdist.reconstruction.table_reduction import TableReduction, reads_tables
from dpdist.strategies import identity
from dpdist.workloads import Block, Filter, Workload, explicit, filtered, marginals, prefix, range_marginals, ranges, union
from dpdist.workloads.product_queries import listed_marginals

NOISE, LAPLACE_NOISE = Noise(Kind.GAUSSIAN, Fraction(7)), Noise(Kind.LAPLACE, Fraction(7))
WORKLOADS: dict[str, Workload] = {
    "all tables": marginals((4, 3, 5), (0, 1, 2, 3)),
    "boxes": ranges((4, 3, 5)),
    "ranges of each attribute": range_marginals((6, 4), 1),
    "cumulative counts": prefix(9),
    "weighted union": union(marginals((4, 3, 5), 2), ranges((4, 3, 5)), weights=(0.3, 2.0)),
    "a long attribute": marginals((300, 4), (1, 2)),
}


def measured_cells(workload: Workload) -> Matrix:
    return np.random.default_rng(3).integers(-50, 5000, workload.shape[1])


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("pass_cells", [1, 7, 2**22])
def test_the_same_bits_as_from_rows(name: str, pass_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reduction, "PASS_CELLS", pass_cells)
    workload = WORKLOADS[name]
    cells, queries = measured_cells(workload), workload.shape[0]
    by_rows = LeastSquares(workload, 0.5)
    answers, errors, half = by_rows.answers(0, queries, by_rows.estimate(cells), NOISE)
    expected = [answers, errors, half]
    reader = TableReduction(workload, 0.5)
    for start, stop in ((0, queries), (1, queries - 1), (queries // 2, queries // 2 + 1)):
        found = reader.answers(ArrayVector(cells), NOISE, start, stop)
        for column, expected_column in zip(found, expected, strict=True):
            np.testing.assert_array_equal(column, expected_column[start:stop])


@dataclass
class CountedReads:
    """Cells, and how often each was read."""

    values: Matrix
    reads: Matrix = field(init=False)

    def __post_init__(self) -> None:
        self.reads = np.zeros(self.values.size, dtype=np.int64)

    @property
    def size(self) -> int:
        return int(self.values.size)

    def read(self, start: int, stop: int) -> Matrix:
        self.reads[start:stop] += 1
        return self.values[start:stop]


def many_tables(attributes: int, ways: int) -> Workload:
    domain = Domain.of_shape((4,) * attributes)
    subsets = [subset for k in range(1, ways + 1) for subset in itertools.combinations(domain.names, k)]
    return listed_marginals(domain, subsets)


def test_many_tables_are_read_in_one_pass_and_in_the_memory_that_is_planned() -> None:
    workload = many_tables(9, 4)
    vector: Any = CountedReads(np.ones(workload.shape[1], dtype=np.int64))
    reader = TableReduction(workload, 1.0)
    assert reader.rows_a_task() == workload.shape[0]
    tracemalloc.start()
    answers = reader.answers(vector, NOISE, 0, workload.shape[0])[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (vector.reads == 1).all()
    assert answers[:4].tolist() == [4.0**8] * 4
    assert peak <= reader.task_bytes()


def test_a_measurement_of_cells_builds_no_row_for_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = many_tables(6, 3)
    measurement = identity(workload.shape[1]).measurement(workload, neighbours="add-remove", most_records=1)
    cells = measured_cells(workload)
    by_rows = LeastSquares(workload, measurement.spacing)
    expected = by_rows.answers(0, workload.shape[0], by_rows.estimate(cells), NOISE)

    def refuse(*_: object) -> Matrix:
        raise AssertionError("a row over the cells was built")

    monkeypatch.setattr(Workload, "rows", refuse, raising=False)
    monkeypatch.setattr(LeastSquares, "answers", refuse)
    answers = measurement.answers(workload, ArrayVector(cells), NOISE, AnswerRequest("answers"))
    for column, expected_column in zip((answers.answer, answers.error, answers.half_width), expected, strict=True):
        np.testing.assert_array_equal(to_array(column), expected_column)


def sums_of_amounts(amounts: Matrix) -> Workload:
    """Sums of three amounts by the values of two attributes, beside a table."""
    domain = Domain.of_shape((5, 3, 4))
    blocks = (
        Block("sums", (0, 1), (Identity(5), Dense(amounts)), (), 0.7),
        Block("by value", (1, 2), (Dense(amounts), Identity(4)), (), 1.0),
        *marginals((5, 3, 4), 2).blocks,
    )
    return Workload(domain, blocks)


@pytest.mark.parametrize("amounts", [(0.5, -1.25, 3.0), (0.5, -0.25, 1.0)], ids=["beyond one", "up to one"])
@pytest.mark.parametrize("pass_cells", [1, 7, 2**22])
def test_sums_of_amounts_are_read_from_tables_up_to_rounding(
    pass_cells: int, amounts: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A noisy cell of amount 0.5 or -0.25 is not a count: the fourth powers of its weights, which widen intervals, are no squares."""
    monkeypatch.setattr(table_reduction, "PASS_CELLS", pass_cells)
    workload = sums_of_amounts(np.array([amounts]))
    assert reads_tables(workload)
    cells, by_rows = measured_cells(workload), LeastSquares(workload, 0.5)
    expected = by_rows.answers(0, workload.shape[0], by_rows.estimate(cells), LAPLACE_NOISE)
    found = TableReduction(workload, 0.5).answers(ArrayVector(cells), LAPLACE_NOISE, 0, workload.shape[0])
    for column, expected_column in zip(found, expected, strict=True):
        np.testing.assert_allclose(column, expected_column, rtol=1e-12)


def test_what_adds_up_no_tables_is_read_from_rows() -> None:
    """Whole rows of a user's own over several attributes, and filters whose coefficients are no whole numbers."""
    predicate = explicit(np.array([[0.5, 1.0]]), Domain.of_shape((1, 2)))
    assert not reads_tables(predicate)
    assert not reads_tables(filtered(12, "x0", [Filter("mean", (0.25, 0.5, 0.25))]))
    assert reads_tables(marginals((4, 3), (1, 2)))
