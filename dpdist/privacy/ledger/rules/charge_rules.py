"""The rules of a charge: what an id is bound to, what a release costs, what a stream may go on with, whose records may be charged."""

from __future__ import annotations

from fractions import Fraction

from dpdist.errors import ApprovalsMissing, BudgetExceeded, LedgerError, ReleaseConflict
from dpdist.privacy.accounting import NOTHING, Cap, Loss
from dpdist.privacy.ledger.charges import Charge, StreamPart, price_of_extension
from dpdist.privacy.ledger.receipts import OF_RECORDS, Receipt
from dpdist.privacy.ledger.rules.ledger_commands import Declare, Reserve
from dpdist.privacy.ledger.rules.ledger_state import Account, DataSet, LedgerEvent, State
from dpdist.privacy.ledger.serialization import cap_facts
from dpdist.privacy.privacy_unit import ProtectedPersons, Protection


def reserve(state: State, command: Reserve) -> tuple[LedgerEvent, ...]:
    """The charge of a release, after the declaration of its data set if it is the first; nothing if it is charged already."""
    charge, earlier_receipt = command.charge, state.release
    if earlier_receipt is not None and earlier_receipt.state != "aborted":
        check_same(earlier_receipt, command)
        return ()
    declaration, dataset = _declaration(state.dataset, command)
    check_period(charge, dataset.cap)
    loss = _amount_due(state, charge, dataset.protection)
    check_standing(state, charge)
    check_approved(state, dataset, charge)
    check_fits(state.account, dataset.cap, charge, loss)
    attempt = 1 if earlier_receipt is None else earlier_receipt.attempt + 1
    return (*declaration, LedgerEvent("reserved", charge.dataset, charge.release, attempt, _facts(command, loss)))


def declaration_event(command: Declare) -> LedgerEvent:
    """The row that declares a data set's cap. Raises: LedgerError when limits that stand in a row are not those of the cap."""
    if not command.cap.limits_hold():
        raise LedgerError(f"the limits that a row gives the cap of {command.dataset!r} are not those of {command.cap}")
    facts = {
        "cap": cap_facts(command.cap),
        "protection": command.protection.facts(),
        "run": command.run,
        "ledger": command.name,
    }
    return LedgerEvent("declared", command.dataset, f"budget of {command.dataset}", 1, facts)


def _facts(command: Reserve, loss: Loss) -> dict[str, object]:
    charge = command.charge
    return {
        "period": charge.period,
        "loss": loss.facts,
        "own": charge.loss.facts,
        "protection": charge.protection.facts(),
        "spec_digest": charge.spec_digest,
        "histogram_commitment": command.commitment,
        "records": command.records,
        "run": command.run,
        "salt": command.salt,
        "asked": charge.approval_digest,
        **({"shared": True} if charge.allows_shared_records else {}),
        **({"part": charge.stream_part.facts()} if charge.stream_part else {}),
    }


def _declaration(declared_dataset: DataSet | None, command: Reserve) -> tuple[tuple[LedgerEvent, ...], DataSet]:
    """The data set, with the limits that the ledger keeps, after the row that declares it if there is none yet."""
    charge = command.charge
    if declared_dataset is None:
        cap = charge.cap.with_limits()
        declaration = declaration_event(Declare(charge.dataset, cap, charge.protection, command.run, command.name))
        return (declaration,), DataSet(cap, charge.protection, 1, command.run)
    if declared_dataset.cap != charge.cap:
        raise LedgerError(
            f"data set {charge.dataset!r} was declared with the budget {declared_dataset.cap}, the spec says {charge.cap}; a cap is a "
            "promise to the "
            "people in the data and does not change with a spec: correct the spec, or say why with 'dpdist ledger cap "
            f"{charge.dataset} --why ...'"
        )
    return (), declared_dataset


