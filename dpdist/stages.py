"""One function a stage: references to stored arrays in, references out. Any stage can be run again at any time.

The order of a release (law 1) is in ``release``, and nowhere else: plan, count, charge, draw, write, commit, answer,
publish. ``step`` wraps each stage: the flow makes it a Prefect task, plain calls leave it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from dpdist import leases
from dpdist.columns import BlocksColumn, Column, Constant, StoredColumn
from dpdist.documents import Documents
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec, OutOfMemory, StoreError
from dpdist.identities import digest_of
from dpdist.long_formulas import long_characters, long_formula_answers
from dpdist.long_root import errors_beside, long_root_answers, long_square_root
from dpdist.long_series import get_or_compute, long_answers, long_convolution, materialize
from dpdist.operators import Dense, Matrix, Operator, Product, Stack
from dpdist.page import report
from dpdist.passes import LazyVector
from dpdist.privacy import keys
from dpdist.privacy.accounting import Loss
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import Budget, Charge, Ledger, Part, Receipt, Records, opened
from dpdist.privacy.meaning import meaning
from dpdist.privacy.noise import SCALE_LIMIT, Noise
from dpdist.private import private_files, private_folder
from dpdist.records import counting
from dpdist.release import earlier_identities, memory, refusals
from dpdist.release.exact import draw, exact_measurement
from dpdist.release.gram import gram as gram_of_workload
from dpdist.release.ledger_and_store import (
    check_drawn_for,
    check_measured,
    check_older_guard,
    check_pair,
    committed_measurement,
    drawn_for,
    mark,
    measurement_name,
)
from dpdist.release.reconstruct import (
    JOINT_CELLS,
    Measured,
    Reader,
    filtered_answers,
    formula_answers,
    joint_reader,
    reader_of,
    streamed_answers,
    term_reader,
)
from dpdist.release.separation import separated_design
from dpdist.spec import ReleaseSpec
from dpdist.stability import Distance
from dpdist.state import published_at
from dpdist.store import Store, StoredArray
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
    laplace_bound,
    low_rank,
    marginal_minimax,
    marginal_optimum,
    residual_products,
    square_root,
    wavelet,
)
from dpdist.strategies.base import Norm, Solve, Step
from dpdist.strategies.convolution import has_square_root, is_dyadic, is_long
from dpdist.strategies.dawa import AdaptiveGrid, adaptive_grid
from dpdist.strategies.dawa import measured as measured_by_dawa
from dpdist.strategies.dawa import read as read_dawa
from dpdist.strategies.dense_grid import DenseGrid, grid_of
from dpdist.strategies.filter_grid import FilterGrid, LongGrid
from dpdist.strategies.grid import TableGrid
from dpdist.strategies.hadamard_grid import HadamardGrid
from dpdist.strategies.planner import (
    DENSE_CELLS,
    OPTIMISERS,
    Candidate,
    Effort,
    alternatives,
    best,
    candidates,
    considered,
    default_group,
    effort,
    planned_effort,
)
from dpdist.strategies.term_grid import TermGrid
from dpdist.strategies.terms import Term
from dpdist.workloads import Workload, integer_basis

_T = TypeVar("_T")


AnyGrid: TypeAlias = DenseGrid | TermGrid | TableGrid | AdaptiveGrid | LongGrid


class StepRunner(Protocol):
    """Runs one named stage."""

    def __call__(self, name: str, work: Callable[[], _T]) -> _T:
        """work(), watched and recorded under the name."""


PRIVATE_STAGES = ("count",)
"""Stages whose progress depends on the records, on how many row groups they have for example: for the operator's terminal only."""
Progress = Callable[[str, str], None]
"""Called with a stage's name and a line about how it goes."""


def plainly(name: str, work: Callable[[], _T]) -> _T:
    """The step runner that adds nothing."""
    del name
    return work()


@dataclass(frozen=True)
class Context:
    """Where a release runs: state folder, store, engine, and who is told about progress."""

    home: Path
    store: Store
    engine: Engine
    progress: Progress

    def __post_init__(self) -> None:
        private_folder(self.home)
        self.engine.exchange = self.store


