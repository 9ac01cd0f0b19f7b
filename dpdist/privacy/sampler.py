"""Tiles of samples and exact decisions behind ``noise``, whose docstring says what they compute."""

from __future__ import annotations

import bisect
import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpdist.errors import InvalidInput
from dpdist.privacy.noise_distributions import (
    BATCH,
    EXTENSION_BITS,
    LAPLACE,
    SCALE_LIMIT,
    TABLE,
    TABLE_BITS,
    TILE,
    Kind,
    Samples,
)
from dpdist.privacy.numerics import exponential

MARGIN = 2.0**-40
NUMERATOR_LIMIT = 2**57
"""k * numerator must fit into int64 for every k the kernel can meet."""
EXACT_SAMPLES = 8192
"""Samples that a process decides in integers before it loads the kernels: 50 us each; Numba takes 1.5 s (benchmarks/command_start.py)."""


@dataclass(frozen=True)
class _Plan:
    """Constants of a scale a/b, for the kernel and for the exact path."""

    kind: Kind
    numerator: int
    denominator: int

    @cached_property
    def offsets(self) -> int:
        """m = ceil(s), the number of offsets j."""
        return -(-self.numerator // self.denominator)

    @cached_property
    def rejection(self) -> int:
        """2^64 mod m: low products below it are refused (Lemire)."""
        return (2**64 - self.offsets) % self.offsets

    @cached_property
    def kernel(self) -> tuple[Callable[..., tuple[int, int]], tuple[Any, ...]]:
        """What decides a batch, and its constant arguments: made once for all batches, as that takes as long as a quarter of one."""
        from dpdist.privacy.sampler_kernels import kernel

        return kernel(self.kind, self.numerator, self.denominator, self.offsets, self.rejection, MARGIN)


class _SampleBuffers(threading.local):
    def __init__(self) -> None:
        self.zeros = bytes(BATCH * 24)
        self.stream = np.empty(BATCH * 24 + 16, dtype=np.uint8)
        self.decided = np.empty(2 * BATCH, dtype=np.int64)


_SAMPLE_BUFFERS = _SampleBuffers()


def samples(kind: Kind, key: bytes, scale: Fraction | int, start: int, count: int, threads: int) -> Samples:
    """Samples start..start+count of a key's noise, (count,) int64."""
    plan = _plan(kind, key, scale, start, count)
    drawn = np.empty(count, dtype=np.int64)

    def fill(tile: int) -> None:
        low, high = max(start, tile * TILE), min(start + count, (tile + 1) * TILE)
        if low == tile * TILE:
            _fill_tile(key, tile, drawn[low - start : high - start], plan)
        else:
            whole = np.empty(high - tile * TILE, dtype=np.int64)
            _fill_tile(key, tile, whole, plan)
            drawn[low - start : high - start] = whole[low - tile * TILE :]

    tiles = range(start // TILE, -(-(start + count) // TILE))
    if threads > 1 and len(tiles) > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, tiles))
    else:
        for tile in tiles:
            fill(tile)
    return drawn


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


class _Allowance:
    """How many more samples this process decides in integers. Either way gives the same samples: only the time differs."""

    def __init__(self) -> None:
        self.decided_count = 0

    def covers(self, samples: int) -> bool:
        """Whether so many more are within it; they are taken off then."""
        if self.decided_count + samples > EXACT_SAMPLES:
            return False
        self.decided_count += samples
        return True


_ALLOWANCE = _Allowance()


def _fill_tile(key: bytes, tile: int, into: Samples, plan: _Plan) -> None:
    counter, encryptor = _stream(key, tile)
    raw = _SAMPLE_BUFFERS.stream[: BATCH * 24].view(np.uint64)
    decide = _decide_exactly if _ALLOWANCE.covers(into.size) else _decide
    filled, base = 0, 0
    while filled < into.size:
        encryptor.update_into(_SAMPLE_BUFFERS.zeros, _SAMPLE_BUFFERS.stream)
        filled = decide(raw, plan, key, counter, base, into, filled)
        base += BATCH


def _decide_exactly(raw: Any, plan: _Plan, key: bytes, counter: bytes, base: int, into: Samples, filled: int) -> int:
    """Append the samples of a batch of attempts, each decided in integers; returns how many there are then."""
    for i in range(BATCH):
        if filled >= into.size:
            return filled
        exact = exact_attempt(_words(raw, i), plan, key, counter, base + i)
        if exact is not None:
            into[filled] = exact
            filled += 1
    return filled


def _decide(raw: Any, plan: _Plan, key: bytes, counter: bytes, base: int, into: Samples, filled: int) -> int:
    """The same by a kernel, which leaves to integers what floating point cannot decide."""
    compiled, constants = plan.kernel
    filled, i = compiled(raw, 0, *constants, _SAMPLE_BUFFERS.decided, into, filled)
    while i < BATCH:
        exact = exact_attempt(_words(raw, i), plan, key, counter, base + i)
        if exact is not None:
            into[filled] = exact
            filled += 1
        filled, i = compiled(raw, i + 1, *constants, _SAMPLE_BUFFERS.decided, into, filled)
    return filled


def _words(raw: Any, i: int) -> tuple[int, int, int]:
    return int(raw[i]), int(raw[BATCH + i]), int(raw[2 * BATCH + i])


def exact_attempt(words: tuple[int, int, int], plan: _Plan, key: bytes, counter: bytes, index: int) -> int | None:
    """One attempt in integer arithmetic: the definition that the fast path must agree with bit for bit.

    Args:
        words: the attempt's three words of the key stream.
        counter, index: address of the attempt, under which further bits are drawn.
    Returns: the sample, or None when the attempt is refused.
    """
    u, w, r = words
    table = TABLE[plan.kind]
    value = ((u >> 1) << EXTENSION_BITS) | _more_bits(key, counter, index, b"k", EXTENSION_BITS)
    k = bisect.bisect_right(table, value)
    if plan.kind is LAPLACE and k == len(table):
        redraw = 0
        while True:
            redraw += 1
            extra_steps = bisect.bisect_right(table, _more_bits(key, counter, index, b"k%d" % redraw, TABLE_BITS))
            k += extra_steps
            if extra_steps < len(table):
                break
    product = w * plan.offsets
    if product & (2**64 - 1) < plan.rejection:
        return None
    y = -(-plan.numerator * k // plan.denominator) + (product >> 64)
    rest = plan.denominator * y - plan.numerator * k
    if rest >= plan.numerator or (y == 0 and u & 1):
        return None
    if not _below_exponential(r, plan.kind.exponent(k, rest, plan.numerator), key, counter, index):
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
        target = exponential(exponent, bits)
        if value < target - 2:
            return True
        if value > target + 2:
            return False


def _more_bits(key: bytes, counter: bytes, index: int, label: bytes, bits: int) -> int:
    """The first ``bits`` bits of the attempt's own extension stream."""
    subkey = hashlib.sha256(b"dpdist noise extension" + key).digest()
    digest = hashlib.shake_256(subkey + counter + index.to_bytes(8, "little") + label).digest(-(-bits // 8))
    return int.from_bytes(digest, "big") >> (-bits % 8)
