"""The stage before the plan of a release with private categories: names are selected, under a charge and a key of their own.

It is drawn as the measurement is (``measure.drawn_once``, law 1). The selected names are kept for the
release, beside the measurements, so that every repeat gets the same. The names of the records and their counts exist in the memory
of this process alone (``dpdist.records.names``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from dpdist.errors import InvalidInput, ReleaseConflict
from dpdist.grids.base import few_enough
from dpdist.machine.store import Store
from dpdist.privacy import keys
from dpdist.privacy.charges import Charge
from dpdist.privacy.distributions import GAUSSIAN
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import Receipt
from dpdist.privacy.noise import Noise
from dpdist.process.private import private_files
from dpdist.records.names import Names, names_of
from dpdist.records.sources import Source
from dpdist.release.charge import BoundRecords, charge_for
from dpdist.release.context import Context
from dpdist.release.count import check_not_empty, files_of, verify_files
from dpdist.release.ledger_and_store import check_measured, check_pair, committed_measurement
from dpdist.release.measure import drawn_once
from dpdist.release.private_names import NameSelection, kept_form, selection_of, with_kept
from dpdist.spec import Job


def charge_of_selection(
    selecting: NameSelection, root: Secret | None, source: Source | None, counted: Names | None
) -> Charge:
    """What the ledger is asked for; without the names, what can be said before they are counted."""
    bound = None
    if root is not None and source is not None and counted is not None:
        bound = BoundRecords(root, source, counted.digest)
    return charge_for(selecting.job, selecting.release, selecting.rule.loss, selecting.binding, bound)


def check_selection(context: Context, selecting: NameSelection, measured: Charge) -> None:
    """Ask the ledger whether it would charge the selection and then the measurement, or has.

    Raises: LedgerError, InvalidInput, StoreError.
    """
    ledger = context.ledger
    approvers = ledger.approvers(selecting.job.guarantee.dataset)
    if approvers is not None and approvers.needed:
        raise InvalidInput(
            "approvers sign a spec before its names are known: a data set that needs approvals goes without 'categories: private'"
        )
    receipt = ledger.receipt(selecting.release)
    check_measured(context.store, receipt, selecting.release)
    ledger.rehearse(charge_of_selection(selecting, None, None, None))
    if receipt is None or receipt.state == "aborted":
        ledger.rehearse(replace(measured, loss=measured.loss + selecting.rule.loss))


@private_files()
def selected(context: Context, job: Job) -> Job:
    """The release over the names that are selected for it; drawn once, however often this is called.

    Raises: BudgetExceeded, ReleaseConflict, KeyUnavailable, InvalidInput for more records than a release counts: before the charge;
        InvalidInput when no name is frequent enough.
    """
    selecting = selection_of(job)
    if selecting is None:
        return job
    root, source = keys.load(context.home), files_of(context, job.source)
    check_pair(context.store, context.ledger)
    known = context.ledger.receipt(selecting.release)
    check_measured(context.store, known, selecting.release)
    if known is not None and known.state == "committed":
        _check_same(selecting, known, root, source)
        return with_kept(selecting, context.store, committed_measurement(context.store, known))
    domain = job.measured.domain
    counted = names_of(source, domain, selecting.attribute, selecting.left_out, selecting.names.selection.candidates)
    check_not_empty(job.source, counted.read)
    # the measurement would refuse them after the charge
    few_enough(counted.read * domain.shares_per_record, domain.shares_per_record, domain.max_abs_shares)
    verify_files(context, job.source)
    charge = charge_of_selection(selecting, root, source, counted)
    stored, _ = drawn_once(context, charge, root, counted.digest, partial(_write, context.store, selecting, counted))
    return with_kept(selecting, context.store, stored)


def _check_same(selecting: NameSelection, known: Receipt, root: Secret, source: Source) -> None:
    """A committed selection is of this rule and of these files. Raises: ReleaseConflict."""
    if known.spec_digest != selecting.binding:
        raise ReleaseConflict(selecting.release, "spec")
    if known.is_of(BoundRecords(root, source, "").records(selecting.job.guarantee, selecting.release)) is False:
        raise ReleaseConflict(selecting.release, "set of records")


def _write(store: Store, selecting: NameSelection, counted: Names, name: str, key: Secret, facts: dict[str, Any]) -> bool:
    """Draw the noise of exact counts of names, and keep the names that it selects. They are not read back here."""
    noise = Noise(GAUSSIAN, selecting.rule.scale)
    chosen = selecting.rule.chosen(counted.counts, lambda count: noise.draw(key.reveal(), count=count))
    content = kept_form([counted.names[number] for number in chosen.tolist()])
    store.put_if_absent(name, content, {"noise": noise.kind, "scale": noise.scale, **facts})
    return False
