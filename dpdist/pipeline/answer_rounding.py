"""Answers to whole numbers that add up. What is rounded are noisy answers, with public facts: it costs nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from dpdist.arrays.array_workspace import Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.digests import compute_digest
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.reconstruction.additive_queries import MOST_TABLE_CELLS, round_answers
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, RoundingRule, rounding_of

MOST_ANSWERS = 4 * MOST_TABLE_CELLS
"""Answers that are rounded together, in memory."""
COPIES = 24
"""Of the answers, while they are rounded."""
TASK_ANSWERS = 2**22
"""Answers that are written at a time."""


def round_to_whole(
    planned: ReleasePlan, unrounded: Answers, measurement_digest: str, answer_request: AnswerRequest, work: Workspace
) -> Answers:
    """The answers as whole numbers, kept under their names, with intervals that hold those of the unrounded ones.

    What an unbiased rounding draws is a function of the digest of the noisy measurement: the key of a release is gone once its noise is
    drawn. Every retry rounds alike, readers can repeat it, and no address of the key is read for it.
    """
    rule, options = planned.job.outputs.postprocess.rounding, planned.job.outputs
    planned_rule = planned.planned_rounding
    assert rule is not None
    assert planned_rule is not None
    stored_facts = work.find_vector(answer_request.rounding)
    if stored_facts is None:
        rounding, whole = RoundingRule("nearest", 0.5, adds_up=False), None
        if planned_rule.adds_up and unrounded.answer.size <= MOST_ANSWERS:
            known = tuple(zip(options.known_blocks, (entry.count for entry in options.postprocess.known), strict=True))
            seed = int(compute_digest("rounding", {"measurement": measurement_digest})[:8], 16)
            blocks, shape = planned.workload.blocks, planned.workload.domain.shape
            values, size = to_array(unrounded.answer), unrounded.answer.size
            try:
                made = work.largest(round_answers, blocks, shape, values, rule, seed, known, needed_bytes=COPIES * 8 * size)
            except ArithmeticError as error:
                raise InvalidInput(
                    f"{error}; set 'integer: false' under 'postprocess' and run again (nothing is charged twice)"
                ) from None
            if len(made.apart) < len(blocks):
                rounding, whole = RoundingRule(rule, made.deviation, adds_up=True, apart=made.apart), made.values
        stored_facts = (
            work.write(ArrayVector(np.zeros(1) if whole is None else whole), answer_request.rounding, rounding.facts()),
            rounding.facts(),
        )
        stored_facts = (
            work.find_vector(answer_request.rounding) or stored_facts
        )  # another process may have kept its own first
    rounding = rounding_of(stored_facts[1])
    task = partial(_whole_columns, stored_facts[0] if rounding.adds_up else None, unrounded, rounding.deviation)
    size = unrounded.answer.size
    columns = work.fill(answer_request.names, size, max(1, min(size, TASK_ANSWERS)), task)
    return replace(unrounded, answer=columns[0], error=columns[1], half_width=columns[2], rounding=rounding)


def _whole_columns(whole: Vector | None, unrounded: Answers, deviation: float, start: int, stop: int) -> list[Matrix]:
    """Some whole answers, their standard errors and half widths: a task."""
    errors, half = (vector.read(start, stop) for vector in (unrounded.error, unrounded.half_width))
    values = np.rint(unrounded.answer.read(start, stop)) if whole is None else whole.read(start, stop)
    return [values, errors, half + deviation]
