"""The workspaces of releases: vectors in the store and computed by the engine's tasks, or held in memory and kept by name in the store."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from dpdist.arrays.array_workspace import Filling, InMemory, ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import FLOAT, ArrayVector, Vector, batches, to_array
from dpdist.arrays.transpose_passes import LARGEST_SHARDS, Exchange, Target, TransformPass, cut
from dpdist.engine import Engine
from dpdist.errors import StoreError
from dpdist.operators import Matrix
from dpdist.storage.array_store import ArrayPlan, Store, StoredArray, StoredPart
from dpdist.storage.leases import RECORD

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
        line_offset: the first line that the objects hold.
    """

    tiles: tuple[Tiles, ...]
    name: str
    digests: tuple[str, ...]
    line_offset: int = 0

    def read(self, store: Store, number: int, start: int, stop: int, *, among: slice = slice(None)) -> Matrix:
        """Lines start..stop, which are a range of that number, of all tasks or of some; each tile is checked."""
        size, tiles = len(self.tiles), self.tiles[among]
        offset = number * size * DIGEST_BYTES
        tile_digests = store.get_block(self.name, (size, DIGEST_BYTES), np.uint8, self.digests[number], start=offset)
        tile_rows = np.empty((stop - start, sum(tile.lines for tile in tiles), *tiles[0].rest), dtype=tiles[0].dtype)
        stored_parts = (
            StoredPart(
                f"{tile.name}/values",
                (stop - start, tile.lines, *tile.rest),
                tile.dtype,
                digest.tobytes().hex(),
                (start - self.line_offset) * tile.line_bytes,
            )
            for tile, digest in zip(tiles, tile_digests[among], strict=True)
        )
        column_start = 0
        for block in store.get_blocks(stored_parts):
            tile_rows[:, column_start : column_start + block.shape[1]] = block
            column_start += block.shape[1]
        return tile_rows


@dataclass(frozen=True)
class PassOutput:
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
        group, index_in_group = divmod(number, self.slabs_each)
        return self.groups[group].read(store, index_in_group, start, stop)


WrittenTiles = tuple[Tiles, bytes]
"""What a task wrote, and the digests of its tiles, one after the other."""


def _gather_tiles(store: Store, name: str, written: Sequence[WrittenTiles], *, line_offset: int = 0) -> GatheredTiles:
    """What tasks wrote, the digests of all tiles put together by the ranges of lines that they are of."""
    digests = [np.frombuffer(digest_bytes, dtype=np.uint8).reshape(-1, DIGEST_BYTES) for _, digest_bytes in written]
    rows = np.stack(digests, axis=1)
    store.put_values(name, rows)
    row_digests = tuple(hashlib.sha256(row.data).hexdigest() for row in rows)
    return GatheredTiles(tuple(tiles for tiles, _ in written), name, row_digests, line_offset)


def _group_merged_tiles(store: Store, folder: str, exchange: Exchange, merged: Sequence[WrittenTiles]) -> PassOutput:
    """What merging tasks wrote, group after group of slabs."""
    merges = exchange.merges // len(exchange.groups)
    groups = [
        _gather_tiles(store, f"{folder}/{i}/all", merged[i * merges : (i + 1) * merges], line_offset=first_line)
        for i, (first_line, _) in enumerate(exchange.ranges)
    ]
    return PassOutput(folder, tuple(groups), exchange.slabs_together)


def _write_tiles(
    store: Store,
    reading: Callable[[int, int, int], Matrix],
    apply: Callable[[int, Matrix], Matrix],
    ranges: Sequence[tuple[int, int]],
    task: tuple[str, int, int, int],
) -> WrittenTiles:
    """What a task of a pass makes of its slab, written as one object, with a digest for every range of lines of the next pass."""
    name, number, start, stop = task
    return _write_or_load(store, name, ranges, lambda: apply(start, reading(number, start, stop)))


def _merge_tiles(store: Store, tiles: GatheredTiles, exchange: Exchange, task: tuple[str, int, int, int]) -> WrittenTiles:
    """What some tasks wrote for a group of neighbouring slabs, written as one object, with a digest for every slab."""
    name, group, first_tile, last_tile = task
    low, high = exchange.ranges[group]
    slabs = [(start - low, stop - low) for start, stop in exchange.groups[group]]
    among = slice(first_tile, last_tile)
    return _write_or_load(store, name, slabs, lambda: tiles.read(store, group, low, high, among=among))


