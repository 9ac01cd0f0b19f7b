"""Linear functions of the cells as sums of products over attributes; the conditions of a question become such functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpdist.operators import Matrix
from dpdist.reconstruction.measured_space import Functionals

WRITTEN = 2**20
"""A sum of products is written down over its attributes, and simplified, up to so many combinations of their values."""
Product = tuple[float, dict[int, Matrix]]
"""A coefficient, and a vector for each attribute that the product varies with."""


@dataclass(frozen=True)
class Linear:
    """A linear function of the cells.

    Attributes:
        products: the products whose sum the function is.
    """

    products: tuple[Product, ...]

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.products + other.products)

    def __mul__(self, factor: float) -> Linear:
        return Linear(tuple((factor * coefficient, vectors) for coefficient, vectors in self.products))

    @property
    def entry_range(self) -> tuple[float, float]:
        """Ends between which all its entries lie."""
        least = largest = 0.0
        for coefficient, vectors in self.products:
            both = coefficient, coefficient
            for vector in vectors.values():
                products = [one * float(end) for one in both for end in (vector.min(), vector.max())]
                both = min(products), max(products)
            least, largest = least + both[0], largest + both[1]
        return least, largest

    def of_product(self, spread: Sequence[Matrix]) -> float:
        """Its value of cells that are a product over the attributes, of one vector each that adds up to one."""
        return sum(
            coefficient * math.prod(float(vector @ spread[axis]) for axis, vector in vectors.items())
            for coefficient, vectors in self.products
        )

    def within(self, vectors: Mapping[int, Matrix]) -> Linear:
        """The same, each product times one vector an attribute."""
        return Linear(tuple((coefficient, _both(given, vectors)) for coefficient, given in self.products))

    def simplified(self, shape: Sequence[int]) -> Linear:
        """The same function without attributes that it does not vary with, and without products that cancel."""
        axes = sorted({axis for _, vectors in self.products for axis in vectors})
        if math.prod(shape[axis] for axis in axes) > WRITTEN:
            return self
        whole = np.zeros([shape[axis] for axis in axes])
        for coefficient, vectors in self.products:
            part = np.array(coefficient)
            for axis in axes:
                part = np.multiply.outer(part, vectors.get(axis, np.ones(shape[axis])))
            whole += part
        return products_of(tuple(axes), whole)


EVERYTHING = Linear(((1.0, {}),))
"""The number of records."""


def products_of(axes: tuple[int, ...], whole: Matrix) -> Linear:
    """The sum of few products that equals a function, which is given by its values over some attributes."""
    for place in range(len(axes)):
        first = np.take(whole, [0], axis=place)
        if (whole == first).all():
            return products_of(axes[:place] + axes[place + 1 :], np.squeeze(first, axis=place))
    if not whole.any():
        return Linear(())
    if not axes:
        return Linear(((float(whole), {}),))
    if len(axes) == 1:
        return Linear(((1.0, {axes[0]: whole.astype(np.float64)}),))
    return _product(axes, whole) or _slices(axes, whole)


def _product(axes: tuple[int, ...], whole: Matrix) -> Linear | None:
    """A function that is one product of its first attribute and the rest; None if it is not."""
    flat = whole.reshape(whole.shape[0], -1)
    row, place = divmod(int(np.abs(flat).argmax()), flat.shape[1])
    column, rest = flat[:, place] / flat[row, place], whole[row]
    if not np.array_equal(np.multiply.outer(column, rest), whole):
        return None
    return products_of(axes[1:], rest).within({axes[0]: column.astype(np.float64)})


def _slices(axes: tuple[int, ...], whole: Matrix) -> Linear:
    """The values of the smallest attribute, those that are treated alike together."""
    place = int(np.argmin(whole.shape))
    front = np.moveaxis(whole, place, 0)
    distinct, which = np.unique(front.reshape(front.shape[0], -1), axis=0, return_inverse=True)
    others = axes[:place] + axes[place + 1 :]
    out = Linear(())
    for number, values in enumerate(distinct):
        part = products_of(others, values.reshape(front.shape[1:]))
        out += part.within({axes[place]: (which.ravel() == number).astype(np.float64)})
    return out


def _both(first: Mapping[int, Matrix], second: Mapping[int, Matrix]) -> dict[int, Matrix]:
    return {**first, **{axis: vector * first[axis] if axis in first else vector for axis, vector in second.items()}}


def functionals(asked: Sequence[Linear], shape: Sequence[int]) -> Functionals:
    """Several linear functions as one object."""
    products = [(place, *product) for place, each in enumerate(asked) for product in each.simplified(shape).products]
    products = products or [(0, 0.0, {})]
    axes = sorted({axis for *_, vectors in products for axis in vectors})
    vectors = {axis: np.array([given.get(axis, np.ones(shape[axis])) for *_, given in products]) for axis in axes}
    coefficients = np.array([coefficient for _, coefficient, _ in products], dtype=np.float64)
    return Functionals(coefficients, np.array([place for place, *_ in products]), vectors, len(asked))
