"""Synthetic records draw from public seeds, each for one purpose, and from no key."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dpdist.plugins.synthetic import synthetic_records
from tests.properties.draws import Draws
from tests.properties.test_addresses import drawn, records
from tests.support import small_release

__all__ = ["drawn"]


def test_synthetic_records_read_no_key_and_no_seed_twice(home: Path, drawn: Draws) -> None:
    """Whatever is made of a finished release is made of public seeds, and each of them gives numbers to one purpose."""
    done = small_release.run(small_release.write(home.parent / "data", table=records(), mechanism="residual"), home)
    before = {key: [*reads] for key, reads in drawn.reads.items()}
    users: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    numbers = list[tuple[Any, ...]]()

    class Recorded(np.random.RandomState):
        def __init__(self, seed: Any) -> None:
            users[tuple(seed)].add(sys._getframe(1).f_code.co_name)
            numbers.append(tuple(seed))
            super().__init__(seed)

    with mock.patch.object(np.random, "RandomState", Recorded):
        for redrawn in range(4):
            numbers.clear()
            synthetic_records.synthesize_records(done.published, 50, redrawn=redrawn)
            assert len({*numbers}) == len(numbers)  # within one set no two purposes have the same
            assert len(numbers) > 3 or redrawn == 0
    assert drawn.reads == before
    assert not [seed for seed, purposes in users.items() if len(purposes) > 1]
