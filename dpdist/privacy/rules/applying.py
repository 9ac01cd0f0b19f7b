"""The state that an event leads to. Nothing is checked here: ``decide`` has."""

from __future__ import annotations

from dataclasses import replace

from dpdist.privacy.approvals import Approvers
from dpdist.privacy.facts import cap_of, protection_of, receipt_of
from dpdist.privacy.receipts import Receipt
from dpdist.privacy.rules.state import Account, Approval, DataSet, Event, State, Stream, Written


def apply(state: State, written: Written) -> State:
    """The state after a row."""
    event = written.event
    if event.kind == "declared":
        return replace(state, dataset=_declared(event))
    if event.kind == "capped":
        assert state.dataset is not None
        cap, run = cap_of(event.facts["cap"]), event.facts["run"]
        return replace(state, dataset=replace(state.dataset, cap=cap, run=run, caps=state.dataset.caps + 1))
    if event.kind == "approvers":
        assert state.dataset is not None
        named = replace(state.dataset, approvers=Approvers.of(event.facts), named=state.dataset.named + 1)
        return replace(state, dataset=named)
    if event.kind == "approved":
        approval = Approval(event.dataset, event.facts["spec"], event.facts["key"])
        return replace(state, approvals=(*state.approvals, approval))
    if event.kind == "reserved":
        return _reserved(state, written)
    assert state.release is not None
    return _moved(state, event, state.release)


def _declared(event: Event) -> DataSet:
    facts = event.facts
    return DataSet(cap_of(facts["cap"]), protection_of(facts["protection"]), 1, facts["run"])


def _reserved(state: State, written: Written) -> State:
    assert state.dataset is not None
    event, account = written.event, state.account
    receipt = receipt_of(event.release, event.dataset, event.attempt, written.sequence, written.digest, event.facts)
    rule = account.rule or state.dataset.cap.rule_for(receipt.loss)
    charged = Account(rule, account.spent + receipt.loss, account.releases + 1)
    stream = state.stream if receipt.part is None else Stream.after(state.stream, receipt)
    return replace(state, release=receipt, account=charged, stream=stream)


def _moved(state: State, event: Event, receipt: Receipt) -> State:
    """The next step of a release, which is the last of its stream if it is a part of one and runs."""
    if event.kind == "drawing":
        moved = replace(receipt, state="drawing")
    elif event.kind == "committed":
        moved = replace(receipt, state="committed", measurement_digest=event.facts["measurement_digest"], salt=None)
    else:
        moved = replace(receipt, state="aborted", salt=None)
    account, stream = state.account, state.stream
    if stream is not None and receipt.part is not None:
        stream = stream.before if event.kind == "aborted" else replace(stream, last=moved)
    if event.kind == "aborted":
        account = Account(account.rule, account.spent - receipt.loss, account.releases - 1)
    return replace(state, release=moved, account=account, stream=stream)
