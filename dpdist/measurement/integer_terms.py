"""Terms as whole numbers, measured exactly: their products may need 100 bits, what is kept fits into 64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import GRID_BITS
from dpdist.operators import Matrix, identity_rows
from dpdist.reconstruction.kronecker_terms import NO_DIRECTIONS, Directions, Term, is_identity

LEAST_LIMB = 8
"""Bits of a limb below which integers are multiplied directly."""
SMALL_PRODUCT = 2**12
"""Values below which integers are multiplied directly."""
CONVERTED_BYTES = 2**20
"""Rows of whole numbers that are converted to floating point at once."""
PRODUCT_BITS = 66
"""Bits that the integer factors of a term have together: their products with up to 2^32 records stay below 2^100."""


@dataclass(frozen=True)
class IntegerTerm:
    """Integer rows over one marginal table: z = round(multiplier (M_1 kron M_2 ...) t / 2^shift), rounded half up.

    The product is exact before the shift: modulo 2^64 in wrapping integers, its upper part from floating point.
    """

    axes: tuple[int, ...]
    factors: tuple[Matrix, ...] = field(repr=False)
    multiplier: int
    shift: int

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return math.prod(f.shape[0] for f in self.factors)

    @property
    def unit(self) -> float:
        """What one measured integer stands for."""
        return float(2.0**self.shift / self.multiplier)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        return tuple(f.shape[1] for f in self.factors)

    @property
    def square(self) -> int:
        """Largest squared column norm before the shift, exact."""
        return self.multiplier**2 * math.prod(_largest_square(factor) for factor in self.factors)

    @property
    def least_product(self) -> int:
        """A lower bound of the columns' inner products: the least product of one value from each factor's range."""
        ranges = map(inner_product_range, self.factors)
        return self.multiplier**2 * min(math.prod(values) for values in product(*ranges))

    def measure(self, table: Matrix) -> Matrix:
        """z for an integer table, (rows,) int64, exact."""
        wrapped, real = self.products(table, table.astype(np.float64), tuple(range(len(self.factors))))
        return self.round_products(wrapped.ravel(), real.ravel())

    def products(self, wrapped: Matrix, real: Matrix, positions: tuple[int, ...]) -> tuple[Matrix, Matrix]:
        """Some of the factors applied along the axes of a tensor: exact modulo 2^64, and in floating point."""
        for position in positions:
            wrapped = apply_along(self.factors[position], wrapped, position)
            if self.shift:
                real = apply_along(self.factors[position], real, position)
        return wrapped, real

    def round_products(self, low: Matrix, near: Matrix) -> Matrix:
        """z from the products modulo 2^64 and their floating-point values."""
        if self.shift == 0:
            return np.ascontiguousarray(low * np.int64(self.multiplier))
        assert self.multiplier == 1
        # the exact value is high 2^64 + low with low taken as unsigned; floating point is off by far less than 2^63
        unsigned = low.view(np.uint64)
        high = np.rint((near - unsigned.astype(np.float64)) / 2.0**64).astype(np.int64)
        shift = np.uint64(self.shift)
        rounded = (unsigned >> shift) + ((unsigned >> (shift - np.uint64(1))) & np.uint64(1))
        return np.asarray((high << np.int64(64 - self.shift)) + rounded.astype(np.int64))


def inner_product_range(factor: Matrix) -> tuple[int, int]:
    """The least and the largest inner product of two columns, which may be one column twice, exact."""
    if is_identity(factor):
        return int(factor.shape[0] == 1), 1
    columns = distinct_columns(factor).astype(object)
    gram = columns @ columns.T
    return int(gram.min()), int(gram.max())


def _largest_square(factor: Matrix) -> int:
    """The largest squared length of a column, exact: of those that floating point, off by less than n / 2^52, takes for the longest."""
    if is_identity(factor):
        return 1
    columns = distinct_columns(factor)
    lengths = np.einsum("ij,ij->i", columns, columns, dtype=np.float64)
    longest = columns[lengths >= lengths.max() * (1.0 - (columns.shape[1] + 4) * 2.0**-50)]
    return max(sum(int(value) ** 2 for value in column) for column in longest)


def split_by_term(terms: Sequence[IntegerTerm], measured: Matrix) -> Iterator[tuple[IntegerTerm, Matrix]]:
    """Each term with its part of the measured vector."""
    start = 0
    for term in terms:
        yield term, measured[start : start + term.rows]
        start += term.rows


def round_term(term: Term, spacing: float, directions: Directions = NO_DIRECTIONS) -> IntegerTerm:
    """Integer factors whose product is the term in units of spacing / 2^shift."""
    real = [i for i, f in enumerate(term.factors) if not is_identity(f) and ((f != np.rint(f)).any() or np.abs(f).max() > 1)]
    scale = term.scale / spacing
    if not real:
        factors = tuple(map(_whole_rows, term.factors))
        return IntegerTerm(term.axes, factors, max(1, round(scale)), 0)
    # a term of small weight needs fewer bits: its shift stays below 64
    weight_bits = math.frexp(scale * math.sqrt(term.square) / term.scale)[1]
    bits = min(GRID_BITS, PRODUCT_BITS // len(real), (60 + weight_bits) // len(real))
    if bits < 12:
        raise InvalidInput(f"a product of {len(real)} real factors leaves {bits} bits for each; combine fewer attributes")
    scaled_factors: list[Matrix] = []
    shift = 0
    for i, factor in enumerate(term.factors):
        if i not in real:
            scaled_factors.append(_whole_rows(factor))
            continue
        length = math.sqrt(float(np.einsum("ij,ij->j", factor, factor).max()))
        steps = bits - math.frexp(length)[1]
        shift += steps
        scaled_factors.append(factor * 2.0**steps)
    # what is left of the scale goes into one factor, and whole powers of two into the shift
    mantissa, exponent = math.frexp(scale)
    shift -= exponent
    if shift < 0:
        mantissa, shift = math.ldexp(mantissa, -shift), 0
    scaled_factors[real[0]] = scaled_factors[real[0]] * mantissa
    whole: list[Matrix] = []
    for axis, scaled, factor in zip(term.axes, scaled_factors, term.factors, strict=True):
        direction = directions.get(axis)
        if is_identity(factor) and direction is None:
            whole.append(scaled)
            continue
        whole.append(_round_zero_sums(scaled, factor) if direction is None else orthogonal_to(direction, scaled))
    if not all(factor.any(axis=1).all() for factor in whole):
        raise InvalidInput(
            f"{bits} bits for each of {len(real)} real factors are too few for what is asked; combine fewer attributes"
        )
    return IntegerTerm(term.axes, tuple(whole), 1, shift)


def _whole_rows(factor: Matrix) -> Matrix:
    """Rows of whole numbers as int64."""
    return identity_rows(len(factor), np.int64) if is_identity(factor) else np.rint(factor).astype(np.int64)


def _round_zero_sums(scaled: Matrix, factor: Matrix) -> Matrix:
    """A scaled factor rounded to integers; rows that sum to zero keep doing so, exactly."""
    rounded = np.rint(scaled).astype(np.int64)
    sums = factor.sum(axis=1)
    zero = np.abs(sums) <= 1e-9 * np.abs(factor).sum(axis=1)
    largest_columns = np.argmax(np.abs(factor), axis=1)
    rounded[np.flatnonzero(zero), largest_columns[zero]] -= rounded[zero].sum(axis=1)
    return rounded


def orthogonal_to(direction: Matrix, scaled: Matrix) -> Matrix:
    """Rows rounded to integers that are orthogonal to whole numbers, exactly.

    What rounding leaves of the inner product is taken out by multiples of the numbers in falling order, and the rest by two entries
    whose numbers differ by one, or else have no common divisor.
    """
    rounded = np.rint(scaled).astype(np.int64)
    remainder = rounded @ direction
    order = np.argsort(-np.abs(direction), kind="stable")
    for column in order[direction[order] != 0]:
        number = int(direction[column])
        steps = np.rint(remainder / number).astype(np.int64)
        rounded[:, column] -= steps
        remainder = remainder - steps * number
    if remainder.any():
        pair = coprime_pair(direction)
        if pair is None:
            raise InvalidInput(
                "a direction needs two numbers without a common divisor, or a one, so that rows can be made orthogonal"
            )
        low, high = pair
        low_number, high_number = int(direction[low]), int(direction[high])
        if high_number == low_number + 1:
            steps = -remainder
        else:  # first * steps = left modulo second, with steps of at most half of it
            steps = remainder * pow(low_number, -1, abs(high_number)) % abs(high_number)
            steps -= abs(high_number) * (2 * steps > abs(high_number))
        rounded[:, low] -= steps
        rounded[:, high] -= (remainder - low_number * steps) // high_number
    return rounded


def coprime_pair(direction: Matrix) -> tuple[int, int] | None:
    """Places of two whole numbers that differ by one, else of the least two without a common divisor; None if there are none."""
    ascending = np.argsort(direction, kind="stable")
    consecutive = np.flatnonzero(np.diff(direction[ascending]) == 1)
    if consecutive.size:
        return int(ascending[consecutive[0]]), int(ascending[consecutive[0] + 1])
    small = [int(index) for index in np.argsort(np.abs(direction), kind="stable") if abs(direction[index]) > 1]
    pairs = ((i, j) for k, j in enumerate(small) for i in small[:k])
    return next(((i, j) for i, j in pairs if math.gcd(int(direction[i]), int(direction[j])) == 1), None)


def apply_along(matrix: Matrix, tensor: Matrix, position: int) -> Matrix:
    """A matrix applied along one axis of a tensor; integers wrap modulo 2^64."""
    if is_identity(matrix):
        return tensor
    front = np.moveaxis(tensor, position, 0)
    columns = np.ascontiguousarray(front).reshape(front.shape[0], -1)
    flat = wrapped_product(matrix, columns) if matrix.dtype == tensor.dtype == np.int64 else _real_product(matrix, columns)
    return np.moveaxis(flat.reshape(matrix.shape[0], *front.shape[1:]), 0, position)


def _real_product(matrix: Matrix, values: Matrix) -> Matrix:
    """matrix @ values in floating point; whole numbers are converted some rows at a time, so that no second matrix is held."""
    if matrix.dtype == np.float64:
        return np.asarray(matrix @ values)
    step = max(1, CONVERTED_BYTES // (8 * max(1, matrix.shape[1])))
    rows = (matrix[start : start + step] for start in range(0, max(1, matrix.shape[0]), step))
    return np.concatenate([block.astype(np.float64) @ values for block in rows])


def wrapped_product(matrix: Matrix, values: Matrix) -> Matrix:
    """matrix @ values modulo 2^64, int64: exact floating-point products of the values' limbs, which are far faster.

    A limb of b bits times entries below 2^t, summed over n columns, stays below 2^53 when b + t + bits(n) <= 53.
    """
    entry_bits = max(int(matrix.max(initial=0)), -int(matrix.min(initial=0))).bit_length()
    limb = 53 - entry_bits - matrix.shape[1].bit_length()
    if limb < LEAST_LIMB or values.size < SMALL_PRODUCT:
        return np.asarray(matrix @ values)
    value_bits = max(int(values.max(initial=0)), -int(values.min(initial=0)) - 1).bit_length() + 1
    sums = np.zeros((matrix.shape[0], values.shape[1]), dtype=np.int64)
    for start in range(0, value_bits, limb):
        limb_values = values >> np.int64(start)
        if start + limb < value_bits:
            limb_values &= np.int64(2**limb - 1)
        sums += _real_product(matrix, limb_values.astype(np.float64)).astype(np.int64) << np.int64(start)
    return sums


def distinct_columns(factor: Matrix) -> Matrix:
    """The different columns of a factor, a row each."""
    # without counts NumPy imports its masked arrays
    columns, _ = np.unique(factor.T, axis=0, return_counts=True)
    return columns
