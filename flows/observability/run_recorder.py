"""What runs write down for ``dpdist metrics``: the newest period, seconds of stages, failures and when the last one was.

The process of a run is gone when Prometheus comes by, so each run adds to one document of the state folder. Nothing in it depends on the
records: how long counting takes would, and is left out.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdist import errors
from dpdist.process.durable_files import private_file, private_folder
from flows.observability.best_effort import run_best_effort
from flows.observability.run_events import Observer, Run, RunResult
from flows.public_facts import WAITING, PublicRefusal, StageTime

if TYPE_CHECKING:
    from dpdist.pipeline.release_run import Release

FOLDER = "observed"
BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
"""Seconds."""
PATIENCE = 10.0
"""Seconds for which a run waits for the document."""
OTHER_REASON = "other"
"""The reason of errors that are not dpdist's own: logs and traces have their names."""
REASONS = (
    *sorted(
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.DpdistError) and kind not in WAITING
    ),
    OTHER_REASON,
)
"""Why runs fail: a closed list, so that every counter can begin at zero. A run that waits for somebody has not failed."""


class Recorder(Observer):
    """Writes what runs know into the state folder.

    Attributes:
        counts_failures: not in a process that a service has started: the service counts, however that process ends.
    """

    def __init__(self, home: Path, *, counts_failures: bool = True) -> None:
        self.home, self.counts_failures = home, counts_failures

    def planned(self, run: Run) -> None:
        """The memory that stages promise."""

        def change(facts: dict[str, Any]) -> None:
            facts.setdefault("memory", {})[run.dataset] = dict(run.memory)

        _change_facts(self.home, change)

    def stage(self, run: Run, taken: StageTime) -> None:
        """One more time of a stage."""

        def change(facts: dict[str, Any]) -> None:
            stages = facts.setdefault("stages", {}).setdefault(run.dataset, {})
            entry = stages.setdefault(taken.stage.name, {"sum": 0.0, "counts": [0] * (len(BUCKETS) + 1)})
            entry["sum"] += taken.seconds
            entry["counts"][bisect_left(BUCKETS, taken.seconds)] += 1

        _change_facts(self.home, change)

    def published(self, run: Run, result: RunResult) -> None:
        """The newest period of the data set, when it came, and its size. A period that is published late is not the newest."""

        def change(facts: dict[str, Any]) -> None:
            publication = facts.setdefault("published", {}).setdefault(
                run.dataset, {"releases": 0, "bytes": 0, "period": None}
            )
            publication["at"] = time.time()
            publication["releases"] += 1
            publication["bytes"] += result.bytes
            publication["every"] = run.period_length or publication.get("every")
            if run.period is not None:
                publication["period"] = max(run.period.isoformat(), publication["period"] or "")

        _change_facts(self.home, change)

    def failed(self, run: Run, reason: str) -> None:
        """One more failure of a data set, unless it is a period without records that catching up passes over."""
        if self.counts_failures and (run.needs_records or reason != errors.NoRecords.__name__):
            record_failure(self.home, run.dataset, reason)


def record_failure(home: Path, dataset: str, reason: str) -> None:
    """Count a run that failed, by the name of its error; a run whose spec could not be read has no data set."""
    _change_facts(home, partial(_count, dataset, reason))


def _count(dataset: str, reason: str, facts: dict[str, Any]) -> None:
    if reason in [kind.__name__ for kind in WAITING]:
        return
    reasons = facts.setdefault("failed", {}).setdefault(dataset, {})
    known = reasons.setdefault(reason if reason in REASONS else OTHER_REASON, {"runs": 0})
    known["runs"] += 1
    known["at"] = time.time()


UNDER_WAY = "under_way"
"""Below it stand the runs that a service has begun, until their ends are counted: a service that was killed counts them when it starts."""


def note_begun_run(home: Path, run: Run) -> None:
    """Note that a service begins a run in a process of its own."""
    _change_facts(home, lambda facts: facts.setdefault(UNDER_WAY, {}).update({str(run.id): run.facts()}))


def ended(home: Path, run: Run, reason: str | None) -> None:
    """Note that the process of a run has ended, and count it, once, where that was by an error."""

    def change(facts: dict[str, Any]) -> None:
        if facts.setdefault(UNDER_WAY, {}).pop(str(run.id), None) is not None and reason is not None:
            _count(run.dataset, reason, facts)

    _change_facts(home, change)


def interrupted_runs(home: Path) -> list[Run]:
    """The runs that a service had begun when it was killed, which ended with it."""
    known = read_facts(home / FOLDER).get(UNDER_WAY, {})
    return [Run.of_facts(facts) for facts in known.values()]


def record_repeat(home: Path, run: Run, release: Release) -> None:
    """Note a release that was found finished: its run may have been killed before it wrote that down."""
    run_best_effort(lambda: Recorder(home).published(run, RunResult.of(release)), PATIENCE)


@contextmanager
def counting_failures(home: Path, dataset: str) -> Iterator[None]:
    """A block of a run before its observers listen, whose errors are counted as theirs are."""
    try:
        yield
    except Exception as error:
        reason = PublicRefusal.of(error).reason
        run_best_effort(lambda: record_failure(home, dataset, reason), PATIENCE)
        raise


def _change_facts(home: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Read the document, let a function change it, write it, while nobody else does."""
    with _locked(home) as folder:
        facts = read_facts(folder)
        change(facts)
        draft = folder / f".facts-{os.getpid()}"
        private_file(draft)
        draft.write_text(json.dumps(facts, sort_keys=True), encoding="utf-8")
        draft.replace(folder / "facts.json")


@contextmanager
def _locked(home: Path) -> Iterator[Path]:
    folder = home / FOLDER
    private_folder(folder)
    private_file(folder / "lock")
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def read_facts(folder: Path) -> dict[str, Any]:
    """What runs wrote down; nothing where there is no document."""
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a document that a power loss broke is begun anew: the ledger knows what counts
        return {}
    return facts if isinstance(facts, dict) else {}
