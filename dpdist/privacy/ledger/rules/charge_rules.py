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
    charge, known = command.charge, state.release
    if known is not None and known.state != "aborted":
        check_same(known, command)
        return ()
    first, dataset = _declaration(state.dataset, command)
    check_period(charge, dataset.cap)
    loss = _due(state, charge, dataset.protection)
    check_standing(state, charge)
    check_approved(state, dataset, charge)
    check_fits(state.account, dataset.cap, charge, loss)
    attempt = 1 if known is None else known.attempt + 1
    return (*first, LedgerEvent("reserved", charge.dataset, charge.release, attempt, _facts(command, loss)))


def declared(command: Declare) -> LedgerEvent:
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
        "asked": charge.asked,
        **({"shared": True} if charge.shared else {}),
        **({"part": charge.part.facts()} if charge.part else {}),
    }


def _declaration(known: DataSet | None, command: Reserve) -> tuple[tuple[LedgerEvent, ...], DataSet]:
    """The data set, with the limits that the ledger keeps, after the row that declares it if there is none yet."""
    charge = command.charge
    if known is None:
        cap = charge.cap.with_limits()
        first = declared(Declare(charge.dataset, cap, charge.protection, command.run, command.name))
        return (first,), DataSet(cap, charge.protection, 1, command.run)
    if known.cap != charge.cap:
        raise LedgerError(
            f"data set {charge.dataset!r} was declared with the budget {known.cap}, the spec says {charge.cap}; a cap is a promise to the "
            "people in the data and does not change with a spec: correct the spec, or say why with 'dpdist ledger cap "
            f"{charge.dataset} --why ...'"
        )
    return (), known


def check_same(known: Receipt, command: Reserve) -> None:
    """A release that is charged is asked for again as it was. Raises: ReleaseConflict."""
    charge = command.charge
    for what, have, want in (
        ("data set", known.dataset, charge.dataset),
        ("budget period", known.period, charge.period),
        ("spec", known.spec_digest, charge.spec_digest),
        ("unit of protection", known.protection, charge.protection),
        ("budget", _amounts(known.own), _amounts(charge.loss)),
        ("steps of its stream", known.part, charge.part),
    ):
        if have != want:
            raise ReleaseConflict(charge.release, what)
    if charge.counted is None:
        return
    if known.runs:
        if known.histogram_commitment != command.commitment:
            raise ReleaseConflict(charge.release, OF_RECORDS[0])
    elif known.is_of(charge.counted.records) is False:
        raise ReleaseConflict(charge.release, OF_RECORDS[1])


def _amounts(loss: Loss) -> tuple[Fraction, Fraction, Fraction]:
    """What tells two losses apart. The slack follows from the grid, which the spec's digest is of."""
    return loss.rho, loss.pure, loss.failure


def check_period(charge: Charge, cap: Cap) -> None:
    """A charge is to a budget period that its cap has. Raises: LedgerError."""
    if (cap.per == "total") != (charge.period == "total"):
        raise LedgerError(f"release {charge.release!r} is charged to {charge.period!r}, which is no period of the cap {cap}")


def _due(state: State, charge: Charge, protection: Protection) -> Loss:
    """What a release is charged: its loss for the change that the cap protects; a part of a stream what is not yet paid of it."""
    steps = charge.protection.steps_to(protection)
    if steps is None:
        raise LedgerError(not_covered(charge, protection))
    whole = charge.loss.for_group(steps)
    if charge.part:
        return _due_of_part(state, charge, charge.part, whole)
    if whole.nothing:
        raise LedgerError(f"release {charge.release!r} is charged nothing, and is no part of a stream that was paid for")
    return whole


