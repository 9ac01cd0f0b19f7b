"""What is found before the plan of a release, one after the other, and the release with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.planner.bound_selection import GroupsChoice, RangeChoice, RecordsChoice, TruncationLossMeasurement
from dpdist.planner.budgeted_step import BudgetedStep
from dpdist.planner.domain_selection import EdgesChoice, NameSelection, QuantileChoice
from dpdist.planner.thresholded_step import ThresholdedRows
from dpdist.privacy.accounting import Loss
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.spec.job import Job
from dpdist.spec.preprocessing_budget import (
    EdgesStep,
    GroupsBound,
    NameSelectionStep,
    PreprocessingStep,
    QuantileStep,
    RangeBound,
    RecordsBound,
    ThresholdedStep,
    TruncationLossStep,
)

STEP_CLASSES: dict[type[PreprocessingStep], type[BudgetedStep]] = {
    NameSelectionStep: NameSelection,
    EdgesStep: EdgesChoice,
    RecordsBound: RecordsChoice,
    GroupsBound: GroupsChoice,
    RangeBound: RangeChoice,
    TruncationLossStep: TruncationLossMeasurement,
    QuantileStep: QuantileChoice,
    ThresholdedStep: ThresholdedRows,
}
"""How each is found."""


def next_step(job: Job) -> BudgetedStep | None:
    """What a part of the budget finds next; None where nothing is left to be found."""
    step_spec = job.guarantee.names
    if not isinstance(step_spec, PreprocessingStep):
        return None
    step_budget, _ = step_spec.split_budget(job.guarantee.budget)
    return STEP_CLASSES[type(step_spec)].for_budget(job, step_spec, step_budget)


def still_to_find(job: Job) -> list[BudgetedStep]:
    """What parts of the budget find for a release, in order, each with placeholders for what is found before it."""
    before = next_step(job)
    return [] if before is None else [before, *still_to_find(job.with_step_result(None))]


def charged_ids(job: Job) -> tuple[str, ...]:
    """The ids that the ledger charges for a release that nothing was found for yet: of all that comes before, and its own."""
    return (*(step.release for step in still_to_find(job)), job.release)


def attributes_with_private_names(job: Job) -> frozenset[str]:
    """The attributes whose names a part of the budget still selects."""
    asked = job.guarantee.names
    if not isinstance(asked, PreprocessingStep):
        return frozenset()
    own = {asked.subject} if isinstance(asked, NameSelectionStep) else set()
    return frozenset(own) | attributes_with_private_names(job.with_step_result(None))


def finished_steps(job: Job) -> list[tuple[BudgetedStep, Mapping[str, Any] | None]]:
    """What a release was prepared with, in order, with the numbers of each that are published; None for placeholders."""
    steps = (
        (next_step(step_result.declared_job), step_result.published_numbers) for step_result in job.guarantee.step_results
    )
    return [(step, published_numbers) for step, published_numbers in steps if step is not None]


def total_loss(job: Job, measured: Loss) -> Loss:
    """What a release and all that is found for it lose together."""
    return sum((step.loss for step, _ in finished_steps(job)), measured)


def preprocessing_facts(job: Job) -> dict[str, Any]:
    """What a certificate says of all that was found: of what there may be several of, lists."""
    collected_facts: dict[str, Any] = {}
    for step, published_numbers in finished_steps(job):
        for name, facts in step.facts(job, published_numbers).items():
            collected_facts[name] = [*collected_facts.get(name, []), *facts] if isinstance(facts, list) else facts
    return collected_facts


def prepare_job(context: Context, job: Job) -> Job:
    """The release with what was found for it, or with placeholders: as many names as there can be, or the largest bound."""
    while (step := next_step(job)) is not None:
        receipt = context.ledger.receipt(step.release)
        if receipt is None or receipt.state != "committed" or receipt.spec_digest != step.binding:
            job = job.with_step_result(None)
        else:
            job = step.job_with_stored(context.store, committed_measurement(context.store, receipt))
    return job