def check_same(receipt: Receipt, command: Reserve) -> None:
    """A release that is charged is asked for again as it was. Raises: ReleaseConflict."""
    charge = command.charge
    for subject, have, want in (
        ("data set", receipt.dataset, charge.dataset),
        ("budget period", receipt.period, charge.period),
        ("spec", receipt.spec_digest, charge.spec_digest),
        ("unit of protection", receipt.protection, charge.protection),
        ("budget", _amounts(receipt.own_loss), _amounts(charge.loss)),
        ("steps of its stream", receipt.stream_part, charge.stream_part),
    ):
        if have != want:
            raise ReleaseConflict(charge.release, subject)
    if charge.counted is None:
        return
    if receipt.runs:
        if receipt.histogram_commitment != command.commitment:
            raise ReleaseConflict(charge.release, OF_RECORDS[0])
    elif receipt.has_counted(charge.counted.records) is False:
        raise ReleaseConflict(charge.release, OF_RECORDS[1])


def _amounts(loss: Loss) -> tuple[Fraction, Fraction, Fraction]:
    """What tells two losses apart. The slack follows from the grid, which the spec's digest is of."""
    return loss.rho, loss.pure, loss.failure


def check_period(charge: Charge, cap: Cap) -> None:
    """A charge is to a budget period that its cap has. Raises: LedgerError."""
    if (cap.per == "total") != (charge.period == "total"):
        raise LedgerError(f"release {charge.release!r} is charged to {charge.period!r}, which is no period of the cap {cap}")


def _amount_due(state: State, charge: Charge, protection: Protection) -> Loss:
    """What a release is charged: its loss for the change that the cap protects; a part of a stream what is not yet paid of it."""
    steps = charge.protection.steps_to(protection)
    if steps is None:
        raise LedgerError(_explain_uncovered(charge, protection))
    whole = charge.loss.for_group(steps)
    if charge.stream_part:
        return _amount_due_of_part(state, charge, charge.stream_part, whole)
    if whole.nothing:
        raise LedgerError(f"release {charge.release!r} is charged nothing, and is no part of a stream that was paid for")
    return whole


def _amount_due_of_part(state: State, charge: Charge, stream_part: StreamPart, whole: Loss) -> Loss:
    """The whole loss, or nothing where its budget period has paid for the stream.

    The first part after an extension of the horizon is charged what the longer stream reveals beyond what was paid.

    Raises: LedgerError unless the part goes on where the last one, committed, ended, with the same mechanism.
    """
    stream, last_receipt = state.stream, state.stream.last_receipt
    if last_receipt and last_receipt.stream_part:
        if last_receipt.state != "committed":
            raise LedgerError(
                f"stream {stream_part.stream!r}: release {last_receipt.release!r} is not finished; run it again first"
            )
        if last_receipt.stream_part.digest != (stream_part.extends or stream_part.digest):
            raise LedgerError(
                f"stream {stream_part.stream!r}: release {last_receipt.release!r} was measured in another way; domain, filter, budget and "
                "neighbours stay the same from the first release to the last, and only the end of the domain may be extended, with "
                "'extended_from': correct the spec, or begin another stream"
            )
    if stream_part.start != stream.stop or stream_part.stop <= stream_part.start:
        raise LedgerError(
            f"stream {stream_part.stream!r} was released up to step {stream.stop}, the next release measures from there on; asked for were "
            f"steps {stream_part.start} to {stream_part.stop}"
        )
    unpaid = sorted({*stream_part.reaches} - stream.paid - {charge.period})
    if unpaid and not charge.allows_shared_records:
        raise LedgerError(
            f"stream {stream_part.stream!r}: the release measures steps of period {unpaid[0]}, whose budget has not paid for it: "
            "release them "
            f"first, with a 'period' of {unpaid[0]}; or, if no other release counts their records, set 'ledger: shared_records: true'"
        )
    if stream_part.extends is not None:
        due = price_of_extension(whole, stream.spent) if last_receipt else None
        if due is None or stream_part.extends == stream_part.digest or charge.period != "total":
            raise LedgerError(
                f"stream {stream_part.stream!r} can be extended once it has begun, by more steps, and under a cap on all releases together "
                "('per: total'); this is no such extension: correct the spec, or begin another stream"
            )
        return due
    return NOTHING if charge.period in stream.paid else whole


