"""The compiled search through all choices of cells and steps, against all of them written down."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdist.measurement.sensitivity.exhaustive_search import longest_chain


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 4), st.integers(1, 3))
def test_the_longest_chain_is_the_longest_of_all(seed: int, steps: int, most: int, separation: int) -> None:
    """Every sensitivity of persons in several cells or steps is such a sum."""
    some = np.random.default_rng(seed).integers(-9, 10, (steps, steps))
    gram = some @ some.T
    sums = {
        chosen: int(gram[np.ix_(chosen, chosen)].sum())
        for number in range(1, most + 1)
        for chosen in combinations(range(steps), number)
        if all(later - step >= separation for step, later in zip(chosen, chosen[1:], strict=False))
    }
    value, chosen = longest_chain(gram, most, separation)
    assert value == max(sums.values()) == sums[tuple(chosen.tolist())]
