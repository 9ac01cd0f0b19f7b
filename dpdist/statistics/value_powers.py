"""What every bin of an attribute adds to sums of its values."""

from __future__ import annotations

import numpy as np

from dpdist.domain import Attribute
from dpdist.domain.numeric_columns import AMOUNT, DEVIATION, PRESENCE, SQUARE
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.statistics.statistic import Range


def bin_summands(attribute: Attribute, summand: str) -> Matrix:
    """What every bin of an attribute adds to a sum of something of its values; nothing for records without a declared one.

    Args:
        summand: ``PRESENCE``, ``AMOUNT``, ``DEVIATION`` (from the middle of the values) or ``SQUARE`` (of that).
    """
    bin_values = np.zeros(attribute.size)
    if attribute.amounts is not None:
        bin_values[: attribute.amounts.bins] = attribute.amounts.values(summand)
        return bin_values
    values = numbers(attribute)
    deviations = values - (values[0] + values[-1]) / 2
    bin_values[: attribute.values] = {
        PRESENCE: np.ones(values.size),
        AMOUNT: values,
        DEVIATION: deviations,
        SQUARE: deviations**2,
    }[summand]
    return bin_values


def range_of(attribute: Attribute) -> Range:
    """The smallest and the largest value of an attribute."""
    if attribute.amounts is not None:
        return attribute.amounts.range
    values = numbers(attribute)
    return float(values[0]), float(values[-1])


def numbers(attribute: Attribute) -> Matrix:
    """The whole numbers that an attribute's declared values stand for; for a column of amounts those of its bins.

    Raises: InvalidInput where a bin holds more than one number.
    """
    if attribute.amounts is not None:
        return attribute.amounts.values(AMOUNT)
    if attribute.categories or attribute.times is not None:
        raise InvalidInput(
            f"the categories of {attribute.name!r} are no numbers, so they have no mean; ask for counts or shares"
        )
    edges = np.asarray(attribute.edges, dtype=np.float64)
    if not (np.diff(edges) == 1).all():
        raise InvalidInput(
            f"bins of {attribute.name!r} hold more than one number, and counts do not tell where in a bin records lie; ask for the "
            f"median of {attribute.name}"
        )
    return edges[:-1]
