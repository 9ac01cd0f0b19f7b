"""Named, write-once arrays in Zarr v3, on a local folder or an object store. Only records.histograms reads other Zarr arrays.

An array is split along its first axis into shards. A shard is one chunk and one file, written whole, by one writer; its
SHA-256 is taken over the raw values. The array exists once its record (a JSON document with all shard digests) is written, which happens
last: a half-written array is never taken for a whole one, and a block that was altered is found when it is read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import mmap
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import obstore
import obstore.exceptions
import obstore.store
import scipy
from numpy.typing import NDArray

from dpdist.errors import StoreError
from dpdist.machine import leases
from dpdist.machine.documents import AGAIN, Documents, reached, reason
from dpdist.machine.frames import decoded, encoded, holds_frames
from dpdist.machine.leases import RECORD, Lease
from dpdist.process.threads import in_order
from dpdist.sizes import SIZES, Sizes

Array = NDArray[Any]
_REMEDY = "restore it from a backup or, unless it is the measurement of a committed release, delete the array and run again"
MOST_CODED = 2**31 - 2**20
"""Bytes that the codec takes at once."""


@cache
def codec(dtype: str) -> Any:
    """How blocks of a type are compressed: whole numbers bit by bit.

    The signs of noisy values then lie together: they take 0.61 of their bytes in place of 0.76 (benchmarks/drawing.py beside 0.2.0).
    """
    import zarr.codecs

    whole = np.dtype(dtype).kind == "i"
    return zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle" if whole else "shuffle")


@dataclass(frozen=True)
class ArrayPlan:
    """Shape, type and sharding of an array before it is written.

    Attributes:
        shard_rows: rows (first axis) in each shard but the last.
        attempt: names the folder of this writer, and the lease of its run: writers that race for one name never touch each
            other's shards, and those of a run that died are deleted.
        compressed: whether blocks are compressed; scratch that is read back once is not.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    shard_rows: int
    attempt: str
    compressed: bool = True

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.shape[0] // self.shard_rows) if self.shape[0] else 0

    def bounds(self, shard: int) -> tuple[int, int]:
        """First row of a shard, and one past its last."""
        return shard * self.shard_rows, min(self.shape[0], (shard + 1) * self.shard_rows)


@dataclass(frozen=True)
class StoredArray:
    """A whole array: where it is, what it holds and its digest. Small: travels instead of the data."""

    plan: ArrayPlan
    shard_digests: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the store."""
        return self.plan.name

    @property
    def content_digest(self) -> str:
        """SHA-256 over shape, type and shard digests: equal values, equal digest, wherever they are stored."""
        head = json.dumps([self.plan.shape, self.plan.dtype, self.plan.shard_rows])
        return hashlib.sha256((head + "".join(self.shard_digests)).encode()).hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 over the values and the facts: all that is used of the array."""
        return hashlib.sha256((self.content_digest + json.dumps(self.facts, sort_keys=True)).encode()).hexdigest()


