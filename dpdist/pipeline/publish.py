"""The files that a reader gets, and where they go."""

from __future__ import annotations

import datetime
import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from dpdist.arrays.lazy_vector import Held
from dpdist.content.answer_tables import is_long
from dpdist.content.certificate_fields import Claims
from dpdist.content.destination import Notes, PartReport, PartWriter, TaskMap, Written, here
from dpdist.content.measurement_file import FILE as MEASUREMENT_FILE
from dpdist.content.measurement_file import HORIZON, MOST_BYTES, Evidence, Measurement
from dpdist.content.release_content import CSV_ROWS, Content, WholeSteps, formats_of
from dpdist.content.suppression import Suppression
from dpdist.engine import Engine
from dpdist.errors import InvalidInput, StoreError
from dpdist.pipeline.continual_release import course_of
from dpdist.planner.certificate import possible
from dpdist.planner.derived_statistics import made_of_sums, statistics
from dpdist.planner.memory_estimate import publish_bytes
from dpdist.planner.release_plan import Plan
from dpdist.planner.strategy_search import proving_weights
from dpdist.privacy import keys, signatures
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import Publication
from dpdist.process.threads import in_order
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.runtime.context import Context
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.spec.job import AskedQueries
from dpdist.spec.sections.output import AboutSpec
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.storage.array_store import StoredArray
from dpdist.storage.home_folder import published_at
from dpdist.storage.objects import Folder, Place
from dpdist.strategies.dual_certificates import DualWeights, PersonsBound
from dpdist.workloads import Workload


@dataclass(frozen=True)
class LedgerSeal:
    """Signs the certificate of a release, and knows those that the ledger says were published.

    Attributes:
        place: where it is published.
        tables: of warehouses that get its rows, by kind and name.
    """

    context: Context
    release: str
    place: str
    tables: tuple[tuple[str, str], ...]

    @cached_property
    def _root(self) -> Secret:
        return keys.load(self.context.home)

    def sign(self, certificate: bytes) -> bytes:
        """The signature's file, once the ledger has the certificate's digest. Raises: LedgerError, KeyUnavailable."""
        digest = hashlib.sha256(certificate).hexdigest()
        publication = Publication(digest, signatures.public_key(self._root), self.place, self.tables)
        self.context.ledger.publish(self.release, publication)
        return signatures.sign(self._root, certificate)

    def check(self, certificate: bytes, where: object) -> None:
        """Accept a certificate that was published; the ledger notes if it lies at another place. Raises: StoreError."""
        digest = hashlib.sha256(certificate).hexdigest()
        known = next((each for each in self.context.ledger.publications(self.release) if each.certificate == digest), None)
        if known is None:
            raise StoreError(
                f"{where} holds a signed {self.release!r} that this ledger has not published; get the folder that it has, or move this "
                "one away and run again: nothing is charged twice"
            )
        self.context.ledger.publish(self.release, replace(known, place=self.place, tables=self.tables))


_T = TypeVar("_T")
_Item = TypeVar("_Item")
MAY_STAY_OPEN = (
    "a file answers.csv of more than 1 GiB is sent to the object store in parts, and if this run is killed meanwhile they stay there, "
    "unlisted: have the bucket abort incomplete multipart uploads after a day, or leave csv out of 'output.formats'"
)
ONE_PART_IN = 16
"""Of the parts that workers wrote, one in so many is written again by others and compared."""
WRITTEN_AGAIN = 4
"""Most parts of a table that the flow itself writes again."""

if TYPE_CHECKING:
    import pyarrow as pa


