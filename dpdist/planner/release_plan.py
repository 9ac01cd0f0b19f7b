"""What a release would do: strategy, grid, noise and predicted errors, from the spec alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from dpdist.content.certificate_fields import Claims
from dpdist.content.release_content import versions
from dpdist.content.release_summary import summary_line
from dpdist.digests import compute_digest
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.measurement.consistency.table_fitting import has_few_cells
from dpdist.measurement.integer_measurement import IntegerMeasurement, Norm
from dpdist.measurement.joint_measurement import JOINT_CELLS
from dpdist.mechanisms.comparison import best_strategy, candidates, compared_mechanisms, minimax_mechanism, planned_effort
from dpdist.mechanisms.mechanism_registry import REGISTRY, mechanism_of
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import name_person_strategy
from dpdist.operators import Matrix
from dpdist.planner import certificate, memory_estimate
from dpdist.planner.certificate import method_facts
from dpdist.planner.derived_statistics import check_means, reason_unpublished
from dpdist.planner.measurement_plan import IntegerPlan, adjust_table_to_persons, column_norm, skips_cell_estimate
from dpdist.planner.noise_selection import NoiseChoice, capacity_warnings, choose_noise
from dpdist.planner.preprocessing_steps import prepare_job, preprocessing_facts
from dpdist.planner.strategy_search import MEMORY_CURE, Planning, lower_bound, lower_bound_bytes, plan_strategy
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.budget_ledger import DatasetBudget, StreamPart
from dpdist.privacy.noise_distributions import SCALE_LIMIT, Kind
from dpdist.process.durable_files import private_files
from dpdist.publish import notebook_view
from dpdist.reconstruction.nonnegative_cells import Effect
from dpdist.runtime.context import Context
from dpdist.spec import Job
from dpdist.spec.queries.query_weights import ErrorTarget
from dpdist.stability import ONE_RECORD
from dpdist.strategies import Strategy
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.group_optimum import cells_bound
from dpdist.strategies.streams.participation_optimum import has_steps_bound, steps_bound
from dpdist.workloads import Workload, integer_basis
from dpdist.workloads.workload_kind import is_cells, is_long

LITTLE_EPSILON = 1e-3
"""Below it a release says that it spends unusually little; releases usually spend 0.1 to 10."""
MUCH_NOISE = 100_000
"""Counts: noise of this scale swamps most tables of a data set of usual size. Beyond about 2^20 a release is refused."""


@dataclass(frozen=True, repr=False, kw_only=True)
class ReleasePlan(IntegerPlan):
    """What a release would do, before any data or budget is touched.

    Attributes:
        options: every kind of noise that was planned for.
        noise_choice: how one of them was chosen, None where the spec leaves none open.
        former_plan: the plan of a stream before its horizon was last extended.
    """

    job: Job
    options: tuple[IntegerPlan, ...] = ()
    noise_choice: NoiseChoice | None = None
    former_plan: ReleasePlan | None = None

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
        series = guarantee.release_mode.facts(self.cells)
        claims = {
            "release": job.release,
            **({} if job.outputs.language == "en" else {"language": job.outputs.language}),
            "period": guarantee.day,
            "dataset": guarantee.dataset,
            "spec_digest": job.declared_job.digest,
            "strategy_digest": self.grid.digest,
            "privacy": certificate.privacy_facts(job, self.grid, self.noise, self.loss),
            "mechanism": certificate.mechanism_facts(job, self.strategy, self.table, self.noise_multiplier, self.persons),
            **({} if self.noise_choice is None else self.noise_choice.facts(self.options, self.noise.kind)),
            **({} if self.targets is None else {"targets": self.targets}),
            **preprocessing_facts(job),
            "budget": None if budget is None else certificate.budget_facts(budget, ledger),
            "method": method_facts(job),
            "queries": self.workload.shape[0],
            "cells": self.workload.shape[1],
            "stream": series and {**series, **self._extension_facts},
            "post_processing": [
                *filter(None, [self.grid.postprocessing]),
                *certificate.post_processing(job.outputs, effect, whole=bool(job.workload.answered_steps)),
            ],
            **({} if effect is None or not effect.is_reported else {"non_negative": effect.facts()}),
            "confidence": {"level": 0.95, "columns": ["low_95", "high_95"], **certificate.possible_counts(job).facts()},
            "versions": versions(),
        }
        return cast("Claims", claims)

    @property
    def cells(self) -> int:
        """Cells that the strategy is for: of a stream those of its whole horizon."""
        return self.job.workload.queries.shape[1]

    @property
    def _extension_facts(self) -> dict[str, Any]:
        """What certificates say of a stream's former horizon, with the rho that it had."""
        if self.former_plan is None:
            return {}
        return {
            "extended_from": {
                "of": self.former_plan.cells,
                "rho": str(self.former_plan.loss.zcdp),
                **self.former_plan._extension_facts,
            }
        }

    def __repr__(self) -> str:
        return f"<plan of {summary_line(self.certificate())}>"

    def _repr_html_(self) -> str:
        return notebook_view.notebook_html(self.certificate(), None)

    @property
    def targets(self) -> dict[str, Any] | None:
        """How the predicted errors stand to the targets of the spec, None where it has none."""
        if not any(isinstance(entry.importance, ErrorTarget) for entry in self.job.workload.entries):
            return None
        return certificate.target_facts(self.strategy, self.noise_multiplier, self.loss.zcdp)

    def binding(self, stream_part: StreamPart | None) -> str:
        """What the charge and the noise key are bound to."""
        return compute_digest(
            "binding", {"spec": self.job.digest, "grid": self.grid.digest, "noise": self.noise, "part": stream_part}
        )

    @property
    def budget_loss(self) -> Loss:
        """What the budget buys with this kind of noise."""
        return self.job.guarantee.budget.loss_with(self.grid.norm)

    @property
    def warnings(self) -> list[str]:
        """What is allowed and hardly ever meant, from public facts alone: so little budget that the noise swamps the answers."""
        privacy = certificate.privacy_facts(self.job, self.grid, self.noise, self.loss)
        budget, scale, reasons = self.job.guarantee.budget, self.noise_multiplier, []
        if privacy["epsilon"] < LITTLE_EPSILON:
            guarantee_text = f"epsilon={privacy['epsilon']:.3g}" + (
                f" at delta={privacy['delta']:.3g}" if privacy["delta"] else ""
            )
            spent = (
                f"rho={float(budget.rho):g}, which is {guarantee_text},"
                if budget.rho
                else f"epsilon={float(budget.epsilon or 0):g}"
            )
            reasons.append(f"this release spends {spent} where releases usually spend 0.1 to 10")
        if scale > MUCH_NOISE:
            reasons.append(f"one record is hidden by noise of {scale:,.0f} counts, where less than {MUCH_NOISE:,} is usual")
        crowded = capacity_warnings(self.job, self.loss)
        if not reasons:
            return crowded
        swamped = f"{', and '.join(reasons)}: the noise is likely to swamp the answers; raise 'budget' unless that is meant"
        return [swamped, *crowded]

    @cached_property
    def workload(self) -> Workload:
        """The queries that are published: those of a stream so far, else all."""
        return self.job.guarantee.release_mode.published_queries(self.job.workload.queries)

    @property
    def layout(self) -> Layout:
        """What has to be counted: tables for strategies over marginals, else every cell."""
        domain, tables = self.job.measured.domain, self.grid.tables
        whole = any(len(table) == len(domain.shape) for table in tables)
        return Layout(domain.shape, () if whole else tables, domain.shares_per_record, domain.max_abs_shares)


