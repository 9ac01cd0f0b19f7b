"""Kronecker products and Hadamard transforms of vectors: at once where they are held in memory, else in three passes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.fourier import identity_slab
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.arrays.transpose_passes import Target, TransformPass
from dpdist.errors import InvalidInput
from dpdist.operators import Hadamard, Kronecker, Matrix, Operator
from dpdist.operators.kronecker_product import largest_tensor_size

COPIES = 4
"""Copies of a slab while factors are applied to it."""


def kronecker_product(
    work: Workspace,
    operator: Kronecker,
    source: Vector,
    *,
    kind: Any = None,
    report_progress: ProgressCallback | None = None,
) -> Vector:
    """A x for a Kronecker product A: (rows,) in the order of ``Kronecker.matvec``.

    In passes the other factors act on slabs of the first attribute, the first factor on slabs of the others; a last pass puts the rows
    in order. int64 stays exact where the factors are integral.

    Args:
        kind: what is multiplied, int64 or float64; default what the source holds.
    Raises: InvalidInput when x has another length, OutOfMemory when one value of the first attribute does not fit.
    """
    if source.size != operator.shape[1]:
        raise InvalidInput(f"a product over {operator.shape[1]} cells cannot be applied to {source.size} values")
    number = np.dtype(source.dtype if kind is None else kind)
    if number.kind == "i" and not operator.integral:
        number = np.dtype(np.float64)
    if work.in_memory:
        return ArrayVector(operator.matvec(to_array(source).astype(number, copy=False)))
    first_factor, other_factors = operator.factors[0], operator.factors[1:]
    rest = Kronecker(other_factors) if other_factors else None
    columns = 1 if rest is None else rest.shape[0]
    bytes_each = COPIES * number.itemsize
    sides = [
        TransformPass(
            first_factor.shape[1],
            partial(_apply_other_factors, rest, number),
            bytes_each * largest_tensor_size(f.shape for f in other_factors),
        ),
        TransformPass(columns, partial(_apply_first_factor, first_factor), bytes_each * max(first_factor.shape)),
        TransformPass(first_factor.shape[0], identity_slab, bytes_each * columns),
    ]
    return work.run_passes(source, sides, [Target(columns, number)], report_progress)[0]


def hadamard(
    work: Workspace, source: Vector, *, kind: Any = np.int64, report_progress: ProgressCallback | None = None
) -> Vector:
    """The Walsh-Hadamard transform of 2^d values, exact on whole numbers: a product of two smaller ones."""
    bits = source.size.bit_length() - 1
    halves = [Hadamard(bits)] if work.in_memory else [Hadamard(bits // 2), Hadamard(bits - bits // 2)]
    return kronecker_product(work, Kronecker(halves), source, kind=kind, report_progress=report_progress)


def _apply_other_factors(rest: Kronecker | None, kind: np.dtype[np.generic], start: int, slab: Matrix) -> Matrix:
    columns = slab.astype(kind, copy=False).T
    return np.ascontiguousarray(columns if rest is None else rest.matvec(np.ascontiguousarray(columns)))


def _apply_first_factor(factor: Operator, start: int, slab: Matrix) -> Matrix:
    return factor.matvec(np.ascontiguousarray(slab.T))
