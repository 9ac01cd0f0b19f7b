"""Publish differentially private releases from Airflow. The operator runs the command ``dpdist``, which has an environment of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator


class DpdistOperator(BaseOperator):
    """Publishes the release of a period: ``dpdist run SPEC --period PERIOD``.

    A retry, a cleared task and a backfill publish the same bytes and are charged nothing more, because the release's id holds the period.

    Args:
        spec: the path of the release spec. The command runs in its folder, so a relative ``output.folder`` starts there.
        period: the day that replaces ``{period}`` in the spec, YYYY-MM-DD; None for a spec without it.
        command: the program, with its path where it is not on that of the worker.
    Returns: as XCom, which every user of Airflow may read, facts that are public: ``release``, ``folder``, ``rmse`` (the root mean
        squared error of all answers), ``epsilon``, ``delta``, and ``charged``, whether this run was.
    Raises: RuntimeError with the one line that dpdist prints. It quotes no record.
    """

    template_fields: Sequence[str] = ("spec", "period", "command")

    def __init__(self, *, spec: str, period: str | None = "{{ ds }}", command: str = "dpdist", **options: Any) -> None:
        super().__init__(**options)
        self.spec, self.period, self.command = spec, period, command
        self._running: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run the command."""
        day = [] if self.period is None else ["--period", self.period]
        words = [self.command, "run", str(Path(self.spec).absolute()), *day, "--json", "--quiet"]
        pipe, folder = subprocess.PIPE, Path(self.spec).absolute().parent
        self._running = subprocess.Popen(words, cwd=folder, stdout=pipe, stderr=pipe, text=True)
        said, failed = self._running.communicate()
        if self._running.returncode != 0:
            line = next(iter(failed.strip().splitlines()[-1:]), "")
            raise RuntimeError(
                line or f"dpdist ended with exit code {self._running.returncode}; a retry goes on where it stopped"
            )
        done = json.loads(said)
        certificate, privacy = done["certificate"], done["certificate"]["privacy"]
        return {
            "release": certificate["release"],
            "folder": done["folder"],
            "rmse": certificate["mechanism"]["rmse"],
            "epsilon": privacy["epsilon"],
            "delta": privacy["delta"],
            "charged": done["charged"],
        }

    def on_kill(self) -> None:
        """End the command, too: it says how to go on, and a retry does."""
        if self._running is not None:
            self._running.terminate()
            self._running.wait()
