"""A group of queries: of one kind, for one statistic, of one importance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import model_validator

from dpdist.domain import Domain
from dpdist.spec.queries.conditions import DnfQuery, PredicatesQuery, ProductQuery
from dpdist.spec.queries.filtered_series import FiltersQuery
from dpdist.spec.queries.marginal_queries import MarginalsQuery
from dpdist.spec.queries.matrix_rows import RowsQuery
from dpdist.spec.queries.query_kind import QueryKind
from dpdist.spec.queries.query_weights import IMPORTANCE, ErrorTarget, Importance
from dpdist.spec.queries.range_queries import CdfQuery, RangesQuery, RelationQuery
from dpdist.spec.queries.statistics import STATISTIC_KINDS, StatisticKind
from dpdist.spec.tagged_unions import Family, UnionPart
from dpdist.workloads import Workload

QUERIES = Family(
    MarginalsQuery,
    CdfQuery,
    RangesQuery,
    PredicatesQuery,
    ProductQuery,
    RelationQuery,
    FiltersQuery,
    DnfQuery,
    RowsQuery,
)
"""The kinds of queries that specs can ask for."""


class QuerySpec(UnionPart):
    """One group of queries. Give exactly one kind, and optionally 'weight' and 'relative'."""

    kind: Annotated[QueryKind, QUERIES]
    statistic: Annotated[StatisticKind, STATISTIC_KINDS]
    importance: Annotated[Importance, IMPORTANCE]

    @model_validator(mode="after")
    def _fits(self) -> QuerySpec:
        unfit = self.kind.unfit_reason(self.statistic)
        if unfit is not None:
            raise ValueError(unfit)
        if self.statistic.is_derived and isinstance(self.importance, ErrorTarget):
            raise ValueError("a 'target' is the error of a count or a sum; ask for 'sum' with a target, or leave it out")
        return self

    def workload(self, domain: Domain, folder: Path) -> Workload:
        """The queries, without the weight of the group. Raises: InvalidInput when the domain cannot have them.

        Args:
            folder: from which files are taken.
        """
        return self.importance.weigh(self.kind.workload_for(self.statistic, domain, folder, scaled=self.importance.scaled))

    @property
    def words(self) -> str:
        """What is asked, for readers."""
        weighed = f" ({', '.join(self.importance.words)})" if self.importance.words else ""
        return self.kind.words(self.statistic) + weighed