def publish(
    context: Context,
    planned: Plan,
    measured: StoredArray,
    answers: Answers,
    certificate: Claims,
    measurements: dict[str, str],
) -> Place:
    """The files a reader gets; a finished folder is left as it is.

    Args:
        measured: the committed noisy integers of this release.
        certificate: the plan's.
        measurements: digest of the noisy integers of this release and of those that join its estimate, by release.
    """
    job, outputs = planned.job, planned.job.outputs
    claims: dict[str, Any] = {**certificate, "measurements": measurements}
    where = published_at(job.release, outputs.output.folder)
    tables = tuple((target.kind.key(), target.kind.table) for target in outputs.output.to)
    seal, notes = LedgerSeal(context, job.release, where.location, tables), Notes(context.store)
    if release_folder.is_published(claims, where, seal, notes):
        return where
    noisy, about = published_measurements(context, planned, measured)
    made = _statistics(context, planned, measured)
    rule, extra = outputs.postprocess.suppress, 0.5 if outputs.postprocess.integer else 0.0
    suppression = None if rule is None else Suppression(rule.below, rule.at, noise=planned.noise.kind, extra=extra)
    asked = zip(planned.workload.blocks, job.workload.answered, strict=False)
    whole = tuple(None if steps is None else WholeSteps.of(block, steps) for block, steps in asked)
    content = Content(
        release=job.release,
        title=outputs.title,
        workload=planned.workload,
        answer=answers.answer,
        error=answers.error,
        half_width=answers.half_width,
        certificate={
            **claims,
            "measurement": about,
            **_told(job.workload, made),
            **_chosen(context, planned, measured, answers),
            **({"whole_windows": [each and each.facts() for each in whole]} if whole else {}),
        },
        formats=outputs.output.formats,
        sizes=context.store.sizes,
        measurements=noisy,
        about=_about(outputs.about, job.guarantee.period),
        statistics=made,
        verifier=outputs.output.verifier,
        suppression=suppression,
        counted=() if rule is None else job.workload.counted,
        ends=tuple(map(possible(job).of_block, planned.workload.blocks)),
        whole=whole,
        look=outputs.look,
        boundaries=outputs.boundaries,
    )
    if not isinstance(where, Folder) and "csv" in formats_of(content) and answers.answer.size > CSV_ROWS:
        context.progress("warning", MAY_STAY_OPEN)
    return release_folder.write(content, where, seal, spread=_spread(context, content, where), notes=notes)


def _spread(context: Context, content: Content, where: Place) -> TaskMap:
    """How the parts of long tables are written: by workers, if they can reach the place and have the memory.

    What workers elsewhere wrote is checked. The run itself started those of this machine, with its own program, and trusts them.
    """
    engine = context.engine
    if engine.in_process or not is_long(content) or engine.task_bytes < publish_bytes(content.workload, writers=1):
        return here
    if isinstance(where, Folder):
        return here if engine.elsewhere else engine.map
    try:
        engine.map(_check_writable, [where])
    except StoreError as error:
        context.progress("warning", f"workers cannot write the release, so this process writes it alone: {error}")
        return here
    return partial(checked, engine) if engine.elsewhere else engine.map


def _check_writable(place: Place) -> None:
    place.check_writable()


