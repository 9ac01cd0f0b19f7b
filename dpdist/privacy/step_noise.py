"""The noise of what a part of a budget finds, and how the budget is divided."""

from __future__ import annotations

from fractions import Fraction

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss, gaussian_scale, gaussian_slack, laplace_scale
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, SCALE_LIMIT


def noise_for(budget: Loss, absolute: int, squared: int, draws: int, purpose: str) -> tuple[Noise, Loss]:
    """The noise that a budget buys, and what it reveals.

    Args:
        budget: a rho (Gaussian noise) or a pure epsilon (Laplace noise).
        absolute, squared: how far one change moves all numbers together, in units.
        draws: how many numbers there are.
        purpose: in the message.
    Raises: InvalidInput when the noise would be too large.
    """
    if budget.pure:
        noise, loss = Noise(LAPLACE, laplace_scale(absolute, budget.pure)), budget
    else:
        noise = Noise(GAUSSIAN, gaussian_scale(squared, budget.rho))
        loss = Loss.gaussian(budget.rho, gaussian_slack(squared, noise.scale, draws))
    if noise.scale > SCALE_LIMIT:
        raise InvalidInput(
            f"{purpose} has so little budget that its noise is beyond 2^26 persons or records: raise its 'share', or leave it out"
        )
    return noise, loss


def split_budget(budget: Loss, fraction: Fraction) -> tuple[Loss, Loss]:
    """A part of a budget, and the rest of it."""
    if budget.pure:
        return Loss.laplace(budget.pure * fraction), Loss.laplace(budget.pure * (1 - fraction))
    return Loss.gaussian(budget.rho * fraction), Loss.gaussian(budget.rho * (1 - fraction))