def _write_or_load(store: Store, name: str, ranges: Sequence[tuple[int, int]], make: Callable[[], Any]) -> WrittenTiles:
    """An array written as one object, or what a task that ran before wrote; a record says what that is."""
    record = f"{name}/{RECORD}"
    if store.has_document(record):
        document = store.read_document(record)
        return Tiles(name, document["lines"], tuple(document["rest"]), document["dtype"]), bytes.fromhex(document["digests"])
    array = np.ascontiguousarray(make())
    digests = b"".join(hashlib.sha256(array[range_start:range_stop].data).digest() for range_start, range_stop in ranges)
    store.put_values(f"{name}/values", array)
    tiles = Tiles(name, array.shape[1], array.shape[2:], array.dtype.str)
    store.write_document(record, {**asdict(tiles), "digests": digests.hex()})
    return tiles, digests


_T = TypeVar("_T")


@dataclass(frozen=True)
class StoredVector:
    """A stored array of one axis; what is read is checked against its digests."""

    store: Store
    array: StoredArray
    bytes_each: int = 0

    @property
    def size(self) -> int:
        """Number of values."""
        return self.array.plan.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(self.array.plan.dtype)

    @property
    def digest(self) -> str:
        """SHA-256 over the values, however they came there."""
        return self.array.content_digest

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        return self.store.read_rows(self.array, start, stop)


