"""Whole numbers that earlier releases published, which a release that joins them holds: read and checked before anything is charged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.rounding import MOST_READ, Context, ReleasePlan, read_published
from dpdist.plugins.whole_numbers.held_answers import HeldAnswers, select_held


def known_counts(planned: ReleasePlan) -> list[HeldAnswers]:
    """Public counts, which whole numbers hold."""
    outputs = planned.job.outputs
    return [
        HeldAnswers(f"of {entry.where or 'all records'}", block, np.array([entry.count]))
        for entry, block in zip(outputs.postprocess.known, outputs.known_blocks, strict=True)
    ]


def published_numbers(context: Context, planned: ReleasePlan, companion_plans: Sequence[ReleasePlan]) -> list[HeldAnswers]:
    """The whole numbers of the releases that it is consistent with which it will hold, with a line for each group that it cannot.

    Raises: InvalidInput where the files of a release are not where it was published.
    """
    rounding = planned.planned_rounding
    if rounding is None or not rounding.adds_up:
        return []
    published = [each for companion in companion_plans for each in _published_by(context, companion)]
    held, refused = select_held(planned.workload.blocks, planned.workload.domain.shape, known_counts(planned), published)
    for name, reason in refused.items():
        context.progress(
            "warning", f"the numbers that were published as {name} are not held, so that this release's may differ: {reason}"
        )
    return held


def _published_by(context: Context, companion: ReleasePlan) -> Iterator[HeldAnswers]:
    """The groups of whole numbers that a release published, with all their answers."""
    release, rounding = companion.job.release, companion.planned_rounding
    if rounding is None or not rounding.adds_up:
        return
    if companion.workload.shape[0] > MOST_READ:
        context.progress("warning", f"the numbers of {release} are not held: it has more than {MOST_READ:,} answers")
        return
    try:
        certificate, groups = read_published(context, companion)
    except InvalidInput as error:
        raise InvalidInput(f"{error}, for its whole numbers are to be held, or leave 'integer' out") from None
    facts = certificate.get("rounding") or {}
    if not facts.get("adds_up") or not groups:
        context.progress("warning", f"the numbers of {release} are not held: they do not add up, or some are left out")
        return
    for block, answers in groups:
        if block.separable and block.name not in facts["apart"]:
            yield HeldAnswers(f"{block.name} of {release}", block, answers)
