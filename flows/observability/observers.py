"""Observers of a run, as the environment asks for them, and the block that tells them."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from dpdist.engine import Engine
from dpdist.pipeline.release_run import Release, StepRunner
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import stage_memory
from dpdist.plugin_registry import plugin_objects
from dpdist.runtime.context import Progress
from dpdist.spec import Job
from flows.observability import run_recorder
from flows.observability.best_effort import run_best_effort
from flows.observability.run_events import Observer, Run, RunResult
from flows.public_facts import PublicRefusal, PublicStage, StageTime

_T = TypeVar("_T")
SECONDS = 10.0
"""How long an observer may take over one message: a server that does not answer does not hold up a release for longer."""


class Watch:
    """Tells observers how a run goes."""

    def __init__(self, run: Run, observers: list[Observer]) -> None:
        self.run, self.observers = run, observers

    def notify_observers(self, notification: Callable[[Observer], None]) -> None:
        """Let every observer hear of something, each for its time."""
        for observer in self.observers:
            run_best_effort(partial(notification, observer), SECONDS)

    def stepping(self, step: StepRunner, engine: Engine) -> StepRunner:
        """The step runner, with every stage reported."""

        def watched(name: str, work: Callable[[], _T]) -> _T:
            started_at, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
            result = step(name, work)
            seconds = time.monotonic() - clock
            stage = PublicStage.of(name)
            if stage is not None:
                taken = StageTime(stage, started_at, seconds)
                self.notify_observers(lambda observer: observer.stage(self.run, taken))
            if isinstance(result, ReleasePlan):
                self._planned(result, engine)
            return result

        return watched

    def published(self, release: Release) -> None:
        """The release is there."""
        with suppress(Exception):  # the release is published, whatever is reported of it
            result = RunResult.of(release)
            self.notify_observers(lambda observer: observer.published(self.run, result))

    def _planned(self, planned: ReleasePlan, engine: Engine) -> None:
        privacy = planned.certificate()["privacy"]
        self.run.charge = {name: privacy[name] for name in ("definition", "unit", "rho_decimal", "epsilon", "delta")}
        with suppress(Exception):  # for whoever looks on; the release itself checks its memory
            self.run.memory = {stage.stage: stage.bytes for stage in stage_memory(planned, engine)}
        self.notify_observers(lambda observer: observer.planned(self.run))


@contextmanager
def watching(
    job: Job,
    home: Path,
    progress: Progress,
    *,
    period_length: str | None = None,
    needs_records: bool = True,
    served_as: uuid.UUID | None = None,
) -> Iterator[Watch]:
    """Tell observers of the run that the block is: that it starts, its stages, and how it ends.

    Args:
        served_as: the run of a service that has started this process, and counts how it ends.
    """
    run = Run.of(job, period_length=period_length, needs_records=needs_records)
    if served_as is not None:
        run.id = served_as
    watch = Watch(run, observers(home, progress, served=served_as is not None))
    watch.notify_observers(lambda observer: observer.started(run))
    try:
        yield watch
    except BaseException as error:
        reason = PublicRefusal.of(error).reason if isinstance(error, Exception) else type(error).__name__
        watch.notify_observers(lambda observer: observer.failed(run, reason))
        raise


def observers(home: Path, progress: Progress, *, served: bool = False) -> list[Observer]:
    """Who writes down what metrics need, and those of plugins that the environment asks for."""
    return [run_recorder.Recorder(home, counts_failures=not served), *plugin_observers(progress, served=served)]


def plugin_observers(progress: Progress, *, served: bool) -> Iterator[Observer]:
    """The observers of plugins that the environment asks for."""
    for make_observer in plugin_objects("observers"):
        observer = make_observer(progress, served=served)
        if observer is not None:
            yield observer
