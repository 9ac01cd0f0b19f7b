"""The release flow: one Prefect task a stage, so that a run can be watched and its stages timed.

Chunks of work fan out as raw Dask futures below the tasks (87 ms a Prefect task against 2-3 ms). Nothing rests on
Prefect's cache: every stage is idempotent by itself. A period is released once however often its schedule fires: its
release id holds the period, and a second run finds the charge and the files.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import httpx
import prefect.runtime
from prefect import flow, get_run_logger, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.concurrency.sync import concurrency
from prefect.exceptions import PrefectException

from dpdist import spec
from dpdist.errors import (
    ApprovalsMissing,
    DpdistError,
    EngineError,
    InvalidInput,
    InvalidSpec,
    NoRecords,
    ReleaseHeld,
    ReleaseVoid,
)
from dpdist.pipeline.release_run import Release
from dpdist.runtime import context
from dpdist.runtime.context import Context, Progress, ignore_progress
from dpdist.storage import home_folder
from flows import release_stages
from flows.observability import run_recorder
from flows.observability.notifications import notify
from flows.periods import PeriodLength, due_periods, periods
from flows.prefect import approval_wait, artifacts, prefect_settings
from flows.public_facts import WAITING, PublicRefusal, PublicStage, RefusedPeriods, publicly, tell_operator
from flows.release_services import ReleaseService, release_service

_T = TypeVar("_T")
HARMLESS = (httpx.TransportError,)
"""A server that is gone quotes no record, and the run has to say so."""


def as_task(name: str, work: Callable[[], _T], *, release: str | None = None, again: bool = True) -> _T:
    """Run a stage as a Prefect task, named after its release; its result stays in this process. ``again``: whether it may be repeated."""

    def once() -> _T:
        return publicly(lambda: release_stages.run_repeatable(name, work) if again else work(), *HARMLESS)

    if PublicStage.of(name) is None:  # how long it takes is for nobody but the operator
        return once()

    @task(
        name=name,
        task_run_name=name if release is None else f"{name} {release}".replace("{", "(").replace("}", ")"),
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def stage() -> _T:
        return once()

    return stage()


def _with_run_log(listener: Progress) -> Progress:
    """Progress for the listener and, when a Prefect server keeps the run, for the run's log there."""
    if not prefect_settings.served():
        return listener
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).setLevel(logging.INFO)
        logging.getLogger(name).propagate = False  # the terminal has its own display
    logger = get_run_logger()

    def report_progress(stage: str, message: str) -> None:
        listener(stage, message)
        if PublicStage.of(stage) is not None:
            logger.info("%s: %s", stage, message)

    return report_progress


def _run_name() -> str:
    """What a run is called: the id of the release that it is for, or what it was asked for where the spec cannot be read."""
    parameters = prefect.runtime.flow_run.parameters
    try:
        moment = parameters.get("period")
        period = datetime.date.fromisoformat(moment) if isinstance(moment, str) else moment
        (*_, day) = _days(period, parameters.get("every"), 0, parameters.get("timezone", "UTC"))
        return spec.load(parameters["spec_path"], period=day).release
    except (DpdistError, ValueError, KeyError):
        return f"release of {Path(str(parameters.get('spec_path'))).name}"


@flow(
    name="release",
    flow_run_name=_run_name,
    timeout_seconds=prefect_settings.run_seconds(),
    persist_result=False,
    on_failure=[artifacts.failed],
    on_crashed=[artifacts.failed],
    on_cancellation=[artifacts.failed],
)
def release(
    spec_path: str,
    period: datetime.date | None = None,
    every: PeriodLength | None = None,
    catch_up: int = 0,
    timezone: str = "UTC",
    engine_address: str | None = None,
    home: str | None = None,
) -> list[str]:
    """Publish the release of a spec, once for each period.

    Args:
        spec_path: the release spec, YAML; ``{period}`` in it stands for the period's first day.
        period: the period to release; default: with ``every`` the last one that was over when this run was scheduled for.
        every: how long periods are; without it the spec is for one release.
        catch_up: also release so many periods before it, if they are missing and have records.
        timezone: where days begin and end.
        engine_address: ``tls://host:port`` of a Dask scheduler; default: processes on this machine.
        home: state folder; default ``DPDIST_HOME`` or the platform's user data folder.
    Returns: where the releases are.
    """

    def all_of_them() -> list[str]:
        days = _days(period, every, catch_up, timezone)
        return [*_release_periods(spec_path, days, engine_address, home, needed_days=days[-1:], period_length=every)]

    return publicly(all_of_them, *HARMLESS)


