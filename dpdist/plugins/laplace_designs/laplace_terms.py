"""Terms on the integer grid under Laplace noise: products, each read for its own queries, and marginals with weights of their own.

The L1 lengths of the columns of all terms add up. They are whole numbers, exactly; a term that is shifted may move every value that a
record touches by one unit more, because each is rounded by itself.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpdist.api.mechanisms import (
    AnswerRequest,
    Answers,
    Domain,
    IdentityFactor,
    IntegerTerm,
    Matrix,
    MeasuredTerm,
    Neighbours,
    Noise,
    Norm,
    ProductSpace,
    Term,
    TermMeasurement,
    Total,
    Totals,
    Vector,
    Workload,
    Workspace,
    block_answers,
    grid_bits,
    invert_terms,
    read_term,
    round_term,
    row_squares,
    split_by_term,
    subsets,
    term_l1,
    to_array,
    total_variance,
)
from dpdist.api.pages import Block, Operator

Subset = tuple[int, ...]


def contrast_subsets(axes: tuple[int, ...], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The subsets whose tables without their margins answer a table together: an attribute of one value has no contrast."""
    return subsets(tuple(axis for axis in axes if sizes[axis] > 1))


def _row_fourths(factor: Operator, inverse: Matrix) -> Matrix:
    """Sums of the fourth powers of the entries in each row of W_i M_i^+, block by block."""
    blocks = []
    for start, stop in factor.row_blocks():
        squares = (factor.rows(start, stop) @ inverse) ** 2
        blocks.append(np.einsum("ij,ij->i", squares, squares))
    return np.concatenate(blocks)


@dataclass(frozen=True)
class LaplaceTermMeasurement(TermMeasurement):
    """Terms for Laplace noise.

    Attributes:
        groups: the numbers of the blocks of queries that each term answers alone.
    """

    norm: Norm = "l1"
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def is_streamed(self) -> bool:
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
        return sum(_l1_distance(term, "add-remove", 1) for term in self.terms) ** 2

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        """Of every group by the one term that answers it."""
        term_groups = zip(invert_terms(self.terms, self.inverses(work)), self.groups, strict=True)
        return sum(
            total_variance(workload.blocks[number], [inverted_term])
            for inverted_term, group in term_groups
            for number in group
        )

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Answers, exact standard errors, and intervals that know how many draws of noise each answer combines."""
        values, inverses = to_array(z), self.inverses(answer_request.work)
        block_results: dict[int, tuple[Matrix, Matrix, Matrix]] = {}
        for (term, measured), term_inverses, group in zip(
            split_by_term(self.terms, values), inverses, self.groups, strict=True
        ):
            measured_term = read_term(term, measured, term_inverses, noise)
            for number in group:
                block = workload.blocks[number]
                answer, error = block_answers(block, [measured_term])
                block_results[number] = (
                    answer,
                    error,
                    error * noise.half_width_95(concentration(block, term.axes, term_inverses)),
                )
                answer_request.show_step(len(block_results), len(workload.blocks))
        answer, error, half = (
            np.concatenate(column) for column in zip(*(block_results[i] for i in sorted(block_results)), strict=True)
        )
        return answer_request.write(answer, error, half)

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> ProductSpace:
        product_space = super().measured_space(measured, shape, most_bytes)
        tables = all(isinstance(factor, IdentityFactor) for term in product_space.terms for factor in term.factors)
        return replace(product_space, separate=not tables and len(product_space.terms) > 1)


@dataclass(frozen=True)
class MarginalMeasurement(LaplaceTermMeasurement):
    """Marginals, each cell times a whole number that is its marginal's weight."""

    @property
    def measures_total(self) -> bool:
        """Every marginal tells the number of records; what they tell beside it is uncorrelated."""
        return True

    def _total(self, measured: Matrix, noise: Noise) -> MeasuredTerm:
        return combine_marginals((), _tables_by_axes(self, measured), self, noise)

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        total = 0.0
        for block in workload.blocks:
            inverted_terms = [
                (subset, centring(subset, self.shape), self.precision(subset) ** -0.5)
                for subset in contrast_subsets(block.asked_axes, self.shape)
            ]
            total += total_variance(block, inverted_terms)
        return total

    def precision(self, subset: Subset) -> float:
        """That of the table of some attributes without its margins, at unit noise: every marginal that holds them adds its own."""
        holding_terms = ((term, set(term.axes) - set(subset)) for term in self.terms if set(subset) <= set(term.axes))
        return sum(term.multiplier**2 / math.prod(self.shape[axis] for axis in outside) for term, outside in holding_terms)

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Answers and exact standard errors; intervals as wide as if every answer held one draw, the widest.

        Every marginal that holds the attributes T says what the table of T is once its margins are taken off, with white noise: they are
        averaged by precision. What different T say is uncorrelated, so variances add and are exact.
        """
        columns = []
        needed_subsets = {subset for block in workload.blocks for subset in contrast_subsets(block.asked_axes, self.shape)}
        tables = _tables_by_axes(self, to_array(z))
        measured_terms = {subset: combine_marginals(subset, tables, self, noise) for subset in needed_subsets}
        for completed, block in enumerate(workload.blocks, start=1):
            columns.append(
                block_answers(block, [measured_terms[subset] for subset in contrast_subsets(block.asked_axes, self.shape)])
            )
            answer_request.show_step(completed, len(workload.blocks))
        answer, error = (np.concatenate(column) for column in zip(*columns, strict=True))
        return answer_request.write(answer, error, error * noise.half_width_95(1.0))


def laplace_term_measurement(
    terms: Sequence[Term],
    domain: Domain,
    *,
    neighbours: Neighbours,
    most_records: int,
    groups: tuple[tuple[int, ...], ...],
    measurement_class: type[LaplaceTermMeasurement] = LaplaceTermMeasurement,
) -> LaplaceTermMeasurement:
    """Round terms to integers so that the whole has an L1 sensitivity of about 2^30 grid units.

    Args:
        most_records: as for ``round_dense_strategy``.
    Raises: InvalidInput when a term has so many attributes that too few bits are left for each.
    """
    shape, totals = domain.shape, Totals.of(domain)
    spacing = sum(term.length for term in terms) * 2.0 ** -grid_bits(domain.max_abs_shares)
    whole = tuple(round_term(term, spacing) for term in terms)
    moved = sum(
        _l1_distance(term, neighbours, most_records)
        if totals is None
        else _l1_distance_in_totals(totals, term, len(shape) - 1, neighbours)
        for term in whole
    )
    return measurement_class(whole, shape, spacing, moved**2, groups=groups)


def _l1_distance(term: IntegerTerm, neighbours: Neighbours, most_records: int) -> int:
    """How far a term's values move in the L1 distance between neighbours, at most.

    A record that is replaced leaves one column and enters another; of a total it moves nothing unless it enters or leaves the domain.
    """
    columns = most_records if neighbours == "add-remove" or not term.axes else 2 * most_records
    length = term.multiplier * math.prod(int(np.abs(f).sum(axis=0).max()) for f in term.factors)
    if term.shift == 0:
        return columns * length
    touched = math.prod(int((f != 0).sum(axis=0).max()) for f in term.factors)
    return (columns * length >> term.shift) + min(term.rows, columns * touched)


def _l1_distance_in_totals(totals: Totals, term: IntegerTerm, amount_axis: int, neighbours: Neighbours) -> int:
    """The same where the total of a person's amounts is bounded: k records touch both ends of their groups each."""
    moved = term_l1(totals, term, amount_axis, neighbours)
    if term.shift == 0:
        return moved
    touched = math.prod(int((f != 0).sum(axis=0).max()) for f in term.factors)
    return (moved >> term.shift) + min(term.rows, 2 * totals.records * touched * (1 if neighbours == "add-remove" else 2))


