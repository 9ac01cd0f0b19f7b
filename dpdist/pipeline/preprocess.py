"""What comes before the plan: names and bounds are found by parts of the budget, one after the other, each under its own charge and key.

It is drawn as the measurement is (``measure.drawn_once``, law 1). What was found is kept for the release, beside the measurements, so
that every repeat gets the same. What is counted of the records for it exists in the memory of this process alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from dpdist.counting.histogram_counting import summary_of
from dpdist.counting.person_histograms import RecordsInParts, steps_of_amounts
from dpdist.errors import InvalidInput, ReleaseConflict
from dpdist.measurement.integer_measurement import MOST_RECORDS, few_enough
from dpdist.pipeline.continual_release import BoundRecords, charge_for
from dpdist.pipeline.histogram import check_missing, check_not_empty, files_of, verify_files
from dpdist.pipeline.measure import drawn_once
from dpdist.planner.budgeted_step import PlannedErrors, PredictedErrors, Preliminary, PreliminaryCount, written
from dpdist.planner.error_prediction import standard_errors
from dpdist.planner.preprocessing_steps import attributes_with_private_names, found_before, preliminary_of, still_to_find
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import Receipt
from dpdist.privacy.ledger.charges import Charge
from dpdist.process.durable_files import private_files
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import check_measured, check_pair, committed_measurement
from dpdist.sources.record_sources import Source
from dpdist.spec import Job
from dpdist.storage.array_store import Store


def charge_before(
    before: Preliminary, root: Secret | None, source: Source | None, counted: PreliminaryCount | None
) -> Charge:
    """What the ledger is asked for; without what was counted, what can be said before that."""
    bound = None
    if root is not None and source is not None and counted is not None:
        bound = BoundRecords(root, source, counted.digest)
    return charge_for(before.job, before.release, before.loss, before.binding, bound)


def check_before(context: Context, job: Job, measured: Charge) -> None:
    """Ask the ledger whether it would charge all that comes before, and then the measurement, or has.

    Raises: LedgerError, InvalidInput, StoreError.
    """
    ledger, stages = context.ledger, found_before(job)
    approvers = ledger.approvers(job.guarantee.dataset)
    if approvers is not None and approvers.needed and not all(before.asked.beside for before, _ in stages):
        raise InvalidInput(
            "approvers sign what is released, and names, edges and bounds that a part of the budget finds are not known before: a data "
            "set that needs approvals goes without 'private' ones"
        )
    receipts = [ledger.receipt(before.release) for before, _ in stages]
    open_ones = [
        before for (before, _), known in zip(stages, receipts, strict=True) if known is None or known.state == "aborted"
    ]
    ledger.rehearse(replace(measured, loss=sum((before.loss for before in open_ones), measured.loss)))
    for (before, _), known in zip(stages, receipts, strict=True):
        check_measured(context.store, known, before.release)
        ledger.rehearse(charge_before(before, None, None, None))


def check_missing_ahead(context: Context, job: Job, release: str) -> None:
    """Accept records of which few are missing or outside the domain, before what is found first is charged. Raises: MissingRecords."""
    if job.source.records.most_missing == 1:
        return
    domain, names = job.measured.domain, attributes_with_private_names(job)
    known = tuple(attribute for attribute in domain.attributes if attribute.name not in names)
    if any(attribute.amounts is None for attribute in known):
        counted = replace(domain, attributes=known, tables=())
        check_missing(context, job, release, summary_of(files_of(context, job.source), counted, context.engine))


@private_files()
def selected(context: Context, job: Job) -> Job:
    """The release with all that is found for it; each is drawn once, however often this is called.

    Raises: BudgetExceeded, ReleaseConflict, KeyUnavailable, InvalidInput for more records than a release counts: before the charge;
        InvalidInput when no name is frequent enough.
    """
    checked = False
    while (before := preliminary_of(job)) is not None:
        known = context.ledger.receipt(before.release)
        if not checked and (known is None or known.state != "committed"):
            _check_later(context, job)
            checked = True
        job = _with_next(context, job, before)
    return job


def _check_later(context: Context, job: Job) -> None:
    """Refuse now what a later reading of the records would refuse, when something was charged. Raises: DpdistError."""
    records = read_by(context, job)
    for later in still_to_find(job)[1:]:
        later.check_later(records)


def _with_next(context: Context, job: Job, before: Preliminary) -> Job:
    """The release with what is found next."""
    root, source = keys.load(context.home), files_of(context, job.source)
    check_pair(context.store, context.ledger)
    known = context.ledger.receipt(before.release)
    check_measured(context.store, known, before.release)
    if known is not None and known.state == "committed":
        _check_same(before, known, root, source)
        return before.with_kept(context.store, committed_measurement(context.store, known))
    if not job.guarantee.found:  # at what is charged first
        check_missing_ahead(context, job, before.release)
    domain = job.measured.domain
    errors = before.errors(partial(planned_errors, context, before))
    counted = before.counted(read_by(context, job))
    check_not_empty(job.source, counted.read)
    # the measurement would refuse them after the charge
    few_enough(counted.read * domain.shares_per_record, domain.shares_per_record, domain.max_abs_shares)
    steps = counted.read * domain.shares_per_record
    if domain.sums_alone and steps > MOST_RECORDS and plan(context, job).grid.adds_up_steps:
        bounds_known = all(each.asked.beside for each in still_to_find(job))
        few_enough(steps_of_amounts(read_by(context, job), bounded=bounds_known), of="steps of all amounts")
    verify_files(context, job.source)
    charge = charge_before(before, root, source, counted)
    write = partial(_write, context.store, before, counted, errors)
    stored, _ = drawn_once(context, charge, root, counted.digest, write)
    return before.with_kept(context.store, stored)


def read_by(context: Context, job: Job) -> RecordsInParts:
    """The records of a release, to be read before its plan."""
    complete = tuple(column for each in still_to_find(job) for column in each.complete)
    return RecordsInParts(files_of(context, job.source), job.measured.domain, context.store, context.engine, complete)


def planned_errors(context: Context, before: Preliminary, bound: int) -> PlannedErrors:
    """The errors of the release with a bound that may be chosen. Raises: InvalidInput where nobody knows them."""
    planned = plan(context, before.job.with_found(bound))
    if not math.isfinite(planned.variance):
        raise InvalidInput(
            f"the errors of mechanism {planned.strategy.name!r} depend on the records, and a 'private' bound is chosen by predicted ones: "
            "choose another mechanism, or give a number"
        )
    return PlannedErrors(planned.job, planned.variance, partial(standard_errors, planned))


def _check_same(before: Preliminary, known: Receipt, root: Secret, source: Source) -> None:
    """What was committed is of this rule and of these files. Raises: ReleaseConflict."""
    if known.spec_digest != before.binding:
        raise ReleaseConflict(before.release, "spec")
    if known.is_of(BoundRecords(root, source, "").records(before.job.guarantee, before.release)) is False:
        raise ReleaseConflict(before.release, "set of records")


def _write(
    store: Store,
    before: Preliminary,
    counted: Any,
    errors: PredictedErrors | None,
    name: str,
    key: Secret,
    facts: dict[str, Any],
) -> bool:
    """Draw the noise, and keep what is found. It is not read back here."""
    store.put_if_absent(name, written(before.kept(counted, key.reveal(), errors)), {**before.drawn, **facts})
    return False
