"""Planning: what mechanisms ask of store and engine while they find a strategy, and what no strategy can beat, with its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.engine import Engine
from dpdist.errors import OutOfMemory, StoreError
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.comparison import alternatives, compared_mechanisms
from dpdist.mechanisms.mechanism import DENSE_CELLS, Request
from dpdist.mechanisms.mechanism_registry import AUTO, mechanism_of
from dpdist.mechanisms.strategy_cache import name_strategy
from dpdist.operators import Matrix
from dpdist.runtime.context import Context, Progress, ignore_progress
from dpdist.runtime.gram_computation import gram as gram_of_workload
from dpdist.runtime.stored_vectors import KeepingWorkspace, StoreWorkspace
from dpdist.spec import Job
from dpdist.storage.array_store import Store, StoredArray
from dpdist.strategies import laplace_bound
from dpdist.strategies.dense.adaptive_mechanism import (
    design_strategy,
    eigen_queries,
    group_weights,
    merge_group_weights,
    separation,
)
from dpdist.strategies.dual_certificates import DualWeights
from dpdist.strategies.lower_bounds import CELLS, dual_weights, is_bounded_in_closed_form, tables_bound
from dpdist.strategies.strategy import UNIT_VARIANCE, Step, Strategy, ignore_step
from dpdist.strategies.tables.product_bound import bound_bytes, bound_steps, product_weights
from dpdist.workloads import Gram, Workload


def _store_eigen_queries(store: Store, engine: Engine, gram: Matrix, name: str) -> StoredArray:
    """Eigen-queries as rows; facts: their eigenvalues and the singular value bound."""
    try:
        return store.open(name)
    except StoreError:
        queries, costs, bound = engine.on_largest_worker(eigen_queries, gram)
        return store.put_if_absent(name, queries, {"costs": costs.tolist(), "bound": bound})


def _solve_group(
    store: Store, queries: StoredArray, name: str, groups: list[Matrix], tolerance: float, number: int
) -> StoredArray:
    """Weights, loads and cost of one group, in a row."""
    group_name = f"{name}/group-{number}"
    if store.exists(group_name):
        return store.open(group_name)
    group = groups[number]
    low, high = int(group.min()), int(group.max()) + 1
    rows = store.read_rows(queries, low, high)[group - low]
    costs = np.array(queries.facts["costs"])[group]
    weight, load, cost = group_weights(np.ascontiguousarray(np.square(rows.T)), costs, tolerance)
    return store.put_if_absent(group_name, np.concatenate([weight, load, [cost]]), {"queries": int(group.size)})


_T = TypeVar("_T")

LONG_SECONDS = 30.0
"""Of the nominal processor, from which on a plan says how long it takes before it starts."""
MEMORY_CURE = "set 'mechanism: residual' or 'limits', give the workers more memory, or ask for fewer attributes together"


def plan_strategy(context: Context, job: Job, name: str, norm: Norm) -> Strategy:
    """One mechanism's strategy for the queries, with its cost. Raises: InvalidInput when it cannot answer; OutOfMemory."""
    job_workload, mechanism = job.workload, mechanism_of(name)
    mechanism.check(job_workload.queries)
    request = Request(
        job_workload.queries,
        norm,
        job_workload.tolerance,
        worst=job_workload.objective == "worst" and mechanism.worst,
        setting=job.setting,
        former_workloads=job.guarantee.release_mode.horizons,
        group_size=job_workload.eigen.group_size,
        principal=job_workload.eigen.principal,
    )
    effort, work = mechanism.effort(job_workload.queries), Planning(context)
    if effort.nominal_seconds > LONG_SECONDS:
        message = f"optimising {name!r} needs {effort.memory_bytes / 2**30:.2f} GiB and up to about {effort.seconds():.0f} s"
        faster_names = ", ".join(repr(faster_name) for faster_name in _faster_mechanisms(job, name, norm))
        message += f"; set 'mechanism: auto', which compares {faster_names}, for less" if faster_names else ""
        work.show_message(f"{message}; a strategy solved before is read back")
    return mechanism.plan(request, work)


def _faster_mechanisms(job: Job, name: str, norm: Norm) -> list[str]:
    """What ``auto`` would compare in less time than a mechanism takes that was asked for by its name, and that it leaves out."""
    job_workload = job.workload
    auto_names = compared_mechanisms(AUTO, norm, job_workload.queries, job_workload.limits, job.setting)
    if job_workload.mechanism == AUTO or name in auto_names:
        return []
    seconds = {
        mechanism_name: mechanism_of(mechanism_name).effort(job_workload.queries).nominal_seconds
        for mechanism_name in (name, *auto_names)
    }
    return [mechanism_name for mechanism_name in auto_names if seconds[mechanism_name] < seconds[name]]


