"""The work pool of dpdist's deployments, with a closed job template: whoever starts a run chooses neither its command nor its environment.

This keeps apart nobody who holds Prefect's login, with which templates, too, are written. The wall is a service that alone holds the
root key (``dpdist.plugins.service``).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import VariableCreate, VariableUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import Variable
from prefect.exceptions import ObjectNotFound
from prefect.workers.utilities import get_default_base_job_template_for_infrastructure_type

from dpdist.errors import InvalidInput
from flows.prefect.automations import HEARTBEATS, TAG

CLOSED = {
    "command": "command",
    "args": "command",
    "env": "env",
    "envFrom": "env",
    "working_dir": "working_dir",
    "workingDir": "working_dir",
    "image": "image",
}
"""Keys of a job template (of processes, and of a Kubernetes manifest) that decide what runs, and the job variable that fills each."""
VARIABLES = frozenset(CLOSED.values())
_FREE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_OF_VARIABLE = re.compile(r"\{\{\s*(" + "|".join(sorted(VARIABLES)) + r")\s*\}\}")


def given_to_jobs(deployments: list[dict[str, Any]]) -> dict[str, Any]:
    """What the deployments of a file say of closed job variables: it is fixed in the template of their pool, for all alike.

    Runs send heartbeats, whether or not the file says so: one that sends none is marked as crashed (``flows.prefect.automations``).

    Raises: InvalidInput when two of them differ.
    """
    fixed: dict[str, Any] = {}
    for deployment in deployments:
        variables = (deployment.get("work_pool") or {}).get("job_variables") or {}
        for name in VARIABLES & variables.keys():
            if fixed.setdefault(name, variables[name]) != variables[name]:
                raise InvalidInput(
                    f"deployment {deployment['name']!r} gives another job variable {name!r} than one before it; it is fixed in the pool's "
                    "job template: give all deployments the same, or register them in pools of their own"
                )
    return {**fixed, "env": {**HEARTBEATS, **(fixed.get("env") or {})}}


def close_template(template: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """A job template whose command, environment, folder and image no run can choose; the rest stays as it is."""
    closed_copy = dict(template)
    if "job_configuration" in closed_copy:
        closed_copy["job_configuration"] = _close_node(closed_copy["job_configuration"], fixed)
    variables = closed_copy.get("variables")
    if isinstance(variables, dict) and isinstance(variables.get("properties"), dict):
        open_variables = {name: facts for name, facts in variables["properties"].items() if name not in VARIABLES}
        required = {
            key: [name for name in value if name not in VARIABLES] for key, value in variables.items() if key == "required"
        }
        closed_copy["variables"] = {**variables, "properties": open_variables, **required}
    return closed_copy


def _close_node(node: Any, fixed: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_close_node(item, fixed) for item in node]
    if not isinstance(node, dict):
        return node
    closed_node = {}
    for key, value in node.items():
        free = _OF_VARIABLE if isinstance(value, str) and key not in CLOSED else _FREE
        if (key in CLOSED or isinstance(value, str)) and (placeholder := free.search(json.dumps(value))) is not None:
            if (variable := CLOSED.get(key) or placeholder[1]) in fixed:
                closed_node[key] = fixed[variable]
            continue
        closed_node[key] = _close_node(value, fixed)
    return closed_node


def register_pool(
    client: SyncPrefectClient, name: str, *, kind: str, limit: int | None, fixed: Mapping[str, Any]
) -> list[str]:
    """Make the pool, or close its job template again where somebody opened it; whatever else operators changed there stays.

    Raises: InvalidInput for a pool of another type.
    """
    memory = "dpdist_registered_pool_" + re.sub("[^a-z0-9]+", "_", name.lower())
    now = digest(fixed)
    remembered = client.read_variable_by_name(memory)
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        template = asyncio.run(get_default_base_job_template_for_infrastructure_type(kind)) or {}
        client.create_work_pool(
            WorkPoolCreate(name=name, type=kind, base_job_template=close_template(template, fixed), concurrency_limit=limit)
        )
        messages = [f"created work pool {name!r}"]
    else:
        if pool.type != kind:
            raise InvalidInput(
                f"the work pool {name!r} is of type {pool.type!r}, asked for was {kind!r}; give --type {pool.type}, or another --pool"
            )
        changed = remembered is not None and remembered.value != now
        messages = _close_again(client, name, pool.base_job_template, fixed if changed else {}, fixed)
    remember(client, memory, remembered, now)
    return messages


def digest(value: Any) -> str:
    """What tells a part of a file from another one."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def remember(client: SyncPrefectClient, name: str, remembered: Variable | None, now: Any) -> None:
    """Note what a file says now, where something else was kept of it."""
    if remembered is None:
        client.create_variable(VariableCreate(name=name, value=now, tags=[TAG]))
    elif remembered.value != now:
        client.update_variable(VariableUpdate(name=name, value=now))


def _close_again(
    client: SyncPrefectClient, name: str, before: dict[str, Any], changed: Mapping[str, Any], fixed: Mapping[str, Any]
) -> list[str]:
    """Write the template where it is open, or where the file says something else than before."""
    after = close_template(before, fixed)
    opened = after != before
    if changed and isinstance(after.get("job_configuration"), dict):
        after["job_configuration"] = {**after["job_configuration"], **changed}
    if after == before:
        return []
    client.update_work_pool(name, WorkPoolUpdate(base_job_template=after))
    if opened:
        return [f"closed the job template of work pool {name!r}: runs could choose their command, environment or folder"]
    return [f"changed the job template of work pool {name!r}: {', '.join(sorted(changed))}"]
