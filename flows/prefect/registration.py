"""Pool, limits, deployments and automations in a Prefect server, as a file says: what is there is left as operators changed it.

A field of a deployment is written when it is new or when the file says something else than when it was registered last; a digest of each
field, kept in a Prefect variable, tells. Whether a schedule is active is never changed once it exists, nor a pool's limit; of its job
template only what lets runs choose their command (``flows.prefect.work_pool``).
"""

from __future__ import annotations

import importlib
import re
import time
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from httpx import HTTPStatusError
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate, GlobalConcurrencyLimitCreate
from prefect.client.schemas.objects import ConcurrencyOptions
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.filters import AutomationFilter, AutomationFilterTags
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.process import yaml_text
from flows.prefect import prefect_settings, work_pool
from flows.prefect.automations import TAG, belongs_to_installation, zombie_automations


@dataclass(frozen=True)
class Registration:
    """What is registered.

    Attributes:
        file: a prefect.yaml.
        pool: the work pool that its deployments run in.
        kind: the pool's type.
        pool_limit: runs at a time in the pool, where the pool is new.
        datasets: each gets a limit of one release at a time.
        prefix: before the names of deployments, limits and automations, so that two installations share a server.
    """

    file: Path
    pool: str = "dpdist"
    kind: str = "process"
    pool_limit: int | None = None
    datasets: tuple[str, ...] = ()
    prefix: str = ""


def wait_for_server(client: SyncPrefectClient, seconds: float) -> None:
    """Until the server answers and takes the credentials. Raises: InvalidInput."""
    deadline = time.monotonic() + seconds
    while (error := client.api_healthcheck()) is not None:
        if time.monotonic() > deadline:
            raise InvalidInput(
                f"no Prefect server answers at {_shown(client)} after {seconds:g} s ({type(error).__name__}); check PREFECT_API_URL"
            )
        time.sleep(1)
    try:
        client.read_work_pools(limit=1)
    except HTTPStatusError as refused:
        if refused.response.status_code not in (401, 403):
            raise
        raise InvalidInput(
            f"the Prefect server at {_shown(client)} does not take these credentials (HTTP {refused.response.status_code}); set "
            "PREFECT_API_AUTH_STRING (user:password) or PREFECT_API_KEY"
        ) from None


def register(client: SyncPrefectClient, registration: Registration) -> list[str]:
    """Create what is absent and change what the file changed. Returns what was done, a line each; nothing the second time.

    Raises: InvalidInput for a pool of another type or a file that cannot be registered.
    """
    changes: list[str] = []
    try:
        content, _ = yaml_text.read(registration.file, exact=False)
    except InvalidSpec as error:
        raise InvalidInput(f"{error} (asked for was a prefect.yaml)") from None
    _check(content, registration.file)
    fixed = work_pool.given_to_jobs(content["deployments"])
    changes += work_pool.register_pool(
        client, registration.pool, kind=registration.kind, limit=registration.pool_limit, fixed=fixed
    )
    for dataset in registration.datasets:
        changes += _limit(client, prefect_settings.limit_name(dataset, registration.prefix))
    for deployment in content["deployments"]:
        changes += _deployment(client, registration, deployment, content.get("pull"))
    return changes + _automations(client, registration.prefix)


def _check(content: Any, file: Path) -> None:
    """Refuse what could not be registered again. Raises: InvalidInput."""
    if not isinstance(content, dict) or not isinstance(content.get("deployments"), list):
        raise InvalidInput(f"{file} has no list of deployments; give a prefect.yaml such as deploy/prefect.yaml")
    for deployment in content["deployments"]:
        missing = [name for name in ("name", "entrypoint") if name not in deployment]
        if missing:
            raise InvalidInput(f"{file}: a deployment has no {' and no '.join(missing)}; add it")
        slugs = [schedule.get("slug") for schedule in deployment.get("schedules", [])]
        if None in slugs or len({*slugs}) != len(slugs):
            raise InvalidInput(
                f"{file}: every schedule of {deployment['name']!r} needs a slug of its own, by which it is known again; add 'slug:'"
            )


