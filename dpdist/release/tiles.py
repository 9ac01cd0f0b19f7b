"""What passes over a stored vector exchange: a task writes one object, of which each slab of the next pass reads one tile.

The digests of the tiles stand in an object of their own, by the slabs that read them: neither the scheduler nor a task carries them all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpdist.arrays.passes import Exchange
from dpdist.machine.leases import RECORD
from dpdist.machine.store import Store, StoredPart
from dpdist.operators import Matrix

DIGEST_BYTES = 32


@dataclass(frozen=True)
class Tiles:
    """What one task wrote as one object: an array (lines of the next pass, lines, *rest), some of them for each slab of that pass."""

    name: str
    lines: int
    rest: tuple[int, ...]
    dtype: str

    @property
    def line_bytes(self) -> int:
        """Bytes of a line of the next pass."""
        return np.dtype(self.dtype).itemsize * self.lines * math.prod(self.rest)


@dataclass(frozen=True)
class GatheredTiles:
    """What tasks wrote for the same lines of the next pass, one beside the other, and where the digests of its tiles are.

    Attributes:
        name: of the object that holds them, those of one range of lines after those of another.
        digests: of each range's part of that object.
        first: the first line that the objects hold.
    """

    tiles: tuple[Tiles, ...]
    name: str
    digests: tuple[str, ...]
    first: int = 0

    def read(self, store: Store, number: int, start: int, stop: int, *, among: slice = slice(None)) -> Matrix:
        """Lines start..stop, which are a range of that number, of all tasks or of some; each tile is checked."""
        size, tiles = len(self.tiles), self.tiles[among]
        told = store.get_block(
            self.name, (size, DIGEST_BYTES), np.uint8, self.digests[number], start=number * size * DIGEST_BYTES
        )
        out = np.empty((stop - start, sum(tile.lines for tile in tiles), *tiles[0].rest), dtype=tiles[0].dtype)
        wanted = (
            StoredPart(
                f"{tile.name}/values",
                (stop - start, tile.lines, *tile.rest),
                tile.dtype,
                digest.tobytes().hex(),
                (start - self.first) * tile.line_bytes,
            )
            for tile, digest in zip(tiles, told[among], strict=True)
        )
        first = 0
        for block in store.get_blocks(wanted):
            out[:, first : first + block.shape[1]] = block
            first += block.shape[1]
        return out


@dataclass(frozen=True)
class Handed:
    """All that one pass hands to the next.

    Attributes:
        folder: that holds it.
        groups: what was written for each group of neighbouring slabs.
        slabs_each: slabs in a group.
    """

    folder: str
    groups: tuple[GatheredTiles, ...]
    slabs_each: int

    def slab(self, store: Store, number: int, start: int, stop: int) -> Matrix:
        """The lines start..stop, which are a slab."""
        group, within = divmod(number, self.slabs_each)
        return self.groups[group].read(store, within, start, stop)


Written = tuple[Tiles, bytes]
"""What a task wrote, and the digests of its tiles, one after the other."""


def gathered(store: Store, name: str, written: Sequence[Written], *, first: int = 0) -> GatheredTiles:
    """What tasks wrote, the digests of all tiles put together by the ranges of lines that they are of."""
    digests = [np.frombuffer(each, dtype=np.uint8).reshape(-1, DIGEST_BYTES) for _, each in written]
    rows = np.stack(digests, axis=1)
    store.put_values(name, rows)
    told = tuple(hashlib.sha256(row.data).hexdigest() for row in rows)
    return GatheredTiles(tuple(tiles for tiles, _ in written), name, told, first)


def handed_in_groups(store: Store, folder: str, exchange: Exchange, merged: Sequence[Written]) -> Handed:
    """What merging tasks wrote, group after group of slabs."""
    each = exchange.merges // len(exchange.groups)
    groups = [
        gathered(store, f"{folder}/{i}/all", merged[i * each : (i + 1) * each], first=lines[0])
        for i, lines in enumerate(exchange.ranges)
    ]
    return Handed(folder, tuple(groups), exchange.slabs_together)


def write_tiles(
    store: Store,
    reading: Callable[[int, int, int], Matrix],
    apply: Callable[[int, Matrix], Matrix],
    ranges: Sequence[tuple[int, int]],
    task: tuple[str, int, int, int],
) -> Written:
    """What a task of a pass makes of its slab, written as one object, with a digest for every range of lines of the next pass."""
    name, number, start, stop = task
    return _written_once(store, name, ranges, lambda: apply(start, reading(number, start, stop)))


def merge_tiles(store: Store, tiles: GatheredTiles, exchange: Exchange, task: tuple[str, int, int, int]) -> Written:
    """What some tasks wrote for a group of neighbouring slabs, written as one object, with a digest for every slab."""
    name, group, first, last = task
    low, high = exchange.ranges[group]
    slabs = [(start - low, stop - low) for start, stop in exchange.groups[group]]
    return _written_once(store, name, slabs, lambda: tiles.read(store, group, low, high, among=slice(first, last)))


def _written_once(store: Store, name: str, ranges: Sequence[tuple[int, int]], make: Callable[[], Any]) -> Written:
    """An array written as one object, or what a task that ran before wrote; a record says what that is."""
    record = f"{name}/{RECORD}"
    if store.has_document(record):
        kept = store.read_document(record)
        return Tiles(name, kept["lines"], tuple(kept["rest"]), kept["dtype"]), bytes.fromhex(kept["digests"])
    made = np.ascontiguousarray(make())
    digests = b"".join(hashlib.sha256(made[first:last].data).digest() for first, last in ranges)
    store.put_values(f"{name}/values", made)
    done = Tiles(name, made.shape[1], made.shape[2:], made.dtype.str)
    store.write_document(record, {**asdict(done), "digests": digests.hex()})
    return done, digests
