"""Measured spaces: which linear functions of the cells a measurement determines, their best estimates, and how those vary together.

Cells are never enumerated: a function is a sum of products over attributes, and each product meets the measured rows attribute by
attribute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.privacy.noise import Noise

TOLERANCE = 1e-7
"""Parts of a function that are this small relative to it are rounding error."""
MISSING_ENTRIES = 2**20
"""Up to here what is missing of a sum of products is written down, to see whether it cancels."""
MOST_PRODUCTS = 4096
"""Products that one question may consist of."""


@dataclass(frozen=True)
class Functionals:
    """Linear functions of the cells of a domain, each a sum of products over attributes.

    Attributes:
        coefficients: of every product, (products,) float64.
        function_index: to which function every product belongs, (products,) int64.
        vectors: for some attributes one vector a product, (products, values); over every other attribute a product is constant, 1.
        size: number of functions.
    """

    coefficients: Matrix
    function_index: Matrix
    vectors: Mapping[int, Matrix]
    size: int

    def __post_init__(self) -> None:
        if self.coefficients.size > MOST_PRODUCTS:
            raise InvalidInput(
                f"this asks for {self.coefficients.size:,} products of conditions at once; at most {MOST_PRODUCTS:,} are answered: "
                "ask for fewer groups or simpler conditions"
            )

    @property
    def matrix(self) -> Matrix:
        """Which products add up to which function, (functions, products)."""
        matrix = np.zeros((self.size, self.coefficients.size))
        matrix[self.function_index, np.arange(self.coefficients.size)] = self.coefficients
        return matrix


def product_pairs(functionals: Functionals) -> tuple[Matrix, Matrix, Matrix]:
    """All pairs of products of the same function, and the function."""
    order = np.argsort(functionals.function_index, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(functionals.function_index[order])) + 1)
    first_products = np.concatenate([np.repeat(group, group.size) for group in groups])
    second_products = np.concatenate([np.tile(group, group.size) for group in groups])
    return first_products, second_products, functionals.function_index[first_products]


@dataclass(frozen=True)
class FunctionalEstimates:
    """Estimates of linear functions, for noise of deviation 1 on the grid.

    Attributes:
        values: the best linear unbiased estimates, (functions,).
        squares: their variances, (functions,).
        concentrations: sums of the fourth powers of the noise's weights over the squares of their sums of squares, in (0, 1]: how
            near one draw the noise in each is. 1 where it was not computed, which is the safe side.
    """

    values: Matrix
    squares: Matrix
    concentrations: Matrix


class NotMeasured(InvalidInput):
    """A question that the measurement does not determine: what is missing is the table of some attributes.

    Attributes:
        axes: the attributes.
    """

    def __init__(self, axes: tuple[int, ...], finer: bool = False) -> None:
        super().__init__(axes, finer)
        self.axes, self.finer = axes, finer

    def message(self) -> str:
        return f"the measurement lacks the table of the attributes {self.axes}"


class TableEstimates(ABC):
    """What is known of tables of whole attributes: numbers of records with their standard errors, which come second."""

    @property
    @abstractmethod
    def total(self) -> tuple[float, float]:
        """The number of all records. Raises: NotMeasured, as the others do."""

    @abstractmethod
    def table(self, axes: tuple[int, ...]) -> tuple[Matrix, Matrix]:
        """The table of some attributes, ascending."""

    @abstractmethod
    def sums(self, axis: int, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """Sums over some values of one attribute, given as vectors of zeros and ones, (sums, values)."""


class MeasuredSpace(ABC):
    """A measurement with its strategy, open to every question that it determines.

    Attributes:
        shape: sizes of the domain's attributes.
        values: the noisy integers, (values,) int64.
    """

    rows_depend_on_noise: ClassVar[bool] = False
    """Whether what was measured was chosen by what had been measured before: what its parts say together is then biased."""
    shape: tuple[int, ...]
    values: Matrix

    @property
    def reason_withheld(self) -> str | None:
        """Why readers can ask no further questions of it; None where they can."""
        return None

    def agreed_tables(self, noise: Noise) -> TableEstimates | None:
        """What models start from, where it is more than what ``read`` gives: it may be biased; None where it is the same."""
        return None

    @abstractmethod
    def estimate(self, functionals: Functionals) -> FunctionalEstimates:
        """Estimates and variances. Raises: NotMeasured."""

    @abstractmethod
    def gram(self, functionals: Functionals) -> Matrix:
        """Covariances of the estimates for noise of deviation 1, (functions, functions). Raises: NotMeasured."""

    def over_values(self, values: Mapping[int, Matrix]) -> MeasuredSpace | None:
        """What says the same of functions of some values of attributes alone; None where estimates of these need the other values.

        Args:
            values: for some attributes the values, ascending.
        """
        return None

    @property
    @abstractmethod
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The largest sets of attributes whose tables were measured, where that is how to put it."""

    @abstractmethod
    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        """What is written down of it: plain facts, and the arrays that they name."""