def checked(engine: Engine, write: Callable[[_Item], _T], items: Sequence[_Item]) -> list[_T]:
    """What workers wrote, once others have found it to be what they say.

    Every part is read back by a worker of each half of them, one of which did not write it, or by this process. Some parts, chosen
    after all were named, are written again by both, and some of these by this process. docs/security.md says what that finds.

    Raises: StoreError for a part that is not what it should be: no certificate is written.
    """
    found = engine.map(write, items)
    assert isinstance(write, PartWriter)
    chance = secrets.SystemRandom()
    again = set(chance.sample(range(len(items)), -(-len(items) // ONE_PART_IN)))
    told = []
    for number, (item, files) in enumerate(zip(items, cast(list[list[Written]], found), strict=True)):
        names, known = [each.name for each in files], write.named(item)
        if len(set(names)) < len(names) or not set(names) <= set(known):
            raise _wrong(f"{known[0]}: its writer says it wrote something else")
        told.append(PartReport(item, files, number in again or len(names) < len(known)))
    by_flow = chance.sample([each for each in told if each.again], min(WRITTEN_AGAIN, len(again)))
    for half in engine.halves():
        for each, fault in zip(told, engine.map_where(None, write.fault, told, among=half), strict=True):
            if fault:
                raise _wrong(fault)
            if fault is None:
                by_flow.append(each)
    for fault in in_order(write.fault, by_flow):
        if fault:
            raise _wrong(fault)
    return found


def _wrong(fault: str) -> StoreError:
    return StoreError(
        f"{fault}, and a worker wrote it; nothing is published: look at the workers' memory, version and rights, and run again: "
        "nothing is charged twice"
    )


def published_measurements(
    context: Context, planned: Plan, measured: StoredArray
) -> tuple[dict[str, tuple[Measurement, Evidence]], dict[str, Any]]:
    """The measurement as it is published beside the answers, by its file, and what the certificate says of that; none where it is not.

    A part of a stream has another one: what is measured in its whole horizon, of which its errors are told, without a value yet.
    """
    job = planned.job
    try:
        if not job.outputs.output.measurement:
            raise InvalidInput("the publisher left it out (output.measurement)")
        grid, values = course_of(planned).measured(context, measured)
        space = grid.space(values, planned.workload.domain.shape, MOST_BYTES)
    except InvalidInput as reason:
        return {}, {"file": None, "format": None, "values": None, "why": str(reason)}
    why = job.measured.quantity.withheld or space.withheld
    found = Measurement(space, planned.workload.domain, planned.noise, measured.digest, why)
    out = {MEASUREMENT_FILE: (found, _evidence(context, planned, planned.workload))}
    if planned.workload is not job.workload.queries:
        out |= _horizon(context, planned)
    return out, {"file": MEASUREMENT_FILE, "format": found.format, "values": int(space.values.size), "why": why}


def _horizon(context: Context, planned: Plan) -> dict[str, tuple[Measurement, Evidence]]:
    """What a stream measures in its whole horizon; none where that is too large for a file."""
    queries = planned.job.workload.queries
    try:
        nothing = Held(np.zeros(planned.grid.rows, dtype=np.int64))
        space = planned.grid.space(nothing, queries.domain.shape, MOST_BYTES)
    except InvalidInput:
        return {}
    return {HORIZON: (Measurement(space, queries.domain, planned.noise), _evidence(context, planned, queries))}


def _evidence(context: Context, planned: Plan, queries: Workload) -> Evidence:
    """What is written down for those who check the release: its proofs are those of the whole horizon of a stream."""
    solve = planned.strategy.solve
    return Evidence(queries, _bound_weights(context, planned, queries), None if solve is None else solve.largest)


def _bound_weights(context: Context, planned: Plan, queries: Workload) -> DualWeights | PersonsBound | None:
    """What proves the certificate's lower bound, which is that of all queries; for the steps of a stream so far there is none."""
    lower = max((c.cost / (1 + c.gap) for c in planned.table if c.cost is not None and c.gap is not None), default=None)
    option = next((each for each in planned.options if each.noise.kind == planned.noise.kind), None)
    if lower is None or option is None or queries is not planned.job.workload.queries:
        return None
    if planned.persons is not None:
        return planned.persons
    return proving_weights(context, queries, option.compared, lower)


def _statistics(context: Context, planned: Plan, measured: StoredArray) -> dict[str, pa.Table]:
    """The statistics that are asked for, whether the measurement that they are made of is published or not."""
    asked, domain = planned.job.workload, planned.job.measured.domain
    if not made_of_sums(asked):
        return {}
    space = planned.grid.space(StoredVector(context.store, measured), domain.shape, MOST_BYTES)
    return statistics(asked, Measurement(space, domain, planned.noise, measured.digest))


def _told(workload: AskedQueries, made: dict[str, pa.Table]) -> dict[str, Any]:
    """What the certificate says of means, variances and other statistics."""
    asked = [STATISTICS[name] for name in made_of_sums(workload)]
    return {
        table: {
            "file": f"{table}.csv",
            "rows": rows.num_rows,
            "interval": "; ".join(dict.fromkeys(each.interval for each in asked if each.table == table)),
        }
        for table, rows in made.items()
    }


def _chosen(context: Context, planned: Plan, measured: StoredArray, answers: Answers) -> dict[str, Any]:
    """The tables that were chosen while they were measured, in their order, with the standard error of a cell; and those that
    come from a model of these, with a bound of their errors."""
    names = planned.workload.domain.names
    chosen = planned.grid.chosen(StoredVector(context.store, measured), planned.noise)
    told = [{"table": [names[axis] for axis in each.axes], "standard_error": each.deviation} for each in chosen]
    models = [
        {"table": [names[axis] for axis in axes], "sum_of_errors_at_most": bound} for axes, bound in answers.modelled.items()
    ]
    return {name: each for name, each in {"rounds": told, "modelled": models}.items() if each}


def _about(about: AboutSpec | None, period: datetime.date | None) -> dict[str, Any]:
    """What the publisher says of the data product, as plain values; published on the release's period unless another day is given."""
    if about is None:
        return {}
    day = about.published or period
    return {**about.model_dump(mode="json"), "published": None if day is None else day.isoformat()}
