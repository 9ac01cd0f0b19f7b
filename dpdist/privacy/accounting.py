"""Privacy losses: exact amounts that compose, and what they mean as (epsilon, delta).

The currency is rho of zero-concentrated differential privacy (zCDP, Bun & Steinke 2016) for Gaussian releases and epsilon
for Laplace ones: exact rationals that add up. (epsilon, delta) is a report, always by a conversion that is proven for the
discrete noise used: tight zCDP, exact composition of Gaussians (docs/noise.md says why it holds on the grid), or privacy
loss distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from dpdist.errors import InvalidInput
from dpdist.privacy.normal import log_cdf
from dpdist.privacy.roots import brentq, least_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Calibration = Literal["analytic", "zcdp", "classic"]
Rule = Literal["gaussian", "zcdp"]
"""How an account under a cap in (epsilon, delta) adds up: as Gaussians, exactly, or by the conversion of any zCDP."""

_RULES: tuple[Rule, ...] = ("gaussian", "zcdp")
LIMIT_TOLERANCE = Fraction(1, 10**9)
"""By how much of itself a limit that an older version computed may differ from what is computed now."""
RHO_DENOMINATOR = 10**12
"""Rho bought for an (epsilon, delta) is rounded down to a multiple of 1e-12."""
RESERVE = 1e-6
"""Part of epsilon and of delta that the analytic calibration leaves to the grid (``gaussian_slack``)."""
SLACK_DENOMINATOR = 2**90
PLD_STEP = 1e-4
"""Discretisation of privacy loss distributions, in epsilon; rounded up, so a report may be high by a step a release."""


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

    rho: Fraction = Fraction(0)
    pure: Fraction = Fraction(0)
    squares: Fraction = Fraction(0)
    as_gaussian: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    failure: Fraction = Fraction(0)

    @staticmethod
    def gaussian(rho: Fraction, slack: Fraction = Fraction(0)) -> Loss:
        """Loss of one Gaussian release of rho-zCDP."""
        if slack < 0:
            raise InvalidInput(f"the slack of a grid must be 0 or more, found {slack}")
        return Loss(rho=_positive("rho", rho), slack=slack)

    @staticmethod
    def laplace(epsilon: Fraction) -> Loss:
        """Loss of one epsilon-DP release, which is also epsilon^2/2-zCDP."""
        epsilon = _positive("epsilon", epsilon)
        return Loss(pure=epsilon, squares=epsilon * epsilon, as_gaussian=gaussian_equivalent(epsilon))

    def __add__(self, other: Loss) -> Loss:
        both = zip(self._sums, other._sums, strict=True)
        return Loss(*(mine + theirs if mine and theirs else mine or theirs for mine, theirs in both))

    def __sub__(self, other: Loss) -> Loss:
        return Loss(*(mine - theirs for mine, theirs in zip(self._sums, other._sums, strict=True)))

    @property
    def _sums(self) -> tuple[Fraction, ...]:
        return self.rho, self.pure, self.squares, self.as_gaussian, self.slack, self.failure

    def for_group(self, size: int) -> Loss:
        """What one release reveals of ``size`` changes at once: ``size`` times a pure epsilon, its square times a rho.

        Sources: Bun & Steinke 2016, Proposition 1.9 (zCDP), basic composition over the changes (pure). The slack of a grid grows
        with the move, at most ``size`` times (docs/noise.md).
        """
        if self.rho and self.pure:
            raise InvalidInput(
                "group privacy is computed for one release, with Gaussian or with Laplace noise; this amount mixes both"
            )
        if size == 1 and not self.squares and not self.as_gaussian:
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
            return replace(self, failure=Fraction(0)).epsilon(rest) if rest > 0 else math.inf
        if self.rho == 0 and self.pure == 0:
            return 0.0
        if delta == 0.0:
            return float(self.pure) if self.rho == 0 else math.inf
        _probability(delta)
        apart = float(self.pure) + self._gaussian_epsilon(delta)
        return min(zcdp_epsilon(float(self.zcdp), delta), apart)

    def _gaussian_epsilon(self, delta: float) -> float:
        """Epsilon of the Gaussian part: the better of tight zCDP and exact Gaussian composition with the grid's slack."""
        if self.rho == 0:
            return 0.0
        rho, slack = float(self.rho), float(self.slack)
        exact = gaussian_epsilon(1.0 / math.sqrt(2.0 * rho), delta * math.exp(-slack)) + slack
        return min(zcdp_epsilon(rho, delta), exact)


