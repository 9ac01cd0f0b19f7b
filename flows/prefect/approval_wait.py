"""Runs that wait for somebody: suspended in Prefect's server, resumed by 'dpdist approve', 'dpdist gate' or in its UI.

A suspended run is no process: it holds no turn of its deployment or data set. Resumed, it begins anew, finds what is published, and waits
again for approvals that the ledger still misses, and for releases that are still held.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from typing import Any, NoReturn

import httpx
import prefect.runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import Abort, Pause, PrefectException
from prefect.states import Suspended
from prefect.utilities.engine import propose_state_sync

from dpdist.errors import ApprovalsMissing, DpdistError, ReleaseHeld

WAIT_SECONDS = 30 * 86400
"""How long a run may wait: Prefect fails what is resumed later. A new run of the same period then goes on."""
WaitingPeriods = Mapping[datetime.date | None, ApprovalsMissing | ReleaseHeld]
"""What each period waits for."""


def suspend(waiting: WaitingPeriods, spec_path: str) -> NoReturn:
    """Suspend the run of a deployment until nothing of it waits; its state says who has to do what.

    Raises: Pause, by which Prefect ends the process; the refusal itself where no deployment could start the run again.
    """
    refused = DpdistError("; ".join(map(str, waiting.values()))) if len(waiting) > 1 else next(iter(waiting.values()))
    if prefect.runtime.deployment.id is None:
        raise refused
    message = f"{_wait_message(waiting, spec_path)}. Then resume this run, if it was not resumed by that"
    state: State[Any] = Suspended(timeout_seconds=WAIT_SECONDS, pause_key=str(uuid.uuid4()), message=message)
    run = uuid.UUID(str(prefect.runtime.flow_run.id))
    with get_client(sync_client=True) as client:
        approval_tags = {tag(error.release) for error in waiting.values()}
        other_tags = [run_tag for run_tag in client.read_flow_run(run).tags if not run_tag.startswith(tag(""))]
        client.update_flow_run(run, tags=sorted({*other_tags, *approval_tags}))
        try:
            proposed = propose_state_sync(client, state, flow_run_id=run)
        except Abort:
            raise refused from None
    if not proposed.is_paused():  # somebody cancelled it meanwhile
        raise refused
    raise Pause(state=proposed)


def _wait_message(waiting: WaitingPeriods, spec_path: str) -> str:
    """What is waited for, and the commands that end it."""
    unapproved = {period: error for period, error in waiting.items() if isinstance(error, ApprovalsMissing)}
    sentences = [f"waits: {error}" for error in waiting.values() if isinstance(error, ReleaseHeld)]
    if unapproved:
        periods = ("" if period is None else f" --period {period}" for period in unapproved)
        commands = (f"dpdist approve {spec_path}{period} --key FILE" for period in periods)
        refusals = "; ".join(map(str, unapproved.values()))
        sentences.append(f"waits for approvals: {refusals}. To approve: {'; '.join(commands)}")
    return ". ".join(sentences)


def resume(release: str) -> list[str]:
    """Resume the runs that wait for a release's approvals, or because it is held; a line for each, or why none could be resumed."""
    try:
        with get_client(sync_client=True) as client:
            return _resumed(client, release)
    except (httpx.HTTPError, PrefectException) as error:
        return [
            f"what you said is kept, but Prefect's server could not be asked for runs that wait ({type(error).__name__}); check "
            "PREFECT_API_URL and PREFECT_API_AUTH_STRING and say it again, or resume the run in Prefect's UI"
        ]


def _resumed(client: SyncPrefectClient, release: str) -> list[str]:
    waiting = FlowRunFilter.model_validate(
        {"state": {"type": {"any_": [StateType.PAUSED]}}, "tags": {"all_": [tag(release)]}}
    )
    messages = []
    for run in client.read_flow_runs(flow_run_filter=waiting):
        answer = client.resume_flow_run(run.id)
        if answer.status == SetStateStatus.ACCEPT:
            messages.append(f"resumed Prefect's run {run.name} ({run.id})")
        else:
            messages.append(f"Prefect did not resume its run {run.name} ({run.id}); start a new run of that period")
    return messages


def tag(release: str) -> str:
    """The tag of runs that wait for somebody who approves a release."""
    return f"approval:{release}"
