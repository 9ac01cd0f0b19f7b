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

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.fourier import Spectrum, fourier, inverse_fourier, spectral
from dpdist.arrays.lazy_vector import LazyVector, Vector, slice_vector
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


def exact_convolution(
    work: Workspace, left_factor: Vector, right_factor: Vector, length: int, report_progress: ProgressCallback | None = None
) -> Vector:
    """The convolution of whole numbers around a circle of ``length`` values, int64, exact; results must fit into 62 bits.

    Args:
        right_factor: several vectors held together are convolved one by one.
    Raises: InvalidInput when even single bits would not be exact (lengths beyond 2^40); FloatingPointError when a value is not as
        close to a whole number as it must be, or a sum check modulo 2^64 fails: the processor's arithmetic is faulty.
    """
    reach = left_factor.size + right_factor.size - 1
    points = length if length & (length - 1) == 0 else 1 << (reach - 1).bit_length()
    facts = [_facts_of(work, entry) for entry in (left_factor, right_factor)]
    with work.scratch() as inner:
        width, limbs = _limbs(inner, left_factor, right_factor, max(entry.bits for entry in facts), points)
        report_step = Steps(report_progress, sum(limbs) + sum(limbs) - 1)
        spectra = [
            _spectra(inner, entry, width, count, points, report_step)
            for entry, count in zip((left_factor, right_factor), limbs, strict=True)
        ]
        total = _sum_limb_products(inner, spectra[0], spectra[1], width, report_step, work if points == length else inner)
        if np.any((_facts_of(inner, total).total - facts[0].total * facts[1].total) % 2**64):
            raise FloatingPointError(
                "an exact convolution failed its sum check: this processor's arithmetic cannot be trusted"
            )
        if points == length:
            return total
        turns = range(0, min(reach, points), length)
        segments = tuple(slice_vector(total, start, 1, min(length, points - start)) for start in turns)
        return work.write(LazyVector(length, segments, _sum_segments, 8 * (len(segments) + 2), f"{length} around", WHOLE))


def _sum_segments(start: int, count: int, *segments: Matrix) -> Matrix:
    return np.asarray(sum(segments[1:], segments[0]))


def _limbs(work: Workspace, left_factor: Vector, right_factor: Vector, widest: int, points: int) -> tuple[int, list[int]]:
    """The widest limbs whose convolutions are within 1/8 of a whole number: their width, and how many each side has."""
    squares: dict[int, list[list[Matrix]]] = {}

    def lengths(width: int) -> tuple[float, float]:
        squares[width] = [_limb_squares(work, entry, width) for entry in (left_factor, right_factor)]
        norms = [sum(float(np.sqrt(limb).max()) for limb in entry) for entry in squares[width]]
        return norms[0], norms[1]

    width = limb_width(widest, points, lengths)
    return width, [len(limb_norms) for limb_norms in squares[width]]


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
    all_facts = work.fold(_facts_in, source)
    return _Facts(max(facts.bits for facts in all_facts), np.asarray(sum(facts.total for facts in all_facts), dtype=object))


def _facts_in(start: int, values: Matrix) -> _Facts:
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    high, low = values >> np.int64(32), values & np.int64(0xFFFFFFFF)
    total = np.asarray(high.sum(axis=-1)).astype(object) * 2**32 + np.asarray(low.sum(axis=-1)).astype(object)
    return _Facts(largest.bit_length() + 1, total)


def digits(values: Matrix, width: int) -> list[Matrix]:
    """Digits in [-2^(width-1), 2^(width-1)), lowest first: values = sum of digit_i 2^(width i)."""
    digit_list, rest, half = [], values.astype(np.int64), np.int64(2 ** (width - 1))
    while True:
        digit = ((rest + half) & np.int64(2**width - 1)) - half
        digit_list.append(digit)
        rest = (rest - digit) >> np.int64(width)
        if not rest.any():
            return digit_list


