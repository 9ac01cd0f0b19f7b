"""What is proven about strategies for persons: weights on contributions, from which anybody can compute the bound again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.operators import Matrix

Contribution = tuple[int, ...]
"""The cells, or steps, in which a person has one record each."""
SINGLE_STEP_WEIGHT = 1e-6
"""The share of a Markov chain's persons who are in one step, every one alike: M stays invertible, and the bound loses as little."""


@dataclass(frozen=True)
class MarkovChain:
    """A distribution over all choices of steps that a person may make: weights on more contributions than could be listed.

    Attributes:
        start_probabilities: the share of persons whose first step it is, (steps,).
        onward: of the persons in step i those whose next one is j, for all j >= i + separation: row by row, in one vector. The others
            have no further step.
        separation: how far apart two steps are at least.
        max_steps: the number of steps after which persons have no further one, whatever ``onward`` says.
    """

    start_probabilities: Matrix
    onward: Matrix
    separation: int
    max_steps: int

    @property
    def steps(self) -> int:
        """Of the series."""
        return self.start_probabilities.size

    @property
    def counted(self) -> bool:
        """Whether more than ``most`` steps would fit into the series, so that the steps of persons must be counted."""
        return self.max_steps * self.separation < self.steps

    def transitions(self) -> Matrix:
        """``onward`` as a matrix, (steps, steps)."""
        return _triangular_matrix(self.onward, self.steps, self.separation)

    def mean_square(self) -> Matrix:
        """M, the mean of u u' over all persons, (steps, steps)."""
        onward, step_probabilities = self.transitions(), self.start_probabilities
        if self.counted:
            visited = np.diag(step_probabilities)
            together = visited.copy()
            for _ in range(self.max_steps - 1):  # the persons who are in i, and in j as the second, third, ... step
                visited, step_probabilities = visited @ onward, step_probabilities @ onward
                np.fill_diagonal(visited, step_probabilities)
                together += visited
        else:
            visit_counts = lapack.solve_triangular(np.eye(self.steps) - onward, np.eye(self.steps))
            together = (step_probabilities @ visit_counts)[:, None] * visit_counts
        mean = (1.0 - SINGLE_STEP_WEIGHT) * (together + np.triu(together, 1).T)
        return np.asarray(mean + SINGLE_STEP_WEIGHT / self.steps * np.eye(self.steps))


def _triangular_matrix(values: Matrix, steps: int, above: int) -> Matrix:
    """The matrix whose entries from a diagonal on are given row by row, (steps, steps)."""
    matrix = np.zeros((steps, steps))
    matrix[np.triu_indices(steps, above)] = values
    return matrix


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
        block_size: every column, and every person of a chain, stands for so many, each with the same weight: one that holds i, j, ... for
            those that hold spread i + o, spread j + o, ... for o = 0, 1, ..., as far as there are cells.
        axis: the attribute among whose values columns are, the same for all values of the others; None: columns are among all cells.
        description: how they were found, in words.
    """

    lower_bound: float
    description: str
    columns: tuple[Contribution, ...] = field(default=(), repr=False)
    weights: tuple[float, ...] = field(default=(), repr=False)
    sizes: Mapping[tuple[int, int], float] = field(default_factory=dict, repr=False)
    chain: MarkovChain | None = field(default=None, repr=False)
    block_size: int = 1
    axis: int | None = None

    def mean_square(self, cells: int) -> Matrix:
        """M over all cells, or the values of ``axis``, (cells, cells)."""
        if self.sizes:
            alone, pair = entries_of_sizes(self.sizes, cells)
            return np.full((cells, cells), pair) + (alone - pair) * np.eye(cells)
        if self.chain is not None:
            mean = self.chain.mean_square()
        else:
            mean = mean_of(contribution_rows(self.columns, -(-cells // self.block_size)), np.array(self.weights))
        return mean if self.block_size == 1 else np.kron(mean, np.eye(self.block_size) / self.block_size)[:cells, :cells]

    @property
    def listed_sizes(self) -> dict[str, float]:
        """The weights of numbers of cells by their texts, "3" or "3-2" where a place is taken."""
        return {f"{s}-{t}" if t else f"{s}": weight for (s, t), weight in self.sizes.items()}

    @property
    def numbers(self) -> Matrix:
        """What is kept as an array: of a chain ``first`` and ``onward``, one after the other."""
        return np.zeros(1) if self.chain is None else np.concatenate([self.chain.start_probabilities, self.chain.onward])

    def facts(self) -> dict[str, Any]:
        """As it is kept, beside ``numbers``."""
        chain = None if self.chain is None else [self.chain.steps, self.chain.separation, self.chain.max_steps]
        return {
            "chain": chain,
            "lower_bound": self.lower_bound,
            "how": self.description,
            "columns": [list(column) for column in self.columns],
            "weights": list(self.weights),
            "sizes": self.listed_sizes,
            "spread": self.block_size,
            "axis": self.axis,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any], numbers: Matrix | None = None) -> PersonsBound:
        """From what was kept."""
        chain = None
        if facts.get("chain") is not None:
            assert numbers is not None
            steps, separation, max_steps = facts["chain"]
            chain = MarkovChain(numbers[:steps], numbers[steps:], separation, max_steps)
        columns, weights = tuple(tuple(column) for column in facts["columns"]), tuple(facts["weights"])
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
        weights = np.ones(1)
        for axis, size in enumerate(shape):
            weights = np.multiply.outer(weights, self.arrays.get(axis, np.ones(size))).ravel()
        return weights


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
        arrays = {str(axis): array.tolist() for axis, array in self.cells.arrays.items()}
        answers = [
            [scale, [None if array is None else array.tolist() for array in factor_arrays]]
            for scale, factor_arrays in self.answers
        ]
        return {"kind": self.cells.kind, "arrays": arrays, "answers": answers}

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None) -> LargestBound | None:
        """From what was kept; None where no largest error was optimised."""
        if facts is None:
            return None
        arrays = {int(axis): np.array(values) for axis, values in facts["arrays"].items()}
        answers = ((scale, tuple(None if p is None else np.array(p) for p in values)) for scale, values in facts["answers"])
        return cls(DualWeights(facts["kind"], arrays), tuple(answers))


def entries_of_sizes(sizes: Mapping[tuple[int, int], float], cells: int) -> tuple[float, float]:
    """The entries of M on and off the diagonal, for weights of numbers of cells, each spread evenly over all sets of these numbers."""
    alone = sum(weight * (s + t) / cells for (s, t), weight in sizes.items())
    pairs = sum(weight * ((s - t) ** 2 - s - t) for (s, t), weight in sizes.items())
    return alone, pairs / (cells * max(cells - 1, 1))


def mean_of(contributions: scipy.sparse.csr_matrix, weights: Matrix) -> Matrix:
    """M = sum weight u u', (cells, cells), of contributions that are rows."""
    return np.asarray((contributions.T @ contributions.multiply(weights[:, None])).todense())


def contribution_rows(columns: Sequence[Contribution], cells: int) -> scipy.sparse.csr_matrix:
    """The contributions as rows, (contributions, cells)."""
    sizes = [len(column) for column in columns]
    cell_indices = np.fromiter((cell for column in columns for cell in column), dtype=np.int64, count=sum(sizes))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return scipy.sparse.csr_matrix((np.ones(cell_indices.size), cell_indices, ends), shape=(len(columns), cells))