@dataclass(frozen=True)
class Planning:
    """What mechanisms may ask of a release's store and engine (``dpdist.mechanisms.mechanism.PlanWorkspace``)."""

    context: Context

    def cached_result(self, name: str) -> tuple[Matrix, Mapping[str, Any]] | None:
        """The stored array of a name and its facts, None if there is none."""
        store = self.context.store
        if not store.exists(name):
            return None
        stored = store.open(name)
        return store.read_array(stored), stored.facts

    def get_or_compute(
        self, name: str, find: Callable[[], tuple[Matrix, Mapping[str, Any]]]
    ) -> tuple[Matrix, Mapping[str, Any]]:
        """The stored array of a name and its facts, found and stored if there is none; the first one stored wins."""
        stored_values = self.cached_result(name)
        if stored_values is None:
            values, facts = find()
            stored = self.context.store.put_if_absent(name, values, dict(facts))
            stored_values = self.context.store.read_array(stored), stored.facts
        return stored_values

    def gram(self, workload: Workload) -> Matrix:
        """W'W: closed form where there is one, rows summed block by block on the engine."""
        context = self.context
        return gram_of_workload(
            context.store, context.engine, workload, report_progress=self.progress_callback("parts of W'W")
        )

    def run_on_largest_worker(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """One computation on the largest worker."""
        return self.context.engine.on_largest_worker(function, *arguments, needed_bytes=needed_bytes)

    def check_memory(self, computation: str, needed_bytes: int, instead_of: Workload | None = None) -> None:
        """Raises: OutOfMemory, with what answers a workload ``instead_of`` an optimisation that does not fit."""
        limit = self.context.engine.largest_worker_bytes
        if needed_bytes <= limit:
            return
        cure = MEMORY_CURE
        if instead_of is not None:
            mechanism_names = alternatives(instead_of, limit)
            advised = f"set 'mechanism' to {mechanism_names}" if mechanism_names else "ask for fewer attributes together"
            cure = f"start a worker with more memory, merge values, or {advised}"
        raise OutOfMemory(computation, needed_bytes, limit, cure)

    def show_message(self, message: str) -> None:
        """Show how planning goes."""
        self.context.progress("plan", message)

    def step_callback(self) -> _Watcher:
        """A callback that shows steps."""
        return _Watcher(self.context.store, "", self.context.progress)

    def resume_solve(self, name: str, solve: Callable[..., _T], problem: Workload | Gram, needed_bytes: int) -> _T:
        """The solve on the largest worker, from where the last one stopped: also when the worker that ran it died."""
        watcher = _Watcher(self.context.store, _checkpoint(name), self.context.progress)
        return self.run_on_largest_worker(partial(_resume_solve, watcher, solve), problem, needed_bytes=needed_bytes)

    def forget(self, name: str) -> None:
        """Delete a checkpoint."""
        self.context.store.delete(_checkpoint(name))

    def solve_by_groups(self, gram: Matrix, name: str, *, group_size: int, tolerance: float) -> Strategy:
        """AM's strategy, its groups solved by the workers; ``name``: where they leave what they find until the strategy is there."""
        store, engine = self.context.store, self.context.engine
        queries = _store_eigen_queries(store, engine, gram, f"{name}/queries")
        groups = separation(np.array(queries.facts["costs"]), group_size)
        work = partial(_solve_group, store, queries, name, groups, tolerance)
        report_progress = self.progress_callback("groups of eigen-queries")
        solved_groups = engine.map(work, list(range(len(groups))), report_progress=report_progress)
        rows = ((store.read_array(solved_group), solved_group.facts["queries"]) for solved_group in solved_groups)
        solved = [(values[:size], values[size:-1], float(values[-1])) for values, size in rows]
        weights = merge_group_weights(groups, solved, tolerance, ignore_step)
        strategy = self.run_on_largest_worker(
            design_strategy, store.read_array(queries), weights, gram, float(queries.facts["bound"])
        )
        store.delete(name)
        return strategy

    def arrays(self, *, stored: bool) -> Workspace:
        """The store and the engine, or memory with what has a name kept in the store."""
        store = self.context.store
        return StoreWorkspace(store, self.context.engine) if stored else KeepingWorkspace(store)

    def progress_callback(self, step_name: str) -> ProgressCallback:
        """A callback that shows progress."""
        return lambda completed, total: self.show_message(f"{completed} of {total} {step_name}")


@dataclass(frozen=True)
class _Watcher:
    """Tells how a solve goes and keeps its last dual weights. On another machine it only keeps the weights."""

    store: Store
    checkpoint: str
    progress: Progress

    def __call__(self, step: Step) -> None:
        proven = f"certified gap {step.gap:.1e}" if math.isfinite(step.gap) else "nothing certified yet"
        self.progress("plan", f"iteration {step.iteration}: cost {step.objective:.6g}, {proven}")
        if step.checkpoint is not None and self.checkpoint:
            self.store.write_document(self.checkpoint, {"dual": step.checkpoint.tolist()})

    def __reduce__(self) -> tuple[type[_Watcher], tuple[Store, str, Progress]]:
        return _Watcher, (self.store, self.checkpoint, ignore_progress)


def _checkpoint(name: str) -> str:
    return f"{name}-checkpoint.json"


def _resume_solve(watcher: _Watcher, solve: Callable[..., _T], problem: Any) -> _T:
    """The solve from the dual weights of an interrupted one, if there are any."""
    try:
        start = np.array(watcher.store.read_document(watcher.checkpoint)["dual"])
    except StoreError:
        start = None
    return solve(problem, on_step=watcher, start=start)


NEAR = 0.01
"""Where an optimum is certified this closely no other bound is computed."""
BOUND_COPIES = 6
"""Of the gram, whose eigenvalues bound what strategies with Laplace noise can reach."""


def lower_bound(context: Context, workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> float | None:
    """What no strategy can beat, beside what the strategies know themselves: under Laplace noise of few cells and of tables that share no
    attribute, and of unions of products over several attributes. Under Laplace noise every cost is at least twice that of Gaussian noise.
    """
    bounds = [tables_bound(workload)] if norm == "l1" else []
    if _needs_cell_bound(workload, norm):
        # a run plans more than once
        work, name = Planning(context), name_strategy(workload, "laplace", "bounds")
        bounds += work.get_or_compute(name, lambda: (np.array([laplace_bound(Gram(work.gram(workload)))]), {}))[0].tolist()
    if _needs_product_bound(workload, norm, compared):
        bounds.append(UNIT_VARIANCE[norm] * _product_weights(context, workload)[0])
    return max((bound for bound in bounds if bound > 0), default=None)


def lower_bound_bytes(workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> int:
    """What ``lower_bound`` holds at once."""
    over_cells = BOUND_COPIES * 8 * workload.shape[1] ** 2 if _needs_cell_bound(workload, norm) else 0
    return max(over_cells, bound_bytes(workload) if _needs_product_bound(workload, norm, compared) else 0)


def _needs_cell_bound(workload: Workload, norm: Norm) -> bool:
    return norm == "l1" and workload.shape[1] <= DENSE_CELLS and not _in_closed_form(workload, norm)


def _in_closed_form(workload: Workload, norm: Norm) -> bool:
    """Whether what is said of marginals is as much as all cells would say, or all that can be said beyond so many."""
    return norm == "l1" and workload.shape[1] > CELLS and is_bounded_in_closed_form(workload)


def _needs_product_bound(workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> bool:
    certified = norm == "l2" and any(strategy.gap <= NEAR for strategy in compared)
    is_certified_bound = certified or _in_closed_form(workload, norm)
    return (
        not is_certified_bound
        and len(workload.domain.shape) > 1
        and workload.kind.is_separable
        and not workload.kind.is_long
    )


def _product_weights(context: Context, workload: Workload) -> tuple[float, dict[int, Matrix]]:
    """``product_weights``, computed once."""
    if not bound_steps(workload):
        return 0.0, {}
    work = Planning(context)

    def find() -> tuple[Matrix, dict[str, Any]]:
        work.show_message("bounding the optimum")
        bound, weights = work.run_on_largest_worker(product_weights, workload)
        facts = {
            "attributes": [[axis, axis_weights.size] for axis, axis_weights in weights.items()]
        }  # a list: keys of objects would be sorted
        return np.concatenate([[bound], *weights.values()]), facts

    values, facts = work.get_or_compute(name_strategy(workload, "product", "bounds"), find)
    sizes = dict(facts["attributes"])
    weight_vectors = np.split(values, np.cumsum([1, *sizes.values()])[:-1])
    return float(values[0]), dict(zip(sizes, weight_vectors[1:], strict=True))


def proving_weights(context: Context, workload: Workload, compared: Sequence[Strategy], lower: float) -> DualWeights | None:
    """Weights of the cells that prove a lower bound to readers; None where none that are at hand do."""

    def compute_gram() -> Matrix:
        try:
            return Planning(context).gram(workload)
        except OutOfMemory:  # of planning: the stage that publishes has memory of its own for the proof
            return workload.gram()

    return dual_weights(workload, compared, lower, compute_gram, lambda: _product_weights(context, workload))
