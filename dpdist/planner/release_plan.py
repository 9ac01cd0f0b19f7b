"""The plan of a release: strategy, measurement, noise and predicted errors, from the spec alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpdist.engine import Engine
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.measurement.integer_measurement import IntegerMeasurement, Norm
from dpdist.mechanisms.comparison import best_strategy, candidates, compared_mechanisms, minimax_mechanism, planned_effort
from dpdist.mechanisms.mechanism_registry import REGISTRY, mechanism_of
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import name_person_strategy
from dpdist.operators import Matrix
from dpdist.planner import memory_estimate
from dpdist.planner.answer_rounding import answer_rounding
from dpdist.planner.derived_statistics import check_means, reason_unpublished
from dpdist.planner.measurement_plan import (
    IntegerPlan,
    adjust_table_to_persons,
    column_norm,
    has_few_cells,
    skips_cell_estimate,
)
from dpdist.planner.noise_selection import NoiseChoice, choose_noise
from dpdist.planner.preprocessing_steps import prepare_job
from dpdist.planner.release_joining import release_joining
from dpdist.planner.release_kinds import ReleasePlan, StreamPlan
from dpdist.planner.strategy_search import MEMORY_CURE, Planning, lower_bound, lower_bound_bytes, plan_strategy
from dpdist.privacy.noise_distributions import SCALE_LIMIT, Kind
from dpdist.process.durable_files import private_files
from dpdist.reconstruction.answer_fitting import answer_fitting
from dpdist.reconstruction.joint_estimate import JOINT_CELLS
from dpdist.runtime.context import Context
from dpdist.spec import Job
from dpdist.stability import ONE_RECORD
from dpdist.strategies import Strategy
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.group_optimum import cells_bound
from dpdist.workloads import integer_basis


@private_files()
def plan(context: Context, job: Job) -> ReleasePlan:
    """Strategy, measurement, noise scale and predicted errors; touches no record and no budget.

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
    former_plan = None if former_job is None else plan(context, former_job).with_mechanism(chosen_option.strategy.name)
    kind = StreamPlan if job.guarantee.release_mode.grows else ReleasePlan
    planned = kind(**vars(chosen_option), job=job, options=options, noise_choice=noise_choice, former_plan=former_plan)
    planned = replace(planned, effort=replace(chosen_option.effort, memory_bytes=largest))
    check_memory(planned, context.engine)
    return planned


def check_memory(planned: ReleasePlan, engine: Engine) -> None:
    """Accept a plan of which every stage fits the workers of an engine. Raises: OutOfMemory."""
    memory_estimate.check(stage_memory(planned, engine), MEMORY_CURE)


def plan_as_charged(context: Context, job: Job) -> ReleasePlan:
    """The plan of a release as the ledger knows it: what it was charged for stays what it is measured by."""
    return plan(context, job).as_charged(context)


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
            _check_fit(job, design.strategy, design.measurement)
            check_means(job.workload, design.measurement)
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
    if workload.kind.is_long and not (names and all(mechanism_of(name).supports_out_of_core for name in names)):
        able_mechanisms = " or ".join(repr(name) for name, mechanism in REGISTRY.items() if mechanism.supports_out_of_core)
        raise InvalidInput(
            f"filters and formulas over more than {long:,} steps or cells are answered by mechanism {able_mechanisms} with Gaussian noise, "
            f"found {repr(names[0]) if names else 'Laplace noise'}; set 'mechanism: auto' and a budget with delta or rho, or merge steps"
        )
    if not names:
        raise InvalidInput(
            "no mechanism that answers these queries is within 'limits': raise them, or name one as 'mechanism'"
        )
    measurement_of = _measurements(job)
    compared = _strategies_for_fit(job, _planned_strategies(context, job, names, norm), measurement_of)
    names = tuple(strategy.name for strategy in compared)
    bound_bytes = lower_bound_bytes(workload, norm, compared)
    Planning(context).check_memory("the bound that no strategy can beat", bound_bytes)
    lower = lower_bound(context, workload, norm, compared)
    reaches = _reaches(job, compared, measurement_of)
    strategy = (
        compared[names.index(minimax_mechanism(names))]
        if job_workload.objective == "worst"
        else _best_strategy(
            compared, reaches, lambda candidate: reason_unpublished(measurement_of(candidate), measured.domain.shape) is None
        )
    )
    measurement = measurement_of(strategy)
    budget_loss = guarantee.budget.loss_with(norm)
    noise = measurement.noise(budget_loss)
    table = candidates(compared, workload, lower)
    persons = _persons(context, job, compared) if reaches else None
    if reaches:
        table = adjust_table_to_persons(table, strategy, reaches, persons, job.moved.records)
    effort = planned_effort(workload, names)
    effort = replace(effort, memory_bytes=max(effort.memory_bytes, bound_bytes))
    design = IntegerPlan(
        strategy,
        table,
        effort,
        measurement,
        noise,
        measurement.loss(budget_loss, noise),
        tuple(compared),
        measured.domain.scale,
        persons,
    )
    return design.with_integer_costs(context, workload)


