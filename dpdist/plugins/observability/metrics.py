"""Prometheus metrics of an installation: ``dpdist metrics``.

Budgets, states of releases and expected periods are read from the ledger whenever somebody asks; what only runs know they wrote down
(``run_recorder``). Labels are names of data sets, periods, stages and errors. The counters of every data set that is known begin at zero:
of one that appears with its first failure Prometheus would see no increase.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, cast, get_args

import dask.config
from cryptography import x509
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dpdist.api.holds import release_holds
from dpdist.api.releases import DatasetBudget, Loss, period_of
from flows.api.commands import ledger_access
from flows.api.observers import BUCKETS, FOLDER, REASONS, PeriodLength, last_complete, periods, read_facts, start_of

NEWEST = 8
"""Periods over which an alert is raised, each by its own series: an older gap does not ring for ever, and the number of all stays."""


def expected(
    per: str | None, declared: str, finished: frozenset[str], publication: Mapping[str, Any], moment: datetime.datetime
) -> dict[str, bool]:
    """Every period that was over at a moment and should be published, oldest first, and whether it is.

    A release that was measured and not published, because its run was killed, is not the newest that runs published.

    Args:
        per: how long the periods of the data set's cap are, or ``total``; None where the ledger does not know it.
        declared: when the cap was declared, ISO.
        finished: the budget periods of the cap in which a release was committed.
        publication: what runs wrote down of their publications; empty where none did.
    """
    newest = datetime.date.fromisoformat(publication["period"]) if publication.get("period") else None
    published_by_period = {}
    if per is not None and per in get_args(PeriodLength):
        for day in _complete_periods(datetime.datetime.fromisoformat(declared).date(), cast(PeriodLength, per), moment):
            key = period_of(day, per)
            published_by_period[key] = key in finished and (newest is None or day <= newest)
    period_length = str(publication.get("every"))
    if newest is not None and period_length != per and period_length in get_args(PeriodLength):
        published_by_period |= {
            period_of(day, period_length): day <= newest
            for day in _complete_periods(newest, cast(PeriodLength, period_length), moment)
        }
    return published_by_period


def _complete_periods(
    first_day: datetime.date, period_length: PeriodLength, moment: datetime.datetime
) -> list[datetime.date]:
    """First days of the periods from the one that holds a day to the last that is over."""
    begin, last_day = start_of(first_day, period_length), last_complete(moment, period_length)
    return list(periods(begin, last_day, period_length)) if begin <= last_day else []


NAMES = ("ca-file", "client.cert", "scheduler.cert", "worker.cert")
"""Below ``distributed.comm.tls`` in Dask's own configuration."""


def certificate_ends() -> Iterator[tuple[str, float]]:
    """Each certificate that Dask's configuration names, and when the first of its file ends (Unix time); 0 for one that cannot be read."""
    for name in NAMES:
        certificate = dask.config.get(f"distributed.comm.tls.{name}", None)
        if certificate:
            yield name, _end(str(certificate))


def _end(certificate: str) -> float:
    try:
        content = (
            certificate.encode() if "\n" in certificate else Path(certificate).read_bytes()
        )  # Dask takes a path, or the text itself
        return min(
            x509_certificate.not_valid_after_utc.timestamp() for x509_certificate in x509.load_pem_x509_certificates(content)
        )
    except (OSError, ValueError):
        return 0.0


PATIENCE = 2.0
"""Seconds for which a ledger that is away is waited for: Prometheus gives up after ten."""
DATASET_LABEL = ["dataset"]


@dataclass(frozen=True)
class LedgerFigures:
    """What the ledger knows, by data set; all empty where it could not be read."""

    budgets: Mapping[str, DatasetBudget] = field(default_factory=dict)
    states: Mapping[tuple[str, str], int] = field(default_factory=dict)
    released: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)


