"""The measured space of stacks of Kronecker rows over tables: terms, products, series and the cells themselves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import scipy

from dpdist.operators import Matrix
from dpdist.reconstruction.kronecker_terms import oblique_inverse, share_of
from dpdist.reconstruction.measured_space import (
    TOLERANCE,
    Functionals,
    MeasuredSpace,
    NotMeasured,
    Reading,
    Variation,
    check_cancels,
    components,
    largest_sets,
    without_rounding,
)

CONTRACTED = 2**24
"""Numbers of a partly contracted table that are held at once."""


class Factor(ABC):
    """Integer rows along one attribute."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(measured rows, values)."""

    @abstractmethod
    def weights(self, vectors: Matrix) -> Matrix:
        """Weights of the measured rows that give linear functions of the values, those of least squares: (k, values) -> (k, rows)."""

    @abstractmethod
    def product(self, weights: Matrix) -> Matrix:
        """The linear functions that weights give: (k, rows) -> (k, values)."""

    @abstractmethod
    def facts(self) -> tuple[str, Matrix | None]:
        """Its kind, and the array that it is made of."""


@dataclass(frozen=True)
class ListedFactor(Factor):
    """A matrix of whole numbers, (rows, values); ``direction``: see ``dpdist.reconstruction.kronecker_terms``."""

    matrix: Matrix = field(repr=False)
    direction: Matrix | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    @cached_property
    def inverse(self) -> Matrix:
        """The pseudo-inverse, (values, rows); with a direction the oblique one."""
        if self.direction is not None:
            return oblique_inverse(self.matrix, self.direction)
        return np.asarray(np.linalg.pinv(self.matrix.astype(np.float64)))

    def weights(self, vectors: Matrix) -> Matrix:
        return np.asarray(vectors @ self.inverse)

    def product(self, weights: Matrix) -> Matrix:
        return np.asarray(weights @ self.matrix.astype(np.float64))

    def facts(self) -> tuple[str, Matrix | None]:
        return "matrix", self.matrix


@dataclass(frozen=True)
class Cells(Factor):
    """Every value as it is."""

    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def weights(self, vectors: Matrix) -> Matrix:
        return vectors

    def product(self, weights: Matrix) -> Matrix:
        return weights

    def facts(self) -> tuple[str, Matrix | None]:
        return "identity", None


@dataclass(frozen=True)
class Series(Factor):
    """A filter over a series of values, by its coefficients."""

    coefficients: Matrix = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.coefficients.size, self.coefficients.size


class Circle(Series):
    """A filter around a circle: row t is the sum over s of coefficients[(t - s) mod n] value[s]."""

    @cached_property
    def _spectrum(self) -> Matrix:
        return np.asarray(np.conj(np.fft.rfft(self.coefficients.astype(np.float64))))

    def weights(self, vectors: Matrix) -> Matrix:
        kept = np.abs(self._spectrum) > TOLERANCE * np.abs(self._spectrum).max()
        turned = np.fft.rfft(vectors, axis=1) * kept / np.where(kept, self._spectrum, 1.0)
        return np.asarray(np.fft.irfft(turned, n=self.coefficients.size, axis=1))

    def product(self, weights: Matrix) -> Matrix:
        turned = np.fft.rfft(weights, axis=1) * self._spectrum
        return np.asarray(np.fft.irfft(turned, n=self.coefficients.size, axis=1))

    def facts(self) -> tuple[str, Matrix | None]:
        return "circle", self.coefficients


@dataclass(frozen=True)
class WideCircle(Circle):
    """A filter around a circle of more points than there are values: those beyond hold nothing. It is written down for those who check."""

    steps: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.coefficients.size, self.steps