@private_files()
def plan(context: Context, job: Job) -> ReleasePlan:
    """Strategy, grid, noise scale and predicted errors; touches no record and no budget.

    Names of private categories and a private bound that are not known yet are planned for as placeholders.
    """
    job = prepare_job(context, job)
    noise_choice = choose_noise(context.ledger, job) if len(job.norms) > 1 else None
    options, noise_choice = _measurement_plans(context, job, noise_choice)
    chosen_option = options[0] if noise_choice is None else noise_choice.best(options)
    if chosen_option.noise.scale > SCALE_LIMIT:
        raise InvalidInput(
            "the budget is so small that the noise would be larger than a million counts (2^20); raise 'budget': releases usually spend an "
            "epsilon of 0.1 to 10"
        )
    largest = max(option.effort.memory_bytes for option in options)
    former_job = job.guarantee.release_mode.former_job
    former_plan = None if former_job is None else _with_mechanism(plan(context, former_job), chosen_option.strategy.name)
    planned = ReleasePlan(
        **vars(chosen_option), job=job, options=options, noise_choice=noise_choice, former_plan=former_plan
    )
    planned = replace(planned, effort=replace(chosen_option.effort, memory_bytes=largest))
    memory_estimate.check(stage_memory(planned, context.engine), MEMORY_CURE)
    return planned


