"""What a release would do: strategy, grid, noise and predicted errors, from the spec alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from dpdist.content.certificate_fields import Claims
from dpdist.content.release_content import versions
from dpdist.content.release_summary import summary
from dpdist.digests import digest_of
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.measurement.consistency.table_fitting import few_cells
from dpdist.measurement.dense_measurement import JOINT_CELLS
from dpdist.measurement.integer_measurement import Grid, Norm
from dpdist.mechanisms.comparison import best, candidates, considered, of_worst, planned_effort
from dpdist.mechanisms.mechanism_registry import REGISTRY, mechanism_of
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import name_for
from dpdist.operators import Matrix
from dpdist.planner import certificate, memory_estimate
from dpdist.planner.certificate import method
from dpdist.planner.derived_statistics import check_means
from dpdist.planner.measurement_plan import Design, column, for_persons
from dpdist.planner.noise_selection import WhichNoise, too_many, which_noise
from dpdist.planner.preprocessing_steps import facts_before, prepared
from dpdist.planner.strategy_search import FEWER, Planning, lower_bound, lower_bound_bytes, strategy_of
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.budget_ledger import DatasetBudget, StreamPart
from dpdist.privacy.noise_distributions import SCALE_LIMIT, Kind
from dpdist.process.durable_files import private_files
from dpdist.publish import notebook_view
from dpdist.reconstruction.nonnegative_cells import Effect
from dpdist.runtime.context import Context
from dpdist.spec import Job
from dpdist.spec.queries.query_weights import ErrorTarget
from dpdist.spec.sections.output import PostprocessSpec
from dpdist.stability import ONE_RECORD
from dpdist.strategies import Strategy
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.group_optimum import cells_bound
from dpdist.strategies.streams.participation_optimum import bounds_steps, steps_bound
from dpdist.workloads import Workload, integer_basis
from dpdist.workloads.workload_kind import is_cells, is_long

LITTLE_EPSILON = 1e-3
"""Below it a release says that it spends unusually little; releases usually spend 0.1 to 10."""
MUCH_NOISE = 100_000
"""Counts: noise of this scale swamps most tables of a data set of usual size. Beyond about 2^20 a release is refused."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Plan(Design):
    """What a release would do, before any data or budget is touched.

    Attributes:
        options: every kind of noise that was planned for.
        which: how one of them was chosen, None where the spec leaves none open.
        former: the plan of a stream before its horizon was last extended.
    """

    job: Job
    options: tuple[Design, ...] = ()
    which: WhichNoise | None = None
    former: Plan | None = None

    def certificate(
        self, budget: DatasetBudget | None = None, effect: Effect | None = None, *, ledger: str | None = None
    ) -> Claims:
        """What is guaranteed, to whom, and at what cost: public facts only.

        Args:
            budget: what the data set had been charged when the release was, unless it is only planned.
            ledger: the name of the ledger that charged it, by which a copy that was rolled back is recognised.
            effect: what a fit of non-negative cells did to the errors, once it was made.
        """
        job, guarantee = self.job, self.job.guarantee
        series = guarantee.course.facts(self.cells)
        claims = {
            "release": job.release,
            **({} if job.outputs.language == "en" else {"language": job.outputs.language}),
            "period": guarantee.day,
            "dataset": guarantee.dataset,
            "spec_digest": job.declared.digest,
            "strategy_digest": self.grid.digest,
            "privacy": certificate.privacy(job, self.grid, self.noise, self.loss),
            "mechanism": certificate.mechanism(job, self.strategy, self.table, self.noise_multiplier, self.persons),
            **({} if self.which is None else self.which.facts(self.options, self.noise.kind)),
            **({} if self.targets is None else {"targets": self.targets}),
            **facts_before(job),
            "budget": None if budget is None else certificate.budget_facts(budget, ledger),
            "method": method(job),
            "queries": self.workload.shape[0],
            "cells": self.workload.shape[1],
            "stream": series and {**series, **self._extended},
            "post_processing": [
                *filter(None, [self.grid.done]),
                *certificate.post_processing(job.outputs, effect, whole=bool(job.workload.answered)),
            ],
            **({} if effect is None or not effect.told else {"non_negative": effect.facts()}),
            "confidence": {"level": 0.95, "columns": ["low_95", "high_95"], **certificate.possible(job).facts()},
            "versions": versions(),
        }
        return cast("Claims", claims)

    @property
    def cells(self) -> int:
        """Cells that the strategy is for: of a stream those of its whole horizon."""
        return self.job.workload.queries.shape[1]

    @property
    def _extended(self) -> dict[str, Any]:
        """What certificates say of a stream's former horizon, with the rho that it had."""
        if self.former is None:
            return {}
        return {"extended_from": {"of": self.former.cells, "rho": str(self.former.loss.zcdp), **self.former._extended}}

    def __repr__(self) -> str:
        return f"<plan of {summary(self.certificate())}>"

    def _repr_html_(self) -> str:
        return notebook_view.notebook(self.certificate(), None)

    @property
    def targets(self) -> dict[str, Any] | None:
        """How the predicted errors stand to the targets of the spec, None where it has none."""
        if not any(isinstance(entry.importance, ErrorTarget) for entry in self.job.workload.entries):
            return None
        return certificate.targets(self.strategy, self.noise_multiplier, self.loss.zcdp)

    def binding(self, part: StreamPart | None) -> str:
        """What the charge and the noise key are bound to."""
        return digest_of("binding", {"spec": self.job.digest, "grid": self.grid.digest, "noise": self.noise, "part": part})

    @property
    def bought(self) -> Loss:
        """What the budget buys with this kind of noise."""
        return self.job.guarantee.budget.loss_with(self.grid.norm)

    @property
    def warnings(self) -> list[str]:
        """What is allowed and hardly ever meant, from public facts alone: so little budget that the noise swamps the answers."""
        privacy = certificate.privacy(self.job, self.grid, self.noise, self.loss)
        asked, scale, found = self.job.guarantee.budget, self.noise_multiplier, []
        if privacy["epsilon"] < LITTLE_EPSILON:
            meant = f"epsilon={privacy['epsilon']:.3g}" + (f" at delta={privacy['delta']:.3g}" if privacy["delta"] else "")
            spent = f"rho={float(asked.rho):g}, which is {meant}," if asked.rho else f"epsilon={float(asked.epsilon or 0):g}"
            found.append(f"this release spends {spent} where releases usually spend 0.1 to 10")
        if scale > MUCH_NOISE:
            found.append(f"one record is hidden by noise of {scale:,.0f} counts, where less than {MUCH_NOISE:,} is usual")
        crowded = too_many(self.job, self.loss)
        if not found:
            return crowded
        swamped = f"{', and '.join(found)}: the noise is likely to swamp the answers; raise 'budget' unless that is meant"
        return [swamped, *crowded]

    @cached_property
    def workload(self) -> Workload:
        """The queries that are published: those of a stream so far, else all."""
        return self.job.guarantee.course.published(self.job.workload.queries)

    @property
    def layout(self) -> Layout:
        """What has to be counted: tables for strategies over marginals, else every cell."""
        domain, tables = self.job.measured.domain, self.grid.tables
        whole = any(len(table) == len(domain.shape) for table in tables)
        return Layout(domain.shape, () if whole else tables, domain.shares_per_record, domain.max_abs_shares)


