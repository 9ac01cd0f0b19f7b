"""Exact sensitivity where a person has up to k records whose amounts add up to at most m times the largest one.

Let Z be what z gets from a record of the amount zero, or without one, in some group, and A from one of the largest amount. What all
records of a person add to z is a mean of 0, k Z, m A and (k - m) Z + m A, whose Z and A may be of different groups (proof:
docs/decisions/0015). A norm is convex, so that it is largest at one of these corners, and each corner is a person that there can be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpdist.domain import Domain
from dpdist.domain.numeric_columns import ENDS
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_terms import IntegerTerm, inner_product_range
from dpdist.measurement.sensitivity.column_norms import exact_norms
from dpdist.operators import Matrix
from dpdist.size_limits import Sizes
from dpdist.stability import Neighbours

MOST_CORNERS = 2048
"""Corners up to which all pairs are compared where persons are replaced; beyond, twice the largest is the bound."""
TOO_LARGE = (
    "grid entries are too large, because the strategy's entries exceed its sensitivity by far; choose another mechanism"
)


@dataclass(frozen=True)
class Totals:
    """What the records of a person can be.

    Attributes:
        records: k.
        times: m.
        bins: of the column of amounts: both ends, and one of records without an amount if there is such a bin.
        none: shares at both ends of a record of the amount zero.
        full: of one of the largest amount.
    """

    records: int
    times: int
    bins: int
    none: tuple[int, int]
    full: tuple[int, int]

    @staticmethod
    def of(domain: Domain) -> Totals | None:
        """The bound that a domain declares, None where it declares none."""
        column = domain.attributes[-1]
        amounts = column.amounts
        if amounts is None or amounts.bound is None:
            return None
        high = amounts.low + amounts.width
        none, full = (amounts.steps - amounts.low, amounts.low), (amounts.steps - high, high)
        return Totals(amounts.bound.records, amounts.bound.times, column.size, none, full)

    @property
    def shares_per_record(self) -> int:
        """Into how many shares a record is divided."""
        return sum(self.none)

    def columns(self, rows: Matrix) -> tuple[Matrix, Matrix]:
        """All Z and all A of some rows over the cells, (k, groups x bins - 1) and (k, groups).

        Raises: InvalidInput where they are beyond 64 bits.
        """
        if max(abs(int(rows.min(initial=0))), int(rows.max(initial=0))) * self.shares_per_record >= 2**62:
            raise InvalidInput(TOO_LARGE)
        bin_rows = rows.reshape(rows.shape[0], -1, self.bins)
        none, full = (
            bin_rows[:, :, 0] * record_shares[0] + bin_rows[:, :, 1] * record_shares[1]
            for record_shares in (self.none, self.full)
        )
        missing = self.shares_per_record * bin_rows[:, :, ENDS:].reshape(rows.shape[0], -1)
        return np.concatenate([none, missing], axis=1), full

    def corners(self, none: int, full: int) -> Iterator[tuple[tuple[int, int], ...]]:
        """Every corner as columns with their numbers: the columns Z come first."""
        rest, times = self.records - self.times, self.times
        yield ()
        yield from (((none_column, self.records),) for none_column in range(none))
        yield from (((none + full_column, times),) for full_column in range(full))
        yield from (
            ((none_column, rest), (none + full_column, times))
            for none_column, full_column in itertools.product(range(none), range(full))
        )

    def matrix(self, none: int, full: int) -> Matrix:
        """The corners as a matrix over all Z and A, (corners, none + full) int64."""
        corners = list(self.corners(none, full))
        matrix = np.zeros((len(corners), none + full), dtype=np.int64)
        for row, corner in enumerate(corners):
            for column, number in corner:
                matrix[row, column] = number
        return matrix

    def number(self, none: int, full: int) -> int:
        """How many corners there are."""
        return (none + 1) * (full + 1)


def totals_l2_squared(totals: Totals, blocks: Iterator[Matrix], neighbours: Neighbours, sizes: Sizes) -> int:
    """A Python integer that no neighbour's squared distance in z exceeds: that of the farthest corner, rounded up.

    Args:
        blocks: the rows of z over all cells, (k, cells) int64, block by block.

    Inner products are computed in double precision with a proven bound of their error. Where there are too many columns to compare all
    pairs, or too many corners where persons are replaced, the triangle inequality bounds the distance instead.
    """
    products, rows = None, 0
    norms: Matrix = np.zeros(0, dtype=object)
    none = full = 0
    for block in blocks:
        column_pairs = totals.columns(block)
        none, full = (block_columns.shape[1] for block_columns in column_pairs)
        columns = np.concatenate(column_pairs, axis=1)
        if norms.size == 0:
            norms = np.zeros(columns.shape[1], dtype=object)
            products = np.zeros((columns.shape[1],) * 2) if columns.shape[1] <= sizes.pair_cells else None
        norms += exact_norms(columns)
        rows += block.shape[0]
        if products is not None:
            values = columns.astype(np.float64)
            products += values.T @ values
    longest = totals.records * (math.isqrt(int(norms[:none].max())) + 1) + totals.times * (
        math.isqrt(int(norms[none:].max())) + 1
    )
    if products is None:
        return longest**2 if neighbours == "add-remove" else 4 * longest**2
    slack = 16.0 * (rows + 16) * 2.0**-53 * float(longest) ** 2
    added = math.ceil(_longest_corner(totals, products, none) + slack)
    if neighbours == "add-remove":
        return added
    if totals.number(none, full) > MOST_CORNERS:
        return 4 * added
    corners = totals.matrix(none, full).astype(np.float64)
    gram = corners @ products @ corners.T
    corner_squares = gram.diagonal()
    return math.ceil(float((corner_squares[:, None] + corner_squares[None, :] - 2.0 * gram).max()) + 4.0 * slack)


def _longest_corner(totals: Totals, products: Matrix, none: int) -> float:
    """The largest squared length of a corner, from the inner products of all Z and A."""
    column_squares, rest = products.diagonal(), totals.records - totals.times
    alone = max(totals.records**2 * float(column_squares[:none].max()), totals.times**2 * float(column_squares[none:].max()))
    mixed = (
        rest**2 * column_squares[:none, None]
        + totals.times**2 * column_squares[None, none:]
        + 2.0 * rest * totals.times * products[:none, none:]
    )
    return max(alone, float(mixed.max()))


def totals_l1(totals: Totals, blocks: Iterator[Matrix], neighbours: Neighbours, sizes: Sizes) -> int:
    """The same of the L1 distance, in exact integers; the triangle inequality where it would take more than ``sizes.pair_work``."""
    column_pairs = [totals.columns(block) for block in blocks]
    rows = np.concatenate([np.concatenate(column_pair, axis=1) for column_pair in column_pairs])
    none, full = (block_columns.shape[1] for block_columns in column_pairs[0])
    if int(np.abs(rows).max(initial=0)) * rows.shape[0] * totals.records >= 2**60:
        raise InvalidInput(TOO_LARGE)
    corners = totals.number(none, full)
    lengths = np.abs(rows).sum(axis=0)
    bound = totals.records * int(lengths[:none].max()) + totals.times * int(lengths[none:].max())
    pairs = neighbours == "replace-one" and corners <= MOST_CORNERS and corners**2 * rows.shape[0] <= sizes.pair_work
    if corners * rows.shape[0] > sizes.pair_work:
        return bound if neighbours == "add-remove" else 2 * bound
    if pairs:
        points = totals.matrix(none, full) @ rows.T
        return max(int(np.abs(points - point).sum(axis=1).max()) for point in points)
    rest = (totals.records - totals.times) * rows[:, :none]
    added = max(totals.records * int(lengths[:none].max()), totals.times * int(lengths[none:].max()))
    for column in range(none, none + full):
        added = max(added, int(np.abs(rest + totals.times * rows[:, column : column + 1]).sum(axis=0).max()))
    return added if neighbours == "add-remove" else 2 * added


def term_l2_squared(totals: Totals, term: IntegerTerm, amount_axis: int, neighbours: Neighbours) -> int:
    """A bound of the squared distance in a term before its shift, from the columns of its factors.

    Args:
        amount_axis: the number of the column of amounts.
    """
    none, full = _amounts_of(totals, term, amount_axis)
    groups = term.factors[:-1] if term.axes and term.axes[-1] == amount_axis else term.factors
    ranges = [inner_product_range(factor) for factor in groups]
    longest = term.multiplier**2 * math.prod(largest for _, largest in ranges)
    inner = [term.multiplier**2 * math.prod(extremes) for extremes in itertools.product(*ranges)]
    rest, times = totals.records - totals.times, totals.times
    squares = [sum(v * v for v in z) for z in none], sum(v * v for v in full)
    mixed = max(
        i * sum(none_entry * full_entry for none_entry, full_entry in zip(z, full, strict=True)) for i in inner for z in none
    )
    added = max(
        totals.records**2 * longest * max(squares[0]),
        times**2 * longest * squares[1],
        longest * (rest**2 * max(squares[0]) + times**2 * squares[1]) + 2 * rest * times * mixed,
    )
    return added if neighbours == "add-remove" or not term.axes else 4 * added


def term_l1(totals: Totals, term: IntegerTerm, amount_axis: int, neighbours: Neighbours) -> int:
    """The same of the L1 distance."""
    none, full = _amounts_of(totals, term, amount_axis)
    groups = term.factors[:-1] if term.axes and term.axes[-1] == amount_axis else term.factors
    longest = term.multiplier * math.prod(int(np.abs(f).sum(axis=0).max()) for f in groups)
    lengths = max(sum(map(abs, z)) for z in none), sum(map(abs, full))
    rest, times = totals.records - totals.times, totals.times
    added = longest * max(totals.records * lengths[0], rest * lengths[0] + times * lengths[1])
    return added if neighbours == "add-remove" or not term.axes else 2 * added


def _amounts_of(totals: Totals, term: IntegerTerm, amount_axis: int) -> tuple[list[list[int]], list[int]]:
    """What the rows of the column of amounts make of records with nothing, and of one with the largest amount."""
    if not term.axes or term.axes[-1] != amount_axis:
        return [[totals.shares_per_record]], [totals.shares_per_record]
    rows = term.factors[-1].astype(object)
    none = [list(rows[:, :ENDS] @ np.array(totals.none, dtype=object))]
    none += [list(totals.shares_per_record * rows[:, bin_number]) for bin_number in range(ENDS, totals.bins)]
    return none, list(rows[:, :ENDS] @ np.array(totals.full, dtype=object))
