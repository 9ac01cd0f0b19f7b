"""What is found before the plan of a release, one after the other, and the release with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.planner.bound_selection import GroupsChoice, LeftOutMeasurement, RangeChoice, RecordsChoice
from dpdist.planner.budgeted_step import Preliminary
from dpdist.planner.domain_selection import EdgesChoice, NameSelection, QuantileChoice
from dpdist.privacy.accounting import Loss
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.spec.job import Job
from dpdist.spec.preprocessing_budget import (
    AskedQuantiles,
    FoundEdges,
    FoundFirst,
    GroupsBound,
    LeftOut,
    PrivateNames,
    RangeBound,
    RecordsBound,
)

MADE: dict[type[FoundFirst], type[Preliminary]] = {
    PrivateNames: NameSelection,
    FoundEdges: EdgesChoice,
    RecordsBound: RecordsChoice,
    GroupsBound: GroupsChoice,
    RangeBound: RangeChoice,
    LeftOut: LeftOutMeasurement,
    AskedQuantiles: QuantileChoice,
}
"""How each is found."""


def preliminary_of(job: Job) -> Preliminary | None:
    """What a part of the budget finds next; None where nothing is left to be found."""
    asked = job.guarantee.names
    if not isinstance(asked, FoundFirst):
        return None
    part, _ = asked.parts(job.guarantee.budget)
    return MADE[type(asked)].planned(job, asked, part)


def still_to_find(job: Job) -> list[Preliminary]:
    """What parts of the budget find for a release, in order, each with placeholders for what is found before it."""
    before = preliminary_of(job)
    return [] if before is None else [before, *still_to_find(job.with_found(None))]


def charged_for(job: Job) -> tuple[str, ...]:
    """The ids that the ledger charges for a release that nothing was found for yet: of all that comes before, and its own."""
    return (*(before.release for before in still_to_find(job)), job.release)


def attributes_with_private_names(job: Job) -> frozenset[str]:
    """The attributes whose names a part of the budget still selects."""
    asked = job.guarantee.names
    if not isinstance(asked, FoundFirst):
        return frozenset()
    own = {asked.of} if isinstance(asked, PrivateNames) else set()
    return frozenset(own) | attributes_with_private_names(job.with_found(None))


def found_before(job: Job) -> list[tuple[Preliminary, Mapping[str, Any] | None]]:
    """What a release was prepared with, in order, with the numbers of each that are published; None for placeholders."""
    made = ((preliminary_of(each.declared), each.found) for each in job.guarantee.found)
    return [(before, found) for before, found in made if before is not None]


def whole_loss(job: Job, measured: Loss) -> Loss:
    """What a release and all that is found for it lose together."""
    return sum((before.loss for before, _ in found_before(job)), measured)


def facts_before(job: Job) -> dict[str, Any]:
    """What a certificate says of all that was found: of what there may be several of, lists."""
    told: dict[str, Any] = {}
    for before, found in found_before(job):
        for name, facts in before.facts(job, found).items():
            told[name] = [*told.get(name, []), *facts] if isinstance(facts, list) else facts
    return told


def prepared(context: Context, job: Job) -> Job:
    """The release with what was found for it, or with placeholders: as many names as there can be, or the largest bound."""
    while (before := preliminary_of(job)) is not None:
        receipt = context.ledger.receipt(before.release)
        if receipt is None or receipt.state != "committed" or receipt.spec_digest != before.binding:
            job = job.with_found(None)
        else:
            job = before.with_kept(context.store, committed_measurement(context.store, receipt))
    return job