@dataclass(frozen=True)
class Cap:
    """The most that all releases of a data set may reveal, per period or in total.

    Either ``rho``, or ``epsilon`` with ``delta`` (0 for pure epsilon).

    Attributes:
        selection: the part of delta that is set aside for selections of names; of a cap in rho, the delta that it has for them alone.
        kept: the limits of an (epsilon, delta) cap as a ledger wrote them down, by rule: they are the outcome of a numerical search,
            whose last digits may differ in a later version. Without them the limits are computed.
    """

    rho: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    per: str = "total"
    selection: Fraction = Fraction(0)
    kept: tuple[tuple[Rule, Fraction], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.rho is None) == (self.epsilon is None):
            raise InvalidInput("a budget is either rho, or epsilon with or without delta; give one of them")
        if self.per not in ("total", "day", "week", "month"):
            raise InvalidInput(f"a budget is renewed per 'day', 'week' or 'month', or is a 'total'; found {self.per!r}")
        _positive("rho" if self.rho is not None else "epsilon", self.rho if self.rho is not None else self.epsilon)
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta lies in [0, 1), found {self.delta}")
        if not 0 <= self.selection < 1 or (self.epsilon is not None and self.selection and self.selection >= self.delta):
            raise InvalidInput(
                f"a cap sets a part of its delta aside for selections of names, found {float(self.selection):g} of {float(self.delta):g}: "
                "give less than the delta, and no pure epsilon"
            )

    def __str__(self) -> str:
        if self.rho is not None:
            amount = f"rho={float(self.rho):g}"
        else:
            amount = f"epsilon={float(self.epsilon or 0):g}" + (f", delta={float(self.delta):g}" if self.delta else "")
        if self.selection:
            amount += f"{',' if self.rho is not None else ' of which'} {float(self.selection):g} for selections"
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
    def limit(self) -> Fraction:
        """The cap in its unit: epsilon of a pure cap, else rho of Gaussian releases."""
        return self.limit_by("gaussian")

    def limit_by(self, rule: Rule) -> Fraction:
        """The cap in its unit under a rule; only caps in (epsilon, delta) have several."""
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None
        if not self.delta:
            return self.epsilon
        for known, limit in self.kept:
            if known == rule:
                return limit
        return _rho_of_cap(self.epsilon, self.delta - self.selection, "analytic" if rule == "gaussian" else "zcdp")

    def with_limits(self) -> Cap:
        """The cap with the limits that it has now, to be written down."""
        if not self.delta or self.kept:
            return self
        return replace(self, kept=tuple((rule, self.limit_by(rule)) for rule in _RULES))

    def limits_hold(self) -> bool:
        """Whether the limits that were written down are those of the cap, but for the last digits of a search."""
        computed = replace(self, kept=())
        return all(abs(limit - computed.limit_by(rule)) <= LIMIT_TOLERANCE * limit for rule, limit in self.kept)

    def amount(self, loss: Loss, rule: Rule = "gaussian") -> Fraction:
        """A loss in the cap's unit."""
        if self.pure:
            return loss.pure
        return loss.zcdp if self.rho is not None or rule == "zcdp" else loss.rho + loss.as_gaussian

    def share(self, loss: Loss) -> Fraction:
        """The part of the whole cap that a loss takes, by the rule that the account would have if it were the first charge.

        >>> Cap(epsilon=Fraction(2), delta=Fraction(1, 10**6)).share(Loss.laplace(Fraction(1)))
        Fraction(1, 2)
        """
        rule = self.rule_for(loss)
        shares = [self.amount(loss, rule) / self.limit_by(rule)]
        if self.epsilon is not None and loss.rho == 0:
            shares.append(loss.pure / self.epsilon)
        return min(shares)

    def left(self, spent: Loss, rule: Rule = "gaussian") -> Fraction:
        """What further releases may still spend, in the cap's unit: under an (epsilon, delta) cap, of Gaussian releases."""
        if not self._keeps_slack(spent, rule):
            return Fraction(0)
        return max(Fraction(0), self.limit_by(rule) - self.amount(spent, rule))

    def rule_for(self, first: Loss) -> Rule:
        """The rule of an account in (epsilon, delta), chosen by its first charge, before anything was learnt from it."""
        if self.epsilon is None or not self.delta or self._keeps_slack(first, "gaussian"):
            return "gaussian"
        return "zcdp"

    def allows(self, loss: Loss, rule: Rule = "gaussian") -> bool:
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

    def allowed(self, loss: Loss, rule: Rule) -> bool:
        """Whether a charge that was allowed once is within the cap. Limits that were not written down are known but for last digits."""
        if self.kept or not self.delta:
            return self.allows(loss, rule)
        widened = tuple((known, self.limit_by(known) * (1 + LIMIT_TOLERANCE)) for known in _RULES)
        return replace(self, kept=widened).allows(loss, rule)

    def allowed_before_schema_4(self, loss: Loss) -> bool:
        """The rule of older ledgers: the better of two bounds, taken at the end. Their rows are replayed by it, no new one is."""
        if self.rho is not None or self.pure:
            return self.allows(loss)
        assert self.epsilon is not None
        last_digits = 1 + LIMIT_TOLERANCE
        if loss.pure == 0 and loss.rho <= self.limit * last_digits and self._keeps_slack(loss, "gaussian"):
            return True
        return loss.epsilon(float(self.delta)) <= float(self.epsilon * last_digits)

    def _keeps_slack(self, loss: Loss, rule: Rule) -> bool:
        """Whether what integer grids add to Gaussian noise stays within what an (epsilon, delta) cap set aside for it."""
        if self.epsilon is None or not self.delta or rule == "zcdp":
            return True
        return float(loss.slack) <= RESERVE * min(1.0, float(self.epsilon))


