"""Named, write-once arrays in Zarr v3, on a local folder or an object store. Only records.histograms reads other Zarr arrays.

An array is split along its first axis into shards. A shard is one chunk and one file, written whole, by one writer; its
digest is taken over the raw values. The array exists once its record (a JSON document with all shard digests) is written, which happens
last: a half-written array is never taken for a whole one, and a block that was altered is found when it is read.
"""

from __future__ import annotations

import json
import math
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import StoreError
from dpdist.process.allocator import freed_memory_kept
from dpdist.process.threads import map_in_order
from dpdist.size_limits import SIZES, Sizes
from dpdist.storage import leases
from dpdist.storage.array_reference import FUNCTIONS, Array, ArrayPlan, StoredArray, StoredPart, digest_of
from dpdist.storage.documents import Documents
from dpdist.storage.leases import RECORD, Lease
from dpdist.storage.objects import Missing

HEAD = 16
"""Bytes of a Blosc frame's head: those from 4 to 8 say how many the values take, those from 12 to 16 how many the frame takes."""
COMPRESSOR = "lz4"
LEVEL = 5
LEAST_CODED = 2**16
"""Bytes from which objects are compressed: to import the codec for fewer takes longer than to write them as they are."""


def description(plan: ArrayPlan) -> dict[str, Any]:
    """The zarr.json of an array, for whoever reads it with Zarr: to import that takes longer than a small release."""
    kind = np.dtype(plan.dtype)
    codecs: list[dict[str, Any]] = [{"name": "bytes"}]
    if kind.itemsize > 1:
        codecs[0]["configuration"] = {"endian": "big" if plan.dtype.startswith(">") else "little"}
    if plan.framed:
        shuffle = "bitshuffle" if _by_bits(plan.dtype) else "shuffle"
        taken = {"typesize": kind.itemsize, "cname": COMPRESSOR, "clevel": LEVEL, "shuffle": shuffle, "blocksize": 0}
        codecs.append({"name": "blosc", "configuration": taken})
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": plan.shape,
        "data_type": kind.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": plan.chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": [0.0, 0.0] if kind.kind == "c" else np.zeros((), kind).item(),
        "codecs": codecs,
        "attributes": {},
        "storage_transformers": [],
    }


def _by_bits(dtype: str) -> bool:
    """Whether bits of a kind lie together, as for whole numbers.

    The signs of noisy values then do: they take 0.61 of their bytes in place of 0.76 (benchmarks/noise_stages.py).
    """
    return np.dtype(dtype).kind == "i"


def encoded(plan: ArrayPlan, block: NDArray[Any]) -> Any:
    """The object of a shard, padded with zeros as Zarr does; None for zeros, which it does not write."""
    block = np.ascontiguousarray(block)  # the codec takes values in the order in which they lie
    if not block.reshape(-1).view(np.uint8).any():
        return None
    if block.shape[0] < plan.shard_rows:
        block, rows = np.zeros(plan.chunk, dtype=block.dtype), block
        block[: rows.shape[0]] = rows
    if not plan.framed:
        return block.reshape(-1).view(np.uint8).data
    import numcodecs

    shuffle = numcodecs.Blosc.BITSHUFFLE if _by_bits(plan.dtype) else numcodecs.Blosc.SHUFFLE
    return bytes(numcodecs.Blosc(COMPRESSOR, LEVEL, shuffle).encode(block))


def decoded(plan: ArrayPlan, data: Any) -> NDArray[Any]:
    """The values of a shard's object, with what pads them.

    Raises: ValueError, RuntimeError when it is not whole, or of another number of bytes: the codec reads beyond the end of a cut one.
    """
    if not plan.framed:
        return np.frombuffer(data, dtype=plan.dtype).reshape(plan.chunk).copy()
    import numcodecs

    values = np.empty(plan.chunk, dtype=plan.dtype)
    head = bytes(memoryview(data)[:HEAD])
    sizes = int.from_bytes(head[4:8], "little"), int.from_bytes(head[12:16], "little")
    if sizes != (values.nbytes, len(data)):
        raise ValueError("not the frame of such an array")
    numcodecs.Blosc().decode(data, values.reshape(-1))
    return values


__all__ = ["Array", "ArrayPlan", "Store", "StoredArray", "StoredPart"]
_REMEDY = "restore it from a backup or, unless it is the measurement of a committed release, delete the array and run again"


