"""Releases that are disturbed at a chosen moment, and what became of them: how long until they went on, their charges and their bytes."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.deploy.control_plane import Refused
from tests.kubernetes.installed_chart import ENDED, NAMESPACE, PARTS, STAGES, InstalledChart

LONGEST = 1200
"""Seconds after which a run has ended: a silent one is taken for dead after 180, one that its worker had not yet started after 900."""


@dataclass
class Disturbed:
    """A release, and what was done to it.

    Attributes:
        runs: that were asked for, one after the other.
        begun: when the first was.
        done: what was done, in which stage, and when.
        published: when the last file was there.
    """

    name: str
    period: str
    runs: list[str]
    begun: float
    done: list[tuple[str, str, float]] = field(default_factory=list)
    published: float | None = None


@dataclass
class Disturbances:
    """What was done to releases of an installed chart.

    Attributes:
        periods: those that no release was made for, yet.
        compared: how many of the releases were compared with those of one process.
    """

    chart: InstalledChart
    periods: list[str]
    releases: list[Disturbed] = field(default_factory=list)
    compared: int = 0

    def begin(self, name: str) -> Disturbed:
        """A release of a period of its own, as soon as its run has a process."""
        for part in ("service", "worker", "dask-worker", "dask-scheduler"):
            self.chart.wait(part)
        period = self.periods.pop(0)
        begun = time.monotonic()
        self.releases.append(Disturbed(name, period, [self.chart.running(name, period)], begun))
        return self.releases[-1]

    def disturb_at_stage(self, disturbed: Disturbed, stage: str, what: str, disturb: Callable[[], object]) -> None:
        """Disturb a release as soon as it has reached a stage."""
        now = self.reach(disturbed, stage)
        disturb()
        disturbed.done.append((what, now, time.monotonic()))

    def reach(self, disturbed: Disturbed, stage: str) -> str:
        """The stage of a release, as soon as it is this one or a later one."""
        deadline = time.monotonic() + LONGEST
        while STAGES.index(now := self.chart.stage(disturbed.name, disturbed.period)) < STAGES.index(stage):
            state = self._asked_again(disturbed)
            assert time.monotonic() < deadline, f"{disturbed} does not reach {stage}: {state}"
            time.sleep(0.05)
        return now

    def evict(self, disturbed: Disturbed, stage: str, part: str) -> None:
        """Evict a pod of a part as soon as a release has reached a stage; noted is that in which it was when it was asked for."""
        deadline = time.monotonic() + LONGEST
        while True:
            pods = self.chart.node.pods(NAMESPACE, part)
            now = self.reach(disturbed, stage)
            if pods and self.chart.node.evict(NAMESPACE, pods[0]["metadata"]["name"]) < 300:
                break
            assert time.monotonic() < deadline, f"{part} cannot be evicted"
            time.sleep(0.2)
        disturbed.done.append((part, now, time.monotonic()))
        if (
            part == "worker"
        ):  # the run's process goes with its pod: an operator does not wait until Prefect takes it for dead
            disturbed.runs.append(self.chart.begin(disturbed.name, disturbed.period))

    def publish(self, disturbed: Disturbed) -> None:
        """Wait until a release is published; where its run has ended otherwise, it is asked for again, as the schedule does."""
        deadline = time.monotonic() + LONGEST
        while not self.chart.is_published(disturbed.name, disturbed.period):
            state = self._asked_again(disturbed)
            assert time.monotonic() < deadline, f"{disturbed} is not published: {state}"
            time.sleep(0.25)
        disturbed.published = time.monotonic()
        done = "; ".join(f"{what} in {stage}" for what, stage, _ in disturbed.done)
        last = max(moment for *_, moment in disturbed.done) if disturbed.done else disturbed.begun
        print(
            f"| {disturbed.name} | {done or 'nothing'} | {max(0.0, disturbed.published - last):.0f} | "
            f"{disturbed.published - disturbed.begun:.0f} | {len(disturbed.runs) - 1} |",
            flush=True,
        )

    def _asked_again(self, disturbed: Disturbed) -> dict[str, Any]:
        """The state of the last run of a release; where it has ended otherwise than well, there is another one, as with the schedule."""
        state = self.chart.state(disturbed.runs[-1])
        if state["type"] in ENDED and state["type"] != "COMPLETED":
            print(f"{disturbed.name}-{disturbed.period}: {state['name']}, {state['message']}"[:300], flush=True)
            disturbed.runs.append(self.chart.begin(disturbed.name, disturbed.period))
        return state

    def check(self) -> None:
        """All runs have ended, and each release was charged once. Prints how the runs ended."""
        deadline, ends = time.monotonic() + LONGEST, Counter[str]()
        for run in (run for disturbed in self.releases for run in disturbed.runs):
            while (state := self.chart.state(run))["type"] not in ENDED:
                assert time.monotonic() < deadline, f"a run is still {state}"
                time.sleep(1)
            ends[state["type"]] += 1
        print(f"runs of {len(self.releases)} releases: {dict(ends)}", flush=True)
        charges = self.chart.charges()
        wrong = {name: charges[name] for each in self.releases if charges[name := f"{each.name}-{each.period}"] != 1}
        assert not wrong, f"charged otherwise than once: {wrong}"

    def compare_answers(self) -> None:
        """The answers of releases are, to the byte, those of one process under the same key and salts: of all not yet compared."""
        releases = [(disturbed.name, disturbed.period) for disturbed in self.releases[self.compared :]]
        alone = self.chart.answers_of_one_process(releases)
        assert all(alone.values()), "one process published no answers"
        different = [release for release in releases if self.chart.answers(*release) != alone[release]]
        assert not different, f"other answers than those of one process: {different}"
        self.compared = len(self.releases)
        print(f"the answers of {len(releases)} releases are those of one process", flush=True)


class Usage:
    """The most that pods of each part took, asked of the kubelet again and again."""

    def __init__(self, chart: InstalledChart) -> None:
        self.chart, self.most = chart, defaultdict(lambda: defaultdict(float))
        self.client = chart.node.administrator("usage")
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._sample_usage, daemon=True)
        self.thread.start()

    def _sample_usage(self) -> None:
        while not self.ended.wait(5):
            with suppress(httpx.HTTPError, Refused, KeyError):
                for part, taken in self.chart.node.usage(self.client):
                    for kind, amount in taken.items():
                        self.most[part][kind] = max(self.most[part][kind], amount)

    def table(self) -> str:
        """Markdown: the most that each part took."""
        self.ended.set()
        self.thread.join()
        rows = [
            f"| {part} | {self.most[part]['memory'] / 2**20:.0f} | {self.most[part]['disk'] / 2**20:.1f} | {self.most[part]['cores']:.2f} |"
            for part in (*PARTS, "ledger")
        ]
        return "\n".join(["| part | MiB of memory | MiB of disk | cores |", "|---|---|---|---|", *rows])