@private_files()
def plan(context: Context, job: Job) -> Plan:
    """Strategy, grid, noise scale and predicted errors; touches no record and no budget.

    Names of private categories and a private bound that are not known yet are planned for as placeholders.
    """
    job = prepared(context, job)
    which = which_noise(context.ledger, job) if len(job.norms) > 1 else None
    options, which = _options(context, job, which)
    chosen = options[0] if which is None else which.best(options)
    if chosen.noise.scale > SCALE_LIMIT:
        raise InvalidInput(
            "the budget is so small that the noise would be larger than a million counts (2^20); raise 'budget': releases usually spend an "
            "epsilon of 0.1 to 10"
        )
    largest = max(option.effort.memory_bytes for option in options)
    before = job.guarantee.course.former
    former = None if before is None else _by(plan(context, before), chosen.strategy.name)
    planned = Plan(**vars(chosen), job=job, options=options, which=which, former=former)
    planned = replace(planned, effort=replace(chosen.effort, memory_bytes=largest))
    memory_estimate.check(stage_memory(planned, context.engine), FEWER)
    return planned


def _options(context: Context, job: Job, which: WhichNoise | None) -> tuple[tuple[Design, ...], WhichNoise | None]:
    """Every kind of noise that may be taken, and the choice with those that cannot answer.

    Raises: what the first kind is refused for, where every one is.
    """
    made: list[Design] = []
    refusals: dict[Norm, InvalidInput | OutOfMemory] = {}
    for norm in job.norms if which is None else which.norms:
        if which is not None and which.is_beaten(norm, made):
            continue
        try:
            design = _design(context, job, norm)
            _check_fit(job, design.strategy, design.grid)
            check_means(job.workload, design.grid)
        except (InvalidInput, OutOfMemory) as refusal:
            refusals[norm] = refusal
        else:
            made.append(design)
    if not made:
        raise next(iter(refusals.values()))
    return tuple(made), which and replace(which, refused=tuple(map(Kind.hiding, refusals)))


