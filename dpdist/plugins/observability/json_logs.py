"""JSON lines on standard error, one for every event of a run: DPDIST_LOG=json."""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any

from flows.api.observers import Observer, Progress, Run, RunResult, StageTime

LOG = "DPDIST_LOG"


class JsonLogObserver(Observer):
    """Writes a line for every event; not of failures where the service that started this process writes them."""

    def __init__(self, *, writes_failures: bool = True) -> None:
        self.writes_failures = writes_failures

    def started(self, run: Run) -> None:
        """A line."""
        _write_event(run, "started", spec_digest=run.spec_digest)

    def planned(self, run: Run) -> None:
        """A line with the charge."""
        _write_event(run, "planned", charge=dict(run.charge), memory_bytes=dict(run.memory))

    def stage(self, run: Run, taken: StageTime) -> None:
        """A line with the seconds."""
        _write_event(run, "stage", stage=taken.stage.name, seconds=round(taken.seconds, 3))

    def published(self, run: Run, result: RunResult) -> None:
        """A line with the place."""
        _write_event(
            run, "published", where=result.location, charged=result.charged, answers=result.answers, bytes=result.bytes
        )

    def failed(self, run: Run, reason: str) -> None:
        """A line with the name of the error."""
        if self.writes_failures:
            _write_event(run, "failed", level="error", reason=reason)

    def failed_in_service(self, run: Run, reason: str) -> None:
        """A line, whatever the run's own process wrote."""
        _write_event(run, "failed", level="error", reason=reason)


def observer(progress: Progress, *, served: bool = False) -> Observer | None:
    """The writer of lines, where they are asked for."""
    return JsonLogObserver(writes_failures=not served) if os.environ.get(LOG) == "json" else None


def _write_event(run: Run, event: str, *, level: str = "info", **facts: Any) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(
        json.dumps({"time": now, "level": level, "logger": "dpdist", "event": event, **run.facts(), **facts}) + "\n"
    )
    sys.stderr.flush()