def check_standing(state: State, charge: Charge) -> None:
    """A cap covers all releases of the same records: they may not stand under another name, nor in another period of its caps.

    A stream is charged in every period that it is released in, and may read its past. Raises: LedgerError.
    """
    for standing in state.standing:
        another = standing.dataset != charge.dataset
        if not charge.allows_shared_records and (another or (not charge.stream_part and standing.period != charge.period)):
            records = None if charge.counted is None else charge.counted.records
            named = {} if records is None else dict(zip(records.files, records.names, strict=False))
            if records is not None and standing.commitment == records.content:
                conflict = "the same counts as this release's were measured"
            else:
                conflict = f"{named.get(standing.commitment, 'a file of these records')} was counted"
            if another:
                raise LedgerError(
                    f"{conflict} by {standing.release!r} of data set {standing.dataset!r}: a cap covers all releases of the same records; "
                    f"charge 'ledger: dataset: {standing.dataset}', or, if two caps are meant, set 'ledger: shared_records: true'"
                )
            raise LedgerError(
                f"{conflict} in period {standing.period} by {standing.release!r}: a budget per {charge.cap.per} is for records of one "
                f"{charge.cap.per} only; give the records of {charge.period}, or, if these are meant, set 'ledger: shared_records: true'"
            )


def check_approved(state: State, dataset: DataSet, charge: Charge) -> None:
    """A release has the approvals that its data set asks for. Raises: ApprovalsMissing."""
    approvers = dataset.approvers
    if not approvers.required_count:
        return
    signed = state.signed(charge.dataset, charge.approval_digest)
    approval_count = approvers.count(signed)
    if approval_count < approvers.required_count:
        waiting = tuple(f"{key[:8]}..." for key in approvers.keys if key not in signed)
        raise ApprovalsMissing(charge.release, approvers.required_count, approval_count, waiting)


def check_fits(account: Account, cap: Cap, charge: Charge, loss: Loss) -> None:
    """The account stays within the cap. Raises: BudgetExceeded, LedgerError for the part that selections of names have of the delta."""
    if loss.nothing:
        return
    rule, together = account.rule or cap.rule_for(loss), account.spent + loss
    if cap.allows(together, rule):
        return
    if loss.failure and together.failure > cap.selection:
        raise LedgerError(
            f"the selection of names for {charge.release.partition('~')[0]!r} needs a delta of {float(charge.loss.failure):g}; of "
            f"the {float(cap.selection):g} that the cap of {charge.dataset!r} sets aside for them {float(account.spent.failure):g} is "
            f"spent: lower the selection's delta, or give the cap more with 'dpdist ledger cap {charge.dataset} --selection ... --why ...'"
        )
    requested, remaining, delta = cap.requested_and_remaining(loss, account.spent, rule)
    raise BudgetExceeded(charge.dataset, requested, remaining, cap.written, delta)


def _explain_uncovered(charge: Charge, protection: Protection) -> str:
    """Why a loss for one change says nothing of another."""
    charge_protection = charge.protection
    if (
        isinstance(charge_protection, ProtectedPersons)
        and isinstance(protection, ProtectedPersons)
        and charge_protection.differs_in_type(protection)
    ):
        return (
            f"release {charge.release!r} tells persons apart as {charge_protection.value_type}, the cap of {charge.dataset!r} as "
            f"{protection.value_type}: one person of the cap may be several here; set 'records.person.type: {protection.type}', or "
            "declare another data set"
        )
    return (
        f"release {charge.release!r} protects {charge_protection.unit} ({charge_protection.sentence}), the cap of {charge.dataset!r} "
        f"protects {protection.unit} ({protection.sentence}), and no number of the first changes is sure to make the second: give the "
        "release the cap's neighbours, person column and kind of records, or another data set with a cap of its own"
    )