def _design(context: Context, job: Job, norm: Norm) -> Design:
    """What one kind of noise gives: the best mechanism that knows it, and what it is charged."""
    asked, measured, guarantee = job.workload, job.measured, job.guarantee
    workload = asked.queries
    names = _names(job, norm)
    long = measured.sizes.long_steps
    if is_long(workload) and not (names and all(mechanism_of(name).long for name in names)):
        able = " or ".join(repr(name) for name, each in REGISTRY.items() if each.long)
        raise InvalidInput(
            f"filters and formulas over more than {long:,} steps or cells are answered by mechanism {able} with Gaussian noise, found "
            f"{repr(names[0]) if names else 'Laplace noise'}; set 'mechanism: auto' and a budget with delta or rho, or merge steps"
        )
    if not names:
        raise InvalidInput(
            "no mechanism that answers these queries is within 'limits': raise them, or name one as 'mechanism'"
        )
    grid_of = _grids(job)
    compared = _fitting(job, [strategy_of(context, job, name, norm) for name in names], grid_of)
    names = tuple(strategy.name for strategy in compared)
    bound_bytes = lower_bound_bytes(workload, norm, compared)
    Planning(context).check_memory("the bound that no strategy can beat", bound_bytes)
    lower = lower_bound(context, workload, norm, compared)
    reaches = _reaches(job, compared, grid_of)
    strategy = compared[names.index(of_worst(names))] if asked.objective == "worst" else _best(compared, reaches)
    grid = grid_of(strategy)
    bought = guarantee.budget.loss_with(norm)
    noise = grid.noise(bought)
    table = candidates(compared, workload, lower)
    persons = _persons(context, job, compared) if reaches else None
    if reaches:
        table = for_persons(table, strategy, reaches, persons, job.moved.records)
    needs = planned_effort(workload, names)
    needs = replace(needs, memory_bytes=max(needs.memory_bytes, bound_bytes))
    design = Design(
        strategy, table, needs, grid, noise, grid.loss(bought, noise), tuple(compared), measured.domain.scale, persons
    )
    return design.in_whole_numbers(context, workload)


def _names(job: Job, norm: Norm) -> tuple[str, ...]:
    """The mechanisms that are compared. The largest error is made least for single records, whatever persons are."""
    asked, setting = job.workload, job.setting
    if asked.objective == "worst":
        setting = replace(setting, moved=ONE_RECORD)
    return considered(asked.mechanism, norm, asked.queries, asked.limits, setting)


def _fitting(job: Job, compared: list[Strategy], grid_of: Callable[[Strategy], Grid]) -> list[Strategy]:
    """The strategies of which one estimate can be made, where post-processing needs it; all where none can, and the plan says so."""
    if len(compared) == 1 or not job.outputs.fits:
        return compared
    options, queries = job.outputs.postprocess, job.workload.queries
    grids = [(each, grid_of(each)) for each in compared]
    jointly, cells = bool(options.consistent_with), queries.shape[1]
    together = [each for each, grid in grids if grid.estimates(cells, jointly=jointly)]
    if together and few_cells(queries):
        return together
    return [each for each, grid in grids if by_answers(grid, queries, options) and not each.biased] or together or compared


def _reaches(job: Job, compared: Sequence[Strategy], grid_of: Callable[[Strategy], Grid]) -> dict[str, float]:
    """How far one change moves what each strategy measures, over how far one record does, where it moves more than one cell."""
    moved = job.moved
    if moved.participations is None and not job.measured.totals and Optimality(job.workload.queries, moved).of_one_cell:
        return {}
    grids = ((strategy, grid_of(strategy)) for strategy in compared)
    return {strategy.name: grid.sensitivity / column(strategy, grid) for strategy, grid in grids}


def _best(compared: list[Strategy], reaches: Mapping[str, float]) -> Strategy:
    """The strategy of least cost. Where a person is in several cells or steps, costs are those of what a person can reach."""
    if len(compared) == 1 or not reaches:
        return best(compared)
    costs = [math.inf if each.workload_cost is None else each.workload_cost * reaches[each.name] ** 2 for each in compared]
    return compared[costs.index(min(costs))]


