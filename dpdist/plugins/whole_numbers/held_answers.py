"""Whole numbers of earlier releases that a later one keeps: which of them its joint tables can hold, and cells that add up to them.

Cells are moved to the published sums by iterative proportional fitting, or where some are below zero by equal shares. How far that moves
an answer is known, and is independent of the error of a best linear unbiased estimate, whose distance from any other unbiased one it is a
function of: the squares of both add up to the answer's variance (Gauss-Markov), and an interval that is as much wider covers as often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpdist.api.rounding import Block, Matrix, Total
from dpdist.plugins.whole_numbers.additive_queries import JointTable, expand_sums, joint_tables
from dpdist.plugins.whole_numbers.query_sums import QuerySums, axis_sums

SWEEPS, EXACT = 1000, 2e-7
"""Rounds in which cells are fitted to held sums, and how far these may be off: sums of whole numbers are then told from others."""


@dataclass(frozen=True)
class HeldAnswers:
    """Whole numbers of a group of queries that are held.

    Attributes:
        source: which release published them, and of what.
        values: of the queries, (queries,).
    """

    source: str
    block: Block
    values: Matrix = field(repr=False)

    def over_attributes(self, axes: set[int]) -> HeldAnswers:
        """Their sums over all other attributes, as far as these are told apart completely."""
        values = self.values.reshape([factor.shape[0] for factor in self.block.factors])
        kept: list[int] = []
        for position in reversed(range(len(self.block.axes))):
            sums = axis_sums(self.block.factors[position])
            is_whole = sums is not None and sums.labels is not None and bool((sums.labels >= 0).all())
            if self.block.axes[position] in axes or not is_whole:
                kept.insert(0, position)
            else:
                values = values.sum(axis=position)
        own = self.block
        if not kept:
            size = own.factors[0].shape[1]
            total = Block(own.name, own.axes[:1], (Total(size),), (("",),))
            return replace(self, block=total, values=values.reshape(1))
        block = Block(
            own.name,
            tuple(own.axes[position] for position in kept),
            tuple(own.factors[position] for position in kept),
            tuple(own.labels[position] for position in kept),
        )
        return replace(self, block=block, values=values.ravel())


def select_held(
    blocks: Sequence[Block], shape: Sequence[int], known: Sequence[HeldAnswers], published: Sequence[HeldAnswers]
) -> tuple[list[HeldAnswers], dict[str, str]]:
    """The published numbers that whole answers can hold all at once, and why not the others.

    Args:
        known: public counts, which are held first.
        published: by earlier releases, those that count most first.
    """
    asked, held, refused = {axis for block in blocks for axis in block.axes}, list[HeldAnswers](), dict[str, str]()
    for candidate in published:
        reduced = candidate.over_attributes(asked)
        together = [*known, *held, reduced]
        tables = [
            table
            for table in joint_tables(blocks, shape, [each.block for each in together])
            if any(sums.number == -len(together) for sums in table.sums) and any(sums.number >= 0 for sums in table.sums)
        ]
        if not tables:
            if set(reduced.block.axes) & asked:
                refused[candidate.source] = "they are no sums over the tables that this release asks for"
        elif any(not _can_hold(table) for table in tables):
            refused[candidate.source] = "no rounding can hold them together with the other numbers that are held"
        else:
            try:
                for table in tables:
                    move_to_held(table, np.ones(table.shape), together)
            except ArithmeticError as error:
                refused[candidate.source] = str(error)
            else:
                held.append(reduced)
    return held, refused


def _can_hold(table: JointTable) -> bool:
    """Whether a rounding of a joint table can hold all sums that are to be held."""
    return (
        table.kind != "other" or replace(table, sums=tuple(sums for sums in table.sums if sums.number < 0)).kind != "other"
    )


def move_to_held(table: JointTable, cells: Matrix, held: Sequence[HeldAnswers]) -> Matrix:
    """Cells of a joint table, moved such that all held sums are exact. Raises: ArithmeticError where no cells have all these sums.

    Args:
        held: the answers that the negative numbers of its sums stand for.
    """
    pairs = [
        (sums, np.asarray(held[-1 - sums.number].values, dtype=np.float64).reshape(sums.shape))
        for sums in table.sums
        if sums.number < 0
    ]
    by_ratio = cells.min(initial=0.0) >= 0 and all(target.min(initial=0.0) >= 0 for _, target in pairs)
    for _ in range(SWEEPS):
        farthest = 0.0
        for sums, target in pairs:
            reached = sums.add_up(cells)
            farthest = max(farthest, float(np.abs(target - reached).max(initial=0.0)))
            cells = _move_sums(cells, sums, reached, target, by_ratio=by_ratio)
        if farthest <= EXACT:
            return cells
    raise ArithmeticError("they contradict public counts, or what other releases published")


def _move_sums(cells: Matrix, sums: QuerySums, reached: Matrix, target: Matrix, *, by_ratio: bool) -> Matrix:
    """Cells with the sums of one group of queries: in proportion where cells are not negative, else by equal shares."""
    share = (target - reached) / np.maximum(sums.add_up(np.ones(cells.shape)), 1.0)
    if not by_ratio:
        return np.asarray(cells + expand_sums(share, sums, cells.shape, 0.0))
    ratio = np.divide(target, reached, out=np.ones_like(reached), where=reached > 0)
    empty = np.where((reached <= 0) & (target > 0), share, 0.0)  # nothing says where in it its records are
    return np.asarray(cells * expand_sums(ratio, sums, cells.shape, 1.0) + expand_sums(empty, sums, cells.shape, 0.0))
