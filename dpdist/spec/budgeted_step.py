"""What parts of a release's budget find in the records before it is planned: bounds, names, what bounds leave out, quantiles.

They are found one after the other, each under a charge and a key of its own, in the order of ``dpdist.spec.steps.step_registry``: the
bound on a person's records, on which all others depend; names and edges of bins, on which groups depend; the bound on groups; ranges of
amounts of the records that count then; how complete the records are; what all these bounds leave out; quantiles; and rows of a
thresholded histogram.

A step is one class: how a spec declares it, its part of the budget, what it counts and stores, the release with it, and what a certificate
and ``plan`` say of it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.digests import compute_digest
from dpdist.domain import Attribute
from dpdist.engine import Engine
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.privacy.step_noise import split_budget
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.budgets import ReleaseBudgetSpec
from dpdist.spec.sections.private_bounds import ShareSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.storage.array_store import Store, StoredArray


class StepOrder(IntEnum):
    """When steps are found: what is found enters what is found after it."""

    RECORDS, VALUES, GROUPS, AMOUNTS, CLASSES, BESIDE, ROWS = range(7)


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
    """How the errors of a release grow: the choice of a bound weighs them against what it loses."""

    variances: Matrix
    record_loss: float


@dataclass(frozen=True)
class PlannedErrors:
    """The errors of a release (a ``Job``) with some bound.

    Attributes:
        variance: predicted total squared error of all (weighted) answers.
        query_errors: gives the standard error of every query.
    """

    job: Any
    variance: float
    query_errors: Callable[[], Matrix]


class StepRule(Protocol):
    """How it is found."""

    @property
    def loss(self) -> Loss:
        """What it reveals of one change."""


class NoisyRule(StepRule, Protocol):
    """How it is found from noisy counts."""

    @property
    def noise(self) -> Noise:
        """What is drawn."""


@dataclass(frozen=True)
class StepDeclaration:
    """What a spec asks a part of its budget to find.

    Attributes:
        step_spec: how the spec asks for it.
        changed_parts: gives the parts of the spec that are others with what was found, or with placeholders for it (None).
        subject: the attribute or column of which it is found; empty where it is of the whole release.
    """

    step_spec: ShareSpec
    changed_parts: Callable[[Any], Mapping[str, Any]]
    subject: str = ""


@dataclass(frozen=True)
class BudgetedStep(ABC):
    """What a part of the budget finds in the records before the release is planned.

    Attributes:
        step_spec: how the spec asks for it.
        make_job: the ``Job`` with what was found, or with placeholders for it (None), and a budget.
        spent: the share that was spent on what is found before it.
        failure: the deltas of all selections of names that are still to be made.
        subject: the attribute or column of which it is found; empty where it is of the whole release.
        number: of it among those of its kind.
        laplace: whether the spec asks for Laplace noise, which leaves a delta unspent.
        job: the release (a ``Job``) before it is found: ``Job.next_step`` has it.
    """

    step_spec: Any
    make_job: Callable[[Any, ReleaseBudgetSpec], Any]
    spent: Fraction
    failure: Fraction
    subject: str
    number: int
    laplace: bool
    job: Any = field(default=None, compare=False, repr=False)

    purpose: ClassVar[str]
    """What the digest of ``binding`` is of."""
    spec_text: ClassVar[str]
    """How a spec asks for it."""
    spec_path: ClassVar[tuple[str, ...]]
    """Where a spec asks for it, up to what it is of."""
    reason_without_stream: ClassVar[str] = "is found once and goes without 'stream', whose records come one after the other"
    """Why no stream has it, after its name."""
    ends: ClassVar[tuple[str, ...]]
    """What ends the id of its charge, of the first of its kind and of each next one."""
    of_bounds: ClassVar[bool] = True
    """Whether it looks at records and amounts one by one."""
    order: ClassVar[StepOrder] = StepOrder.BESIDE
    """When it is found."""
    is_independent: ClassVar[bool] = False
    """Whether the release is the same whatever is found."""
    chooses_records: ClassVar[bool] = False
    """Whether it decides which records count."""
    chooses_bound: ClassVar[bool] = False
    """Whether it chooses a bound: predicted errors are those of the largest one before."""
    says_bound_loss: ClassVar[bool] = False
    """Whether a certificate says what bounds leave out, once it is found."""
    smallest_outcome: ClassVar[Any] = None
    """Of values, as few as may be found: whatever is asked for must be possible with them, too. None: nothing depends on it."""

    @classmethod
    @abstractmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        """What a spec asks for of this kind, in order."""

    @property
    def budget_share(self) -> Fraction:
        """Of the budget as the spec says it."""
        return cast("Fraction", self.step_spec.share)

    def split_budget(self, budget: ReleaseBudgetSpec) -> tuple[Loss, Loss]:
        """What it spends of a budget, of which ``spent`` is not there any more, and the rest. Raises: InvalidInput."""
        whole = budget.loss_beside(self.failure, "l1" if self.laplace or budget.pure else "l2")
        return split_budget(whole, self.budget_share / (1 - self.spent))

    @property
    def step_budget(self) -> Loss:
        """Its part of the release's budget."""
        step_budget, _ = self.split_budget(self.job.guarantee.budget)
        return step_budget

    @property
    @abstractmethod
    def rule(self) -> StepRule:
        """How its part of the budget finds it."""

    @property
    def loss(self) -> Loss:
        """What it reveals of one change."""
        return self.rule.loss

    @property
    def release(self) -> str:
        """The id that the ledger charges."""
        return f"{self.job.release}{self.ends[self.number]}"

    @property
    def key(self) -> str:
        """How a spec asks for it, and of what."""
        return f"{self.spec_text} of {self.subject!r}" if self.subject else self.spec_text

    @property
    def key_path(self) -> tuple[str, ...]:
        """Where a spec asks for it."""
        return (*self.spec_path, self.subject) if self.subject else self.spec_path

    def check_share(self) -> None:
        """Raises: InvalidInput where there are too many of its kind, or nothing is left of the budget."""
        if self.number >= len(self.ends):
            raise InvalidInput(
                f"a release asks for {self.spec_text} of at most {len(self.ends)}: declare those of {self.subject!r}"
            )
        if self.budget_share + self.spent >= 1:
            raise InvalidInput(f"{self.key} and what is found before it spend all of the budget: lower the shares")

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for records and cells that it cannot be found for."""
        if self.of_bounds and measured.bounded_column:
            raise InvalidInput(
                f"{self.key} goes without 'most_per_person', which cuts the amounts of a person down by their sum: it looks at records and "
                "amounts one by one"
            )
        if self.of_bounds and records.counts is not None:
            raise InvalidInput(
                f"{self.key} looks at single records and at those of a person, and nobody knows any more which were counted before, nor "
                "whose: give the records themselves, or leave it out"
            )

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
        """What is counted of the records (``StepCount``). Raises: DpdistError; whatever counting would refuse is refused here."""

    def task_bytes(self, engine: Engine) -> int:
        """What a task of workers takes while records are counted for it; 0 where this process counts them."""
        return 0

    @abstractmethod
    def values_to_store(self, counted: Any, key: bytes, errors: CandidateErrors | None) -> Any:
        """What the store keeps, as values of JSON: made of noisy numbers and private choices alone."""

    def delete_scratch(self, counted: Any) -> None:
        """Delete what counting left in the store, once it was drawn or refused."""
        return

    def job_with_stored(self, store: Store, stored: StoredArray) -> Any:
        """The ``Job`` with what was found. Raises: InvalidInput when that is nothing: what was spent to learn it stays spent."""
        return self.job_with_values(json.loads(np.asarray(store.read_array(stored)).tobytes().decode()))

    def job_with_values(self, values: Any) -> Any:
        """The same, of what was stored."""
        return self.job.with_step_result(True, values)

    @abstractmethod
    def facts(self, job: Any, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a certificate says of it.

        Args:
            job: the ``Job`` with what was found.
            published_numbers: the numbers that are published with it, None while placeholders stand for it.
        """

    def tables(self, published_numbers: Mapping[str, Any]) -> dict[str, Mapping[str, Sequence[Any]]]:
        """The columns of each table that is published as a file beside the certificate, by its name: what is too long for that.

        Args:
            published_numbers: as for ``facts``.
        """
        return {}

    def plan_sentences(self) -> list[str]:
        """What ``plan`` says of it before it is found."""
        return []


def encode_values(values: Any) -> NDArray[np.uint8]:
    """What is stored, as the bytes of an array."""
    return np.frombuffer(json.dumps(values, ensure_ascii=False).encode(), dtype=np.uint8)


class NoisyStep(BudgetedStep):
    """What is found before the plan from noisy counts."""

    @property
    @abstractmethod
    def rule(self) -> NoisyRule: ...

    @property
    def noise(self) -> Noise:
        """What is drawn."""
        return self.rule.noise

    @property
    def draw_facts(self) -> Mapping[str, Any]:
        return {"noise": self.noise.kind, "scale": self.noise.scale}

    def values_to_store(self, counted: Any, key: bytes, errors: CandidateErrors | None) -> Any:
        rule: Any = self.rule  # whose noisy counts are all that is stored
        return {"values": rule.noisy(counted.counts, self.samples(key)).tolist()}

    def samples(self, key: bytes) -> Draw:
        """Gives samples of the key's noise."""
        return lambda count: self.noise.draw(key, count=count)
