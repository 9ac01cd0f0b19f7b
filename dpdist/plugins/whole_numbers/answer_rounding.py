"""Answers to whole numbers that add up. What is rounded are noisy answers, with public facts: it costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.rounding import (
    AnswerRequest,
    AnswerRounding,
    Answers,
    ArrayVector,
    Context,
    Job,
    Matrix,
    ReleasePlan,
    RoundAnswers,
    RoundingRule,
    StoreWorkspace,
    Vector,
    Workspace,
    compute_digest,
    to_array,
)
from dpdist.plugins.whole_numbers.additive_queries import Rule, joint_tables
from dpdist.plugins.whole_numbers.held_answers import HeldAnswers
from dpdist.plugins.whole_numbers.published_numbers import known_counts, published_numbers
from dpdist.plugins.whole_numbers.whole_answers import MOST_ANSWERS, ROUNDING_COPIES, WholeAnswers, round_answers

TASK_ANSWERS = 2**22
"""Answers that are written at a time."""
ONE_BY_ONE = RoundingRule("nearest", 0.5, adds_up=False)


class WholeNumbers(AnswerRounding):
    """Rounds answers of one estimate together, and those of others one by one."""

    def check_known_counts(self, job: Job) -> None:
        """Accept known counts that are sums over joint tables in which a rounding holds all sums. Raises: InvalidInput."""
        known, queries = job.outputs.postprocess.known, job.workload.queries
        if all(known_count.where is None for known_count in known):
            return  # the number of all records is held whatever is asked
        tables = joint_tables(queries.blocks, queries.domain.shape, job.outputs.known_blocks)
        held = {sums.number for table in tables if table.kind != "other" for sums in table.sums}
        for number, known_count in enumerate(known):
            if known_count.where is not None and -1 - number not in held:
                raise InvalidInput(
                    f"the known count of {known_count.where!r} cannot be held by whole numbers that add up to these queries: ask for "
                    "counts of its attribute alone, or of one table, or leave 'integer' out"
                )

    def working_bytes(self, planned: ReleasePlan) -> int:
        """Of so many answers as are rounded together."""
        answers = planned.workload.shape[0]
        return ROUNDING_COPIES * 8 * answers if _are_rounded_together(planned, answers) else 0

    def prepare(self, context: Context, planned: ReleasePlan, companion_plans: Sequence[ReleasePlan]) -> RoundAnswers:
        """The rounding that holds published numbers; what it cannot hold is said. Raises: InvalidInput."""
        return partial(_round_and_keep, context, planned, published_numbers(context, planned, companion_plans))


WHOLE_NUMBERS = WholeNumbers()


def _are_rounded_together(planned: ReleasePlan, answers: int) -> bool:
    rule = planned.planned_rounding
    return rule is not None and rule.adds_up and answers <= MOST_ANSWERS


def _round_and_keep(
    context: Context,
    planned: ReleasePlan,
    published: Sequence[HeldAnswers],
    unrounded: Answers,
    measurement_digest: str,
    folder: str,
) -> Answers:
    """The answers as whole numbers, kept in a folder, with intervals that hold those of the unrounded ones.

    What an unbiased rounding draws is a function of the digest of the noisy measurement: the key of a release is gone once its noise is
    drawn. Every retry rounds alike, readers can repeat it, and no address of the key is read for it.

    Args:
        published: whole numbers of earlier releases that are held.
    """
    if published:
        folder += f"-{compute_digest('held', [(each.source, each.values.tolist()) for each in published])[:16]}"
    with StoreWorkspace(context.store, context.engine).scratch() as work:
        kept = work.find_vector(f"{folder}/rounding")
        if kept is None:
            seed = int(compute_digest("rounding", {"measurement": measurement_digest})[:8], 16)
            made, rule = _round_together(context, planned, unrounded, seed, work, published)
            values, moved = (np.zeros(1), None) if made is None else (made.values, made.moved)
            work.write(ArrayVector(np.zeros(1) if moved is None else moved), f"{folder}/moved")
            written = work.write(ArrayVector(values), f"{folder}/rounding", rule.facts())
            # of several processes the first one's is kept
            kept = work.find_vector(f"{folder}/rounding") or (written, rule.facts())
        whole, rounding = kept[0], _rule_of(kept[1])
        shifts = work.find_vector(f"{folder}/moved")
        moves = shifts[0] if rounding.held and shifts is not None else None
        task = partial(_whole_columns, whole if rounding.adds_up else None, moves, unrounded, rounding.deviation)
        size = unrounded.answer.size
        columns = work.fill(AnswerRequest(folder).names, size, max(1, min(size, TASK_ANSWERS)), task)
    return replace(unrounded, answer=columns[0], error=columns[1], half_width=columns[2], rounding=rounding)


def _rule_of(facts: Mapping[str, Any]) -> RoundingRule:
    """The rule whose facts were kept."""
    return RoundingRule(
        facts["rule"], facts["deviation"], facts["adds_up"], tuple(facts["apart"]), tuple(facts.get("held", ()))
    )


def _round_together(
    context: Context, planned: ReleasePlan, unrounded: Answers, seed: int, work: Workspace, published: Sequence[HeldAnswers]
) -> tuple[WholeAnswers | None, RoundingRule]:
    """Whole answers that add up, and what is said of them; none where each is rounded by itself.

    The budget is spent when this runs, so nothing refuses: where the numbers cannot be held, fewer are.
    """
    rule, size = planned.job.outputs.postprocess.rounding, unrounded.answer.size
    if rule is None or not _are_rounded_together(planned, size):
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
