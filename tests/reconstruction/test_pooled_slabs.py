"""Tables that are read slab by slab give the estimates and variances of one pool of everything."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import Groups, Identity, Operator, Total
from dpdist.operators.range_operators import Prefix
from dpdist.reconstruction import pooled_slabs
from dpdist.reconstruction.measured_space import NotMeasured
from dpdist.reconstruction.pooled_measurement import IndependentTerm, pool
from dpdist.reconstruction.pooled_slabs import SlabPool, StoredTable
from dpdist.workloads import Block

SHAPE = (7, 3, 4)


def block(name: str, *factors: tuple[int, Operator]) -> Block:
    axes, operators = zip(*factors, strict=True)
    return Block(name, axes, operators, tuple(range(operator.shape[0]) for operator in operators))


def values_of(*axes: int) -> Block:
    return block(str(axes), *((axis, Identity(SHAPE[axis])) for axis in axes))


BLOCKS = [
    *(values_of(*axes) for axes in ((0, 1, 2), (0, 1), (1, 2), (0,), (2,))),
    block("all", (0, Total(7))),
    block("until", (0, Prefix(7)), (2, Identity(4))),
    block("levels", (0, Groups(np.array([0, 0, 1, 1, -1, 2, 2]), 3)), (1, Prefix(3))),
]
TABLES = (((0, 1, 2), 3.0), ((0, 1, 2), 2.0), ((0, 1), 1.5), ((1, 2), 1.0))
STATE = np.random.default_rng(1)
VALUES = [STATE.normal(0, 9, [SHAPE[axis] for axis in axes]).ravel() for axes, _ in TABLES]
TERMS = [IndependentTerm(axes, (None,) * len(axes), v, d) for (axes, d), v in zip(TABLES, VALUES, strict=True)]
STORED = [StoredTable(axes, ArrayVector(2 * v), 2 * d, 0.5) for (axes, d), v in zip(TABLES[:2], VALUES[:2], strict=True)]


@pytest.mark.parametrize("slab_values", [1, 30, 10**6])
def test_slabs_are_as_one_pool(slab_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slabs of one value, of some and of all; answers whose rows are values, prefixes and groups of the attribute, and totals."""
    monkeypatch.setattr(pooled_slabs, "SLAB_VALUES", slab_values)
    whole = pool(SHAPE, TERMS, BLOCKS)
    slabs = SlabPool(SHAPE, STORED, TERMS[2:], BLOCKS)
    slabs.check_measured()
    for asked, (answers, variances) in zip(BLOCKS, slabs.estimates(), strict=True):
        expected, expected_variances = whole.estimate(asked)
        np.testing.assert_allclose(answers, expected, atol=1e-9)
        np.testing.assert_allclose(variances, expected_variances, rtol=1e-9)


def test_what_is_not_read_in_slabs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="same first attribute"):
        SlabPool(SHAPE, [STORED[0], StoredTable((1, 2), ArrayVector(VALUES[3]), 1.0)], [], BLOCKS)
    matrix = IndependentTerm((0,), (np.eye(7),), np.zeros(7), 1.0)
    with pytest.raises(InvalidInput, match="joined with tables alone"):
        SlabPool(SHAPE, STORED, [matrix], BLOCKS)
    with pytest.raises(OutOfMemory, match="joining measurements"):
        SlabPool(SHAPE, STORED, [], BLOCKS, memory_bytes=1000)
    part = SlabPool(SHAPE, [StoredTable((0, 1), ArrayVector(VALUES[2]), 1.0)], [], [values_of(0, 2)])
    with pytest.raises(NotMeasured):
        part.check_measured()
