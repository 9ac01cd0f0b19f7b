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
from dpdist.sources.source_labels import File, SourceLabel
from dpdist.sources.verified_files import Tags
from dpdist.spec import Job
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.job_source import Origin
from dpdist.storage.array_store import StoredArray


def digested_files(context: Context, source: Origin) -> Source:
    """The files of the records with their digests: remembered, or made by this run."""
    return source.files_by(partial(_hash_files, context))


def _hash_files(context: Context, files: Sequence[File]) -> list[tuple[str, Tags]]:
    context.engine.needed_files = (files[0],)
    return file_digests.hashing(_memory(context), context.engine)(files)


def verify_files(context: Context, source: Origin) -> None:
    """Read what this run took from memory, before a charge binds to it. Raises: InvalidInput when a file was changed."""
    file_digests.verify(_memory(context), context.engine, digested_files(context, source))


def _memory(context: Context) -> file_digests.DigestCache:
    return file_digests.DigestCache(context.store, keys.load(context.home))


@private_files()
def count(
    context: Context, source: Origin, measured: CountedCells, layout: Layout
) -> tuple[StoredArray, record_cells.CountSummary]:
    """The histogram of the records, or the tables that the layout asks for.

    Raises: InvalidSpec, UnknownValue; InvalidInput while the names of private categories are placeholders.
    """
    if measured.placeholders:
        raise InvalidInput("private names are not selected yet, so records cannot be counted ahead: run the release")

    def report_progress(completed: int, total: int) -> None:
        context.progress("count", f"{completed} of {total} groups of partitions")

    counts, tally = histogram_counting.count(
        digested_files(context, source),
        measured.domain,
        context.store,
        context.engine,
        root=keys.load(context.home),
        tables=layout.tables,
        report_progress=report_progress,
    )
    check_not_empty(source, tally.read)
    return (counts if measured.centre is None else _distances(context, counts, measured.centre)), tally


def check_not_empty(source: Origin, record_count: int) -> None:
    """Raises: InvalidSpec when no record was read and the spec does not allow that."""
    if record_count == 0 and source.records.empty == "refuse":
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
        "file; 'dpdist run --accept-missing', or a larger share in the spec, releases them as they are"
    )
    refusal.private = (
        f"private, for the operator only: {lost:,} of {found.read:,} records are missing or outside the domain, or hold texts that are no "
        "numbers or dates"
    )
    raise refusal


@private_files()
def materialize_table(context: Context, job: Job, folder: Path | None) -> Job:
    """The release of a file that holds the records of its table, or of its own files.

    Args:
        folder: the folder for such a file (``dpdist.runtime.extract_files``).
    """
    source = job.source
    if source.table is None or folder is None:
        return job
    root = keys.load(context.home)
    uses, types = source.uses(job.measured.domain), source.records.types

    def check(tally: table_extracts.UnreadRecords) -> None:
        check_missing(context, job, job.release, record_cells.CountSummary(tally.read, unread=tally.unread))

    extract = table_extracts.extract_table(
        source.table, job.release, folder, context.home, root, context.engine.memory_bytes, uses, types, check
    )
    source_label = source.records.location.source_label
    context.engine.needed_files = (File(str(extract.path), SourceLabel(source_label)),)
    snapshot_text = f", snapshot {extract.snapshot}" if extract.snapshot else ""
    context.progress("extract", f"read {source_label}{snapshot_text}")
    return job.with_records(extract.path, extract.snapshot, source_label=source_label)


def _distances(context: Context, counts: StoredArray, centre: int) -> StoredArray:
    """|count - centre| of every count; ``statistics.statistic.Distances`` says how far they move."""
    name = f"{counts.name}-around-{centre}"
    count_vector = StoredVector(context.store, counts)
    distances = LazyVector(
        count_vector.size,
        (count_vector,),
        partial(_distance_from_centre, centre),
        24,
        f"away from {centre}",
        np.dtype(np.int64),
    )
    return StoreWorkspace(context.store, context.engine).write(distances, name).array


def _distance_from_centre(centre: int, start: int, count: int, values: Matrix) -> Matrix:
    return np.asarray(np.abs(values - centre))
