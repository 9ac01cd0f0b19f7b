"""The statistics that can be asked for, by name: one object of each, in the order of the documentation."""

from __future__ import annotations

from dpdist.domain import Domain
from dpdist.statistics.mean_statistics import Mean
from dpdist.statistics.statistic import Distances, PersonsByGroup, Quantity, RecordCounts, Statistic
from dpdist.statistics.sum_statistics import RecordShares, SumStatistic
from dpdist.statistics.variance_statistics import Correlation, Covariance, Variance

STATISTICS: dict[str, Statistic] = {
    each.name: each for each in (SumStatistic(), Mean(), Variance(), Covariance(), Correlation())
}


def statistic_for(name: str) -> Statistic:
    """The statistic that computes what is called so, such as the variance for 'standard deviation'."""
    return next(statistic for statistic in STATISTICS.values() if name in statistic.statistic_names)


def statistics_by_name() -> dict[str, Statistic]:
    """Every statistic that readers can ask for by name, with what computes it."""
    return {name: statistic for statistic in STATISTICS.values() for name in statistic.statistic_names}


def quantity_of(domain: Domain, *, centre: int | None, persons: bool) -> Quantity:
    """What a release measures of every cell.

    Args:
        centre: the public count whose distances are measured in place of counts.
        persons: whether persons are counted in each group, and not their records.
    """
    counted = RecordShares(domain.shares_per_record, not domain.sums_alone) if domain.amounts else RecordCounts()
    if persons:
        tables = domain.person_tables
        return (
            PersonsByGroup(counted, tuple(domain.groups_in(table)[1] for table in tables))
            if tables[1:]
            else PersonsByGroup(counted)
        )
    return counted if centre is None else Distances(centre, counted)
