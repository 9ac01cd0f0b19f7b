"""Answers to whole numbers that add up. What is rounded are noisy answers, with public facts: it costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dpdist.arrays.array_workspace import Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.digests import compute_digest
from dpdist.operators import Matrix
from dpdist.pipeline.published_numbers import known_counts
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, RoundingRule, rounding_of
from dpdist.reconstruction.whole_numbers.additive_queries import Rule
from dpdist.reconstruction.whole_numbers.held_answers import HeldAnswers
from dpdist.reconstruction.whole_numbers.whole_answers import MOST_ANSWERS, ROUNDING_COPIES, WholeAnswers, round_answers
from dpdist.runtime.context import Context

TASK_ANSWERS = 2**22
"""Answers that are written at a time."""
ONE_BY_ONE = RoundingRule("nearest", 0.5, adds_up=False)


def round_to_whole(
    context: Context,
    planned: ReleasePlan,
    unrounded: Answers,
    measurement_digest: str,
    answer_request: AnswerRequest,
    work: Workspace,
    published: Sequence[HeldAnswers] = (),
) -> Answers:
    """The answers as whole numbers, kept under their names, with intervals that hold those of the unrounded ones.

    What an unbiased rounding draws is a function of the digest of the noisy measurement: the key of a release is gone once its noise is
    drawn. Every retry rounds alike, readers can repeat it, and no address of the key is read for it.

    Args:
        published: whole numbers of earlier releases that are held.
    """
    kept = work.find_vector(answer_request.rounding)
    if kept is None:
        seed = int(compute_digest("rounding", {"measurement": measurement_digest})[:8], 16)
        made, facts = _round_together(context, planned, unrounded, seed, work, published)
        values, moved = (np.zeros(1), None) if made is None else (made.values, made.moved)
        work.write(ArrayVector(np.zeros(1) if moved is None else moved), answer_request.moved)
        kept = work.write(ArrayVector(values), answer_request.rounding, facts.facts()), facts.facts()
        kept = work.find_vector(answer_request.rounding) or kept  # another process may have kept its own first
    rounding, shifts = rounding_of(kept[1]), work.find_vector(answer_request.moved)
    moves = shifts[0] if rounding.held and shifts is not None else None
    task = partial(_whole_columns, kept[0] if rounding.adds_up else None, moves, unrounded, rounding.deviation)
    size = unrounded.answer.size
    columns = work.fill(answer_request.names, size, max(1, min(size, TASK_ANSWERS)), task)
    return replace(unrounded, answer=columns[0], error=columns[1], half_width=columns[2], rounding=rounding)


def _round_together(
    context: Context, planned: ReleasePlan, unrounded: Answers, seed: int, work: Workspace, published: Sequence[HeldAnswers]
) -> tuple[WholeAnswers | None, RoundingRule]:
    """Whole answers that add up, and what is said of them; none where each is rounded by itself.

    The budget is spent when this runs, so nothing refuses: where the numbers cannot be held, fewer are.
    """
    planned_rule, rule, size = planned.planned_rounding, planned.job.outputs.postprocess.rounding, unrounded.answer.size
    if planned_rule is None or rule is None or not planned_rule.adds_up or size > MOST_ANSWERS:
        return None, ONE_BY_ONE
    known, values = known_counts(planned), to_array(unrounded.answer)
    blocks, shape = planned.workload.blocks, planned.workload.domain.shape
    attempts: list[tuple[Rule, Sequence[HeldAnswers]]] = [
        (rule, published),
        ("nearest", published),
        (rule, ()),
        ("nearest", ()),
    ]
    for attempted_rule, held in attempts:
        try:
            made = work.largest(
                round_answers,
                blocks,
                shape,
                values,
                attempted_rule,
                seed,
                known,
                held,
                needed_bytes=ROUNDING_COPIES * 8 * size,
            )
        except ArithmeticError as error:
            context.progress("warning", f"{error}; the release goes on, and its certificate says how answers were rounded")
            continue
        if len(made.apart) == len(blocks):
            break
        sources = tuple(each.source for each in held)
        return made, RoundingRule(attempted_rule, made.deviation, adds_up=True, apart=made.apart, held=sources)
    return None, ONE_BY_ONE


def _whole_columns(
    whole: Vector | None, moves: Vector | None, unrounded: Answers, deviation: float, start: int, stop: int
) -> list[Matrix]:
    """Some whole answers, their standard errors and half widths: a task.

    What moved an answer to numbers that are held is independent of its error, so that their squares add up.
    """
    errors, half = (vector.read(start, stop) for vector in (unrounded.error, unrounded.half_width))
    values = np.rint(unrounded.answer.read(start, stop)) if whole is None else whole.read(start, stop)
    moved = 0.0 if moves is None else moves.read(start, stop)
    return [values, np.hypot(errors, moved), half + moved + deviation]
