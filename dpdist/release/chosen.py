"""What is found before the plan of a release, and the release with it."""

from __future__ import annotations

from dpdist.release.context import Context
from dpdist.release.ledger_and_store import committed_measurement
from dpdist.release.left_out import measured_of
from dpdist.release.preliminary import Preliminary
from dpdist.release.private_bound import choice_of
from dpdist.release.private_names import selection_of
from dpdist.release.quantiles import quantiles_of
from dpdist.spec.job import Job


def preliminary_of(job: Job) -> Preliminary | None:
    """What a part of the budget finds before the plan; None where everything is declared."""
    return selection_of(job) or choice_of(job) or measured_of(job) or quantiles_of(job)


def prepared(context: Context, job: Job) -> Job:
    """The release with what was found for it, or with placeholders: as many names as there can be, or the largest bound."""
    before = preliminary_of(job)
    if before is None:
        return job
    receipt = context.ledger.receipt(before.release)
    if receipt is None or receipt.state != "committed" or receipt.spec_digest != before.binding:
        return job.with_found(None)
    return before.with_kept(context.store, committed_measurement(context.store, receipt))
