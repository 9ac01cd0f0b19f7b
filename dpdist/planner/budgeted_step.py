"""What a part of a release's budget finds before its plan: names, or a bound. Each is a charge of its own, with a key of its own."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.person_histograms import RecordsInParts
from dpdist.digests import digest_of
from dpdist.domain import Attribute
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.spec.job import Job
from dpdist.spec.preprocessing_budget import FoundFirst
from dpdist.storage.array_store import Store, StoredArray

Draw = Callable[[int], NDArray[np.int64]]
"""Gives so many samples of the noise."""


class PreliminaryCount(Protocol):
    """What was counted of the records, in the memory of this process alone."""

    @property
    def digest(self) -> str:
        """SHA-256 of it: only a commitment of it may be written down."""

    @property
    def read(self) -> int:
        """How many records were read."""


@dataclass(frozen=True)
class PredictedErrors:
    """How the errors of a release grow: see ``dpdist.statistics.truncation_loss.NoisyCounts.chosen``."""

    variances: Matrix
    spread: float


@dataclass(frozen=True)
class PlannedErrors:
    """The errors of a release with some bound.

    Attributes:
        variance: predicted total squared error of all (weighted) answers.
        each: gives the standard error of every query.
    """

    job: Job
    variance: float
    each: Callable[[], Matrix]


class Rule(Protocol):
    """How it is found."""

    @property
    def loss(self) -> Loss:
        """What it reveals of one change."""


@dataclass(frozen=True)
class Preliminary(ABC):
    """What is found before the plan.

    Attributes:
        job: the release before it is found.
        asked: what the spec asks for.
        rule: how it is found.
    """

    job: Job
    asked: FoundFirst
    rule: Rule

    purpose: ClassVar[str]
    """What the digest of ``binding`` is of."""

    @classmethod
    @abstractmethod
    def planned(cls, job: Job, asked: Any, part: Loss) -> Self:
        """As a part of the budget finds it."""

    @property
    def release(self) -> str:
        """The id that the ledger charges."""
        return f"{self.job.release}{self.asked.suffix}"

    @property
    def loss(self) -> Loss:
        """What it reveals of one change."""
        return self.rule.loss

    @property
    @abstractmethod
    def drawn(self) -> Mapping[str, Any]:
        """What the store says of the draw."""

    @cached_property
    def binding(self) -> str:
        """What the charge and the key are bound to. The workload is not part of it: where that is corrected, what was paid for stays."""
        return digest_of(self.purpose, {"neighbours": self.job.guarantee.neighbours, **self.bound_to})

    @property
    @abstractmethod
    def bound_to(self) -> Mapping[str, Any]:
        """What decides what is counted and what is found."""

    @property
    def counted_records(self) -> Mapping[str, Any]:
        """What decides which records count, of whatever attributes: records beyond the domain count for nobody."""
        attributes = self.job.measured.attributes
        return {
            "domain": [(name, given.measured) for name, given in attributes.items()],
            "columns": self.job.guarantee.columns,
        }

    @property
    def complete(self) -> tuple[Attribute, ...]:
        """Columns of which every record within the domain must have an amount."""
        return ()

    def check_later(self, records: RecordsInParts) -> None:
        """Refuse, before anything else is charged, what only its own reading would see. Raises: DpdistError."""
        return

    def errors(self, planned: Callable[[int], PlannedErrors]) -> PredictedErrors | None:
        """How the errors of the release grow with what is found; None where it does not depend on them.

        Args:
            planned: gives its errors with some bound. Raises: InvalidInput where nobody knows them.
        """
        return None

    @abstractmethod
    def counted(self, records: RecordsInParts) -> Any:
        """What is counted of the records (``Counted``). Raises: DpdistError; whatever counting would refuse is refused here."""

    @abstractmethod
    def kept(self, counted: Any, key: bytes, errors: PredictedErrors | None) -> Any:
        """What the store keeps, as values of JSON: made of noisy numbers and private choices alone."""

    def with_kept(self, store: Store, stored: StoredArray) -> Job:
        """The release with what was found. Raises: InvalidInput when that is nothing: what was spent to learn it stays spent."""
        return self.with_found(json.loads(np.asarray(store.read(stored)).tobytes().decode()))

    def with_found(self, found: Any) -> Job:
        """The same, of what was kept."""
        return self.job.with_found(True, found)

    @abstractmethod
    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a certificate says of it.

        Args:
            job: with what was found.
            found: the numbers that are published with it, None while placeholders stand for it.
        """


def written(kept: Any) -> NDArray[np.uint8]:
    """What is kept, as the bytes of an array."""
    return np.frombuffer(json.dumps(kept, ensure_ascii=False).encode(), dtype=np.uint8)


class NoisyPreliminary(Preliminary):
    """What is found before the plan from noisy counts."""

    @property
    @abstractmethod
    def noise(self) -> Noise:
        """What is drawn."""

    @property
    def drawn(self) -> Mapping[str, Any]:
        return {"noise": self.noise.kind, "scale": self.noise.scale}

    def samples(self, key: bytes) -> Draw:
        """Gives samples of the key's noise."""
        return lambda count: self.noise.draw(key, count=count)
