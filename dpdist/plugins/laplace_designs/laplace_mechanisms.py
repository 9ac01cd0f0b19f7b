"""Designs for Laplace noise: products of p-Identity strategies and trees, weighted marginals, and known designs with weights."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from dpdist.api.mechanisms import (
    DENSE_CELLS,
    REPLACED,
    SOLVE_COPIES,
    TERM_COPIES,
    AutoComparison,
    Effort,
    Gram,
    Mechanism,
    Norm,
    PlanWorkspace,
    Request,
    Strategy,
    UnionMechanism,
    Workload,
    get_dense_strategy,
    get_term_strategy,
    largest_tree_rows,
    name_strategy,
    reason_slow,
    subsets,
    worst_factor_bytes,
    worst_row_bytes,
)
from dpdist.plugins.laplace_designs.laplace_marginals import reason_unmeasurable, weighted_marginals
from dpdist.plugins.laplace_designs.laplace_products import ProductsStrategy, WeightedMarginalsStrategy
from dpdist.plugins.laplace_designs.p_identity_products import p_identity_products
from dpdist.plugins.laplace_designs.weighted_designs import weighted_design

DESIGN_SQUARES, DESIGN_ROWS = 8, 8
"""Arrays over pairs of cells, and over rows and cells, that weighting design queries holds at once."""
DESIGN_PRODUCTS = 600.0
"""Five designs, a tree among them whose left inverse is found anew a dozen times."""


class PIdentityProducts(UnionMechanism):
    """Products of p-Identity strategies and trees, for pure epsilon: one product for all queries, or one for each set of attributes."""

    name = "p-identity-products"
    follows = "hierarchical"
    summary = (
        "products of p-Identity strategies and trees of single attributes, under Laplace noise, for domains of any size"
    )
    noises: ClassVar[frozenset[Norm]] = frozenset({"l1"})
    supports_fractional_records = True
    optimiser = "p_identity_products"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        shape = question.workload.domain.shape
        if len(shape) == 1 and shape[0] <= DENSE_CELLS:
            return "of one attribute it is 'p-identity'; ask for it by name to compare"
        return reason_slow() if question.has_special_queries or max(shape) > DENSE_CELLS else None

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), factor_bytes(workload))

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.show_message("optimising products of p-Identity strategies")
        return get_term_strategy(
            work, name_strategy(request.workload, self.name), request.workload, p_identity_products, form=ProductsStrategy
        )


class WeightedMarginals(UnionMechanism):
    """Whole marginals with optimised weights, for pure epsilon: which to measure, and how well."""

    name = "weighted-marginals"
    follows = "p-identity-products"
    summary = (
        "Laplace noise on the cells of marginals whose weights are optimised; answers are least squares over all of them"
    )
    noises: ClassVar[frozenset[Norm]] = frozenset({"l1"})

    def reason_refused(self, workload: Workload) -> str | None:
        return super().reason_refused(workload) or reason_unmeasurable(workload)

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        has_one_attribute = len(question.workload.domain.shape) == 1
        return (
            reason_slow()
            if question.has_special_queries
            else ("of one attribute it is 'identity'" if has_one_attribute else None)
        )

    def planning_bytes(self, workload: Workload) -> int:
        return factor_bytes(workload)

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.show_message("optimising weighted marginals")
        return get_term_strategy(
            work,
            name_strategy(request.workload, self.name),
            request.workload,
            weighted_marginals,
            form=WeightedMarginalsStrategy,
        )


class WeightedDesign(Mechanism):
    """The adaptive mechanism's section 3.5: 'eigen' for Laplace noise, with other designs beside the eigen-queries."""

    name = "weighted-design"
    follows = "p-identity"
    summary = (
        "the best lengths for the queries of a tree, of wavelets, of Fourier's basis, or for the workload's eigenvectors"
    )
    noises: ClassVar[frozenset[Norm]] = frozenset({"l1"})
    supports_fractional_records = True
    optimiser = "weighted_design"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        if question.optimality.moved.replaced:  # it moves cells twice as far, and sums hardly
            return super().reason_not_compared(question) or question.reason_out_of_reach(
                self.effort(question.workload), REPLACED
            )
        return "has more error than 'p-identity' on ranges, but may have less on marginals; ask for it by name to compare"

    def planning_bytes(self, workload: Workload) -> int:
        return max(
            super().planning_bytes(workload), worst_row_bytes(workload, largest_tree_rows(workload) + workload.shape[1])
        )

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload

        def solve() -> Strategy:
            work.show_message("weighting the queries of known designs")
            return work.run_on_largest_worker(partial(weighted_design, tolerance=request.tolerance), workload)

        return get_dense_strategy(
            work, name_strategy(workload, f"weighted-design-{request.tolerance:g}"), self.name, solve, norm="l1"
        )


def factor_bytes(workload: Workload) -> int:
    """What strategies of single attributes take: each factor's gram, the terms while they are kept and made whole, and a solve."""
    shape = workload.domain.shape
    distinct_factors = {
        (axis, f.fingerprint) for block in workload.blocks for axis, f in zip(block.axes, block.factors, strict=True)
    }
    grams = sum(shape[axis] ** 2 for axis, _ in distinct_factors) + sum(size**2 for size in shape)
    subsets_kept = {subset for block in workload.blocks for subset in subsets(block.asked_axes)}
    term_doubles = sum(shape[axis] ** 2 for subset in subsets_kept for axis in subset)
    doubles = grams + TERM_COPIES * term_doubles + SOLVE_COPIES * 2 * max(size**2 for size in shape)
    return 8 * doubles + 2**20 + worst_factor_bytes(workload, len(subsets_kept))


def product_effort(workload: Workload | Gram) -> Effort:
    """Grams of all factors, and the solves of the largest attribute: limited steps from two starts and a few rounds after them."""
    if not isinstance(workload, Workload):
        cells = int(workload.values.shape[0])
        return Effort(cells, cells, 8 * 9 * cells**2 + 2**20, 3 * 500 * 0.3)
    shape = workload.domain.shape
    return Effort(max(shape), max(shape), factor_bytes(workload), 6 * 500 * 0.3 * len(shape))


def design_effort(workload: Workload | Gram) -> Effort:
    """Grams and left inverses over pairs of cells, and the rows of the largest tree with their inverse and the factors of both."""
    if isinstance(workload, Workload):
        cells, rows = workload.shape[1], largest_tree_rows(workload)
    else:
        cells = int(workload.values.shape[0])
        rows = 2 * cells
    doubles = DESIGN_SQUARES * cells**2 + DESIGN_ROWS * rows * cells
    return Effort(cells, cells, 8 * doubles + 2**20, DESIGN_PRODUCTS)


WEIGHTED_DESIGN, P_IDENTITY_PRODUCTS, WEIGHTED_MARGINALS = WeightedDesign(), PIdentityProducts(), WeightedMarginals()
