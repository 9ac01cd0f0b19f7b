"""Prometheus metrics of an installation: ``dpdist metrics``.

Budgets and states of releases are read from the ledger whenever somebody asks; what only runs know they wrote down (``recorder``). Labels
are names of data sets, stages and errors.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import opened
from flows.observed.recorder import BUCKETS, FOLDER, read

PATIENCE = 2.0
"""Seconds for which a ledger that is away is waited for: Prometheus gives up after ten."""
LENGTHS = {"day": 86400, "week": 7 * 86400, "month": 31 * 86400}


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
        yield from _of_runs(read(self.home / FOLDER))

    def _of_ledger(self) -> list[Metric]:
        labels = ["dataset", "unit", "per"]
        cap = GaugeMetricFamily(
            "dpdist_budget_cap", "The most that may be spent of the newest period's budget.", labels=labels
        )
        left = GaugeMetricFamily(
            "dpdist_budget_left", "What may still be spent of the newest period's budget.", labels=labels
        )
        states = GaugeMetricFamily("dpdist_releases", "Releases in the ledger by state.", labels=["dataset", "state"])
        with opened(self.home, patience=PATIENCE) as ledger:
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
