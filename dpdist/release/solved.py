"""Strategies of a spec's workload: those that take long to solve are kept for the next release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpdist.errors import OutOfMemory, StoreError
from dpdist.grids.base import Norm
from dpdist.grids.terms import Term
from dpdist.operators import Dense, Matrix, Operator, Product, Stack
from dpdist.release.context import Context, Progress, silent
from dpdist.release.gram import gram as gram_of_workload
from dpdist.release.separation import separated_design
from dpdist.release.workspace import KeepingWorkspace, StoreWorkspace
from dpdist.spec import ReleaseSpec
from dpdist.store import Store
from dpdist.strategies import (
    Strategy,
    coa,
    convolution,
    datacube,
    dawa,
    eigen_design,
    fourier,
    gaussian,
    hierarchical,
    identity,
    kronecker,
    laplace,
    low_rank,
    marginal_minimax,
    marginal_optimum,
    residual_products,
    square_root,
    wavelet,
)
from dpdist.strategies.base import Solve, Step
from dpdist.strategies.filters import has_square_root
from dpdist.strategies.planner import (
    OPTIMISERS,
    alternatives,
    default_group,
    effort,
)
from dpdist.strategies.representations import (
    DenseStrategy,
    ResidualStrategy,
    TermStrategy,
)
from dpdist.workloads import Workload, integer_basis
from dpdist.workloads.kinds import is_long


def strategy_of(context: Context, spec: ReleaseSpec, name: str, norm: Norm) -> Strategy:
    """One mechanism for the spec's workload, with its cost."""
    workload = spec.queries
    shape = workload.domain.shape
    if name == "identity":
        return identity(workload.shape[1], workload, norm=norm)
    if name in ("convolution", "square-root"):
        return filter_strategy(context, spec, name)
    if name in _CLOSED:
        return _CLOSED[name](workload)
    if name in ("wavelet", "hierarchical"):
        check_memory(context, f"the cost of {name!r}", 8 * 8 * workload.shape[1] ** 2)
        build = partial(wavelet, shape) if name == "wavelet" else partial(hierarchical, shape, branching=None)
        return context.engine.on_largest_worker(partial(build, norm=norm), workload)
    if name in _OVER_MARGINALS and (name, spec.objective) != ("marginals", "worst"):
        return _OVER_MARGINALS[name](workload)
    return _solved_strategy(context, spec, name, norm)


def _solved_strategy(context: Context, spec: ReleaseSpec, name: str, norm: Norm) -> Strategy:
    """A mechanism that is optimised, and kept for the next release of the same workload."""
    if name == "marginals":
        return term_strategy(context, spec, "marginals-worst", marginal_minimax)
    if name == "residual":
        return term_strategy(
            context, spec, f"residual-{spec.tolerance:g}", partial(residual_products, tolerance=spec.tolerance)
        )
    needed = effort(spec.queries, OPTIMISERS[name]).memory_bytes
    check_memory(context, f"optimising strategy {name!r}", needed, instead_of=spec.queries)
    if name == "eigen":
        return eigen_strategy(context, spec)
    if name == "kronecker":
        tell = _Watcher(context.store, "", context.progress)
        solve = partial(kronecker, tolerance=spec.tolerance, on_step=tell)
        return term_strategy(context, spec, f"kronecker-{spec.tolerance:g}", solve)
    return optimised(context, spec) if name == "coa" else low_rank_strategy(context, spec, norm)


_CLOSED: dict[str, Callable[[Workload], Strategy]] = {
    "dawa": dawa,
    "gaussian": gaussian,
    "laplace": laplace,
    "convolution": convolution,
    "square-root": square_root,
}


_OVER_MARGINALS: dict[str, Callable[[Workload], Strategy]] = {
    "marginals": marginal_optimum,
    "fourier": fourier,
    "datacube": datacube,
}


def check_memory(context: Context, what: str, needed_bytes: int, instead_of: Workload | None = None) -> None:
    """Raises: OutOfMemory, with what answers a workload ``instead_of`` an optimisation that does not fit."""
    limit = context.engine.largest_worker_bytes
    if needed_bytes <= limit:
        return
    cure = FEWER
    if instead_of is not None:
        others = alternatives(instead_of, limit)
        cure = f"start a worker with more memory, merge values, or set 'mechanism' to {others}"
    raise OutOfMemory(what, needed_bytes, limit, cure)


