"""Answers of a release from what it and earlier ones of the same records measured: those that ``consistent_with`` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.joining import (
    AnswerRequest,
    Answers,
    ArrayVector,
    BoundRecords,
    Companion,
    Context,
    Job,
    Matrix,
    NoisyMeasurement,
    ReleaseJoining,
    ReleasePlan,
    StoredVector,
    Vector,
    Workload,
    answer_fitting,
    answer_from_estimate,
    committed_measurement,
    count,
    digested_files,
    fit_unbiased_answers,
    joint_estimate,
    keys,
    plan_as_charged,
    scale_to_records,
)
from dpdist.api.queries import NoiseKind, NotMeasured
from dpdist.plugins.combine.edition_changes import revised_groups
from dpdist.plugins.combine.independent_terms import IndependentTerm, independent_terms
from dpdist.plugins.combine.pooled_measurement import check_pooled_memory, measured_parts, pool, pooled_bytes
from dpdist.plugins.combine.pooled_slabs import (
    HELD_BYTES,
    SlabPool,
    StoredTable,
    is_read_by_slabs,
    pools_by_slabs,
    slab_bytes,
)


class ConsistentReleases(ReleaseJoining):
    """Joins all cells where they can be written down, and tables otherwise."""

    def working_bytes(self, planned: ReleasePlan) -> int:
        """What joining tables takes; what the other releases measured is not known here and comes on top."""
        if _estimates_all_cells(planned):
            return 0
        measurement, shape, answers = planned.measurement, planned.workload.domain.shape, planned.workload.shape[0]
        if not is_read_by_slabs(measurement.rows):
            return pooled_bytes(measurement.rows, answers)
        in_store = measurement.cell_multiple is not None
        axis = 0 if in_store else shape.index(max(shape))
        return slab_bytes(shape, answers, axis=axis, held_values=0 if in_store else measurement.rows)

    def companions(self, context: Context, planned: ReleasePlan) -> tuple[Companion, ...]:
        """The releases that a planned one is to be consistent with.

        Raises: InvalidInput when one is not committed, was measured from other records, with the other kind of noise, or has no linear
            measurement; StoreError when its measurement is not the one the ledger knows.
        """
        noise_kind, records = planned.noise.kind, digested_files(context, planned.job.source).digest
        companion_releases = tuple(
            _companion(context, other_release, records) for other_release in planned.job.outputs.companions
        )
        for other_release, _ in companion_releases:
            if other_release.noise.kind != noise_kind:
                raise InvalidInput(
                    f"release {other_release.job.release!r} has {other_release.noise.kind.label} noise and this one {noise_kind.label} "
                    f"noise, which cannot be combined: set 'noise: {other_release.noise.kind}'"
                )
        if not _estimates_all_cells(planned):
            plans = (planned, *(other_release for other_release, _ in companion_releases))
            zeros = [(plan, ArrayVector(np.broadcast_to(np.int64(0), plan.measurement.rows))) for plan in plans]
            try:
                _check_joined(planned.workload, zeros, context.engine.own_bytes)
            except NotMeasured as lack:
                names = " by ".join(planned.workload.domain.names[axis] for axis in lack.axes) or "all records"
                raise InvalidInput(
                    f"none of the releases that are combined measures the table of {names}; ask for others"
                ) from None
        return companion_releases

    def answer(
        self,
        context: Context,
        planned: ReleasePlan,
        measured: Vector,
        companion_releases: Sequence[Companion],
        requested_columns: AnswerRequest,
        seed: int,
    ) -> Answers:
        """Answers from one estimate of all cells, or from one of each table."""
        others = [(plan, StoredVector(context.store, stored)) for plan, stored in companion_releases]
        measurements: list[tuple[ReleasePlan, Vector]] = [(planned, measured), *others]
        workload = planned.workload
        if _estimates_all_cells(planned):
            in_records = [
                NoisyMeasurement(plan.measurement, *scale_to_records(plan, values)) for plan, values in measurements
            ]
            estimate = joint_estimate(workload, in_records, requested_columns.work)
            return answer_from_estimate(context, planned, estimate, requested_columns, seed)
        estimates = _pool(workload, *_measured_tables(workload, measurements), context.engine.own_bytes)()
        answers, variances = (np.concatenate(column) for column in zip(*estimates, strict=True))
        scale = float(planned.scale)
        errors = np.sqrt(variances) / scale
        half = errors * planned.noise.half_width_95(0.0 if planned.noise.kind is NoiseKind.GAUSSIAN else 1.0)
        fitting = answer_fitting(planned.job.outputs.postprocess.non_negative)
        if fitting is None:
            return requested_columns.write(answers / scale, errors, half)
        unbiased_columns = replace(requested_columns, folder=f"{requested_columns.folder}/unbiased")
        unbiased = unbiased_columns.write(answers / scale, errors, half)
        return fit_unbiased_answers(context, planned, fitting, unbiased, None, requested_columns, seed)

    def revised_groups(
        self, context: Context, planned: ReleasePlan, companion_plans: Sequence[ReleasePlan], answers: Answers
    ) -> list[dict[str, Any]]:
        """What changed of published answers."""
        return revised_groups(context, planned, companion_plans, answers)


CONSISTENT_RELEASES = ConsistentReleases()


def _estimates_all_cells(planned: ReleasePlan) -> bool:
    """Whether one estimate of all cells is made of what several releases measured."""
    return planned.measurement.allows_estimate(planned.workload.shape[1], jointly=True)


def _measured_tables(
    workload: Workload, measurements: Sequence[tuple[ReleasePlan, Vector]]
) -> tuple[list[StoredTable], list[IndependentTerm]]:
    """What was measured: tables of all cells that are read in parts, and everything else. Raises: InvalidInput."""
    shape = workload.domain.shape
    tables, terms = list[StoredTable](), list[IndependentTerm]()
    axes = tuple(range(len(shape)))
    for planned, measured in measurements:
        multiple, deviation = planned.measurement.cell_multiple, float(planned.noise.deviation)
        if multiple is not None and is_read_by_slabs(measured.size):
            tables.append(StoredTable(axes, measured, deviation, 1.0 / multiple))
            continue
        space = planned.measurement.measured_space(measured, shape, HELD_BYTES)
        try:
            terms += independent_terms(space, axes, deviation)
        except InvalidInput as error:
            raise InvalidInput(f"release {planned.job.release!r} cannot be combined: {error}") from None
    return tables, terms


def _check_joined(workload: Workload, measurements: Sequence[tuple[ReleasePlan, Vector]], memory_bytes: int) -> None:
    """Accept measurements that can be joined, and from which all queries follow; nothing is computed of them.

    Raises: InvalidInput; NotMeasured; OutOfMemory.
    """
    tables, terms = _measured_tables(workload, measurements)
    _pool(workload, tables, terms, memory_bytes)
    stored = [table.term(np.zeros((1,) * len(table.axes)), table.deviation) for table in tables]
    measured_parts(workload.domain.shape, [*stored, *terms], workload.blocks).check_measured(workload.blocks)


def _pool(
    workload: Workload, tables: Sequence[StoredTable], terms: Sequence[IndependentTerm], memory_bytes: int
) -> Callable[[], Sequence[tuple[Matrix, Matrix]]]:
    """Gives the estimates from measurements of the same records, and their variances; large tables are read in parts.

    Raises: InvalidInput; OutOfMemory.
    """
    shape, blocks = workload.domain.shape, workload.blocks
    if pools_by_slabs(shape, tables, terms, blocks):
        return SlabPool(shape, tables, terms, blocks, memory_bytes=memory_bytes).estimates
    check_pooled_memory(shape, terms, blocks, memory_bytes)
    return lambda: [*map(pool(shape, terms, blocks).estimate, blocks)]


def _companion(context: Context, other_job: Job, records: str) -> Companion:
    """A release of the same records. Raises: as ``companions``."""
    receipt = context.ledger.receipt(other_job.release)
    if receipt is None or receipt.state != "committed":
        raise InvalidInput(f"release {other_job.release!r} is not finished; publish it first, then combine")
    planned = plan_as_charged(context, other_job)
    if planned.measurement.row_blocks() is None:
        raise InvalidInput(
            f"release {other_job.release!r} of mechanism {planned.strategy.name!r} cannot be combined with others; leave it "
            "out of 'consistent_with'"
        )
    stored = committed_measurement(context.store, receipt)
    if stored.facts["grid"] != planned.measurement.digest or stored.facts["scale"] != planned.noise.scale:
        raise InvalidInput(f"the spec of {other_job.release!r} was changed after its release; give the one it was made with")
    counts, _ = count(context, other_job.source, other_job.measured, planned.layout)
    files = digested_files(context, other_job.source)
    bound = BoundRecords(keys.load(context.home), files, counts.content_digest)
    has_same_records = receipt.has_counted(bound.records(other_job.guarantee, other_job.release))
    if has_same_records is None:
        raise InvalidInput(
            f"release {other_job.release!r} was charged under another root key, so its ledger row does not tell from which records it was "
            "made; publish it under a new id, then combine"
        )
    if files.digest != records or not has_same_records:
        raise InvalidInput(
            f"release {other_job.release!r} was made from other records; only releases of the same can be combined: leave it out "
            "of 'consistent_with'"
        )
    return planned, stored
