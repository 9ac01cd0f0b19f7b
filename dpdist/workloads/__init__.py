"""What users ask: workloads built from ranges, prefixes, marginals, predicates and explicit rows."""

from dpdist.workloads.block import Block
from dpdist.workloads.explicit_rows import explicit, tall
from dpdist.workloads.gram_matrix import Gram, gram
from dpdist.workloads.integer_basis import Basis, integer_basis
from dpdist.workloads.predicates import dnf, predicates
from dpdist.workloads.product_queries import marginals, products
from dpdist.workloads.random_workloads import (
    discrete,
    marginal_queries,
    permuted,
    random_marginals,
    random_ranges,
    related,
    two_step_ranges,
    uniform_predicates,
)
from dpdist.workloads.range_workloads import all_ranges, boxes, listed_ranges, prefix, range_marginals, ranges
from dpdist.workloads.time_filters import Filter, filtered
from dpdist.workloads.workload import Workload, relative, union

__all__ = [
    "Basis",
    "Block",
    "Filter",
    "Gram",
    "Workload",
    "all_ranges",
    "boxes",
    "discrete",
    "dnf",
    "explicit",
    "filtered",
    "gram",
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
