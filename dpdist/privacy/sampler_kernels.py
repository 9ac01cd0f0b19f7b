"""Compiled kernels of ``sampler``: floating point decides a batch of attempts, or says which ones it cannot decide.

Imported by the first large draw: Numba and its compiler take longer than a small release.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpdist.privacy.kernel_files import keep_kernel
from dpdist.privacy.noise_distributions import BATCH, FAST, FAST_TABLE, GAUSSIAN, Kind

_GROUP = 6
"""Thresholds a loop: LLVM unrolls and vectorises six, not eighteen (benchmarks/noise_samplers.py: 5 x on Laplace)."""
_BLOCK_SIZE = 512
"""Attempts that are decided before the accepted ones are kept: they stay in the first cache, and a tile that is full ends there."""


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    """The float64 with the given bit pattern."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@numba.njit(inline="always")
def exp_negative(e: Any) -> Any:
    """exp(-e) for 0 <= e <= 200, relative error below 2^-48: argument reduction by ln 2, Taylor to degree 13."""
    x = -e
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 1.984126984126984e-04
    p = p * r + 1.388888888888889e-03
    p = p * r + 8.333333333333333e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _as_float((np.int64(n) + np.int64(1023)) << np.int64(52))  # type: ignore[call-arg]


@numba.njit(inline="always")
def _multiply_wide(x: Any, y: Any) -> Any:
    """Upper and lower 64 bits of the 128-bit product, from products of 32-bit halves, which vector units have."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> shift, y & low, y >> shift
    p00, p01, p10 = x0 * y0, x0 * y1, x1 * y0
    middle = (p00 >> shift) + (p01 & low) + (p10 & low)
    return x1 * y1 + (p01 >> shift) + (p10 >> shift) + (middle >> shift), (middle << shift) | (p00 & low)


@numba.njit(inline="always")
def _compare(v: Any, thresholds: Any, widths: Any) -> Any:
    """How many thresholds a number reaches, the sum of their widths, and whether it equals one."""
    k, start, tie = np.int64(0), np.int64(0), False
    for t in range(_GROUP):
        passed = v >= thresholds[t]
        k += np.int64(passed)
        start += widths[t] if passed else np.int64(0)
        tie |= v == thresholds[t]
    return k, start, tie


@numba.njit(nogil=True)
def _append_accepted(decided: Any, doubtful: bool, first_attempt: int, into: Any, filled: int) -> tuple[int, int]:
    """Append the accepted samples of a piece, from one on; returns how many ``into`` holds, and the undecided one, or _PIECE."""
    if not doubtful and first_attempt == 0 and into.size - filled > _BLOCK_SIZE:
        for j in range(_BLOCK_SIZE):
            into[filled] = decided[j]
            filled += decided[_BLOCK_SIZE + j]
        return filled, _BLOCK_SIZE
    for j in range(first_attempt, _BLOCK_SIZE):
        if filled >= into.size:
            return filled, _BLOCK_SIZE
        if decided[_BLOCK_SIZE + j] & 2:
            return filled, j
        into[filled] = decided[j]
        filled += decided[_BLOCK_SIZE + j] & 1
    return filled, _BLOCK_SIZE


def _kernel(kind: Kind, *, whole: bool) -> Callable[..., tuple[int, int]]:
    """Decide the attempts of a batch from ``first`` on, and append the accepted ones to ``into``, a piece at a time.

    It returns how many samples ``into`` holds then, and the attempt at which it stopped: one that it cannot decide, or BATCH when all are
    done or ``into`` is full. A piece is decided branch-free: y stands in decided[:_PIECE], and in decided[_PIECE:] a code, bit 0 accepted,
    bit 1 undecided.

    Args:
        whole: for b = 1. The offset is below the scale then, and y - k a is the offset: two products less.
    """
    gaussian = kind is GAUSSIAN
    table = tuple(np.int64(t) for t in FAST_TABLE[kind])
    terms = len(table)
    near, middle, far = (table * 3)[:_GROUP], (table * 3)[_GROUP : 2 * _GROUP], (table * 3)[2 * _GROUP : 3 * _GROUP]

    @numba.njit(nogil=True, error_model="numpy")
    def decide(
        raw: Any,
        first_attempt: int,
        numerator: Any,
        denominator: Any,
        m: Any,
        threshold: Any,
        margin: Any,
        widths: Any,
        decided: Any,
        into: Any,
        filled: int,
    ) -> tuple[int, int]:
        one_bit = np.uint64(1)
        scale = float(numerator)
        below, above = 1.0 - margin, 1.0 + margin
        for begin in range(first_attempt - first_attempt % _BLOCK_SIZE, BATCH, _BLOCK_SIZE):
            if filled >= into.size:
                return filled, BATCH
            doubts = np.int64(0)
            us, ws, rs = (
                raw[begin:][:_BLOCK_SIZE],
                raw[BATCH + begin :][:_BLOCK_SIZE],
                raw[2 * BATCH + begin :][:_BLOCK_SIZE],
            )
            for j in range(_BLOCK_SIZE):
                u = us[j]
                v = np.int64(u >> one_bit)
                minus = np.int64(u & one_bit)
                k, start, tie = _compare(v, near, widths[0])
                if not gaussian:
                    k2, start2, tie2 = _compare(v, middle, widths[1])
                    k3, start3, tie3 = _compare(v, far, widths[2])
                    k, start, tie = k + k2 + k3, start + start2 + start3, tie | tie2 | tie3
                tie |= k == terms
                upper, lower = _multiply_wide(ws[j], m)
                offset = np.int64(upper)
                refused = lower < threshold
                y = start + offset
                rest = offset if whole else denominator * y - numerator * k
                refused |= (not whole) & (rest >= numerator)
                refused |= (y == 0) & (minus == 1)
                t1 = float(rest) / scale
                e = t1 * (2.0 * float(k) + t1) * 0.5 if gaussian else t1
                p = exp_negative(e if e < 200.0 else 200.0)
                uniform = float(rs[j]) * 5.421010862427522e-20
                accept = uniform < p * below - 1.1e-19
                reject = uniform > p * above + 1.1e-19
                undecided = np.int64(((not (accept | reject)) & (not refused)) | tie)
                good = accept & (not refused) & (not tie)
                doubts |= undecided
                decided[j] = -y if minus == 1 else y
                decided[_BLOCK_SIZE + j] = np.int64(good) | (undecided << 1)
            filled, j = _append_accepted(decided, doubts != 0, max(0, first_attempt - begin), into, filled)
            if j < _BLOCK_SIZE:
                return filled, begin + j
        return filled, BATCH

    keep_kernel(decide, f"{kind}-{'whole' if whole else 'fraction'}", Path(__file__), (BATCH, table))
    return cast(Callable[..., tuple[int, int]], decide)


_KERNEL = {(kind, whole): _kernel(kind, whole=whole) for kind in FAST for whole in (True, False)}


def kernel(
    kind: Kind, numerator: int, denominator: int, offsets: int, rejection: int, margin: float
) -> tuple[Callable[..., tuple[int, int]], tuple[Any, ...]]:
    """The kernel of a distribution and its constant arguments for a scale a/b."""
    starts = [-(-numerator * k // denominator) for k in range(FAST[kind] + 1)]
    steps = tuple(np.int64(after - before) for before, after in pairwise(starts)) * 3
    widths = tuple(steps[group : group + _GROUP] for group in range(0, 3 * _GROUP, _GROUP))
    constants = (
        np.int64(numerator),
        np.int64(denominator),
        np.uint64(offsets),
        np.uint64(rejection),
        np.float64(margin),
        widths,
    )
    return _KERNEL[kind, denominator == 1], constants
