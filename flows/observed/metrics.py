"""Prometheus metrics of an installation: ``dpdist metrics``.

Budgets and states of releases are read from the ledger whenever somebody asks. What only runs know (the newest period, seconds of stages,
failures) they write into one document of the state folder, because the process of a run is gone when Prometheus comes by. Labels are names
of data sets, stages and errors. Nothing depends on the records: how long counting takes would, and is left out.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import opened
from dpdist.private import private_file, private_folder
from flows.observed.run import Observer, Published, Run

FOLDER = "observed"
BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
LENGTHS = {"day": 86400, "week": 7 * 86400, "month": 31 * 86400}


class Recorder(Observer):
    """Writes what runs know into the state folder."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def planned(self, run: Run) -> None:
        """The memory that stages promise."""

        def change(facts: dict[str, Any]) -> None:
            facts.setdefault("memory", {})[run.dataset] = dict(run.memory)

        change_facts(self.home, change)

    def stage(self, run: Run, name: str, began: datetime.datetime, seconds: float) -> None:
        """One more time of a stage."""
        del began

        def change(facts: dict[str, Any]) -> None:
            known = facts.setdefault("stages", {}).setdefault(run.dataset, {})
            entry = known.setdefault(name, {"sum": 0.0, "counts": [0] * (len(BUCKETS) + 1)})
            entry["sum"] += seconds
            entry["counts"][bisect_left(BUCKETS, seconds)] += 1

        change_facts(self.home, change)

    def published(self, run: Run, what: Published) -> None:
        """The newest period of the data set, when it came, and its size. A period that is published late is not the newest."""

        def change(facts: dict[str, Any]) -> None:
            known = facts.setdefault("published", {}).setdefault(run.dataset, {"releases": 0, "bytes": 0, "period": None})
            known["at"] = time.time()
            known["releases"] += 1
            known["bytes"] += what.bytes
            known["every"] = run.every
            if run.period is not None:
                known["period"] = max(run.period.isoformat(), known["period"] or "")

        change_facts(self.home, change)

    def failed(self, run: Run, reason: str) -> None:
        """One more failure of a data set."""
        failed(self.home, run.dataset, reason)


def failed(home: Path, dataset: str, reason: str) -> None:
    """Count a run that failed, by the name of its error; a run whose spec could not be read has no data set."""

    def change(facts: dict[str, Any]) -> None:
        known = facts.setdefault("failed", {}).setdefault(dataset, {})
        known[reason] = known.get(reason, 0) + 1

    change_facts(home, change)


def change_facts(home: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Read the document, let a function change it, write it, while nobody else does."""
    with _locked(home) as folder:
        facts = _read(folder)
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
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _read(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a document that a power loss broke is begun anew: the ledger knows what counts
        return {}
    return found if isinstance(found, dict) else {}


class Installation(Collector):
    """The metrics of a state folder and its ledger, read anew each time."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def collect(self) -> Iterator[Metric]:
        """All of them; dpdist_ledger_up is 0 when the ledger could not be read."""
        up = GaugeMetricFamily("dpdist_ledger_up", "Whether the ledger could be read.")
        try:
            yield from self._of_ledger()
            up.add_metric([], 1)
        except Exception:  # noqa: BLE001 - the metric says so; its text may name the database
            up.add_metric([], 0)
        yield up
        yield from _of_runs(_read(self.home / FOLDER))

    def _of_ledger(self) -> list[Metric]:
        labels = ["dataset", "unit", "per"]
        cap = GaugeMetricFamily(
            "dpdist_budget_cap", "The most that may be spent of the newest period's budget.", labels=labels
        )
        left = GaugeMetricFamily(
            "dpdist_budget_left", "What may still be spent of the newest period's budget.", labels=labels
        )
        states = GaugeMetricFamily("dpdist_releases", "Releases in the ledger by state.", labels=["dataset", "state"])
        with opened(self.home) as ledger:
            newest = {budget.dataset: budget for budget in ledger.budgets()}  # in order of first use
            for (dataset, state), number in ledger.states().items():
                states.add_metric([dataset, state], number)
        for dataset, budget in newest.items():
            named = [dataset, budget.cap.unit, budget.cap.per]
            cap.add_metric(named, float(budget.cap.left(Loss(), budget.rule)))
            left.add_metric(named, float(budget.left))
        return [cap, left, states]


def _of_runs(facts: dict[str, Any]) -> Iterator[Metric]:
    by = ["dataset"]
    at = GaugeMetricFamily("dpdist_last_publication_timestamp_seconds", "When a release was published last.", labels=by)
    since = GaugeMetricFamily("dpdist_seconds_since_publication", "Seconds since a release was published last.", labels=by)
    period = GaugeMetricFamily(
        "dpdist_last_period_timestamp_seconds", "The first moment (UTC) of the newest period that is published.", labels=by
    )
    length = GaugeMetricFamily("dpdist_period_seconds", "How long a period is.", labels=by)
    size = CounterMetricFamily("dpdist_published_bytes", "Bytes of all files that were published.", labels=by)
    number = CounterMetricFamily("dpdist_published_releases", "Releases that runs published, repeats included.", labels=by)
    for dataset, known in facts.get("published", {}).items():
        at.add_metric([dataset], known["at"])
        since.add_metric([dataset], max(0.0, time.time() - known["at"]))
        size.add_metric([dataset], known["bytes"])
        number.add_metric([dataset], known["releases"])
        if known["period"]:
            first = datetime.datetime.combine(datetime.date.fromisoformat(known["period"]), datetime.time(), datetime.UTC)
            period.add_metric([dataset], first.timestamp())
        if known.get("every") in LENGTHS:
            length.add_metric([dataset], LENGTHS[known["every"]])
    yield from (at, since, period, length, size, number)
    failures = CounterMetricFamily(
        "dpdist_failures", "Runs that failed, by the name of the error.", labels=["dataset", "reason"]
    )
    for dataset, reasons in facts.get("failed", {}).items():
        for reason, count in reasons.items():
            failures.add_metric([dataset, reason], count)
    yield failures
    yield from _of_stages(facts)


def _of_stages(facts: dict[str, Any]) -> Iterator[Metric]:
    labels = ["dataset", "stage"]
    seconds = HistogramMetricFamily("dpdist_stage_seconds", "How long stages took; counting is left out.", labels=labels)
    for dataset, stages in facts.get("stages", {}).items():
        for stage, entry in stages.items():
            below, buckets = 0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), entry["counts"], strict=True):
                below += count
                buckets.append((bound, below))
            seconds.add_metric([dataset, stage], buckets, entry["sum"])
    memory = GaugeMetricFamily("dpdist_stage_memory_bytes", "The most that a stage takes, as planned.", labels=labels)
    for dataset, stages in facts.get("memory", {}).items():
        for stage, count in stages.items():
            memory.add_metric([dataset, stage], count)
    yield from (seconds, memory)


def registry(home: Path) -> CollectorRegistry:
    """A registry with the metrics of a state folder and its ledger, and nothing else."""
    made = CollectorRegistry()
    made.register(Installation(home))
    return made
