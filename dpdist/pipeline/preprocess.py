"""What comes before the plan: names and bounds are found by parts of the budget, one after the other, each under its own charge and key.

It is drawn as the measurement is (``measure.draw_once``, law 1). What was found is kept for the release, beside the measurements, so
that every repeat gets the same. What is counted of the records for it exists in the memory of this process alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from dpdist.counting.histogram_counting import draft_beside, summary_of
from dpdist.counting.person_histograms import PartitionedRecords, steps_of_amounts
from dpdist.counting.person_keys import PersonKey
from dpdist.counting.record_cells import CountSummary
from dpdist.domain import Layout
from dpdist.errors import InvalidInput, ReleaseConflict
from dpdist.measurement.integer_measurement import MOST_RECORDS, check_record_limit
from dpdist.pipeline.distributed_noise import Claim
from dpdist.pipeline.histogram import check_missing, check_not_empty, digested_files, verify_files
from dpdist.pipeline.measure import draw_once
from dpdist.pipeline.release_charge import BoundRecords, build_charge
from dpdist.pipeline.sparse_noise import draw_rows
from dpdist.planner.error_prediction import standard_errors
from dpdist.planner.preprocessing_steps import attributes_with_private_names
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
from dpdist.spec.budgeted_step import BudgetedStep, CandidateErrors, PlannedErrors, StepCount, encode_values
from dpdist.spec.steps.thresholded_step import ThresholdedRows
from dpdist.storage.array_store import StoredArray


def _step_charge(step: BudgetedStep, root: Secret | None, source: Source | None, counted: StepCount | None) -> Charge:
    """What the ledger is asked for; without what was counted, what can be said before that."""
    bound = None
    if root is not None and source is not None and counted is not None:
        bound = BoundRecords(root, source, counted.digest)
    return build_charge(step.job, step.release, step.loss, step.binding, bound)


def check_steps(context: Context, job: Job, measured: Charge) -> None:
    """Ask the ledger whether it would charge all that comes before, and then the measurement, or has.

    Raises: LedgerError, InvalidInput, StoreError.
    """
    ledger, stages = context.ledger, job.found_steps
    approvers = ledger.approvers(job.guarantee.dataset)
    if approvers is not None and approvers.required_count and not all(step.is_independent for step, _ in stages):
        raise InvalidInput(
            "approvers sign what is released, and names, edges and bounds that a part of the budget finds are not known before: a data "
            "set that needs approvals goes without 'private' ones"
        )
    receipts = [ledger.receipt(step.release) for step, _ in stages]
    open_ones = [
        step
        for (step, _), step_receipt in zip(stages, receipts, strict=True)
        if step_receipt is None or step_receipt.state == "aborted"
    ]
    ledger.rehearse(replace(measured, loss=sum((step.loss for step in open_ones), measured.loss)))
    for (step, _), step_receipt in zip(stages, receipts, strict=True):
        check_measured(context.store, step_receipt, step.release)
        ledger.rehearse(_step_charge(step, None, None, None))


def _check_missing_ahead(context: Context, job: Job, release: str, summary: CountSummary | None = None) -> None:
    """Accept records of which few are missing or outside the domain, before what is found first is charged. Raises: MissingRecords.

    Args:
        summary: of a reading by the whole domain, if there was one.
    """
    if job.source.records.most_missing == 1:
        return
    domain, names = job.measured.domain, attributes_with_private_names(job)
    known = tuple(attribute for attribute in domain.attributes if attribute.name not in names)
    if any(attribute.amounts is None for attribute in known):
        counted = replace(domain, attributes=known, tables=())
        summary = summary or summary_of(digested_files(context, job.source), counted, context.engine)
        check_missing(context, job, release, summary)


@private_files()
def run_budgeted_steps(context: Context, job: Job, layout: Layout | None = None) -> Job:
    """The release with all that is found for it; each is drawn once, however often this is called.

    Args:
        layout: of the histogram of the release, where it is known already: rows of a thresholded histogram are counted together with it.
    Raises: BudgetExceeded, ReleaseConflict, KeyUnavailable, InvalidInput for more records than a release counts: before the charge;
        InvalidInput when no name is frequent enough.
    """
    checked = False
    while (step := job.next_step) is not None:
        known = context.ledger.receipt(step.release)
        if not checked and (known is None or known.state != "committed"):
            _check_later(context, job)
            checked = True
        job = _run_next_step(context, job, step, layout)
    return job


def _check_later(context: Context, job: Job) -> None:
    """Refuse now what a later reading of the records would refuse, when something was charged. Raises: DpdistError."""
    records = records_in_parts(context, job)
    for later in job.steps_to_find[1:]:
        later.check_later(records)


def _run_next_step(context: Context, job: Job, step: BudgetedStep, layout: Layout | None) -> Job:
    """The release with what is found next."""
    root, source = keys.load(context.home), digested_files(context, job.source)
    check_pair(context.store, context.ledger)
    receipt = context.ledger.receipt(step.release)
    check_measured(context.store, receipt, step.release)
    if receipt is not None and receipt.state == "committed":
        _check_same(step, receipt, root, source)
        return _job_after(context, step, committed_measurement(context.store, receipt))
    is_first = not job.guarantee.step_results  # of all that is charged
    if is_first and not isinstance(step, ThresholdedRows):
        _check_missing_ahead(context, job, step.release)
    errors = step.errors(partial(planned_errors, context, step))
    records = records_in_parts(context, job)
    if isinstance(step, ThresholdedRows) and layout is not None:
        beside = draft_beside(records.source, records.domain, context.store, context.engine, root=root, tables=layout.tables)
        records = replace(records, beside=beside)
    counted = step.count_records(records)
    try:
        if is_first and isinstance(step, ThresholdedRows):  # which comes last, and reads the records by the whole domain
            _check_missing_ahead(context, job, step.release, counted.summary)
        stored = _draw_step(context, job, step, counted, errors)
    finally:
        step.delete_scratch(counted)
    return _job_after(context, step, stored)


def _draw_step(
    context: Context, job: Job, step: BudgetedStep, counted: StepCount, errors: CandidateErrors | None
) -> StoredArray:
    """What is drawn of the records that were counted for a step; what cannot be measured is refused before the charge."""
    root, source, domain = keys.load(context.home), digested_files(context, job.source), job.measured.domain
    check_not_empty(job.source, counted.records_read)
    # the measurement would refuse them after the charge
    check_record_limit(counted.records_read * domain.shares_per_record, domain.shares_per_record, domain.max_abs_shares)
    steps = counted.records_read * domain.shares_per_record
    if domain.sums_alone and steps > MOST_RECORDS and plan(context, job).measurement.adds_up_steps:
        bounds_known = all(each.is_independent for each in job.steps_to_find)
        check_record_limit(
            steps_of_amounts(records_in_parts(context, job), bounded=bounds_known), unit_name="steps of all amounts"
        )
    verify_files(context, job.source)
    charge = _step_charge(step, root, source, counted)
    write = partial(_write, context, step, counted, errors)
    return draw_once(context, charge, root, counted.digest, write)[0]


def _job_after(context: Context, step: BudgetedStep, stored: StoredArray) -> Job:
    job: Job = step.job_with_stored(context.store, stored)
    return job


def records_in_parts(context: Context, job: Job) -> PartitionedRecords:
    """The records of a release, to be read before its plan."""
    complete = tuple(column for each in job.steps_to_find for column in each.complete)
    person_key = PersonKey(keys.commitment_key(keys.load(context.home), f"persons of {job.declared_job.release}").reveal())
    return PartitionedRecords(
        digested_files(context, job.source), job.measured.domain, context.store, context.engine, person_key, complete
    )


def planned_errors(context: Context, step: BudgetedStep, bound: int) -> PlannedErrors:
    """The errors of the release with a bound that may be chosen. Raises: InvalidInput where nobody knows them."""
    planned = plan(context, step.job.with_step_result(bound))
    if not math.isfinite(planned.variance):
        raise InvalidInput(
            f"the errors of mechanism {planned.strategy.name!r} depend on the records, and a 'private' bound is chosen by predicted ones: "
            "choose another mechanism, or give a number"
        )
    return PlannedErrors(planned.job, planned.variance, partial(standard_errors, planned))


def _check_same(step: BudgetedStep, receipt: Receipt, root: Secret, source: Source) -> None:
    """What was committed is of this rule and of these files. Raises: ReleaseConflict."""
    if receipt.spec_digest != step.binding:
        raise ReleaseConflict(step.release, "spec")
    if receipt.has_counted(BoundRecords(root, source, "").records(step.job.guarantee, step.release)) is False:
        raise ReleaseConflict(step.release, "set of records")


def _write(
    context: Context,
    step: BudgetedStep,
    counted: Any,
    errors: CandidateErrors | None,
    name: str,
    key: Secret,
    facts: dict[str, Any],
) -> bool:
    """Draw the noise, and keep what is found. It is not read back here."""
    if isinstance(step, ThresholdedRows):
        claim = Claim(step.release, facts["attempt"], facts["charge"], counted.digest)
        values = step.stored_rows(*draw_rows(context, claim, step.rule, counted, key), counted, key.reveal())
    else:
        values = step.values_to_store(counted, key.reveal(), errors)
    context.store.put_if_absent(name, encode_values(values), {**step.draw_facts, **facts})
    return False
