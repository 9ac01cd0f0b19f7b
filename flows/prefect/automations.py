"""Automations of a Prefect server that mark runs as crashed when their heartbeat stops."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

TAG = "dpdist"
"""On every deployment: automations match the runs that have it."""
SILENT_SECONDS = 180
"""How long a run that sent heartbeats may be silent before it is taken for dead: three heartbeats and more."""
HEARTBEATS = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "45"}
"""What makes a run send heartbeats; seconds between them."""
STARTING_SECONDS = 900
"""How long a run may be pending: an image may have to be pulled."""
ENDED = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended")
"""States of runs that no process has; a suspended one waits for approvals."""


def zombie_automations(
    prefix: str, *, silent_seconds: float = SILENT_SECONDS, starting_seconds: float = STARTING_SECONDS
) -> list[AutomationCore]:
    """Two automations: for runs that stopped sending heartbeats, and for runs that never began. Their descriptions mark them."""
    runs = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
    tagged = ResourceSpecification({"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"})
    ended = {f"prefect.flow-run.{state}" for state in ENDED}
    automations = []
    for name, after, expected, seconds in (
        # a run that is killed as soon as it runs never sent a heartbeat: its state alone has to start the clock
        ("runs that went silent", {"Running", "heartbeat"}, "heartbeat", silent_seconds),
        ("runs that never began", {"Pending"}, "Running", starting_seconds),
    ):
        trigger = EventTrigger(
            match=runs,
            match_related=tagged,
            after={f"prefect.flow-run.{event}" for event in after},
            expect={f"prefect.flow-run.{expected}", *ended},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=seconds),
        )
        message = f"{name} for {seconds:g} s: its process is taken for dead; the next run goes on where it stopped"
        crash = ChangeFlowRunState(name=None, state=StateType.CRASHED, message=message, force=False)
        core = AutomationCore(name=f"{_named(prefix)}: {name}", trigger=trigger, actions=[crash], tags=[TAG])
        automations.append(core.model_copy(update={"description": f"{_installation_note(prefix)}; form {_digest(core)}"}))
    return automations


def belongs_to_installation(automation: AutomationCore, prefix: str) -> bool:
    """Whether registering made an automation for this installation, under whatever name and in whatever version."""
    return TAG in automation.tags and automation.description.startswith(_installation_note(prefix))


def _named(prefix: str) -> str:
    return f"{prefix} dpdist" if prefix else "dpdist"


def _installation_note(prefix: str) -> str:
    return f"made by deploy/register.py of installation {prefix!r}, which replaces it when a new version has another"


def _digest(automation: AutomationCore) -> str:
    """Of all that is sent to the server; sets in a fixed order."""
    return hashlib.sha256(json.dumps(_ordered(automation.model_dump(mode="json")), sort_keys=True).encode()).hexdigest()[:16]


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(inner) for key, inner in value.items()}
    return sorted((_ordered(inner) for inner in value), key=str) if isinstance(value, list) else value
