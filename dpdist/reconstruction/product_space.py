"""The measured space of stacks of Kronecker rows over tables: terms, products, series and the cells themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from dpdist.operators import Matrix
from dpdist.reconstruction.axis_factors import CircularFilter, Factor, IdentityFactor, factor_from
from dpdist.reconstruction.kronecker_terms import unit_direction
from dpdist.reconstruction.measured_space import (
    TOLERANCE,
    FunctionalEstimates,
    Functionals,
    MeasuredSpace,
    NotMeasured,
    Variation,
    check_cancels,
    components,
    largest_sets,
    product_pairs,
    without_rounding,
)

CONTRACTED = 2**24
"""Numbers of a partly contracted table that are held at once."""


@dataclass(frozen=True)
class SpaceTerm:
    """Measured rows over one table: an integer stands for ``2^shift / multiplier``.

    Attributes:
        axes: the attributes of the table, ascending, with a factor each.
    """

    axes: tuple[int, ...]
    factors: tuple[Factor, ...]
    multiplier: int = 1
    shift: int = 0

    @property
    def unit(self) -> float:
        """What one integer stands for."""
        return float(2.0**self.shift / self.multiplier)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the measured values."""
        return tuple(factor.shape[0] for factor in self.factors)

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return math.prod(self.shape)


AxisWeights = list[Matrix]
"""For every attribute of a term the weights of its measured rows, (products or 1, rows)."""