class Past(Series):
    """A filter of the past: row t is the sum over s <= t of coefficients[t - s] value[s]."""

    def weights(self, vectors: Matrix) -> Matrix:
        first = self.coefficients.astype(np.float64)
        return np.asarray(scipy.signal.lfilter([1.0], first, vectors[:, ::-1], axis=1)[:, ::-1])

    def product(self, weights: Matrix) -> Matrix:
        first = self.coefficients.astype(np.float64)
        return np.asarray(scipy.signal.lfilter(first, [1.0], weights[:, ::-1], axis=1)[:, ::-1])

    def facts(self) -> tuple[str, Matrix | None]:
        return "past", self.coefficients


@dataclass(frozen=True)
class OpenTerm:
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


Sides = list[Matrix]
"""For every attribute of a term the weights of its measured rows, (products or 1, rows)."""


@dataclass(frozen=True)
class ProductSpace(MeasuredSpace):
    """Terms with what was measured of each.

    Several terms are independent of each other, as the rows of each sum to zero along each of its attributes (against ``directions``);
    or all are whole tables, of which several may tell of the same counts.

    Attributes:
        shape: sizes of the domain's attributes.
        values: the noisy integers of all terms in a row, (values,) int64.
        directions: whole numbers that the rows of an attribute are orthogonal to, where that is not all ones.
    """

    terms: tuple[OpenTerm, ...]
    shape: tuple[int, ...]
    values: Matrix = field(repr=False)
    directions: Mapping[int, Matrix] = field(default_factory=dict, repr=False)

    @property
    def withheld(self) -> str | None:
        wide = any(isinstance(factor, WideCircle) for term in self.terms for factor in term.factors)
        return "its series is so long that readers could not solve for its steps" if wide else None

    @property
    def _alone(self) -> bool:
        """Whether there is one term, whose rows may hold its totals, too."""
        return len(self.terms) == 1

    @cached_property
    def measured(self) -> list[tuple[OpenTerm, Matrix]]:
        """Every term with what was measured of it, (rows,)."""
        return list(zip(self.terms, np.split(self.values, np.cumsum([term.rows for term in self.terms]))[:-1], strict=True))

    def read(self, asked: Functionals) -> Reading:
        matrix, spreads = asked.matrix, list(self.spreads(asked))
        products = np.zeros(asked.coefficients.size)
        for (term, scale, sides), values in spreads:
            products += scale * term.unit * _contracted(values.reshape(term.shape), sides, scale.size)
        squares = np.zeros(asked.size)
        roots = {
            term.axes: np.zeros(asked.size) for (term, _, _), _ in spreads
        }  # of the fourth powers: at most those of the sums
        single = np.bincount(asked.places, minlength=asked.size) == 1
        first, second, pair = _pairs(asked)
        weights = asked.coefficients[first] * asked.coefficients[second]
        for (term, scale, sides), _ in spreads:
            inner = weights * (scale[first] * scale[second] * term.unit**2)
            for side in sides:
                inner = inner * _inner(side, first, second)
            np.add.at(squares, pair, inner)
            fourth = (asked.coefficients * scale * term.unit) ** 4
            for side in sides:
                fourth = fourth * np.einsum("ij,ij,ij,ij->i", side, side, side, side)
            np.add.at(roots[term.axes], asked.places, np.sqrt(np.sqrt(fourth)))
        fourths = sum((root**4 for root in roots.values()), np.zeros(asked.size))
        near = np.where(single, fourths / np.maximum(squares**2, 1e-300), 1.0)
        return Reading(matrix @ products, np.maximum(squares, 0.0), np.clip(near, 0.0, 1.0))

    def gram(self, asked: Functionals) -> Matrix:
        total = np.zeros((asked.coefficients.size,) * 2)
        for (term, scale, sides), _ in self.spreads(asked):
            inner = np.outer(scale, scale) * term.unit**2
            for side in sides:
                inner = inner * (side @ side.T)
            total += inner
        return np.asarray(asked.matrix @ total @ asked.matrix.T)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        return largest_sets(term.axes for term in self.terms)

    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        arrays: dict[str, Matrix] = {}
        known: dict[tuple[Any, ...], str] = {}
        terms, start = [], 0
        for term in self.terms:
            factors = []
            for factor in term.factors:
                kind, array = factor.facts()
                entry: dict[str, Any] = {"kind": kind, "rows": factor.shape[0], "values": factor.shape[1]}
                if array is not None:
                    key = (kind, array.shape, array.tobytes())
                    name = known.setdefault(key, f"factor_{len(known)}")
                    arrays[name] = array
                    entry["array"] = name
                factors.append(entry)
            about = {"attributes": term.axes, "first": start, "values": term.rows, "factors": factors}
            terms.append({**about, "multiplier": term.multiplier, "shift": term.shift})
            start += term.rows
        for axis, direction in sorted(self.directions.items()):
            arrays[f"direction_{axis}"] = direction
        return {"kind": "products", "terms": terms, "directions": sorted(self.directions)}, arrays

    def spreads(self, asked: Functionals) -> Iterator[tuple[tuple[OpenTerm, Matrix, Sides], Matrix]]:
        """Every term that says something of what is asked: what its weights are multiplied with, (products,), the weights of its
        rows along each attribute, and what was measured. Raises: NotMeasured."""
        if self._of_tables:
            yield from self._spreads_of_tables(asked)
            return
        means, rests = self._split(asked)
        if not self._alone:
            self._check(asked, means, rests)
        for term, values in self.measured:
            if not self._alone and not set(term.axes) <= set(rests):
                continue
            scale = np.ones(asked.coefficients.size)
            for axis in means:
                if axis not in term.axes:
                    if self._alone and (rests[axis] != 0.0).any():
                        raise NotMeasured(tuple(sorted(asked.vectors)))
                    scale = scale * means[axis]
            sides = [self._side(asked, term, axis, factor) for axis, factor in zip(term.axes, term.factors, strict=True)]
            yield (term, scale, sides), values

    @property
    def _of_tables(self) -> bool:
        """Whether several terms are whole tables."""
        return not self._alone and any(isinstance(factor, Cells) for term in self.terms for factor in term.factors)

    def _spreads_of_tables(self, asked: Functionals) -> Iterator[tuple[tuple[OpenTerm, Matrix, Sides], Matrix]]:
        """The same for tables: every part of what is asked is read from all tables that hold its attributes, each by how precise it is.

        Parts that vary with different attributes are orthogonal in every table, so that this is least squares over all tables.
        """
        means, rests = self._split(asked)
        missing = [part for part in components(asked, means, rests) if not self._holding(part.axes)]
        check_cancels(asked, missing)
        varying = sorted(axis for axis, rest in rests.items() if (rest != 0.0).any())
        for axes in (axes for size in range(len(varying) + 1) for axes in combinations(varying, size)):
            scale = np.ones(asked.coefficients.size)
            for axis in set(means) - set(axes):
                scale = scale * means[axis]
            holding = self._holding(axes)
            total = sum(precision for _, _, precision in holding)
            for term, values, precision in holding:
                sides = [rests[axis] if axis in axes else np.ones((1, self.shape[axis])) for axis in term.axes]
                yield (term, scale * (precision / total), sides), values

    def _holding(self, axes: tuple[int, ...]) -> list[tuple[OpenTerm, Matrix, float]]:
        """The tables that hold some attributes, what was measured of each, and how precise their sums over its other attributes are."""
        return [
            (term, values, 1.0 / (term.unit**2 * math.prod(self.shape[axis] for axis in term.axes if axis not in axes)))
            for term, values in self.measured
            if set(axes) <= set(term.axes)
        ]

    def _side(self, asked: Functionals, term: OpenTerm, axis: int, factor: Factor) -> Matrix:
        """The weights of a term's rows along an attribute. Raises: NotMeasured for one term that lacks a part of what is asked."""
        vectors = asked.vectors.get(axis, np.ones((1, factor.shape[1])))
        weights = factor.weights(vectors)
        if self._alone and not isinstance(factor, Cells):
            lost = np.abs(factor.product(weights) - vectors).max()
            if float(lost) > 1e-6 * float(np.abs(vectors).max()):
                raise NotMeasured((axis,), finer=True)
        return weights

    def _split(self, asked: Functionals) -> tuple[dict[int, Matrix], dict[int, Matrix]]:
        """Of every attribute that is asked for: the constant and the varying part of each product's vector."""
        means, rests = {}, {}
        for axis, vectors in asked.vectors.items():
            means[axis] = vectors @ share_of(self.directions.get(axis), vectors.shape[1])
            means[axis] = np.where(np.abs(means[axis]) > TOLERANCE * np.abs(vectors).max(axis=1), means[axis], 0.0)
            rests[axis] = without_rounding(vectors - means[axis][:, None], vectors)
        return means, rests

    def _check(self, asked: Functionals, means: Mapping[int, Matrix], rests: Mapping[int, Matrix]) -> None:
        """Raises: NotMeasured where a part of what is asked varies with attributes whose term was not measured, or only coarsely."""
        measured = {term.axes: term for term in self.terms}
        missing: list[Variation] = []
        for part in components(asked, means, rests):
            term = measured.get(part.axes)
            if term is None:
                missing.append(part)
                continue
            for axis, factor, vector in zip(term.axes, term.factors, part.vectors, strict=True):
                rows, values = factor.shape
                if rows < values - 1:
                    lost = np.abs(factor.product(factor.weights(vector[None])) - vector).max()
                    if float(lost) > 1e-6 * float(np.abs(vector).max()):
                        raise NotMeasured((axis,), finer=True)
        check_cancels(asked, missing)