@dataclass(frozen=True)
class Plan:
    """What a release would do, before any data or budget is touched.

    Attributes:
        strategy: the chosen one.
        table: the mechanisms compared.
        noise: what is added to the grid's integers.
        loss: what the release will be charged.
    """

    spec: ReleaseSpec
    strategy: Strategy
    table: list[Candidate]
    effort: Effort
    grid: AnyGrid
    noise: Noise
    loss: Loss

    def _repr_html_(self) -> str:
        return report.notebook(certificate(self), None)

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the strategy's sensitivity to one record: what predicted errors are multiples of.

        A person's several records, and neighbours that replace one, ask for more noise: they raise it.
        """
        return self.noise.scale * self.grid.spacing / self.strategy.sensitivity

    @cached_property
    def workload(self) -> Workload:
        """The queries that are published: those of a stream so far, else all."""
        return self.spec.queries if self.spec.stream is None else self.spec.queries_of_steps(self.spec.steps)

    @property
    def layout(self) -> Layout:
        """What has to be counted: tables for strategies over marginals, else every cell."""
        shape = self.spec.attributes.shape
        tables = self.grid.tables if isinstance(self.grid, TermGrid | TableGrid | LongGrid) else ()
        return Layout(shape, () if any(len(table) == len(shape) for table in tables) else tables)


@dataclass(frozen=True)
class Answers:
    """Answers, standard errors and half widths of 95 % intervals, one row a query."""

    answer: Column
    error: Column
    half_width: Column


@dataclass(frozen=True)
class Release:
    """A published release.

    Attributes:
        folder: where its files are: a folder, or an object store URL.
        charged: whether this run charged the budget (False: it had been charged before).
        budget: the data set's, with the charges up to this release.
    """

    spec: ReleaseSpec
    plan: Plan
    columns: Answers
    folder: Path | str
    charged: bool
    tally: counting.CountSummary
    budget: Budget

    @property
    def certificate(self) -> dict[str, Any]:
        """What is guaranteed, to whom, and at what cost."""
        return certificate(self.plan, self.budget)

    @cached_property
    def answers(self) -> report.Table:
        """The published answers, as Arrow, pandas, Polars or xarray. Raises: StoreError when a file was altered."""
        with report.local_copy(self.folder) as folder:
            return report.Table(report.load(folder)[0], self.plan.workload)

    def _repr_html_(self) -> str:
        return report.notebook(self.certificate, self.answers.arrow)


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


def silent(stage: str, line: str) -> None:
    """Progress told to nobody."""
    del stage, line


def release(context: Context, spec: ReleaseSpec, *, step: StepRunner = plainly) -> Release:
    """Publish a release; the one place where its order is written.

    Running it again after it has finished, or after it was killed anywhere, publishes the same bytes for one charge.
    """
    keys.load(context.home)  # before anything is charged: no key, no release
    with private_files():
        context.store.sweep()
        leases.sweep(Documents(context.home / "scratch"), None)
        planned = step("plan", lambda: plan(context, spec))
        if spec.stream is not None:
            planned = _as_begun(context, planned)
        for refusal in refused_by(context, planned):
            raise refusal
        others = companions(context, spec)
        counts, tally = step("count", lambda: count(context, spec, planned.layout))
        measured, charged = step("measure", lambda: measure(context, planned, counts))
        answers = step("answer", lambda: answer(context, planned, measured, others))
        budget = budget_until(context, spec)
    measurements = {spec.release: measured.digest, **{other.spec.release: stored.digest for other, stored in others}}
    folder = step("publish", lambda: publish(context, planned, answers, budget, measurements))
    return Release(spec, planned, answers, folder, charged, tally, budget)


def refused_by(context: Context, planned: Plan) -> list[DpdistError]:
    """Why a planned release would be refused, as far as that can be known without its records. Nothing is changed."""
    spec = planned.spec

    def receipt() -> Receipt | None:
        with book(context) as ledger:
            return ledger.receipt(spec.release)

    return refusals.collected(
        (
            lambda: keys.load(context.home),
            lambda: refusals.check_store(context.store),
            lambda: _check_charge(context, planned),
            lambda: refusals.check_formats(spec.output.formats, planned.workload.shape[0]),
            lambda: refusals.check_output(published_at(spec.release, spec.output.folder), spec.release, receipt),
        )
    )


def _check_charge(context: Context, planned: Plan) -> None:
    """Ask the ledger whether it would charge the release, or has. Raises: LedgerError, InvalidInput, StoreError."""
    spec = planned.spec
    with book(context) as ledger:
        check_pair(context.store, ledger)
        check_measured(context.store, ledger.receipt(spec.release), spec.release)
        begun = planned if spec.stream is None else _as_begun(context, planned)
        ledger.rehearse(_charge(ledger, begun, None, None))


def _charge(ledger: Ledger, planned: Plan, root: Secret | None, counts: StoredArray | None) -> Charge:
    """What a release asks the ledger for; without its counts, what can be said before they are there."""
    spec = planned.spec
    part = None if spec.stream is None else _next_part(ledger, planned)
    return Charge(
        release=spec.release,
        dataset=spec.ledger.dataset,
        loss=planned.loss,
        cap=spec.ledger.cap.cap,
        protection=spec.protection,
        spec_digest=_binding(planned, part, ledger.receipt(spec.release)),
        histogram=partial(_committed_counts, root, spec.release, counts.content_digest) if root and counts else None,
        records=_records(root, spec, counts) if root and counts else None,
        period=spec.period.isoformat() if spec.period else None,
        part=part,
        shared=spec.ledger.shared_records,
    )


def budget_until(context: Context, spec: ReleaseSpec) -> Budget:
    """The budget that a release was charged to, with all charges up to its own: the same whenever it is asked for."""
    with book(context) as ledger:
        return ledger.budget_after(spec.release)


def book(context: Context) -> AbstractContextManager[Ledger]:
    """The ledger of a release's state folder; progress says when its database is away."""
    return opened(context.home, partial(context.progress, "ledger"))


@private_files()
def count(context: Context, spec: ReleaseSpec, layout: Layout) -> tuple[StoredArray, counting.CountSummary]:
    """The histogram of the spec's records, or the tables that the layout asks for."""

    def tell(done: int, total: int) -> None:
        context.progress("count", f"{done} of {total} groups of partitions")

    counts, tally = counting.count(
        spec.source,
        spec.attributes,
        context.store,
        context.engine,
        scratch=context.home / "scratch",
        root=keys.load(context.home),
        tables=layout.tables,
        on_done=tell,
    )
    if tally.read == 0 and spec.records.empty == "refuse":
        raise InvalidSpec(
            f"no record in {spec.records.path}: nothing was charged; give the right file, or set 'records.empty: allow' if a release "
            "of nothing is meant"
        )
    return (counts if spec.around is None else _distances(context, counts, spec.around)), tally


