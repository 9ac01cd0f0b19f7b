"""What a release changes of the numbers that earlier ones of the same records published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.joining import MOST_READ, Answers, Context, ReleasePlan, read_published
from dpdist.api.queries import Block

DECIMALS = 2
"""Of changes between editions: answers are published with no more."""


def revised_groups(
    context: Context, planned: ReleasePlan, companion_plans: Sequence[ReleasePlan], answers: Answers
) -> list[dict[str, Any]]:
    """Of each group of answers that an earlier release has published, too, what changed: noisy answers alone decide it.

    What lies no longer where it was published is left out, with a line that says so, and so are releases of very many answers.
    """
    own, starts = planned.workload.blocks, np.cumsum([0, *(block.queries for block in planned.workload.blocks)])
    revised = []
    for companion in companion_plans:
        if companion.workload.shape[0] > MOST_READ:
            continue
        try:
            _, published_groups = read_published(context, companion)
        except InvalidInput as error:
            context.progress("warning", f"{error}; what changed since then is not said")
            continue
        for block, published in published_groups:
            place = next((place for place, other in enumerate(own) if _is_same_group(block, other)), None)
            if place is None:
                continue
            now = np.round(answers.answer.read(int(starts[place]), int(starts[place + 1])), DECIMALS)
            changes = np.abs(now - np.round(published, DECIMALS))
            revised.append(
                {
                    "group": block.name,
                    "release": companion.job.release,
                    "certificate": context.ledger.publications(companion.job.release)[-1].certificate,
                    "answers": int(block.queries),
                    "changed": int(np.count_nonzero(changes)),
                    "largest_change": round(float(changes.max(initial=0.0)), DECIMALS),
                }
            )
    return revised


def _is_same_group(one: Block, other: Block) -> bool:
    """Whether two groups ask the same queries."""
    return (one.name, one.axes) == (other.name, other.axes) and [factor.fingerprint for factor in one.factors] == [
        factor.fingerprint for factor in other.factors
    ]