def concentration(block: Block, axes: Subset, inverses: tuple[Matrix, ...]) -> Matrix:
    """Of each query read from one product: fourth powers over the square of the squares of its weights, (queries,)."""
    factors_by_axis = dict(zip(block.axes, block.factors, strict=True))
    by_axis = dict(zip(axes, inverses, strict=True))
    order = [*block.axes, *(axis for axis in axes if axis not in factors_by_axis)]
    ratios = np.ones(1)
    for axis in order:
        if axis not in by_axis:  # a total over an attribute that is not measured
            continue
        inverse = by_axis[axis]
        factor = factors_by_axis.get(axis, Total(inverse.shape[0]))
        ratio = _row_fourths(factor, inverse) / np.maximum(row_squares(factor, inverse) ** 2, 1e-300)
        ratios = np.multiply.outer(ratios, ratio).ravel()
    return ratios


def _tables_by_axes(measurement: MarginalMeasurement, measured: Matrix) -> dict[Subset, tuple[IntegerTerm, Matrix]]:
    """The measured marginals."""
    return {term.axes: (term, values.reshape(term.shape)) for term, values in split_by_term(measurement.terms, measured)}


def combine_marginals(
    subset: Subset, tables: Mapping[Subset, tuple[IntegerTerm, Matrix]], measurement: MarginalMeasurement, noise: Noise
) -> MeasuredTerm:
    """The table of some attributes without its margins, from every marginal that holds them."""
    shape, precision = measurement.shape, measurement.precision(subset)
    total = np.zeros([shape[axis] for axis in subset])
    for axes, (term, table) in tables.items():
        if not set(subset) <= set(axes):
            continue
        outside = tuple(position for position, axis in enumerate(axes) if axis not in subset)
        summed = math.prod(shape[axes[position]] for position in outside)
        total += term.multiplier / summed * table.sum(axis=outside, dtype=np.int64)
    return MeasuredTerm(subset, total, 1.0 / precision, centring(subset, shape), noise.deviation / math.sqrt(precision))


def centring(subset: Subset, shape: Sequence[int]) -> tuple[Matrix, ...]:
    """What takes the margins off a table of some attributes."""
    return tuple(np.eye(shape[axis]) - 1.0 / shape[axis] for axis in subset)
