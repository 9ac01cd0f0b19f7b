"""The files that a reader gets, and where they go."""

from __future__ import annotations

import datetime
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.content.answer_tables import is_long
from dpdist.content.destination import PartReport, PartWriter, TaskMap, UploadRecords, WrittenFile, map_in_threads
from dpdist.content.measurement_file import FILE as MEASUREMENT_FILE
from dpdist.content.measurement_file import HORIZON, MOST_BYTES, Evidence, Measurement
from dpdist.content.release_content import CSV_ROWS, AnsweredSteps, ReleaseContent, formats_of
from dpdist.content.suppression import Suppression
from dpdist.engine import Engine
from dpdist.errors import InvalidInput, StoreError
from dpdist.planner.certificate import possible_counts
from dpdist.planner.derived_statistics import derived_statistic_names, statistics
from dpdist.planner.memory_estimate import publish_bytes
from dpdist.planner.preprocessing_steps import preprocessing_tables
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.strategy_search import proving_weights
from dpdist.privacy import keys, signatures
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import Publication
from dpdist.process.threads import map_in_order
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.runtime.context import Context
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.spec.job_workload import JobWorkload
from dpdist.spec.sections.output import AboutSpec
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.storage.array_store import StoredArray
from dpdist.storage.home_folder import published_at
from dpdist.storage.objects import Folder, StorageLocation
from dpdist.strategies.dual_certificates import DualWeights, PersonsBound
from dpdist.workloads import Workload


@dataclass(frozen=True)
class LedgerSeal:
    """Signs the certificate of a release, and knows those that the ledger says were published.

    Attributes:
        location: where it is published.
        tables: of warehouses that get its rows, by kind and name.
    """

    context: Context
    release: str
    location: str
    tables: tuple[tuple[str, str], ...]

    @cached_property
    def _root(self) -> Secret:
        return keys.load(self.context.home)

    def sign(self, certificate: bytes) -> bytes:
        """The signature's file, once the ledger has the certificate's digest. Raises: LedgerError, KeyUnavailable."""
        digest = hashlib.sha256(certificate).hexdigest()
        publication = Publication(digest, signatures.public_key(self._root), self.location, self.tables)
        self.context.ledger.publish(self.release, publication)
        return signatures.sign(self._root, certificate)

    def check(self, certificate: bytes, source: object) -> None:
        """Accept a certificate that was published; the ledger notes if it lies at another place. Raises: StoreError."""
        digest = hashlib.sha256(certificate).hexdigest()
        known_publication = next(
            (
                publication
                for publication in self.context.ledger.publications(self.release)
                if publication.certificate == digest
            ),
            None,
        )
        if known_publication is None:
            raise StoreError(
                f"{source} holds a signed {self.release!r} that this ledger has not published; get the folder that it has, or move this "
                "one away and run again: nothing is charged twice"
            )
        self.context.ledger.publish(self.release, replace(known_publication, location=self.location, tables=self.tables))


_T = TypeVar("_T")
_Item = TypeVar("_Item")
MAY_STAY_OPEN = (
    "a file answers.csv of more than 1 GiB is sent to the object store in parts, and if this run is killed meanwhile they stay there, "
    "unlisted: have the bucket abort incomplete multipart uploads after a day, or leave csv out of 'output.formats'"
)
PARTS_PER_CHECK = 16
"""Of the parts that workers wrote, one in so many is written again by others and compared."""
MOST_REWRITTEN = 4
"""Most parts of a table that the flow itself writes again."""

if TYPE_CHECKING:
    import pyarrow as pa


