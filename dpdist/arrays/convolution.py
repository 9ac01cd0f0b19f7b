"""Exact convolutions of whole numbers around a circle.

An integer convolution is a sum of floating-point ones over limbs of both sides, small enough that every result is within 1/8 of a
whole number, so rounding gives it exactly. Limbs and products are computed where they are read, and each result is added to the sum
where it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.fourier import Spectrum, fourier, inverse_fourier, spectral
from dpdist.arrays.lazy_vector import LazyVector, Strided, Vector
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix

ROUNDINGS = 16.0
"""A floating-point convolution of length N = 2^k is off by at most 16 (k + 1) u ||a|| ||b|| in every value, u = 2^-53.

Percival 2003 (Brent & Zimmermann 2010, Theorem 3.6): ||a|| ||b|| ((1 + u)^3k (1 + 5^1/2 u)^(3k+1) (1 + mu)^3k - 1) for twiddles
within mu <= u, which is below (12.8 k + 2.3) u ||a|| ||b||. A butterfly of radix 4 or 8 is two or three levels with fewer products;
the four-step transform has one product with a twiddle more, which the constant has room for. Lengths that are no power of two are
folded out of one that is. Tests find less than 0.3 of the bound.
"""
TRUST = 0.25
"""How far a computed value may be from the whole number it stands for; the bound promises half of that."""
WHOLE = np.dtype(np.int64)


def exact_convolution(work: Workspace, left: Vector, right: Vector, length: int, on_done: OnDone | None = None) -> Vector:
    """The convolution of whole numbers around a circle of ``length`` values, int64, exact; results must fit into 62 bits.

    Args:
        right: several vectors held together are convolved one by one.
    Raises: InvalidInput when even single bits would not be exact (lengths beyond 2^40); FloatingPointError when a value is not as
        close to a whole number as it must be, or a sum check modulo 2^64 fails: the processor's arithmetic is faulty.
    """
    reach = left.size + right.size - 1
    points = length if length & (length - 1) == 0 else 1 << (reach - 1).bit_length()
    facts = [_facts_of(work, each) for each in (left, right)]
    with work.scratch() as inner:
        width, limbs = _limbs(inner, left, right, max(each.bits for each in facts), points)
        tell = Steps(on_done, sum(limbs) + sum(limbs) - 1)
        spectra = [
            _spectra(inner, each, width, count, points, tell) for each, count in zip((left, right), limbs, strict=True)
        ]
        total = _accumulated(inner, spectra[0], spectra[1], width, tell, work if points == length else inner)
        if np.any((_facts_of(inner, total).total - facts[0].total * facts[1].total) % 2**64):
            raise FloatingPointError(
                "an exact convolution failed its sum check: this processor's arithmetic cannot be trusted"
            )
        if points == length:
            return total
        turns = range(0, min(reach, points), length)
        parts = tuple(Strided(total, start, 1, min(length, points - start)) for start in turns)
        return work.write(LazyVector(length, parts, _added, 8 * (len(parts) + 2), f"{length} around", WHOLE))


def _added(start: int, count: int, *parts: Matrix) -> Matrix:
    return np.asarray(sum(parts[1:], parts[0]))


def _limbs(work: Workspace, left: Vector, right: Vector, widest: int, points: int) -> tuple[int, list[int]]:
    """The widest limbs whose convolutions are within 1/8 of a whole number: their width, and how many each side has."""
    squares: dict[int, list[list[Matrix]]] = {}

    def lengths(width: int) -> tuple[float, float]:
        squares[width] = [_limb_squares(work, each, width) for each in (left, right)]
        found = [sum(float(np.sqrt(limb).max()) for limb in each) for each in squares[width]]
        return found[0], found[1]

    width = limb_width(widest, points, lengths)
    return width, [len(each) for each in squares[width]]


def limb_width(widest: int, length: int, lengths: Callable[[int], tuple[float, float]]) -> int:
    """The widest limbs whose convolutions around ``length`` steps are within 1/8 of an integer.

    Args:
        widest: bits of the widest value.
        lengths: sums of the L2 norms of the limbs of both sides, for a width.
    Raises: InvalidInput when even single bits would not be exact (lengths beyond 2^40).
    """
    unit = ROUNDINGS * math.log2(2 * length) * 2.0**-53
    for count in range(1, widest + 1):
        width = -(-widest // count)
        if unit * math.prod(lengths(width)) < 0.125:
            return width
    raise InvalidInput(f"an exact convolution of {length} steps needs limbs below one bit; use fewer steps")


@dataclass(frozen=True)
class _Facts:
    """Bits of the largest value and its sign, and the exact sum of every vector that is held together."""

    bits: int
    total: Matrix


def _facts_of(work: Workspace, source: Vector) -> _Facts:
    parts = work.fold(_facts_in, source)
    return _Facts(max(part.bits for part in parts), np.asarray(sum(part.total for part in parts), dtype=object))


def _facts_in(start: int, values: Matrix) -> _Facts:
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    high, low = values >> np.int64(32), values & np.int64(0xFFFFFFFF)
    total = np.asarray(high.sum(axis=-1)).astype(object) * 2**32 + np.asarray(low.sum(axis=-1)).astype(object)
    return _Facts(largest.bit_length() + 1, total)


def digits(values: Matrix, width: int) -> list[Matrix]:
    """Digits in [-2^(width-1), 2^(width-1)), lowest first: values = sum of digit_i 2^(width i)."""
    out, rest, half = [], values.astype(np.int64), np.int64(2 ** (width - 1))
    while True:
        digit = ((rest + half) & np.int64(2**width - 1)) - half
        out.append(digit)
        rest = (rest - digit) >> np.int64(width)
        if not rest.any():
            return out


def _limb_squares(work: Workspace, source: Vector, width: int) -> list[Matrix]:
    """Squared L2 norm of every limb, of every vector that is held together."""
    parts = work.fold(partial(_limb_squares_in, width), source)
    longest = max(len(part) for part in parts)
    return [np.asarray(sum(part[i] for part in parts if i < len(part))) for i in range(longest)]


def _limb_squares_in(width: int, start: int, values: Matrix) -> list[Matrix]:
    return [np.square(limb, dtype=np.float64).sum(axis=-1) for limb in digits(values, width)]


def _spectra(work: Workspace, source: Vector, width: int, limbs: int, points: int, on_done: OnDone) -> list[Spectrum]:
    """The transform of every limb of a vector, laid around a circle."""
    bytes_each = 8 * (limbs + 6)
    made = [
        LazyVector(points, (source,), partial(_limb, width, i), bytes_each, f"limb {i} of {width} bits")
        for i in range(limbs)
    ]
    return [fourier(work, each, on_done) for each in made]


def _limb(width: int, number: int, start: int, count: int, values: Matrix) -> Matrix:
    """One digit, by itself: what the lower ones borrow is added before they are shifted away."""
    half = 2 ** (width - 1)
    borrowed = sum(half << (width * i) for i in range(number))
    rest = (values.astype(np.int64) + np.int64(borrowed)) >> np.int64(width * number)
    return np.asarray(((rest + np.int64(half)) & np.int64(2**width - 1)) - np.int64(half), dtype=np.float64)


def _accumulated(
    inner: Workspace, left: list[Spectrum], right: list[Spectrum], width: int, on_done: OnDone, work: Workspace
) -> Vector:
    """The sum over all pairs of limbs, shifted to their places; the last one is written in ``work``."""
    total: Vector | None = None
    last = len(left) + len(right) - 2
    for shift in range(last + 1):
        pairs = [(left[i], right[shift - i]) for i in range(len(left)) if 0 <= shift - i < len(right)]
        product = spectral(tuple(part for pair in pairs for part in pair), products, f"products of limbs {shift}")
        turn = partial(_added_to, total, width * shift)
        before, place = total, work if shift == last else inner
        total = inverse_fourier(place, product, turn=turn, dtype=WHOLE, on_done=on_done)
        if before is not None:
            inner.delete(before)
    assert total is not None
    return total


def products(start: int, count: int, *spectra: Matrix) -> Matrix:
    """Sum of products of pairs of spectra."""
    out = spectra[0] * spectra[1]
    for i in range(2, len(spectra), 2):
        out += spectra[i] * spectra[i + 1]
    return np.asarray(out)


def _added_to(before: Vector | None, shift: int, start: int, values: Matrix) -> Matrix:
    """Whole numbers times 2^shift, added to what there is; wrapping on the way cancels, the result fits."""
    whole = np.rint(values)
    values -= whole
    if max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))) > TRUST:
        raise FloatingPointError("an exact convolution was not exact: this processor's arithmetic cannot be trusted")
    made = whole.astype(np.int64)
    made <<= np.int64(shift)
    if before is not None:
        made += before.read(start, start + values.shape[-1])
    return made


@dataclass
class Steps:
    """Tells how far several transforms are, one after another."""

    on_done: OnDone | None
    transforms: int
    finished: int = 0

    def __call__(self, done: int, of: int) -> None:
        if self.on_done is not None:
            self.on_done(100 * self.finished + 100 * done // of, 100 * self.transforms)
        if done == of:
            self.finished += 1


def square_of(values: Matrix) -> int:
    """Sum of squares of whole numbers, exact: 16-bit halves whose sums stay below 2^63."""
    high, low = values >> 16, values & 0xFFFF
    return int(high @ high) * 2**32 + int(high @ low) * 2**17 + int(low @ low)