class Part(NamedTuple):
    """Values within an object: of what shape, type and digest, and from which byte on."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str
    start: int


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
        self._given = lease
        self._own: Lease | None = None
        self._taking = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[str, Sizes, str | None], Store], tuple[str, Sizes, str | None]]:
        return _sent, (self.location, self.sizes, self._given or (self._own.id if self._own else None))

    @property
    def lease(self) -> str:
        """The lease that names this run's scratch and attempts; taken when it is first asked for, ended with this handle."""
        if self._given is not None:
            return self._given
        with self._taking:
            if self._own is None or self._own.pid != os.getpid():
                self._own = Lease(self.location)
                weakref.finalize(self, self._own.end)
            return self._own.id

    def plan(
        self, name: str, shape: Sequence[int], dtype: Any, *, shard_rows: int | None = None, compressed: bool = True
    ) -> ArrayPlan:
        """A plan whose shards hold about ``sizes.shard_bytes``."""
        kind = np.dtype(dtype)
        row_bytes = kind.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        rows = shard_rows or max(1, self.sizes.shard_bytes // max(1, row_bytes))
        return ArrayPlan(
            name,
            tuple(int(s) for s in shape),
            kind.str,
            min(rows, max(1, int(shape[0]))),
            f"{self.lease}-{uuid.uuid4().hex[:12]}",
            compressed,
        )

    def begin(self, plan: ArrayPlan) -> None:
        """Make room for an array, in a folder of its own: whether it becomes the array is decided by ``finish``."""
        import zarr

        shard_bytes = np.dtype(plan.dtype).itemsize * plan.shard_rows * int(np.prod(plan.shape[1:], dtype=np.int64))
        if not _is_scratch(plan):
            leases.mark(self, plan.attempt, plan.name)
        try:
            zarr.create_array(
                self._zarr(plan),
                shape=plan.shape,
                dtype=plan.dtype,
                chunks=(plan.shard_rows, *plan.shape[1:]),
                compressors=codec(plan.dtype) if plan.compressed and shard_bytes < MOST_CODED else None,
                fill_value=0,
            )
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StoreError(f"array {plan.name!r} could not be begun: {reason(error)}; {AGAIN}") from None

    def write_shard(self, plan: ArrayPlan, shard: int, block: Array) -> str:
        """Write one whole shard; returns its digest.

        Raises: StoreError when the block is not exactly the shard: partial writes lose data silently in Zarr.
        """
        import zarr

        start, stop = plan.bounds(shard)
        expected = (stop - start, *plan.shape[1:])
        if not 0 <= shard < plan.shards or block.shape != expected or np.dtype(block.dtype).str != plan.dtype:
            raise StoreError(
                f"array {plan.name!r}: a writer owns whole shards; shard {shard} is {expected} of {plan.dtype}, "
                f"found {block.shape} of {np.dtype(block.dtype).str}"
            )
        try:
            if _opened(self._place(plan))[1]:
                self._write_frame(plan, shard, block)
            else:
                zarr.open_array(self._zarr(plan), mode="r+")[start:stop] = block
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StoreError(f"array {plan.name!r}: shard {shard} could not be written: {reason(error)}; {AGAIN}") from None
        return _sha256(block)

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
                leases.unmark(self, plan.attempt)
            if winner.content_digest != stored.content_digest:
                raise StoreError(
                    f"array {plan.name!r} is already stored with other content; an array is written once and never changed"
                )
            return winner
        if not _is_scratch(plan):
            self._confirm(plan)
        return stored

    def _confirm(self, plan: ArrayPlan) -> None:
        """Check that no other run swept the blocks before their record was written. Raises: StoreError when one did."""
        if not leases.held(self, plan.attempt.partition("-")[0]):
            self.delete(plan.name)
            raise StoreError(
                f"array {plan.name!r}: this run stood still for {leases.STRETCH_SECONDS:g} seconds, so another run took it for dead "
                "and deleted what it was writing; run again"
            )
        leases.unmark(self, plan.attempt)

    def put(self, name: str, array: Array, facts: dict[str, Any] | None = None) -> StoredArray:
        """Store an array that fits in memory; if the same content is already whole under this name, that is returned."""
        plan = self.plan(name, array.shape, array.dtype)
        if self.exists(name):
            stored = self.open(name)
            if stored.shard_digests != tuple(_sha256(array[slice(*plan.bounds(i))]) for i in range(plan.shards)):
                raise StoreError(
                    f"array {name!r} is already stored with other content; an array is written once and never changed"
                )
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
        if plan is None or plan.name != name or len(digests) != plan.shards:
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
        right = block.shape == (stop - start, *stored.plan.shape[1:]) and block.dtype.str == stored.plan.dtype
        if not right or _sha256(block) != stored.shard_digests[shard]:
            raise StoreError(f"array {stored.name!r}: shard {shard} was truncated or altered; {_REMEDY}")
        return block

    def _shard(self, plan: ArrayPlan, shard: int) -> Array:
        """The values of a shard, not checked: of a frame without Zarr's copies of it."""
        start, stop = plan.bounds(shard)
        array, framed = _opened(self._place(plan))
        chunk = (plan.shard_rows, *plan.shape[1:])
        if not framed or (array.chunks, array.dtype.str) != (chunk, plan.dtype):
            return np.ascontiguousarray(array[start:stop])
        try:
            frame = obstore.get(self._objects, _chunk(plan, shard)).bytes()
        except FileNotFoundError:
            return np.zeros(
                (stop - start, *plan.shape[1:]), dtype=plan.dtype
            )  # as Zarr has it: blocks of zeros are not written
        return decoded(frame, chunk, plan.dtype)[: stop - start]

    def _write_frame(self, plan: ArrayPlan, shard: int, block: Array) -> None:
        """Write the object that Zarr would write, in one step and past Zarr's threads; of zeros there is none, nor an earlier one."""
        frame, name = encoded(_opened(self._place(plan))[0], block), _chunk(plan, shard)
        path = Path(self.location, name)
        if not self.is_local:
            if frame is None:
                self._delete([name])
            else:
                obstore.put(self._objects, name, frame)
            return
        if frame is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
        try:
            draft.write_bytes(frame)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def read(self, stored: StoredArray) -> Array:
        """The whole array, checked; for those that fit in memory."""
        out = np.empty(stored.plan.shape, dtype=stored.plan.dtype)
        for start, block in self.blocks(stored):
            out[start : start + block.shape[0]] = block
        return out

    def read_rows(self, stored: StoredArray, start: int, stop: int) -> Array:
        """Rows start..stop, checked: every shard that holds one of them is read whole."""
        first = start // stored.plan.shard_rows
        if stop > start and (start, stop) == stored.plan.bounds(first):
            return self.read_shard(stored, first)
        out = np.empty((stop - start, *stored.plan.shape[1:]), dtype=stored.plan.dtype)
        for shard in range(start // stored.plan.shard_rows, -(-stop // stored.plan.shard_rows)):
            first, end = stored.plan.bounds(shard)
            low, high = max(first, start), min(end, stop)
            out[low - start : high - start] = self.read_shard(stored, shard)[low - first : high - first]
        return out

    def put_values(self, name: str, block: Array) -> None:
        """Write raw values as one object, for scratch that is read back soon."""
        self._put(name, np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)

    def put_block(self, name: str, block: Array) -> str:
        """Write raw values as one object; returns their digest."""
        self.put_values(name, block)
        return _sha256(block)

    def get_block(self, name: str, shape: Sequence[int], dtype: Any, digest: str, *, start: int = 0) -> Array:
        """The values of ``put_block`` or ``put_values``, or those of a part that begins at byte ``start``, checked.

        Raises: StoreError when they are missing or altered.
        """
        values = math.prod(shape)
        data = self.get_values(name, start, np.dtype(dtype).itemsize * values)
        block: Array = np.frombuffer(data, dtype=dtype)
        if block.size != values or _sha256(block) != digest:
            raise StoreError(f"{name!r} in the store {self.location} was truncated or altered; run again")
        return block.reshape(tuple(shape))

    def get_blocks(self, parts: Iterable[Part]) -> Iterator[Array]:
        """The values of some parts, in order, each checked as ``get_block`` does; a few are read at once."""
        return in_order(lambda part: self.get_block(part.name, part.shape, part.dtype, part.digest, start=part.start), parts)

    def get_values(self, name: str, start: int, length: int) -> memoryview:
        """Bytes of an object, not checked: for those that prove themselves. Raises: StoreError when they are missing."""
        try:
            return memoryview(obstore.get_range(self._objects, name, start=start, length=length) if length else b"")
        except FileNotFoundError:
            raise StoreError(f"{name!r} is not in the store {self.location}; run again") from None
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StoreError(
                f"{name!r} could not be read from the store {self.location}: {reason(error)}; {AGAIN}"
            ) from None

    def check(self, stored: StoredArray) -> None:
        """Read every shard against its digest. Raises: StoreError for a missing, truncated or altered one."""
        for _ in in_order(lambda shard: self.read_shard(stored, shard).size, range(stored.plan.shards)):
            pass

    def blocks(self, stored: StoredArray) -> Iterator[tuple[int, Array]]:
        """Shard after shard, with the number of the first row."""
        for shard in range(stored.plan.shards):
            yield stored.plan.bounds(shard)[0], self.read_shard(stored, shard)

    def delete(self, name: str, *, first: Sequence[str] = (RECORD,)) -> None:
        """Remove a document, or everything below a folder: the records of arrays first."""
        super().delete(name, first=first)

    def names(self, folder: str) -> list[str]:
        """The names of all objects below a folder. Raises: StoreError when they cannot be listed."""
        return sorted(path for path, _, _ in self.listed(folder))

    def scratch(self) -> str:
        """A folder name of this caller's own, for arrays that it deletes when it is done."""
        return f"scratch/{self.lease}/{uuid.uuid4().hex[:16]}"

    def sweep(self) -> int:
        """Delete the scratch and the half-written arrays of runs that died. Returns how many runs that were."""
        return leases.sweep(self, self.lease)

    def _zarr(self, plan: ArrayPlan) -> Any:
        return _zarr_at(self._place(plan))

    def _place(self, plan: ArrayPlan) -> str:
        return f"{self.location.rstrip('/')}/{plan.name}/{plan.attempt}"


def _sent(location: str, sizes: Sizes, lease: str | None) -> Store:
    return Store(location, sizes, lease=lease, sent=True)


def _chunk(plan: ArrayPlan, shard: int) -> str:
    """The object of a shard, by Zarr's default names of chunks."""
    return f"{plan.name}/{plan.attempt}/c/{'/'.join(map(str, (shard, *(0 for _ in plan.shape[1:]))))}"


def _is_scratch(plan: ArrayPlan) -> bool:
    return plan.name.startswith("scratch/")


def _sha256(block: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(block).data).hexdigest()


ONE_REQUEST = 2**30
"""Bytes of an object that is sent by one request, which is whole or not there. Of a larger one a kill may leave parts that nobody lists."""
PART_BYTES = 2**24
_PATIENCE = "30 minutes"
"""For one request, if the environment does not say (``AWS_TIMEOUT``): a gigabyte takes a while."""


def put_at(url: str, name: str, data: bytes | mmap.mmap, *, md5_tags: bool = False) -> str | None:
    """Write an object; returns the tag that the store gave it. It is not read again: the store checks it against its MD5.

    Args:
        md5_tags: the store's tags are known to be MD5 sums, so this one must be.
    Raises: StoreError when it cannot be written, or something else arrived.
    """
    try:
        if len(data) <= ONE_REQUEST:
            sent = hashlib.md5(data, usedforsecurity=False)
            target = reached(url, headers={"content-md5": base64.b64encode(sent.digest()).decode()}, timeout=_PATIENCE)
            tag = obstore.put(target, name, data, use_multipart=False)["e_tag"]
            expected = sent.hexdigest()
        else:
            tag = obstore.put(reached(url), name, data, use_multipart=True, chunk_size=PART_BYTES)["e_tag"]
            expected = _tag_of_parts(data)
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "written", error) from None
    if md5_tags and (tag or "").strip('"') != expected:
        raise StoreError(f"{url}: {name} arrived altered; check the network and run again: nothing is charged twice")
    return tag


def _tag_of_parts(data: bytes | mmap.mmap) -> str:
    """What S3 calls an object that was sent in parts: the MD5 of their MD5 sums, and their number."""
    sums = [
        hashlib.md5(data[start : start + PART_BYTES], usedforsecurity=False).digest()
        for start in range(0, len(data), PART_BYTES)
    ]
    return f"{hashlib.md5(b''.join(sums), usedforsecurity=False).hexdigest()}-{len(sums)}"


def has_md5_tags(url: str) -> bool:
    """Write an object and remove it; whether its tag was the MD5 of its bytes: not where a store encrypts them by keys of its own.

    Raises: StoreError when that is not possible.
    """
    with _probed(url) as (_, tag):
        return (tag or "").strip('"') == hashlib.md5(PROBED, usedforsecurity=False).hexdigest()


def tags_at(url: str) -> dict[str, tuple[int, str | None]]:
    """Size and tag of every object below a URL. Raises: StoreError when they cannot be listed."""
    try:
        return {entry["path"]: (int(entry["size"]), entry["e_tag"]) for page in obstore.list(reached(url)) for entry in page}
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "listed", error) from None