def _measurement_plans(
    context: Context, job: Job, noise_choice: NoiseChoice | None
) -> tuple[tuple[IntegerPlan, ...], NoiseChoice | None]:
    """Every kind of noise that may be taken, and the choice with those that cannot answer.

    Raises: what the first kind is refused for, where every one is.
    """
    plans: list[IntegerPlan] = []
    refusals: dict[Norm, InvalidInput | OutOfMemory] = {}
    for norm in job.norms if noise_choice is None else noise_choice.norms:
        if noise_choice is not None and noise_choice.is_beaten(norm, plans):
            continue
        try:
            design = _plan_measurement(context, job, norm)
            _check_fit(job, design.strategy, design.grid)
            check_means(job.workload, design.grid)
        except (InvalidInput, OutOfMemory) as refusal:
            refusals[norm] = refusal
        else:
            plans.append(design)
    if not plans:
        raise next(iter(refusals.values()))
    return tuple(plans), noise_choice and replace(noise_choice, refused=tuple(map(Kind.hiding, refusals)))


def _plan_measurement(context: Context, job: Job, norm: Norm) -> IntegerPlan:
    """What one kind of noise gives: the best mechanism that knows it, and what it is charged."""
    job_workload, measured, guarantee = job.workload, job.measured, job.guarantee
    workload = job_workload.queries
    names = _mechanism_names(job, norm)
    long = measured.sizes.long_steps
    if is_long(workload) and not (names and all(mechanism_of(name).supports_out_of_core for name in names)):
        able_mechanisms = " or ".join(repr(name) for name, mechanism in REGISTRY.items() if mechanism.supports_out_of_core)
        raise InvalidInput(
            f"filters and formulas over more than {long:,} steps or cells are answered by mechanism {able_mechanisms} with Gaussian "
            "noise, found "
            f"{repr(names[0]) if names else 'Laplace noise'}; set 'mechanism: auto' and a budget with delta or rho, or merge steps"
        )
    if not names:
        raise InvalidInput(
            "no mechanism that answers these queries is within 'limits': raise them, or name one as 'mechanism'"
        )
    grid_of = _grids(job)
    compared = _strategies_for_fit(job, [plan_strategy(context, job, name, norm) for name in names], grid_of)
    names = tuple(strategy.name for strategy in compared)
    bound_bytes = lower_bound_bytes(workload, norm, compared)
    Planning(context).check_memory("the bound that no strategy can beat", bound_bytes)
    lower = lower_bound(context, workload, norm, compared)
    reaches = _reaches(job, compared, grid_of)
    strategy = (
        compared[names.index(minimax_mechanism(names))]
        if job_workload.objective == "worst"
        else _best_strategy(
            compared, reaches, lambda candidate: reason_unpublished(grid_of(candidate), measured.domain.shape) is None
        )
    )
    grid = grid_of(strategy)
    budget_loss = guarantee.budget.loss_with(norm)
    noise = grid.noise(budget_loss)
    table = candidates(compared, workload, lower)
    persons = _persons(context, job, compared) if reaches else None
    if reaches:
        table = adjust_table_to_persons(table, strategy, reaches, persons, job.moved.records)
    effort = planned_effort(workload, names)
    effort = replace(effort, memory_bytes=max(effort.memory_bytes, bound_bytes))
    design = IntegerPlan(
        strategy, table, effort, grid, noise, grid.loss(budget_loss, noise), tuple(compared), measured.domain.scale, persons
    )
    return design.with_integer_costs(context, workload)


