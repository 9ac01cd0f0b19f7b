"""Fits that plugins add: non-negative answers of workloads of one form, which keep what holds between their groups of queries."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dpdist.api.mechanisms import Matrix, Vector, Workload, Workspace
from dpdist.plugin_registry import plugin_objects


class PreparedFit(ABC):
    """The fit of one workload."""

    @abstractmethod
    def fit_stored(self, answers: Vector, work: Workspace) -> Vector:
        """Fitted answers, from the store into the store."""

    @abstractmethod
    def fit_in_memory(self, values: Matrix, records: float | None) -> Matrix:
        """The same of answers in memory, given the number of all records where it is public."""


class AnswerFit(ABC):
    """A fit for workloads of one form."""

    @abstractmethod
    def can_fit(self, workload: Workload) -> bool:
        """Whether a workload, which is not of whole tables alone, has this form."""

    @abstractmethod
    def line_bytes(self, workload: Workload) -> int:
        """What a line of the answers takes while they are fitted from the store."""

    @abstractmethod
    def prepare(self, workload: Workload, work: Workspace) -> PreparedFit:
        """The fit of a workload; what tasks read of it is written to the workspace."""


def answer_fit_for(workload: Workload) -> AnswerFit | None:
    """The fit of a plugin that is for a workload; None where its groups of queries are fitted by the general rules."""
    return next((fit for fit in plugin_objects("fits") if fit.can_fit(workload)), None)
