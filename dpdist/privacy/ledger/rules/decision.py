"""What a command leads to: events, none if it was done before, or a refusal (an error, in which case nothing happens)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpdist.errors import LedgerError, ReleaseConflict
from dpdist.privacy.ledger.approvals import is_signed
from dpdist.privacy.ledger.receipts import Receipt
from dpdist.privacy.ledger.rules import ledger_commands
from dpdist.privacy.ledger.rules.charge_rules import declaration_event, reserve
from dpdist.privacy.ledger.rules.ledger_state import LedgerEvent, State
from dpdist.privacy.ledger.serialization import cap_facts
from dpdist.privacy.signatures import HEXADECIMAL

SIGNERS = "signers of certificates"
"""What rows that name a signer have in place of a release: no release can have this name."""


def decide(state: State, command: ledger_commands.Command) -> tuple[LedgerEvent, ...]:
    """The events that a command leads to, in their order; none for one that was done before.

    Raises: LedgerError and its kinds when a rule of the ledger refuses the command.
    """
    return _RULES[type(command)](state, command)


def require_state(receipt: Receipt | None, release: str, attempt: int, binding: str, states: Iterable[str]) -> Receipt:
    """The receipt of an attempt in one of some states. Raises: LedgerError, also when another attempt has replaced it."""
    if receipt is not None and (receipt.attempt, receipt.binding) != (attempt, binding):
        raise LedgerError(
            f"release {release!r}: the charge that this run reserved (attempt {attempt}) was given back, and the id was reserved "
            f"again (attempt {receipt.attempt}): this run draws and publishes nothing; only the newer one goes on"
        )
    if receipt is None or receipt.state not in states:
        state = "not charged" if receipt is None else receipt.state
        raise LedgerError(f"release {release!r} is {state}; this step needs {' or '.join(states)}")
    return receipt


def _begin(state: State, command: ledger_commands.BeginDrawing) -> tuple[LedgerEvent, ...]:
    states = ("reserved", "drawing", "committed")
    receipt = require_state(state.release, command.release, command.attempt, command.binding, states)
    return (_stage_event(receipt, "drawing"),) if receipt.state == "reserved" else ()


def _commit(state: State, command: ledger_commands.Commit) -> tuple[LedgerEvent, ...]:
    receipt = require_state(state.release, command.release, command.attempt, command.binding, ("drawing", "committed"))
    if receipt.state == "drawing":
        return (_stage_event(receipt, "committed", measurement_digest=command.measurement),)
    if receipt.measurement_digest != command.measurement:
        raise ReleaseConflict(command.release, "measurement")
    return ()


def _abort(state: State, command: ledger_commands.Abort) -> tuple[LedgerEvent, ...]:
    receipt = state.release
    if receipt is None or receipt.state not in ("reserved", "aborted"):
        stage = "unknown" if receipt is None else receipt.state
        raise LedgerError(
            f"release {command.release!r} is {stage}: only a reserved release, of which nothing was drawn, can be aborted"
        )
    return (_stage_event(receipt, "aborted"),) if receipt.state == "reserved" else ()


def _stage_event(receipt: Receipt, kind: str, **facts: str) -> LedgerEvent:
    return LedgerEvent(kind, receipt.dataset, receipt.release, receipt.attempt, facts)


def _declare(state: State, command: ledger_commands.Declare) -> tuple[LedgerEvent, ...]:
    declared_dataset = state.dataset
    if declared_dataset is None:
        return (declaration_event(command),)
    if (declared_dataset.cap, declared_dataset.protection) != (command.cap, command.protection):
        raise LedgerError(
            f"data set {command.dataset!r} was declared with the budget {declared_dataset.cap}, protecting "
            f"{declared_dataset.protection.sentence}: change it "
            f"with 'dpdist ledger cap {command.dataset} --why ...', or declare another data set"
        )
    return ()


def _change_cap(state: State, command: ledger_commands.ChangeCap) -> tuple[LedgerEvent, ...]:
    dataset, declared_dataset, new_cap = command.dataset, state.dataset, command.cap
    if not command.reason.strip():
        raise LedgerError("a cap is a promise to the people in the data: say why it changes, with --why")
    if declared_dataset is None:
        raise LedgerError(
            f"data set {dataset!r} has no cap yet: its first release declares it, with 'ledger: cap:' of its spec"
        )
    for rule in ("exact", "zcdp"):
        new_cap.limit_by(rule)  # refuses an (epsilon, delta) that buys nothing, which no listing could show
    if new_cap.per != declared_dataset.cap.per:
        raise LedgerError(
            f"the cap of {dataset!r} is {declared_dataset.cap}: charges stand in its periods, which do not change; keep "
            f"'per {declared_dataset.cap.per}', or declare another data set"
        )
    if new_cap == declared_dataset.cap and declared_dataset.run == command.run:
        return ()  # the answer of the first try got lost
    if new_cap == declared_dataset.cap:
        raise LedgerError(f"the cap of {dataset!r} is already {new_cap}: nothing was changed")
    if not new_cap.limits_hold() or not command.changed_by:
        raise LedgerError(f"the limits that a row gives the cap of {dataset!r} are not those of {new_cap}")
    facts = {"cap": cap_facts(new_cap), "why": command.reason, "who": command.changed_by, "run": command.run}
    return (LedgerEvent("capped", dataset, f"budget of {dataset}", declared_dataset.caps + 1, facts),)


def _name_approvers(state: State, command: ledger_commands.NameApprovers) -> tuple[LedgerEvent, ...]:
    dataset, approvers = command.dataset, command.approvers
    if not command.reason.strip() or not command.changed_by:
        raise LedgerError("approvals are a promise to the people in the data: say why they change, with --why")
    if state.dataset is None:
        raise LedgerError(f"data set {dataset!r} has no cap yet: declare it first, with 'dpdist ledger declare SPEC'")
    if state.dataset.named and state.dataset.approvers == approvers:
        return ()  # the answer of the first try got lost, or nothing changes
    facts = {
        "keys": list(approvers.keys),
        "needed": approvers.required_count,
        "why": command.reason,
        "who": command.changed_by,
    }
    return (LedgerEvent("approvers", dataset, f"approvers of {dataset}", state.dataset.named + 1, facts),)


def _approve(state: State, command: ledger_commands.Approve) -> tuple[LedgerEvent, ...]:
    dataset, key = command.dataset, command.key
    if state.dataset is None or not state.dataset.approvers.required_count:
        raise LedgerError(
            f"releases of {dataset!r} need no approval; its ledger's owner can ask for some with 'dpdist ledger approvers'"
        )
    if key not in state.dataset.approvers.keys:
        raise LedgerError(f"the key {key} is no approver's of {dataset!r}; its owner names them: 'dpdist ledger approvers'")
    facts = {"spec": command.spec, "key": key, "signature": command.signature}
    if not is_signed(facts, dataset, command.release):
        raise LedgerError(
            f"the signature of {command.release!r} is not of the key {key}, data set, release and spec: sign it again"
        )
    if key in state.signed(dataset, command.spec):
        return ()
    return (LedgerEvent("approved", dataset, command.release, len(state.approvals) + 1, facts),)


def _name_signer(state: State, command: ledger_commands.NameSigner) -> tuple[LedgerEvent, ...]:
    if not HEXADECIMAL.fullmatch(command.key):
        raise LedgerError(
            "a signer is named by its public key, 64 hexadecimal digits, as 'dpdist keys public --hex' prints it"
        )
    if command.key in state.signers:
        return ()
    return (LedgerEvent("signer", "", SIGNERS, len(state.signers) + 1, {"key": command.key}),)


def _publish(state: State, command: ledger_commands.Publish) -> tuple[LedgerEvent, ...]:
    receipt, publication = state.release, command.publication
    if receipt is None or receipt.state != "committed":
        stage = "not charged" if receipt is None else receipt.state
        raise LedgerError(f"release {command.release!r} is {stage}: only a committed release is published")
    if not HEXADECIMAL.fullmatch(publication.certificate) or not publication.location:
        raise LedgerError(
            f"release {command.release!r}: a publication names the SHA-256 digest of release.json, and its place"
        )
    if publication in state.publications:
        return ()
    signer = _name_signer(state, ledger_commands.NameSigner(publication.key))
    number = len(state.publications) + 1
    return (*signer, LedgerEvent("published", receipt.dataset, receipt.release, number, publication.facts()))


_RULES: Mapping[type, Callable[[State, Any], tuple[LedgerEvent, ...]]] = {
    ledger_commands.Reserve: reserve,
    ledger_commands.BeginDrawing: _begin,
    ledger_commands.Commit: _commit,
    ledger_commands.Abort: _abort,
    ledger_commands.Declare: _declare,
    ledger_commands.ChangeCap: _change_cap,
    ledger_commands.NameApprovers: _name_approvers,
    ledger_commands.Approve: _approve,
    ledger_commands.NameSigner: _name_signer,
    ledger_commands.Publish: _publish,
}
