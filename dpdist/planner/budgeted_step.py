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

from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.digests import compute_digest
from dpdist.domain import Attribute
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.spec.job import Job
from dpdist.spec.preprocessing_budget import PreprocessingStep
from dpdist.storage.array_store import Store, StoredArray

Draw = Callable[[int], NDArray[np.int64]]
"""Gives so many samples of the noise."""


class StepCount(Protocol):
    """What was counted of the records, in the memory of this process alone."""

    @property
    def digest(self) -> str:
        """SHA-256 of it: only a commitment of it may be written down."""

    @property
    def records_read(self) -> int:
        """How many records were read."""


@dataclass(frozen=True)
class CandidateErrors:
    """How the errors of a release grow: see ``dpdist.statistics.truncation_loss.NoisyCounts.chosen``."""

    variances: Matrix
    record_loss: float


@dataclass(frozen=True)
class PlannedErrors:
    """The errors of a release with some bound.

    Attributes:
        variance: predicted total squared error of all (weighted) answers.
        query_errors: gives the standard error of every query.
    """

    job: Job
    variance: float
    query_errors: Callable[[], Matrix]


class StepRule(Protocol):
    """How it is found."""

    @property
    def loss(self) -> Loss:
        """What it reveals of one change."""


@dataclass(frozen=True)
class BudgetedStep(ABC):
    """What is found before the plan.

    Attributes:
        job: the release before it is found.
        step_spec: what the spec asks for.
        rule: how it is found.
    """

    job: Job
    step_spec: PreprocessingStep
    rule: StepRule

    purpose: ClassVar[str]
    """What the digest of ``binding`` is of."""

    @classmethod
    @abstractmethod
    def for_budget(cls, job: Job, step_spec: Any, step_budget: Loss) -> Self:
        """As a part of the budget finds it."""

    @property
    def release(self) -> str:
        """The id that the ledger charges."""
        return f"{self.job.release}{self.step_spec.suffix}"

    @property
    def loss(self) -> Loss:
        """What it reveals of one change."""
        return self.rule.loss

    @property
    @abstractmethod
    def draw_facts(self) -> Mapping[str, Any]:
        """What the store says of the draw."""

    @cached_property
    def binding(self) -> str:
        """What the charge and the key are bound to. The workload is not part of it: where that is corrected, what was paid for stays."""
        return compute_digest(self.purpose, {"neighbours": self.job.guarantee.neighbours, **self.binding_facts})

    @property
    @abstractmethod
    def binding_facts(self) -> Mapping[str, Any]:
        """What decides what is counted and what is found."""

    @property
    def record_facts(self) -> Mapping[str, Any]:
        """What decides which records count, of whatever attributes: records beyond the domain count for nobody."""
        attributes = self.job.measured.attributes
        return {
            "domain": [(name, attribute.digest_form) for name, attribute in attributes.items()],
            "columns": self.job.guarantee.columns,
        }

    @property
    def complete(self) -> tuple[Attribute, ...]:
        """Columns of which every record within the domain must have an amount."""
        return ()

    def check_later(self, records: PartitionedRecords) -> None:
        """Refuse, before anything else is charged, what only its own reading would see. Raises: DpdistError."""
        return

    def errors(self, planned: Callable[[int], PlannedErrors]) -> CandidateErrors | None:
        """How the errors of the release grow with what is found; None where it does not depend on them.

        Args:
            planned: gives its errors with some bound. Raises: InvalidInput where nobody knows them.
        """
        return None

    @abstractmethod
    def count_records(self, records: PartitionedRecords) -> Any:
        """What is counted of the records (``Counted``). Raises: DpdistError; whatever counting would refuse is refused here."""

    @abstractmethod
    def values_to_store(self, counted: Any, key: bytes, errors: CandidateErrors | None) -> Any:
        """What the store keeps, as values of JSON: made of noisy numbers and private choices alone."""

    def delete_scratch(self, counted: Any) -> None:
        """Delete what counting left in the store, once it was drawn or refused."""
        return

    def job_with_stored(self, store: Store, stored: StoredArray) -> Job:
        """The release with what was found. Raises: InvalidInput when that is nothing: what was spent to learn it stays spent."""
        return self.job_with_values(json.loads(np.asarray(store.read_array(stored)).tobytes().decode()))

    def job_with_values(self, values: Any) -> Job:
        """The same, of what was kept."""
        return self.job.with_step_result(True, values)

    @abstractmethod
    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a certificate says of it.

        Args:
            job: with what was found.
            published_numbers: the numbers that are published with it, None while placeholders stand for it.
        """


def encode_values(values: Any) -> NDArray[np.uint8]:
    """What is kept, as the bytes of an array."""
    return np.frombuffer(json.dumps(values, ensure_ascii=False).encode(), dtype=np.uint8)


class NoisyStep(BudgetedStep):
    """What is found before the plan from noisy counts."""

    @property
    @abstractmethod
    def noise(self) -> Noise:
        """What is drawn."""

    @property
    def draw_facts(self) -> Mapping[str, Any]:
        return {"noise": self.noise.kind, "scale": self.noise.scale}

    def samples(self, key: bytes) -> Draw:
        """Gives samples of the key's noise."""
        return lambda count: self.noise.draw(key, count=count)
