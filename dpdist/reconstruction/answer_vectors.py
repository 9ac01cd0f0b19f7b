"""Answers of a release, as they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dpdist.arrays.array_workspace import MEMORY, Filling, ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.operators import Matrix


@dataclass(frozen=True)
class AnswerRequest:
    """Where the answers of a release are computed and kept.

    Attributes:
        folder: their vectors are kept below it.
        work: where they are computed.
        report_progress: called with the steps that are finished, and with how many there are.
    """

    folder: str
    work: Workspace = field(default=MEMORY, repr=False, compare=False)
    report_progress: ProgressCallback | None = field(default=None, repr=False, compare=False)

    def show_step(self, finished: int, total: int) -> None:
        """Report one step of the computation, where that is asked for."""
        if self.report_progress is not None:
            self.report_progress(finished, total)

    def write(self, answer: Matrix, error: Matrix, half_width: Matrix) -> Answers:
        """Answers that were computed in one piece, kept under their names."""
        columns = zip((answer, error, half_width), self.names, strict=True)
        return Answers(*(self.work.write(ArrayVector(values), name) for values, name in columns))

    def fill(self, queries: int, rows: int, task: Filling) -> Answers:
        """Answers that tasks compute, so many queries each, kept under their names."""
        return Answers(*self.work.fill(self.names, queries, rows, task, self.report_progress))

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of the kept answers, standard errors and half widths."""
        return f"{self.folder}/answer", f"{self.folder}/error", f"{self.folder}/half-width"

    @property
    def bounds(self) -> str:
        """Name of the bounds of tables that come from a model; the facts beside them name the tables."""
        return f"{self.folder}/bounds"

    @property
    def cells(self) -> str:
        """Name of fitted non-negative cells, where they are asked for."""
        return f"{self.folder}/cells"


@dataclass(frozen=True)
class ErrorRatio:
    """The squared error of some queries with a fit, over that without it, and the standard error of this ratio."""

    name: str
    ratio: float
    error: float


@dataclass(frozen=True)
class FitEffect:
    """What a fit of non-negative answers did to squared errors, as simulated.

    Attributes:
        rule: how answers were fitted and intervals made of it (``AnswerFitting.rule``).
        draws: simulated releases.
        total: of all queries, weighted as in the workload.
        groups: the groups of queries that gain least, the one with the largest ratio first.
        distance: how far any answer is from tables that agree exactly, at most, where tables were fitted.
        apart: True where every group of queries was fitted by itself.
    """

    rule: int
    draws: int = 0
    total: ErrorRatio | None = None
    groups: tuple[ErrorRatio, ...] = ()
    distance: float | None = None
    apart: bool | None = None

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> FitEffect:
        """The effect whose ``facts`` these are."""
        groups = tuple(ErrorRatio(**group) for group in facts["groups"])
        total = ErrorRatio(**facts["total"]) if "total" in facts else None
        return FitEffect(facts["rule"], facts["draws"], total, groups, facts.get("distance"), facts.get("apart"))

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        return {**facts, "groups": [asdict(group) for group in self.groups]}


@dataclass(frozen=True)
class RoundingRule:
    """How answers became whole numbers.

    Attributes:
        rule: "nearest", or "unbiased".
        deviation: by how much intervals are wider on each side: no answer moved by more.
        adds_up: whether totals are the sums of their parts, but for ``apart``.
        apart: names of the groups of queries of which each answer was rounded by itself.
        held: whole numbers of earlier releases that are held, by release and group.
    """

    rule: str
    deviation: float
    adds_up: bool
    apart: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        facts = {"rule": self.rule, "deviation": self.deviation, "adds_up": self.adds_up, "apart": list(self.apart)}
        return {**facts, **({"held": list(self.held)} if self.held else {})}


@dataclass(frozen=True)
class Answers:
    """Answers, standard errors and half widths of 95 % intervals, one row a query.

    Attributes:
        effect: what a fit of non-negative answers did to the errors; None where none was made.
        modelled: of each table that was asked for and comes from a model: a bound of the sum of its absolute errors, in counts, which holds
            with a probability of 95 % for all of them at once, whatever the data are.
        rounding: how answers became whole numbers; None where they did not.
    """

    answer: Vector
    error: Vector
    half_width: Vector
    effect: FitEffect | None = field(default=None, kw_only=True)
    modelled: Mapping[tuple[int, ...], float] = field(default_factory=dict, kw_only=True)
    rounding: RoundingRule | None = field(default=None, kw_only=True)
