"""A measurement to answers, standard errors and intervals: read by the grid that was measured."""

from __future__ import annotations

import numpy as np

from dpdist.grids.base import Answers, Measured, Wanted
from dpdist.identities import digest_of
from dpdist.release.companions import Companion
from dpdist.release.context import Context
from dpdist.release.plan import Plan
from dpdist.release.streams import steps_so_far
from dpdist.release.workspace import StoredVector, StoreWorkspace
from dpdist.store import StoredArray


def answer(context: Context, planned: Plan, measured: StoredArray, others: tuple[Companion, ...] = ()) -> Answers:
    """Every answer and its standard error.

    Args:
        others: releases whose measurements join the estimate.
    """
    asked = {"asked": planned.spec.postprocess, "others": [stored.digest for _, stored in others]}
    processing = digest_of("post-processing", asked)
    options = planned.spec.postprocess
    wanted = Wanted(f"answers/{planned.spec.release}-{measured.digest[:16]}-{processing[:16]}", options.integer)
    if all(context.store.exists(name) for name in wanted.names):
        return Answers(*(StoredVector(context.store, context.store.open(name)) for name in wanted.names))

    def tell(done: int, total: int) -> None:
        context.progress("answer", f"{done} of {total} blocks")

    grid, workload, noise = planned.grid, planned.workload, planned.noise
    with StoreWorkspace(context.store, context.engine).scratch() as work:
        if planned.spec.stream is not None:
            begun, values = steps_so_far(context, planned, measured)
            return begun.reader(workload).answers(values, noise, wanted, work, tell)
        z = StoredVector(context.store, measured)
        if not (others or options.known or options.non_negative):
            return grid.reader(workload).answers(z, noise, wanted, work, tell)
        joined = [Measured(plan.grid, StoredVector(context.store, stored), plan.noise) for plan, stored in others]
        estimate = grid.estimate(workload, z, noise, joined, work)
        if options.known:
            estimate = estimate.given(planned.spec.known, np.array([known.count for known in options.known]))
        if options.non_negative:
            context.progress("answer", "fitting non-negative cells")
            estimate = estimate.fitted(work)
        return estimate.answers(wanted, work, tell)
