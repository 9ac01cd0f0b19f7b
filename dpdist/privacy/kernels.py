"""Compiled kernels of ``sampler``: floating point decides a batch of attempts, or says which ones it cannot decide.

Imported by the first large draw: Numba and its compiler take longer than a small release.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpdist.privacy.noise import Kind
from dpdist.privacy.thresholds import BATCH, FAST, FAST_TABLE

_KEPT = "NUMBA_CACHE_DIR" in os.environ
"""Whether compiled samplers are kept on disk: only in a folder that was named, because what lies there is run."""
_GROUP = 6
"""Thresholds a loop: LLVM unrolls and vectorises six, not eighteen (benchmarks/noise.py: 5 x on Laplace)."""


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    """The float64 with the given bit pattern."""
    del typing_context, bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
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


def _kernel(kind: Kind) -> Callable[..., None]:
    """Decide a batch of attempts, branch-free.

    Writes y to out[0:BATCH] and a code to out[BATCH:]: bit 0 accepted, bit 1 undecided.
    """
    gaussian = kind == "gaussian"
    table = tuple(np.int64(t) for t in FAST_TABLE[kind])
    terms = len(table)
    near, middle, far = (table * 3)[:_GROUP], (table * 3)[_GROUP : 2 * _GROUP], (table * 3)[2 * _GROUP : 3 * _GROUP]

    @numba.njit(nogil=True, error_model="numpy", cache=_KEPT)
    def decide(raw: Any, a: Any, b: Any, m: Any, threshold: Any, margin: Any, widths: Any, out: Any) -> None:
        one = np.uint64(1)
        scale = float(a)
        below, above = 1.0 - margin, 1.0 + margin
        for i in range(BATCH):
            u = raw[i]
            v = np.int64(u >> one)
            minus = np.int64(u & one)
            k = np.int64(0)
            first = np.int64(0)
            tie = False
            for t in range(_GROUP):
                passed = v >= near[t]
                k += np.int64(passed)
                first += widths[0][t] if passed else np.int64(0)
                tie |= v == near[t]
            if not gaussian:
                for t in range(_GROUP):
                    passed = v >= middle[t]
                    k += np.int64(passed)
                    first += widths[1][t] if passed else np.int64(0)
                    tie |= v == middle[t]
                for t in range(_GROUP):
                    passed = v >= far[t]
                    k += np.int64(passed)
                    first += widths[2][t] if passed else np.int64(0)
                    tie |= v == far[t]
            tie |= k == terms
            w = raw[BATCH + i]
            upper, lower = _multiply_wide(w, m)
            high = np.int64(upper)
            refused = lower < threshold
            y = first + high
            rest = b * y - a * k
            refused |= rest >= a
            refused |= (y == 0) & (minus == 1)
            t1 = float(rest) / scale
            e = t1 * (2.0 * float(k) + t1) * 0.5 if gaussian else t1
            p = exp_negative(e if e < 200.0 else 200.0)
            uniform = float(raw[2 * BATCH + i]) * 5.421010862427522e-20
            accept = uniform < p * below - 1.1e-19
            reject = uniform > p * above + 1.1e-19
            undecided = ((not (accept | reject)) & (not refused)) | tie
            good = accept & (not refused) & (not tie)
            out[i] = -y if minus == 1 else y
            out[BATCH + i] = np.int64(good) | (np.int64(undecided) << 1)

    return cast(Callable[..., None], decide)


_KERNEL: dict[Kind, Callable[..., None]] = {"gaussian": _kernel("gaussian"), "laplace": _kernel("laplace")}


def kernel(
    kind: Kind, a: int, b: int, offsets: int, rejection: int, margin: float
) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """The kernel of a distribution and its constant arguments for a scale a/b."""
    first = [-(-a * k // b) for k in range(FAST[kind] + 1)]
    steps = tuple(np.int64(after - before) for before, after in pairwise(first)) * 3
    widths = tuple(steps[group : group + _GROUP] for group in range(0, 3 * _GROUP, _GROUP))
    return _KERNEL[kind], (np.int64(a), np.int64(b), np.uint64(offsets), np.uint64(rejection), np.float64(margin), widths)


@numba.njit(nogil=True, cache=_KEPT)
def collect(decided: Any, into: Any, done: int) -> int:
    """Append the accepted samples of a batch; returns how many samples ``into`` holds, or -1 - i at an undecided i."""
    for i in range(BATCH):
        if done >= into.size:
            return done
        if decided[BATCH + i] & 2:
            return -1 - i
        into[done] = decided[i]
        done += decided[BATCH + i] & 1
    return done
