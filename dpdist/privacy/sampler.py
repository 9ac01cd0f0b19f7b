"""Tables, compiled kernels and exact decisions behind ``noise``, whose docstring says what they compute."""

from __future__ import annotations

import bisect
import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast

import mpmath
import numba
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpdist.errors import InvalidInput
from dpdist.privacy.noise import SCALE_LIMIT, Kind, Samples

_KEPT = "NUMBA_CACHE_DIR" in os.environ
"""Whether compiled samplers are kept on disk: only in a folder that was named, because what lies there is run."""
TILE = 16384
BATCH = 4096
MARGIN = 2.0**-40
NUMERATOR_LIMIT = 2**57
"""k * numerator must fit into int64 for every k the kernel can meet."""

_TABLE_BITS = 512
_EXTENSION_BITS = _TABLE_BITS - 63
_GAUSSIAN_TERMS = 40
_LAPLACE_TERMS = 40
_GAUSSIAN_FAST = 6
_LAPLACE_FAST = 18
_GROUP = 6
"""Thresholds a loop: LLVM unrolls and vectorises six, not eighteen (benchmarks/noise.py: 5 x on Laplace)."""


def _thresholds(kind: Kind) -> tuple[int, ...]:
    """floor(2^512 P(K <= k)) for k = 0.. ; the mass cut off beyond is below 2^-1100 (Gaussian) or redrawn (Laplace)."""
    with mpmath.workprec(_TABLE_BITS + 400):
        if kind == "gaussian":
            weights = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(_GAUSSIAN_TERMS)]
        else:
            q = mpmath.exp(-1)
            weights = [(1 - q) * q**k for k in range(_LAPLACE_TERMS)] + [q**_LAPLACE_TERMS]
        total, running, out = mpmath.fsum(weights), mpmath.mpf(0), []
        for weight in weights[:-1]:
            running += weight
            out.append(int(mpmath.floor(running / total * mpmath.mpf(2) ** _TABLE_BITS)))
    return tuple(out)


_TABLE: dict[Kind, tuple[int, ...]] = {"gaussian": _thresholds("gaussian"), "laplace": _thresholds("laplace")}
_GAUSSIAN_FAST_TABLE = tuple(t >> _EXTENSION_BITS for t in _TABLE["gaussian"][:_GAUSSIAN_FAST])
_LAPLACE_FAST_TABLE = tuple(t >> _EXTENSION_BITS for t in _TABLE["laplace"][:_LAPLACE_FAST])


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    """The float64 with the given bit pattern."""
    del typing_context, bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@numba.njit(inline="always")
def _exp_negative(e: Any) -> Any:
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
    table = tuple(np.int64(t) for t in (_GAUSSIAN_FAST_TABLE if gaussian else _LAPLACE_FAST_TABLE))
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
            p = _exp_negative(e if e < 200.0 else 200.0)
            uniform = float(raw[2 * BATCH + i]) * 5.421010862427522e-20
            accept = uniform < p * below - 1.1e-19
            reject = uniform > p * above + 1.1e-19
            undecided = ((not (accept | reject)) & (not refused)) | tie
            good = accept & (not refused) & (not tie)
            out[i] = -y if minus == 1 else y
            out[BATCH + i] = np.int64(good) | (np.int64(undecided) << 1)

    return cast(Callable[..., None], decide)


_KERNEL: dict[Kind, Callable[..., None]] = {"gaussian": _kernel("gaussian"), "laplace": _kernel("laplace")}


@numba.njit(nogil=True, cache=_KEPT)
def _collect(decided: Any, into: Any, done: int) -> int:
    """Append the accepted samples of a batch; returns how many samples ``into`` holds, or -1 - i at an undecided i."""
    for i in range(BATCH):
        if done >= into.size:
            return done
        if decided[BATCH + i] & 2:
            return -1 - i
        into[done] = decided[i]
        done += decided[BATCH + i] & 1
    return done


