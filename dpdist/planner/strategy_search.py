"""Planning: what mechanisms ask of store and engine while they find a strategy, and what no strategy can beat, with its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.engine import Engine
from dpdist.errors import OutOfMemory, StoreError
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.comparison import alternatives, considered
from dpdist.mechanisms.mechanism import DENSE_CELLS, Request
from dpdist.mechanisms.mechanism_registry import AUTO, mechanism_of
from dpdist.mechanisms.strategy_cache import name_of
from dpdist.operators import Matrix
from dpdist.runtime.context import Context, Progress, silent
from dpdist.runtime.gram_computation import gram as gram_of_workload
from dpdist.runtime.stored_vectors import KeepingWorkspace, StoreWorkspace
from dpdist.spec import Job
from dpdist.storage.array_store import Store, StoredArray
from dpdist.strategies import laplace_bound
from dpdist.strategies.dense.adaptive_mechanism import designed, eigen_queries, group_weights, merged_weights, separation
from dpdist.strategies.dual_certificates import DualWeights
from dpdist.strategies.lower_bounds import CELLS, dual_weights, is_bounded_in_closed_form, tables_bound
from dpdist.strategies.strategy import UNIT_VARIANCE, Step, Strategy, ignore
from dpdist.strategies.tables.product_bound import bound_bytes, bound_steps, product_weights
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_long, is_separable


def _decomposed(store: Store, engine: Engine, gram: Matrix, name: str) -> StoredArray:
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
    kept = f"{name}/group-{number}"
    if store.exists(kept):
        return store.open(kept)
    group = groups[number]
    low, high = int(group.min()), int(group.max()) + 1
    rows = store.read_rows(queries, low, high)[group - low]
    costs = np.array(queries.facts["costs"])[group]
    weight, load, cost = group_weights(np.ascontiguousarray(np.square(rows.T)), costs, tolerance)
    return store.put_if_absent(kept, np.concatenate([weight, load, [cost]]), {"queries": int(group.size)})


_T = TypeVar("_T")

LONG_SECONDS = 30.0
"""Of the nominal processor, from which on a plan says how long it takes before it starts."""
FEWER = "set 'mechanism: residual' or 'limits', give the workers more memory, or ask for fewer attributes together"


def strategy_of(context: Context, job: Job, name: str, norm: Norm) -> Strategy:
    """One mechanism's strategy for the queries, with its cost. Raises: InvalidInput when it cannot answer; OutOfMemory."""
    asked, mechanism = job.workload, mechanism_of(name)
    mechanism.check(asked.queries)
    request = Request(
        asked.queries,
        norm,
        asked.tolerance,
        worst=asked.objective == "worst" and mechanism.worst,
        setting=job.setting,
        former=job.guarantee.course.horizons,
        group_size=asked.eigen.group_size,
        principal=asked.eigen.principal,
    )
    needs, work = mechanism.effort(asked.queries), Planning(context)
    if needs.nominal_seconds > LONG_SECONDS:
        told = f"optimising {name!r} needs {needs.memory_bytes / 2**30:.2f} GiB and up to about {needs.seconds():.0f} s"
        others = ", ".join(repr(each) for each in _sooner(job, name, norm))
        told += f"; set 'mechanism: auto', which compares {others}, for less" if others else ""
        work.tell(f"{told}; a strategy solved before is read back")
    return mechanism.plan(request, work)


def _sooner(job: Job, name: str, norm: Norm) -> list[str]:
    """What ``auto`` would compare in less time than a mechanism takes that was asked for by its name, and that it leaves out."""
    asked = job.workload
    others = considered(AUTO, norm, asked.queries, asked.limits, job.setting)
    if asked.mechanism == AUTO or name in others:
        return []
    seconds = {each: mechanism_of(each).effort(asked.queries).nominal_seconds for each in (name, *others)}
    return [each for each in others if seconds[each] < seconds[name]]


