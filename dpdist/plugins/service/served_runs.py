"""How the runs of a measuring service end: the service counts and logs each failure once, however the run's own process ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dpdist.api import errors
from dpdist.api.runs import ignore_progress
from flows.api.service import PATIENCE, WAITING, Run, plugin_observers, run_best_effort, run_recorder

ENDED_WITH_SERVICE = errors.Cancelled.__name__
"""Why a run failed whose process ended because its service did."""


class ServedRuns:
    """The runs that a service has begun, in processes of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def begin(self, run: Run) -> None:
        """Note a run before its process starts."""
        run_best_effort(lambda: run_recorder.note_begun_run(self.home, run), PATIENCE)

    def end(self, run: Run, reason: str | None) -> None:
        """Note how a run ended: None where its release is published, else the name of the error."""
        run_best_effort(lambda: run_recorder.ended(self.home, run, reason), PATIENCE)
        if reason is not None and reason not in [kind.__name__ for kind in WAITING]:
            for observer in plugin_observers(ignore_progress, served=False):
                run_best_effort(partial(observer.failed_in_service, run, str(reason)), PATIENCE)

    def count_left(self) -> None:
        """Count the runs that were under way when an earlier service was killed, whose processes ended with it."""
        for run in run_recorder.interrupted_runs(self.home):
            self.end(run, ENDED_WITH_SERVICE)
