"""What parts of the budget find before the plan of a release, one after the other, and the release with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpdist.privacy.accounting import Loss
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.spec.job import Job
from dpdist.spec.steps.domain_selection import NameSelection


def charged_ids(job: Job) -> tuple[str, ...]:
    """The ids that the ledger charges for a release that nothing was found for yet: of all that comes before, and its own."""
    return (*(step.release for step in job.steps_to_find), job.release)


def attributes_with_private_names(job: Job) -> frozenset[str]:
    """The attributes whose names a part of the budget still selects."""
    return frozenset(step.subject for step in job.steps_to_find if isinstance(step, NameSelection))


def total_loss(job: Job, measured: Loss) -> Loss:
    """What a release and all that is found for it lose together."""
    return sum((step.loss for step, _ in job.found_steps), measured)


def preprocessing_facts(job: Job) -> dict[str, Any]:
    """What a certificate says of all that was found: of what there may be several of, lists."""
    collected_facts: dict[str, Any] = {}
    for step, published_numbers in job.found_steps:
        for name, facts in step.facts(job, published_numbers).items():
            collected_facts[name] = [*collected_facts.get(name, []), *facts] if isinstance(facts, list) else facts
    return collected_facts


def preprocessing_tables(job: Job) -> dict[str, Mapping[str, Sequence[Any]]]:
    """The columns of the tables that are published of all that was found, by their files."""
    tables: dict[str, Mapping[str, Sequence[Any]]] = {}
    for step, published_numbers in job.found_steps:
        if published_numbers is not None:
            tables |= step.tables(published_numbers)
    return tables


def prepare_job(context: Context, job: Job) -> Job:
    """The release with what was found for it, or with placeholders: as many names as there can be, or the largest bound."""
    while (step := job.next_step) is not None:
        receipt = context.ledger.receipt(step.release)
        if receipt is None or receipt.state != "committed" or receipt.spec_digest != step.binding:
            job = job.with_placeholder
        else:
            job = step.job_with_stored(context.store, committed_measurement(context.store, receipt))
    return job
