"""A measurement to answers, standard errors and intervals: read by the grid that was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpdist.arrays.array_workspace import MEMORY, Workspace
from dpdist.arrays.lazy_vector import Held, Vector, held, scaled
from dpdist.digests import digest_of
from dpdist.errors import InvalidInput
from dpdist.measurement.consistency.table_fitting import fitted_answers
from dpdist.measurement.integer_measurement import Grid, Measured
from dpdist.operators import Matrix
from dpdist.pipeline.continual_release import BoundRecords, course_of
from dpdist.pipeline.histogram import count, files_of
from dpdist.planner.certificate import possible
from dpdist.planner.release_plan import Plan, by_answers, plan
from dpdist.privacy import keys
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import Answers, Wanted, stored_answers
from dpdist.reconstruction.nonnegative_cells import RULE, effect_of
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.runtime.stored_vectors import StoredVector, StoreWorkspace
from dpdist.spec import Job
from dpdist.storage.array_store import Store, StoredArray

Companion = tuple[Plan, StoredArray]
"""Another release of the same records: its plan and its measurement."""


def companions(context: Context, planned: Plan) -> tuple[Companion, ...]:
    """The releases that a planned one is to be consistent with. They are read, never charged or drawn again.

    Raises: InvalidInput when one is not committed, was measured from other records, with the other kind of noise, or has no linear
        measurement; StoreError when its measurement is not the one the ledger knows.
    """
    others, own = planned.job.outputs.companions, planned.noise.kind
    if not others:
        return ()
    records = files_of(context, planned.job.source).digest
    found = tuple(_companion(context, other, records) for other in others)
    for other, _ in found:
        if other.noise.kind != own:
            raise InvalidInput(
                f"release {other.job.release!r} has {other.noise.kind.label} noise and this one {own.label} noise, which cannot be "
                f"combined: set 'noise: {other.noise.kind}'"
            )
    return found


def _companion(context: Context, other: Job, records: str) -> Companion:
    """A release of the same records. Raises: as ``companions``."""
    receipt = context.ledger.receipt(other.release)
    if receipt is None or receipt.state != "committed":
        raise InvalidInput(f"release {other.release!r} is not finished; publish it first, then combine")
    planned = course_of(plan(context, other)).as_charged(context)
    if planned.grid.row_blocks() is None:
        raise InvalidInput(
            f"release {other.release!r} of mechanism {planned.strategy.name!r} cannot be combined with others; leave it "
            "out of 'consistent_with'"
        )
    stored = committed_measurement(context.store, receipt)
    if stored.facts["grid"] != planned.grid.digest or stored.facts["scale"] != planned.noise.scale:
        raise InvalidInput(f"the spec of {other.release!r} was changed after its release; give the one it was made with")
    counts, _ = count(context, other.source, other.measured, planned.layout)
    files = files_of(context, other.source)
    bound = BoundRecords(keys.load(context.home), files, counts.content_digest)
    same = receipt.is_of(bound.records(other.guarantee, other.release))
    if same is None:
        raise InvalidInput(
            f"release {other.release!r} was charged under another root key, so its ledger row does not tell from which records it was "
            "made; publish it under a new id, then combine"
        )
    if files.digest != records or not same:
        raise InvalidInput(
            f"release {other.release!r} was made from other records; only releases of the same can be combined: leave it out "
            "of 'consistent_with'"
        )
    return planned, stored


def answer(context: Context, planned: Plan, measured: StoredArray, others: tuple[Companion, ...] = ()) -> Answers:
    """Every answer and its standard error.

    Args:
        others: releases whose measurements join the estimate.
    """
    options, known = planned.job.outputs.postprocess, planned.job.outputs.known
    asked = {"asked": options, "others": [stored.digest for _, stored in others]}
    if options.non_negative:
        asked["rule"] = RULE
    if planned.grid.done is not None:
        asked["done"] = planned.grid.done
    processing = digest_of("post-processing", asked)[:16]
    wanted = Wanted(f"answers/{planned.job.release}-{measured.digest[:16]}-{processing}", options.integer)
    found = _kept(context, wanted)
    if found is not None:
        return found

    def tell(done: int, total: int) -> None:
        context.progress("answer", f"{done} of {total} blocks")

    grid, values = course_of(planned).measured(context, measured)
    workload = planned.workload
    seed = int(digest_of("simulation", {**asked, "measurement": measured.digest})[:8], 16)
    with StoreWorkspace(context.store, context.engine).scratch() as work:
        z, noise = in_records(planned, values)
        if not others and by_answers(grid, workload, options):
            return _by_answers(context, planned, grid, (z, noise), wanted, seed, work)
        if not (others or options.known or options.non_negative):
            return grid.answers(workload, z, noise, wanted, work, tell)
        joined = [Measured(plan.grid, *in_records(plan, StoredVector(context.store, stored))) for plan, stored in others]
        estimate = grid.estimate(workload, z, noise, joined, work)
        if options.known:
            estimate = estimate.given(known, np.array([each.count for each in options.known]))
        if options.non_negative:
            context.progress("answer", FITTING)
            estimate = estimate.fitted(work, wanted.cells, seed)
        return estimate.answers(wanted, work, tell)


def _by_answers(
    context: Context, planned: Plan, grid: Grid, given: tuple[Vector, Noise], wanted: Wanted, seed: int, work: Workspace
) -> Answers:
    """Answers that are read from the measurement, and then held to the number of records and fitted, without an estimate of the cells."""
    workload, options, noise = planned.workload, planned.job.outputs.postprocess, given[1]
    records = possible(planned.job).records
    plain = replace(wanted, folder=f"{wanted.folder}/unbiased", integer=False)

    def read(measured: Vector, records: float | None, inner: Workspace) -> Answers:
        found = grid.answers(workload, measured, noise, plain, inner)
        return found if records is None else grid.given_total(workload, found, measured, noise, records)

    def simulate(true: Matrix, state: np.random.RandomState) -> Matrix:
        drawn = np.rint(noise.kind.simulated(state, (grid.rows,)) * noise.deviation)
        return true + held(read(Held(drawn), None if records is None else 0.0, MEMORY).answer)

    unbiased = read(given[0], records, work)
    if not options.non_negative:
        columns = [held(each) for each in (unbiased.answer, unbiased.error, unbiased.half_width)]
        return stored_answers(columns[0], columns[1], columns[2], wanted, work)
    context.progress("answer", FITTING)
    shown = None if grid.estimates(workload.shape[1], jointly=False) else simulate
    return fitted_answers(workload, unbiased, records, shown, wanted, seed, work)


FITTING = "fitting non-negative answers, and simulating what that does to the errors"


def _kept(context: Context, wanted: Wanted) -> Answers | None:
    """Answers that were computed before, None if they were not."""
    store = context.store
    if not all(store.exists(name) for name in wanted.names):
        return None
    answer, error, half_width = (StoredVector(store, store.open(name)) for name in wanted.names)
    effect = effect_of(store.open(wanted.cells).facts) if store.exists(wanted.cells) else None
    return Answers(answer, error, half_width, effect=effect, modelled=_bounds(store, wanted))


def _bounds(store: Store, wanted: Wanted) -> dict[tuple[int, ...], float]:
    """The bounds of tables that come from a model."""
    if not store.exists(wanted.bounds):
        return {}
    kept = store.open(wanted.bounds)
    values = held(StoredVector(store, kept)).tolist()
    return {tuple(axes): value for axes, value in zip(kept.facts["tables"], values, strict=True)}


def in_records(planned: Plan, measured: Vector) -> tuple[Vector, Noise]:
    """What was measured and the noise in it, as if whole records had been, or amounts: divided by the shares that are one of them."""
    shares = planned.scale
    return (measured if shares == 1 else scaled(measured, 1.0 / shares)), planned.noise_in_records