class StoreWorkspace:
    """Vectors are written to the store, shard by shard, by the tasks of the engine."""

    in_memory = False

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store, self.engine, self._folder = store, engine, store.scratch()

    @property
    def memory_bytes(self) -> int:
        """What one task may use."""
        return self.engine.memory_bytes

    @property
    def part_values(self) -> int:
        """Values that the function of ``fold`` gets at a time."""
        return self.store.sizes.part_values

    def write(self, vector: Vector, name: str | None = None, facts: Mapping[str, Any] | None = None) -> StoredVector:
        """The stored vector, computing it if it is missing.

        If several processes compute it at once, and their last bits differ, the first one stored wins.
        """
        if isinstance(vector, ArrayVector):
            values = to_array(vector)
            if name is None:
                return StoredVector(self.store, self.store.put(self._fresh(), values))
            return StoredVector(self.store, self.store.put_if_absent(name, values, dict(facts or {})))
        if name is None:
            return StoredVector(self.store, self._materialize(vector, self._fresh(), {}))
        if not self.store.exists(name):
            try:
                self._materialize(vector, name, dict(facts or {}))
            except StoreError:
                if not self.store.exists(name):
                    raise
        self.store.sync(name)
        return StoredVector(self.store, self.store.open(name))

    def vector(self, array: StoredArray) -> StoredVector:
        """A stored array as a vector."""
        return StoredVector(self.store, array)

    def find_vector(self, name: str) -> tuple[Vector, Mapping[str, Any]] | None:
        """The vector stored under a name and its facts, None if there is none."""
        if not self.store.exists(name):
            return None
        self.store.sync(name)
        array = self.store.open(name)
        return StoredVector(self.store, array), array.facts

    def fold(
        self, function: Callable[..., _T], *vectors: Vector, ranges: Sequence[tuple[int, int]] | None = None
    ) -> list[_T]:
        """function(start, one range of every vector), in their order; a task reads neighbouring ranges at once."""
        size = max((vector.size for vector in vectors), default=0)
        all_ranges = list(batches(size, self.part_values)) if ranges is None else ranges
        ranges_per_task, tasks = self._ranges_per_task(vectors, len(all_ranges)), list[list[tuple[int, int]]]()
        for start, stop in all_ranges:
            if not tasks or len(tasks[-1]) == ranges_per_task or tasks[-1][-1][1] != start:
                tasks.append([])
            tasks[-1].append((start, stop))
        return list(chain.from_iterable(self.engine.map(partial(_fold_ranges, function, vectors), tasks)))

    def _ranges_per_task(self, vectors: Sequence[Vector], range_count: int) -> int:
        """Parts that a task reads at once: as much as a shard of what passes write, as far as memory and idle workers allow.

        Shards are read whole, so that each byte is read twice at most where they are no larger.
        """
        sizes = self.store.sizes
        shard = LARGEST_SHARDS * sizes.shard_bytes // (FLOAT.itemsize * self.part_values)
        part_bytes = self.part_values * sum(vector.dtype.itemsize + vector.bytes_each for vector in vectors)
        return max(1, min(shard, self.memory_bytes // 8 // part_bytes, math.ceil(range_count / self.engine.workers)))

    def run_passes(
        self,
        source: Vector,
        sides: Sequence[TransformPass],
        targets: Sequence[Target],
        report_progress: ProgressCallback | None = None,
    ) -> list[Vector]:
        """Vectors made of one in two or more passes.

        A pass writes what it makes of a slab as one object, of which every task of the next one gathers some lines, its tile. Where that
        would be too many requests, tasks between the two put neighbouring tiles together (``Exchange``). Each object and each target
        shard has one writer, so tasks may run twice and anywhere. Results do not depend on how slabs are cut as long as
        the sides treat every line by itself.

        Raises: OutOfMemory when a single line does not fit.
        """
        divided = cut(source, sides, targets, self.memory_bytes, self.store.sizes)
        slabs, exchanges = divided.slabs, divided.exchanges
        steps = sum(len(slab_ranges) for slab_ranges in slabs) + sum(exchange.merges for exchange in exchanges)
        finished_steps = 0

        def report_step(completed: int, _: int) -> None:
            if report_progress is not None:
                report_progress(finished_steps + completed, steps)

        store, folder = self.store, self._fresh()
        handed: PassOutput | None = None
        for number, (transform_side, slab_ranges, exchange) in enumerate(
            zip(sides[:-1], slabs[:-1], exchanges, strict=True)
        ):
            folder_name = f"{folder}/{number}"
            reading = partial(_read_slab, store, source, source.size // transform_side.line_count, handed)
            writing = partial(_write_tiles, store, reading, transform_side.apply, exchange.ranges)
            tasks = [(f"{folder_name}/{i}", i, start, stop) for i, (start, stop) in enumerate(slab_ranges)]
            written = _gather_tiles(
                store, f"{folder_name}/all", self.engine.map(writing, tasks, report_progress=report_step)
            )
            finished_steps += len(slab_ranges)
            if handed is not None:
                store.delete(handed.folder)
            handed = PassOutput(folder_name, (written,), len(slabs[number + 1]))
            if exchange.merges:
                merging = partial(_merge_tiles, store, written, exchange)
                merged = self.engine.map(merging, exchange.merged(f"{folder_name}-merged"), report_progress=report_step)
                finished_steps += exchange.merges
                store.delete(folder_name)
                handed = _group_merged_tiles(store, f"{folder_name}-merged", exchange, merged)
        plans = [self._plan_target(target, sides[-1].line_count, divided.shard_lines) for target in targets]
        for plan in plans:
            store.begin(plan)
        reading = partial(_read_slab, store, source, 0, handed)
        finishing = partial(_write_targets, store, reading, plans, sides[-1].apply, divided.shard_lines)
        numbered = [(i, start, stop) for i, (start, stop) in enumerate(slabs[-1])]
        digests = self.engine.map(finishing, numbered, report_progress=report_step)
        store.delete(folder)
        return [
            StoredVector(
                store, store.finish(plan, [shard_digest for row in digests for shard_digest in row[i]], dict(target.facts))
            )
            for i, (plan, target) in enumerate(zip(plans, targets, strict=True))
        ]

    def fill(
        self, names: Sequence[str], size: int, rows: int, function: Filling, report_progress: ProgressCallback | None = None
    ) -> list[Vector]:
        """float64 vectors, one a name; a task computes the same shard of each."""
        plans = [self.store.plan(name, (size,), np.float64, shard_rows=rows) for name in names]
        for plan in plans:
            self.store.begin(plan)
        task = partial(_fill_shard, self.store, plans, function)
        digests = self.engine.map(task, list(range(plans[0].shards)), report_progress=report_progress)
        arrays = [self.store.finish(plan, [row[i] for row in digests]) for i, plan in enumerate(plans)]
        return [StoredVector(self.store, array) for array in arrays]

    def largest(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """One computation that wants all cores, on the largest worker."""
        return self.engine.on_largest_worker(function, *arguments, needed_bytes=needed_bytes)

    @contextmanager
    def scratch(self) -> Iterator[Workspace]:
        """A workspace of the same store; when nothing fails, its unnamed vectors are deleted at the end."""
        inner = StoreWorkspace(self.store, self.engine)
        yield inner
        self.store.delete(inner._folder)

    def delete(self, *vectors: Vector) -> None:
        """Delete unnamed vectors of this workspace."""
        for vector in vectors:
            if isinstance(vector, StoredVector) and vector.array.name.startswith(self._folder):
                self.store.delete(vector.array.name)

    def _fresh(self) -> str:
        return f"{self._folder}/{uuid.uuid4().hex[:16]}"

    def _materialize(self, vector: Vector, name: str, facts: dict[str, Any]) -> StoredArray:
        plan = self.store.plan(name, (vector.size,), vector.dtype)
        self.store.begin(plan)
        digests = self.engine.map(partial(_write_shard, self.store, plan, vector), list(range(plan.shards)))
        return self.store.finish(plan, digests, facts)

    def _plan_target(self, target: Target, line_count: int, lines_a_shard: int) -> ArrayPlan:
        return self.store.plan(
            target.name or self._fresh(),
            (line_count * target.line_size,),
            target.dtype,
            shard_rows=lines_a_shard * target.line_size,
            compressed=target.compressed,
        )


class KeepingWorkspace(InMemory):
    """Everything is held in memory; what has a name is kept in the store, too."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, vector: Vector, name: str | None = None, facts: Mapping[str, Any] | None = None) -> Vector:
        """The vector, computed; under a name the one that is kept there, of which the first one stored wins."""
        held_vector = super().write(vector)
        if name is None:
            return held_vector
        return ArrayVector(
            self.store.read_array(self.store.put_if_absent(name, held_vector.read(0, held_vector.size), dict(facts or {})))
        )

    def find_vector(self, name: str) -> tuple[Vector, Mapping[str, Any]] | None:
        """The vector kept under a name and its facts, None if there is none."""
        if not self.store.exists(name):
            return None
        self.store.sync(name)
        array = self.store.open(name)
        return ArrayVector(self.store.read_array(array)), array.facts


def _fold_ranges(function: Callable[..., _T], vectors: tuple[Vector, ...], ranges: Sequence[tuple[int, int]]) -> list[_T]:
    first_start, last_stop = ranges[0][0], ranges[-1][1]
    values = [vector.read(first_start, last_stop) for vector in vectors]
    return [
        function(start, *(vector_values[..., start - first_start : stop - first_start] for vector_values in values))
        for start, stop in ranges
    ]


def _fill_shard(store: Store, plans: Sequence[ArrayPlan], function: Filling, shard: int) -> list[str]:
    columns = function(*plans[0].bounds(shard))
    return [store.write_shard(plan, shard, column) for plan, column in zip(plans, columns, strict=True)]


def _write_shard(store: Store, plan: ArrayPlan, vector: Vector, shard: int) -> str:
    return store.write_shard(plan, shard, vector.read(*plan.bounds(shard)))


def _read_slab(
    store: Store, source: Vector, width: int, handed: PassOutput | None, number: int, start: int, stop: int
) -> Matrix:
    """Lines start..stop of the source, or of what the pass before wrote."""
    if handed is None:
        return source.read(start * width, stop * width).reshape(stop - start, width)
    return handed.slab(store, number, start, stop)


def _write_targets(
    store: Store,
    reading: Callable[[int, int, int], Matrix],
    plans: list[ArrayPlan],
    apply: Callable[[int, Matrix], Sequence[Matrix]],
    shard_lines: int,
    task: tuple[int, int, int],
) -> list[list[str]]:
    """The digests of the shards that a slab is, one list a target."""
    number, start, stop = task
    target_values, digests = apply(start, reading(number, start, stop)), []
    for plan, values in zip(plans, target_values, strict=True):
        value_lines = values.reshape(stop - start, -1)
        shards = range(start, stop, shard_lines)
        digests.append(
            [
                store.write_shard(
                    plan,
                    shard_start // shard_lines,
                    value_lines[shard_start - start : shard_start - start + shard_lines].reshape(-1),
                )
                for shard_start in shards
            ]
        )
    return digests
