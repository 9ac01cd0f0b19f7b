"""What a privacy loss means in plain English: how much better than blind guessing anybody can do who knows everything else."""

from __future__ import annotations

import math
from typing import Any

from dpdist.privacy.accounting import Loss
from dpdist.privacy.privacy_unit import Protection

FALSE_ALARMS = 0.05
"""How often the guesser of the sentences says "it is there" when it is not."""
DELTAS = (0.5, 0.3, 0.1, 0.03, 0.01, 0.003, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12)
LITTLE, HINT, WELL = 0.10, 0.50, 0.95
"""Shares of present units that a guesser may find, at which the words change."""


def detection_rate_bound(loss: Loss, false_alarms: float = FALSE_ALARMS) -> float:
    """How often, at most, any test finds a unit that is there, if it finds one that is not in no more than ``false_alarms`` of cases.

    At every (epsilon, delta) of the loss a test with false-alarm rate a finds at most min(e^epsilon a + delta,
    1 - e^-epsilon (1 - a - delta)); the least of these holds. Rounded up to a tenth of a per cent.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 2.1.
    """
    least_bound = 1.0
    for delta in (0.0, *DELTAS):
        epsilon = loss.epsilon(delta)
        if math.isfinite(epsilon):
            seldom = math.exp(min(epsilon, 700.0)) * false_alarms + delta
            often = 1.0 - math.exp(-epsilon) * (1.0 - false_alarms - delta)
            least_bound = min(least_bound, seldom, often)
    return min(1.0, math.ceil(least_bound * 1000.0 - 1e-9) / 1000.0)


def describe_loss(loss: Loss, protection: Protection) -> dict[str, Any]:
    """What a release's loss means for one unit: the bound of ``found_at_most``, and sentences for a page."""
    detection_rate = detection_rate_bound(loss)
    return {
        "false_alarms": FALSE_ALARMS,
        "found_at_most": detection_rate,
        "headline": headline_sentence(detection_rate, protection),
        "guess": guess_sentence(detection_rate, protection),
    }


def headline_sentence(detection_rate: float, protection: Protection) -> str:
    """How well a unit is hidden, of whom a test finds so large a share at most."""
    hidden = f"{protection.subject} {'are' if protection.several else 'is'} in the data"
    if protection.neighbours == "replace-one":
        hidden += f", or what {protection.they_say}"
    added = "Noise was added to every number,"
    if detection_rate <= LITTLE:
        return f"{added} so that the release tells hardly anything about whether {hidden}."
    if detection_rate <= HINT:
        return f"{added} so that the release gives no more than a hint of whether {hidden}."
    if detection_rate <= WELL:
        return (
            f"{added} but not enough to hide everything: somebody who knows all the rest may well find out whether {hidden}."
        )
    return f"{added} but so little that somebody who knows all the rest may be almost sure whether {hidden}."


def guess_sentence(detection_rate: float, protection: Protection) -> str:
    """How often somebody guesses rightly whether one unit is in the data, and how often blind guessing does."""
    chance = f"{100 * FALSE_ALARMS:g}"
    verb = "are" if protection.several else "is"
    return (
        f"Imagine somebody who knows all the rest and must say whether {protection.single_unit} {verb} in the data. If they wrongly say "
        "yes "
        f"in {chance} of 100 cases where the answer is no, they rightly say yes in at most {100 * detection_rate:g} of 100 cases where "
        "it is yes. "
        f"Blind guessing gets {chance}."
    )
