"""How the runs of a measuring service end: the service counts and logs each failure once, however the run's own process ended."""

from __future__ import annotations

from pathlib import Path

from dpdist import errors
from flows.observed import logs, recorder
from flows.observed.aside import aside
from flows.observed.recorder import PATIENCE
from flows.observed.run import Run

ENDED_WITH_SERVICE = errors.Cancelled.__name__
"""Why a run failed whose process ended because its service did."""


class ServedRuns:
    """The runs that a service has begun, in processes of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def begin(self, run: Run) -> None:
        """Note a run before its process starts."""
        aside(lambda: recorder.began(self.home, run), PATIENCE)

    def end(self, run: Run, reason: str | None) -> None:
        """Note how a run ended: None where its release is published, else the name of the error."""
        aside(lambda: recorder.ended(self.home, run, reason), PATIENCE)
        lines = logs.observer(lambda *_: None)
        if reason not in (None, errors.ApprovalsMissing.__name__) and lines is not None:
            lines.failed(run, str(reason))

    def count_left(self) -> None:
        """Count the runs that were under way when an earlier service was killed, whose processes ended with it."""
        for run in recorder.left_under_way(self.home):
            self.end(run, ENDED_WITH_SERVICE)