def _pairs(asked: Functionals) -> tuple[Matrix, Matrix, Matrix]:
    """All pairs of products of the same function, and the function."""
    order = np.argsort(asked.places, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(asked.places[order])) + 1)
    first = np.concatenate([np.repeat(group, group.size) for group in groups])
    second = np.concatenate([np.tile(group, group.size) for group in groups])
    return first, second, asked.places[first]


def _inner(side: Matrix, first: Matrix, second: Matrix) -> Matrix | float:
    """Inner products of the rows of one attribute's weights, pair by pair."""
    if side.shape[0] == 1:
        return float(side[0] @ side[0])
    step = max(1, CONTRACTED // side.shape[1])
    parts = [
        np.einsum("ij,ij->i", side[first[i : i + step]], side[second[i : i + step]]) for i in range(0, first.size, step)
    ]
    return np.concatenate(parts)


def _contracted(table: Matrix, sides: Sequence[Matrix], products: int) -> Matrix:
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
    out = []
    for start in range(0, products, step):
        found = (varying[0][start : start + step] @ flat).reshape(-1, *tensor.shape[1:])
        for side in varying[1:]:
            found = np.einsum("pi...,pi->p...", found, side[start : start + step])
        out.append(found)
    return np.concatenate(out)


def product_space_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Matrix], shape: tuple[int, ...], values: Matrix
) -> ProductSpace:
    """The space that ``facts`` wrote down."""
    directions = {int(axis): arrays[f"direction_{axis}"] for axis in facts["directions"]}
    terms = []
    for term in facts["terms"]:
        axes = tuple(int(axis) for axis in term["attributes"])
        factors = tuple(
            _factor(each, arrays, directions.get(axis)) for axis, each in zip(axes, term["factors"], strict=True)
        )
        terms.append(OpenTerm(axes, factors, int(term["multiplier"]), int(term["shift"])))
    return ProductSpace(tuple(terms), shape, values, directions)


def _factor(facts: Mapping[str, Any], arrays: Mapping[str, Matrix], direction: Matrix | None) -> Factor:
    if "array" not in facts:  # every value by itself
        return Cells(int(facts["values"]))
    array = arrays[facts["array"]]
    return (
        {"circle": Circle, "past": Past}[facts["kind"]](array)
        if facts["kind"] != "matrix"
        else ListedFactor(array, direction)
    )