@dataclass(frozen=True)
class Planning:
    """What mechanisms may ask of a release's store and engine (``dpdist.mechanisms.mechanism.PlanWorkspace``)."""

    context: Context

    def kept(self, name: str) -> tuple[Matrix, Mapping[str, Any]] | None:
        """The stored array of a name and its facts, None if there is none."""
        store = self.context.store
        if not store.exists(name):
            return None
        stored = store.open(name)
        return store.read(stored), stored.facts

    def found_once(
        self, name: str, find: Callable[[], tuple[Matrix, Mapping[str, Any]]]
    ) -> tuple[Matrix, Mapping[str, Any]]:
        """The stored array of a name and its facts, found and stored if there is none; the first one stored wins."""
        kept = self.kept(name)
        if kept is None:
            values, facts = find()
            stored = self.context.store.put_if_absent(name, values, dict(facts))
            kept = self.context.store.read(stored), stored.facts
        return kept

    def gram(self, workload: Workload) -> Matrix:
        """W'W: closed form where there is one, rows summed block by block on the engine."""
        context = self.context
        return gram_of_workload(context.store, context.engine, workload, on_done=self.telling("parts of W'W"))

    def largest(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """One computation on the largest worker."""
        return self.context.engine.on_largest_worker(function, *arguments, needed_bytes=needed_bytes)

    def check_memory(self, what: str, needed_bytes: int, instead_of: Workload | None = None) -> None:
        """Raises: OutOfMemory, with what answers a workload ``instead_of`` an optimisation that does not fit."""
        limit = self.context.engine.largest_worker_bytes
        if needed_bytes <= limit:
            return
        cure = FEWER
        if instead_of is not None:
            others = alternatives(instead_of, limit)
            advised = f"set 'mechanism' to {others}" if others else "ask for fewer attributes together"
            cure = f"start a worker with more memory, merge values, or {advised}"
        raise OutOfMemory(what, needed_bytes, limit, cure)

    def tell(self, line: str) -> None:
        """Show how planning goes."""
        self.context.progress("plan", line)

    def watcher(self) -> _Watcher:
        """A callback that shows steps."""
        return _Watcher(self.context.store, "", self.context.progress)

    def resumed(self, name: str, solve: Callable[..., _T], given: Workload | Matrix, needed_bytes: int) -> _T:
        """The solve on the largest worker, from where the last one stopped: also when the worker that ran it died."""
        watcher = _Watcher(self.context.store, _checkpoint(name), self.context.progress)
        return self.largest(partial(_resuming, watcher, solve), given, needed_bytes=needed_bytes)

    def forget(self, name: str) -> None:
        """Delete a checkpoint."""
        self.context.store.delete(_checkpoint(name))

    def separated(self, gram: Matrix, name: str, *, group_size: int, tolerance: float) -> Strategy:
        """AM's strategy, its groups solved by the workers; ``name``: where they leave what they find until the strategy is there."""
        store, engine = self.context.store, self.context.engine
        queries = _decomposed(store, engine, gram, f"{name}/queries")
        groups = separation(np.array(queries.facts["costs"]), group_size)
        work, told = partial(_solve_group, store, queries, name, groups, tolerance), self.telling("groups of eigen-queries")
        parts = engine.map(work, list(range(len(groups))), on_done=told)
        rows = ((store.read(part), part.facts["queries"]) for part in parts)
        solved = [(values[:size], values[size:-1], float(values[-1])) for values, size in rows]
        weights = merged_weights(groups, solved, tolerance, ignore)
        found = self.largest(designed, store.read(queries), weights, gram, float(queries.facts["bound"]))
        store.delete(name)
        return found

    def arrays(self, *, stored: bool) -> Workspace:
        """The store and the engine, or memory with what has a name kept in the store."""
        store = self.context.store
        return StoreWorkspace(store, self.context.engine) if stored else KeepingWorkspace(store)

    def telling(self, what: str) -> OnDone:
        """A callback that shows progress."""
        return lambda done, total: self.tell(f"{done} of {total} {what}")


@dataclass(frozen=True)
class _Watcher:
    """Tells how a solve goes and keeps its last dual weights. On another machine it only keeps the weights."""

    store: Store
    checkpoint: str
    progress: Progress

    def __call__(self, found: Step) -> None:
        proven = f"certified gap {found.gap:.1e}" if math.isfinite(found.gap) else "nothing certified yet"
        self.progress("plan", f"iteration {found.iteration}: cost {found.objective:.6g}, {proven}")
        if found.checkpoint is not None and self.checkpoint:
            self.store.write_document(self.checkpoint, {"dual": found.checkpoint.tolist()})

    def __reduce__(self) -> tuple[type[_Watcher], tuple[Store, str, Progress]]:
        return _Watcher, (self.store, self.checkpoint, silent)


def _checkpoint(name: str) -> str:
    return f"{name}-checkpoint.json"


def _resuming(watcher: _Watcher, solve: Callable[..., _T], given: Any) -> _T:
    """The solve from the dual weights of an interrupted one, if there are any."""
    try:
        start = np.array(watcher.store.read_document(watcher.checkpoint)["dual"])
    except StoreError:
        start = None
    return solve(given, on_step=watcher, start=start)


NEAR = 0.01
"""Where an optimum is certified this closely no other bound is computed."""
BOUND_COPIES = 6
"""Of the gram, whose eigenvalues bound what strategies with Laplace noise can reach."""


def lower_bound(context: Context, workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> float | None:
    """What no strategy can beat, beside what the strategies know themselves: under Laplace noise of few cells and of tables that share no
    attribute, and of unions of products over several attributes. Under Laplace noise every cost is at least twice that of Gaussian noise.
    """
    found = [tables_bound(workload)] if norm == "l1" else []
    if _over_cells(workload, norm):
        # a run plans more than once
        work, name = Planning(context), name_of(workload, "laplace", "bounds")
        found += work.found_once(name, lambda: (np.array([laplace_bound(work.gram(workload))]), {}))[0].tolist()
    if _of_products(workload, norm, compared):
        found.append(UNIT_VARIANCE[norm] * _product_weights(context, workload)[0])
    return max((bound for bound in found if bound > 0), default=None)


def lower_bound_bytes(workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> int:
    """What ``lower_bound`` holds at once."""
    over_cells = BOUND_COPIES * 8 * workload.shape[1] ** 2 if _over_cells(workload, norm) else 0
    return max(over_cells, bound_bytes(workload) if _of_products(workload, norm, compared) else 0)


def _over_cells(workload: Workload, norm: Norm) -> bool:
    return norm == "l1" and workload.shape[1] <= DENSE_CELLS and not _in_closed_form(workload, norm)


def _in_closed_form(workload: Workload, norm: Norm) -> bool:
    """Whether what is said of marginals is as much as all cells would say, or all that can be said beyond so many."""
    return norm == "l1" and workload.shape[1] > CELLS and is_bounded_in_closed_form(workload)


def _of_products(workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> bool:
    certified = norm == "l2" and any(strategy.gap <= NEAR for strategy in compared)
    known = certified or _in_closed_form(workload, norm)
    return not known and len(workload.domain.shape) > 1 and is_separable(workload) and not is_long(workload)


def _product_weights(context: Context, workload: Workload) -> tuple[float, dict[int, Matrix]]:
    """``product_weights``, computed once."""
    if not bound_steps(workload):
        return 0.0, {}
    work = Planning(context)

    def find() -> tuple[Matrix, dict[str, Any]]:
        work.tell("bounding the optimum")
        bound, weights = work.largest(product_weights, workload)
        facts = {
            "attributes": [[axis, each.size] for axis, each in weights.items()]
        }  # a list: keys of objects would be sorted
        return np.concatenate([[bound], *weights.values()]), facts

    values, facts = work.found_once(name_of(workload, "product", "bounds"), find)
    sizes = dict(facts["attributes"])
    parts = np.split(values, np.cumsum([1, *sizes.values()])[:-1])
    return float(values[0]), dict(zip(sizes, parts[1:], strict=True))


def proving_weights(context: Context, workload: Workload, compared: Sequence[Strategy], lower: float) -> DualWeights | None:
    """Weights of the cells that prove a lower bound to readers; None where none that are at hand do."""

    def asked() -> Matrix:
        try:
            return Planning(context).gram(workload)
        except OutOfMemory:  # of planning: the stage that publishes has memory of its own for the proof
            return workload.gram()

    return dual_weights(workload, compared, lower, asked, lambda: _product_weights(context, workload))
