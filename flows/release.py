"""The release flow: one Prefect task a stage, so that a run can be watched and its stages timed.

Chunks of work fan out as raw Dask futures below the tasks (87 ms a Prefect task against 2-3 ms). Nothing rests on
Prefect's cache: every stage is idempotent by itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from dpdist import engine, spec, stages

_T = TypeVar("_T")


def as_task(name: str, work: Callable[[], _T]) -> _T:
    """Run a stage as a Prefect task; its result stays in this process."""

    @task(name=name, cache_policy=NO_CACHE, persist_result=False)
    def stage() -> _T:
        return work()

    return stage()


def _told(listener: stages.Progress) -> stages.Progress:
    """Progress for the listener and, when a Prefect server keeps the run, for the run's log there."""
    if "PREFECT_API_URL" not in os.environ:
        return listener
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).setLevel(logging.INFO)
        logging.getLogger(name).propagate = False  # the terminal has its own display
    logger = get_run_logger()

    def tell(stage: str, line: str) -> None:
        listener(stage, line)
        logger.info("%s: %s", stage, line)

    return tell


_listener: list[stages.Progress] = []


@flow(name="release", validate_parameters=False, persist_result=False)
def release(spec_path: str, engine_address: str | None = None, home: str | None = None) -> stages.Release:
    """Publish the release of a spec.

    Args:
        spec_path: the release spec, YAML.
        engine_address: ``tcp://host:port`` of a Dask scheduler; default: processes on this machine.
        home: state folder; default ``DPDIST_HOME`` or the platform's user data folder.
    """
    return published(spec.load(spec_path), engine_address, home)


def published(checked: spec.ReleaseSpec, engine_address: str | None, home: str | None) -> stages.Release:
    """The release of a checked spec, one task a stage; call it inside a flow."""
    folder = stages.state_folder(Path(home) if home else None)
    progress = _told(_listener[-1] if _listener else stages.silent)
    with engine.started(engine_address) as started:
        context = stages.Context(folder, stages.store_of(folder), started, progress)
        return stages.release(context, checked, step=as_task)


def watched(progress: stages.Progress, spec_path: str, engine_address: str | None, home: Path) -> stages.Release:
    """Run the flow in this process, with progress told to a listener (a flow's parameters must be plain data)."""
    _listener.append(progress)
    try:
        return release(spec_path, engine_address, str(home))
    finally:
        _listener.pop()