def _distances(context: Context, counts: StoredArray, centre: int) -> StoredArray:
    """|count - centre| of every count; ``distance_around`` says how far they move."""
    name = f"{counts.name}-around-{centre}"
    away = LazyVector(counts.plan.shape[0], (counts,), partial(_away, centre), 24)
    return get_or_compute(context.store, name, lambda: materialize(context.store, context.engine, away, name, np.int64))


def distance_around(distance: Distance) -> Distance:
    """How far distances from a public count can move when the counts move by ``distance``.

    A count that moves by one moves its distance by one, up or down whichever way the count went: where a record is replaced, both of its
    changes may go up.
    """
    return Distance(distance.length, replaced=False)


def _away(centre: int, start: int, count: int, values: Matrix) -> Matrix:
    del start, count
    return np.asarray(np.abs(values - centre))


Companion = tuple[Plan, StoredArray]
"""Another release of the same records: its plan and its measurement."""


def companions(context: Context, spec: ReleaseSpec) -> tuple[Companion, ...]:
    """The releases that a spec wants to be consistent with. They are read, never charged or drawn again.

    Raises: InvalidInput when one is not committed, was measured from other records or has no linear measurement; StoreError
        when its measurement is not the one the ledger knows.
    """
    if not spec.companions:
        return ()
    out, records = [], spec.source.digest
    for other in spec.companions:
        with book(context) as ledger:
            receipt = ledger.receipt(other.release)
        if receipt is None or receipt.state != "committed":
            raise InvalidInput(f"release {other.release!r} is not finished; publish it first, then combine")
        planned = plan(context, other)
        if not isinstance(planned.grid, DenseGrid | TermGrid):
            raise InvalidInput(
                f"release {other.release!r} of mechanism {planned.strategy.name!r} cannot be combined with others; leave it "
                "out of 'consistent_with'"
            )
        stored = committed_measurement(context.store, receipt)
        if stored.facts["grid"] != planned.grid.digest or stored.facts["scale"] != planned.noise.scale:
            raise InvalidInput(f"the spec of {other.release!r} was changed after its release; give the one it was made with")
        counts, _ = count(context, other, planned.layout)
        same = receipt.is_of(_records(keys.load(context.home), other, counts))
        if same is None:
            raise InvalidInput(
                f"release {other.release!r} was charged by an older version, and its ledger row no longer tells from which records it "
                "was made; publish it under a new id, then combine"
            )
        if other.source.digest != records or not same:
            raise InvalidInput(
                f"release {other.release!r} was made from other records; only releases of the same can be combined: leave it out "
                "of 'consistent_with'"
            )
        out.append((planned, stored))
    return tuple(out)


@private_files()
def plan(context: Context, spec: ReleaseSpec) -> Plan:
    """Strategy, grid, noise scale and predicted errors; touches no record and no budget."""
    workload = spec.queries
    norm: Norm = "l1" if spec.budget.pure else "l2"
    cells = workload.shape[1]
    names = considered(spec.chosen, norm, workload, spec.limits.limits)
    long = spec.attributes.sizes.long_steps
    if is_long(workload) and not set(names) <= {"convolution", "square-root"}:
        raise InvalidInput(
            f"filters and formulas over more than {long:,} steps or cells are answered by mechanism 'convolution' or "
            f"'square-root' with Gaussian noise, found {names[0]!r}; set 'mechanism: auto' and a budget with delta or rho, or merge steps"
        )
    needs = planned_effort(workload, names)
    compared = [_strategy(context, spec, name, norm) for name in names]
    lower = laplace_bound(gram(context, workload)) if norm == "l1" and cells <= DENSE_CELLS else None
    strategy = compared[0] if spec.objective == "worst" else best(compared)
    grid = _grid(spec, strategy)
    noise = grid.noise(spec.budget.loss)
    if noise.scale > SCALE_LIMIT:
        raise InvalidInput("the budget is so small that it asks for noise beyond 2^20 counts; raise it")
    loss = grid.loss(spec.budget.loss, noise)
    _check_fit(spec, strategy, grid)
    planned = Plan(spec, strategy, candidates(compared, workload, lower), needs, grid, noise, loss)
    memory.check(stage_memory(planned, context.engine), FEWER)
    return planned


FEWER = "set 'mechanism: residual' or 'limits', give the workers more memory, or ask for fewer attributes together"


def stage_memory(planned: Plan, engine: Engine) -> list[memory.StageMemory]:
    """What every stage of a planned release takes."""
    return memory.memory_plan(planned.workload, planned.grid, planned.layout, planned.effort, engine)


def distance_of(spec: ReleaseSpec) -> Distance:
    """How far one change of the files can move what the grid is applied to: the steps before it, one after the other."""
    counted = Layout(spec.attributes.shape).distance_out(counting.distance_out(spec.protection))
    return counted if spec.around is None else distance_around(counted)


def _grid(spec: ReleaseSpec, strategy: Strategy) -> AnyGrid:
    moved = distance_of(spec)
    if strategy.name == "dawa":
        return adaptive_grid(spec.queries, moved.neighbours, moved.records)
    return grid_of(strategy, spec.queries, neighbours=moved.neighbours, most_records=moved.records)


