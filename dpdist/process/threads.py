"""Threads of this process, for work that leaves the interpreter's lock: noise, digests, codecs, sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from dpdist.process.resource_limits import cores

_T = TypeVar("_T")
_Item = TypeVar("_Item")


def map_in_order(function: Callable[[_Item], _T], items: Iterable[_Item]) -> Iterator[_T]:
    """function of every item, in order, one a core at once; nothing new is begun after one has failed. A lone item needs no thread."""
    following = iter(items)
    first_items = list(islice(following, 2))
    if len(first_items) < 2:
        yield from map(function, first_items)
        return
    threads, following = cores(), chain(first_items, following)
    with ThreadPoolExecutor(threads) as pool:
        try:
            waiting = [pool.submit(function, item) for item in islice(following, threads + 1)]
            while waiting:
                yield waiting.pop(0).result()
                waiting += [pool.submit(function, item) for item in islice(following, 1)]
        finally:
            pool.shutdown(cancel_futures=True)
