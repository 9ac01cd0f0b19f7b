"""Filtered series over time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.operators.linear_operator import Entries
from dpdist.spec.queries.filter_kinds import MOST_NORMALISED, FilterKind, FiltersSpec
from dpdist.spec.queries.query_kind import OverOrder, for_each
from dpdist.spec.queries.statistics import StatisticKind
from dpdist.workloads import Filter, Workload, filtered
from dpdist.workloads.time_filters import whole_steps


class FiltersQuery(OverOrder):
    """A series over an attribute of time, filtered."""

    names_itself: ClassVar[bool] = False
    over_time: ClassVar[bool] = True

    filters: FiltersSpec = Field(
        description="a series of counts over time, filtered: running sums, moving averages and others"
    )

    def counts(self, domain: Domain, folder: Path) -> Workload:
        asked = self.filters
        self.check(domain)
        steps = domain.attribute(asked.of).values
        made = [self._made(each.kind, steps, folder, domain) for each in asked.apply]
        for each, within in zip(made, self.answered(domain, folder), strict=True):
            if within is not None and not within:
                raise InvalidInput(
                    f"{asked.of!r} has {steps:,} steps, on none of which the filter {each.name!r} lies as a whole: take a shorter one, or "
                    "set 'ends: cut'"
                )
        if asked.around is not None:
            made = [replace(each, name=f"{each.name}, of |count - {asked.around}|") for each in made]
        return filtered(domain, asked.of, made, asked.by, circular=asked.circular)

    def _made(self, kind: FilterKind, steps: int, folder: Path, domain: Domain) -> Filter:
        found = kind.made(steps, folder, domain.sizes)
        if self.filters.ends != "normalised" or self.filters.circular or not kind.whole:
            return found
        if not kind.fewer or steps > MOST_NORMALISED:
            raise InvalidInput(
                f"'ends: normalised' is for means of up to {MOST_NORMALISED:,} steps, found {found.name!r} of {steps:,} steps; set "
                "'ends: cut' or leave it out"
            )
        return replace(found, name=f"{found.name}, fewer at the ends", normalised=True)

    def answered(self, domain: Domain, folder: Path) -> list[range | None]:
        if self.filters.circular or self.filters.ends != "full":
            return [None for _ in self.filters.apply]
        steps = domain.attribute(self.filters.of).values
        return [
            whole_steps(each.kind.made(steps, folder, domain.sizes), steps) if each.kind.whole else None
            for each in self.filters.apply
        ]

    def question(self) -> str:
        return f"the series of counts {self._filtered()}"

    def _filtered(self) -> str:
        fewer = " (fewer at the ends)" if self.filters.ends == "normalised" and not self.filters.circular else ""
        kinds = ", ".join(f"{each.kind.words()}{fewer if each.kind.fewer else ''}" for each in self.filters.apply)
        return f"over {self.filters.of}, filtered{for_each(self.filters.by)}: {kinds}"

    def of(self, statistic: StatisticKind, domain: Domain, folder: Path, *, scaled: bool) -> Workload:
        if not statistic.columns:
            return super().of(statistic, domain, folder, scaled=scaled)
        return summed_alone(statistic, self.counts(domain.grouped, folder), domain)

    def counted(self, statistic: StatisticKind, domain: Domain, folder: Path) -> list[bool]:
        plain = not statistic.columns and self.filters.around is None
        steps = domain.attribute(self.filters.of).values
        found = (each.kind.made(steps, folder, domain.sizes).coefficients for each in self.filters.apply)
        return [plain and (isinstance(each, Entries) or bool((each >= 0).all())) for each in found]

    def words(self, statistic: StatisticKind) -> str:
        return f"the series of sums of {statistic.columns[0]} {self._filtered()}" if statistic.columns else self.question()

    def unfit(self, statistic: StatisticKind) -> str | None:
        if not statistic.columns or (not statistic.made and self.filters.around is None):
            return None
        return "filters add up amounts with 'sum' and without 'around'; means and variances are asked of the other kinds"

    @property
    def reads_file(self) -> bool:
        return any(each.kind.reads_file for each in self.filters.apply)

    @property
    def series(self) -> FiltersSpec:
        return self.filters

    @property
    def centre(self) -> int | None:
        return self.filters.around


def summed_alone(statistic: StatisticKind, counts: Workload, domain: Domain) -> Workload:
    """Filters of sums alone: their column has one bin, which filters need not name."""
    if not statistic.columns:
        return counts
    titled = (replace(block, name=f"sum of {statistic.columns[0]}, {block.name}") for block in counts.blocks)
    return Workload(domain, tuple(titled))
