"""Exact discrete Gaussian and Laplace noise, keyed and addressed.

``noise[i]`` is a pure function of (key, i, scale): the same for every chunking, thread, worker and processor. Position i
belongs to a tile of 16,384 samples; tile t owns the bytes of AES-256-CTR(key) from counter t * 2^40 on. Attempts of a
tile are taken in order, three 64-bit words each, in batches of 4096 (word w of attempt i of a batch stands at w*4096+i);
accepted ones fill the tile.

One attempt (after Karney 2016, for a scale s = a/b): the integer part k of |y|/s from the distribution proportional to
exp(-k^2/2) (Gaussian) or exp(-k) (Laplace) by comparing 63 bits with a table; a sign bit; an offset j uniform in
[0, ceil(s)) by Lemire's multiplication; y = ceil(k s) + j, refused when y >= (k + 1) s or when y = 0 with a minus sign;
accepted with probability exp(-e), where t = y/s - k in [0, 1) and e = t (2k + t)/2 (Gaussian) or e = t (Laplace). Every
y >= 0 then comes out with probability proportional to exp(-k^2/2 - e) = exp(-(y/s)^2/2), exactly.

Floating point only filters. docs/noise.md bounds the error of the sampler's ``exp_negative`` and of the comparison by 2^-44, the
margin is 2^-40: outside it the float decision is the exact one; inside (one draw in 2^39) the attempt is decided in
integer arithmetic, extending its words by bits of SHAKE-256 under a subkey until the comparison is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, NORMAL_95, Kind, Samples

__all__ = ["NORMAL_95", "Noise", "NoiseOfShares", "discrete_gaussian", "discrete_laplace"]


@dataclass(frozen=True)
class Noise:
    """What is added to a release's integers: the distribution and its whole scale, in grid units."""

    kind: Kind
    scale: int

    def draw(self, key: bytes, *, start: int = 0, count: int) -> Samples:
        """Samples start..start+count of the key's noise, (count,) int64."""
        return _samples(self.kind, key, self.scale, start, count, 1)

    @property
    def deviation(self) -> float:
        """Standard deviation, grid units."""
        return self.kind.deviation(self.scale)

    def half_width_95(self, concentration: Samples | float) -> Any:
        """Half width of a 95 % interval, in standard errors, of a sum of weighted independent draws (``Kind.half_width_95``)."""
        return self.kind.half_width_95(concentration)


@dataclass(frozen=True)
class NoiseOfShares(Noise):
    """Noise as it stands in measured values that were divided by the shares that are one of an answer: for reading, never drawn."""

    shares_per_answer: float = 1

    def draw(self, key: bytes, *, start: int = 0, count: int) -> Samples:
        raise NotImplementedError("noise is drawn on the grid, before anything is divided")

    @property
    def deviation(self) -> float:
        return super().deviation / self.shares_per_answer


def discrete_gaussian(key: bytes, scale: Fraction | int, *, start: int = 0, count: int, threads: int = 1) -> Samples:
    """Samples start..start+count of the key's discrete Gaussian noise: P(y) proportional to exp(-y^2 / (2 scale^2)).

    Args:
        key: 32 secret bytes; one key for one release, never for two.
        scale: the exact rational parameter, in (0, 2^50], numerator and denominator at most 2^57.
        start: address of the first wanted sample.
        count: how many are wanted.
        threads: for large counts; does not change a single sample.
    Returns: (count,) int64.
    Source: Canonne, Kamath, Steinke 2020 (definition and rho = Delta^2 / (2 scale^2)); Karney 2016 (decomposition).
    """
    return _samples(GAUSSIAN, key, scale, start, count, threads)


def discrete_laplace(key: bytes, scale: Fraction | int, *, start: int = 0, count: int, threads: int = 1) -> Samples:
    """Samples of the key's discrete Laplace noise: P(y) proportional to exp(-|y| / scale). See ``discrete_gaussian``."""
    return _samples(LAPLACE, key, scale, start, count, threads)


def _samples(kind: Kind, key: bytes, scale: Fraction | int, start: int, count: int, threads: int) -> Samples:
    """Numba and the tables are loaded by the first draw: they take longer than all that a command without one does."""
    from dpdist.privacy import sampler

    return sampler.samples(kind, key, scale, start, count, threads)