class Store(Documents):
    """Arrays and small documents under one root.

    Args:
        location: a folder, or an object store URL such as ``s3://bucket/prefix`` (credentials from the environment).
        sizes: of shards, and of what is done at once with stored arrays.
        lease: of the run that sent this handle to a worker; default: this handle takes one of its own when it writes.
        sent: as in ``Documents``.
    """

    def __init__(self, location: str | Path, sizes: Sizes = SIZES, *, lease: str | None = None, sent: bool = False) -> None:
        super().__init__(location, sent=sent)
        self.sizes = sizes
        self._given_lease = lease
        self._own_lease: Lease | None = None
        self._taking = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[str, Sizes, str | None], Store], tuple[str, Sizes, str | None]]:
        return _sent, (self.location, self.sizes, self._given_lease or (self._own_lease.id if self._own_lease else None))

    @property
    def lease(self) -> str:
        """The lease that names this run's scratch and attempts; taken when it is first asked for, ended by ``close`` or with this."""
        if self._given_lease is not None:
            return self._given_lease
        with self._taking:
            if self._own_lease is None or self._own_lease.pid != os.getpid():
                self._own_lease = Lease(self.location)
                weakref.finalize(self, self._own_lease.leave)
            return self._own_lease.id

    def close(self) -> None:
        """End the lease that this handle has taken, and wait until what it names is deleted. Whoever writes later takes another one."""
        with self._taking:
            own_lease, self._own_lease = self._own_lease, None
        if own_lease is not None:
            own_lease.end()

    def plan(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        *,
        shard_rows: int | None = None,
        compressed: bool = True,
        hashed: str = "sha256",
    ) -> ArrayPlan:
        """A plan whose shards hold about ``sizes.shard_bytes``, compressed from ``LEAST_CODED`` bytes on."""
        kind = np.dtype(dtype)
        row_bytes = kind.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        rows = min(shard_rows or max(1, self.sizes.shard_bytes // max(1, row_bytes)), max(1, int(shape[0])))
        return ArrayPlan(
            name,
            tuple(int(s) for s in shape),
            kind.str,
            rows,
            f"{self.lease}-{uuid.uuid4().hex[:12]}",
            compressed and rows * row_bytes >= LEAST_CODED,
            hashed,
        )

    def begin(self, plan: ArrayPlan) -> None:
        """Make room for an array, in a folder of its own: whether it becomes the array is decided by ``finish``."""
        if not _is_scratch(plan):
            leases.record_attempt(self, plan.attempt, plan.name)
        self.storage.write(f"{_folder(plan)}/zarr.json", json.dumps(description(plan)).encode())

    def write_shard(self, plan: ArrayPlan, shard: int, block: Array) -> str:
        """Write one whole shard; returns its digest.

        Raises: StoreError when the block is not exactly the shard: partial writes lose data silently in Zarr.
        """
        start, stop = plan.bounds(shard)
        expected = (stop - start, *plan.shape[1:])
        if not 0 <= shard < plan.shards or block.shape != expected or np.dtype(block.dtype).str != plan.dtype:
            raise StoreError(
                f"array {plan.name!r}: a writer owns whole shards; shard {shard} is {expected} of {plan.dtype}, "
                f"found {block.shape} of {np.dtype(block.dtype).str}"
            )
        data, name = encoded(plan, block), _chunk(plan, shard)
        if data is None:  # of zeros there is no object, nor an earlier one
            self.storage.delete([name])
        else:
            self.storage.write(name, data)
        return digest_of(block, plan.hashed)

    def finish(self, plan: ArrayPlan, shard_digests: Sequence[str], facts: dict[str, Any] | None = None) -> StoredArray:
        """Declare an array whole, by writing its record.

        A writer that lost a race returns the winner's array. Raises: StoreError when that holds other content.
        """
        if len(shard_digests) != plan.shards:
            raise StoreError(f"array {plan.name!r} has {plan.shards} shards, digests of {len(shard_digests)} were given")
        stored = StoredArray(plan, tuple(shard_digests), json.loads(json.dumps(facts or {})))
        record = {**asdict(plan), "shard_digests": stored.shard_digests, "facts": stored.facts}
        if not _is_scratch(plan):
            self.sync(plan.name)  # a record that survives a power loss never stands for blocks that did not
        if not self.create_document(f"{plan.name}/{RECORD}", record):
            winner = self.open(plan.name)
            if winner.plan.attempt != plan.attempt:
                self.delete(f"{plan.name}/{plan.attempt}")
                leases.forget_attempt(self, plan.attempt)
            if winner.content_digest != stored.content_digest:
                raise _other_content(plan.name)
            return winner
        if not _is_scratch(plan):
            self._confirm(plan)
        return stored

    def _confirm(self, plan: ArrayPlan) -> None:
        """Check that no other run swept the blocks before their record was written. Raises: StoreError when one did."""
        if not leases.holds_lease(self, plan.attempt.partition("-")[0]):
            self.delete(plan.name)
            raise StoreError(
                f"array {plan.name!r}: this run stood still for {leases.STRETCH_SECONDS:g} seconds, so another run took it for dead "
                "and deleted what it was writing; run again"
            )
        leases.forget_attempt(self, plan.attempt)

    def put(self, name: str, array: Array, facts: dict[str, Any] | None = None) -> StoredArray:
        """Store an array that fits in memory; if the same content is already whole under this name, that is returned."""
        plan = self.plan(name, array.shape, array.dtype)
        if self.exists(name):
            stored = self.open(name)
            shard_blocks = (array[slice(*plan.bounds(i))] for i in range(plan.shards))
            if stored.shard_digests != tuple(digest_of(block, stored.plan.hashed) for block in shard_blocks):
                raise _other_content(name)
            return stored
        self.begin(plan)
        digests = [self.write_shard(plan, i, array[slice(*plan.bounds(i))]) for i in range(plan.shards)]
        return self.finish(plan, digests, facts)

    def put_if_absent(self, name: str, array: Array, facts: dict[str, Any] | None = None) -> StoredArray:
        """Store an array unless one is whole under this name; returns the one that is, whatever it holds.

        For results that may differ in their last bits between equally good computations: the first is the one.
        """
        try:
            stored = self.open(name) if self.exists(name) else self.put(name, array, facts)
        except StoreError:
            if not self.exists(name):
                raise
            stored = self.open(name)
        self.sync(name)
        return stored

    def exists(self, name: str) -> bool:
        """Whether the array is whole."""
        return self.has_document(f"{name}/{RECORD}")

    def open(self, name: str) -> StoredArray:
        """The reference to a whole array. Raises: StoreError when it is missing, half-written or its record altered."""
        record = self.read_document(f"{name}/{RECORD}")
        try:
            facts, digests = record.pop("facts"), tuple(record.pop("shard_digests"))
            plan = ArrayPlan(**{**record, "shape": tuple(record["shape"])})
        except (KeyError, TypeError):
            plan = None
        if plan is None or plan.name != name or len(digests) != plan.shards or plan.hashed not in FUNCTIONS:
            raise StoreError(f"array {name!r}: its record was altered; {_REMEDY}")
        return StoredArray(plan, digests, facts)

    def read_shard(self, stored: StoredArray, shard: int) -> Array:
        """One shard, checked against its digest."""
        start, stop = stored.plan.bounds(shard)
        try:
            block = self._shard(stored.plan, shard)
        except Exception as error:  # noqa: BLE001 - codecs raise many types for a damaged block
            raise StoreError(
                f"array {stored.name!r}: shard {shard} cannot be read ({type(error).__name__}); {_REMEDY}"
            ) from None
        matches_plan = block.shape == (stop - start, *stored.plan.shape[1:]) and block.dtype.str == stored.plan.dtype
        if not matches_plan or digest_of(block, stored.plan.hashed) != stored.shard_digests[shard]:
            raise StoreError(f"array {stored.name!r}: shard {shard} was truncated or altered; {_REMEDY}")
        return block

    def _shard(self, plan: ArrayPlan, shard: int) -> Array:
        """The values of a shard, not checked."""
        start, stop = plan.bounds(shard)
        try:
            data = self.storage.read_bytes(_chunk(plan, shard))
        except Missing:  # as Zarr has it: blocks of zeros are not written
            return np.zeros((stop - start, *plan.shape[1:]), dtype=plan.dtype)
        return decoded(plan, data)[: stop - start]

    def read_array(self, stored: StoredArray) -> Array:
        """The whole array, checked; for those that fit in memory."""
        values = np.empty(stored.plan.shape, dtype=stored.plan.dtype)
        for start, block in self.blocks(stored):
            values[start : start + block.shape[0]] = block
        return values

    def read_rows(self, stored: StoredArray, start: int, stop: int) -> Array:
        """Rows start..stop, checked: every shard that holds one of them is read whole."""
        begin = start // stored.plan.shard_rows
        if stop > start and (start, stop) == stored.plan.bounds(begin):
            return self.read_shard(stored, begin)
        rows = np.empty((stop - start, *stored.plan.shape[1:]), dtype=stored.plan.dtype)
        for shard in range(start // stored.plan.shard_rows, -(-stop // stored.plan.shard_rows)):
            begin, end = stored.plan.bounds(shard)
            low, high = max(begin, start), min(end, stop)
            rows[low - start : high - start] = self.read_shard(stored, shard)[low - begin : high - begin]
        return rows

    def put_values(self, name: str, block: Array) -> None:
        """Write raw values as one object, for scratch that is read back soon."""
        self.storage.write(name, np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)

    def put_block(self, name: str, block: Array) -> str:
        """Write raw values as one object; returns their digest."""
        self.put_values(name, block)
        return digest_of(block)

    def get_block(self, name: str, shape: Sequence[int], dtype: Any, digest: str, *, start: int = 0) -> Array:
        """The values of ``put_block`` or ``put_values``, or those of a part that begins at byte ``start``, checked.

        Raises: StoreError when they are missing or altered.
        """
        values = math.prod(shape)
        data = self.get_values(name, start, np.dtype(dtype).itemsize * values)
        block: Array = np.frombuffer(data, dtype=dtype)
        if block.size != values or digest_of(block) != digest:
            raise StoreError(f"{name!r} in the store {self.location} was truncated or altered; run again")
        return block.reshape(tuple(shape))

    def get_blocks(self, stored_parts: Iterable[StoredPart]) -> Iterator[Array]:
        """The values of some parts, in order, each checked as ``get_block`` does; a few are read at once."""
        return map_in_order(
            lambda stored_part: self.get_block(
                stored_part.name, stored_part.shape, stored_part.dtype, stored_part.digest, start=stored_part.start
            ),
            stored_parts,
        )

    def get_values(self, name: str, start: int, length: int) -> memoryview:
        """Bytes of an object, not checked: for those that prove themselves. Raises: StoreError when they are missing."""
        try:
            return memoryview(self.storage.read_range(name, start, length))
        except Missing:
            raise Missing(f"{name!r} is not in the store {self.location}; run again") from None

    def check(self, stored: StoredArray) -> None:
        """Read every shard against its digest. Raises: StoreError for a missing, truncated or altered one."""
        with freed_memory_kept():
            for _ in map_in_order(lambda shard: self.read_shard(stored, shard).size, range(stored.plan.shards)):
                pass

    def blocks(self, stored: StoredArray) -> Iterator[tuple[int, Array]]:
        """Shard after shard, with the number of the first row."""
        for shard in range(stored.plan.shards):
            yield stored.plan.bounds(shard)[0], self.read_shard(stored, shard)

    def delete(self, name: str, *, delete_first: Sequence[str] = (RECORD,)) -> None:
        """Remove a document, or everything below a folder: the records of arrays first."""
        super().delete(name, delete_first=delete_first)

    def scratch(self) -> str:
        """A folder name of this caller's own, for arrays that it deletes when it is done."""
        return f"scratch/{self.lease}/{uuid.uuid4().hex[:16]}"

    def sweep(self) -> int:
        """Delete the scratch and the half-written arrays of runs that died. Returns how many runs that were."""
        return leases.sweep(self, self.lease)


def _sent(location: str, sizes: Sizes, lease: str | None) -> Store:
    return Store(location, sizes, lease=lease, sent=True)


def _folder(plan: ArrayPlan) -> str:
    return f"{plan.name}/{plan.attempt}"


def _chunk(plan: ArrayPlan, shard: int) -> str:
    """The object of a shard, by Zarr's default names of chunks."""
    return f"{_folder(plan)}/c/{'/'.join(map(str, (shard, *(0 for _ in plan.shape[1:]))))}"


def _is_scratch(plan: ArrayPlan) -> bool:
    return plan.name.startswith("scratch/")


def _other_content(name: str) -> StoreError:
    return StoreError(f"array {name!r} is already stored with other content; an array is written once and never changed")