def _check_fit(spec: ReleaseSpec, strategy: Strategy, grid: AnyGrid) -> None:
    """Post-processing that the strategy cannot have, told before anything is charged."""
    options = spec.postprocess
    if not (options.known or options.non_negative or options.consistent_with):
        return
    cells = spec.queries.shape[1]
    joint = isinstance(grid, TermGrid) or bool(options.consistent_with)
    if strategy.direct or not isinstance(grid, DenseGrid | TermGrid) or (joint and cells > JOINT_CELLS):
        beyond = f" over more than {JOINT_CELLS:,} cells" if joint and cells > JOINT_CELLS else ""
        raise InvalidInput(
            f"'known', 'non_negative' and 'consistent_with' need one estimate of the cells, which mechanism {strategy.name!r} "
            f"does not make{beyond}; set 'mechanism: coa' or 'identity'"
        )
    basis = integer_basis(spec.queries)
    for block in spec.known:
        basis.coordinates_of(block)


def _strategy(context: Context, spec: ReleaseSpec, name: str, norm: Norm) -> Strategy:
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
        _enough_memory(context, f"the cost of {name!r}", 8 * 8 * workload.shape[1] ** 2)
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
    _enough_memory(context, f"optimising strategy {name!r}", needed, instead_of=spec.queries)
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


def _enough_memory(context: Context, what: str, needed_bytes: int, instead_of: Workload | None = None) -> None:
    """Raises: OutOfMemory, with what answers a workload ``instead_of`` an optimisation that does not fit."""
    limit = context.engine.largest_worker_bytes
    if needed_bytes <= limit:
        return
    cure = FEWER
    if instead_of is not None:
        others = alternatives(instead_of, limit)
        cure = f"start a worker with more memory, merge values, or set 'mechanism' to {others}"
    raise OutOfMemory(what, needed_bytes, limit, cure)


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


def _coa(store: Store, checkpoint: str, tolerance: float, tell: _Watcher, given: Workload | Matrix) -> Strategy:
    """The solve, from where the last one stopped: also when the worker that ran it died."""
    return coa(given, tolerance=tolerance, on_step=tell, start=_resumed(store, checkpoint))


def term_strategy(context: Context, spec: ReleaseSpec, method: str, solve: Callable[[Workload], Strategy]) -> Strategy:
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
    return Strategy(name, operator, facts["cost"], facts["lower_bound"], record, terms=tuple(terms))


def filter_strategy(context: Context, spec: ReleaseSpec, name: str) -> Strategy:
    """A strategy that is a filter, or weights of characters: the coefficients of the first computation are kept for all later ones.

    Transforms differ in their last bits between machines and versions; a stream goes on for a year.
    """
    workload = spec.queries
    if is_long(workload) and (name == "convolution" or (has_square_root(workload) and spec.stream is None)):

        def tell(done: int, total: int) -> None:
            context.progress("plan", f"{done} of {total} steps of the transforms")

        over_circle = long_characters if is_dyadic(workload) else long_convolution
        find = over_circle if name == "convolution" else long_square_root
        kept_as, moves = f"strategies/{workload.fingerprint[:32]}-{name}-long", spec.neighbours == "replace-one"
        return find(context.store, context.engine, workload, kept_as, moves=moves, on_done=tell)
    made = _CLOSED[name](workload)
    values = made.characters if made.coefficients is None else made.coefficients.values
    assert values is not None
    kept = context.store.read(context.store.put_if_absent(f"strategies/{workload.fingerprint[:32]}-{name}", values))
    if made.coefficients is None:
        return replace(made, characters=kept)
    return replace(made, coefficients=replace(made.coefficients, values=kept))


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
    return Strategy(mechanism, operator, facts["cost"], facts["lower_bound"], record, norm=norm)


def _resumed(store: Store, checkpoint: str) -> Matrix | None:
    """The dual weights of an interrupted solve, if there are any."""
    try:
        return np.array(store.read_document(checkpoint)["dual"])
    except StoreError:
        return None


def gram(context: Context, workload: Workload) -> Matrix:
    """W'W: closed form where there is one, rows summed block by block on the engine."""

    def tell(done: int, total: int) -> None:
        context.progress("plan", f"{done} of {total} parts of W'W")

    return gram_of_workload(context.store, context.engine, workload, on_done=tell)


