"""The state that an event leads to. Nothing is checked here: ``decide`` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.receipts import Publication, Receipt
from dpdist.privacy.ledger.rules.ledger_state import Account, Approval, DataSet, LedgerEvent, LedgerRow, State
from dpdist.privacy.ledger.serialization import cap_of, protection_of, receipt_of


def apply(state: State, written: LedgerRow) -> State:
    """The state after a row."""
    event = written.event
    if event.kind == "reserved":
        return _reserved(state, written)
    if event.kind in _BESIDE_RELEASES:
        return _BESIDE_RELEASES[event.kind](state, event)
    assert state.release is not None
    return _moved(state, event, state.release)


def _declared(state: State, event: LedgerEvent) -> State:
    facts = event.facts
    return state._replace(dataset=DataSet(cap_of(facts["cap"]), protection_of(facts["protection"]), 1, facts["run"]))


def _capped(state: State, event: LedgerEvent) -> State:
    assert state.dataset is not None
    cap, run = cap_of(event.facts["cap"]), event.facts["run"]
    return state._replace(dataset=replace(state.dataset, cap=cap, run=run, caps=state.dataset.caps + 1))


def _named(state: State, event: LedgerEvent) -> State:
    assert state.dataset is not None
    named = replace(state.dataset, approvers=Approvers.of(event.facts), named=state.dataset.named + 1)
    return state._replace(dataset=named)


def _approved(state: State, event: LedgerEvent) -> State:
    approval = Approval(event.dataset, event.facts["spec"], event.facts["key"])
    return state._replace(approvals=(*state.approvals, approval))


def _signer(state: State, event: LedgerEvent) -> State:
    return state._replace(signers=(*state.signers, event.facts["key"]))


def _published(state: State, event: LedgerEvent) -> State:
    return state._replace(publications=(*state.publications, Publication.of(event.facts)))


_BESIDE_RELEASES: Mapping[str, Callable[[State, LedgerEvent], State]] = {
    "declared": _declared,
    "capped": _capped,
    "approvers": _named,
    "approved": _approved,
    "signer": _signer,
    "published": _published,
}
"""What happens to data sets, and what is said of a release without moving it."""


def _reserved(state: State, written: LedgerRow) -> State:
    assert state.dataset is not None
    event, account = written.event, state.account
    receipt = receipt_of(event.release, event.dataset, event.attempt, written.sequence, written.digest, event.facts)
    rule = account.rule or state.dataset.cap.rule_for(receipt.loss)
    charged = Account(rule, account.spent + receipt.loss, account.releases + 1)
    stream = state.stream.add_release(receipt) if receipt.stream_part else state.stream
    return state._replace(release=receipt, account=charged, stream=stream)


def _moved(state: State, event: LedgerEvent, receipt: Receipt) -> State:
    """The next step of a release, which is the last of its stream if it is a part of one and runs."""
    if event.kind == "drawing":
        moved = replace(receipt, state="drawing")
    elif event.kind == "committed":
        moved = replace(receipt, state="committed", measurement_digest=event.facts["measurement_digest"], salt=None)
    else:
        moved = replace(receipt, state="aborted", salt=None)
    account, stream = state.account, state.stream.update_release(moved) if receipt.stream_part else state.stream
    if event.kind == "aborted":
        account = Account(account.rule, account.spent - receipt.loss, account.releases - 1)
    return state._replace(release=moved, account=account, stream=stream)
