"""Caps: the most that the releases of a data set may reveal together, as privacy filters that hold under adaptive composition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting.exact_amounts import positive
from dpdist.privacy.accounting.gaussian_calibration import RESERVE, Calibration, rho_for
from dpdist.privacy.accounting.laplace_calibration import epsilon_dominated_by
from dpdist.privacy.accounting.privacy_loss import NOTHING, Loss
from dpdist.privacy.accounting.zcdp_conversion import gaussian_epsilon, zcdp_epsilon

Rule = Literal["exact", "zcdp"]
"""How an account under a cap in (epsilon, delta) adds up: as Gaussians, exactly, or by the conversion of any zCDP."""

RULES: tuple[Rule, ...] = ("exact", "zcdp")
LIMIT_TOLERANCE = Fraction(1, 10**9)
"""By how much of itself a limit that another version computed may differ from what is computed now."""


@dataclass(frozen=True)
class Cap:
    """The most that all releases of a data set may reveal, per period or in total.

    Either ``rho``, or ``epsilon`` with ``delta`` (0 for pure epsilon).

    Attributes:
        selection: the part of delta that is set aside for selections of names; of a cap in rho, or in epsilon alone, the delta that it
            has for them alone.
        recorded_limits: the limits of an (epsilon, delta) cap as a ledger wrote them down, by rule: a numerical search found them,
            whose last digits may differ in a later version. Without them the limits are computed.
    """

    rho: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    per: str = "total"
    selection: Fraction = Fraction(0)
    recorded_limits: tuple[tuple[Rule, Fraction], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.rho is None) == (self.epsilon is None):
            raise InvalidInput("a budget is either rho, or epsilon with or without delta; give one of them")
        if self.per not in ("total", "day", "week", "month"):
            raise InvalidInput(f"a budget is renewed per 'day', 'week' or 'month', or is a 'total'; found {self.per!r}")
        positive("rho" if self.rho is not None else "epsilon", self.rho if self.rho is not None else self.epsilon)
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta lies in [0, 1), found {self.delta}")
        if not 0 <= self.selection < 1 or (self.delta and self.selection >= self.delta):
            raise InvalidInput(
                f"a cap sets a part of its delta aside for selections of names, found {float(self.selection):g} of {float(self.delta):g}: "
                "give less than the delta"
            )

    def __str__(self) -> str:
        if self.rho is not None:
            amount = f"rho={float(self.rho):g}"
        else:
            amount = f"epsilon={float(self.epsilon or 0):g}" + (f", delta={float(self.delta):g}" if self.delta else "")
        if self.selection:
            amount += f"{' of which' if self.delta else ','} {float(self.selection):g} for selections"
        return amount if self.per == "total" else f"{amount} per {self.per}"

    @property
    def pure(self) -> bool:
        """Whether only pure releases fit under it."""
        return self.rho is None and self.delta == 0

    @property
    def unit(self) -> Literal["rho", "epsilon"]:
        """What ``amount`` and ``limit`` are counted in."""
        return "epsilon" if self.pure else "rho"

    @property
    def written(self) -> Literal["rho", "epsilon"]:
        """What it is declared in, and spoken of to whom it refuses."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def limit(self) -> Fraction:
        """The cap in its unit: epsilon of a pure cap, else rho of Gaussian releases."""
        return self.limit_by("exact")

    def limit_by(self, rule: Rule) -> Fraction:
        """The cap in its unit under a rule; only caps in (epsilon, delta) have several."""
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None
        if not self.delta:
            return self.epsilon
        for recorded_rule, limit in self.recorded_limits:
            if recorded_rule == rule:
                return limit
        return rho_of_cap(self.epsilon, self.delta - self.selection, "analytic" if rule == "exact" else "zcdp")

    def with_limits(self) -> Cap:
        """The cap with the limits that it has now, to be written down."""
        if not self.delta or self.recorded_limits:
            return self
        return replace(self, recorded_limits=tuple((rule, self.limit_by(rule)) for rule in RULES))

    def limits_hold(self) -> bool:
        """Whether the limits that were written down are those of the cap, but for the last digits of a search."""
        computed = replace(self, recorded_limits=())
        return all(abs(limit - computed.limit_by(rule)) <= LIMIT_TOLERANCE * limit for rule, limit in self.recorded_limits)

    def amount(self, loss: Loss, rule: Rule = "exact") -> Fraction:
        """A loss in the cap's unit."""
        if self.pure:
            return loss.pure
        return loss.zcdp if self.rho is not None or rule == "zcdp" else loss.rho + loss.as_gaussian

    def fraction_of_cap(self, loss: Loss) -> Fraction:
        """The part of the whole cap that a loss takes, by the rule that the account would have if it were the first charge.

        >>> Cap(epsilon=Fraction(2), delta=Fraction(1, 10**6)).fraction_of_cap(Loss.laplace(Fraction(1)))
        Fraction(1, 2)
        """
        rule = self.rule_for(loss)
        fractions = [self.amount(loss, rule) / self.limit_by(rule)]
        if self.epsilon is not None and loss.rho == 0:
            fractions.append(loss.pure / self.epsilon)
        return min(fractions)

    def equal_rho(self, releases: int) -> float:
        """Rho of each of as many Gaussian releases that fill the unused cap together; 0 under a pure cap, which none fits.

        For comparisons, as ``equal_epsilon``; what is charged is exact.
        """
        return 0.0 if self.pure else float(self.limit) / releases

    def equal_epsilon(self, releases: int) -> float:
        """Epsilon of each of as many Laplace releases that fill the unused cap together.

        They fill a cap in (epsilon, delta) by the better of its two filters: their epsilons, or the Gaussians that dominate them.

        >>> Cap(epsilon=Fraction(4)).equal_epsilon(8)
        0.5
        """
        if self.rho is not None:
            return math.sqrt(2.0 * float(self.rho) / releases)
        assert self.epsilon is not None
        alone = float(self.epsilon) / releases
        return alone if self.pure else max(alone, epsilon_dominated_by(float(self.limit) / releases))

    def remaining_releases(self, loss: Loss, spent: Loss = NOTHING, rule: Rule | None = None) -> int:
        """How many further releases of a loss ``allows`` accepts, each charged by itself.

        Args:
            spent: by the account so far. rule: of the account; default: that of an account that begins with the loss.

        >>> Cap(epsilon=Fraction(4), delta=Fraction(1, 10**6)).remaining_releases(Loss.laplace(Fraction(1)))
        4
        """
        rule = rule or self.rule_for(loss)
        allowed_count, refused_count = 0, 1
        while self.allows(spent + loss.times(refused_count), rule):
            allowed_count, refused_count = refused_count, 2 * refused_count
        while refused_count - allowed_count > 1:
            middle = (allowed_count + refused_count) // 2
            allowed_count, refused_count = (
                (middle, refused_count) if self.allows(spent + loss.times(middle), rule) else (allowed_count, middle)
            )
        return allowed_count

    def remaining(self, spent: Loss, rule: Rule = "exact") -> Fraction:
        """What further releases may still spend, in the cap's unit: under an (epsilon, delta) cap, of Gaussian releases."""
        if not self._keeps_slack(spent, rule):
            return Fraction(0)
        return max(Fraction(0), self.limit_by(rule) - self.amount(spent, rule))

    def requested_and_remaining(self, loss: Loss, spent: Loss, rule: Rule = "exact") -> tuple[float, float, float]:
        """A loss, and the largest one of its kind that is still allowed, both in the unit in which the cap is written; and their delta.

        Of a cap in (epsilon, delta): epsilons, of Gaussian noise at the cap's delta. What is left is rounded down, so that it fits.

        >>> cap = Cap(epsilon=Fraction(4), delta=Fraction(1, 10**6))
        >>> cap.requested_and_remaining(Loss.laplace(Fraction(3)), Loss.laplace(Fraction(2)))
        (3.0, 2.0, 0.0)
        """
        remaining_amount = float(self.remaining(spent, rule))
        if self.epsilon is None or self.pure:
            return float(self.amount(loss, rule)), _round_down(remaining_amount), 0.0
        if loss.rho == 0:
            dominated = math.sqrt(2.0 * remaining_amount) if rule == "zcdp" else epsilon_dominated_by(remaining_amount)
            alone = 0.0 if spent.rho else float(self.epsilon - spent.pure)
            return float(loss.pure), _round_down(max(alone, dominated)), 0.0
        delta = float(self.delta - self.selection)
        requested_epsilon, largest_epsilon = (
            self._epsilon(rho, delta, rule) for rho in (float(self.amount(loss, rule)), remaining_amount)
        )
        return requested_epsilon, _round_down(largest_epsilon), delta

    def _epsilon(self, rho: float, delta: float, rule: Rule) -> float:
        """The epsilon that buys a rho of Gaussian noise by the rule, which leaves ``RESERVE`` to the grid: ``rho_for`` the other way."""
        if rho <= 0.0:
            return 0.0
        if rule == "zcdp":
            return zcdp_epsilon(rho, delta)
        return gaussian_epsilon(1.0 / math.sqrt(2.0 * rho), delta * (1.0 - RESERVE)) / (1.0 - RESERVE)

    def rule_for(self, first_loss: Loss) -> Rule:
        """The rule of an account in (epsilon, delta), chosen by its first charge, before anything was learnt from it."""
        if self.epsilon is None or not self.delta or self._keeps_slack(first_loss, "exact"):
            return "exact"
        return "zcdp"

    def allows(self, loss: Loss, rule: Rule = "exact") -> bool:
        """Whether a composed loss stays within the cap, also when every amount was chosen after the answers before it.

        A cap in rho is a zCDP filter, a pure one a filter of epsilons. A cap in (epsilon, delta) is the filter that ``rule``
        names, or that of pure releases alone, which needs no delta: docs/ledger.md has the proofs.
        """
        if loss.failure > self.selection:
            return False
        if self.pure:
            return loss.rho == 0 and loss.pure <= self.limit
        if self.epsilon is not None and loss.rho == 0 and loss.pure <= self.epsilon:
            return True
        return self._keeps_slack(loss, rule) and self.amount(loss, rule) <= self.limit_by(rule)

    def _keeps_slack(self, loss: Loss, rule: Rule) -> bool:
        """Whether what integer grids add to Gaussian noise stays within what an (epsilon, delta) cap set aside for it."""
        if self.epsilon is None or not self.delta or rule == "zcdp":
            return True
        return float(loss.slack) <= RESERVE * min(1.0, float(self.epsilon))


def _round_down(amount: float) -> float:
    """To six digits, towards zero."""
    if amount <= 0.0:
        return 0.0
    unit = 10.0 ** (5 - math.floor(math.log10(amount)))
    return math.floor(amount * unit) / unit


@lru_cache(maxsize=64)
def rho_of_cap(epsilon: Fraction, delta: Fraction, calibration: Calibration) -> Fraction:
    """The rho that a cap in (epsilon, delta) allows."""
    return rho_for(float(epsilon), float(delta), calibration)
