"""Passes over a vector that holds a matrix: by slabs of rows, then by slabs of columns, and so on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpdist.arrays.vector import Vector
from dpdist.errors import OutOfMemory
from dpdist.operators import Matrix
from dpdist.sizes import SIZES

SLAB_BYTES = 512 * 2**20
"""What a slab may take at most, with its working copies, whatever the workers have."""
MEMORY_SHARE = 3
"""A task's slab with its copies is at most this part of a worker's memory: the rest is for reading and writing."""
LARGEST_SHARD = 2 * SIZES.shard_bytes
"""Bytes of a target's shard at most, if a line is no larger: a reader of some rows reads their shards whole."""


@dataclass(frozen=True)
class Side:
    """One pass.

    Attributes:
        lines: rows (or columns) that it treats, one by one.
        apply: called with the number of the first line of a slab and the slab. The first pass gets (lines, width), a later one what
            was gathered, (lines, lines of the pass before, ...). It returns (lines of the next pass, lines of the slab, ...); the
            last pass returns one array a target.
        line_bytes: what a line takes while ``apply`` works on it, all arrays together.
    """

    lines: int
    apply: Callable[[int, Matrix], Any]
    line_bytes: int


@dataclass(frozen=True)
class Target:
    """A vector that the last pass writes: ``line_size`` values for every line, in their order.

    Attributes:
        name: under which it is kept; None: it is the workspace's scratch.
        compressed: whether a store compresses it.
    """

    line_size: int
    dtype: Any
    name: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    compressed: bool = True


def slab_bytes(memory_bytes: int) -> int:
    """What a slab may take on a worker, with its working copies."""
    return min(SLAB_BYTES, memory_bytes // MEMORY_SHARE)


def cut(source: Vector, sides: Sequence[Side], targets: Sequence[Target], memory_bytes: int) -> list[list[tuple[int, int]]]:
    """The slabs of every pass, (first line, one past the last), whatever the last line of each.

    Raises: OutOfMemory when a single line does not fit.
    """
    budget = slab_bytes(memory_bytes)
    reading = source.bytes_each * (source.size // sides[0].lines)
    slabs = [_cut(replace(side, line_bytes=side.line_bytes + (0 if i else reading)), budget) for i, side in enumerate(sides)]
    widest = max(target.line_size * np.dtype(target.dtype).itemsize for target in targets)
    slabs[-1] = _cut(replace(sides[-1], line_bytes=max(sides[-1].line_bytes, budget * widest // LARGEST_SHARD)), budget)
    return slabs


def _cut(side: Side, budget: int) -> list[tuple[int, int]]:
    if side.line_bytes > budget:
        cure = "give the workers more memory, or merge values of the attributes"
        raise OutOfMemory("one line of a product", side.line_bytes, budget, cure)
    step = min(side.lines, max(1, budget // side.line_bytes))
    step = math.ceil(side.lines / math.ceil(side.lines / step))  # slabs of nearly equal size
    return [(start, min(start + step, side.lines)) for start in range(0, side.lines, step)]