def _mechanism_names(job: Job, norm: Norm) -> tuple[str, ...]:
    """The mechanisms that are compared. The largest error is made least for single records, whatever persons are."""
    job_workload, setting = job.workload, job.setting
    if job_workload.objective == "worst":
        setting = replace(setting, moved=ONE_RECORD)
    return compared_mechanisms(job_workload.mechanism, norm, job_workload.queries, job_workload.limits, setting)


def _strategies_for_fit(
    job: Job, compared: list[Strategy], grid_of: Callable[[Strategy], IntegerMeasurement]
) -> list[Strategy]:
    """The strategies of which one estimate can be made, where post-processing needs it; all where none can, and the plan says so."""
    if len(compared) == 1 or not job.outputs.fits_estimate:
        return compared
    options, queries = job.outputs.postprocess, job.workload.queries
    grids = [(strategy, grid_of(strategy)) for strategy in compared]
    jointly, cells = bool(options.consistent_with), queries.shape[1]
    jointly_estimable = [strategy for strategy, grid in grids if grid.allows_estimate(cells, jointly=jointly)]
    if jointly_estimable and has_few_cells(queries):
        return jointly_estimable
    return (
        [strategy for strategy, grid in grids if skips_cell_estimate(grid, queries, options) and not strategy.biased]
        or jointly_estimable
        or compared
    )


def _reaches(job: Job, compared: Sequence[Strategy], grid_of: Callable[[Strategy], IntegerMeasurement]) -> dict[str, float]:
    """How far one change moves what each strategy measures, over how far one record does, where it moves more than one cell."""
    moved = job.moved
    if (
        moved.participations is None
        and not job.measured.has_bounded_total
        and Optimality(job.workload.queries, moved).of_one_cell
    ):
        return {}
    grids = ((strategy, grid_of(strategy)) for strategy in compared)
    return {strategy.name: grid.sensitivity / column_norm(strategy, grid) for strategy, grid in grids}


EQUALLY_GOOD = 1e-4
"""Relative difference of squared errors below which strategies are equally good: solves end at 1e-6, of which persons reach other parts."""


def _best_strategy(
    compared: list[Strategy], reaches: Mapping[str, float], is_published: Callable[[Strategy], bool]
) -> Strategy:
    """The strategy of least cost. Where a person is in several cells or steps, costs are those of what a person can reach.

    Of strategies that are equally good, one is taken whose measurement readers get.
    """
    costs = [
        math.inf if strategy.workload_cost is None else strategy.workload_cost * reaches.get(strategy.name, 1.0) ** 2
        for strategy in compared
    ]
    best = best_strategy(compared) if not reaches else compared[costs.index(min(costs))]
    equal_strategies = [
        strategy for strategy, cost in zip(compared, costs, strict=True) if cost <= min(costs) * (1 + EQUALLY_GOOD)
    ]
    if len(equal_strategies) < 2 or math.isinf(min(costs)):
        return best
    return next((strategy for strategy in (best, *equal_strategies) if is_published(strategy)), best)


def _persons(context: Context, job: Job, compared: Sequence[Strategy]) -> PersonsBound | None:
    """The best proof of what no strategy can beat for persons: one of the strategies' own, or for steps of a series that of fewer ones."""
    proofs = [candidate.persons for candidate in compared if candidate.persons is not None]
    queries, moved = job.workload.queries, job.moved
    if not proofs and moved.groups > 1 and not moved.signed and job.measured.domain.whole_records and is_cells(queries):
        proofs.append(cells_bound(queries, moved))
    if (
        not proofs
        and job.guarantee.release_mode.grows
        and job.setting.has_several_contributions
        and has_steps_bound(queries)
    ):
        work = Planning(context)

        def find() -> tuple[Matrix, dict[str, Any]]:
            work.show_message("bounding the optimum for persons")
            bound = work.run_on_largest_worker(steps_bound, queries, moved)
            return bound.numbers, bound.facts()

        numbers, facts = work.get_or_compute(name_person_strategy(queries, "chain", moved, "bounds"), find)
        proofs.append(PersonsBound.of(facts, numbers))
    return max(proofs, key=lambda candidate: candidate.lower_bound, default=None)