def measure(context: Context, planned: Plan, counts: StoredArray) -> tuple[StoredArray, bool]:
    """The noisy measurement: reserve, draw, write, commit. Returns it, and whether this call charged the budget.

    Raises: BudgetExceeded, ReleaseConflict, KeyUnavailable: before anything is drawn.
    """
    spec = planned.spec

    def tell(done: int, total: int) -> None:
        context.progress("measure", f"{done} of {total} steps of the transforms")

    name, root = measurement_name(spec.release), keys.load(context.home)
    with book(context) as ledger:
        charge = _charge(ledger, planned, root, counts)
        part, known = charge.part, ledger.receipt(spec.release)
        fresh = known is None or known.state == "aborted"
        check_measured(context.store, known, spec.release)
        if fresh and charge.cap.per != "total" and part is None and not charge.shared:
            check_older_guard(context.store, ledger, root, charge, charge.period_key)
        exact = None
        if fresh or not context.store.exists(name):
            if part is not None and part.start > 0:
                _same_past(context, ledger, planned, counts, part)
            exact = exact_measurement(context.store, context.engine, planned.grid, counts, planned.layout, tell)
            if part is not None and isinstance(planned.grid, FilterGrid):
                assert isinstance(exact, np.ndarray)
                exact = exact[part.start * planned.grid.series : part.stop * planned.grid.series]
        reserved = ledger.reserve(charge)
        receipt = ledger.begin_drawing(spec.release, reserved.attempt, reserved.binding)
        if receipt.state == "committed":
            return committed_measurement(context.store, receipt), reserved.charged
        mark(context.store, ledger)
        if not context.store.exists(name):
            assert receipt.salt is not None
            assert exact is not None
            key = keys.release_key(
                root,
                salt=receipt.salt,
                release=spec.release,
                spec_digest=charge.spec_digest,
                histogram_digest=counts.content_digest,
            )
            facts = {
                "grid": planned.grid.digest,
                **drawn_for(receipt),
                **({} if part is None else {"private_counts": counts.name}),
            }
            if isinstance(planned.grid, AdaptiveGrid):
                assert isinstance(exact, np.ndarray)
                values = measured_by_dawa(exact, spec.queries, planned.grid, spec.budget.loss, key.reveal())
                context.store.put(name, values, {"noise": "laplace", "scale": planned.noise.scale, **facts})
            else:
                draw(context.store, name, exact, key, planned.noise, facts)
        if isinstance(exact, StoredArray):
            context.store.delete(exact.name)
        stored = context.store.open(name)
        check_drawn_for(stored, receipt)
        _safe_before_commit(context.store, stored, *([] if part is None else [counts]))
        ledger.commit(spec.release, receipt.attempt, receipt.binding, stored.digest)
        mark(context.store, ledger)
        return stored, reserved.charged


def _committed_counts(root: Secret, release_id: str, histogram_digest: str, salt: bytes) -> str:
    return keys.histogram_commitment(root, salt=salt, release=release_id, histogram_digest=histogram_digest)


def _records(root: Secret, spec: ReleaseSpec, counts: StoredArray) -> Records:
    """What the ledger may know of a release's records when its salt is gone."""
    source = spec.source
    return Records(
        keys.commitment(root, "records", spec.release, source.digest),
        keys.file_commitments(root, (digest for _, digest in source.files)),
        None if spec.ledger.cap.per == "total" else keys.counts_commitment(root, counts.content_digest),
        keys.identity(root),
        tuple(Path(path).name for path, _ in source.files),
    )


def _as_begun(context: Context, planned: Plan) -> Plan:
    """The plan with the noise and the loss of the stream's first release: what epsilon and delta buy is computed once.

    Raises: InvalidInput when the budget asks for other noise.
    """
    spec = planned.spec
    assert spec.stream is not None
    with book(context) as ledger:
        receipts = ledger.stream(spec.ledger.dataset, spec.stream.name)
    if not receipts or receipts[0].state != "committed":
        return planned
    scale = int(committed_measurement(context.store, receipts[0]).facts["scale"])
    if abs(scale / planned.noise.scale - 1.0) > DRIFT:
        return planned  # another budget: the ledger refuses it, and says why
    return replace(planned, noise=replace(planned.noise, scale=scale), loss=receipts[0].own or receipts[0].loss)


DRIFT = 1e-6
"""By how much the noise that a budget buys may differ between versions of the solvers."""


def _next_part(ledger: Ledger, planned: Plan) -> Part:
    """The steps that a release of a stream measures: its own if it was charged before, else those since the last release.

    Raises: InvalidInput when there are none.
    """
    spec = planned.spec
    assert spec.stream is not None
    known = ledger.stream(spec.ledger.dataset, spec.stream.name)
    own = next(
        (receipt.part.start for receipt in known if receipt.release == spec.release and receipt.part is not None), None
    )
    last = known[-1] if known else None
    start = own if own is not None else last.part.stop if last is not None and last.part is not None else 0
    if spec.steps <= start:
        assert last is not None
        raise InvalidInput(
            f"the first {start} steps of stream {spec.stream.name!r} were already released, last by {last.release!r}; set 'through' to "
            "a later step"
        )
    return Part(spec.stream.name, _stream_digest(planned, known), start, spec.steps)


def _stream_digest(planned: Plan, known: Sequence[Receipt]) -> str:
    """What all releases of a stream have in common; a stream that version 0.1.0 began goes on under the digest that it has."""
    spec = planned.spec
    assert spec.stream is not None
    first = earlier_identities.stream(spec, planned.grid.digest, planned.noise)
    if any(receipt.part is not None and receipt.part.digest == first for receipt in known):
        return first
    facts = {
        "stream": spec.stream.name,
        "domain": list(spec.domain.items()),
        "person": spec.records.person,
        "queries": spec.queries.fingerprint,
        "budget": spec.budget,
        "grid": planned.grid.digest,
        "noise": planned.noise,
    }
    return digest_of("stream", facts)


def _binding(planned: Plan, part: Part | None, known: Receipt | None) -> str:
    """What the charge and the noise key are bound to; a release that version 0.1.0 charged keeps the binding that it has."""
    first = earlier_identities.binding(planned.spec, planned.grid.digest, planned.noise, part)
    if known is not None and known.spec_digest == first:
        return first
    facts = {"spec": planned.spec.digest, "grid": planned.grid.digest, "noise": planned.noise, "part": part}
    return digest_of("binding", facts)


