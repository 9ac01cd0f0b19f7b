"""Products of p-Identity strategies and trees of single attributes, under Laplace noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import scipy

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    BRANCHINGS,
    UNIT_VARIANCE,
    Matrix,
    Solve,
    Step,
    Term,
    Total,
    Tree,
    Workload,
    check_workload,
    fit_p_identity,
    learnt_queries,
)
from dpdist.api.pages import Operator
from dpdist.plugins.laplace_designs.laplace_products import ProductsStrategy, stack_terms

LEARNT_VALUES = 1024
"""Up to so many values an attribute's queries are learnt; beyond, trees and the identity are compared."""
ROUNDS = 8
PRODUCT_RESTARTS = 2
SETTLED = 1e-4


def p_identity_products(workload: Workload, *, seed: int = 0) -> ProductsStrategy:
    """The products of p-Identity strategies and trees with the least total error under Laplace noise that the search finds.

    Args:
        workload: a weighted union of products, (m, n).
        seed: fixes the random starts.
    Returns: a strategy for Laplace noise, with its cost at epsilon = 1.
    Raises: InvalidInput for queries that are not products over attributes.
    Source: McKenna, Miklau, Hay, Machanavajjhala 2018 (HDMM), OPT_kron and OPT_+; trees: Qardaji, Yang, Li 2013.
    """
    check_workload(workload)
    if not workload.kind.is_separable:
        raise InvalidInput(
            "the workload holds queries that are no product over attributes; choose 'p-identity' or 'identity'"
        )
    grams = _Grams(workload)
    all_blocks = tuple(range(len(workload.blocks)))
    alone: dict[tuple[int, ...], list[int]] = {}
    for number in all_blocks:
        alone.setdefault(workload.blocks[number].asked_axes, []).append(number)
    divisions: list[tuple[tuple[int, ...], ...]] = [(all_blocks,)]
    if len(alone) > 1:
        divisions.append(tuple(tuple(numbers) for numbers in alone.values()))
    best: tuple[float, tuple[_Product, ...], tuple[tuple[int, ...], ...]] | None = None
    steps: list[Step] = []
    for groups in divisions:
        products = tuple(_optimise_product(workload, grams, group, seed) for group in groups)
        cost = sum(product.cost ** (1.0 / 3.0) for product in products) ** 3
        if best is None or cost < best[0]:
            best = (cost, products, groups)
        steps.append(Step(len(steps) + 1, best[0], math.inf))
    assert best is not None
    _, products, groups = best
    scales = [product.cost ** (1.0 / 3.0) for product in products]
    terms = tuple(Term(p.axes, p.factors, scale / sum(scales)) for p, scale in zip(products, scales, strict=True))
    operator = stack_terms(terms, workload.domain.shape)
    record = Solve("products for pure epsilon", "converged", tuple(steps))
    return ProductsStrategy("p-identity-products", operator, best[0], None, record, terms=terms, groups=groups)


@dataclass(frozen=True)
class _Product:
    axes: tuple[int, ...]
    factors: tuple[Matrix, ...]
    cost: float


@dataclass(frozen=True)
class _Grams:
    """Grams of the blocks' factors, each once."""

    workload: Workload
    cached_grams: dict[str, Matrix] = field(default_factory=dict)

    def factor_gram(self, number: int, axis: int) -> Matrix:
        """V_bi, (n_i, n_i); all ones where the block sums over the attribute."""
        block = self.workload.blocks[number]
        factor: Operator = Total(self.workload.domain.shape[axis])
        if axis in block.axes:
            factor = block.scaled(block.factors)[block.axes.index(axis)]
        if factor.fingerprint not in self.cached_grams:
            self.cached_grams[factor.fingerprint] = factor.gram()
        return self.cached_grams[factor.fingerprint]