@dataclass(frozen=True)
class Variation:
    """The part of one product that varies with exactly some attributes.

    Attributes:
        product: its number.
        axes: the attributes, ascending.
        scale: what the vectors are multiplied with.
        vectors: one an attribute.
    """

    product: int
    axes: tuple[int, ...]
    scale: float
    vectors: tuple[Matrix, ...] = field(repr=False)


def components(functionals: Functionals, means: Mapping[int, Matrix], rests: Mapping[int, Matrix]) -> Iterator[Variation]:
    """Every product split into the parts that vary with each subset of its attributes.

    Args:
        means: for every attribute the constant part of each product's vector, (products,).
        rests: the varying part, (products, length); rounding error is exactly zero.
    """
    active = {axis: (rest != 0.0).any(axis=1) for axis, rest in rests.items()}
    for number, coefficient in enumerate(functionals.coefficients):
        varying = tuple(axis for axis in sorted(active) if active[axis][number])
        fixed = float(coefficient) * float(np.prod([means[axis][number] for axis in means if axis not in varying]))
        for size in range(len(varying) + 1):
            for axes in combinations(varying, size):
                scale = fixed * float(np.prod([means[axis][number] for axis in varying if axis not in axes]))
                if scale != 0.0:
                    yield Variation(number, axes, scale, tuple(rests[axis][number] for axis in axes))


def check_cancels(functionals: Functionals, missing: list[Variation]) -> None:
    """Raises: NotMeasured unless the parts that the measurement lacks add up to nothing, function by function."""
    sums: dict[tuple[int, tuple[int, ...]], Matrix] = {}
    largest = float(np.abs(functionals.coefficients).max(initial=0.0))
    for component in missing:
        if np.prod([vector.size for vector in component.vectors], dtype=float) > MISSING_ENTRIES:
            raise NotMeasured(component.axes)
        whole = np.array(component.scale)
        for vector in component.vectors:
            whole = np.multiply.outer(whole, vector)
        key = (int(functionals.function_index[component.product]), component.axes)
        sums[key] = sums[key] + whole if key in sums else whole
    for (_, axes), whole in sorted(sums.items(), key=lambda entry: -len(entry[0][1])):
        if float(np.abs(whole).max()) > TOLERANCE * largest:
            raise NotMeasured(axes)


def without_rounding(rest: Matrix, vectors: Matrix) -> Matrix:
    """The varying parts of vectors, with those that are rounding error set to zero."""
    size = np.abs(vectors).max(axis=1, keepdims=True)
    return np.where(np.abs(rest).max(axis=1, keepdims=True, initial=0.0) > TOLERANCE * size, rest, 0.0)


def largest_sets(sets: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The sets that are not inside another one."""
    frozen_sets = [(axes, frozenset(axes)) for axes in sets]
    return tuple(axes for axes, axes_set in frozen_sets if not any(axes_set < other_set for _, other_set in frozen_sets))
