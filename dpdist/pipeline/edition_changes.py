"""What a release changes of the numbers that earlier ones of the same records published."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.errors import InvalidInput, StoreError
from dpdist.operators import Matrix
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.runtime.context import Context
from dpdist.storage.objects import parse_location
from dpdist.workloads import Block

MOST_READ = 2**20
"""Published answers of an earlier release that are read to be held or compared: they are in memory, with their names."""
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


def read_published(context: Context, planned: ReleasePlan) -> tuple[Any, list[tuple[Block, Matrix]]]:
    """The certificate of a published release, and its groups with their answers; none where some answers are left out.

    Raises: InvalidInput where its files are not where it was published.
    """
    release = planned.job.release
    publications = context.ledger.publications(release)
    try:
        location = parse_location(publications[-1].location)
        content = bytes((location / release_folder.CERTIFICATE).read_bytes())
        if hashlib.sha256(content).hexdigest() != publications[-1].certificate:
            raise StoreError("another certificate lies there")
        with location.local_copy() as folder:
            table, certificate = release_folder.load_release(Path(folder), ("group", "answer"))
    except (IndexError, StoreError, OSError):
        raise InvalidInput(
            f"the files of {release!r} are not where the ledger says that they were published: put them back"
        ) from None
    if len(table) != planned.workload.shape[0]:
        return certificate, []
    names, answers = table["group"].to_pylist(), table["answer"].to_numpy().astype(np.float64)
    rows = [(block, slice(start, start + block.queries)) for start, block in planned.workload.block_starts()]
    return certificate, [(block, answers[part]) for block, part in rows if set(names[part]) == {block.name}]
