"""Terms on the integer grid under Laplace noise: products, each read for its own queries, and marginals with weights of their own.

The L1 lengths of the columns of all terms add up. They are whole numbers, exactly; a term that is shifted may move every value that a
record touches by one unit more, because each is rounded by itself.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.lazy_vector import Vector, held
from dpdist.domain import Domain
from dpdist.measurement.integer_measurement import Norm, grid_bits
from dpdist.measurement.integer_terms import IntegerTerm, rounded
from dpdist.measurement.sensitivity.bounded_totals import Totals, term_absolute
from dpdist.measurement.term_measurement import TermGrid
from dpdist.measurement.term_reconstruction import MeasuredTerm, block_answers, inverses_of, inverted, read_term
from dpdist.operators import Matrix, Total
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import Answers, Wanted, stored_answers
from dpdist.reconstruction.kronecker_terms import Term, row_fourths, row_squares, told_apart, total_variance
from dpdist.reconstruction.product_space import Cells, ProductSpace
from dpdist.reconstruction.separate_products import SeparateProducts
from dpdist.stability import Neighbours
from dpdist.workloads import Block, Workload

Subset = tuple[int, ...]


@dataclass(frozen=True)
class PureTermGrid(TermGrid):
    """Terms for Laplace noise.

    Attributes:
        groups: the numbers of the blocks of queries that each term answers alone.
    """

    norm: Norm = "l1"
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def streamed(self) -> bool:
        """Tables are held."""
        return False

    @property
    def measures_total(self) -> bool:
        """Each product is read for its own queries."""
        return False

    @property
    def digest(self) -> str:
        """SHA-256 of all terms and of what they are for: the noise key is bound to it."""
        return hashlib.sha256(f"{super().digest}:{self.norm}:{self.groups}".encode()).hexdigest()

    @cached_property
    def column_squared(self) -> int:
        return sum(_reach(term, "add-remove", 1) for term in self.terms) ** 2

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        """Of every group by the one term that answers it."""
        parts = zip(inverted(self.measured_terms, work.largest(inverses_of, self.measured_terms)), self.groups, strict=True)
        return sum(total_variance(workload.blocks[number], [part]) for part, group in parts for number in group)

    def answers(
        self, workload: Workload, z: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        """Answers, exact standard errors, and intervals that know how many draws of noise each answer combines."""
        values, inverses = held(z), work.largest(inverses_of, self.measured_terms)
        found: dict[int, tuple[Matrix, Matrix, Matrix]] = {}
        for (term, place), own, group in zip(self.measured_terms.slices(), inverses, self.groups, strict=True):
            part = read_term(term, values[place], own, noise)
            for number in group:
                block = workload.blocks[number]
                answer, error = block_answers(block, [part])
                found[number] = (answer, error, error * noise.half_width_95(concentration(block, term.axes, own)))
                if on_done is not None:
                    on_done(len(found), len(workload.blocks))
        answer, error, half = (np.concatenate(column) for column in zip(*(found[i] for i in sorted(found)), strict=True))
        return stored_answers(answer, error, half, wanted, work)

    def space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> ProductSpace:
        found = super().space(measured, shape, most_bytes)
        tables = all(isinstance(factor, Cells) for term in found.terms for factor in term.factors)
        if tables or len(found.terms) == 1:
            return found
        return SeparateProducts(found.terms, shape, found.values, found.directions)


@dataclass(frozen=True)
class MarginalGrid(PureTermGrid):
    """Marginals, each cell times a whole number that is its marginal's weight."""

    @property
    def measures_total(self) -> bool:
        """Every marginal tells the number of records; what they tell beside it is uncorrelated."""
        return True

    def _total(self, measured: Matrix, noise: Noise) -> MeasuredTerm:
        return combined((), _by_axes(self, measured), self, noise)

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        total = 0.0
        for block in workload.blocks:
            known = [
                (subset, centring(subset, self.shape), self.precision(subset) ** -0.5)
                for subset in told_apart(block.asked_axes, self.shape)
            ]
            total += total_variance(block, known)
        return total

    def precision(self, subset: Subset) -> float:
        """That of the table of some attributes without its margins, at unit noise: every marginal that holds them adds its own."""
        own = ((term, set(term.axes) - set(subset)) for term in self.terms if set(subset) <= set(term.axes))
        return sum(term.multiplier**2 / math.prod(self.shape[axis] for axis in outside) for term, outside in own)

    def answers(
        self, workload: Workload, z: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        """Answers and exact standard errors; intervals as wide as if every answer held one draw, the widest.

        Every marginal that holds the attributes T says what the table of T is once its margins are taken off, with white noise: they are
        averaged by precision. What different T say is uncorrelated, so variances add and are exact.
        """
        columns = []
        asked = {subset for block in workload.blocks for subset in told_apart(block.asked_axes, self.shape)}
        tables = _by_axes(self, held(z))
        parts = {subset: combined(subset, tables, self, noise) for subset in asked}
        for done, block in enumerate(workload.blocks, start=1):
            columns.append(block_answers(block, [parts[subset] for subset in told_apart(block.asked_axes, self.shape)]))
            if on_done is not None:
                on_done(done, len(workload.blocks))
        answer, error = (np.concatenate(column) for column in zip(*columns, strict=True))
        return stored_answers(answer, error, error * noise.half_width_95(1.0), wanted, work)


def pure_term_grid(
    terms: Sequence[Term],
    domain: Domain,
    *,
    neighbours: Neighbours,
    most_records: int,
    groups: tuple[tuple[int, ...], ...],
    made: type[PureTermGrid] = PureTermGrid,
) -> PureTermGrid:
    """Round terms to integers so that the whole has an L1 sensitivity of about 2^30 grid units.

    Args:
        most_records: as for ``dense_grid``.
    Raises: InvalidInput when a term has so many attributes that too few bits are left for each.
    """
    shape, totals = domain.shape, Totals.of(domain)
    spacing = sum(term.length for term in terms) * 2.0 ** -grid_bits(domain.max_abs_shares)
    whole = tuple(rounded(term, spacing) for term in terms)
    moved = sum(
        _reach(term, neighbours, most_records) if totals is None else _reach_within(totals, term, len(shape) - 1, neighbours)
        for term in whole
    )
    return made(whole, shape, spacing, moved**2, groups=groups)


def _reach(term: IntegerTerm, neighbours: Neighbours, most_records: int) -> int:
    """How far a term's values move in the L1 distance between neighbours, at most.

    A record that is replaced leaves one column and enters another; of a total it moves nothing unless it enters or leaves the domain.
    """
    columns = most_records if neighbours == "add-remove" or not term.axes else 2 * most_records
    length = term.multiplier * math.prod(int(np.abs(f).sum(axis=0).max()) for f in term.factors)
    if term.shift == 0:
        return columns * length
    touched = math.prod(int((f != 0).sum(axis=0).max()) for f in term.factors)
    return (columns * length >> term.shift) + min(term.rows, columns * touched)


def _reach_within(totals: Totals, term: IntegerTerm, last: int, neighbours: Neighbours) -> int:
    """The same where the total of a person's amounts is bounded: k records touch both ends of their groups each."""
    moved = term_absolute(totals, term, last, neighbours)
    if term.shift == 0:
        return moved
    touched = math.prod(int((f != 0).sum(axis=0).max()) for f in term.factors)
    return (moved >> term.shift) + min(term.rows, 2 * totals.records * touched * (1 if neighbours == "add-remove" else 2))


def concentration(block: Block, axes: Subset, inverses: tuple[Matrix, ...]) -> Matrix:
    """Of each query read from one product: fourth powers over the square of the squares of its weights, (queries,)."""
    asked = dict(zip(block.axes, block.factors, strict=True))
    by_axis = dict(zip(axes, inverses, strict=True))
    order = [*block.axes, *(axis for axis in axes if axis not in asked)]
    out = np.ones(1)
    for axis in order:
        if axis not in by_axis:  # a total over an attribute that is not measured
            continue
        inverse = by_axis[axis]
        factor = asked.get(axis, Total(inverse.shape[0]))
        ratio = row_fourths(factor, inverse) / np.maximum(row_squares(factor, inverse) ** 2, 1e-300)
        out = np.multiply.outer(out, ratio).ravel()
    return out


def _by_axes(grid: MarginalGrid, measured: Matrix) -> dict[Subset, tuple[IntegerTerm, Matrix]]:
    """The measured marginals."""
    return {term.axes: (term, measured[place].reshape(term.shape)) for term, place in grid.measured_terms.slices()}


def combined(
    subset: Subset, tables: Mapping[Subset, tuple[IntegerTerm, Matrix]], grid: MarginalGrid, noise: Noise
) -> MeasuredTerm:
    """The table of some attributes without its margins, from every marginal that holds them."""
    shape, precision = grid.shape, grid.precision(subset)
    total = np.zeros([shape[axis] for axis in subset])
    for axes, (term, table) in tables.items():
        if not set(subset) <= set(axes):
            continue
        outside = tuple(place for place, axis in enumerate(axes) if axis not in subset)
        summed = math.prod(shape[axes[place]] for place in outside)
        total += term.multiplier / summed * table.sum(axis=outside, dtype=np.int64)
    return MeasuredTerm(subset, total, 1.0 / precision, centring(subset, shape), noise.deviation / math.sqrt(precision))


def centring(subset: Subset, shape: Sequence[int]) -> tuple[Matrix, ...]:
    """What takes the margins off a table of some attributes."""
    return tuple(np.eye(shape[axis]) - 1.0 / shape[axis] for axis in subset)
