"""What computations over vectors ask of the world outside, and the workspace that holds everything in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.arrays.transpose_passes import Target, TransformPass
from dpdist.operators import Matrix

_T = TypeVar("_T")

ProgressCallback = Callable[[int, int], None]
"""Called with (steps finished, steps in all)."""
Filling = Callable[[int, int], Sequence[Matrix]]
"""Gives the values from one place to another of several vectors."""


class Workspace(Protocol):
    """Where vectors are written and folded: in memory, or in a store by the tasks of an engine."""

    @property
    def in_memory(self) -> bool:
        """Whether vectors are held in memory: they are then transformed as they are, together where they are held together."""

    @property
    def memory_bytes(self) -> int:
        """What one task may use."""

    @property
    def part_values(self) -> int:
        """Values that a task of ``fold`` reads."""

    def write(self, vector: Vector, name: str | None = None, facts: Mapping[str, Any] | None = None) -> Vector:
        """The vector, computed once. Under a name it is kept: the first one kept there wins, and is returned."""

    def find_vector(self, name: str) -> tuple[Vector, Mapping[str, Any]] | None:
        """The vector kept under a name and its facts, None if there is none."""

    def fold(
        self, function: Callable[..., _T], *vectors: Vector, ranges: Sequence[tuple[int, int]] | None = None
    ) -> list[_T]:
        """function(start, one range of every vector) for consecutive ranges, in their order.

        Args:
            ranges: of the values that are read; default: all.
        """

    def run_passes(
        self,
        source: Vector,
        sides: Sequence[TransformPass],
        targets: Sequence[Target],
        report_progress: ProgressCallback | None = None,
    ) -> list[Vector]:
        """Vectors made of one that holds a matrix of ``sides[0].lines`` rows, in C order: one a target."""

    def fill(
        self, names: Sequence[str], size: int, rows: int, function: Filling, report_progress: ProgressCallback | None = None
    ) -> list[Vector]:
        """float64 vectors, one a name: function(start, stop) returns those values of each, for ``rows`` of them at a time."""

    def largest(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """One computation that wants all cores, on the largest worker."""

    def scratch(self) -> Any:
        """A context: the workspace whose unnamed vectors are deleted at its end."""

    def delete(self, *vectors: Vector) -> None:
        """Give up unnamed vectors of this workspace before its end."""


class InMemory:
    """Everything is held in memory and computed in this process."""

    in_memory = True
    memory_bytes = 2**62
    part_values = 2**62

    def write(self, vector: Vector, name: str | None = None, facts: Mapping[str, Any] | None = None) -> Vector:
        """The vector, computed."""
        return vector if isinstance(vector, ArrayVector) else ArrayVector(vector.read(0, vector.size))

    def find_vector(self, name: str) -> tuple[Vector, Mapping[str, Any]] | None:
        """None: nothing is kept."""
        return None

    def fold(
        self, function: Callable[..., _T], *vectors: Vector, ranges: Sequence[tuple[int, int]] | None = None
    ) -> list[_T]:
        """function(start, range) for every range, in their order; default: one of all values."""
        size = max((vector.size for vector in vectors), default=0)
        whole = [(0, size)] if ranges is None else ranges
        return [function(start, *(vector.read(start, stop) for vector in vectors)) for start, stop in whole]

    def run_passes(
        self,
        source: Vector,
        sides: Sequence[TransformPass],
        targets: Sequence[Target],
        report_progress: ProgressCallback | None = None,
    ) -> list[Vector]:
        """One vector a target; every pass takes all lines at once."""
        slabs: Any = source.read(0, source.size).reshape(sides[0].line_count, -1)
        for number, transform_pass in enumerate(sides):
            slabs = transform_pass.apply(0, slabs)
            if report_progress is not None:
                report_progress(number + 1, len(sides))
        return [ArrayVector(_typed(values, target)) for values, target in zip(slabs, targets, strict=True)]

    def fill(
        self, names: Sequence[str], size: int, rows: int, function: Filling, report_progress: ProgressCallback | None = None
    ) -> list[Vector]:
        """All of it at once."""
        return [ArrayVector(values) for values in function(0, size)]

    def largest(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """The computation, here."""
        return function(*arguments)

    @contextmanager
    def scratch(self) -> Iterator[Workspace]:
        """This workspace: Python frees what is no longer used."""
        yield self

    def delete(self, *vectors: Vector) -> None:
        """Nothing to do."""


def _typed(values: Matrix, target: Target) -> Matrix:
    return np.ascontiguousarray(values, dtype=target.dtype).reshape(-1)


MEMORY = InMemory()
"""The workspace of computations that fit in memory."""
