"""Mechanism: a way to answer a workload privately, with what it answers, why not, what it takes and which noise it knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.optimality import Optimality
from dpdist.operators import Matrix
from dpdist.stability import ONE_RECORD, Distance
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.solver_resources import Effort, Limits, effort
from dpdist.strategies.strategy import OnStep, Strategy
from dpdist.workloads import Gram, Workload

_T = TypeVar("_T")

DENSE_CELLS = 4096
"""Up to here ``auto`` compares strategies whose cost needs dense algebra over the cells."""
GAUSSIAN: frozenset[Norm] = frozenset({"l2"})
LAPLACE: frozenset[Norm] = frozenset({"l1"})
ANY_NOISE = GAUSSIAN | LAPLACE
AUTO_MEMORY_BYTES = 8 * 2**30
AUTO_LIMITS = Limits(AUTO_MEMORY_BYTES, 60.0, whose="without 'limits' 'auto' takes up to")
"""What ``auto`` spends where the spec says nothing: 8 GiB, and a minute of the nominal processor, which is a laptop of 2020."""
SOON = Limits(AUTO_MEMORY_BYTES, 30.0, whose="to compare it without a proof 'auto' takes up to")
"""What it spends on each mechanism that may be better for persons in several cells, or that is a baseline beside what is fast."""


@dataclass(frozen=True)
class PlanSetting:
    """What a strategy is for, beside the queries.

    Attributes:
        stream: whether steps are measured as they become known.
        extended: whether the horizon of such a series was extended.
        moved: how far one change moves the counts.
    """

    stream: bool = False
    extended: bool = False
    moved: Distance = ONE_RECORD

    @property
    def has_several_contributions(self) -> bool:
        """Whether one person may be in several cells or steps."""
        return self.moved.groups > 1 or (self.moved.participations or 1) > 1


SINGLE_RECORD = PlanSetting()
"""A release by itself, of one record."""


@dataclass(frozen=True)
class Request:
    """What a spec asks of a mechanism.

    Attributes:
        norm: "l2" for Gaussian noise, "l1" for Laplace noise.
        tolerance: certified relative gap at which an optimiser stops.
        worst: whether the largest error is to be least, instead of the total.
        setting: what the strategy is for.
        former_workloads: the workload over the first and every later horizon of a stream that was extended, up to the present one.
        group_size, principal: how eigen-queries are separated.
    """

    workload: Workload
    norm: Norm = "l2"
    tolerance: float = 1e-6
    worst: bool = False
    setting: PlanSetting = SINGLE_RECORD
    former_workloads: tuple[Workload, ...] = ()
    group_size: int | None = None
    principal: int | None = None


class PlanWorkspace(Protocol):
    """All that planning may ask of the world outside; ``dpdist.planner.strategy_search`` provides it over store and engine."""

    def cached_result(self, name: str) -> tuple[Matrix, Mapping[str, Any]] | None:
        """The array kept under a name and its facts, None if there is none."""

    def get_or_compute(
        self, name: str, find: Callable[[], tuple[Matrix, Mapping[str, Any]]]
    ) -> tuple[Matrix, Mapping[str, Any]]:
        """The array kept under a name and its facts, found and kept if there is none; the first one kept wins."""

    def gram(self, workload: Workload) -> Matrix:
        """W'W: in closed form, or summed over blocks of rows."""

    def run_on_largest_worker(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """One computation that wants all cores, on the largest worker."""

    def check_memory(self, computation: str, needed_bytes: int, instead_of: Workload | None = None) -> None:
        """Raises: OutOfMemory when the largest worker has less, with what answers the workload instead."""

    def show_message(self, message: str) -> None:
        """Show how planning goes."""

    def step_callback(self) -> OnStep:
        """A callback of optimisers that shows their steps."""

    def resume_solve(self, name: str, solve: Callable[..., _T], problem: Workload | Gram, needed_bytes: int) -> _T:
        """solve(given, on_step=, start=) on the largest worker, which goes on where a killed solve of the same name stopped."""

    def forget(self, name: str) -> None:
        """Delete the checkpoint of a solve that was kept."""

    def solve_by_groups(self, gram: Matrix, name: str, *, group_size: int, tolerance: float) -> Strategy:
        """``eigen_design(gram, group_size=)``, its groups solved by the workers."""

    def arrays(self, *, stored: bool) -> Workspace:
        """Where vectors are computed and kept by name: in memory, or in the store by tasks."""

    def progress_callback(self, step_name: str) -> ProgressCallback:
        """A callback that shows progress as '3 of 7 <what>'."""


@dataclass(frozen=True)
class AutoComparison:
    """What ``auto`` decides by: a function of the workload and the limits alone, so that every machine chooses the same.

    Attributes:
        best: the mechanism whose optimum is certified for what is asked: no other can have less error.
    """

    workload: Workload
    norm: Norm
    limits: Limits
    setting: PlanSetting = SINGLE_RECORD
    best: Mechanism | None = None

    @property
    def optimality(self) -> Optimality:
        """What a proof has to be about for other mechanisms to be dropped."""
        return Optimality(self.workload, self.setting.moved, self.norm)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.workload.shape[1]

    def reason_out_of_reach(self, planning_effort: Effort, reach: Limits = AUTO_LIMITS) -> str | None:
        """Why an optimisation does not fit into what the spec allows, and where it says nothing into what ``auto`` spends."""
        return self.limits.exceeded_by(planning_effort) or self.limits.fill_from(reach).exceeded_by(planning_effort)

    @property
    def comparison_limits(self) -> Limits:
        """What ``auto`` spends on a mechanism that it compares without need: little, unless what is asked is about one cell each."""
        return AUTO_LIMITS if self.optimality.of_one_cell and not self.has_special_queries else SOON

    @property
    def has_special_queries(self) -> bool:
        """Whether all queries are filters or formulas, for which general baselines are not compared."""
        return self.workload.kind.is_dyadic or self.workload.kind.is_filters


class Mechanism(ABC):
    """A mechanism. Subclasses state what they are; the registry lists one object of each.

    Attributes:
        name: in specs and certificates.
        follows: for a plugin: the mechanism after which ``auto`` compares it; "": after all that are there.
        summary: what it does, for the documentation: one sentence without its full stop.
        answers: the workloads it answers, for the documentation.
        noises: the norms whose noise it knows.
        worst: whether it can make the largest error least.
        supports_streams: whether it measures a series as it grows.
        supports_extension: whether the horizon of such a series can be extended.
        supports_out_of_core: whether it answers series and formulas that go through the store.
        is_data_dependent: whether what it measures depends on the records, by a part of the budget.
        supports_fractional_records: whether it measures records that are divided into shares, as sums of amounts need.
        supports_sums: whether it measures sums of amounts alone, in whole numbers of steps.
        optimiser: whose effort its plans take; None for closed forms.
    """

    name: ClassVar[str]
    follows: ClassVar[str] = ""
    summary: ClassVar[str]
    answers: ClassVar[str] = "every workload"
    noises: ClassVar[frozenset[Norm]] = GAUSSIAN
    worst: ClassVar[bool] = False
    supports_streams: ClassVar[bool] = False
    supports_extension: ClassVar[bool] = False
    supports_out_of_core: ClassVar[bool] = False
    is_data_dependent: ClassVar[bool] = False
    supports_fractional_records: ClassVar[bool] = False
    supports_sums: ClassVar[bool] = False
    optimiser: ClassVar[str | None] = None

    def reason_unable(self, workload: Workload) -> str | None:
        """Why the mechanism cannot answer a workload over this domain: one that counts whole records has no sums."""
        if not workload.domain.measurable(fractional_records=self.supports_fractional_records, sums=self.supports_sums):
            return "the release has sums, and this mechanism counts whole records only"
        return self.reason_refused(workload)

    def reason_refused(self, workload: Workload) -> str | None:
        """Why the mechanism cannot answer a workload, in a sentence; None if it can."""
        return None

    def proves(self, question: AutoComparison) -> Optimality | None:
        """What the strategy that it plans for a release is the certified optimum of; None where nothing is certified beforehand."""
        return None

    def find_persons_bound(self, workload: Workload) -> Callable[[Workload, Distance], PersonsBound] | None:
        """What computes a bound that no strategy beats for persons in several steps of a series; None where none is known."""
        return None

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        """Why ``auto`` does not compare a mechanism that could answer; None if it does."""
        return reason_beaten(self, question) or question.reason_out_of_reach(
            self.effort(question.workload, question.setting), question.comparison_limits
        )

    def effort(self, workload: Workload, setting: PlanSetting = SINGLE_RECORD) -> Effort:
        """What optimising takes: nothing for closed forms."""
        return Effort(workload.shape[1], 0, 0, 0.0) if self.optimiser is None else effort(workload, self.optimiser)

    def planning_bytes(self, workload: Workload) -> int:
        """What planning takes in all: optimising, and then predicting the largest error."""
        return self.effort(workload).memory_bytes

    def effort_text(self, workload: Workload) -> str:
        """The effort in words."""
        planning_effort = self.effort(workload)
        return (
            f"{planning_effort.memory_bytes / 2**30:.2f} GiB, {planning_effort.seconds():.0f} s"
            if planning_effort.products
            else "closed form"
        )

    def recommendation(self, workload: Workload, memory_bytes: int) -> str | None:
        """How a mechanism that fits recommends itself where an optimum does not; None where it does not."""
        return None

    def fits(self, workload: Workload, memory_bytes: int) -> bool:
        """Whether planning takes no more memory, and no more time than ``auto`` spends."""
        is_fast = Limits(seconds=AUTO_LIMITS.seconds).exceeded_by(self.effort(workload)) is None
        return is_fast and self.planning_bytes(workload) <= memory_bytes

    def check(self, workload: Workload) -> None:
        """Raises: InvalidInput with the reason when the mechanism cannot answer."""
        reason = self.reason_unable(workload)
        if reason is not None:
            raise InvalidInput(
                f"mechanism {self.name!r} cannot answer this workload: {reason}; set 'mechanism: auto', or choose another"
            )

    def needed_bytes(self, request: Request) -> int:
        """The memory that planning what is asked takes."""
        return self.planning_bytes(request.workload)

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        """The strategy for a workload that is not refused, with its cost.

        Raises: OutOfMemory where the largest worker has less than planning takes, with what answers the workload instead.
        """
        special = request.worst or request.setting.stream  # which few others are for
        work.check_memory(f"planning {self.name!r}", self.needed_bytes(request), None if special else request.workload)
        return self.build_strategy(request, work)

    @abstractmethod
    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        """The same, where there is memory for it."""


CANNOT_BEAT = "cannot beat "
"""How the reason begins that a proof gives."""


def reason_beaten(mechanism: Mechanism, question: AutoComparison) -> str | None:
    """Why a mechanism need not be compared with an optimum that is certified for the very queries, neighbours and noise."""
    if question.best is None or question.best.name == mechanism.name:
        return None
    return f"{CANNOT_BEAT}{question.best.name!r}, which is certified; ask for it by name to compare"


def reason_slow(cells: int = DENSE_CELLS) -> str:
    """Why a mechanism is not compared for many cells."""
    return f"takes long beyond {cells} cells; ask for it by name"


def reason_large(needed_bytes: int) -> str | None:
    """Why a baseline that writes down its rows is not compared; None where they are within reach."""
    if needed_bytes <= AUTO_MEMORY_BYTES:
        return None
    return f"needs {needed_bytes / 2**30:.2f} GiB to write down its rows; ask for it by name"


def reason_in_memory_only(workload: Workload) -> str:
    """Why a mechanism does not answer series and formulas that go through the store."""
    return f"does not run out of core (more than {workload.domain.sizes.long_steps:,} steps or cells)"


def lacks_out_of_core(mechanism: Mechanism, workload: Workload) -> bool:
    """Whether a workload goes through the store and the mechanism does not."""
    return not mechanism.supports_out_of_core and workload.kind.is_long
