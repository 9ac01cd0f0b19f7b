"""The answers that a release published, read where the ledger says that they lie."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.errors import InvalidInput, StoreError
from dpdist.operators import Matrix
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.publish import release_folder
from dpdist.runtime.context import Context
from dpdist.storage.objects import parse_location
from dpdist.workloads import Block

MOST_READ = 2**20
"""Published answers of an earlier release that are read to be held or compared: they are in memory, with their names."""


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
