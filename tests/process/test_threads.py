from __future__ import annotations

import threading

import pytest

from dpdist.process.resource_limits import cores
from dpdist.process.threads import map_in_order


@pytest.mark.parametrize("items", [0, 1, 2, 3, 20])
def test_results_come_in_order(items: int) -> None:
    """A lone item is worked on where it is asked for: most arrays are one shard, and a pool of threads takes longer than that."""
    found = list(map_in_order(lambda item: (item * item, threading.get_ident()), iter(range(items))))
    assert [square for square, _ in found] == [item * item for item in range(items)]
    assert {thread == threading.get_ident() for _, thread in found} <= {items == 1}


@pytest.mark.parametrize("items", [1, 100])
def test_nothing_new_is_begun_after_one_has_failed(items: int) -> None:
    begun: list[int] = []

    def fails(item: int) -> None:
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match="^0$"):
        list(map_in_order(fails, range(items)))
    assert len(begun) <= cores() + 1