@flow(
    name="backfill",
    flow_run_name="backfill {first} to {last}",
    persist_result=False,
    on_failure=[artifacts.failed],
    on_crashed=[artifacts.failed],
)
def backfill(
    spec_path: str,
    first: datetime.date,
    last: datetime.date,
    every: PeriodLength = "day",
    engine_address: str | None = None,
    home: str | None = None,
) -> list[str]:
    """Publish the releases of past periods, in order; those that exist are left as they are.

    Args:
        spec_path: the release spec, YAML, with ``{period}`` for the period's first day.
        first: a day of the first period.
        last: a day of the last period.
        every: how long periods are.
        engine_address: ``tls://host:port`` of a Dask scheduler; default: processes on this machine.
        home: state folder; default ``DPDIST_HOME`` or the platform's user data folder.
    Returns: where the releases are.
    """

    def all_of_them() -> list[str]:
        days = list(periods(first, last, every))
        if len(days) > 1 and release_service() is None:
            spec.check_many_periods(Path(spec_path))
        return [*_release_periods(spec_path, days, engine_address, home, needed_days=days, period_length=every)]

    return publicly(all_of_them, *HARMLESS)


def _days(
    period: datetime.date | None, period_length: PeriodLength | None, catch_up: int, timezone: str
) -> list[datetime.date | None]:
    if period_length is None:
        return [period]
    return [
        *due_periods(_scheduled().astimezone(zoneinfo.ZoneInfo(timezone)), period_length, period=period, catch_up=catch_up)
    ]


def _scheduled() -> datetime.datetime:
    """When this run was meant to start, however late it does."""
    moment = prefect.runtime.flow_run.scheduled_start_time
    return moment if isinstance(moment, datetime.datetime) else datetime.datetime.now(datetime.UTC)


def _release_periods(
    spec_path: str,
    days: Sequence[datetime.date | None],
    engine_address: str | None,
    home: str | None,
    *,
    needed_days: Sequence[datetime.date | None],
    period_length: PeriodLength | None,
) -> Iterator[str]:
    """Where the release of each period is. A period whose records are not there is passed over, unless it was needed, and the log says so.

    Raises: after the other periods InvalidSpec for records that are needed and not there, or that cannot be read; then, for releases
        that lack approvals or are held, what suspends the run.
    """
    service = release_service()
    if service is not None and (engine_address or home):
        raise InvalidInput(
            "the measuring service has an engine and a home of its own; leave out 'engine_address' and 'home'"
        )
    failing: dict[datetime.date | None, PublicRefusal] = {}
    waiting: dict[datetime.date | None, ApprovalsMissing | ReleaseHeld] = {}
    for day in days:
        job = None
        try:
            if service is not None:
                yield _release_by_service(service, spec_path, day)
                continue
            folder = home_folder.state_folder(Path(home) if home else None)
            with run_recorder.counting_failures(folder, ""):
                job = spec.load(spec_path, period=day)
            yield str(
                _publish_job(job, engine_address, home, period_length=period_length, needs_records=day in needed_days).folder
            )
        except InvalidSpec as error:
            refusal = PublicRefusal.of(error)
            if day in needed_days or not isinstance(error, NoRecords):
                tell_operator(error)
                failing[day] = refusal
                continue
            get_run_logger().warning("period %s is skipped: %s", day, refusal.line)
            notify({"period": str(day), "state": "skipped", "reason": refusal.reason})
        except ReleaseVoid as error:
            get_run_logger().warning("period %s is passed over: %s", day, error)
            notify({"release": error.release, "state": "void", "reason": error.reason})
        except WAITING as error:
            waiting[day] = error
            if job is None or job.guarantee.release_mode.grows:
                break  # a stream's parts go in order, and whether it is one only the service knows
    if failing:
        raise RefusedPeriods(failing | {day: PublicRefusal(error) for day, error in waiting.items()})
    if waiting:
        for each in waiting.values():
            notify({"release": each.release, "state": "waits", "reason": type(each).__name__})
        approval_wait.suspend(waiting, spec_path)


