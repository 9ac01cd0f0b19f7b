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
from dpdist.spec.queries.query_kind import OrderedQuery, combination_text
from dpdist.spec.queries.statistics import StatisticKind
from dpdist.workloads import Filter, Workload, filtered
from dpdist.workloads.time_filters import whole_steps


class FiltersQuery(OrderedQuery):
    """A series over an attribute of time, filtered."""

    names_itself: ClassVar[bool] = False
    over_time: ClassVar[bool] = True

    filters: FiltersSpec = Field(
        description="a series of counts over time, filtered: running sums, moving averages and others"
    )

    def counts(self, domain: Domain, folder: Path) -> Workload:
        series_spec = self.filters
        self.check(domain)
        steps = domain.attribute(series_spec.of).values
        filters = [self._build_filter(time_filter.kind, steps, folder, domain) for time_filter in series_spec.apply]
        for time_filter, answered_steps in zip(filters, self.answered_steps(domain, folder), strict=True):
            if answered_steps is not None and not answered_steps:
                raise InvalidInput(
                    f"{series_spec.of!r} has {steps:,} steps, on none of which the filter {time_filter.name!r} lies as a whole: take a "
                    "shorter one, or set 'ends: cut'"
                )
        if series_spec.around is not None:
            filters = [
                replace(time_filter, name=f"{time_filter.name}, of |count - {series_spec.around}|")
                for time_filter in filters
            ]
        return filtered(domain, series_spec.of, filters, series_spec.by, circular=series_spec.circular)

    def _build_filter(self, kind: FilterKind, steps: int, folder: Path, domain: Domain) -> Filter:
        built_filter = kind.build_filter(steps, folder, domain.sizes)
        if self.filters.ends != "normalised" or self.filters.circular or not kind.whole:
            return built_filter
        if not kind.allows_fewer_steps or steps > MOST_NORMALISED:
            raise InvalidInput(
                f"'ends: normalised' is for means of up to {MOST_NORMALISED:,} steps, found {built_filter.name!r} of {steps:,} steps; set "
                "'ends: cut' or leave it out"
            )
        return replace(built_filter, name=f"{built_filter.name}, fewer at the ends", normalised=True)

    def answered_steps(self, domain: Domain, folder: Path) -> list[range | None]:
        if self.filters.circular or self.filters.ends != "full":
            return [None for _ in self.filters.apply]
        steps = domain.attribute(self.filters.of).values
        return [
            whole_steps(filter_spec.kind.build_filter(steps, folder, domain.sizes), steps)
            if filter_spec.kind.whole
            else None
            for filter_spec in self.filters.apply
        ]

    def question(self) -> str:
        return f"the series of counts {self._filtered()}"

    def _filtered(self) -> str:
        ends_text = " (fewer at the ends)" if self.filters.ends == "normalised" and not self.filters.circular else ""
        kinds = ", ".join(
            f"{filter_spec.kind.words()}{ends_text if filter_spec.kind.allows_fewer_steps else ''}"
            for filter_spec in self.filters.apply
        )
        return f"over {self.filters.of}, filtered{combination_text(self.filters.by)}: {kinds}"

    def workload_for(self, statistic: StatisticKind, domain: Domain, folder: Path, *, scaled: bool) -> Workload:
        if not statistic.columns:
            return super().workload_for(statistic, domain, folder, scaled=scaled)
        return summed_alone(statistic, self.counts(domain.grouped, folder), domain)

    def block_counts_records(self, statistic: StatisticKind, domain: Domain, folder: Path) -> list[bool]:
        counts_records = not statistic.columns and self.filters.around is None
        steps = domain.attribute(self.filters.of).values
        coefficients = (entry.kind.build_filter(steps, folder, domain.sizes).coefficients for entry in self.filters.apply)
        return [counts_records and (isinstance(entry, Entries) or bool((entry >= 0).all())) for entry in coefficients]

    def words(self, statistic: StatisticKind) -> str:
        return f"the series of sums of {statistic.columns[0]} {self._filtered()}" if statistic.columns else self.question()

    def unfit_reason(self, statistic: StatisticKind) -> str | None:
        if not statistic.columns or (not statistic.is_derived and self.filters.around is None):
            return None
        return "filters add up amounts with 'sum' and without 'around'; means and variances are asked of the other kinds"

    @property
    def reads_file(self) -> bool:
        return any(filter_spec.kind.reads_file for filter_spec in self.filters.apply)

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