def _optimise_product(workload: Workload, grams: _Grams, group: tuple[int, ...], seed: int) -> _Product:
    """One product for some blocks: factor by factor, each optimal given the others, from the identity on."""
    blocks = [workload.blocks[number] for number in group]
    axes = tuple(sorted({axis for block in blocks for axis in block.asked_axes}))
    squares = [block.weight**2 for block in blocks]
    traces = {(j, axis): float(np.trace(grams.factor_gram(number, axis))) for j, number in enumerate(group) for axis in axes}
    factors = {axis: _Factor.identity(workload.domain.shape[axis]) for axis in axes}

    def cost() -> float:
        return sum(square * math.prod(traces[j, axis] for axis in axes) for j, square in enumerate(squares))

    before = cost()
    for turn in range(ROUNDS):
        for axis in axes:
            block_weights = [
                s * math.prod(traces[j, other_axis] for other_axis in axes if other_axis != axis)
                for j, s in enumerate(squares)
            ]
            gram = np.sum(
                [weight * grams.factor_gram(number, axis) for weight, number in zip(block_weights, group, strict=True)],
                axis=0,
            )
            ordered = not workload.domain.attributes[axis].categories
            factors[axis] = factors[axis].improve(gram, ordered=ordered, seed=seed, is_initial=turn == 0)
            inverse = factors[axis].inverse
            for j, number in enumerate(group):
                traces[j, axis] = float(np.einsum("ij,ij->", grams.factor_gram(number, axis), inverse))
        after = cost()
        if after >= before * (1 - SETTLED) or len(axes) < 2:
            break
        before = after
    return _Product(axes, tuple(factors[axis].matrix for axis in axes), UNIT_VARIANCE["l1"] * cost())


@dataclass(frozen=True)
class _Factor:
    """The strategy of one attribute, every column of unit L1 length.

    Attributes:
        inverse: (A'A)^-1.
        theta: the learnt queries, from which the next solve starts; None for trees and the identity.
    """

    matrix: Matrix
    inverse: Matrix
    theta: Matrix | None = None

    @staticmethod
    def identity(size: int) -> _Factor:
        return _Factor(np.eye(size), np.eye(size))

    @staticmethod
    def of(matrix: Matrix, theta: Matrix | None = None) -> _Factor:
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix.T @ matrix), np.eye(matrix.shape[1]))
        return _Factor(matrix, inverse, theta)

    def cost(self, gram: Matrix) -> float:
        """tr(V (A'A)^-1)."""
        return float(np.einsum("ij,ij->", gram, self.inverse))

    def improve(self, gram: Matrix, *, ordered: bool, seed: int, is_initial: bool) -> _Factor:
        """The best strategy for a gram: this one, the identity, trees where the values have an order, and learnt queries."""
        size = gram.shape[0]
        candidates = [self, _Factor.identity(size)]
        if _is_scaled_identity(gram):
            return candidates[1]
        if size <= LEARNT_VALUES:
            state = np.random.default_rng(seed)
            shape = (learnt_queries(size), size)
            starts = [] if self.theta is None else [self.theta]
            if is_initial or not starts:
                starts += [state.uniform(0.0, 1.0, shape) for _ in range(PRODUCT_RESTARTS)]
            solved = fit_p_identity(gram, starts)
            if solved.theta.shape[0]:
                candidates.append(_Factor.of(solved.matrix, solved.theta))
        if ordered and size > 2 and is_initial:
            candidates += [_Factor.of(_tree(size, branching)) for branching in BRANCHINGS if branching < size]
        return min(candidates, key=lambda candidate: candidate.cost(gram))


def _tree(size: int, branching: int) -> Matrix:
    rows = Tree(size, branching).dense()
    return np.asarray(rows / np.abs(rows).sum(axis=0).max())


def _is_scaled_identity(gram: Matrix) -> bool:
    """Whether the gram is a multiple of the identity, for which the identity is optimal."""
    return bool((gram == np.diag(np.diag(gram))).all()) and np.ptp(np.diag(gram)) == 0