def _same_past(context: Context, ledger: Ledger, planned: Plan, counts: StoredArray, part: Part) -> None:
    """A stream's guarantee is for records that stay where they are: counts of released steps must be those that were measured.

    Raises: InvalidInput when they are not.
    """
    grid = planned.grid
    assert isinstance(grid, FilterGrid)
    receipts = ledger.stream(planned.spec.ledger.dataset, part.stream)
    before = next(receipt for receipt in receipts if receipt.part is not None and receipt.part.stop == part.start)
    if before.state != "committed":
        return  # the ledger refuses to go on, and says why
    facts = committed_measurement(context.store, before).facts
    known = context.store.open(facts["private_counts"])
    tables = [planned.layout.table(context.store.read(stored), grid.axes) for stored in (known, counts)]
    released = [np.take(table.reshape(grid.shape), range(part.start), axis=grid.place) for table in tables]
    if (released[0] != released[1]).any():
        raise InvalidInput(
            f"the records of steps that stream {part.stream!r} has released were changed since {before.release!r}; its past is final: "
            "give the records as they were, or publish the correction as another release"
        )


def _streamed_steps(context: Context, planned: Plan, measured: StoredArray) -> tuple[Workload, FilterGrid, Matrix]:
    """The queries, the grid and the measurement of a stream's steps so far, from all its releases."""
    spec, grid = planned.spec, planned.grid
    assert spec.stream is not None
    assert isinstance(grid, FilterGrid)
    with book(context) as ledger:
        receipts = ledger.stream(spec.ledger.dataset, spec.stream.name)
    parts = []
    for receipt in receipts:
        stored = committed_measurement(context.store, receipt)
        parts.append(context.store.read(stored))
        if stored.digest == measured.digest:
            break
    shape = tuple(spec.steps if i == grid.place else size for i, size in enumerate(grid.shape))
    begun = replace(grid, coefficients=grid.coefficients[: spec.steps], shape=shape)
    return planned.workload, begun, np.concatenate(parts)


def _safe_before_commit(store: Store, stored: StoredArray, *also: StoredArray) -> None:
    """Until the commit erases the key, a damaged measurement can be drawn again, bit for bit; after it, a power loss must not take it.

    Args:
        also: what later releases need as it is now.
    Raises: StoreError, nothing is committed then.
    """
    try:
        store.check(stored)
    except StoreError as error:
        raise StoreError(
            f"{error}. The release is not committed: delete {stored.name!r} from the store {store.location} and run again, "
            "the same noise is drawn"
        ) from None
    try:
        for array in (stored, *also):
            store.sync(array.name)
    except StoreError:
        store.delete(stored.name)  # the system may now take for written what the disk refused: it is drawn again
        raise


def answer(context: Context, planned: Plan, measured: StoredArray, others: tuple[Companion, ...] = ()) -> Answers:
    """Every answer and its standard error, by blocks of queries on the engine.

    Args:
        others: releases whose measurements join the estimate.
    """
    asked = {"asked": planned.spec.postprocess, "others": [stored.digest for _, stored in others]}
    processing = digest_of("post-processing", asked)
    folder = f"answers/{planned.spec.release}-{measured.digest[:16]}-{processing[:16]}"
    workload = planned.workload
    names = (f"{folder}/answer", f"{folder}/error", f"{folder}/half-width")
    if not isinstance(planned.grid, LongGrid) and all(context.store.exists(name) for name in names):
        return _columns(context, [context.store.open(name) for name in names])
    options = planned.spec.postprocess
    fitted = bool(others or options.known or options.non_negative)
    if isinstance(planned.grid, FilterGrid | HadamardGrid):
        read = filtered_answers if isinstance(planned.grid, FilterGrid) else formula_answers
        if planned.spec.stream is None:
            given = (workload, planned.grid, context.store.read(measured))
        else:
            given = _streamed_steps(context, planned, measured)
        found = context.engine.on_largest_worker(read, *given, planned.noise)
        return _stored_answers(context, planned, found, names)
    if isinstance(planned.grid, LongGrid):
        return _answer_long(context, planned, planned.grid, measured, names[0])
    if memory.cell_by_cell(workload, planned.grid) and not fitted:
        return _noisy_cells(context, planned, measured)
    if isinstance(planned.grid, TermGrid) and not fitted:
        return _answer_terms(context, planned, planned.grid, measured, names)
    context.progress("answer", "inverting the strategy")
    reader, values = _estimate(context, planned, context.store.read(measured), others)
    if options.known:
        counts = np.array([known.count for known in options.known])
        reader, values = reader.conditioned(values, planned.spec.known, counts, planned.noise)
    scratch = context.store.scratch()
    cells = None
    if options.non_negative:
        context.progress("answer", "fitting non-negative cells")
        cells = context.store.put(f"{scratch}/cells", context.engine.on_largest_worker(reader.non_negative, values))
    estimate = context.store.put(f"{scratch}/estimate", values)
    inverse = None if reader.inverse is None else context.store.put(f"{scratch}/inverse", reader.inverse)
    rows = min(reader.rows_a_task(), max(1, workload.shape[0]))
    plans = [context.store.plan(name, (workload.shape[0],), np.float64, shard_rows=rows) for name in names]
    for target in plans:
        context.store.begin(target)
    work = partial(
        _answer_shard,
        context.store,
        plans,
        reader.with_inverse(None),
        inverse,
        estimate,
        cells,
        planned.noise,
        options.integer,
        planned.strategy.name == "dawa",
    )

    def tell(done: int, total: int) -> None:
        context.progress("answer", f"{done} of {total} blocks of queries")

    digests = context.engine.map(work, list(range(plans[0].shards)), on_done=tell)
    done = [context.store.finish(target, [row[i] for row in digests]) for i, target in enumerate(plans)]
    context.store.delete(scratch)
    return _columns(context, done)


