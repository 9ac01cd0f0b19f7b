"""What a part of a release's budget finds before its plan: names, or a bound. Each is a charge of its own, with a key of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpdist.identities import digest_of
from dpdist.machine.store import Store, StoredArray
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.records.sources import Source
from dpdist.spec.found_first import FoundFirst
from dpdist.spec.job import Job

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
    """How the errors of a release grow: see ``dpdist.quantities.left_out.NoisyCounts.chosen``."""

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


class Preliminary(ABC):
    """What is found before the plan.

    Attributes:
        job: the release before it is found.
    """

    job: Job

    @property
    def release(self) -> str:
        """The id that the ledger charges."""
        assert isinstance(self.job.guarantee.names, FoundFirst)
        return f"{self.job.release}{self.job.guarantee.names.suffix}"

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """What it reveals of one change."""

    @property
    @abstractmethod
    def drawn(self) -> Mapping[str, Any]:
        """What the store says of the draw."""

    @property
    @abstractmethod
    def binding(self) -> str:
        """What the charge and the key are bound to. The workload is not part of it: where that is corrected, what was paid for stays."""

    @abstractmethod
    def counted(self, source: Source) -> Any:
        """What is counted of the records (``Counted``). Raises: DpdistError; whatever counting would refuse is refused here."""

    @abstractmethod
    def kept(self, counted: Any, key: bytes, errors: PredictedErrors | None) -> NDArray[np.uint8]:
        """What the store keeps: bytes of JSON, made of noisy numbers and private choices alone."""

    @abstractmethod
    def with_kept(self, store: Store, stored: StoredArray) -> Job:
        """The release with what was found. Raises: InvalidInput when that is nothing: what was spent to learn it stays spent."""

    @abstractmethod
    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a certificate says of it.

        Args:
            job: with what was found.
            found: the numbers that are published with it, None while placeholders stand for it.
        """


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


class PrivateChoice(Preliminary):
    """What is found before the plan by private choices alone."""

    purpose: ClassVar[str]
    """What the digest of ``binding`` is of."""

    @property
    def drawn(self) -> Mapping[str, Any]:
        return {"choices": "exponential mechanism"}

    @cached_property
    def binding(self) -> str:
        guarantee, measured = self.job.guarantee, self.job.measured
        facts = {
            "person": guarantee.person,
            "neighbours": guarantee.neighbours,
            "domain": [(name, given.measured) for name, given in measured.attributes.items()],  # which records count
            "columns": guarantee.columns,
            "rule": [[*each.values()] for each in self.choices()],
            **self.bound_to,
        }
        return digest_of(self.purpose, facts)

    @property
    @abstractmethod
    def bound_to(self) -> Mapping[str, Any]:
        """What else decides what is counted."""

    @abstractmethod
    def choices(self) -> Iterator[dict[str, Any]]:
        """How each of them is made, for certificates."""
