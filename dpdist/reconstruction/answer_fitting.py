"""Non-negative answers: what a plugin gives to the plan and to the run of a release that asks for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from dpdist.operators import Matrix
from dpdist.plugin_registry import plugin_objects
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, FitEffect
from dpdist.reconstruction.least_squares import Estimate
from dpdist.workloads import Workload

Simulation = Callable[[Matrix, np.random.RandomState], Matrix]
"""Unbiased answers of a simulated release, given the true ones and a public seed."""


class AnswerFitting(ABC):
    """Fits non-negative answers to those of a release, which are noisy already: it costs nothing, and refuses nothing.

    Attributes:
        rule: how answers are fitted and intervals made of it: a release keeps the rule that its answers were made by.
    """

    rule: int

    @abstractmethod
    def cell_bytes(self, cells: int) -> int:
        """What the largest worker takes to fit cells, beside their estimate, in bytes."""

    @abstractmethod
    def held_bytes(self, workload: Workload) -> int:
        """What the largest worker takes to fit answers without an estimate of the cells; 0 where they go through the store."""

    @abstractmethod
    def task_bytes(self, workload: Workload) -> int:
        """What each worker takes for answers that go through the store; 0 where it takes no more than to read them."""

    @abstractmethod
    def fit_cells(self, estimate: Estimate, answer_request: AnswerRequest, seed: int) -> Answers:
        """The answers of non-negative cells whose answers are closest to those of an estimate.

        Args:
            seed: of the simulation that says what this does to the errors: public.
        """

    @abstractmethod
    def fit_answers(
        self,
        workload: Workload,
        unbiased: Answers,
        records: float | None,
        simulate: Simulation | None,
        answer_request: AnswerRequest,
        seed: int,
    ) -> Answers:
        """Non-negative answers that are closest to unbiased ones, where there is no estimate of the cells.

        Args:
            records: how many there are, where that is public.
            simulate: None where simulating would take too long.
            seed: as that of ``fit_cells``.
        """

    @abstractmethod
    def sentence(self, effect: FitEffect | None, *, known: bool) -> str:
        """What a certificate says of it.

        Args:
            effect: None before the answers are fitted.
            known: whether public counts are held.
        """


def answer_fitting(non_negative: bool) -> AnswerFitting | None:
    """What makes the answers of a release non-negative; None where they stay as they are estimated."""
    return next(plugin_objects("fittings")) if non_negative else None
