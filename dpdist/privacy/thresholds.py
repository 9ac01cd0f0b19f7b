"""Tables of the whole part of |noise| / scale: what a uniform number is compared with, exactly and in 63 bits."""

from __future__ import annotations

import mpmath

from dpdist.privacy.distributions import GAUSSIAN, LAPLACE, Kind

BATCH = 4096
"""Attempts that are decided at once."""
TABLE_BITS = 512
EXTENSION_BITS = TABLE_BITS - 63
_GAUSSIAN_TERMS = 40
_LAPLACE_TERMS = 40
FAST: dict[Kind, int] = {GAUSSIAN: 6, LAPLACE: 18}
"""Thresholds that a kernel compares; what lies beyond them is decided in integers."""


def _thresholds(kind: Kind) -> tuple[int, ...]:
    """floor(2^512 P(K <= k)) for k = 0.. ; the mass cut off beyond is below 2^-1100 (Gaussian) or redrawn (Laplace)."""
    with mpmath.workprec(TABLE_BITS + 400):
        if kind is GAUSSIAN:
            weights = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(_GAUSSIAN_TERMS)]
        else:
            q = mpmath.exp(-1)
            weights = [(1 - q) * q**k for k in range(_LAPLACE_TERMS)] + [q**_LAPLACE_TERMS]
        total, running, out = mpmath.fsum(weights), mpmath.mpf(0), []
        for weight in weights[:-1]:
            running += weight
            out.append(int(mpmath.floor(running / total * mpmath.mpf(2) ** TABLE_BITS)))
    return tuple(out)


TABLE: dict[Kind, tuple[int, ...]] = {kind: _thresholds(kind) for kind in Kind}
FAST_TABLE: dict[Kind, tuple[int, ...]] = {
    kind: tuple(t >> EXTENSION_BITS for t in TABLE[kind][:terms]) for kind, terms in FAST.items()
}
"""The first 63 bits of the thresholds that a kernel compares."""