def _columns(context: Context, stored: Sequence[StoredArray]) -> Answers:
    answer, error, half = (StoredColumn(context.store, array) for array in stored)
    return Answers(answer, error, half)


def _noisy_cells(context: Context, planned: Plan, measured: StoredArray) -> Answers:
    """Answers that are read from the measurement as they are needed: nothing is written twice."""
    whole = planned.spec.postprocess.integer
    error = planned.noise.deviation * planned.grid.spacing
    half = error * float(planned.noise.half_width_95(1.0)) + (0.5 if whole else 0.0)
    size = measured.plan.shape[0]
    answer = StoredColumn(context.store, measured, planned.grid.spacing, whole)
    return Answers(answer, Constant(error, size), Constant(half, size))


def _answer_long(context: Context, planned: Plan, grid: LongGrid, measured: StoredArray, name: str) -> Answers:
    """Answers of filters of a long series, or of formulas over many cells; every one has one standard error."""

    def tell(done: int, total: int) -> None:
        context.progress("answer", f"{done} of {total} steps of the transforms")

    read = {"filter": long_answers, "past": long_root_answers, "characters": long_formula_answers}[grid.coefficients.kind]
    if not context.store.exists(name):
        read(context.store, context.engine, planned.workload, grid, measured, planned.noise, name, tell)
    answers, rows = context.store.open(name), grid.coefficients.steps * grid.coefficients.series
    whole, wide = planned.spec.postprocess.integer, float(planned.noise.half_width_95(0.0))
    answer = StoredColumn(context.store, answers, 1.0, whole)
    added = 0.5 if whole else 0.0
    if grid.coefficients.kind == "past":
        error = errors_beside(context.store, grid.coefficients, name)
        return Answers(answer, error, replace(error, factor=wide, added=added))
    errors = tuple(answers.facts["errors"])
    return Answers(answer, BlocksColumn(errors, rows), BlocksColumn(tuple(e * wide + added for e in errors), rows))


def _estimate(context: Context, planned: Plan, noisy: Matrix, others: tuple[Companion, ...]) -> tuple[Reader, Matrix]:
    """The reader, and what it reads answers from."""
    workload, grid = planned.spec.queries, planned.grid
    if isinstance(grid, AdaptiveGrid):
        workload, grid, noisy = read_dawa(noisy, workload, grid)
    elif isinstance(grid, TermGrid) or (others and isinstance(grid, DenseGrid)):
        parts: list[Measured] = [(grid, noisy, planned.noise)]
        for other, stored in others:
            assert isinstance(other.grid, DenseGrid | TermGrid)
            parts.append((other.grid, context.store.read(stored), other.noise))
        return context.engine.on_largest_worker(partial(joint_reader, workload), parts)
    reader = context.engine.on_largest_worker(partial(reader_of, workload, direct=planned.strategy.direct), grid)
    return reader, reader.estimate(noisy)


def _answer_terms(context: Context, planned: Plan, grid: TermGrid, measured: StoredArray, names: tuple[str, ...]) -> Answers:
    """Answers of a strategy over tables: every block of queries straight from the measured terms."""
    workload = planned.spec.queries
    reader = context.engine.on_largest_worker(term_reader, workload, grid)
    options = planned.spec.postprocess
    if grid.streamed:

        def tell(done: int, total: int) -> None:
            context.progress("answer", f"{done} of {total} slabs")

        stored = streamed_answers(
            context.store, context.engine, reader, measured, planned.noise, names, integer=options.integer, on_done=tell
        )
        return _columns(context, stored)
    z = context.store.read(measured)
    columns: tuple[list[Matrix], list[Matrix]] = ([], [])
    for done, block in enumerate(workload.blocks, start=1):
        for column, values in zip(columns, reader.answers(block, z, planned.noise), strict=True):
            column.append(values)
        context.progress("answer", f"{done} of {len(workload.blocks)} groups of queries")
    return _stored_answers(context, planned, (np.concatenate(columns[0]), np.concatenate(columns[1])), names)


def _stored_answers(context: Context, planned: Plan, found: tuple[Matrix, Matrix], names: tuple[str, ...]) -> Answers:
    """Answers and standard errors of Gaussian noise, stored with the half widths of their intervals."""
    answer, error = found
    half = error * planned.noise.half_width_95(0.0)
    whole = (np.rint(answer), error, half + 0.5) if planned.spec.postprocess.integer else (answer, error, half)
    return _columns(context, [context.store.put(name, values) for name, values in zip(names, whole, strict=True)])


def _answer_shard(
    store: Store,
    plans: list[Any],
    reader: Reader,
    inverse: StoredArray | None,
    estimate: StoredArray,
    cells: StoredArray | None,
    noise: Noise,
    integer: bool,
    biased: bool,
    shard: int,
) -> list[str]:
    whole = reader if inverse is None else reader.with_inverse(store.read(inverse))
    start, stop = plans[0].bounds(shard)
    values, step = store.read(estimate), reader.rows_a_block()
    parts = [whole.answers(first, min(stop, first + step), values, noise) for first in range(start, stop, step)]
    answers, errors, half = (np.concatenate(column) for column in zip(*parts, strict=True))
    if cells is not None:
        fitted = reader.workload.unweighted.rows(start, stop) @ store.read(cells)
        answers, half = fitted, half + np.abs(fitted - answers)  # still covers what the unbiased interval covers
    if integer:
        answers, half = np.rint(answers), half + 0.5
    if biased:
        half = np.full_like(half, np.nan)  # the error bars know the noise only
    columns = (answers, errors, half)
    return [store.write_shard(target, shard, column) for target, column in zip(plans, columns, strict=True)]