def publish(
    context: Context,
    planned: ReleasePlan,
    measured: StoredArray,
    answers: Answers,
    certificate: Mapping[str, Any],
    measurements: dict[str, str],
) -> StorageLocation:
    """The files a reader gets; a finished folder is left as it is.

    Args:
        measured: the committed noisy integers of this release.
        certificate: the plan's.
        measurements: digest of the noisy integers of this release and of those that join its estimate, by release.
    """
    job, outputs = planned.job, planned.job.outputs
    claims: dict[str, Any] = {**certificate, "measurements": measurements}
    location = published_at(job.release, outputs.output.folder)
    tables = tuple((target.kind.key(), target.kind.table) for target in outputs.output.to)
    seal, notes = LedgerSeal(context, job.release, location.location, tables), UploadRecords(context.store)
    if release_folder.is_published(claims, location, seal, notes):
        return location
    noisy, about = published_measurements(context, planned, measured)
    statistic_tables = _statistics(context, planned, measured)
    rule, extra = outputs.postprocess.suppress, 0.0 if answers.rounding is None else answers.rounding.deviation
    suppression = None if rule is None else Suppression(rule.below, rule.at, noise=planned.noise.kind, extra=extra)
    windowed_blocks = zip(planned.workload.blocks, job.workload.answered_steps, strict=False)
    whole = tuple(None if steps is None else AnsweredSteps.of(block, steps) for block, steps in windowed_blocks)
    content = ReleaseContent(
        release=job.release,
        title=outputs.title,
        workload=planned.workload,
        answer=answers.answer,
        error=answers.error,
        half_width=answers.half_width,
        certificate={
            **claims,
            "measurement": about,
            **_statistic_facts(job.workload, statistic_tables),
            **_chosen_table_facts(context, planned, measured, answers),
            **({"whole_windows": [block_steps and block_steps.facts() for block_steps in whole]} if whole else {}),
        },
        formats=outputs.output.formats,
        sizes=context.store.sizes,
        measurements=noisy,
        about=_about(outputs.about, job.guarantee.period),
        statistics=statistic_tables,
        step_tables=preprocessing_tables(job),
        verifier=outputs.output.verifier,
        suppression=suppression,
        counted=() if rule is None else job.workload.block_counts_records,
        ends=tuple(map(possible_counts(job).of_block, planned.workload.blocks)),
        answered_steps=whole,
        theme=outputs.theme,
        boundaries=outputs.boundaries,
    )
    if not isinstance(location, Folder) and "csv" in formats_of(content) and answers.answer.size > CSV_ROWS:
        context.progress("warning", MAY_STAY_OPEN)
    return release_folder.write_release(content, location, seal, task_map=_task_map(context, content, location), notes=notes)


def _task_map(context: Context, content: ReleaseContent, location: StorageLocation) -> TaskMap:
    """How the parts of long tables are written: by workers, if they can reach the place and have the memory.

    What workers elsewhere wrote is checked. The run itself started those of this machine, with its own program, and trusts them.
    """
    engine = context.engine
    if engine.in_process or not is_long(content) or engine.task_bytes < publish_bytes(content.workload, writers=1):
        return map_in_threads
    if isinstance(location, Folder):
        return map_in_threads if engine.elsewhere else engine.map
    try:
        engine.map(_check_writable, [location])
    except StoreError as error:
        context.progress("warning", f"workers cannot write the release, so this process writes it alone: {error}")
        return map_in_threads
    return partial(write_checked, engine) if engine.elsewhere else engine.map


def _check_writable(location: StorageLocation) -> None:
    location.check_writable()


