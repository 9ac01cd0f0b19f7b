"""What is reported of one run of a release, and to whom: observers hear the same public facts."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdist.pipeline.release_run import Release
    from dpdist.spec import Job
    from flows.public_facts import StageTime


@dataclass
class Run:
    """One run of a release: public facts, as its certificate or Prefect's server has them. No records, counts, tallies or paths of records.

    Attributes:
        period_length: how long its periods are: day, week, month, or None where nobody said.
        needs_records: whether it fails without records; catching up passes over periods that have none.
        started_at: when the run started.
        charge: what the release reveals, in the units of the certificate; known once it is planned.
        memory: bytes that each stage promises to take at most; known once it is planned.
    """

    release: str
    dataset: str
    period: datetime.date | None
    period_length: str | None
    spec_digest: str
    needs_records: bool = True
    started_at: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    charge: Mapping[str, float | str] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(job: Job, *, period_length: str | None = None, needs_records: bool = True) -> Run:
        """A run of a job; who does not say how long its periods are means those of the cap."""
        guarantee, per = job.guarantee, job.guarantee.cap.per
        known_length = period_length or (None if per == "total" else per)
        return Run(job.release, guarantee.dataset, guarantee.period, known_length, job.digest, needs_records)

    @staticmethod
    def of_facts(facts: Mapping[str, Any]) -> Run:
        """A run of which nothing more is known than its facts."""
        period = None if facts["period"] is None else datetime.date.fromisoformat(facts["period"])
        return Run(facts["release"], facts["dataset"], period, None, "", id=uuid.UUID(facts["run"]))

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        period = None if self.period is None else self.period.isoformat()
        return {"release": self.release, "dataset": self.dataset, "period": period, "run": str(self.id)}


@dataclass(frozen=True)
class RunResult:
    """What a run published.

    Attributes:
        location: a folder or the URL of one.
        bytes: of all files there.
        answers: how many.
        charged: whether this run charged the budget.
    """

    location: str
    bytes: int
    answers: int
    charged: bool

    @staticmethod
    def of(release: Release) -> RunResult:
        """What a release published."""
        size = sum(entry.size for entry in release.location.entries())
        return RunResult(str(release.location), size, release.plan.workload.shape[0], release.charged)


class Observer:
    """Somebody who hears of a run. Whatever a method raises is passed over."""

    def started(self, run: Run) -> None:
        """The run began."""

    def planned(self, run: Run) -> None:
        """Its charge and memory are known."""

    def stage(self, run: Run, taken: StageTime) -> None:
        """A stage ended. Stages whose time tells of the records are not reported."""

    def published(self, run: Run, result: RunResult) -> None:
        """The release is published."""

    def failed(self, run: Run, reason: str) -> None:
        """The run ended otherwise; the reason is the name of the error."""

    def failed_in_service(self, run: Run, reason: str) -> None:
        """The same, as the service notes it that started the run's process, which may have been killed before it told anybody."""
