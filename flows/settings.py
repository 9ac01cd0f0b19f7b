"""Prefect embedded, offline and silent. Must be called before anything imports Prefect."""

from __future__ import annotations

import os
from pathlib import Path

SILENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}

INSTALLATION = "DPDIST_INSTALLATION"
"""The name of this installation where several share a Prefect server."""

ALONE = {
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true&check_same_thread=false",
    "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_EVENTS_STREAM_OUT_ENABLED": "false",
    "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_CLIENT_MAX_RETRIES": "2",
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
    "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
}
"""The server of one run (``server``): in memory, without what only later runs, schedules and people at a browser would need."""


def configure(home: Path, *, debug: bool = False) -> None:
    """Telemetry off, always; Prefect's own state under the state folder unless the environment says otherwise."""
    os.environ.update(SILENT)
    os.environ.setdefault("PREFECT_HOME", str(home / "prefect"))
    if not debug:
        os.environ.setdefault(
            "PREFECT_LOGGING_LEVEL", "CRITICAL"
        )  # errors are reported once, in one line, by the command line
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    if "PREFECT_API_URL" not in os.environ:
        for name, value in ALONE.items():
            os.environ.setdefault(name, value)
    Path(os.environ["PREFECT_HOME"]).mkdir(mode=0o700, parents=True, exist_ok=True)


def limit_name(dataset: str, installation: str | None = None) -> str:
    """The concurrency limit of a data set's releases in a Prefect server; installations that share one have limits of their own."""
    prefix = os.environ.get(INSTALLATION, "") if installation is None else installation
    return f"{prefix}-dpdist-{dataset}" if prefix else f"dpdist-{dataset}"


def run_seconds() -> float:
    """How long the run of a deployment may take before it is ended; DPDIST_RUN_SECONDS, a day without it."""
    return float(os.environ.get("DPDIST_RUN_SECONDS", "86400"))