SPARED_BYTES = 2**26
"""What planning a mechanism takes at most so that it is never left out: every worker has as much."""


def _planned_strategies(context: Context, job: Job, names: Sequence[str], norm: Norm) -> list[Strategy]:
    """The strategies that are compared, in their order, without those that cannot be better than one before them and take more memory.

    A strategy whose cost reaches a lower bound is as good as any. What is left out follows from that proof and from what planning takes
    by the workload alone, so that every machine compares the same, and one that has memory for the optimum is not refused for the rest.
    """
    queries, planned = job.workload.queries, list[Strategy]()
    proof_decides = job.workload.objective != "worst" and not job.outputs.fits_estimate and _costs_decide(job)
    for name in names:
        proven = [mechanism_of(each.name) for each in planned if each.gap <= EQUALLY_GOOD] if proof_decides else []
        needed_bytes = mechanism_of(name).planning_bytes(queries)
        if not proven or needed_bytes <= max(SPARED_BYTES, *(each.planning_bytes(queries) for each in proven)):
            planned.append(plan_strategy(context, job, name, norm))
    return planned


def _mechanism_names(job: Job, norm: Norm) -> tuple[str, ...]:
    """The mechanisms that are compared. The largest error is made least for single records, whatever persons are."""
    job_workload, setting = job.workload, job.setting
    if job_workload.objective == "worst":
        setting = replace(setting, moved=ONE_RECORD)
    return compared_mechanisms(job_workload.mechanism, norm, job_workload.queries, job_workload.limits, setting)


def _strategies_for_fit(
    job: Job, compared: list[Strategy], measurement_of: Callable[[Strategy], IntegerMeasurement]
) -> list[Strategy]:
    """The strategies of which one estimate can be made, where post-processing needs it; all where none can, and the plan says so."""
    if len(compared) == 1 or not job.outputs.fits_estimate:
        return compared
    options, queries = job.outputs.postprocess, job.workload.queries
    measurements = [(strategy, measurement_of(strategy)) for strategy in compared]
    jointly, cells = bool(options.consistent_with), queries.shape[1]
    jointly_estimable = [
        strategy for strategy, measurement in measurements if measurement.allows_estimate(cells, jointly=jointly)
    ]
    if jointly_estimable and has_few_cells(queries):
        return jointly_estimable
    return (
        [
            strategy
            for strategy, measurement in measurements
            if skips_cell_estimate(measurement, queries, options) and not strategy.biased
        ]
        or jointly_estimable
        or compared
    )


def _reaches(
    job: Job, compared: Sequence[Strategy], measurement_of: Callable[[Strategy], IntegerMeasurement]
) -> dict[str, float]:
    """How far one change moves what each strategy measures, over how far one record does, where it moves more than one cell."""
    if _costs_decide(job):
        return {}
    measurements = ((strategy, measurement_of(strategy)) for strategy in compared)
    return {
        strategy.name: measurement.sensitivity / column_norm(strategy, measurement) for strategy, measurement in measurements
    }


