"""Kronecker products and Hadamard transforms of vectors: at once where they are held in memory, else in three passes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.fourier import kept
from dpdist.arrays.lazy_vector import Held, Vector, held
from dpdist.arrays.transpose_passes import Side, Target
from dpdist.errors import InvalidInput
from dpdist.operators import Hadamard, Kronecker, Matrix, Operator
from dpdist.operators.kronecker_product import widest

COPIES = 4
"""Copies of a slab while factors are applied to it."""


def kronecker_product(
    work: Workspace, operator: Kronecker, source: Vector, *, kind: Any = None, on_done: OnDone | None = None
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
        return Held(operator.matvec(held(source).astype(number, copy=False)))
    first, others = operator.factors[0], operator.factors[1:]
    rest = Kronecker(others) if others else None
    columns = 1 if rest is None else rest.shape[0]
    bytes_each = COPIES * number.itemsize
    sides = [
        Side(first.shape[1], partial(_others, rest, number), bytes_each * widest(f.shape for f in others)),
        Side(columns, partial(_first, first), bytes_each * max(first.shape)),
        Side(first.shape[0], kept, bytes_each * columns),
    ]
    return work.passes(source, sides, [Target(columns, number)], on_done)[0]


def hadamard(work: Workspace, source: Vector, *, kind: Any = np.int64, on_done: OnDone | None = None) -> Vector:
    """The Walsh-Hadamard transform of 2^d values, exact on whole numbers: a product of two smaller ones."""
    bits = source.size.bit_length() - 1
    halves = [Hadamard(bits)] if work.in_memory else [Hadamard(bits // 2), Hadamard(bits - bits // 2)]
    return kronecker_product(work, Kronecker(halves), source, kind=kind, on_done=on_done)


def _others(rest: Kronecker | None, kind: np.dtype[np.generic], start: int, slab: Matrix) -> Matrix:
    columns = slab.astype(kind, copy=False).T
    return np.ascontiguousarray(columns if rest is None else rest.matvec(np.ascontiguousarray(columns)))


def _first(factor: Operator, start: int, gathered: Matrix) -> Matrix:
    return factor.matvec(np.ascontiguousarray(gathered.T))
