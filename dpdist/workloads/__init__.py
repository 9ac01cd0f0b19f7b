"""What users ask: workloads built from ranges, prefixes, marginals, predicates and explicit rows."""

from dpdist.workloads.base import Block, Workload, relative, union
from dpdist.workloads.basis import Basis, integer_basis
from dpdist.workloads.explicit import explicit, tall
from dpdist.workloads.filters import Filter, filtered
from dpdist.workloads.predicates import dnf, predicates
from dpdist.workloads.products import marginals, products
from dpdist.workloads.random import (
    discrete,
    marginal_queries,
    permuted,
    random_marginals,
    random_ranges,
    related,
    two_step_ranges,
    uniform_predicates,
)
from dpdist.workloads.ranges import all_ranges, boxes, listed_ranges, prefix, range_marginals, ranges

__all__ = [
    "Basis",
    "Block",
    "Filter",
    "Workload",
    "all_ranges",
    "boxes",
    "discrete",
    "dnf",
    "explicit",
    "filtered",
    "integer_basis",
    "listed_ranges",
    "marginal_queries",
    "marginals",
    "permuted",
    "predicates",
    "prefix",
    "products",
    "random_marginals",
    "random_ranges",
    "range_marginals",
    "ranges",
    "related",
    "relative",
    "tall",
    "two_step_ranges",
    "uniform_predicates",
    "union",
]


def __dir__() -> list[str]:
    """The public names."""
    return __all__