class Installation(Collector):
    """The metrics of a state folder and its ledger, read anew each time."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def collect(self) -> Iterator[Metric]:
        """All of them; dpdist_ledger_up is 0 when the ledger could not be read."""
        ledger_up = GaugeMetricFamily("dpdist_ledger_up", "Whether the ledger could be read.", 1)
        facts, ledgered = read_facts(self.home / FOLDER), LedgerFigures()
        try:
            with ledger_access.open_local_ledger(self.home, patience=PATIENCE) as ledger:
                newest = {budget.dataset: budget for budget in ledger.budgets()}  # in order of first use
                ledgered = LedgerFigures(newest, ledger.states(), ledger.released())
        except Exception:  # noqa: BLE001 - the metric says so; its text may name the database
            ledger_up = GaugeMetricFamily("dpdist_ledger_up", "Whether the ledger could be read.", 0)
        yield ledger_up
        yield from _of_ledger(ledgered)
        yield from _of_periods(ledgered, facts)
        yield _of_holds(self.home, ledgered.budgets)
        yield from _of_runs(facts, sorted({*ledgered.budgets, *facts.get("published", {})}))
        yield from _of_failures(
            facts, sorted({"", *ledgered.budgets, *facts.get("published", {}), *facts.get("failed", {})})
        )
        yield from _of_stages(facts)
        yield _of_certificates()


def _of_ledger(ledgered: LedgerFigures) -> Iterator[Metric]:
    labels = ["dataset", "unit", "per"]
    cap = GaugeMetricFamily("dpdist_budget_cap", "The most that may be spent of the newest period's budget.", labels=labels)
    remaining = GaugeMetricFamily(
        "dpdist_budget_left", "What may still be spent of the newest period's budget.", labels=labels
    )
    states = GaugeMetricFamily("dpdist_releases", "Releases in the ledger by state.", labels=["dataset", "state"])
    for (dataset, state), number in ledgered.states.items():
        states.add_metric([dataset, state], number)
    for dataset, budget in ledgered.budgets.items():
        named = [dataset, budget.cap.unit, budget.cap.per]
        cap.add_metric(named, float(budget.cap.remaining(Loss(), budget.rule)))
        remaining.add_metric(named, float(budget.remaining))
    yield from (cap, remaining, states)


def _of_periods(ledgered: LedgerFigures, facts: dict[str, Any]) -> Iterator[Metric]:
    published = GaugeMetricFamily(
        "dpdist_period_published",
        f"Whether the {NEWEST} newest periods that are over are published.",
        labels=["dataset", "period"],
    )
    missing = GaugeMetricFamily(
        "dpdist_periods_missing",
        "Periods that are over and not published, since the cap was declared.",
        labels=DATASET_LABEL,
    )
    now, runs = datetime.datetime.now(datetime.UTC), facts.get("published", {})
    for dataset in sorted({*ledgered.released, *runs}):
        declared, finished = ledgered.released.get(dataset, ("", frozenset()))
        per = ledgered.budgets[dataset].cap.per if declared else None
        periods = expected(per, declared, finished, runs.get(dataset, {}), now)
        for period, there in list(periods.items())[-NEWEST:]:
            published.add_metric([dataset, period], there)
        missing.add_metric([dataset], len(periods) - sum(periods.values()))
    yield from (published, missing)


def _of_holds(home: Path, datasets: Iterable[str]) -> Metric:
    held = GaugeMetricFamily(
        "dpdist_releases_held", "Releases that are held back until somebody has looked at them.", labels=DATASET_LABEL
    )
    waiting = Counter(hold.dataset for hold in release_holds(home) if hold.state == "held")
    for dataset in sorted({*datasets, *waiting}):
        held.add_metric([dataset], waiting[dataset])
    return held


def _of_runs(facts: dict[str, Any], datasets: Iterable[str]) -> Iterator[Metric]:
    published_at = GaugeMetricFamily(
        "dpdist_last_publication_timestamp_seconds", "When a release was published last.", labels=DATASET_LABEL
    )
    since = GaugeMetricFamily(
        "dpdist_seconds_since_publication", "Seconds since a release was published last.", labels=DATASET_LABEL
    )
    size = CounterMetricFamily("dpdist_published_bytes", "Bytes of all files that were published.", labels=DATASET_LABEL)
    number = CounterMetricFamily(
        "dpdist_published_releases", "Releases that runs published, repeats included.", labels=DATASET_LABEL
    )
    for dataset in datasets:
        publication = facts.get("published", {}).get(dataset, {"bytes": 0, "releases": 0})
        size.add_metric([dataset], publication["bytes"])
        number.add_metric([dataset], publication["releases"])
        if "at" in publication:
            published_at.add_metric([dataset], publication["at"])
            since.add_metric([dataset], max(0.0, time.time() - publication["at"]))
    yield from (published_at, since, size, number)


def _of_failures(facts: dict[str, Any], datasets: Iterable[str]) -> Iterator[Metric]:
    labels = ["dataset", "reason"]
    failures = CounterMetricFamily("dpdist_failures", "Runs that failed, by the name of the error.", labels=labels)
    last_failure = GaugeMetricFamily(
        "dpdist_last_failure_timestamp_seconds", "When a run failed last for a reason.", labels=labels
    )
    for dataset in datasets:
        failures_by_reason = facts.get("failed", {}).get(dataset, {})
        for reason in REASONS:
            failures.add_metric([dataset, reason], failures_by_reason.get(reason, {"runs": 0})["runs"])
            if reason in failures_by_reason:
                last_failure.add_metric([dataset, reason], failures_by_reason[reason]["at"])
    yield from (failures, last_failure)


def _of_certificates() -> Metric:
    end = GaugeMetricFamily(
        "dpdist_dask_certificate_end_timestamp_seconds",
        "When a certificate of the Dask cluster ends; 0 for one that cannot be read.",
        labels=["certificate"],
    )
    for name, moment in certificate_ends():
        end.add_metric([name], moment)
    return end


def _of_stages(facts: dict[str, Any]) -> Iterator[Metric]:
    labels = ["dataset", "stage"]
    seconds = HistogramMetricFamily("dpdist_stage_seconds", "How long stages took; counting is left out.", labels=labels)
    for dataset, stages in facts.get("stages", {}).items():
        for stage, entry in stages.items():
            buckets = zip((*map(str, BUCKETS), "+Inf"), accumulate(entry["counts"]), strict=True)
            seconds.add_metric([dataset, stage], list(buckets), entry["sum"])
    memory = GaugeMetricFamily("dpdist_stage_memory_bytes", "The most that a stage takes, as planned.", labels=labels)
    for dataset, stages in facts.get("memory", {}).items():
        for stage, count in stages.items():
            memory.add_metric([dataset, stage], count)
    yield from (seconds, memory)


def registry(home: Path) -> CollectorRegistry:
    """A registry with the metrics of a state folder and its ledger, and nothing else."""
    collectors = CollectorRegistry()
    collectors.register(Installation(home))
    return collectors
