"""What is proven about strategies for persons: weights on contributions, from which anybody can compute the bound again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.operators import Matrix

Cells = tuple[int, ...]
"""The cells, or steps, in which a person has one record each."""
SINGLE = 1e-6
"""The share of a Markov chain's persons who are in one step, every one alike: M stays invertible, and the bound loses as little."""


@dataclass(frozen=True)
class MarkovChain:
    """A distribution over all choices of steps that a person may make: weights on more contributions than could be listed.

    Attributes:
        first: the share of persons whose first step it is, (steps,).
        onward: of the persons in step i those whose next one is j, for all j >= i + separation: row by row, in one vector. The others
            have no further step.
        separation: how far apart two steps are at least.
        most: the number of steps after which persons have no further one, whatever ``onward`` says.
    """

    first: Matrix
    onward: Matrix
    separation: int
    most: int

    @property
    def steps(self) -> int:
        """Of the series."""
        return self.first.size

    @property
    def counted(self) -> bool:
        """Whether more than ``most`` steps would fit into the series, so that the steps of persons must be counted."""
        return self.most * self.separation < self.steps

    def transitions(self) -> Matrix:
        """``onward`` as a matrix, (steps, steps)."""
        return triangle(self.onward, self.steps, self.separation)

    def mean_square(self) -> Matrix:
        """M, the mean of u u' over all persons, (steps, steps)."""
        onward, first = self.transitions(), self.first
        if self.counted:
            visited = np.diag(first)
            together = visited.copy()
            for _ in range(self.most - 1):  # the persons who are in i, and in j as the second, third, ... step
                visited, first = visited @ onward, first @ onward
                np.fill_diagonal(visited, first)
                together += visited
        else:
            later = lapack.solve_triangular(np.eye(self.steps) - onward, np.eye(self.steps))
            together = (first @ later)[:, None] * later
        mean = (1.0 - SINGLE) * (together + np.triu(together, 1).T)
        return np.asarray(mean + SINGLE / self.steps * np.eye(self.steps))


def triangle(values: Matrix, steps: int, above: int) -> Matrix:
    """The matrix whose entries from a diagonal on are given row by row, (steps, steps)."""
    out = np.zeros((steps, steps))
    out[np.triu_indices(steps, above)] = values
    return out


