"""Linear functions of the cells as sums of products over attributes; the conditions of a question become such functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpdist.operators import Matrix
from dpdist.reconstruction.measured_space import Functionals

MOST_COMBINATIONS = 2**20
"""A sum of products is written down over its attributes, and simplified, up to so many combinations of their values."""
Product = tuple[float, dict[int, Matrix]]
"""A coefficient, and a vector for each attribute that the product varies with."""


@dataclass(frozen=True)
class LinearFunction:
    """A linear function of the cells.

    Attributes:
        products: the products whose sum the function is.
    """

    products: tuple[Product, ...]

    def __add__(self, addend: LinearFunction) -> LinearFunction:
        return LinearFunction(self.products + addend.products)

    def __mul__(self, factor: float) -> LinearFunction:
        return LinearFunction(tuple((factor * coefficient, vectors) for coefficient, vectors in self.products))

    @property
    def entry_range(self) -> tuple[float, float]:
        """Ends between which all its entries lie."""
        lowest = largest = 0.0
        for coefficient, vectors in self.products:
            term_range = coefficient, coefficient
            for vector in vectors.values():
                products = [bound * float(end) for bound in term_range for end in (vector.min(), vector.max())]
                term_range = min(products), max(products)
            lowest, largest = lowest + term_range[0], largest + term_range[1]
        return lowest, largest

    def value_on_product(self, distributions: Sequence[Matrix]) -> float:
        """Its value of cells that are a product over the attributes, of one vector each that adds up to one."""
        return sum(
            coefficient * math.prod(float(vector @ distributions[axis]) for axis, vector in vectors.items())
            for coefficient, vectors in self.products
        )

    def times_vectors(self, vectors: Mapping[int, Matrix]) -> LinearFunction:
        """The same, each product times one vector an attribute."""
        return LinearFunction(
            tuple((coefficient, _multiply_vectors(own_vectors, vectors)) for coefficient, own_vectors in self.products)
        )

    def simplified(self, shape: Sequence[int]) -> LinearFunction:
        """The same function without attributes that it does not vary with, and without products that cancel."""
        if len(self.products) == 1:
            return self._single_product_simplified
        axes = sorted({axis for _, vectors in self.products for axis in vectors})
        if math.prod(shape[axis] for axis in axes) > MOST_COMBINATIONS:
            return self
        whole = np.zeros([shape[axis] for axis in axes])
        for coefficient, vectors in self.products:
            term = np.array(coefficient)
            for axis in axes:
                term = np.multiply.outer(term, vectors.get(axis, np.ones(shape[axis])))
            whole += term
        return decompose_function(tuple(axes), whole)

    @property
    def _single_product_simplified(self) -> LinearFunction:
        """The same of one product."""
        ((coefficient, vectors),) = self.products
        varying: dict[int, Matrix] = {}
        for axis, vector in vectors.items():
            if (vector == vector[0]).all():
                coefficient *= float(vector[0])
            else:
                varying[axis] = vector.astype(np.float64)
        return LinearFunction(((coefficient, varying),) if coefficient else ())


ALL_RECORDS = LinearFunction(((1.0, {}),))
"""The number of records."""


@dataclass(frozen=True)
class FunctionBatch:
    """Linear functions of the cells of some values of attributes, all others of which they leave out.

    Attributes:
        functions: their vectors over an attribute of ``values`` have an entry for each of these values alone.
        values: for some attributes the values, ascending; no function depends on others.
    """

    functions: Sequence[LinearFunction]
    values: Mapping[int, Matrix] = field(default_factory=dict)

    def over_all_values(self, shape: Sequence[int]) -> FunctionBatch:
        """The same functions over all values."""

        def widen(axis: int, vector: Matrix) -> Matrix:
            if axis not in self.values:
                return vector
            whole = np.zeros(shape[axis])
            whole[self.values[axis]] = vector
            return whole

        return FunctionBatch(
            [
                LinearFunction(
                    tuple(
                        (coefficient, {axis: widen(axis, vector) for axis, vector in vectors.items()})
                        for coefficient, vectors in function.products
                    )
                )
                for function in self.functions
            ]
        )


def decompose_function(axes: tuple[int, ...], whole: Matrix) -> LinearFunction:
    """The sum of few products that equals a function, which is given by its values over some attributes."""
    for position in range(len(axes)):
        slice_values = np.take(whole, [0], axis=position)
        if (whole == slice_values).all():
            return decompose_function(axes[:position] + axes[position + 1 :], np.squeeze(slice_values, axis=position))
    if not whole.any():
        return LinearFunction(())
    if not axes:
        return LinearFunction(((float(whole), {}),))
    if len(axes) == 1:
        return LinearFunction(((1.0, {axes[0]: whole.astype(np.float64)}),))
    return _single_product(axes, whole) or _sum_of_slices(axes, whole)


def _single_product(axes: tuple[int, ...], whole: Matrix) -> LinearFunction | None:
    """A function that is one product of its first attribute and the rest; None if it is not."""
    flat = whole.reshape(whole.shape[0], -1)
    row, column_index = divmod(int(np.abs(flat).argmax()), flat.shape[1])
    column, rest = flat[:, column_index] / flat[row, column_index], whole[row]
    if not np.array_equal(np.multiply.outer(column, rest), whole):
        return None
    return decompose_function(axes[1:], rest).times_vectors({axes[0]: column.astype(np.float64)})


def _sum_of_slices(axes: tuple[int, ...], whole: Matrix) -> LinearFunction:
    """The values of the smallest attribute, those that are treated alike together."""
    position = int(np.argmin(whole.shape))
    front = np.moveaxis(whole, position, 0)
    distinct, group_index = np.unique(front.reshape(front.shape[0], -1), axis=0, return_inverse=True)
    other_axes = axes[:position] + axes[position + 1 :]
    total = LinearFunction(())
    for number, values in enumerate(distinct):
        slice_function = decompose_function(other_axes, values.reshape(front.shape[1:]))
        total += slice_function.times_vectors({axes[position]: (group_index.ravel() == number).astype(np.float64)})
    return total


def _multiply_vectors(own_vectors: Mapping[int, Matrix], more_vectors: Mapping[int, Matrix]) -> dict[int, Matrix]:
    return {
        **own_vectors,
        **{axis: vector * own_vectors[axis] if axis in own_vectors else vector for axis, vector in more_vectors.items()},
    }


def functionals(functions: Sequence[LinearFunction], shape: Sequence[int]) -> Functionals:
    """Several linear functions as one object."""
    products = [
        (index, *product) for index, function in enumerate(functions) for product in function.simplified(shape).products
    ]
    products = products or [(0, 0.0, {})]
    axes = sorted({axis for *_, vectors in products for axis in vectors})
    vectors = {
        axis: np.array([own_vectors.get(axis, np.ones(shape[axis])) for *_, own_vectors in products]) for axis in axes
    }
    coefficients = np.array([coefficient for _, coefficient, _ in products], dtype=np.float64)
    return Functionals(coefficients, np.array([index for index, *_ in products]), vectors, len(functions))
