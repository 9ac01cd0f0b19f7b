"""What a release asked, written beside its measurement: the rows of every group of queries, from which anybody recomputes the answers.

docs/reference/files.md describes the members, and ``dpdist/verify.py`` reads them without this code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.operators import AllRanges, Identity, Matrix, Operator, Prefix, Toeplitz, Total
from dpdist.workloads import Workload

MOST_ENTRIES = 2**22
"""Entries of all written rows together; what is known by a name takes none."""
MOST_SMALL = 127
"""Whole numbers up to here are written in one byte."""
_NAMED: tuple[tuple[type[Operator], str], ...] = (
    (Identity, "identity"),
    (Total, "total"),
    (Prefix, "prefix"),
    (AllRanges, "ranges"),
)

Facts = dict[str, Any]


def written(workload: Workload) -> tuple[Facts, dict[str, Matrix]]:
    """The groups of queries in the order of the answers, and the arrays that they name.

    Returns: facts with ``shares`` (what a sum over the bins is divided by) and ``groups``; or with ``why`` there are no groups.
    """
    arrays: dict[str, Matrix] = {}
    groups, entries = [], 0
    for block in workload.blocks:
        factors = []
        for factor, scales in zip(block.factors, block.scales or (None,) * len(block.factors), strict=True):
            entries += _entries(factor) + (0 if scales is None else scales.size)
            if entries > MOST_ENTRIES:
                why = f"its rows have more than {MOST_ENTRIES:,} entries"
                return {"groups": None, "why": why}, {}
            factors.append({**_facts(factor, arrays), "scales": None if scales is None else _named(scales, arrays)})
        groups.append({"name": block.name, "weight": block.weight, "attributes": list(block.axes), "factors": factors})
    return {"groups": groups, "why": None, "shares": float(workload.domain.scale)}, arrays


def _entries(factor: Operator) -> int:
    """How many numbers are written down of a factor."""
    inner = factor.unpadded
    if isinstance(inner, tuple(kind for kind, _ in _NAMED)):
        return 0
    return int(inner.entries.size) if isinstance(inner, Toeplitz) else inner.shape[0] * inner.shape[1]


def _facts(factor: Operator, arrays: dict[str, Matrix]) -> Facts:
    """A factor by its name, or by the array of its coefficients or rows."""
    inner = factor.unpadded
    facts: Facts = {"values": inner.shape[1], "left_out": factor.shape[1] - inner.shape[1]}
    kind = next((name for known, name in _NAMED if isinstance(inner, known)), None)
    if kind is not None:
        return {"kind": kind, **facts}
    if isinstance(inner, Toeplitz):
        shape = {"kind": "circle" if inner.circular else "filter", "first_lag": inner.first_lag}
        return {**shape, **facts, "array": _named(inner.coefficients, arrays)}
    return {"kind": "matrix", **facts, "array": _named(inner.dense(), arrays)}


def _named(array: Matrix, arrays: dict[str, Matrix]) -> str:
    """The name of an array that is put beside the others, in the least type that holds it; an equal one is put there once."""
    small = bool((np.abs(array) <= MOST_SMALL).all() and (np.rint(array) == array).all())
    held = array.astype(np.int8 if small else np.float64)
    for name, known in arrays.items():
        if known.dtype == held.dtype and known.shape == held.shape and (known == held).all():
            return name
    arrays[f"query_{len(arrays)}"] = held
    return f"query_{len(arrays) - 1}"
