"""A release with earlier ones of the same records: what a plugin gives to the plan and to the run of a release that names some."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from dpdist.arrays.lazy_vector import Vector
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.plugin_registry import plugin_objects
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.runtime.context import Context
from dpdist.spec import Job
from dpdist.storage.array_store import StoredArray

Companion = tuple[ReleasePlan, StoredArray]
"""Another release of the same records: its plan and its measurement."""


class ReleaseJoining(ABC):
    """Estimates from a release and from earlier ones of the same records, which were charged already: it costs nothing."""

    @abstractmethod
    def working_bytes(self, planned: ReleasePlan) -> int:
        """What this process takes for it, in bytes; 0 where all cells are estimated on a worker, as of one release."""

    @abstractmethod
    def companions(self, context: Context, planned: ReleasePlan) -> tuple[Companion, ...]:
        """The releases that a planned one is to be consistent with. They are read, never charged or drawn again.

        Raises: InvalidInput for a release that cannot be joined; StoreError when its measurement is not the one the ledger knows.
        """

    @abstractmethod
    def answer(
        self,
        context: Context,
        planned: ReleasePlan,
        measured: Vector,
        companion_releases: Sequence[Companion],
        requested_columns: AnswerRequest,
        seed: int,
    ) -> Answers:
        """Answers of a release from what it and others measured.

        Args:
            seed: for simulating what making answers non-negative does to their errors.
        """

    @abstractmethod
    def revised_groups(
        self, context: Context, planned: ReleasePlan, companion_plans: Sequence[ReleasePlan], answers: Answers
    ) -> list[dict[str, Any]]:
        """Of each group of answers that an earlier release has published, too, what changed: noisy answers alone decide it."""


def release_joining(job: Job) -> ReleaseJoining | None:
    """What joins a release with those that it is to be consistent with; None where it names none."""
    return next(plugin_objects("joinings")) if job.outputs.companions else None