def delete_at(url: str, names: Sequence[str]) -> None:
    """Remove objects; those that are gone already are no fault. Raises: StoreError when that is not possible."""
    place = reached(url)
    for name in names:
        try:
            obstore.delete(place, name)
        except FileNotFoundError:
            continue
        except (OSError, obstore.exceptions.BaseError) as error:
            raise _unusable(url, "written", error) from None


def download(url: str, folder: Path) -> None:
    """Copy everything below a URL into a new folder. Raises: StoreError when there is nothing, or a name leads out of it."""
    source = reached(url)
    folder.mkdir(parents=True)
    try:
        paths = [entry["path"] for page in obstore.list(source) for entry in page]
        if not paths:
            raise StoreError(f"there is nothing at {url}; give the URL of a published release")
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("wb") as file:
                for part in obstore.get(source, path).stream():
                    file.write(bytes(part))
    except obstore.exceptions.InvalidPathError:
        raise StoreError(
            f"{url} holds an object whose name is not a path below it, which no release has; remove it"
        ) from None
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "copied", error) from None


def size_of(place: str | Path) -> int:
    """Bytes of all files below a folder or URL. Raises: StoreError when they cannot be listed."""
    if isinstance(place, Path):
        return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    try:
        return sum(int(entry["size"]) for page in obstore.list(reached(place)) for entry in page)
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(place, "listed", error) from None