def _due_of_part(state: State, charge: Charge, part: StreamPart, whole: Loss) -> Loss:
    """The whole loss, or nothing where its budget period has paid for the stream.

    The first part after an extension of the horizon is charged what the longer stream reveals beyond what was paid.

    Raises: LedgerError unless the part goes on where the last one, committed, ended, with the same mechanism.
    """
    stream, last = state.stream, state.stream.last
    if last and last.part:
        if last.state != "committed":
            raise LedgerError(f"stream {part.stream!r}: release {last.release!r} is not finished; run it again first")
        if last.part.digest != (part.extends or part.digest):
            raise LedgerError(
                f"stream {part.stream!r}: release {last.release!r} was measured in another way; domain, filter, budget and "
                "neighbours stay the same from the first release to the last, and only the end of the domain may be extended, with "
                "'extended_from': correct the spec, or begin another stream"
            )
    if part.start != stream.stop or part.stop <= part.start:
        raise LedgerError(
            f"stream {part.stream!r} was released up to step {stream.stop}, the next release measures from there on; asked for were "
            f"steps {part.start} to {part.stop}"
        )
    unpaid = sorted({*part.reaches} - stream.paid - {charge.period})
    if unpaid and not charge.shared:
        raise LedgerError(
            f"stream {part.stream!r}: the release measures steps of period {unpaid[0]}, whose budget has not paid for it: release them "
            f"first, with a 'period' of {unpaid[0]}; or, if no other release counts their records, set 'ledger: shared_records: true'"
        )
    if part.extends is not None:
        due = price_of_extension(whole, stream.spent) if last else None
        if due is None or part.extends == part.digest or charge.period != "total":
            raise LedgerError(
                f"stream {part.stream!r} can be extended once it has begun, by more steps, and under a cap on all releases together "
                "('per: total'); this is no such extension: correct the spec, or begin another stream"
            )
        return due
    return NOTHING if charge.period in stream.paid else whole


def check_standing(state: State, charge: Charge) -> None:
    """A cap covers all releases of the same records: they may not stand under another name, nor in another period of its caps.

    A stream is charged in every period that it is released in, and may read its past. Raises: LedgerError.
    """
    for other in state.standing:
        another = other.dataset != charge.dataset
        if not charge.shared and (another or (not charge.part and other.period != charge.period)):
            records = None if charge.counted is None else charge.counted.records
            named = {} if records is None else dict(zip(records.files, records.names, strict=False))
            if records is not None and other.commitment == records.content:
                what = "the same counts as this release's were measured"
            else:
                what = f"{named.get(other.commitment, 'a file of these records')} was counted"
            if another:
                raise LedgerError(
                    f"{what} by {other.release!r} of data set {other.dataset!r}: a cap covers all releases of the same records; "
                    f"charge 'ledger: dataset: {other.dataset}', or, if two caps are meant, set 'ledger: shared_records: true'"
                )
            raise LedgerError(
                f"{what} in period {other.period} by {other.release!r}: a budget per {charge.cap.per} is for records of one "
                f"{charge.cap.per} only; give the records of {charge.period}, or, if these are meant, set 'ledger: shared_records: true'"
            )


def check_approved(state: State, dataset: DataSet, charge: Charge) -> None:
    """A release has the approvals that its data set asks for. Raises: ApprovalsMissing."""
    approvers = dataset.approvers
    if not approvers.needed:
        return
    signed = state.signed(charge.dataset, charge.asked)
    found = approvers.count(signed)
    if found < approvers.needed:
        waiting = tuple(f"{key[:8]}..." for key in approvers.keys if key not in signed)
        raise ApprovalsMissing(charge.release, approvers.needed, found, waiting)


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
    asked, left, delta = cap.asked_and_left(loss, account.spent, rule)
    raise BudgetExceeded(charge.dataset, asked, left, cap.written, delta)


def not_covered(charge: Charge, protection: Protection) -> str:
    """Why a loss for one change says nothing of another."""
    own = charge.protection
    if isinstance(own, ProtectedPersons) and isinstance(protection, ProtectedPersons) and own.differs_in_type(protection):
        return (
            f"release {charge.release!r} tells persons apart as {own.told_apart}, the cap of {charge.dataset!r} as "
            f"{protection.told_apart}: one person of the cap may be several here; set 'records.person.type: {protection.type}', or "
            "declare another data set"
        )
    return (
        f"release {charge.release!r} protects {own.unit} ({own.sentence}), the cap of {charge.dataset!r} "
        f"protects {protection.unit} ({protection.sentence}), and no number of the first changes is sure to make the second: give the "
        "release the cap's neighbours, person column and kind of records, or another data set with a cap of its own"
    )