@dataclass(frozen=True)
class ProductSpace(MeasuredSpace):
    """Terms with what was measured of each.

    Several terms are independent of each other, as the rows of each sum to zero along each of its attributes (against ``directions``);
    or all are whole tables, of which several may tell of the same counts; or each is read by itself (``separate``).

    Attributes:
        shape: sizes of the domain's attributes.
        values: the noisy integers of all terms in a row, (values,) int64.
        directions: whole numbers that the rows of an attribute are orthogonal to, where that is not all ones.
        separate: whether a question is read from a single term: the one of the fewest attributes that holds all of it.
    """

    terms: tuple[SpaceTerm, ...]
    shape: tuple[int, ...]
    values: Matrix = field(repr=False)
    directions: Mapping[int, Matrix] = field(default_factory=dict, repr=False)
    separate: bool = field(default=False, kw_only=True)

    @property
    def has_padded_circle(self) -> bool:
        """Whether a series lies on a circle of more points than it has steps."""
        return any(isinstance(factor, CircularFilter) and factor.steps for term in self.terms for factor in term.factors)

    @property
    def reason_withheld(self) -> str | None:
        return "its series is so long that readers could not solve for its steps" if self.has_padded_circle else None

    @property
    def _has_one_term(self) -> bool:
        """Whether a question is read from one term, whose rows may hold its totals, too."""
        return self.separate or len(self.terms) == 1

    @cached_property
    def measured(self) -> list[tuple[SpaceTerm, Matrix]]:
        """Every term with what was measured of it, (rows,)."""
        return list(zip(self.terms, np.split(self.values, np.cumsum([term.rows for term in self.terms]))[:-1], strict=True))

    def estimate(self, functionals: Functionals) -> FunctionalEstimates:
        matrix, spreads = functionals.matrix, list(self.weighted_terms(functionals))
        products = np.zeros(functionals.coefficients.size)
        for (term, scale, sides), values in spreads:
            products += scale * term.unit * _contract(values.reshape(term.shape), sides, scale.size)
        squares = np.zeros(functionals.size)
        roots = {
            term.axes: np.zeros(functionals.size) for (term, _, _), _ in spreads
        }  # of the fourth powers: at most those of the sums
        single = np.bincount(functionals.function_index, minlength=functionals.size) == 1
        first_products, second_products, pair = product_pairs(functionals)
        weights = functionals.coefficients[first_products] * functionals.coefficients[second_products]
        for (term, scale, sides), _ in spreads:
            inner = weights * (scale[first_products] * scale[second_products] * term.unit**2)
            for axis_weights in sides:
                inner = inner * _inner(axis_weights, first_products, second_products)
            np.add.at(squares, pair, inner)
            fourth = (functionals.coefficients * scale * term.unit) ** 4
            for axis_weights in sides:
                fourth = fourth * np.einsum("ij,ij,ij,ij->i", axis_weights, axis_weights, axis_weights, axis_weights)
            np.add.at(roots[term.axes], functionals.function_index, np.sqrt(np.sqrt(fourth)))
        fourths = sum((root**4 for root in roots.values()), np.zeros(functionals.size))
        concentration = np.where(single, fourths / np.maximum(squares**2, 1e-300), 1.0)
        return FunctionalEstimates(matrix @ products, np.maximum(squares, 0.0), np.clip(concentration, 0.0, 1.0))

    def gram(self, functionals: Functionals) -> Matrix:
        total = np.zeros((functionals.coefficients.size,) * 2)
        for (term, scale, sides), _ in self.weighted_terms(functionals):
            inner = np.outer(scale, scale) * term.unit**2
            for axis_weights in sides:
                inner = inner * (axis_weights @ axis_weights.T)
            total += inner
        return np.asarray(functionals.matrix @ total @ functionals.matrix.T)

    def over_values(self, values: Mapping[int, Matrix]) -> ProductSpace | None:
        term, measured = self.measured[0]
        factors = dict(zip(term.axes, term.factors, strict=True))
        if len(self.terms) > 1 or any(not isinstance(factors.get(axis), IdentityFactor) for axis in values):
            return None
        kept = [values.get(axis, np.arange(factor.shape[0])) for axis, factor in factors.items()]
        factors |= {axis: IdentityFactor(axis_values.size) for axis, axis_values in values.items()}
        shape = tuple(values[axis].size if axis in values else size for axis, size in enumerate(self.shape))
        directions = {axis: direction for axis, direction in self.directions.items() if axis not in values}
        cells = measured.reshape(term.shape)[np.ix_(*kept)].ravel()
        return ProductSpace((replace(term, factors=tuple(factors.values())),), shape, cells, directions)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        return largest_sets(term.axes for term in self.terms)

    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        arrays: dict[str, Matrix] = {}
        array_names: dict[tuple[Any, ...], str] = {}
        terms, start = [], 0
        for term in self.terms:
            factors = []
            for factor in term.factors:
                kind, array = factor.facts()
                entry: dict[str, Any] = {"kind": kind, "rows": factor.shape[0], "values": factor.shape[1]}
                if array is not None:
                    key = (kind, array.shape, array.tobytes())
                    name = array_names.setdefault(key, f"factor_{len(array_names)}")
                    arrays[name] = array
                    entry["array"] = name
                factors.append(entry)
            about = {"attributes": term.axes, "first": start, "values": term.rows, "factors": factors}
            terms.append({**about, "multiplier": term.multiplier, "shift": term.shift})
            start += term.rows
        for axis, direction in sorted(self.directions.items()):
            arrays[f"direction_{axis}"] = direction
        separate = {"separate": True} if self.separate else {}
        return {"kind": "products", "terms": terms, "directions": sorted(self.directions), **separate}, arrays

    def weighted_terms(self, functionals: Functionals) -> Iterator[tuple[tuple[SpaceTerm, Matrix, AxisWeights], Matrix]]:
        """Every term that says something of what is asked: what its weights are multiplied with, (products,), the weights of its
        rows along each attribute, and what was measured. Raises: NotMeasured."""
        if self.separate:
            yield self._weighted_single(functionals)
            return
        if self._has_several_tables:
            yield from self._weighted_tables(functionals)
            return
        means, rests = self._split_vectors(functionals)
        if not self._has_one_term:
            self._check(functionals, means, rests)
        for term, values in self.measured:
            if not self._has_one_term and not set(term.axes) <= set(rests):
                continue
            scale = np.ones(functionals.coefficients.size)
            for axis in means:
                if axis not in term.axes:
                    if self._has_one_term and (rests[axis] != 0.0).any():
                        raise NotMeasured(tuple(sorted(functionals.vectors)))
                    scale = scale * means[axis]
            yield (term, scale, self._term_weights(functionals, term)), values

    def _weighted_single(self, functionals: Functionals) -> tuple[tuple[SpaceTerm, Matrix, AxisWeights], Matrix]:
        """The same for terms that are read by themselves."""
        axes = tuple(sorted(functionals.vectors))
        missed = NotMeasured(axes)
        for term, values, _ in sorted(self._holding_terms(axes), key=lambda holding: len(holding[0].axes)):
            try:
                return (term, np.ones(functionals.coefficients.size), self._term_weights(functionals, term)), values
            except NotMeasured as merged:
                missed = merged
        raise missed

    @property
    def _has_several_tables(self) -> bool:
        """Whether several terms are whole tables."""
        return not self._has_one_term and any(
            isinstance(factor, IdentityFactor) for term in self.terms for factor in term.factors
        )

    def _weighted_tables(self, functionals: Functionals) -> Iterator[tuple[tuple[SpaceTerm, Matrix, AxisWeights], Matrix]]:
        """The same for tables: every part of what is asked is read from all tables that hold its attributes, each by how precise it is.

        Parts that vary with different attributes are orthogonal in every table, so that this is least squares over all tables.
        """
        means, rests = self._split_vectors(functionals)
        missing = [
            component for component in components(functionals, means, rests) if not self._holding_terms(component.axes)
        ]
        check_cancels(functionals, missing)
        varying = sorted(axis for axis, rest in rests.items() if (rest != 0.0).any())
        for axes in (axes for size in range(len(varying) + 1) for axes in combinations(varying, size)):
            scale = np.ones(functionals.coefficients.size)
            for axis in set(means) - set(axes):
                scale = scale * means[axis]
            holding = self._holding_terms(axes)
            total = sum(precision for _, _, precision in holding)
            for term, values, precision in holding:
                sides = [rests[axis] if axis in axes else np.ones((1, self.shape[axis])) for axis in term.axes]
                yield (term, scale * (precision / total), sides), values

    def _holding_terms(self, axes: tuple[int, ...]) -> list[tuple[SpaceTerm, Matrix, float]]:
        """The tables that hold some attributes, what was measured of each, and how precise their sums over its other attributes are."""
        return [
            (term, values, 1.0 / (term.unit**2 * math.prod(self.shape[axis] for axis in term.axes if axis not in axes)))
            for term, values in self.measured
            if set(axes) <= set(term.axes)
        ]

    def _term_weights(self, functionals: Functionals, term: SpaceTerm) -> AxisWeights:
        """The weights of a term's rows. Raises: NotMeasured for one term that lacks a part of what is asked."""
        sides = []
        for axis, factor in zip(term.axes, term.factors, strict=True):
            weights = factor.weights(vectors := functionals.vectors.get(axis, np.ones((1, factor.shape[1]))))
            if self._has_one_term and not isinstance(factor, IdentityFactor):
                _check_determined(factor, weights, vectors, axis)
            sides.append(weights)
        return sides

    def _split_vectors(self, functionals: Functionals) -> tuple[dict[int, Matrix], dict[int, Matrix]]:
        """Of every attribute that is asked for: the constant and the varying part of each product's vector."""
        means, rests = {}, {}
        for axis, vectors in functionals.vectors.items():
            means[axis] = vectors @ unit_direction(self.directions.get(axis), vectors.shape[1])
            means[axis] = np.where(np.abs(means[axis]) > TOLERANCE * np.abs(vectors).max(axis=1), means[axis], 0.0)
            rests[axis] = without_rounding(vectors - means[axis][:, None], vectors)
        return means, rests

    def _check(self, functionals: Functionals, means: Mapping[int, Matrix], rests: Mapping[int, Matrix]) -> None:
        """Raises: NotMeasured where a part of what is asked varies with attributes whose term was not measured, or only coarsely."""
        measured = {term.axes: term for term in self.terms}
        missing: list[Variation] = []
        for component in components(functionals, means, rests):
            term = measured.get(component.axes)
            if term is None:
                missing.append(component)
                continue
            for axis, factor, vector in zip(term.axes, term.factors, component.vectors, strict=True):
                rows, values = factor.shape
                if rows < values - 1:
                    _check_determined(factor, factor.weights(vector[None]), vector, axis)
        check_cancels(functionals, missing)


