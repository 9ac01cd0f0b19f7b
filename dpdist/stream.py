"""Operators applied to stored vectors that are too large for memory."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from dpdist.engine import Engine, OnDone
from dpdist.errors import InvalidInput
from dpdist.operators import Kronecker, Matrix, Operator
from dpdist.passes import Side, Target, two_passes
from dpdist.store import Store, StoredArray

COPIES = 4
"""Copies of a slab while factors are applied to it."""


def kronecker_matvec(
    store: Store, engine: Engine, operator: Kronecker, source: StoredArray, name: str, *, on_done: OnDone | None = None
) -> StoredArray:
    """A x for a Kronecker product A and a stored x, slab by slab: (rows,) in the order of ``Kronecker.matvec``.

    The other factors act on slabs of the first attribute, the first factor on slabs of the others; a last round puts the rows
    in order. int64 stays exact where the factors are integral.

    Raises: InvalidInput when x has another length, OutOfMemory when one value of the first attribute does not fit.
    """
    if source.plan.shape != (operator.shape[1],):
        raise InvalidInput(
            f"a product over {operator.shape[1]} cells cannot be applied to an array of shape {source.plan.shape}"
        )
    first, others = operator.factors[0], operator.factors[1:]
    kind = np.dtype(source.plan.dtype)
    if kind.kind == "i" and not operator.integral:
        kind = np.dtype(np.float64)
    rest = Kronecker(others) if others else None
    columns = 1 if rest is None else rest.shape[0]
    widest = max(
        math.prod(f.shape[0] for f in others[:i]) * math.prod(f.shape[1] for f in others[i:]) for i in range(len(others) + 1)
    )
    work = store.scratch()
    (turned,) = two_passes(
        store,
        engine,
        source,
        rows=first.shape[1],
        columns=columns,
        first=Side(partial(_others, rest, kind), COPIES * kind.itemsize * widest),
        second=Side(partial(_first, first), COPIES * kind.itemsize * max(first.shape)),
        targets=[Target(f"{work}/turned", first.shape[0], kind, {})],
        on_done=on_done,
    )
    (done,) = two_passes(
        store,
        engine,
        turned,
        rows=columns,
        columns=first.shape[0],
        first=Side(_turn, 2 * kind.itemsize * first.shape[0]),
        second=Side(_keep, 2 * kind.itemsize * columns),
        targets=[Target(name, columns, kind, {})],
        on_done=on_done,
    )
    store.delete(work)
    return done


def _others(rest: Kronecker | None, kind: np.dtype[np.generic], start: int, slab: Matrix) -> Matrix:
    del start
    columns = slab.astype(kind, copy=False).T
    return np.ascontiguousarray(columns if rest is None else rest.matvec(np.ascontiguousarray(columns)))


def _first(factor: Operator, start: int, gathered: Matrix) -> tuple[Matrix]:
    del start
    return (np.ascontiguousarray(factor.matvec(np.ascontiguousarray(gathered.T)).T),)


def _turn(start: int, slab: Matrix) -> Matrix:
    del start
    return np.ascontiguousarray(slab.T)


def _keep(start: int, gathered: Matrix) -> tuple[Matrix]:
    del start
    return (gathered,)