@dataclass(frozen=True)
class PersonsBound:
    """Proof that no strategy has less total error for persons: weights on their contributions.

    Attributes:
        lower_bound: (tr (M^1/2 V M^1/2)^1/2)^2: total variance at noise multiplier 1 for persons of one record in each cell.
        columns: the contributions, each by its cells.
        weights: of the columns, which sum to one.
        sizes: instead, where all cells are alike, the weight of every number of cells of a person and number of other cells of one whose
            place is taken, spread evenly over all sets of these numbers.
        chain: instead, for a long series, the distribution over all persons.
        spread: every column, and every person of a chain, stands for so many, each with the same weight: one that holds i, j, ... for
            those that hold spread i + o, spread j + o, ... for o = 0, 1, ..., as far as there are cells.
        axis: the attribute among whose values columns are, the same for all values of the others; None: columns are among all cells.
        how: how they were found, in words.
    """

    lower_bound: float
    how: str
    columns: tuple[Cells, ...] = field(default=(), repr=False)
    weights: tuple[float, ...] = field(default=(), repr=False)
    sizes: Mapping[tuple[int, int], float] = field(default_factory=dict, repr=False)
    chain: MarkovChain | None = field(default=None, repr=False)
    spread: int = 1
    axis: int | None = None

    def mean_square(self, cells: int) -> Matrix:
        """M over all cells, or the values of ``axis``, (cells, cells)."""
        if self.sizes:
            alone, pair = entries_of_sizes(self.sizes, cells)
            return np.full((cells, cells), pair) + (alone - pair) * np.eye(cells)
        if self.chain is not None:
            mean = self.chain.mean_square()
        else:
            mean = mean_of(listed_columns(self.columns, -(-cells // self.spread)), np.array(self.weights))
        return mean if self.spread == 1 else np.kron(mean, np.eye(self.spread) / self.spread)[:cells, :cells]

    @property
    def listed_sizes(self) -> dict[str, float]:
        """The weights of numbers of cells by their texts, "3" or "3-2" where a place is taken."""
        return {f"{s}-{t}" if t else f"{s}": weight for (s, t), weight in self.sizes.items()}

    @property
    def numbers(self) -> Matrix:
        """What is kept as an array: of a chain ``first`` and ``onward``, one after the other."""
        return np.zeros(1) if self.chain is None else np.concatenate([self.chain.first, self.chain.onward])

    def facts(self) -> dict[str, Any]:
        """As it is kept, beside ``numbers``."""
        chain = None if self.chain is None else [self.chain.steps, self.chain.separation, self.chain.most]
        return {
            "chain": chain,
            "lower_bound": self.lower_bound,
            "how": self.how,
            "columns": [list(each) for each in self.columns],
            "weights": list(self.weights),
            "sizes": self.listed_sizes,
            "spread": self.spread,
            "axis": self.axis,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any], numbers: Matrix | None = None) -> PersonsBound:
        """From what was kept."""
        chain = None
        if facts.get("chain") is not None:
            assert numbers is not None
            steps, separation, most = facts["chain"]
            chain = MarkovChain(numbers[:steps], numbers[steps:], separation, most)
        columns, weights = tuple(tuple(each) for each in facts["columns"]), tuple(facts["weights"])
        sizes = {(int(s), int(t or 0)): w for key, w in facts["sizes"].items() for s, _, t in [key.partition("-")]}
        return cls(facts["lower_bound"], facts["how"], columns, weights, sizes, chain, facts["spread"], facts["axis"])


@dataclass(frozen=True)
class DualWeights:
    """Weights of cells.

    Attributes:
        kind: "equal"; "cells", one weight a cell; or "products", one a value of each attribute, which are multiplied.
        arrays: of the cells under 0, or of the values of each attribute; attributes that are missing have equal weights.
    """

    kind: Literal["equal", "cells", "products"]
    arrays: dict[int, Matrix] = field(default_factory=dict, repr=False)

    def over_cells(self, shape: tuple[int, ...]) -> Matrix:
        """One weight a cell, (cells,)."""
        if self.kind == "cells":
            return self.arrays[0]
        out = np.ones(1)
        for axis, size in enumerate(shape):
            out = np.multiply.outer(out, self.arrays.get(axis, np.ones(size))).ravel()
        return out


@dataclass(frozen=True)
class LargestBound:
    """Proof that no strategy has a smaller largest error: weights of answers and of cells.

    For weights l of the answers and v of the cells, each of which add up to one, no strategy's largest variance (times the square of the
    answer's weight) is below the bound that v proves for the total of the answers times l^1/2: a largest one is no less than a mean.

    Attributes:
        cells: v.
        answers: l for every block of queries: a number times one array for each factor (None: ones), or times one of all rows.
    """

    cells: DualWeights
    answers: tuple[tuple[float, tuple[Matrix | None, ...]], ...] = field(repr=False)

    def facts(self) -> dict[str, Any]:
        """As it is kept."""
        arrays = {str(axis): each.tolist() for axis, each in self.cells.arrays.items()}
        answers = [[share, [None if each is None else each.tolist() for each in parts]] for share, parts in self.answers]
        return {"kind": self.cells.kind, "arrays": arrays, "answers": answers}

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None) -> LargestBound | None:
        """From what was kept; None where no largest error was optimised."""
        if facts is None:
            return None
        arrays = {int(axis): np.array(each) for axis, each in facts["arrays"].items()}
        parts = ((share, tuple(None if p is None else np.array(p) for p in each)) for share, each in facts["answers"])
        return cls(DualWeights(facts["kind"], arrays), tuple(parts))


def entries_of_sizes(sizes: Mapping[tuple[int, int], float], cells: int) -> tuple[float, float]:
    """The entries of M on and off the diagonal, for weights of numbers of cells, each spread evenly over all sets of these numbers."""
    alone = sum(weight * (s + t) / cells for (s, t), weight in sizes.items())
    pairs = sum(weight * ((s - t) ** 2 - s - t) for (s, t), weight in sizes.items())
    return alone, pairs / (cells * max(cells - 1, 1))


def mean_of(listed: scipy.sparse.csr_matrix, weights: Matrix) -> Matrix:
    """M = sum weight u u', (cells, cells), of contributions that are rows."""
    return np.asarray((listed.T @ listed.multiply(weights[:, None])).todense())


def listed_columns(columns: Sequence[Cells], cells: int) -> scipy.sparse.csr_matrix:
    """The contributions as rows, (contributions, cells)."""
    sizes = [len(each) for each in columns]
    places = np.fromiter((cell for each in columns for cell in each), dtype=np.int64, count=sum(sizes))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return scipy.sparse.csr_matrix((np.ones(places.size), places, ends), shape=(len(columns), cells))
