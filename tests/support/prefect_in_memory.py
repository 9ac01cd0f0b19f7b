"""Prefect as the flows' tests use it, before anything imports it: with the server of ``embedded``, silent and in memory."""

from __future__ import annotations

import os
from pathlib import Path

from flows.prefect import prefect_settings

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
"""A server in memory, without what only later runs, schedules and people at a browser would need."""


def configure(home: Path) -> None:
    """Call it before anything imports Prefect."""
    for name, value in ALONE.items():
        os.environ.setdefault(name, value)
    prefect_settings.configure(home)
