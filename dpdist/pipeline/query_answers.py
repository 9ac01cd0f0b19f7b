"""Noisy values to answers, standard errors and intervals, as the measurement that they are values of reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpdist.arrays.array_workspace import MEMORY, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, scaled, to_array
from dpdist.digests import compute_digest
from dpdist.errors import InvalidInput
from dpdist.measurement.consistency.table_fitting import fit_answers
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.operators import Matrix
from dpdist.pipeline.histogram import count, digested_files
from dpdist.pipeline.release_charge import BoundRecords
from dpdist.planner.answer_rounding import RoundAnswers
from dpdist.planner.certificate import possible_counts
from dpdist.planner.measurement_plan import skips_cell_estimate
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan_as_charged
from dpdist.privacy import keys
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.joint_estimate import NoisyMeasurement
from dpdist.reconstruction.measured_space import NotMeasured
from dpdist.reconstruction.nonnegative_cells import RULE, effect_of
from dpdist.reconstruction.pooling.independent_terms import IndependentTerm, independent_terms
from dpdist.reconstruction.pooling.pooled_measurement import check_pooled_memory, measured_parts, pool
from dpdist.reconstruction.pooling.pooled_slabs import HELD_BYTES, SlabPool, StoredTable, is_read_by_slabs, pools_by_slabs
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.runtime.stored_vectors import StoredVector, StoreWorkspace
from dpdist.spec import Job
from dpdist.storage.array_store import Store, StoredArray
from dpdist.workloads import Workload

Companion = tuple[ReleasePlan, StoredArray]
"""Another release of the same records: its plan and its measurement."""


def companions(context: Context, planned: ReleasePlan) -> tuple[Companion, ...]:
    """The releases that a planned one is to be consistent with. They are read, never charged or drawn again.

    Raises: InvalidInput when one is not committed, was measured from other records, with the other kind of noise, or has no linear
        measurement; StoreError when its measurement is not the one the ledger knows.
    """
    other_jobs, noise_kind = planned.job.outputs.companions, planned.noise.kind
    if not other_jobs:
        return ()
    records = digested_files(context, planned.job.source).digest
    companion_releases = tuple(_companion(context, other_release, records) for other_release in other_jobs)
    for other_release, _ in companion_releases:
        if other_release.noise.kind != noise_kind:
            raise InvalidInput(
                f"release {other_release.job.release!r} has {other_release.noise.kind.label} noise and this one {noise_kind.label} noise, "
                f"which cannot be combined: set 'noise: {other_release.noise.kind}'"
            )
    if not planned.measurement.allows_estimate(planned.workload.shape[1], jointly=True):
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


def _answer_pooled(
    context: Context,
    planned: ReleasePlan,
    measurements: Sequence[tuple[ReleasePlan, Vector]],
    requested_columns: AnswerRequest,
    seed: int,
) -> Answers:
    """Answers from several measurements of tables, fitted where that is asked for."""
    workload, options, scale = planned.workload, planned.job.outputs.postprocess, float(planned.scale)
    estimates = _pool(workload, *_measured_tables(workload, measurements), context.engine.own_bytes)()
    answers, variances = (np.concatenate(column) for column in zip(*estimates, strict=True))
    errors = np.sqrt(variances) / scale
    half = errors * planned.noise.half_width_95(0.0 if planned.noise.kind is Kind.GAUSSIAN else 1.0)
    if not options.non_negative:
        return requested_columns.write(answers / scale, errors, half)
    unbiased_columns = replace(requested_columns, folder=f"{requested_columns.folder}/unbiased")
    unbiased = unbiased_columns.write(answers / scale, errors, half)
    context.progress("answer", FITTING)
    return fit_answers(workload, unbiased, possible_counts(planned.job).records, None, requested_columns, seed)


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


def answer(
    context: Context,
    planned: ReleasePlan,
    measured: StoredArray,
    companion_releases: tuple[Companion, ...] = (),
    round_answers: RoundAnswers | None = None,
) -> Answers:
    """Every answer and its standard error, as whole numbers where these are asked for.

    Args:
        companion_releases: releases whose measurements join the estimate.
        round_answers: makes whole numbers of them.
    """
    processing = compute_digest("post-processing", _post_processing_settings(planned, companion_releases))[:16]
    folder = f"answers/{planned.job.release}-{measured.digest[:16]}-{processing}"
    if round_answers is None:
        return _unrounded_answers(context, planned, measured, companion_releases, AnswerRequest(folder))
    request = AnswerRequest(f"{folder}/unrounded")
    unrounded = _unrounded_answers(context, planned, measured, companion_releases, request)
    return round_answers(unrounded, measured.digest, f"{folder}/whole")


def _post_processing_settings(planned: ReleasePlan, companion_releases: tuple[Companion, ...]) -> dict[str, Any]:
    """What answers depend on beside the measurement."""
    options = planned.job.outputs.postprocess
    settings: dict[str, Any] = {"asked": options, "others": [stored.digest for _, stored in companion_releases]}
    if options.non_negative:
        settings["rule"] = RULE
    if planned.measurement.postprocessing is not None:
        settings["done"] = planned.measurement.postprocessing
    return settings


def _unrounded_answers(
    context: Context,
    planned: ReleasePlan,
    measured: StoredArray,
    companion_releases: tuple[Companion, ...],
    requested_columns: AnswerRequest,
) -> Answers:
    """Every answer and its standard error, as they are computed."""
    options, known_blocks = planned.job.outputs.postprocess, planned.job.outputs.known_blocks
    settings = _post_processing_settings(planned, companion_releases)
    cached_answers = _load_cached_answers(context, requested_columns)
    if cached_answers is not None:
        return cached_answers

    def report_progress(completed: int, total: int) -> None:
        context.progress("answer", f"{completed} of {total} blocks")

    measurement, values = planned.cumulative_measurement(context, measured)
    workload = planned.workload
    seed = int(compute_digest("simulation", {**settings, "measurement": measured.digest})[:8], 16)
    with StoreWorkspace(context.store, context.engine).scratch() as work:
        requested_columns = replace(requested_columns, work=work, report_progress=report_progress)
        if companion_releases and not planned.measurement.allows_estimate(workload.shape[1], jointly=True):
            others = [(plan, StoredVector(context.store, stored)) for plan, stored in companion_releases]
            return _answer_pooled(context, planned, [(planned, values), *others], requested_columns, seed)
        z, noise = scale_to_records(planned, values)
        if not companion_releases and skips_cell_estimate(measurement, workload, options):
            return _answer_without_estimate(context, planned, measurement, z, noise, requested_columns, seed)
        if not (companion_releases or options.known or options.non_negative):
            return measurement.answers(workload, z, noise, requested_columns)
        joined = [
            NoisyMeasurement(plan.measurement, *scale_to_records(plan, StoredVector(context.store, stored)))
            for plan, stored in companion_releases
        ]
        estimate = measurement.estimate(workload, z, noise, joined, work)
        if options.known:
            estimate = estimate.condition_on_counts(
                known_blocks, np.array([known_count.count for known_count in options.known])
            )
        if options.non_negative:
            context.progress("answer", FITTING)
            estimate = estimate.fit_non_negative(work, requested_columns.cells, seed)
        return estimate.answers(requested_columns)


def _answer_without_estimate(
    context: Context,
    planned: ReleasePlan,
    measurement: IntegerMeasurement,
    z: Vector,
    noise: Noise,
    requested_columns: AnswerRequest,
    seed: int,
) -> Answers:
    """Answers that are read from the measurement, and then held to the number of records and fitted, without an estimate of the cells."""
    workload, options = planned.workload, planned.job.outputs.postprocess
    records = possible_counts(planned.job).records
    unbiased_columns = AnswerRequest(f"{requested_columns.folder}/unbiased")

    def read_answers(measured: Vector, records: float | None, inner: Workspace) -> Answers:
        unbiased_answers = measurement.answers(workload, measured, noise, replace(unbiased_columns, work=inner))
        return (
            unbiased_answers
            if records is None
            else measurement.answers_given_total(workload, unbiased_answers, measured, noise, records)
        )

    def simulate(true: Matrix, state: np.random.RandomState) -> Matrix:
        drawn = np.rint(noise.kind.simulated(state, (measurement.rows,)) * noise.deviation)
        return true + to_array(read_answers(ArrayVector(drawn), None if records is None else 0.0, MEMORY).answer)

    unbiased = read_answers(z, records, requested_columns.work)
    if not options.non_negative:
        columns = [to_array(column) for column in (unbiased.answer, unbiased.error, unbiased.half_width)]
        return requested_columns.write(columns[0], columns[1], columns[2])
    context.progress("answer", FITTING)
    simulate_or_none = None if measurement.allows_estimate(workload.shape[1], jointly=False) else simulate
    return fit_answers(workload, unbiased, records, simulate_or_none, requested_columns, seed)


FITTING = "fitting non-negative answers, and simulating what that does to the errors"


def _load_cached_answers(context: Context, requested_columns: AnswerRequest) -> Answers | None:
    """Answers that were computed before, None if they were not."""
    store = context.store
    if not all(store.exists(name) for name in requested_columns.names):
        return None
    answer, error, half_width = (StoredVector(store, store.open(name)) for name in requested_columns.names)
    effect = effect_of(store.open(requested_columns.cells).facts) if store.exists(requested_columns.cells) else None
    return Answers(answer, error, half_width, effect=effect, modelled=_bounds(store, requested_columns))


def _bounds(store: Store, requested_columns: AnswerRequest) -> dict[tuple[int, ...], float]:
    """The bounds of tables that come from a model."""
    if not store.exists(requested_columns.bounds):
        return {}
    stored_bounds = store.open(requested_columns.bounds)
    values = to_array(StoredVector(store, stored_bounds)).tolist()
    return {tuple(axes): value for axes, value in zip(stored_bounds.facts["tables"], values, strict=True)}


def scale_to_records(planned: ReleasePlan, measured: Vector) -> tuple[Vector, Noise]:
    """What was measured and the noise in it, as if whole records had been, or amounts: divided by the shares that are one of them."""
    shares_per_record = planned.scale
    return (measured if shares_per_record == 1 else scaled(measured, 1.0 / shares_per_record)), planned.noise_in_records