def first_at(url: str) -> str | None:
    """The name of some object below a URL, None where there is none. Raises: StoreError when it cannot be listed."""
    place = reached(url)
    try:
        found = next(iter(obstore.list(place, chunk_size=1)), [])
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "listed", error) from None
    return str(found[0]["path"]) if found else None


def folders_at(url: str) -> list[str]:
    """The names of the folders directly below a URL; none where it may not be listed. Raises: StoreError when it cannot be."""
    try:
        found = obstore.list_with_delimiter(reached(url))["common_prefixes"]
    except (PermissionError, obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError):
        return []
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "listed", error) from None
    return [str(path).rstrip("/").rpartition("/")[2] for path in found]


def read_at(url: str, name: str) -> bytes:
    """The content of an object. Raises: StoreError when it cannot be read."""
    try:
        return bytes(obstore.get(reached(url), name).bytes())
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "read", error) from None


def seen_at(url: str, name: str) -> tuple[str, int, str | None] | None:
    """SHA-256, size and tag of an object, read from end to end; None if there is none. Raises: StoreError when it cannot be read."""
    digest, size = hashlib.sha256(), 0
    try:
        found = obstore.get(reached(url), name)
        for part in found.stream():
            digest.update(part)
            size += len(part)
    except FileNotFoundError:
        return None
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "read", error) from None
    return digest.hexdigest(), size, found.meta["e_tag"]