def write_checked(engine: Engine, write: Callable[[_Item], _T], items: Sequence[_Item]) -> list[_T]:
    """What workers wrote, once others have found it to be what they say.

    Every part is read back by a worker of each half of them, one of which did not write it, or by this process. Some parts, chosen
    after all were named, are written again by both, and some of these by this process. docs/security.md says what that finds.

    Raises: StoreError for a part that is not what it should be: no certificate is written.
    """
    written_parts = engine.map(write, items)
    assert isinstance(write, PartWriter)
    chance = secrets.SystemRandom()
    rewritten = set(chance.sample(range(len(items)), -(-len(items) // PARTS_PER_CHECK)))
    part_reports = []
    for number, (item, files) in enumerate(zip(items, cast(list[list[WrittenFile]], written_parts), strict=True)):
        names, allowed_names = [entry.name for entry in files], write.possible_names(item)
        if len(set(names)) < len(names) or not set(names) <= set(allowed_names):
            raise _worker_error(f"{allowed_names[0]}: its writer says it wrote something else")
        part_reports.append(PartReport(item, files, number in rewritten or len(names) < len(allowed_names)))
    by_flow = chance.sample([entry for entry in part_reports if entry.needs_rewrite], min(MOST_REWRITTEN, len(rewritten)))
    for half in engine.halves():
        for entry, fault in zip(part_reports, engine.map_where(None, write.fault, part_reports, among=half), strict=True):
            if fault:
                raise _worker_error(fault)
            if fault is None:
                by_flow.append(entry)
    for fault in map_in_order(write.fault, by_flow):
        if fault:
            raise _worker_error(fault)
    return written_parts


def _worker_error(fault: str) -> StoreError:
    return StoreError(
        f"{fault}, and a worker wrote it; nothing is published: look at the workers' memory, version and rights, and run again: "
        "nothing is charged twice"
    )


def published_measurements(
    context: Context, planned: ReleasePlan, measured: StoredArray
) -> tuple[dict[str, tuple[Measurement, Evidence]], dict[str, Any]]:
    """The measurement as it is published beside the answers, by its file, and what the certificate says of that; none where it is not.

    A part of a stream has another one: what is measured in its whole horizon, of which its errors are told, without a value yet.
    """
    job = planned.job
    try:
        if not job.outputs.output.measurement:
            raise InvalidInput("the publisher left it out (output.measurement)")
        whole_measurement, values = planned.cumulative_measurement(context, measured)
        space = whole_measurement.measured_space(values, planned.workload.domain.shape, MOST_BYTES)
    except InvalidInput as reason:
        return {}, {"file": None, "format": None, "values": None, "why": str(reason)}
    withheld_reason = job.measured.quantity.withheld or space.reason_withheld
    measurement = Measurement(space, planned.workload.domain, planned.noise, measured.digest, withheld_reason)
    measurement_files = {MEASUREMENT_FILE: (measurement, _evidence(context, planned, planned.workload))}
    if planned.workload is not job.workload.queries:
        measurement_files |= _horizon_measurement(context, planned)
    return measurement_files, {
        "file": MEASUREMENT_FILE,
        "format": measurement.format,
        "values": int(space.values.size),
        "why": withheld_reason,
    }


def _horizon_measurement(context: Context, planned: ReleasePlan) -> dict[str, tuple[Measurement, Evidence]]:
    """What a stream measures in its whole horizon; none where that is too large for a file."""
    queries = planned.job.workload.queries
    try:
        nothing = ArrayVector(np.zeros(planned.measurement.rows, dtype=np.int64))
        space = planned.measurement.measured_space(nothing, queries.domain.shape, MOST_BYTES)
    except InvalidInput:
        return {}
    return {HORIZON: (Measurement(space, queries.domain, planned.noise), _evidence(context, planned, queries))}


def _evidence(context: Context, planned: ReleasePlan, queries: Workload) -> Evidence:
    """What is written down for those who check the release: its proofs are those of the whole horizon of a stream."""
    solve = planned.strategy.solve
    return Evidence(queries, _bound_weights(context, planned, queries), None if solve is None else solve.largest)


def _bound_weights(context: Context, planned: ReleasePlan, queries: Workload) -> DualWeights | PersonsBound | None:
    """What proves the certificate's lower bound, which is that of all queries; for the steps of a stream so far there is none."""
    lower = max((c.cost / (1 + c.gap) for c in planned.table if c.cost is not None and c.gap is not None), default=None)
    option = next((candidate for candidate in planned.options if candidate.noise.kind == planned.noise.kind), None)
    if lower is None or option is None or queries is not planned.job.workload.queries:
        return None
    if planned.persons is not None:
        return planned.persons
    return proving_weights(context, queries, option.compared, lower)


def _statistics(context: Context, planned: ReleasePlan, measured: StoredArray) -> dict[str, pa.Table]:
    """The statistics that are asked for, whether the measurement that they are made of is published or not."""
    job_workload, domain = planned.job.workload, planned.job.measured.domain
    if not derived_statistic_names(job_workload):
        return {}
    space = planned.measurement.measured_space(StoredVector(context.store, measured), domain.shape, MOST_BYTES)
    return statistics(job_workload, Measurement(space, domain, planned.noise, measured.digest))


def _statistic_facts(workload: JobWorkload, statistic_tables: dict[str, pa.Table]) -> dict[str, Any]:
    """What the certificate says of means, variances and other statistics."""
    derived_statistics = [STATISTICS[name] for name in derived_statistic_names(workload)]
    return {
        table: {
            "file": f"{table}.csv",
            "rows": rows.num_rows,
            "interval": "; ".join(
                dict.fromkeys(statistic.interval for statistic in derived_statistics if statistic.table == table)
            ),
        }
        for table, rows in statistic_tables.items()
    }


def _chosen_table_facts(context: Context, planned: ReleasePlan, measured: StoredArray, answers: Answers) -> dict[str, Any]:
    """The tables that were chosen while they were measured, in their order, with the standard error of a cell; and those that
    come from a model of these, with a bound of their errors."""
    names = planned.workload.domain.names
    chosen_tables = planned.measurement.selected_tables(StoredVector(context.store, measured), planned.noise)
    round_facts = [
        {"table": [names[axis] for axis in entry.axes], "standard_error": entry.deviation} for entry in chosen_tables
    ]
    models = [
        {"table": [names[axis] for axis in axes], "sum_of_errors_at_most": bound} for axes, bound in answers.modelled.items()
    ]
    return {name: entry for name, entry in {"rounds": round_facts, "modelled": models}.items() if entry}


def _about(about: AboutSpec | None, period: datetime.date | None) -> dict[str, Any]:
    """What the publisher says of the data product, as plain values; published on the release's period unless another day is given."""
    if about is None:
        return {}
    day = about.published or period
    return {**about.model_dump(mode="json"), "published": None if day is None else day.isoformat()}
