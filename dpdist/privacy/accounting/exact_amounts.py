"""Checks of amounts: exact positive numbers, and probabilities."""

from __future__ import annotations

from fractions import Fraction

from dpdist.errors import InvalidInput


def positive(name: str, amount: Fraction | None) -> Fraction:
    """An exact amount. Raises: InvalidInput when it is no positive exact number."""
    if amount is None or isinstance(amount, float) or Fraction(amount) <= 0:
        raise InvalidInput(f"{name} must be a positive exact number, found {amount}")
    return Fraction(amount)


def probability(delta: float) -> None:
    """Accept a delta. Raises: InvalidInput outside (0, 1)."""
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta lies in (0, 1), found {delta!r}")


def check_sensitivity(sensitivity: int) -> None:
    """Accept a sensitivity, or its square. Raises: InvalidInput where it is zero."""
    if sensitivity <= 0:
        raise InvalidInput(
            "the sensitivity is zero, so nothing that is measured depends on the records; ask for a query that counts records"
        )
