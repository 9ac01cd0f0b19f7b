"""The rows that a page shows before its script runs."""

from __future__ import annotations

import math

import numpy as np

from dpdist.operators import Identity
from dpdist.plugins.page.answer_list import ListedGroup, first_table_rows
from dpdist.workloads import Block


def test_intervals_with_one_end_say_which() -> None:
    """Those of answers that stand just above the limit below which answers are suppressed have no lower end."""
    block = Block("age", (0,), (Identity(4),), (("a", "b", "c", "d"),), names=("age",))
    low, high = np.array([1.0, -math.inf, 3.0, -math.inf]), np.array([2.0, 12.5, math.inf, math.inf])
    numbers = (np.ones(4), np.ones(4), np.full(4, math.nan), low, high)
    rows = first_table_rows([ListedGroup(0, block, numbers, (-math.inf, math.inf))])
    assert [interval for _, _, interval, _ in rows] == ["1.0 to 2.0", "at most 12.5", "at least 3.0", "not known"]