def _limit(client: SyncPrefectClient, name: str) -> list[str]:
    try:
        client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=1))
        return [f"created limit {name!r}"]
    return []


def _deployment(client: SyncPrefectClient, registration: Registration, definition: dict[str, Any], pull: Any) -> list[str]:
    """Create or change one deployment."""
    flow = _flow(definition["entrypoint"])
    name = f"{registration.prefix}-{definition['name']}" if registration.prefix else str(definition["name"])
    fields = _fields(definition, registration, pull, flow)
    memory = "dpdist_registered_" + re.sub("[^a-z0-9]+", "_", f"{flow.name}_{name}".lower())
    remembered = client.read_variable_by_name(memory)
    before: dict[str, str] = dict(remembered.value) if remembered is not None and isinstance(remembered.value, dict) else {}
    now = {key: work_pool.digest(value) for key, value in fields.items()}
    try:
        deployment = client.read_deployment_by_name(f"{flow.name}/{name}")
    except ObjectNotFound:
        _create(client, name, flow, fields)
        changed = ["created"]
    else:
        changed = _change(
            client, deployment, fields, {key for key in now if before.get(key) != now[key]}, before.keys() - now
        )
    work_pool.remember(client, memory, remembered, now)
    return [f"deployment {name!r}: {', '.join(changed)}"] if changed else []


def _flow(entrypoint: str) -> Any:
    """The flow at an entry point, from this program's own folder."""
    path, _, function = entrypoint.partition(":")
    try:
        return getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), function)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"there is no flow at {entrypoint!r} ({error}); give file:name, such as flows/prefect/release_flow.py:release"
        ) from None


def _fields(definition: Mapping[str, Any], registration: Registration, pull: Any, flow: Any) -> dict[str, Any]:
    """All that the file says of a deployment, by the name of each part that may be changed on its own."""
    limit = definition.get("concurrency_limit")
    limit = {"limit": limit} if isinstance(limit, int) else limit
    fields: dict[str, Any] = {
        "description": definition.get("description"),
        "entrypoint": definition["entrypoint"],
        "tags": sorted({TAG, *definition.get("tags", [])}),
        "limit": None if limit is None else limit["limit"],
        "options": None if limit is None else {key: value for key, value in limit.items() if key != "limit"} or None,
        "pull_steps": definition.get("pull", pull),
        "schema": parameter_schema(flow).model_dump(),
        "work_pool": {
            "name": registration.pool,
            "queue": (definition.get("work_pool") or {}).get("work_queue_name", "default"),
        },
    }
    fields |= {f"parameters.{key}": value for key, value in definition.get("parameters", {}).items()}
    variables = (definition.get("work_pool") or {}).get("job_variables", {})
    fields |= {f"job_variables.{key}": value for key, value in variables.items() if key not in work_pool.VARIABLES}
    for schedule in definition.get("schedules", []):
        fields[f"schedules.{schedule['slug']}"] = {key: value for key, value in schedule.items() if key != "active"}
        fields[f"active.{schedule['slug']}"] = schedule.get("active", True)
    return fields


