"""Noisy values to answers, standard errors and intervals, as the measurement that they are values of reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpdist.arrays.array_workspace import MEMORY, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, scaled, to_array
from dpdist.digests import compute_digest
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.operators import Matrix
from dpdist.planner.answer_rounding import RoundAnswers
from dpdist.planner.certificate import possible_counts
from dpdist.planner.measurement_plan import skips_cell_estimate
from dpdist.planner.release_joining import Companion, release_joining
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_fitting import AnswerFitting, Simulation, answer_fitting
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, FitEffect
from dpdist.reconstruction.least_squares import Estimate
from dpdist.runtime.context import Context
from dpdist.runtime.stored_vectors import StoredVector, StoreWorkspace
from dpdist.storage.array_store import Store, StoredArray


def answer(
    context: Context,
    planned: ReleasePlan,
    measured: StoredArray,
    companion_releases: Sequence[Companion] = (),
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


def _post_processing_settings(planned: ReleasePlan, companion_releases: Sequence[Companion]) -> dict[str, Any]:
    """What answers depend on beside the measurement."""
    options = planned.job.outputs.postprocess
    settings: dict[str, Any] = {"asked": options, "others": [stored.digest for _, stored in companion_releases]}
    fitting = answer_fitting(options.non_negative)
    if fitting is not None:
        settings["rule"] = fitting.rule
    if planned.measurement.postprocessing is not None:
        settings["done"] = planned.measurement.postprocessing
    return settings


def _unrounded_answers(
    context: Context,
    planned: ReleasePlan,
    measured: StoredArray,
    companion_releases: Sequence[Companion],
    requested_columns: AnswerRequest,
) -> Answers:
    """Every answer and its standard error, as they are computed."""
    options = planned.job.outputs.postprocess
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
        joining = release_joining(planned.job)
        if joining is not None:
            return joining.answer(context, planned, values, companion_releases, requested_columns, seed)
        z, noise = scale_to_records(planned, values)
        if skips_cell_estimate(measurement, workload, options):
            return _answer_without_estimate(context, planned, measurement, z, noise, requested_columns, seed)
        if not (options.known or options.non_negative):
            return measurement.answers(workload, z, noise, requested_columns)
        estimate = measurement.estimate(workload, z, noise, work)
        return answer_from_estimate(context, planned, estimate, requested_columns, seed)


def answer_from_estimate(
    context: Context, planned: ReleasePlan, estimate: Estimate, requested_columns: AnswerRequest, seed: int
) -> Answers:
    """Answers from an estimate of all cells, which is held to known counts and fitted where that is asked for."""
    options = planned.job.outputs.postprocess
    if options.known:
        counts = np.array([known_count.count for known_count in options.known])
        estimate = estimate.condition_on_counts(planned.job.outputs.known_blocks, counts)
    fitting = answer_fitting(options.non_negative)
    if fitting is None:
        return estimate.answers(requested_columns)
    context.progress("answer", FITTING)
    return fitting.fit_cells(estimate, requested_columns, seed)


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
    workload, fitting = planned.workload, answer_fitting(planned.job.outputs.postprocess.non_negative)
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
    if fitting is None:
        columns = [to_array(column) for column in (unbiased.answer, unbiased.error, unbiased.half_width)]
        return requested_columns.write(columns[0], columns[1], columns[2])
    simulate_or_none = None if measurement.allows_estimate(workload.shape[1], jointly=False) else simulate
    return fit_unbiased_answers(context, planned, fitting, unbiased, simulate_or_none, requested_columns, seed)


def fit_unbiased_answers(
    context: Context,
    planned: ReleasePlan,
    fitting: AnswerFitting,
    unbiased: Answers,
    simulate: Simulation | None,
    requested_columns: AnswerRequest,
    seed: int,
) -> Answers:
    """Non-negative answers as close as possible to unbiased ones, without an estimate of the cells.

    Args:
        simulate: as ``AnswerFitting.fit_answers`` takes it.
    """
    context.progress("answer", FITTING)
    records = possible_counts(planned.job).records
    return fitting.fit_answers(planned.workload, unbiased, records, simulate, requested_columns, seed)


FITTING = "fitting non-negative answers, and simulating what that does to the errors"


def _load_cached_answers(context: Context, requested_columns: AnswerRequest) -> Answers | None:
    """Answers that were computed before, None if they were not."""
    store = context.store
    if not all(store.exists(name) for name in requested_columns.names):
        return None
    answer, error, half_width = (StoredVector(store, store.open(name)) for name in requested_columns.names)
    effect = (
        FitEffect.from_facts(store.open(requested_columns.cells).facts) if store.exists(requested_columns.cells) else None
    )
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