FEWER = "set 'mechanism: residual' or 'limits', give the workers more memory, or ask for fewer attributes together"


def optimised(context: Context, spec: ReleaseSpec) -> Strategy:
    """The certified optimum for the workload, solved once for each workload and tolerance."""
    workload = spec.queries
    name = f"strategies/{workload.fingerprint[:32]}-coa-{spec.tolerance:g}"
    basis = integer_basis(workload)
    if not context.store.exists(name):
        # the solve takes the bulk of a release's time: a killed one resumes from its last dual weights
        checkpoint = f"{name}-checkpoint.json"
        tell = _Watcher(context.store, checkpoint, context.progress)
        given: Workload | Matrix = workload if basis.operator is not None else gram(context, workload)
        solve = partial(_coa, context.store, checkpoint, spec.tolerance, tell)
        solved = context.engine.on_largest_worker(solve, given, needed_bytes=effort(workload).memory_bytes)
        context.store.put_if_absent(name, _stored_matrix(solved.operator), _strategy_facts(solved))
        context.store.delete(checkpoint)
    return _kept_strategy(context.store, name, "coa", over=basis.operator)


def _coa(store: Store, checkpoint: str, tolerance: float, tell: _Watcher, given: Workload | Matrix) -> Strategy:
    """The solve, from where the last one stopped: also when the worker that ran it died."""
    return coa(given, tolerance=tolerance, on_step=tell, start=_resumed(store, checkpoint))


def _resumed(store: Store, checkpoint: str) -> Matrix | None:
    """The dual weights of an interrupted solve, if there are any."""
    try:
        return np.array(store.read_document(checkpoint)["dual"])
    except StoreError:
        return None


@dataclass(frozen=True)
class _Watcher:
    """Tells how a solve goes and keeps its last dual weights. On another machine it only keeps the weights."""

    store: Store
    checkpoint: str
    progress: Progress

    def __call__(self, found: Step) -> None:
        self.progress("plan", f"iteration {found.iteration}: cost {found.objective:.6g}, certified gap {found.gap:.1e}")
        if found.checkpoint is not None and self.checkpoint:
            self.store.write_document(self.checkpoint, {"dual": found.checkpoint.tolist()})

    def __reduce__(self) -> tuple[type[_Watcher], tuple[Store, str, Progress]]:
        return _Watcher, (self.store, self.checkpoint, silent)


def eigen_strategy(context: Context, spec: ReleaseSpec) -> Strategy:
    """AM's strategy, solved once for each workload and way of separation; groups are solved by the workers."""
    group = spec.eigen.group_size or (None if spec.eigen.principal else default_group(spec.queries))
    name = f"strategies/{spec.queries.fingerprint[:32]}-eigen-{group}-{spec.eigen.principal}-{spec.tolerance:g}"
    if not context.store.exists(name):
        v = gram(context, spec.queries)
        if group is None:
            context.progress("plan", "weighting eigen-queries")
            solve = partial(eigen_design, principal=spec.eigen.principal, tolerance=spec.tolerance)
            solved = context.engine.on_largest_worker(solve, v)
        else:

            def tell(done: int, total: int) -> None:
                context.progress("plan", f"{done} of {total} groups of eigen-queries")

            work = f"scratch/{name}"
            solved = separated_design(
                context.store, context.engine, v, work, group_size=group, tolerance=spec.tolerance, on_done=tell
            )
            context.store.delete(work)
        context.store.put_if_absent(name, _stored_matrix(solved.operator), _strategy_facts(solved))
    return _kept_strategy(context.store, name, "eigen")


