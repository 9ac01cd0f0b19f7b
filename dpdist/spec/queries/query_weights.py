"""How large the errors of a group of queries may be beside those of others: by a weight, or by a target."""

from __future__ import annotations

from abc import abstractmethod

from pydantic import Field

from dpdist.spec.tagged_unions import Family, SpecKind
from dpdist.workloads import Workload, relative


class Importance(SpecKind):
    """How important a group of queries is."""

    @property
    @abstractmethod
    def factor(self) -> float:
        """What the group's rows are weighted by."""

    @property
    def scaled(self) -> bool:
        """Whether an error as large as the largest amount weighs as much as one of a record: where nothing else says what is large."""
        return False

    def weigh(self, workload: Workload) -> Workload:
        """The queries, weighted among each other."""
        return workload

    @property
    def words(self) -> tuple[str, ...]:
        """What readers see of it."""
        return ()


class Weight(Importance):
    """A weight, of absolute or of relative errors."""

    weight: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="how important this group is: a group of larger weight gets smaller errors",
        examples=[3],
    )
    relative: bool = Field(
        False,
        description="divides every query by its length before optimising, so that relative instead of absolute errors are small",
        examples=[True],
    )

    @classmethod
    def key(cls) -> str:
        return "weight"

    @property
    def factor(self) -> float:
        return self.weight

    @property
    def scaled(self) -> bool:
        return not self.relative

    def weigh(self, workload: Workload) -> Workload:
        return relative(workload) if self.relative else workload

    @property
    def words(self) -> tuple[str, ...]:
        weighed = (f"weight {self.weight:g}",) if self.weight != 1.0 else ()
        return (*weighed, "each as precise as its own size asks") if self.relative else weighed


class ErrorTarget(Importance):
    """A standard error that no answer should exceed."""

    target: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="with 'objective: worst': the standard error that no answer of this group should exceed. The errors of all groups are "
        "made small in proportion to their targets, and 'dpdist plan' tells the least budget that reaches them",
        examples=[25],
    )

    @property
    def factor(self) -> float:
        return 1.0 / self.target


IMPORTANCE = Family(Weight, ErrorTarget, default=Weight.model_validate({}))
"""How specs can say which errors should be small."""