def _update_arguments(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a server is given for each part of a deployment."""
    options, pool = fields["options"], fields["work_pool"]
    return {
        "description": {"description": fields["description"]},
        "entrypoint": {"entrypoint": fields["entrypoint"]},
        "tags": {"tags": fields["tags"]},
        "limit": {"concurrency_limit": fields["limit"]},
        "options": {"concurrency_options": options and ConcurrencyOptions.model_validate(options)},
        "pull_steps": {"pull_steps": fields["pull_steps"]},
        "schema": {"parameter_openapi_schema": fields["schema"], "enforce_parameter_schema": True},
        "work_pool": {"work_pool_name": pool["name"], "work_queue_name": pool["queue"]},
    }


def _create(client: SyncPrefectClient, name: str, flow: Any, fields: Mapping[str, Any]) -> None:
    slugs = [key.partition(".")[2] for key in fields if key.startswith("schedules.")]
    client.create_deployment(
        flow_id=client.create_flow_from_name(flow.name),
        name=name,
        schedules=[_schedule(fields, slug) for slug in slugs],
        parameters=_group(fields, "parameters"),
        path=".",
        job_variables=_group(fields, "job_variables"),
        **ChainMap(*_update_arguments(fields).values()),
    )


def _change(
    client: SyncPrefectClient,
    deployment: DeploymentResponse,
    fields: Mapping[str, Any],
    changed: set[str],
    removed_keys: set[str],
) -> list[str]:
    """Write the parts that the file changed; an update of nothing would delete runs that wait for their turn."""
    current_values = {"parameters": dict(deployment.parameters), "job_variables": dict(deployment.job_variables)}
    for key in removed_keys:
        current_values.get(key.partition(".")[0], {}).pop(key.partition(".")[2], None)
    update: dict[str, Any] = {}
    for field_name, arguments in _update_arguments(fields).items():
        if field_name in changed:
            update |= arguments
    for group, values in current_values.items():
        if any(key.startswith(f"{group}.") for key in changed | removed_keys):
            mine = {key: value for key, value in _group(fields, group).items() if f"{group}.{key}" in changed}
            update[group] = values | mine
    if update:
        client.update_deployment(deployment.id, DeploymentUpdate(**update))
    return sorted(update) + _schedules(client, deployment, fields, changed, removed_keys)


def _schedules(
    client: SyncPrefectClient,
    deployment: DeploymentResponse,
    fields: Mapping[str, Any],
    changed: set[str],
    removed_keys: set[str],
) -> list[str]:
    """Schedules of the file, known again by their slug. Those that somebody made in the server stay."""
    there = {schedule.slug: schedule for schedule in deployment.schedules}
    changes = []
    for slug in sorted(key.partition(".")[2] for key in changed if key.startswith("schedules.")):
        new_schedule = _schedule(fields, slug)
        if slug not in there:
            client.create_deployment_schedules(deployment.id, [new_schedule])
        else:
            client.update_deployment_schedule(
                deployment.id, there[slug].id, schedule=new_schedule.schedule, parameters=new_schedule.parameters
            )
        changes.append(f"schedule {slug!r}")
    for slug in sorted(key.partition(".")[2] for key in removed_keys if key.startswith("schedules.")):
        if slug in there:
            client.delete_deployment_schedule(deployment.id, there[slug].id)
            changes.append(f"schedule {slug!r} removed")
    return changes


def _schedule(fields: Mapping[str, Any], slug: str) -> DeploymentScheduleCreate:
    definition = fields[f"schedules.{slug}"]
    return DeploymentScheduleCreate(
        schedule=CronSchedule(
            cron=definition["cron"], timezone=definition.get("timezone", "UTC"), day_or=definition.get("day_or", True)
        ),
        active=fields[f"active.{slug}"],
        parameters=definition.get("parameters", {}),
        slug=slug,
    )


def _group(fields: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {key.partition(".")[2]: value for key, value in fields.items() if key.startswith(f"{group}.")}


def _automations(client: SyncPrefectClient, prefix: str) -> list[str]:
    """Mark runs whose heartbeat stopped as crashed, which frees their slots.

    Those of another form that dpdist made before are replaced or removed. Of this form they stay as operators left them. Whether one is
    enabled always stays.
    """
    tagged = AutomationFilter(tags=AutomationFilterTags(all_=[TAG]))
    own_automations = [
        existing for existing in client.read_automations(automations=tagged) if belongs_to_installation(existing, prefix)
    ]
    expected = {automation.name: automation for automation in zombie_automations(prefix)}
    changes = []
    for existing in own_automations:
        automation = expected.pop(existing.name, None)
        if automation is None:
            client.delete_automation(existing.id)
            changes.append(f"removed automation {existing.name!r} of another version")
        elif existing.description != automation.description:
            client.update_automation(existing.id, automation.model_copy(update={"enabled": existing.enabled}))
            changes.append(f"renewed automation {existing.name!r}")
    for name, automation in expected.items():
        client.create_automation(automation)
        changes.append(f"created automation {name!r}")
    return changes


def _shown(client: SyncPrefectClient) -> str:
    return re.sub("//[^/]*@", "//", str(client.api_url))