def _check_determined(factor: Factor, weights: Matrix, vectors: Matrix, axis: int) -> None:
    """Raises: NotMeasured where the weights give other functions of the values than were asked for."""
    lost = np.abs(factor.product(weights) - vectors).max()
    if float(lost) > 1e-6 * float(np.abs(vectors).max()):
        raise NotMeasured((axis,), finer=True)


def _inner(axis_weights: Matrix, first_products: Matrix, second_products: Matrix) -> Matrix | float:
    """Inner products of the rows of one attribute's weights, pair by pair."""
    if axis_weights.shape[0] == 1:
        return float(axis_weights[0] @ axis_weights[0])
    step = max(1, CONTRACTED // axis_weights.shape[1])
    starts = range(0, first_products.size, step)
    pairs = [(first_products[start : start + step], second_products[start : start + step]) for start in starts]
    return np.concatenate([np.einsum("ij,ij->i", axis_weights[one], axis_weights[other]) for one, other in pairs])


def _contract(table: Matrix, sides: Sequence[Matrix], products: int) -> Matrix:
    """The sums of a table's values under products of weights, (products,): weights that all products share first."""
    tensor = table.astype(np.float64)
    varying: list[Matrix] = []
    for axis in reversed(range(len(sides))):
        if sides[axis].shape[0] == 1:
            tensor = np.tensordot(tensor, sides[axis][0], axes=(axis, 0))
        else:
            varying.insert(0, sides[axis])
    if not varying:
        return np.full(products, float(tensor))
    flat = tensor.reshape(tensor.shape[0], -1)
    step = max(1, CONTRACTED // flat.shape[1])
    sums = []
    for start in range(0, products, step):
        block_sums = (varying[0][start : start + step] @ flat).reshape(-1, *tensor.shape[1:])
        for axis_weights in varying[1:]:
            block_sums = np.einsum("pi...,pi->p...", block_sums, axis_weights[start : start + step])
        sums.append(block_sums)
    return np.concatenate(sums)


def product_space_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Matrix], shape: tuple[int, ...], values: Matrix
) -> ProductSpace:
    """The space that ``facts`` wrote down."""
    directions = {int(axis): arrays[f"direction_{axis}"] for axis in facts["directions"]}
    terms = []
    for term in facts["terms"]:
        axes = tuple(int(axis) for axis in term["attributes"])
        factors = tuple(
            factor_from(factor_facts, arrays, directions.get(axis))
            for axis, factor_facts in zip(axes, term["factors"], strict=True)
        )
        terms.append(SpaceTerm(axes, factors, int(term["multiplier"]), int(term["shift"])))
    return ProductSpace(tuple(terms), shape, values, directions, separate=facts.get("separate", False))