def _costs_decide(job: Job) -> bool:
    """Whether one change moves one cell, as the costs of strategies take for granted."""
    moved = job.moved
    of_one_cell = Optimality(job.workload.queries, moved).of_one_cell
    return moved.participations is None and not job.measured.has_bounded_total and of_one_cell


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
    if not proofs and moved.groups > 1 and not moved.signed and job.measured.domain.whole_records and queries.kind.is_cells:
        proofs.append(cells_bound(queries, moved))
    grows = not proofs and job.guarantee.release_mode.grows and job.setting.has_several_contributions
    finders = (mechanism.find_persons_bound(queries) for mechanism in REGISTRY.values()) if grows else iter(())
    find_bound = next(filter(None, finders), None)
    if find_bound is not None:
        work = Planning(context)

        def find() -> tuple[Matrix, dict[str, Any]]:
            work.show_message("bounding the optimum for persons")
            bound = work.run_on_largest_worker(find_bound, queries, moved)
            return bound.numbers, bound.facts()

        numbers, facts = work.get_or_compute(name_person_strategy(queries, "chain", moved, "bounds"), find)
        proofs.append(PersonsBound.of(facts, numbers))
    return max(proofs, key=lambda candidate: candidate.lower_bound, default=None)


def stage_memory(planned: ReleasePlan, engine: Engine) -> list[memory_estimate.StageMemory]:
    """What every stage of a planned release takes."""
    outputs, rounding, joining = planned.job.outputs, answer_rounding(planned.job), release_joining(planned.job)
    skips_estimate = skips_cell_estimate(planned.measurement, planned.workload, outputs.postprocess)
    stages = memory_estimate.memory_plan(
        planned.workload,
        planned.measurement,
        planned.layout,
        planned.effort,
        engine,
        fitted=outputs.fits_estimate and not skips_estimate,
        by_tables=skips_estimate,
        joining_bytes=0 if joining is None else joining.working_bytes(planned),
        fitting=answer_fitting(outputs.postprocess.non_negative),
        rounding_bytes=0 if rounding is None else rounding.working_bytes(planned),
        delivered=bool(outputs.output.to),
    )
    found = [(step.purpose, step.task_bytes(engine)) for step, _ in planned.job.found_steps]
    return [*(memory_estimate.StageMemory(name, size, engine.task_bytes, True) for name, size in found if size), *stages]


def _measurements(job: Job) -> Callable[[Strategy], IntegerMeasurement]:
    """The measurement of a strategy, made once, for its sensitivity takes seconds over many cells; kept for the object, not for a name."""
    measurements_by_id: dict[int, tuple[Strategy, IntegerMeasurement]] = {}

    def measurement_of(strategy: Strategy) -> IntegerMeasurement:
        if id(strategy) not in measurements_by_id:
            measurements_by_id[id(strategy)] = strategy, strategy.measurement_for(job.workload.queries, job.moved)
        return measurements_by_id[id(strategy)][1]

    return measurement_of


def _check_fit(job: Job, strategy: Strategy, measurement: IntegerMeasurement) -> None:
    """Post-processing that the strategy cannot have, refused before anything is charged."""
    if not job.outputs.fits_estimate:
        return
    options, queries = job.outputs.postprocess, job.workload.queries
    cells = queries.shape[1]
    rounding = answer_rounding(job)
    if rounding is not None and strategy.consistent:
        rounding.check_known_counts(job)
    if skips_cell_estimate(measurement, queries, options) and not strategy.biased:
        return
    if options.consistent_with and cells > JOINT_CELLS and not options.known and measurement.row_blocks() is not None:
        return  # ``ReleaseJoining.companions`` joins tables part by part, or refuses before the charge
    if not measurement.allows_estimate(cells, jointly=bool(options.consistent_with)):
        limit_text = (
            f" over more than {JOINT_CELLS:,} cells" if measurement.row_blocks() is not None and cells > JOINT_CELLS else ""
        )
        raise InvalidInput(
            f"'non_negative', 'consistent_with' and 'known' counts of some records need one unbiased estimate, which mechanism "
            f"{strategy.name!r} does not make{limit_text}; set 'mechanism: coa' or 'identity'"
        )
    basis = integer_basis(queries)
    for block in job.outputs.known_blocks:
        basis.coordinates_of(block)