def _publish_job(
    job: spec.Job,
    engine_address: str | None,
    home: str | None,
    progress: Progress = ignore_progress,
    *,
    period_length: PeriodLength | None = None,
    needs_records: bool = True,
) -> Release:
    """The release of a job, one task a stage, watched by observers; call it inside a flow.

    Args:
        needs_records: whether it is a failure if there are no records.
    """
    return release_stages.publish_release(
        job,
        engine_address,
        Path(home) if home else None,
        _with_run_log(progress),
        partial(as_task, release=job.release),
        period_length=period_length,
        needs_records=needs_records,
        around=_alone(job.guarantee.dataset),
        after=artifacts.artifacts,
        harmless=HARMLESS,
    )


def _release_by_service(service: ReleaseService, spec_path: str, day: datetime.date | None) -> str:
    """Where the release is that a measuring service publishes, its public stages shown as tasks; call it inside a flow.

    Raises: what refuses the release, as where this process measures itself.
    """
    report_progress = _with_run_log(ignore_progress)
    report_wait = get_run_logger().warning if prefect_settings.served() else lambda _: None
    remote_release = service.begin(spec_path, day, report_wait)

    def follow_stage(stage: str) -> None:
        for event in remote_release:
            if (event.stage, event.kind) == (stage, "ended"):
                return
            if event.kind == "told":
                report_progress(event.stage, event.message)

    with tags(f"dataset:{remote_release.dataset}"):
        for event in remote_release:
            if event.kind == "began":
                as_task(event.stage, partial(follow_stage, event.stage), release=remote_release.release, again=False)
            elif event.kind == "told":
                report_progress(event.stage, event.message)
    result = remote_release.result
    artifacts.page_link(result.release, result.folder)
    notify({"release": result.release, "state": "published", "where": result.folder, "charged": result.charged})
    return result.folder


def running(
    engine_address: str | None, home: str | None, progress: Progress = ignore_progress
) -> AbstractContextManager[Context]:
    """Where a flow runs its stages, with progress reported to the listener and the server."""
    return context.open_context(engine_address, _with_run_log(progress), home=Path(home) if home else None)


@contextmanager
def _alone(dataset: str) -> Iterator[None]:
    """One release of a data set at a time where a server keeps a limit of that name; the ledger is right without it, too.

    Raises: EngineError where the server does not answer.
    """
    with tags(f"dataset:{dataset}"), ExitStack() as slot:
        if prefect_settings.served():
            try:
                slot.enter_context(concurrency(prefect_settings.limit_name(dataset), occupy=1, strict=False))
            except Exception as error:  # noqa: BLE001 - whatever Prefect and its client raise
                _raise_without_server(error)
        yield


def run_flow(
    progress: Progress, job: spec.Job, spec_path: str, period: datetime.date | None, engine_address: str | None, home: Path
) -> Release:
    """Run the flow of a job in this process for a flow server, with progress reported to a listener.

    A server that goes away neither hides a published release nor the reason why one was refused.
    """
    releases: list[Release] = []

    @flow(name="release", validate_parameters=False, persist_result=False)
    def run_once(spec_path: str, period: datetime.date | None, engine_address: str | None, home: str) -> None:
        del spec_path, period  # shown by the server
        publicly(lambda: releases.append(_publish_job(job, engine_address, home, progress)), *HARMLESS)

    try:
        run_once(spec_path, period, engine_address, str(home))  # what a flow returns Prefect looks through, name by name
    except DpdistError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever Prefect and its client raise
        if not releases:
            _raise_without_server(error)
        progress("publish", f"published; the flow server went away before it noted that ({type(error).__name__})")
    return releases[0]


def _raise_without_server(error: Exception) -> NoReturn:
    """Raises: what stopped a release that was not published: an error of dpdist, a flow server that went away, or the error itself."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, DpdistError):
            raise cause
    lost = next((cause for cause in causes if isinstance(cause, httpx.HTTPError | PrefectException)), None)
    if lost is None:
        raise error
    api = re.sub("//[^/]*@", "//", os.environ["PREFECT_API_URL"])
    raise EngineError(
        f"the Prefect server {api} does not answer ({type(lost).__name__}); start it, or unset PREFECT_API_URL, and run the same "
        "command again: it goes on where it stopped, with the same noise"
    ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, its cause, the cause of that, ...: Prefect wraps errors of its client."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