def publish(context: Context, planned: Plan, answers: Answers, budget: Budget, measurements: dict[str, str]) -> Path | str:
    """The files a reader gets; a finished folder is left as it is.

    Args:
        measurements: digest of the noisy integers of this release and of those that join its estimate, by release.
    """
    spec = planned.spec
    content = report.Content(
        release=spec.release,
        title=spec.title or spec.release,
        workload=planned.workload,
        answer=answers.answer,
        error=answers.error,
        half_width=answers.half_width,
        certificate={**certificate(planned, budget), "measurements": measurements},
        formats=spec.output.formats,
        sizes=context.store.sizes,
    )
    return report.write(content, published_at(spec.release, spec.output.folder))


def certificate(planned: Plan, budget: Budget | None = None) -> dict[str, Any]:
    """What is guaranteed, to whom, and at what cost: public facts only.

    Args:
        budget: what the data set had been charged when the release was, unless it is only planned.
    """
    spec = planned.spec
    protection = spec.protection
    loss = planned.loss
    strategy = planned.strategy
    lower = max((c.cost / (1 + c.gap) for c in planned.table if c.cost is not None and c.gap is not None), default=None)
    chosen = next(c for c in planned.table if c.mechanism == strategy.name)
    delta = 0.0 if spec.budget.pure else float(spec.budget.delta if spec.budget.delta is not None else 1e-9)
    zcdp = "zero-concentrated differential privacy (zCDP)"
    return {
        "release": spec.release,
        "period": spec.period.isoformat() if spec.period else None,
        "dataset": spec.ledger.dataset,
        "spec_digest": spec.digest,
        "strategy_digest": planned.grid.digest,
        "privacy": {
            "definition": "pure differential privacy (epsilon-DP)" if spec.budget.pure else zcdp,
            "noise": "Laplace" if planned.noise.kind == "laplace" else "Gaussian",
            "unit": protection.unit,
            "neighbours": protection.neighbours,
            "one_change": protection.sentence,
            "most_records_of_one_person": protection.most_records,
            "bound_enforced_while_counting": protection.enforced,
            "bound": protection.bound,
            "meaning": meaning(loss, protection),
            "rho": str(loss.zcdp),
            "rho_decimal": float(loss.zcdp),
            "delta": delta,
            "epsilon": loss.epsilon(delta),
            "noise_scale_on_grid": planned.noise.scale,
            "grid_spacing": planned.grid.spacing,
            "sensitivity_squared_on_grid": str(planned.grid.sensitivity_squared),
        },
        "mechanism": {
            "name": strategy.name,
            "consistent": not strategy.direct,
            "biased": strategy.name == "dawa",
            "rounded": spec.postprocess.integer,
            "objective": spec.objective,
            "certified_gap_of_the_worst": strategy.solve.history[-1].gap
            if spec.objective == "worst" and strategy.solve
            else None,
            "cost": chosen.cost,
            "lower_bound": lower,
            "certified_gap": chosen.gap,
            "rmse": chosen.rmse(spec.queries.shape[0], planned.noise_multiplier),
            "compared": [_compared(c, planned) for c in planned.table],
        },
        "budget": None if budget is None else {"cap": str(budget.cap), "period": budget.period, "course": budget.course},
        "queries": planned.workload.shape[0],
        "cells": planned.workload.shape[1],
        "stream": None
        if spec.stream is None
        else {"name": spec.stream.name, "steps": spec.steps, "of": spec.queries.shape[1]},
        "post_processing": _post_processing(spec),
        "confidence": {"level": 0.95, "columns": ["low_95", "high_95"]},
        "versions": report.versions(),
    }


def _post_processing(spec: ReleaseSpec) -> list[str]:
    """What was done to the answers, and to their error bars."""
    options = spec.postprocess
    out = []
    if options.consistent_with:
        names = ", ".join(other.release for other in spec.companions)
        out.append(
            f"one estimate from this release's measurement and those of {names}: answers of all agree when each is read so; "
            "standard errors are those of all measurements together, and the releases' answers are not independent"
        )
    if options.known:
        facts = ", ".join(f"{known.where or 'all records'} = {known.count:g}" for known in options.known)
        out.append(
            f"public counts taken as given ({facts}): answers stay unbiased, standard errors are those given these counts"
        )
    if options.non_negative:
        out.append(
            "the closest non-negative cells were fitted: small counts are biased upwards; standard errors are those of the "
            "unbiased estimate, intervals are widened by the change and cover at least what they say"
        )
    if options.integer:
        out.append("answers were rounded to whole numbers: intervals are half a count wider on each side, totals may be off")
    return out


def _compared(row: Candidate, planned: Plan) -> dict[str, Any]:
    """A row of the table in counts: predicted error of the mean and of the worst query."""
    multiplier = planned.noise_multiplier
    worst = None if row.worst is None else float(f"{row.worst * multiplier:.9g}")
    return {**asdict(row), "rmse": row.rmse(planned.spec.queries.shape[0], multiplier), "worst": worst}


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