def check_writable_at(url: str) -> None:
    """Write an object, read it back and remove it. Raises: StoreError when that is not possible."""
    with _probed(url) as (name, _):
        seen_at(url, name)


@contextmanager
def _probed(url: str) -> Iterator[tuple[str, str | None]]:
    """The name and the tag of an object that is there meanwhile. Raises: StoreError when it cannot be written or removed."""
    name = f"{PROBE}{uuid.uuid4().hex[:12]}"
    tag = put_at(url, name, PROBED)
    try:
        yield name, tag
    finally:
        delete_at(url, [name])


PROBED = b"\n"
PROBE = ".dpdist-probe-"
"""How the names of objects begin that only show that one can write."""


def _unusable(url: str, what: str, error: Exception) -> StoreError:
    return StoreError(f"{url} cannot be {what} ({type(error).__name__}); check the bucket, its credentials and rights")


def exists_at(url: str, name: str) -> bool:
    """Whether an object is there. Raises: StoreError when the place cannot be asked."""
    try:
        obstore.head(reached(url), name)
    except FileNotFoundError:
        return False
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _unusable(url, "read", error) from None
    return True


def exported(names: Sequence[str], size: int, facts: dict[str, Any], *, chunk_rows: int) -> dict[str, bytes]:
    """The files of a plain Zarr v3 group that any Zarr reader opens, without its values: float64 columns of one length."""
    return {name: found.to_bytes() for name, found in _group(names, size, facts, chunk_rows)[1].items()}


