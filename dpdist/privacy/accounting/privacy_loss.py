"""Privacy losses: exact amounts that compose.

The currency is rho of zero-concentrated differential privacy (zCDP, Bun & Steinke 2016) for Gaussian releases and epsilon
for Laplace ones: exact rationals that add up. (epsilon, delta) is a report, always by a conversion that is proven for the
discrete noise used: tight zCDP, exact composition of Gaussians (docs/noise.md says why it holds on the grid), or privacy
loss distributions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting.exact_amounts import positive, probability
from dpdist.privacy.accounting.laplace_calibration import gaussian_equivalent
from dpdist.privacy.accounting.zcdp_conversion import gaussian_epsilon, zcdp_epsilon

ZERO = Fraction(0)


@dataclass(frozen=True)
class Loss:
    """The privacy loss of one or several releases, kept as sums, so that it has the same size for any number of releases.

    Attributes:
        rho: of the Gaussian releases.
        pure: epsilons of the pure (Laplace) releases.
        squares: squared epsilons of the pure releases.
        as_gaussian: rho of Gaussian noise that reveals at least as much as each pure release, see ``gaussian_equivalent``.
        slack: by how much a Gaussian on the integer grid may exceed the continuous one: delta(epsilon) is at most
            exp(slack) times the continuous Gaussian's delta(epsilon - slack).
        failure: probability that selections of names reveal one that only the changed unit has; everything else holds but for it.

    >>> (Loss.gaussian(Fraction(1, 8)) + Loss.gaussian(Fraction(1, 8))).rho
    Fraction(1, 4)
    """

    rho: Fraction = ZERO
    pure: Fraction = ZERO
    squares: Fraction = ZERO
    as_gaussian: Fraction = ZERO
    slack: Fraction = ZERO
    failure: Fraction = ZERO

    @staticmethod
    def gaussian(rho: Fraction, slack: Fraction = ZERO) -> Loss:
        """Loss of one Gaussian release of rho-zCDP."""
        if slack < 0:
            raise InvalidInput(f"the slack of a grid must be 0 or more, found {slack}")
        return Loss(rho=positive("rho", rho), slack=slack)

    @staticmethod
    def laplace(epsilon: Fraction) -> Loss:
        """Loss of one epsilon-DP release, which is also epsilon^2/2-zCDP."""
        epsilon = positive("epsilon", epsilon)
        return Loss(pure=epsilon, squares=epsilon * epsilon, as_gaussian=gaussian_equivalent(epsilon))

    def __add__(self, addend: Loss) -> Loss:
        return Loss(
            _sum(self.rho, addend.rho),
            _sum(self.pure, addend.pure),
            _sum(self.squares, addend.squares),
            _sum(self.as_gaussian, addend.as_gaussian),
            _sum(self.slack, addend.slack),
            _sum(self.failure, addend.failure),
        )

    def __sub__(self, subtrahend: Loss) -> Loss:
        return Loss(*(mine - theirs or ZERO for mine, theirs in zip(self._sums, subtrahend._sums, strict=True)))

    def times(self, releases: int) -> Loss:
        """The loss of as many such releases together."""
        return Loss(*(releases * amount for amount in self._sums))

    @property
    def _sums(self) -> tuple[Fraction, ...]:
        return self.rho, self.pure, self.squares, self.as_gaussian, self.slack, self.failure

    @cached_property  # asked at every row of a ledger that is replayed, of the same few losses
    def facts(self) -> Mapping[str, str]:
        """The loss of one release as rows of a ledger keep it."""
        failure = {"failure": str(self.failure)} if self.failure else {}
        return {"rho": str(self.rho), "pure": str(self.pure), "slack": str(self.slack), **failure}

    @property
    def nothing(self) -> bool:
        """Whether nothing is revealed."""
        return not (self.rho or self.pure or self.failure)

    def for_group(self, size: int) -> Loss:
        """What one release reveals of ``size`` changes at once: ``size`` times a pure epsilon, its square times a rho.

        Sources: Bun & Steinke 2016, Proposition 1.9 (zCDP), basic composition over the changes (pure). The slack of a grid grows
        with the move, at most ``size`` times (docs/noise.md).
        """
        if self.rho and self.pure:
            raise InvalidInput(
                "group privacy is computed for one release, with Gaussian or with Laplace noise; this amount mixes both"
            )
        if size == 1 and (self.failure or not (self.squares or self.as_gaussian)):
            return self
        if self.failure:
            raise InvalidInput(
                "a selection of names protects one change of its own unit: give the release the neighbours and the person column that the "
                "cap of its data set has"
            )
        if self.pure:
            return Loss.laplace(size * self.pure)
        return Loss(rho=size * size * self.rho, slack=size * self.slack)

    @property
    def zcdp(self) -> Fraction:
        """Rho of everything together. Source: Bun & Steinke 2016, Propositions 1.4 (pure) and 1.7 (composition)."""
        return self.rho + self.squares / 2 if self.squares else self.rho

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proven for this delta; delta = 0 needs losses without Gaussian noise.

        Proven for releases whose amounts were fixed beforehand, or that ran under a ``Cap``; it is the better of two bounds. The
        probability that selections fail is taken off the delta (docs/ledger.md).
        """
        if self.failure:
            rest = delta - float(self.failure) * (1 + 1e-12)
            if rest <= 0 and not self.rho and delta >= float(self.failure):
                return float(self.pure)  # what holds but for a failure needs no delta of its own
            return replace(self, failure=Fraction(0)).epsilon(rest) if rest > 0 else math.inf
        if self.rho == 0 and self.pure == 0:
            return 0.0
        if delta == 0.0:
            return float(self.pure) if self.rho == 0 else math.inf
        probability(delta)
        separate_epsilon = float(self.pure) + self._gaussian_epsilon(delta)
        return min(zcdp_epsilon(float(self.zcdp), delta), separate_epsilon)

    def _gaussian_epsilon(self, delta: float) -> float:
        """Epsilon of the Gaussian part: the better of tight zCDP and exact Gaussian composition with the grid's slack."""
        if self.rho == 0:
            return 0.0
        rho, slack = float(self.rho), float(self.slack)
        exact = gaussian_epsilon(1.0 / math.sqrt(2.0 * rho), delta * math.exp(-slack)) + slack
        return min(zcdp_epsilon(rho, delta), exact)


def _sum(mine: Fraction, theirs: Fraction) -> Fraction:
    """The sum; most parts of most losses are this very zero, which is recognised by identity ten times as fast as by value."""
    return theirs if mine is ZERO else mine if theirs is ZERO else mine + theirs


NOTHING = Loss()
"""What is revealed where nothing is."""
