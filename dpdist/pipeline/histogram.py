"""The counts that a release is made from, and how far one change of the files can move them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dpdist.arrays.lazy_vector import LazyVector
from dpdist.counting import histogram_counting, record_cells
from dpdist.domain import Layout
from dpdist.errors import InvalidInput, InvalidSpec, MissingRecords
from dpdist.extracts import table_extracts
from dpdist.operators import Matrix
from dpdist.privacy import keys
from dpdist.process.durable_files import private_files
from dpdist.runtime.context import Context
from dpdist.runtime.stored_vectors import StoredVector, StoreWorkspace
from dpdist.sources import file_digests
from dpdist.sources.record_sources import Source
from dpdist.sources.source_labels import Called, File
from dpdist.sources.verified_files import Tags
from dpdist.spec import Job
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.job_source import Origin
from dpdist.storage.array_store import StoredArray


def files_of(context: Context, source: Origin) -> Source:
    """The files of the records with their digests: remembered, or made by this run."""
    return source.files_by(partial(_hashed, context))


def _hashed(context: Context, files: Sequence[File]) -> list[tuple[str, Tags]]:
    _needed(context, files[0])
    return file_digests.hashing(_memory(context), context.engine)(files)


def _needed(context: Context, file: File) -> None:
    """Have workers that do not see a file of this machine get no tasks. Raises: EngineError when none is left."""
    context.engine.needed_files = (file,)
    context.engine.check_workers()


def verify_files(context: Context, source: Origin) -> None:
    """Read what this run took from memory, before a charge binds to it. Raises: InvalidInput when a file was changed."""
    file_digests.verify(_memory(context), context.engine, files_of(context, source))


def _memory(context: Context) -> file_digests.Memory:
    return file_digests.Memory(context.store, keys.load(context.home))


@private_files()
def count(
    context: Context, source: Origin, measured: CountedCells, layout: Layout
) -> tuple[StoredArray, record_cells.CountSummary]:
    """The histogram of the records, or the tables that the layout asks for.

    Raises: InvalidSpec, UnknownValue; InvalidInput while the names of private categories are placeholders.
    """
    if measured.placeholders:
        raise InvalidInput("private names are not selected yet, so records cannot be counted ahead: run the release")

    def tell(done: int, total: int) -> None:
        context.progress("count", f"{done} of {total} groups of partitions")

    counts, tally = histogram_counting.count(
        files_of(context, source),
        measured.domain,
        context.store,
        context.engine,
        root=keys.load(context.home),
        tables=layout.tables,
        on_done=tell,
    )
    check_not_empty(source, tally.read)
    return (counts if measured.around is None else _distances(context, counts, measured.around)), tally


def check_not_empty(source: Origin, read: int) -> None:
    """Raises: InvalidSpec when no record was read and the spec does not allow that."""
    if read == 0 and source.records.empty == "refuse":
        raise InvalidSpec(
            f"no record in {source.name}: nothing was charged; give the right file, or set 'records.empty: allow' if a release "
            "of nothing is meant"
        )


def check_missing(context: Context, job: Job, release: str, found: record_cells.CountSummary) -> None:
    """Accept records of which few are missing or outside the domain, unless the release was charged before.

    Args:
        release: the id that would be charged next.
    Raises: MissingRecords. Its message says nothing of the records but that the operator has to look.
    """
    most, receipt = job.source.records.most_missing, context.ledger.receipt(release)
    lost = found.dropped + found.unread
    if lost <= most * found.read or (receipt is not None and receipt.state != "aborted"):
        return
    refusal = MissingRecords(
        f"the operator has to look at {job.source.name}: more than {float(100 * most):g} % of the records ('records.most_missing') are "
        "missing or outside the domain; nothing was charged. Compare 'domain', 'csv' (delimiter, decimal, dates) and 'types' with the "
        "file; 'dpdist run --accept-missing' releases them as they are"
    )
    refusal.private = (
        f"private, for the operator only: {lost:,} of {found.read:,} records are missing or outside the domain, or hold texts that are no "
        "numbers or dates"
    )
    raise refusal


@private_files()
def as_read(context: Context, job: Job, kept: Path | None) -> Job:
    """The release of a file that holds the records of its table, or of its own files.

    Args:
        kept: the folder for such a file (``dpdist.pipeline.extract_files``).
    """
    source = job.source
    if source.table is None or kept is None:
        return job
    root = keys.load(context.home)
    uses, types = source.uses(job.measured.domain), source.records.types
    found = table_extracts.extracted(
        source.table, job.release, kept, context.home, root, context.engine.memory_bytes, uses, types
    )
    place = source.records.location.called
    _needed(context, File(str(found.path), Called(place)))
    at = f", snapshot {found.snapshot}" if found.snapshot else ""
    context.progress("extract", f"read {place}{at}")
    return job.with_records(found.path, found.snapshot, called=place)


def _distances(context: Context, counts: StoredArray, centre: int) -> StoredArray:
    """|count - centre| of every count; ``quantities.counts.Distances`` says how far they move."""
    name = f"{counts.name}-around-{centre}"
    given = StoredVector(context.store, counts)
    away = LazyVector(given.size, (given,), partial(_away, centre), 24, f"away from {centre}", np.dtype(np.int64))
    return StoreWorkspace(context.store, context.engine).write(away, name).array


def _away(centre: int, start: int, count: int, values: Matrix) -> Matrix:
    return np.asarray(np.abs(values - centre))