def _persons(context: Context, job: Job, compared: Sequence[Strategy]) -> PersonsBound | None:
    """The best proof of what no strategy can beat for persons: one of the strategies' own, or for steps of a series that of fewer ones."""
    proofs = [each.persons for each in compared if each.persons is not None]
    queries, moved = job.workload.queries, job.moved
    if not proofs and moved.groups > 1 and not moved.signed and job.measured.domain.whole_records and is_cells(queries):
        proofs.append(cells_bound(queries, moved))
    if not proofs and job.guarantee.course.grows and job.setting.several and bounds_steps(queries):
        work = Planning(context)

        def find() -> tuple[Matrix, dict[str, Any]]:
            work.tell("bounding the optimum for persons")
            bound = work.largest(steps_bound, queries, moved)
            return bound.numbers, bound.facts()

        numbers, facts = work.found_once(name_for(queries, "chain", moved, "bounds"), find)
        proofs.append(PersonsBound.of(facts, numbers))
    return max(proofs, key=lambda each: each.lower_bound, default=None)


def alternatives_of(planned: Plan) -> Iterator[Plan]:
    """The plans with every other strategy that was compared."""
    for option in planned.options:
        for strategy in option.compared:
            if (strategy.name, option.noise.kind) == (planned.strategy.name, planned.noise.kind):
                continue
            grid = _grid(planned.job, strategy)
            bought = planned.job.guarantee.budget.loss_with(grid.norm)
            noise = grid.noise(bought)
            loss = grid.loss(bought, noise)
            former = None if planned.former is None else _by(planned.former, strategy.name)
            yield replace(planned, strategy=strategy, table=option.table, grid=grid, noise=noise, loss=loss, former=former)


def _by(planned: Plan, mechanism: str) -> Plan:
    """The plan with another mechanism that was compared, where there is one: a stream's horizons are measured by one mechanism."""
    if planned.strategy.name == mechanism:
        return planned
    return next((each for each in alternatives_of(planned) if each.strategy.name == mechanism), planned)


def stage_memory(planned: Plan, engine: Engine) -> list[memory_estimate.StageMemory]:
    """What every stage of a planned release takes."""
    outputs = planned.job.outputs
    apart = by_answers(planned.grid, planned.workload, outputs.postprocess)
    return memory_estimate.memory_plan(
        planned.workload,
        planned.grid,
        planned.layout,
        planned.effort,
        engine,
        fitted=outputs.fits and not apart,
        by_tables=apart,
        non_negative=outputs.postprocess.non_negative,
        delivered=bool(outputs.output.to),
    )


def _grid(job: Job, strategy: Strategy) -> Grid:
    return strategy.grid_for(job.workload.queries, job.moved)


def _grids(job: Job) -> Callable[[Strategy], Grid]:
    """The grid of a strategy, made once: its sensitivity takes seconds over many cells. It is kept for the object, not for a name."""
    made: dict[int, tuple[Strategy, Grid]] = {}

    def grid_of(strategy: Strategy) -> Grid:
        if id(strategy) not in made:
            made[id(strategy)] = strategy, _grid(job, strategy)
        return made[id(strategy)][1]

    return grid_of


def by_answers(grid: Grid, queries: Workload, options: PostprocessSpec) -> bool:
    """Whether answers are post-processed one by one or table by table, without an estimate of all cells."""
    if options.consistent_with or not (options.known or options.non_negative):
        return False
    apart = all(each.where is None for each in options.known) and (grid.measures_total or not options.known)
    return apart and not (grid.estimates(queries.shape[1], jointly=False) and few_cells(queries))


def _check_fit(job: Job, strategy: Strategy, grid: Grid) -> None:
    """Post-processing that the strategy cannot have, refused before anything is charged."""
    if not job.outputs.fits:
        return
    options, queries = job.outputs.postprocess, job.workload.queries
    cells = queries.shape[1]
    if by_answers(grid, queries, options) and not strategy.biased:
        return
    if not grid.estimates(cells, jointly=bool(options.consistent_with)):
        beyond = f" over more than {JOINT_CELLS:,} cells" if grid.row_blocks() is not None and cells > JOINT_CELLS else ""
        raise InvalidInput(
            f"'non_negative', 'consistent_with' and 'known' counts of some records need one unbiased estimate, which mechanism "
            f"{strategy.name!r} does not make{beyond}; set 'mechanism: coa' or 'identity'"
        )
    basis = integer_basis(queries)
    for block in job.outputs.known:
        basis.coordinates_of(block)
