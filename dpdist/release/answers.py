"""A measurement to answers, standard errors and intervals: read by the grid that was measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.arrays.vector import Vector, scaled
from dpdist.grids.answers import Answers, Wanted
from dpdist.grids.base import Measured
from dpdist.grids.non_negative import RULE, effect_of
from dpdist.identities import digest_of
from dpdist.machine.store import StoredArray
from dpdist.privacy.noise import Noise, NoiseOfShares
from dpdist.release.companions import Companion
from dpdist.release.context import Context
from dpdist.release.plan import Plan
from dpdist.release.streams import course_of
from dpdist.release.workspace import StoredVector, StoreWorkspace


def answer(context: Context, planned: Plan, measured: StoredArray, others: tuple[Companion, ...] = ()) -> Answers:
    """Every answer and its standard error.

    Args:
        others: releases whose measurements join the estimate.
    """
    options, known = planned.job.outputs.postprocess, planned.job.outputs.known
    asked = {"asked": options, "others": [stored.digest for _, stored in others]}
    if options.non_negative:
        asked["rule"] = RULE
    wanted = _wanted(planned, measured, asked)
    found = _kept(context, wanted)
    if found is not None:
        return found

    def tell(done: int, total: int) -> None:
        context.progress("answer", f"{done} of {total} blocks")

    grid, values = course_of(planned).measured(context, measured)
    workload = planned.workload
    with StoreWorkspace(context.store, context.engine).scratch() as work:
        z, noise = _in_records(planned, values)
        if not (others or options.known or options.non_negative):
            return grid.reader(workload).answers(z, noise, wanted, work, tell)
        joined = [Measured(plan.grid, *_in_records(plan, StoredVector(context.store, stored))) for plan, stored in others]
        estimate = grid.estimate(workload, z, noise, joined, work)
        if options.known:
            estimate = estimate.given(known, np.array([each.count for each in options.known]))
        if options.non_negative:
            context.progress("answer", "fitting non-negative cells, and simulating what that does to the errors")
            seed = int(digest_of("simulation", {**asked, "measurement": measured.digest})[:8], 16)
            estimate = estimate.fitted(work, wanted.cells, seed)
        return estimate.answers(wanted, work, tell)


def _wanted(planned: Plan, measured: StoredArray, asked: dict[str, Any]) -> Wanted:
    """Where the answers to a measurement are kept, by what is done to them."""
    processing = digest_of("post-processing", asked)
    return Wanted(
        f"answers/{planned.job.release}-{measured.digest[:16]}-{processing[:16]}", planned.job.outputs.postprocess.integer
    )


def _kept(context: Context, wanted: Wanted) -> Answers | None:
    """Answers that were computed before, None if they were not."""
    store = context.store
    if not all(store.exists(name) for name in wanted.names):
        return None
    answer, error, half_width = (StoredVector(store, store.open(name)) for name in wanted.names)
    effect = effect_of(store.open(wanted.cells).facts) if store.exists(wanted.cells) else None
    return Answers(answer, error, half_width, effect=effect)


def _in_records(planned: Plan, measured: Vector) -> tuple[Vector, Noise]:
    """What was measured and the noise in it, as if whole records had been, or amounts: divided by the shares that are one of them."""
    shares, noise = planned.scale, planned.noise
    if shares == 1:
        return measured, noise
    return scaled(measured, 1.0 / shares), NoiseOfShares(noise.kind, noise.scale, shares)
