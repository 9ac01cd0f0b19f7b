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
from dpdist.privacy.charges import Charge, budget_period
from dpdist.privacy.distributions import GAUSSIAN
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import Ledger, Receipt
from dpdist.privacy.noise import Noise
from dpdist.process.private import private_files
from dpdist.records.names import Names, names_of
from dpdist.release.charge import counted, records_of
from dpdist.release.context import Context, book
from dpdist.release.count import check_not_empty, source_of, verify_source
from dpdist.release.ledger_and_store import check_measured, check_pair, committed_measurement
from dpdist.release.measure import drawn_once
from dpdist.release.private_names import Stage, kept_form, stage_of, with_kept
from dpdist.spec import ReleaseSpec


def charge_of_stage(stage: Stage, root: Secret | None, names: Names | None) -> Charge:
    """What the ledger is asked for; without the names, what can be said before they are counted."""
    spec = stage.spec
    return Charge(
        release=stage.release,
        dataset=spec.ledger.dataset,
        loss=stage.rule.loss,
        cap=spec.ledger.cap.cap,
        protection=spec.protection,
        spec_digest=stage.binding,
        asked=spec.digest,
        counted=None if root is None or names is None else counted(root, spec, names.digest, stage.release),
        period=budget_period(spec.ledger.cap.cap.per, spec.period),
        shared=spec.ledger.shared_records,
    )


def check_stage(context: Context, ledger: Ledger, stage: Stage, measured: Charge) -> None:
    """Ask the ledger whether it would charge the selection and then the measurement, or has.

    Raises: LedgerError, InvalidInput, StoreError.
    """
    approvers = ledger.approvers(stage.spec.ledger.dataset)
    if approvers is not None and approvers.needed:
        raise InvalidInput(
            "approvers sign a spec before its names are known: a data set that needs approvals goes without 'categories: private'"
        )
    receipt = ledger.receipt(stage.release)
    check_measured(context.store, receipt, stage.release)
    ledger.rehearse(charge_of_stage(stage, None, None))
    if receipt is None or receipt.state == "aborted":
        ledger.rehearse(replace(measured, loss=measured.loss + stage.rule.loss))


@private_files()
def selected(context: Context, spec: ReleaseSpec) -> ReleaseSpec:
    """The spec over the names that are selected for it; drawn once, however often this is called.

    Raises: BudgetExceeded, ReleaseConflict, KeyUnavailable, InvalidInput for more records than a release counts: before the charge;
        InvalidInput when no name is frequent enough.
    """
    stage = stage_of(spec)
    if stage is None:
        return spec
    root, source = keys.load(context.home), source_of(context, spec)
    with book(context) as ledger:
        check_pair(context.store, ledger)
        known = ledger.receipt(stage.release)
        check_measured(context.store, known, stage.release)
        if known is not None and known.state == "committed":
            _check_same(stage, known, root)
            return with_kept(stage, context.store, committed_measurement(context.store, known))
        names = names_of(source, spec.attributes, stage.attribute, stage.left_out, stage.candidates)
        check_not_empty(spec, names.read)
        shares = spec.attributes.shares_per_record
        few_enough(
            names.read * shares, shares, spec.attributes.max_abs_shares
        )  # the measurement would refuse them after the charge
        verify_source(context, spec)
        charge = charge_of_stage(stage, root, names)
        stored, _ = drawn_once(context, ledger, charge, root, names.digest, partial(_write, context.store, stage, names))
    return with_kept(stage, context.store, stored)


def _check_same(stage: Stage, known: Receipt, root: Secret) -> None:
    """A committed selection is of this rule and of these files. Raises: ReleaseConflict."""
    if known.spec_digest != stage.binding:
        raise ReleaseConflict(stage.release, "spec")
    if known.is_of(records_of(root, stage.spec, "", stage.release)) is False:
        raise ReleaseConflict(stage.release, "set of records")


def _write(store: Store, stage: Stage, names: Names, name: str, key: Secret, facts: dict[str, Any]) -> bool:
    """Draw the noise of exact counts of names, and keep the names that it selects. They are not read back here."""
    noise = Noise(GAUSSIAN, stage.rule.scale)
    chosen = stage.rule.chosen(names.counts, lambda count: noise.draw(key.reveal(), count=count))
    content = kept_form([names.names[number] for number in chosen.tolist()])
    store.put_if_absent(name, content, {"noise": noise.kind, "scale": noise.scale, **facts})
    return False