@lru_cache(maxsize=64)
def _rho_of_cap(epsilon: Fraction, delta: Fraction, calibration: Calibration) -> Fraction:
    return rho_for(float(epsilon), float(delta), calibration)


@lru_cache(maxsize=1024)
def gaussian_equivalent(epsilon: Fraction) -> Fraction:
    """Rho of a Gaussian that dominates every epsilon-DP release: mu^2 / 2 with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), rounded up.

    The trade-off curve of epsilon-DP is two lines that meet where both errors are 1 / (1 + e^epsilon); a Gaussian's curve is convex
    and passes through their ends, so one that passes through or below the meeting point lies below both lines. Domination is kept
    by adaptive composition (Dong, Roth, Su 2022, Theorem 4).

    Ledgers keep sums of it and compute it anew to verify them: nine digits do not depend on the machine's last bit.

    >>> round(float(gaussian_equivalent(Fraction(1, 10))), 6)
    0.007851
    """
    import numpy as np
    from scipy.special import erfinv, ndtri_exp

    if (
        epsilon < 1
    ):  # near a half the logarithm of a probability has too few digits; 2 Phi(x) - 1 = tanh(epsilon / 2) has all
        mu = 2.0 * math.sqrt(2.0) * float(erfinv(math.tanh(float(epsilon) / 2.0)))
    else:
        mu = -2.0 * float(ndtri_exp(-float(np.logaddexp(0.0, float(epsilon)))))
    rho = mu * mu / 2.0 * (1.0 + 1e-9) * RHO_DENOMINATOR
    digit = 10 ** max(0, math.floor(math.log10(max(rho, 1.0))) - 8)
    return Fraction(math.ceil(rho / digit) * digit, RHO_DENOMINATOR)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The tight delta of rho-zCDP at an epsilon.

    inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.
    Source: Canonne, Kamath, Steinke 2020, Proposition 7.
    """
    if rho == 0:
        return 0.0

    def log_delta(log_order: float) -> float:
        order = math.exp(log_order)  # alpha - 1
        alpha = 1.0 + order
        return order * (alpha * rho - epsilon) + alpha * math.log1p(-1.0 / alpha) - math.log(order)

    centre = math.log(max((epsilon - rho) / (2 * rho), 1e-3) + 1.0 / math.sqrt(2 * rho) * 0.1 + 1e-6)
    least = least_value(log_delta, centre - 12.0, centre + 12.0, xtol=1e-10)
    return min(1.0, math.exp(min(0.0, least)))


@lru_cache(maxsize=1024)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """The least epsilon with ``zcdp_delta(rho, epsilon) <= delta``, rounded up by 1e-12."""
    _probability(delta)
    high = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta)) + 1e-9
    if zcdp_delta(rho, 0.0) <= delta:
        return 0.0
    root = brentq(lambda e: math.log(max(zcdp_delta(rho, e), 1e-300)) - math.log(delta), 0.0, high, xtol=1e-13, rtol=1e-13)
    return float(root) * (1 + 1e-12)


def rho_for(epsilon: float, delta: float, calibration: Calibration = "analytic") -> Fraction:
    """The rho of Gaussian releases that (epsilon, delta) buys, a multiple of 1e-12, rounded down.

    Args:
        calibration: "analytic" (the largest: Gaussian releases of this rho together, however many, are (epsilon, delta)-DP
            with ``RESERVE`` left for the grid), "zcdp" (through the tight conversion of any rho-zCDP mechanism), or
            "classic" (the papers' formula, refused where it is wrong).
    """
    if calibration == "zcdp":
        return _zcdp_rho(epsilon, delta)
    if calibration == "classic":
        multiplier = classic_noise_multiplier(epsilon, delta)
    else:
        multiplier = analytic_gaussian(epsilon * (1.0 - RESERVE), delta * (1.0 - RESERVE))
    return _rounded_down(0.5 / multiplier**2 * (1.0 - 1e-12), epsilon, delta)


def _zcdp_rho(epsilon: float, delta: float) -> Fraction:
    """The largest rho (a multiple of 1e-12) whose tight conversion stays within (epsilon, delta)."""
    _positive("epsilon", Fraction(epsilon))
    _probability(delta)
    high = epsilon + 1.0
    while zcdp_delta(high, epsilon) < delta:
        high *= 2
    root = brentq(lambda log_rho: math.log(max(zcdp_delta(math.exp(log_rho), epsilon), 1e-300)) - math.log(delta),
                  math.log(1e-30), math.log(high), xtol=1e-14, rtol=1e-14)  # fmt: skip
    rho = _rounded_down(math.exp(root) * (1 - 1e-12), epsilon, delta)
    while zcdp_delta(float(rho), epsilon) > delta:
        rho -= Fraction(1, RHO_DENOMINATOR)
    return rho


def _rounded_down(rho: float, epsilon: float, delta: float) -> Fraction:
    exact = Fraction(math.floor(rho * RHO_DENOMINATOR), RHO_DENOMINATOR)
    if exact <= 0:
        raise InvalidInput(
            f"epsilon={epsilon:g} with delta={delta:g} buys less than rho=1e-12: nothing useful can be released, raise them"
        )
    return exact


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """The exact delta of a continuous Gaussian of this standard deviation per unit of L2 sensitivity.

    Source: Balle & Wang 2018, Theorem 8. Budgets are converted by it, and ledgers keep what comes out to the last digit: the
    normal distribution is SciPy's, as it was when they were written.
    """
    from scipy.special import log_ndtr

    return _gaussian_delta(noise_multiplier, epsilon, log_ndtr)


def _gaussian_delta(noise_multiplier: float, epsilon: float, log_cdf: Callable[[float], float]) -> float:
    a = 1.0 / (2.0 * noise_multiplier)
    b = epsilon * noise_multiplier
    upper, lower = float(log_cdf(a - b)), epsilon + float(log_cdf(-a - b))
    return math.exp(upper) * -math.expm1(min(0.0, lower - upper))


def analytic_gaussian(epsilon: float, delta: float) -> float:
    """The least noise multiplier of the continuous Gaussian mechanism. Source: Balle & Wang 2018, Algorithm 1."""
    _positive("epsilon", Fraction(epsilon))
    _probability(delta)
    low, high = 1e-6, 1.0
    while gaussian_delta(high, epsilon) > delta:
        high *= 2
    return float(
        brentq(lambda s: math.log(max(gaussian_delta(s, epsilon), 1e-300)) - math.log(delta), low, high, rtol=1e-13)
    )


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """An epsilon of a continuous Gaussian at a delta, above the least one by rounding alone: a report, no amount is charged by it.

    Source: Balle & Wang 2018, Theorem 8.
    """
    _probability(delta)
    if math.erf(math.sqrt(0.125) / noise_multiplier) * (1 + LOG_ERROR) <= delta:  # the delta of epsilon = 0
        return 0.0

    def above(epsilon: float) -> float:
        return math.log(max(_delta_at_most(noise_multiplier, epsilon), 1e-300)) - math.log(delta)

    rho = 0.5 / noise_multiplier**2
    high = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
    while above(high) > 0.0:
        high *= 2.0
    found = float(brentq(above, 0.0, high, xtol=1e-13, rtol=1e-13))
    step = 1e-13
    while _delta_at_most(noise_multiplier, found) > delta:
        found, step = found * (1.0 + step), 2.0 * step
    return found


LOG_ERROR = 1e-14
"""Of logarithms of the normal distribution, relative to them."""


def _delta_at_most(noise_multiplier: float, epsilon: float) -> float:
    """The delta of a continuous Gaussian, and what its rounding may have taken off it: two large terms may nearly cancel."""
    a, b = 0.5 / noise_multiplier, epsilon * noise_multiplier
    found = _gaussian_delta(noise_multiplier, epsilon, log_cdf)
    for shift, point in ((0.0, a - b), (epsilon, -a - b)):
        logarithm = shift + log_cdf(point)
        steepest = 1.0 + max(0.0, -point)  # the derivative of the logarithm is no larger
        found += math.exp(logarithm) * (LOG_ERROR * (1.0 + 2.0 * shift - logarithm) + 2.0**-50 * (a + b) * steepest)
    return found


def classic_noise_multiplier(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(2/delta)) / epsilon, the calibration printed in the papers.

    Raises: InvalidInput where it does not give (epsilon, delta), as for epsilon = 12, delta = 1e-6.
    """
    _positive("epsilon", Fraction(epsilon))
    _probability(delta)
    multiplier = math.sqrt(2.0 * math.log(2.0 / delta)) / epsilon
    real = gaussian_delta(multiplier, epsilon)
    if real > delta:
        raise InvalidInput(
            f"the classic calibration gives delta={real:.3g} at epsilon={epsilon:g}, not {delta:g}; use the analytic one"
        )
    return multiplier


def gaussian_scale(sensitivity_squared: int, rho: Fraction) -> int:
    """The least whole scale s of a discrete Gaussian with Delta^2 / (2 s^2) <= rho, proven in integers.

    Args:
        sensitivity_squared: Delta^2 of the integer vector that is released.
    """
    if sensitivity_squared <= 0:
        raise InvalidInput(
            "the sensitivity is zero, so nothing that is measured depends on the records; ask for a query that counts records"
        )
    wanted = Fraction(sensitivity_squared) / (2 * _positive("rho", rho))
    scale = math.isqrt(math.ceil(wanted) - 1) + 1 if wanted > 1 else 1
    assert 2 * rho * scale * scale >= sensitivity_squared
    return scale


def gaussian_slack(sensitivity_squared: int, scale: int, rows: int) -> Fraction:
    """Upper bound of what the integer grid adds to a Gaussian release's (epsilon, delta), see ``Loss.slack``.

    max(|v|_1 / (2 s^2), p / (24 s^2)) with |v|_1 <= sqrt(p) Delta; proof in docs/noise.md.

    Args:
        sensitivity_squared: Delta^2 of the integer vector. scale: s. rows: p, the vector's length.
    """
    shift = Fraction(math.isqrt(rows * sensitivity_squared) + 1, 2 * scale * scale)
    slack = max(shift, Fraction(rows, 24 * scale * scale))
    return Fraction(math.ceil(slack * SLACK_DENOMINATOR), SLACK_DENOMINATOR)


def laplace_scale(sensitivity: int, epsilon: Fraction) -> int:
    """The least whole scale s of a discrete Laplace with Delta_1 / s <= epsilon.

    Args:
        sensitivity: Delta_1, the L1 sensitivity of the integer vector that is released.
    """
    if sensitivity <= 0:
        raise InvalidInput(
            "the sensitivity is zero, so nothing that is measured depends on the records; ask for a query that counts records"
        )
    return math.ceil(Fraction(sensitivity) / _positive("epsilon", epsilon))


def pld_epsilon(losses: Sequence[Loss], delta: float) -> float:
    """Epsilon by privacy loss distributions: the Gaussian releases as one, each pure release as randomised response.

    Randomised response dominates every epsilon-DP mechanism (Kairouz, Oh, Viswanath 2015), a continuous Gaussian with the
    grid's slack dominates the discrete ones, and the discretisation is pessimistic: an upper bound for any mixture.
    Raises: InvalidInput without the package ``dp-accounting`` (pip install 'dpdist[pld]').
    """
    _probability(delta)
    pld = _pld()
    step = PLD_STEP
    parts = []
    together = sum(losses, Loss())
    if together.failure:
        delta -= float(together.failure) * (1 + 1e-12)
        if delta <= 0.0:
            return math.inf
    epsilons = [loss.pure for loss in losses if loss.pure]
    if together.rho:
        multiplier = 1.0 / math.sqrt(2.0 * float(together.rho))
        parts.append(pld.from_gaussian_mechanism(multiplier, value_discretization_interval=step))
    for epsilon in sorted(set(epsilons)):
        # two buckets: the answer is true with probability e^epsilon / (1 + e^epsilon)
        noise = 2.0 / (1.0 + math.exp(float(epsilon)))
        part = pld.from_randomized_response(noise, 2, value_discretization_interval=step)
        parts.append(part.self_compose(epsilons.count(epsilon)))
    if not parts:
        return 0.0
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    slack = float(together.slack)
    return float(whole.get_epsilon_for_delta(delta * math.exp(-slack))) + slack


def laplace_composition_epsilon(epsilons: NDArray[np.float64], delta: float) -> float:
    """Epsilon at delta of Laplace mechanisms with the given pure epsilons, by privacy loss distributions: an upper bound.

    Raises: InvalidInput without the package ``dp-accounting`` (pip install 'dpdist[pld]').
    """
    import numpy as np

    _probability(delta)
    pld = _pld()
    digits = 10.0 ** (np.floor(np.log10(epsilons)) - 2)
    values, counts = np.unique(np.ceil(epsilons / digits) * digits, return_counts=True)  # three digits, rounded up
    whole = None
    for epsilon, count in zip(values, counts, strict=True):
        part = pld.from_laplace_mechanism(1.0 / float(epsilon), value_discretization_interval=PLD_STEP)
        part = part.self_compose(int(count))
        whole = part if whole is None else whole.compose(part)
    return 0.0 if whole is None else float(whole.get_epsilon_for_delta(delta))


def _pld() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise InvalidInput("privacy loss distributions need dp-accounting: pip install 'dpdist[pld]'") from None
    return privacy_loss_distribution


def _positive(name: str, amount: Fraction | None) -> Fraction:
    if amount is None or isinstance(amount, float) or Fraction(amount) <= 0:
        raise InvalidInput(f"{name} must be a positive exact number, found {amount}")
    return Fraction(amount)


def _probability(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta lies in (0, 1), found {delta!r}")