def exported_chunk(values: dict[str, Array], start: int, size: int, *, chunk_rows: int) -> dict[str, bytes]:
    """The files of one chunk of every column of such a group: the same values give the same bytes."""
    group, files = _group(list(values), size, {}, chunk_rows)
    others = set(files)
    for name, column in values.items():
        group[name][start : start + column.size] = column
    return {name: found.to_bytes() for name, found in files.items() if name not in others}


def _group(names: Sequence[str], size: int, facts: dict[str, Any], chunk_rows: int) -> tuple[Any, dict[str, Any]]:
    """A Zarr group in memory, and its files."""
    import zarr

    files: dict[str, Any] = {}
    group = zarr.create_group(zarr.storage.MemoryStore(files), attributes=facts)
    for name in names:
        compressed = zarr.codecs.ZstdCodec(level=3 if size <= chunk_rows else 1)
        group.create_array(name, shape=(size,), chunks=(min(chunk_rows, size),), dtype="float64", compressors=compressed)
    return group, files


@dataclass(frozen=True)
class ZarrRows:
    """Rows of a matrix in a Zarr array that somebody else wrote, dense, or sparse as a group of indptr, indices and data.

    Attributes:
        location: a folder or an object store URL.
        sparse: whether it is a group in compressed sparse rows.
    """

    location: str
    shape: tuple[int, int]
    sparse: bool = False

    def read(self, start: int, stop: int) -> Any:
        """Rows start..stop, dense or SciPy sparse."""
        found = self._opened
        if not self.sparse:
            return np.asarray(found[start:stop])
        pointers = np.asarray(found["indptr"][start : stop + 1]).astype(np.int64)
        values, columns = (np.asarray(found[part][int(pointers[0]) : int(pointers[-1])]) for part in ("data", "indices"))
        return scipy.sparse.csr_array((values, columns, pointers - pointers[0]), shape=(stop - start, self.shape[1]))

    @cached_property
    def _opened(self) -> Any:
        import zarr

        return zarr.open(_zarr_at(self.location), mode="r")

    def __reduce__(self) -> tuple[type[ZarrRows], tuple[str, tuple[int, int], bool]]:
        return ZarrRows, (self.location, self.shape, self.sparse)


def zarr_rows(location: str) -> ZarrRows:
    """The rows of a matrix in Zarr. Raises: StoreError when there is none."""
    import zarr

    wanted = "a Zarr array (queries, cells), or a group with indptr, indices, data and the attribute shape"
    try:
        found = zarr.open(_zarr_at(location), mode="r")
    except Exception as error:  # noqa: BLE001 - stores and codecs raise many types
        raise StoreError(f"{location!r} is not {wanted} ({type(error).__name__})") from None
    if isinstance(found, zarr.Array):
        if found.ndim != 2:
            raise StoreError(f"{location!r} is not {wanted}: the array has {found.ndim} dimensions")
        return ZarrRows(location, (int(found.shape[0]), int(found.shape[1])))
    shape = found.attrs.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not {"indptr", "indices", "data"} <= set(found.array_keys()):
        raise StoreError(f"{location!r} is not {wanted}")
    return ZarrRows(location, (int(shape[0]), int(shape[1])), sparse=True)


@lru_cache(maxsize=64)
def _opened(location: str) -> tuple[Any, bool]:
    """The Zarr array of an attempt, for reading, and whether its chunks are frames.

    Its name is never used again, and opening takes longer than reading a small shard.
    """
    import zarr

    array = zarr.open_array(_zarr_at(location), mode="r")
    return array, holds_frames(array)


def _zarr_at(location: str) -> Any:
    """A Zarr store at a folder or a URL."""
    import zarr

    if "://" in location:
        return zarr.storage.ObjectStore(obstore.store.from_url(location))
    return zarr.storage.LocalStore(Path(location))
