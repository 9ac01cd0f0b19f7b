"""Levels of an attribute, as a spec declares them."""

from __future__ import annotations

import time

from dpdist.domain import Attribute
from dpdist.spec.levels import level_of


def test_levels_of_very_many_values_are_read_in_linear_time() -> None:
    """Every value was looked up in a tuple: 10^6 blocks never ended."""
    values = 100_000
    places = Attribute("place", edges=tuple(range(values + 1)), labels=tuple(map(str, range(values))))
    started = time.process_time()
    found = level_of(
        places, "half", {"low": [str(k) for k in range(values // 2)], "high": [str(k) for k in range(values // 2, values)]}
    )
    assert (found.groups[0], found.groups[-1]) == (0, 1)
    assert time.process_time() - started < 10
