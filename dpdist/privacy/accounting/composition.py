"""Composition by privacy loss distributions, with Google's dp-accounting: for reports of mixtures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting.exact_amounts import probability
from dpdist.privacy.accounting.privacy_loss import Loss

PLD_STEP = 1e-4
"""Discretisation of privacy loss distributions, in epsilon; rounded up, so a report may be high by a step a release."""


def pld_epsilon(losses: Sequence[Loss], delta: float) -> float:
    """Epsilon by privacy loss distributions: the Gaussian releases as one, each pure release as randomised response.

    Randomised response dominates every epsilon-DP mechanism (Kairouz, Oh, Viswanath 2015), a continuous Gaussian with the
    grid's slack dominates the discrete ones, and the discretisation is pessimistic: an upper bound for any mixture.
    Raises: InvalidInput without the package ``dp-accounting`` (pip install 'dpdist[pld]').
    """
    probability(delta)
    pld = _pld()
    step = PLD_STEP
    distributions = []
    together = sum(losses, Loss())
    if together.failure:
        delta -= float(together.failure) * (1 + 1e-12)
        if delta <= 0.0:
            return math.inf
    epsilons = [loss.pure for loss in losses if loss.pure]
    if together.rho:
        multiplier = 1.0 / math.sqrt(2.0 * float(together.rho))
        distributions.append(pld.from_gaussian_mechanism(multiplier, value_discretization_interval=step))
    for epsilon in sorted(set(epsilons)):
        # two buckets: the answer is true with probability e^epsilon / (1 + e^epsilon)
        noise = 2.0 / (1.0 + math.exp(float(epsilon)))
        distribution = pld.from_randomized_response(noise, 2, value_discretization_interval=step)
        distributions.append(distribution.self_compose(epsilons.count(epsilon)))
    if not distributions:
        return 0.0
    whole = distributions[0]
    for distribution in distributions[1:]:
        whole = whole.compose(distribution)
    slack = float(together.slack)
    return float(whole.get_epsilon_for_delta(delta * math.exp(-slack))) + slack


def _pld() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise InvalidInput("privacy loss distributions need dp-accounting: pip install 'dpdist[pld]'") from None
    return privacy_loss_distribution
