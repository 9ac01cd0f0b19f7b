"""What a plan may assume of records that nobody has looked at: protocols, which a plugin fills."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dpdist.spec.sections.plugin_sections import PluginSection

if TYPE_CHECKING:
    import pyarrow as pa


class AmountDistribution(Protocol):
    """How large amounts are."""

    @property
    def mean(self) -> float:
        """Their mean."""

    @property
    def square(self) -> float:
        """The mean of their squares."""


class BoundTradeoffs(ABC):
    """What values of each bound would lose of assumed records, and their error with noise and loss together.

    Attributes:
        assumed: of the records, in words.
        records: how many are assumed.
    """

    assumed: str
    records: float

    @property
    @abstractmethod
    def best_values(self) -> Mapping[str, float]:
        """The value of least predicted error, by bounds."""

    @property
    @abstractmethod
    def arrow(self) -> pa.Table:
        """A row a value: bound, value, lost (share), error (share of a usual answer), as_planned, least."""

    @property
    @abstractmethod
    def facts(self) -> list[dict[str, Any]]:
        """What a plan says of each bound, as JSON."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What is assumed, and what the tables show."""

    @property
    @abstractmethod
    def tables(self) -> Sequence[Sequence[tuple[str, ...]]]:
        """A table for each bound, with its head."""


class RecordAssumptions(ABC):
    """What is assumed of the records of a release."""

    @property
    @abstractmethod
    def records(self) -> float:
        """How many there are."""

    @property
    @abstractmethod
    def amounts(self) -> Mapping[str, AmountDistribution]:
        """How large the amounts of columns are. Raises: InvalidSpec."""

    @abstractmethod
    def compare_bounds(self, context: Any) -> BoundTradeoffs:
        """What is predicted under several values of each bound that something is assumed about; nothing is charged.

        Args:
            context: in which plans are made (``dpdist.runtime.context.Context``).
        Raises: InvalidSpec for what cannot be assumed; as ``plan``.
        """


class AssumptionSection(PluginSection):
    """The section of a spec that says what plans assume of the records: what is released never depends on it."""

    @abstractmethod
    def assumptions(self, spec: Any, folder: Path) -> RecordAssumptions:
        """What it assumes of a release (a ``ReleaseSpec``), whose paths start at a folder."""