def term_strategy(
    context: Context, spec: ReleaseSpec, method: str, solve: Callable[[Workload], TermStrategy]
) -> TermStrategy:
    """A strategy over tables, solved once for each workload and method: its last bits may differ between machines."""
    name = f"strategies/{spec.queries.fingerprint[:32]}-{method}"
    if not context.store.exists(name):
        context.progress("plan", f"optimising {method.split('-', maxsplit=1)[0]}")
        solved = context.engine.on_largest_worker(solve, spec.queries)
        flat = np.concatenate([factor.ravel() for term in solved.terms for factor in term.factors] or [np.zeros(0)])
        shapes = [[list(term.axes), term.scale, [list(f.shape) for f in term.factors]] for term in solved.terms]
        assert solved.solve is not None
        facts = {
            **_strategy_facts(solved),
            "terms": shapes,
            "gap": solved.solve.history[-1].gap if solved.solve.history else None,
        }
        context.store.put_if_absent(name, np.append(flat, 0.0), facts)
    stored = context.store.open(name)
    flat, facts = context.store.read(stored), stored.facts
    terms, start = [], 0
    for axes, scale, shapes in facts["terms"]:
        factors = []
        for rows, columns in shapes:
            factors.append(flat[start : start + rows * columns].reshape(rows, columns))
            start += rows * columns
        terms.append(Term(tuple(axes), tuple(factors), scale))
    operators = [term.operator(spec.attributes.shape) for term in terms]
    operator = operators[0] if len(operators) == 1 else Stack(operators)
    history = () if facts["gap"] is None else (Step(facts["iterations"], facts["cost"], facts["gap"]),)
    record = Solve(facts["method"], facts["stop"], history)
    name = facts["name"]
    kind = TermStrategy if name in ("residual", "kronecker") else ResidualStrategy
    return kind(name, operator, facts["cost"], facts["lower_bound"], record, terms=tuple(terms))


def filter_strategy(context: Context, spec: ReleaseSpec, name: str) -> Strategy:
    """A strategy that is a filter, or weights of characters: the coefficients of the first computation are kept for all later ones.

    Transforms differ in their last bits between machines and versions; a stream goes on for a year. Long ones are worked on in the
    store.
    """
    workload = spec.queries

    def tell(done: int, total: int) -> None:
        context.progress("plan", f"{done} of {total} steps of the transforms")

    find, kept = convolution if name == "convolution" else square_root, f"strategies/{workload.fingerprint[:32]}-{name}"
    if is_long(workload) and (name == "convolution" or (has_square_root(workload) and spec.stream is None)):
        return find(workload, StoreWorkspace(context.store, context.engine), f"{kept}-long", tell)
    return find(workload, KeepingWorkspace(context.store), kept, tell)


def low_rank_strategy(context: Context, spec: ReleaseSpec, norm: Norm) -> Strategy:
    """LRM's strategy, solved once for each workload and norm."""
    name = f"strategies/{spec.queries.fingerprint[:32]}-low-rank-{norm}"
    if not context.store.exists(name):
        context.progress("plan", "optimising a low-rank strategy")
        solved = context.engine.on_largest_worker(partial(low_rank, norm=norm), gram(context, spec.queries))
        context.store.put_if_absent(name, _stored_matrix(solved.operator), _strategy_facts(solved))
    return _kept_strategy(context.store, name, "low-rank", norm=norm)


def _kept_strategy(store: Store, name: str, mechanism: str, *, over: Operator | None = None, norm: Norm = "l2") -> Strategy:
    """A solved strategy from its stored matrix: rows over the cells, or over the rows of an operator."""
    stored = store.open(name)
    matrix, facts = Dense(store.read(stored)), stored.facts
    record = Solve(facts["method"], facts["stop"], ())
    operator = matrix if over is None else Product(matrix, over)
    return DenseStrategy(mechanism, operator, facts["cost"], facts["lower_bound"], record, norm=norm)


def gram(context: Context, workload: Workload) -> Matrix:
    """W'W: closed form where there is one, rows summed block by block on the engine."""

    def tell(done: int, total: int) -> None:
        context.progress("plan", f"{done} of {total} parts of W'W")

    return gram_of_workload(context.store, context.engine, workload, on_done=tell)


def _stored_matrix(operator: Operator) -> Matrix:
    if isinstance(operator, Product):
        assert isinstance(operator.left, Dense)
        return operator.left.array
    assert isinstance(operator, Dense)
    return operator.array


def _strategy_facts(strategy: Strategy) -> dict[str, Any]:
    assert strategy.solve is not None
    return {
        "name": strategy.name,
        "cost": strategy.workload_cost,
        "lower_bound": strategy.lower_bound,
        "method": strategy.solve.method,
        "stop": strategy.solve.stop,
        "iterations": len(strategy.solve.history),
    }
