"""Prefect silent. Must be called before anything imports Prefect."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from dpdist.optional_layers import optional_layer
from dpdist.plugin_registry import load_object

PREFECT_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}

INSTALLATION = "DPDIST_INSTALLATION"
"""The name of this installation where several share a Prefect server."""


def configure(home: Path, *, debug: bool = False) -> None:
    """Telemetry off, always; Prefect's own state under the state folder unless the environment says otherwise."""
    os.environ.update(PREFECT_SETTINGS)
    os.environ.setdefault("PREFECT_HOME", str(home / "prefect"))
    if not debug:
        os.environ.setdefault(
            "PREFECT_LOGGING_LEVEL", "CRITICAL"
        )  # errors are reported once, in one line, by the command line
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    Path(os.environ["PREFECT_HOME"]).mkdir(mode=0o700, parents=True, exist_ok=True)


def served() -> bool:
    """Whether a Prefect server keeps this run."""
    return "PREFECT_API_URL" in os.environ


def limit_name(dataset: str, installation: str | None = None) -> str:
    """The concurrency limit of a data set's releases in a Prefect server; installations that share one have limits of their own."""
    prefix = os.environ.get(INSTALLATION, "") if installation is None else installation
    return f"{prefix}-dpdist-{dataset}" if prefix else f"dpdist-{dataset}"


def run_seconds() -> float:
    """How long the run of a deployment may take before it is ended; DPDIST_RUN_SECONDS, a day without it."""
    return float(os.environ.get("DPDIST_RUN_SECONDS", "86400"))


def resume_runs(release: str) -> list[str]:
    """Resume the runs that wait for a release where a Prefect server keeps runs; a line for each."""
    if not served():
        return []
    with for_prefect():
        resume = load_object("flows.prefect.approval_wait:resume")  # by name: commands of plugins must not import Prefect
    messages: list[str] = resume(release)
    return messages


def for_prefect() -> AbstractContextManager[None]:
    """The imports of what speaks to Prefect. Raises: NotInstalled."""
    return optional_layer("flows", "the Prefect server that PREFECT_API_URL names")
