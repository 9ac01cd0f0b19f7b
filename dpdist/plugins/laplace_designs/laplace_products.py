"""Strategies over tables for Laplace noise: products that answer groups of queries, and marginals with weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpdist.api.mechanisms import (
    UNIT_VARIANCE,
    WORST_ANSWERS,
    WORST_WORK,
    Gram,
    IntegerMeasurement,
    Matrix,
    Neighbours,
    Norm,
    Stack,
    Term,
    TermStrategy,
    Workload,
    block_variances,
    contrasts,
    subsets,
)
from dpdist.api.pages import Operator
from dpdist.plugins.laplace_designs.laplace_terms import MarginalMeasurement, contrast_subsets, laplace_term_measurement

Subset = tuple[int, ...]


@dataclass(frozen=True, repr=False)
class ProductsStrategy(TermStrategy):
    """Products under Laplace noise, each of which answers some blocks of queries alone.

    Attributes:
        groups: the numbers of the blocks that each term answers.
    """

    groups: tuple[tuple[int, ...], ...] = field(kw_only=True)

    def form_facts(self) -> dict[str, Any]:
        return {"groups": [list(group) for group in self.groups]}

    @classmethod
    def restored_options(cls, facts: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        return {"groups": tuple(tuple(group) for group in facts["groups"])}

    @property
    def consistent(self) -> bool:
        """Whether there is one product, so that all answers are read from one estimate."""
        return len(self.groups) == 1

    @property
    def norm(self) -> Norm:
        return "l1"

    @property
    def l1_sensitivity(self) -> float:
        return sum(term.length for term in self.terms)

    def cost(self, workload: Workload | Gram) -> float:
        """Total variance at epsilon = 1 as the answers are read: each group from its own product."""
        if not isinstance(workload, Workload):
            return super().cost(workload)
        total = 0.0
        for term, group in zip(self.terms, self.groups, strict=True):
            inverses = [np.linalg.pinv(factor) for factor in term.factors]
            inverse_grams = {axis: inverse @ inverse.T for axis, inverse in zip(term.axes, inverses, strict=True)}
            for number in group:
                block = workload.blocks[number]
                grams = {block_axis: f.gram() for block_axis, f in zip(block.axes, block.scaled(block.factors), strict=True)}
                traces = (
                    float(inverse_gram.sum())
                    if axis not in grams
                    else float(np.einsum("ij,ij->", grams[axis], inverse_gram))
                    for axis, inverse_gram in inverse_grams.items()
                )
                total += block.weight**2 * math.prod(traces) / term.scale**2
        return UNIT_VARIANCE["l1"] * self.l1_sensitivity**2 * total

    def worst(self, workload: Workload) -> float | None:
        work = sum(f.shape[0] * f.shape[1] ** 2 for block in workload.blocks for f in block.factors)
        if work > WORST_WORK or workload.shape[0] > WORST_ANSWERS:
            return None
        largest = 0.0
        for term, group in zip(self.terms, self.groups, strict=True):
            inverted_term = (term.axes, tuple(np.linalg.pinv(f) for f in term.factors), 1.0 / term.scale)
            largest = max(largest, *(float(block_variances(workload.blocks[i], [inverted_term]).max()) for i in group))
        return self.unit_error * math.sqrt(largest)

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        domain, groups = workload.domain, self.groups
        return laplace_term_measurement(self.terms, domain, neighbours=neighbours, most_records=most_records, groups=groups)


@dataclass(frozen=True, repr=False)
class WeightedMarginalsStrategy(TermStrategy):
    """Whole marginals under Laplace noise, each with a weight of its own; answers are least squares over all of them."""

    supports_fractional_records: ClassVar[bool] = False
    sizes: tuple[int, ...] = field(kw_only=True)

    def form_facts(self) -> dict[str, Any]:
        return {"weights": [term.scale for term in self.terms]}

    @classmethod
    def restored_options(cls, facts: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        return {"sizes": shape}

    @property
    def norm(self) -> Norm:
        return "l1"

    @property
    def l1_sensitivity(self) -> float:
        return sum(term.scale for term in self.terms)

    def cost(self, workload: Workload | Gram) -> float:
        """2 Delta^2 tr(V X^+), in closed form over the residual basis."""
        if not isinstance(workload, Workload):
            return super().cost(workload)
        return marginals_cost(self.terms, workload)

    def worst(self, workload: Workload) -> float | None:
        work = sum(f.shape[0] * f.shape[1] ** 2 for block in workload.blocks for f in block.factors)
        if work * len(self.terms) > WORST_WORK or workload.shape[0] * len(self.terms) > WORST_ANSWERS:
            return None
        subset_precisions = residual_precisions({term.axes: term.scale for term in self.terms}, self.sizes)
        largest = 0.0
        for block in workload.blocks:
            inverted_terms = []
            for subset in contrast_subsets(block.asked_axes, self.sizes):
                centring = tuple(_centring(self.sizes[axis]) for axis in subset)
                table = subset_precisions[subset] / math.prod(
                    size for axis, size in enumerate(self.sizes) if axis not in subset
                )
                inverted_terms.append((subset, centring, table**-0.5))
            largest = max(largest, float(block_variances(block, inverted_terms).max()))
        return self.unit_error * math.sqrt(largest)

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        domain = workload.domain
        return laplace_term_measurement(
            self.terms,
            domain,
            neighbours=neighbours,
            most_records=most_records,
            groups=(),
            measurement_class=MarginalMeasurement,
        )


def _centring(size: int) -> Matrix:
    rows = contrasts(size)
    return np.asarray(rows.T @ rows)


def marginal_terms(weights: Mapping[Subset, float], sizes: tuple[int, ...]) -> tuple[Term, ...]:
    """One term a marginal, its cells times the weight."""
    return tuple(Term(axes, tuple(np.eye(sizes[axis]) for axis in axes), weight) for axes, weight in weights.items())


def stack_terms(terms: tuple[Term, ...], shape: tuple[int, ...]) -> Operator:
    """The rows of all terms over all cells."""
    operators = [term.operator(shape) for term in terms]
    return operators[0] if len(operators) == 1 else Stack(operators)


def marginals_cost(terms: tuple[Term, ...], workload: Workload) -> float:
    """2 Delta^2 tr(V X^+) of weighted marginals: total variance at epsilon = 1."""
    subset_precisions = residual_precisions({term.axes: term.scale for term in terms}, workload.domain.shape)
    total = sum(trace / subset_precisions[subset] for subset, trace in residual_traces(workload).items())
    return UNIT_VARIANCE["l1"] * sum(term.scale for term in terms) ** 2 * total


def residual_precisions(weights: Mapping[Subset, float], sizes: tuple[int, ...]) -> dict[Subset, float]:
    """x_T of A'A = sum of x_T P_T, for every attribute set inside one that is measured."""
    subset_precisions: dict[Subset, float] = {}
    for axes, weight in weights.items():
        cells = math.prod(size for axis, size in enumerate(sizes) if axis not in axes)
        for subset in subsets(axes):
            subset_precisions[subset] = subset_precisions.get(subset, 0.0) + weight**2 * cells
    return subset_precisions


def residual_traces(workload: Workload) -> dict[Subset, float]:
    """tr(V P_T) for every attribute set that some query asks for, zeros left out."""
    sizes = workload.domain.shape
    traces: dict[Subset, float] = {}
    for block in workload.blocks:
        weight = block.weight**2 * math.prod(size for axis, size in enumerate(sizes) if axis not in block.axes)
        axis_traces = {}
        for axis, factor in zip(block.axes, block.scaled(block.factors), strict=True):
            ones = factor.matvec(np.ones(sizes[axis]))
            mean_trace = float(ones @ ones) / sizes[axis]
            axis_traces[axis] = (max(factor.frobenius_squared - mean_trace, 0.0), mean_trace)
        for subset in subsets(block.asked_axes):
            value = weight * math.prod(
                contrast_trace if block_axis in subset else mean_trace
                for block_axis, (contrast_trace, mean_trace) in axis_traces.items()
            )
            if value > 0:
                traces[subset] = traces.get(subset, 0.0) + value
    return traces