def _limb_squares(work: Workspace, source: Vector, width: int) -> list[Matrix]:
    """Squared L2 norm of every limb, of every vector that is held together."""
    range_squares = work.fold(partial(_limb_squares_in, width), source)
    longest = max(len(squares) for squares in range_squares)
    return [np.asarray(sum(squares[i] for squares in range_squares if i < len(squares))) for i in range(longest)]


def _limb_squares_in(width: int, start: int, values: Matrix) -> list[Matrix]:
    return [np.square(limb, dtype=np.float64).sum(axis=-1) for limb in digits(values, width)]


def _spectra(
    work: Workspace, source: Vector, width: int, limbs: int, points: int, report_progress: ProgressCallback
) -> list[Spectrum]:
    """The transform of every limb of a vector, laid around a circle."""
    bytes_each = 8 * (limbs + 6)
    limb_vectors = [
        LazyVector(points, (source,), partial(_limb, width, i), bytes_each, f"limb {i} of {width} bits")
        for i in range(limbs)
    ]
    return [fourier(work, limb, report_progress) for limb in limb_vectors]


def _limb(width: int, number: int, start: int, count: int, values: Matrix) -> Matrix:
    """One digit, by itself: what the lower ones borrow is added before they are shifted away."""
    half = 2 ** (width - 1)
    borrowed = sum(half << (width * i) for i in range(number))
    rest = (values.astype(np.int64) + np.int64(borrowed)) >> np.int64(width * number)
    return np.asarray(((rest + np.int64(half)) & np.int64(2**width - 1)) - np.int64(half), dtype=np.float64)


def _sum_limb_products(
    inner: Workspace,
    left_spectra: list[Spectrum],
    right_spectra: list[Spectrum],
    width: int,
    report_progress: ProgressCallback,
    work: Workspace,
) -> Vector:
    """The sum over all pairs of limbs, shifted to their places; the last one is written in ``work``."""
    total: Vector | None = None
    last_shift = len(left_spectra) + len(right_spectra) - 2
    for shift in range(last_shift + 1):
        pairs = [
            (left_spectra[i], right_spectra[shift - i])
            for i in range(len(left_spectra))
            if 0 <= shift - i < len(right_spectra)
        ]
        product = spectral(tuple(spectrum for pair in pairs for spectrum in pair), products, f"products of limbs {shift}")
        turn = partial(_add_shifted, total, width * shift)
        before, workspace = total, work if shift == last_shift else inner
        total = inverse_fourier(workspace, product, turn=turn, dtype=WHOLE, report_progress=report_progress)
        if before is not None:
            inner.delete(before)
    assert total is not None
    return total


def products(start: int, count: int, *spectra: Matrix) -> Matrix:
    """Sum of products of pairs of spectra."""
    total = spectra[0] * spectra[1]
    for i in range(2, len(spectra), 2):
        total += spectra[i] * spectra[i + 1]
    return np.asarray(total)


def _add_shifted(before: Vector | None, shift: int, start: int, values: Matrix) -> Matrix:
    """Whole numbers times 2^shift, added to what there is; wrapping on the way cancels, the result fits."""
    whole = np.rint(values)
    values -= whole
    if max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))) > TRUST:
        raise FloatingPointError("an exact convolution was not exact: this processor's arithmetic cannot be trusted")
    integers = whole.astype(np.int64)
    integers <<= np.int64(shift)
    if before is not None:
        integers += before.read(start, start + values.shape[-1])
    return integers


@dataclass
class Steps:
    """Tells how far several transforms are, one after another."""

    report_progress: ProgressCallback | None
    transforms: int
    finished: int = 0

    def __call__(self, completed: int, total: int) -> None:
        if self.report_progress is not None:
            self.report_progress(100 * self.finished + 100 * completed // total, 100 * self.transforms)
        if completed == total:
            self.finished += 1


def square_of(values: Matrix) -> int:
    """Sum of squares of whole numbers, exact: 16-bit halves whose sums stay below 2^63."""
    high, low = values >> 16, values & 0xFFFF
    return int(high @ high) * 2**32 + int(high @ low) * 2**17 + int(low @ low)
