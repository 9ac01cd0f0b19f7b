"""The queries of a job: what is asked of which histogram, by which mechanism, and within which limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.queries import QuerySpec
from dpdist.spec.sections.optimizer import SeparationSpec
from dpdist.strategies.solver_resources import Limits
from dpdist.workloads import Block, Workload, union
from dpdist.workloads.workload import first_occurrences

_T = TypeVar("_T")


@dataclass(frozen=True)
class JobWorkload:
    """The queries, and how the noise is to be spread over them.

    Attributes:
        mechanism: the one asked for, or ``auto``.
    """

    entries: tuple[QuerySpec, ...]
    measured: CountedCells
    mechanism: str
    objective: Literal["total", "worst"]
    tolerance: float
    limits: Limits
    eigen: SeparationSpec

    @cached_property
    def queries(self) -> Workload:
        """The workload. A block of several entries, such as the sums under a mean, is asked for once, with their weights together."""
        workloads = (entry.workload(self.measured.domain, self.measured.folder) for entry in self.entries)
        all_queries = union(*workloads, weights=tuple(entry.importance.factor for entry in self.entries))
        first_places, blocks = first_occurrences(all_queries.blocks), dict[int, Block]()
        for place, block in zip(first_places, all_queries.blocks, strict=True):
            weight = math.hypot(blocks[place].weight, block.weight) if place in blocks else block.weight
            blocks[place] = replace(blocks.get(place, block), weight=weight)
        return Workload(all_queries.domain, tuple(blocks.values()))

    @property
    def block_counts_records(self) -> tuple[bool, ...]:
        """Of each block of the queries whether its answers are numbers of records."""
        domain, folder = self.measured.domain, self.measured.folder
        flags_by_entry = (entry.kind.block_counts_records(entry.statistic, domain, folder) for entry in self.entries)
        return self._without_repeats([counts for entry_flags in flags_by_entry for counts in entry_flags])

    @property
    def answered_steps(self) -> tuple[range | None, ...]:
        """Of each block of the queries the steps of its series that are answered; None: all that it asks for."""
        step_ranges: list[range | None] = []
        for entry in self.entries:
            entry_ranges = entry.kind.answered_steps(self.measured.domain, self.measured.folder)
            step_ranges += entry_ranges or [None] * len(entry.workload(self.measured.domain, self.measured.folder).blocks)
        distinct_ranges = self._without_repeats(step_ranges)
        return distinct_ranges if any(step_range is not None for step_range in distinct_ranges) else ()

    def _without_repeats(self, facts: Sequence[_T]) -> tuple[_T, ...]:
        """Facts of every block of every entry, for the blocks of the queries."""
        workloads = (entry.workload(self.measured.domain, self.measured.folder) for entry in self.entries)
        first_places = first_occurrences([block for workload in workloads for block in workload.blocks])
        return tuple(fact for place, fact in enumerate(facts) if first_places[place] == place)
