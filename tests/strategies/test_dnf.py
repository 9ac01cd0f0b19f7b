"""Formulas over binary attributes, against truth tables, dense optima and dense readings."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.domain import DROP, Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.measurement.hadamard_measurement import HadamardMeasurement
from dpdist.mechanisms.comparison import compared_mechanisms, exclusion_reasons
from dpdist.operators import Marginal
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.strategies import coa, convolution, singular_value_bound
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.workloads import dnf, marginals, union
from tests.support.measurement_readers import formula_answers

DOMAIN = Domain(
    (
        Attribute("young", categories=("no", "yes")),
        Attribute("work", categories=("a", "b", "c")),
        Attribute("rich", categories=("no", "yes")),
        Attribute("ill", categories=("no", "yes")),
    )
)
EITHER = dnf(DOMAIN, [["young", "rich"], ["ill"]])


def test_rows_are_the_negated_formula() -> None:
    young, _, rich, ill = np.indices(DOMAIN.shape)
    rows = EITHER.unweighted.dense()
    assert rows.shape == (8, 24)
    for row in range(8):
        s = [row >> 2 & 1, row >> 1 & 1, row & 1]
        expected = (((young ^ s[0]) & (rich ^ s[1])) | (ill ^ s[2])).ravel()
        np.testing.assert_array_equal(rows[row], expected)
    labels = [label for (label,) in EITHER.blocks[0].row_labels(0, 8)]
    assert labels[0] == "(young yes and rich yes) or (ill yes)"
    assert labels[5] == "(young no and rich yes) or (ill no)"
    assert len(set(labels)) == 8
    names = EITHER.blocks[0].labels[0]
    assert names[1:3] == labels[1:3]
    assert list(names) == labels
    assert names[-1] == labels[-1]
    with pytest.raises(IndexError):
        names[8]


@pytest.mark.parametrize(
    "terms", [[["x0"]], [["x0", "x1"]], [["x0", "x1"], ["x2"]], [["x0", "x1", "x2"], ["x1", "x3"], ["x0", "x3"]]]
)
def test_no_strategy_is_better(terms: list[list[str]]) -> None:
    workload = dnf(4, terms)
    found = convolution(workload)
    assert found.workload_cost == pytest.approx(singular_value_bound(workload), rel=1e-10)
    assert found.workload_cost == pytest.approx(coa(workload, tolerance=1e-10).workload_cost, rel=1e-9)
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-9)
    assert found.l2_sensitivity == pytest.approx(found.operator.l2_sensitivity)


def test_a_conjunction_is_a_marginal() -> None:
    """All shifts of a conjunction of k attributes are the cells of their marginal, in reverse."""
    asked = dnf(5, [["x1", "x3"]])
    table = marginals((2,) * 5, 2)
    block = next(b for b in table.blocks if b.axes == (1, 3))
    np.testing.assert_array_equal(asked.unweighted.dense(), block.operator((2,) * 5).dense()[::-1])
    single = type(table)(table.domain, (block,))
    assert convolution(asked).workload_cost == pytest.approx(marginal_optimum(single).workload_cost)


@pytest.mark.parametrize(("neighbours", "most"), [("add-remove", 1), ("add-remove", 2), ("replace-one", 1)])
def test_measured_characters(neighbours: str, most: int) -> None:
    workload = union(EITHER, dnf(DOMAIN, [["young"], ["rich", "ill"]]), weights=(1.0, 2.0))
    assert workload.kind.is_dyadic
    grid = convolution(workload).measurement(workload, neighbours=neighbours, most_records=most)
    assert isinstance(grid, HadamardMeasurement)
    rows = np.stack([grid.measure(column) for column in np.eye(8, dtype=np.int64)], axis=1)
    columns = [[int(v) for v in column] for column in rows.T]
    squares = max(sum(v**2 for v in column) for column in columns)
    if neighbours == "replace-one":
        squares = max(squares, *(sum((u - v) ** 2 for u, v in zip(a, b, strict=True)) for a in columns for b in columns))
    assert grid.sensitivity_squared == squares * most**2
    x = np.random.default_rng(0).integers(0, 1000, DOMAIN.shape)
    table = Marginal(DOMAIN.shape, (0, 2, 3)).matvec(x.ravel())
    noise = Noise(GAUSSIAN, 10**6)
    answers, errors = formula_answers(workload, grid, grid.measure(table), noise)
    np.testing.assert_allclose(answers, workload.unweighted.matvec(x.ravel()), rtol=1e-7)
    unit = np.stack([formula_answers(workload, grid, row, noise)[0] for row in np.eye(grid.rows)], axis=1)
    np.testing.assert_allclose(errors, np.linalg.norm(unit, axis=1) * noise.deviation)
    strategy = convolution(workload)
    weighted = workload.weights * errors / (noise.deviation * grid.spacing)
    assert float(weighted @ weighted) == pytest.approx(strategy.workload_cost, rel=1e-6)
    assert strategy.worst(workload) == pytest.approx(errors.max() / (noise.deviation * grid.spacing), rel=1e-6)


def test_many_attributes_cost_a_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 attributes, 65,536 answers: nothing of 65,536 x 65,536 is written down."""
    monkeypatch.setattr("dpdist.operators.transforms.Dyadic.rows", None)
    names = [f"x{i}" for i in range(16)]
    workload = dnf(16, [names[i : i + 4] for i in range(0, 16, 4)])
    strategy = convolution(workload)
    assert compared_mechanisms("auto", "l2", workload) == ("convolution", "identity", "gaussian")
    assert "cannot beat" in exclusion_reasons("l2", workload)["coa"]
    grid = strategy.measurement(workload, neighbours="replace-one", most_records=1)
    assert isinstance(grid, HadamardMeasurement)
    x = np.random.default_rng(1).integers(0, 50, 2**16)
    answers, errors = formula_answers(workload, grid, grid.measure(x), Noise(GAUSSIAN, 1))
    cells = np.arange(2**16)
    holds = np.zeros(2**16, dtype=bool)
    for i in range(0, 16, 4):
        mask = 0b1111 << (12 - i)
        holds |= ((cells ^ 0xBEEF) & mask) == mask
    assert answers[0xBEEF] == pytest.approx(float(x[holds].sum()), rel=1e-6)
    assert (errors == errors[0]).all()


@pytest.mark.parametrize(
    ("terms", "match"),
    [
        ([], "terms of distinct"),
        ([[]], "terms of distinct"),
        ([["young", "young"]], "terms of distinct"),
        ([["work"]], "has 3"),
        ([["old"]], "does not exist"),
    ],
)
def test_refusals(terms: list[list[str]], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        dnf(DOMAIN, terms)


def test_one_value_beside_those_that_are_dropped_makes_no_formula() -> None:
    """It has two cells, and one of them is no value."""
    domain = Domain((Attribute("p", categories=("no", "yes")), Attribute("q", categories=("yes",), other=DROP)))
    with pytest.raises(InvalidInput, match="takes attributes of two values, and 'q' has 1; write 'predicates' instead"):
        dnf(domain, [["p"], ["q"]])
