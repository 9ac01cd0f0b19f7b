"""Passes over a vector that holds a matrix: by slabs of rows, then by slabs of columns, and so on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dpdist.arrays.lazy_vector import Vector
from dpdist.errors import OutOfMemory
from dpdist.operators import Matrix
from dpdist.size_limits import SIZES, Sizes

VALUE_BYTES = 64
"""What a value of a vector takes in a pass, with the working copies."""
MEMORY_SHARE = 3
"""A task's slab with its copies is at most this part of a worker's memory: the rest is for reading and writing."""
LARGEST_SHARDS = 2
"""Times the usual size that a target's shard has at most, if a line is no larger: a reader of some rows reads their shards whole."""


@dataclass(frozen=True)
class TransformPass:
    """One pass.

    Attributes:
        line_count: rows (or columns) that it treats, one by one.
        apply: called with the number of the first line of a slab and the slab. The first pass gets (lines, width), a later one what
            was gathered, (lines, lines of the pass before, ...). It returns (lines of the next pass, lines of the slab, ...); the
            last pass returns one array a target.
        line_bytes: what a line takes while ``apply`` works on it, all arrays together.
    """

    line_count: int
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


def slab_bytes(memory_bytes: int, values: int, sizes: Sizes = SIZES) -> int:
    """What a slab of a vector of so many values may take on a worker, with its working copies."""
    return min(memory_bytes // MEMORY_SHARE, max(sizes.slab_bytes, math.isqrt(VALUE_BYTES * values * sizes.tile_bytes)))


@dataclass(frozen=True)
class Exchange:
    """How what the tasks of a pass write reaches the slabs of the next one.

    Each slab reads a tile of every task: T S requests for T tasks and S slabs. Beyond ``sizes.tiles`` of them, further tasks stand
    between the two: each reads, by one request a task, what about the root of T tasks wrote for about the root of S neighbouring slabs,
    and writes it as one object, of which each of those slabs reads one piece. That takes T S (1 / root of T + 1 / root of S) requests, and
    writes and reads all values once more. Such an object is as large as a slab of the two passes is on (geometric) average, so
    that it fits where they fit, with their working copies.

    Attributes:
        slabs: of the next pass, (first line, one past the last).
        tasks_together: tasks of which one merging task reads.
        slabs_together: slabs for which it reads; 1 where nothing is merged.
    """

    tasks: int
    slabs: list[tuple[int, int]]
    tasks_together: int
    slabs_together: int

    @property
    def groups(self) -> list[list[tuple[int, int]]]:
        """The slabs whose tiles are put together."""
        return [self.slabs[i : i + self.slabs_together] for i in range(0, len(self.slabs), self.slabs_together)]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The lines of the next pass that one request reads of what a task of this pass wrote."""
        return [(group[0][0], group[-1][1]) for group in self.groups]

    @property
    def merges(self) -> int:
        """Tasks between the two passes."""
        return 0 if self.slabs_together == 1 else len(self.groups) * len(_even_slabs(self.tasks, self.tasks_together))

    def merged(self, folder: str) -> list[tuple[str, int, int, int]]:
        """What each of them is given: the object to write, the number of its group of slabs, its first task and one past the last."""
        tasks = _even_slabs(self.tasks, self.tasks_together)
        return [(f"{folder}/{i}/{j}", i, *task_range) for i in range(len(self.groups)) for j, task_range in enumerate(tasks)]


LEAST_TOGETHER = 3
"""Of tasks and of slabs: two halves of the requests would be as many as before."""


def exchanged(tasks: int, slabs: list[tuple[int, int]], sizes: Sizes) -> Exchange:
    """How the tasks of a pass and the slabs of the next one meet."""
    together = _even_step(tasks, math.isqrt(tasks)), _even_step(len(slabs), math.isqrt(len(slabs)))
    if tasks * len(slabs) <= sizes.tiles or min(together) < LEAST_TOGETHER:
        return Exchange(tasks, slabs, 1, 1)
    return Exchange(tasks, slabs, *together)


@dataclass(frozen=True)
class Cut:
    """How passes are divided into tasks.

    Attributes:
        slabs: those of every pass, (first line, one past the last).
        exchanges: between each pass and the next.
        shard_lines: lines of the last pass in a shard of a target; a slab is some whole shards.
    """

    slabs: list[list[tuple[int, int]]]
    exchanges: list[Exchange]
    shard_lines: int


def cut(
    source: Vector, sides: Sequence[TransformPass], targets: Sequence[Target], memory_bytes: int, sizes: Sizes = SIZES
) -> Cut:
    """The slabs of every pass. Raises: OutOfMemory when a single line does not fit."""
    budget = slab_bytes(memory_bytes, source.size, sizes)
    reading = source.bytes_each * (source.size // sides[0].line_count)
    slabs = [
        _cut(replace(transform_pass, line_bytes=transform_pass.line_bytes + (0 if i else reading)), budget)
        for i, transform_pass in enumerate(sides)
    ]
    final_pass, before = sides[-1], len(slabs[-2])
    widest = max(target.line_size * np.dtype(target.dtype).itemsize for target in targets)
    shard_lines = _even_step(final_pass.line_count, min(slabs[-1][0][1], LARGEST_SHARDS * sizes.shard_bytes // widest))
    shards = math.ceil(final_pass.line_count / shard_lines)
    together = max(1, min(budget // (shard_lines * final_pass.line_bytes), shards // before))
    slabs[-1] = _even_slabs(final_pass.line_count, shard_lines * together)
    exchanges = [exchanged(len(slab_ranges), following, sizes) for slab_ranges, following in pairwise(slabs)]
    return Cut(slabs, exchanges, shard_lines)


def _cut(transform_pass: TransformPass, budget: int) -> list[tuple[int, int]]:
    if transform_pass.line_bytes > budget:
        cure = "give the workers more memory, or merge values of the attributes"
        raise OutOfMemory("one line of a product", transform_pass.line_bytes, budget, cure)
    return _even_slabs(transform_pass.line_count, _even_step(transform_pass.line_count, budget // transform_pass.line_bytes))


def _even_step(line_count: int, step: int) -> int:
    """The step of slabs of nearly equal size, at most ``step`` if that is positive."""
    return math.ceil(line_count / math.ceil(line_count / max(1, step)))


def _even_slabs(line_count: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, line_count)) for start in range(0, line_count, step)]
