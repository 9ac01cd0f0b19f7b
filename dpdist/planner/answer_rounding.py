"""Answers as whole numbers: what a plugin gives to the plan and to the run of a release that asks for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from dpdist.planner.release_kinds import ReleasePlan
from dpdist.plugin_registry import plugin_objects
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.runtime.context import Context
from dpdist.spec import Job

RoundAnswers = Callable[[Answers, str, str], Answers]
"""Whole numbers of answers, given the digest of their noisy measurement and the folder in which they are kept. It refuses nothing."""


class AnswerRounding(ABC):
    """Makes whole numbers of the answers of a release, which are noisy already: it costs nothing."""

    @abstractmethod
    def check_known_counts(self, job: Job) -> None:
        """Accept public counts that whole answers of one estimate can add up to. Raises: InvalidInput."""

    @abstractmethod
    def working_bytes(self, planned: ReleasePlan) -> int:
        """What the largest worker takes for it, in bytes; 0 where each answer is rounded by itself."""

    @abstractmethod
    def prepare(self, context: Context, planned: ReleasePlan, companion_plans: Sequence[ReleasePlan]) -> RoundAnswers:
        """The rounding of a release that is not charged yet.

        Args:
            companion_plans: releases of the same records whose published numbers it is to hold.
        Raises: InvalidInput where the files of one are not where it was published.
        """


def answer_rounding(job: Job) -> AnswerRounding | None:
    """What makes whole numbers of the answers of a release; None where they stay as they are estimated."""
    return None if job.outputs.postprocess.rounding is None else next(plugin_objects("roundings"))