@dataclass(frozen=True)
class _Plan:
    """Constants of a scale a/b, for the kernel and for the exact path."""

    kind: Kind
    a: int
    b: int

    @property
    def offsets(self) -> int:
        """m = ceil(s), the number of offsets j."""
        return -(-self.a // self.b)

    @property
    def rejection(self) -> int:
        """2^64 mod m: low products below it are refused (Lemire)."""
        return (2**64 - self.offsets) % self.offsets

    def kernel(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """The batch kernel and its constant arguments."""
        terms = _GAUSSIAN_FAST if self.kind == "gaussian" else _LAPLACE_FAST
        first = [-(-self.a * k // self.b) for k in range(terms + 1)]
        steps = tuple(np.int64(after - before) for before, after in pairwise(first)) * 3
        widths = tuple(steps[group : group + _GROUP] for group in range(0, 3 * _GROUP, _GROUP))
        arguments = (np.int64(self.a), np.int64(self.b), np.uint64(self.offsets), np.uint64(self.rejection))
        return _KERNEL[self.kind], (*arguments, np.float64(MARGIN), widths)


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.zeros = bytes(BATCH * 24)
        self.stream = np.empty(BATCH * 24 + 16, dtype=np.uint8)
        self.decided = np.empty(2 * BATCH, dtype=np.int64)


_BUFFERS = _Buffers()


def samples(kind: Kind, key: bytes, scale: Fraction | int, start: int, count: int, threads: int) -> Samples:
    """Samples start..start+count of a key's noise, (count,) int64."""
    plan = _plan(kind, key, scale, start, count)
    out = np.empty(count, dtype=np.int64)

    def fill(tile: int) -> None:
        low, high = max(start, tile * TILE), min(start + count, (tile + 1) * TILE)
        if low == tile * TILE:
            _fill_tile(key, tile, out[low - start : high - start], plan)
        else:
            whole = np.empty(high - tile * TILE, dtype=np.int64)
            _fill_tile(key, tile, whole, plan)
            out[low - start : high - start] = whole[low - tile * TILE :]

    tiles = range(start // TILE, -(-(start + count) // TILE))
    if threads > 1 and len(tiles) > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, tiles))
    else:
        for tile in tiles:
            fill(tile)
    return out


def _plan(kind: Kind, key: bytes, scale: Fraction | int, start: int, count: int) -> _Plan:
    if len(key) != 32:
        raise InvalidInput(f"a noise key has 32 bytes, found {len(key)}")
    if isinstance(scale, float):
        raise InvalidInput("the scale must be exact: pass an int or a Fraction, not a float")
    exact = Fraction(scale)
    if not 0 < exact <= SCALE_LIMIT or exact.numerator > NUMERATOR_LIMIT or exact.denominator > NUMERATOR_LIMIT:
        raise InvalidInput(f"the scale lies in (0, 2^50], numerator and denominator at most 2^57; found {exact}")
    if start < 0 or count < 0 or start + count > TILE * 2**60:
        raise InvalidInput(f"samples are addressed from 0 to 2^74, found start={start}, count={count}")
    return _Plan(kind, exact.numerator, exact.denominator)


def _stream(key: bytes, tile: int) -> tuple[bytes, Any]:
    counter = (tile << 40).to_bytes(16, "big")
    return counter, Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()


def _fill_tile(key: bytes, tile: int, into: Samples, plan: _Plan) -> None:
    counter, encryptor = _stream(key, tile)
    kernel, constants = plan.kernel()
    decided = _BUFFERS.decided
    raw = _BUFFERS.stream[: BATCH * 24].view(np.uint64)
    done, base = 0, 0
    while done < into.size:
        encryptor.update_into(_BUFFERS.zeros, _BUFFERS.stream)
        kernel(raw, *constants, decided)
        reached = _collect(decided, into, done)
        while reached < 0:
            i = -1 - reached
            words = (int(raw[i]), int(raw[BATCH + i]), int(raw[2 * BATCH + i]))
            exact = exact_attempt(words, plan, key, counter, base + i)
            decided[BATCH + i] = exact is not None
            decided[i] = 0 if exact is None else exact
            reached = _collect(decided, into, done)
        done = reached
        base += BATCH


def exact_attempt(words: tuple[int, int, int], plan: _Plan, key: bytes, counter: bytes, index: int) -> int | None:
    """One attempt in integer arithmetic: the definition that the fast path must agree with bit for bit.

    Args:
        words: the attempt's three words of the key stream.
        counter, index: address of the attempt, under which further bits are drawn.
    Returns: the sample, or None when the attempt is refused.
    """
    u, w, r = words
    table = _TABLE[plan.kind]
    value = ((u >> 1) << _EXTENSION_BITS) | _more_bits(key, counter, index, b"k", _EXTENSION_BITS)
    k = bisect.bisect_right(table, value)
    if plan.kind == "laplace" and k == len(table):
        redraw = 0
        while True:
            redraw += 1
            further = bisect.bisect_right(table, _more_bits(key, counter, index, b"k%d" % redraw, _TABLE_BITS))
            k += further
            if further < len(table):
                break
    product = w * plan.offsets
    if product & (2**64 - 1) < plan.rejection:
        return None
    y = -(-plan.a * k // plan.b) + (product >> 64)
    rest = plan.b * y - plan.a * k
    if rest >= plan.a or (y == 0 and u & 1):
        return None
    exponent = Fraction(rest * (rest + 2 * plan.a * k), 2 * plan.a**2) if plan.kind == "gaussian" else Fraction(rest, plan.a)
    if not _below_exponential(r, exponent, key, counter, index):
        return None
    return -y if u & 1 else y


def _below_exponential(word: int, exponent: Fraction, key: bytes, counter: bytes, index: int) -> bool:
    """Whether the real number with binary digits ``word`` (and as many more as it takes) lies below exp(-exponent)."""
    if exponent == 0:
        return True
    bits = 64
    while True:
        bits *= 2
        value = (word << (bits - 64)) | _more_bits(key, counter, index, b"a", bits - 64)
        with mpmath.workprec(bits + 64):
            power = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
            target = int(mpmath.floor(power * mpmath.mpf(2) ** bits))
        if value < target - 2:
            return True
        if value > target + 2:
            return False


def _more_bits(key: bytes, counter: bytes, index: int, label: bytes, bits: int) -> int:
    """The first ``bits`` bits of the attempt's own extension stream."""
    subkey = hashlib.sha256(b"dpdist noise extension" + key).digest()
    digest = hashlib.shake_256(subkey + counter + index.to_bytes(8, "little") + label).digest(-(-bits // 8))
    return int.from_bytes(digest, "big") >> (-bits % 8)
