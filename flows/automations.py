"""Automations of a Prefect server that mark runs as crashed when their heartbeat stops."""

from __future__ import annotations

from datetime import timedelta

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

TAG = "dpdist"
"""On every deployment: automations match the runs that have it."""
SILENT_SECONDS = 180
"""How long a run that sent heartbeats may be silent before it is taken for dead: three heartbeats (deploy/prefect.yaml) and more."""
STARTING_SECONDS = 900
"""How long a run may be pending: an image may have to be pulled."""
ENDED = ("Completed", "Failed", "Cancelled", "Crashed")


def zombies(prefix: str, *, silent: float = SILENT_SECONDS, starting: float = STARTING_SECONDS) -> list[AutomationCore]:
    """Two automations: for runs that stopped sending heartbeats, and for runs that never began."""
    runs = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
    tagged = ResourceSpecification({"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"})
    ended = {f"prefect.flow-run.{state}" for state in ENDED}
    named = f"{prefix} dpdist" if prefix else "dpdist"
    out = []
    for name, after, expected, within in (
        # a run that is killed as soon as it runs never sent a heartbeat: its state alone has to start the clock
        ("runs that went silent", {"Running", "heartbeat"}, "heartbeat", silent),
        ("runs that never began", {"Pending"}, "Running", starting),
    ):
        trigger = EventTrigger(
            match=runs,
            match_related=tagged,
            after={f"prefect.flow-run.{event}" for event in after},
            expect={f"prefect.flow-run.{expected}", *ended},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=within),
        )
        message = f"{name} for {within:g} s: its process is taken for dead; the next run goes on where it stopped"
        crash = ChangeFlowRunState(name=None, state=StateType.CRASHED, message=message, force=False)
        out.append(AutomationCore(name=f"{named}: {name}", trigger=trigger, actions=[crash], tags=[TAG]))
    return out