def alternatives_of(planned: ReleasePlan) -> Iterator[ReleasePlan]:
    """The plans with every other strategy that was compared."""
    for option in planned.options:
        for strategy in option.compared:
            if (strategy.name, option.noise.kind) == (planned.strategy.name, planned.noise.kind):
                continue
            grid = _grid(planned.job, strategy)
            budget_loss = planned.job.guarantee.budget.loss_with(grid.norm)
            noise = grid.noise(budget_loss)
            loss = grid.loss(budget_loss, noise)
            former_plan = None if planned.former_plan is None else _with_mechanism(planned.former_plan, strategy.name)
            yield replace(
                planned, strategy=strategy, table=option.table, grid=grid, noise=noise, loss=loss, former_plan=former_plan
            )


def _with_mechanism(planned: ReleasePlan, mechanism: str) -> ReleasePlan:
    """The plan with another mechanism that was compared, where there is one: a stream's horizons are measured by one mechanism."""
    if planned.strategy.name == mechanism:
        return planned
    return next((alternative for alternative in alternatives_of(planned) if alternative.strategy.name == mechanism), planned)


def stage_memory(planned: ReleasePlan, engine: Engine) -> list[memory_estimate.StageMemory]:
    """What every stage of a planned release takes."""
    outputs = planned.job.outputs
    skips_estimate = skips_cell_estimate(planned.grid, planned.workload, outputs.postprocess)
    return memory_estimate.memory_plan(
        planned.workload,
        planned.grid,
        planned.layout,
        planned.effort,
        engine,
        fitted=outputs.fits_estimate and not skips_estimate,
        by_tables=skips_estimate,
        non_negative=outputs.postprocess.non_negative,
        delivered=bool(outputs.output.to),
    )


def _grid(job: Job, strategy: Strategy) -> IntegerMeasurement:
    return strategy.grid_for(job.workload.queries, job.moved)


def _grids(job: Job) -> Callable[[Strategy], IntegerMeasurement]:
    """The grid of a strategy, made once: its sensitivity takes seconds over many cells. It is kept for the object, not for a name."""
    grids_by_id: dict[int, tuple[Strategy, IntegerMeasurement]] = {}

    def grid_of(strategy: Strategy) -> IntegerMeasurement:
        if id(strategy) not in grids_by_id:
            grids_by_id[id(strategy)] = strategy, _grid(job, strategy)
        return grids_by_id[id(strategy)][1]

    return grid_of


def _check_fit(job: Job, strategy: Strategy, grid: IntegerMeasurement) -> None:
    """Post-processing that the strategy cannot have, refused before anything is charged."""
    if not job.outputs.fits_estimate:
        return
    options, queries = job.outputs.postprocess, job.workload.queries
    cells = queries.shape[1]
    if skips_cell_estimate(grid, queries, options) and not strategy.biased:
        return
    if options.consistent_with and cells > JOINT_CELLS and not options.known and grid.row_blocks() is not None:
        return  # ``dpdist.pipeline.query_answers.companions`` joins tables part by part, or refuses before the charge
    if not grid.allows_estimate(cells, jointly=bool(options.consistent_with)):
        limit_text = (
            f" over more than {JOINT_CELLS:,} cells" if grid.row_blocks() is not None and cells > JOINT_CELLS else ""
        )
        raise InvalidInput(
            f"'non_negative', 'consistent_with' and 'known' counts of some records need one unbiased estimate, which mechanism "
            f"{strategy.name!r} does not make{limit_text}; set 'mechanism: coa' or 'identity'"
        )
    basis = integer_basis(queries)
    for block in job.outputs.known_blocks:
        basis.coordinates_of(block)
