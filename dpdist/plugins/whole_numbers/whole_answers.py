"""Answers as whole numbers that add up: joint tables are rounded one after the other, with what is known and what was published held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpdist.api.rounding import Block, Matrix
from dpdist.plugins.whole_numbers.additive_queries import MOST_TABLE_CELLS, Rule, joint_tables
from dpdist.plugins.whole_numbers.controlled_rounding import WHOLE_TOLERANCE
from dpdist.plugins.whole_numbers.held_answers import HeldAnswers, move_to_held

MOST_ANSWERS = 4 * MOST_TABLE_CELLS
"""Answers that are rounded together, in memory."""
ROUNDING_COPIES = 24
"""Of the answers, while they are rounded."""


@dataclass(frozen=True)
class WholeAnswers:
    """Answers as whole numbers.

    Attributes:
        values: of all queries, (queries,) float64.
        deviation: how far any of them is at most from its answer, once that was moved.
        apart: names of the groups that were rounded by themselves, whose totals may be off.
        moved: how far each answer was moved before, so that published numbers are held, (queries,); None where none are.
    """

    values: Matrix = field(repr=False)
    deviation: float
    apart: tuple[str, ...]
    moved: Matrix | None = field(default=None, repr=False)


def round_answers(
    blocks: Sequence[Block],
    shape: Sequence[int],
    answers: Matrix,
    rule: Rule,
    seed: int,
    known: Sequence[HeldAnswers] = (),
    published: Sequence[HeldAnswers] = (),
) -> WholeAnswers:
    """Whole answers that add up, where their cells can be held.

    Args:
        blocks: the groups of queries.
        shape: of the domain.
        answers: of all queries, (queries,): those of one estimate.
        seed: of what an unbiased rounding draws.
        known: counts that are public and whole, which are held, and agree with the answers.
        published: whole numbers of earlier releases, which are held, too (``select_held``).
    Raises: ArithmeticError where a count was not held.
    """
    starts, held = np.concatenate([[0], np.cumsum([block.queries for block in blocks])]), [*known, *published]
    values, moved, is_joint = np.rint(answers), answers.astype(np.float64), np.zeros(len(blocks), dtype=bool)
    totals: list[tuple[float, float]] = []  # sums of all cells, and the whole numbers that they became
    tables = joint_tables(blocks, shape, [each.block for each in held])
    for table in sorted(tables, key=lambda table: table.kind != "two trees"):
        targets = [
            (answers[starts[sums.number] : starts[sums.number + 1]] if sums.number >= 0 else held[-1 - sums.number].values)
            for sums in table.sums
        ]
        targets = [np.asarray(target).reshape(sums.shape) for sums, target in zip(table.sums, targets, strict=True)]
        agreeing = [place for place, sums in enumerate(table.sums) if sums.number >= -len(known)]
        consistent = replace(table, sums=tuple(table.sums[place] for place in agreeing))
        cells = consistent.fit_cells([targets[place] for place in agreeing])
        holds_published = len(agreeing) < len(table.sums)
        if holds_published:
            cells = move_to_held(table, cells, held)
            targets = [sums.add_up(cells) for sums in table.sums]
        whole_total = next((whole for total, whole in totals if abs(total - cells.sum()) < 0.01), None)
        skeleton = [sums for sums in table.sums if sums.number < 0]
        if table.kind == "other" and holds_published:
            whole = table.round_holding(skeleton, cells, targets, rule, seed, whole_total)
        else:
            whole = table.round(cells, targets, rule, seed, whole_total)
        totals.append((float(cells.sum()), float(whole.sum())))
        for sums, target in zip(table.sums, targets, strict=True):
            reached = sums.add_up(whole)
            if sums.number < 0 and (reached != held[-1 - sums.number].values.reshape(sums.shape)).any():
                raise ArithmeticError(f"the counts {held[-1 - sums.number].source} were not held by a rounding")
            if sums.is_asked and sums.number >= 0:
                rows = slice(starts[sums.number], starts[sums.number + 1])
                values[rows], moved[rows], is_joint[sums.number] = reached.ravel(), target.ravel(), True
    farthest = float(np.abs(values - moved).max(initial=0.0))
    least = 1.0 if is_joint.any() else 0.5
    deviation = least if farthest <= least + WHOLE_TOLERANCE else math.ceil(100 * farthest) / 100
    apart = tuple(block.name for block, joint in zip(blocks, is_joint, strict=True) if not joint)
    return WholeAnswers(values, deviation, apart, np.abs(moved - answers) if published else None)
