"""Rows that tasks deal out to other tasks, through objects of the store: no folder is shared, and nothing is listed.

A task writes its rows as one object, those of one part behind those of another, and returns where each part ends. What all tasks
returned becomes one index in the store; whoever gathers a part reads the part's lines of the index, and then its rows. All of it, also
what tasks return, which goes through the store, is sealed (AES-256-GCM) under a key of the run, which exists in memory only: whoever
reads the store, then or after the run was killed, learns how large the objects are, and what was altered is never used.
"""

from __future__ import annotations

import hmac
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from dpdist.errors import StoreError
from dpdist.process.threads import map_in_order
from dpdist.storage.array_store import Store

SEAL_BYTES = 16
"""What sealing adds to the rows of a part."""
SEED_BYTES = 16
_INDEX_TYPE = np.dtype([("object", "<u4"), ("rows", "<i8"), ("place", "<i8")])
"""Of the index: how many rows of a part an object holds, and at which byte."""
_HEADER, _ENDS = 2**32 - 1, 2**32 - 2
"""The numbers under which the head of an index, and the ends of parts, are sealed; parts have smaller ones."""

Rows = NDArray[Any]
"""A structured array."""


@dataclass(frozen=True)
class RunKey:
    """Random for a run, and never written to a file.

    It travels with every task, in the items that the engine gives to the scheduler: the function may be left in the store.
    """

    content: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> RunKey:
        """A key that nobody else has."""
        return cls(os.urandom(32))

    def derive_key(self, purpose: bytes) -> bytes:
        """32 bytes for one purpose."""
        return hmac.digest(self.content, purpose, "sha256")

    def cipher(self, seed: bytes) -> AESGCM:
        """The cipher of one object: under it every part is sealed once."""
        return AESGCM(self.derive_key(b"sealed" + seed))


class DealtObject(NamedTuple):
    """An object that a task wrote.

    Attributes:
        seed: of its key; random, so that a task that runs twice seals nothing twice.
        dtype: of its rows.
        sealed_ends: rows up to the end of each part, sealed: how many rows a part has depends on the records.
    """

    name: str
    seed: bytes
    dtype: list[Any]
    sealed_ends: bytes

    def index_lines(self, key: RunKey) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The parts that have rows, how many, and the byte at which they begin. Raises: StoreError where the ends were altered."""
        ends = np.frombuffer(_unseal(key.cipher(self.seed), _ENDS, memoryview(self.sealed_ends), self.name), dtype="<i8")
        rows = np.diff(ends, prepend=0)
        (part_numbers,) = np.nonzero(rows)
        before = ends[part_numbers] - rows[part_numbers]
        return (
            part_numbers,
            rows[part_numbers],
            before * np.dtype(self.dtype).itemsize + SEAL_BYTES * np.arange(part_numbers.size),
        )


def deal(
    store: Store, folder: str, key: RunKey, part_count: int, part_numbers: NDArray[np.int64], rows: Rows
) -> DealtObject:
    """Write rows as one object of a folder. The rows of a part stay in their order.

    Args:
        part_numbers: of every row, 0..parts.
    """
    ends = np.cumsum(np.bincount(part_numbers, minlength=part_count)) if part_count > 1 else np.array([rows.size])
    # small numbers are sorted in a fifth of the time, and to take rows is half of indexing them
    narrow_numbers = part_numbers.astype(np.min_scalar_type(part_count))
    ordered = rows if part_count == 1 else rows.take(np.argsort(narrow_numbers, kind="stable"))
    seed, filled_parts = os.urandom(SEED_BYTES), np.flatnonzero(np.diff(ends, prepend=0))
    cipher = key.cipher(seed)
    sealed_ends = cipher.encrypt(_nonce(_ENDS), ends.astype("<i8").tobytes(), None)
    dealt_object = DealtObject(f"{folder}/{uuid.uuid4().hex}", seed, ordered.dtype.descr, sealed_ends)
    sealed_bytes, offset = np.empty(ordered.nbytes + SEAL_BYTES * filled_parts.size, dtype=np.uint8), 0
    for number in filled_parts:
        block = ordered[ends[number - 1] if number else 0 : ends[number]]
        end = offset + block.nbytes + SEAL_BYTES
        cipher.encrypt_into(_nonce(int(number)), block.view(np.uint8).data, None, sealed_bytes[offset:end].data)
        offset = end
    if sealed_bytes.size:
        store.put_values(dealt_object.name, sealed_bytes)
    return dealt_object


@dataclass(frozen=True)
class PendingRows:
    """Rows that wait until a task deals them out, so many at a time.

    Attributes:
        most: rows that are held before they are dealt out.
        dtype: of the rows.
        divide: gives rows as they are written, such as sums of equal ones, and the part of each of so many.
    """

    store: Store
    folder: str
    key: RunKey
    part_count: int
    most: int
    dtype: np.dtype[Any]
    divide: Callable[[Rows, int], tuple[Rows, NDArray[np.int64]]] = field(repr=False)
    waiting: list[Rows] = field(default_factory=list, repr=False)
    dealt: list[DealtObject] = field(default_factory=list)

    def add(self, rows: Rows) -> None:
        """Take some more, and deal out what waits if it is enough."""
        self.waiting.append(rows)
        if sum(each.size for each in self.waiting) >= self.most:
            self.finish()

    def finish(self) -> list[DealtObject]:
        """Deal out what still waits. Returns: all that was dealt out."""
        rows, part_numbers = self.divide(concatenate_rows(self.waiting, self.dtype), self.part_count)
        self.waiting.clear()
        self.dealt.append(deal(self.store, self.folder, self.key, self.part_count, part_numbers, rows))
        return self.dealt

    def deal_all(self, batches: Iterable[Rows]) -> list[DealtObject]:
        """Deal out all of some batches. Returns: as ``finish``."""
        for rows in batches:
            self.add(rows)
        return self.finish()


class ShuffleIndex(NamedTuple):
    """The index of what all tasks dealt out: tells nothing by itself.

    Attributes:
        size: bytes of its head.
        part_count: how many there are.
    """

    name: str
    seed: bytes
    size: int
    part_count: int

    def open_parts(self, store: Store, key: RunKey) -> ShuffledParts:
        """The parts, to be read."""
        sealed = store.get_values(self.name, 0, self.size)
        head = json.loads(_unseal(key.cipher(self.seed), _HEADER, sealed, self.name))
        return ShuffledParts(
            store,
            key,
            DealtObject(*_decode_object(head["index"])),
            tuple(DealtObject(*_decode_object(encoded_object)) for encoded_object in head["objects"]),
        )


class ShuffledParts:
    """Rows that were dealt out, by part."""

    def __init__(self, store: Store, key: RunKey, index: DealtObject, objects: tuple[DealtObject, ...]) -> None:
        self._store, self._key, self._objects = store, key, objects
        self._index = (index, *index.index_lines(key))

    def rows_of_part(self, part_number: int) -> Iterator[Rows]:
        """The rows of a part, those of one object after those of another, in the order in which they were dealt.

        Raises: StoreError when they are missing or were altered.
        """

        def unseal_line(index_line: Any) -> Rows:
            dealt = self._objects[index_line["object"]]
            block = np.empty(index_line["rows"], dtype=dealt.dtype)
            self._unseal_block(dealt, part_number, int(index_line["place"]), block)
            return block

        yield from map_in_order(unseal_line, self._index_lines(part_number))

    def whole_part(self, part_number: int, dtype: np.dtype[Any]) -> Rows:
        """All rows of a part, none if it has none; a few objects are read at once. Raises: as ``rows_of_part``."""
        index_lines = self._index_lines(part_number)
        ends = np.cumsum(index_lines["rows"])
        rows = np.empty(int(ends[-1]) if ends.size else 0, dtype=dtype)

        def unseal_line(number: int) -> None:
            index_line = index_lines[number]
            block = rows[ends[number] - index_line["rows"] : ends[number]]
            self._unseal_block(self._objects[index_line["object"]], part_number, int(index_line["place"]), block)

        for _ in map_in_order(unseal_line, range(index_lines.size)):
            pass
        return rows

    def _index_lines(self, part_number: int) -> Rows:
        """What the index says of a part."""
        index, part_numbers, rows, offsets = self._index
        position = int(np.searchsorted(part_numbers, part_number))
        if position == part_numbers.size or part_numbers[position] != part_number:
            return np.empty(0, dtype=_INDEX_TYPE)
        index_lines = np.empty(int(rows[position]), dtype=_INDEX_TYPE)
        self._unseal_block(index, part_number, int(offsets[position]), index_lines)
        return index_lines

    def _unseal_block(self, dealt: DealtObject, part_number: int, offset: int, block: Rows) -> None:
        """Fill a block with the rows of a part that an object holds from some byte on."""
        sealed = self._store.get_values(dealt.name, offset, block.nbytes + SEAL_BYTES)
        try:
            self._key.cipher(dealt.seed).decrypt_into(_nonce(part_number), sealed, None, block.view(np.uint8).data)
        except (InvalidTag, ValueError):  # altered, or shorter
            raise _altered(dealt.name) from None


def concatenate_rows(blocks: Iterable[Rows], dtype: np.dtype[Any]) -> Rows:
    """The rows of some blocks, one after another: copied as bytes, which takes a fifth of the time of structured values."""
    return np.concatenate([np.zeros(0, dtype=np.uint8), *(block.view(np.uint8) for block in blocks)]).view(dtype)


def gather(store: Store, folder: str, key: RunKey, part_count: int, dealt: Sequence[DealtObject]) -> ShuffleIndex:
    """Write the index of what tasks dealt out to so many parts, in their order."""
    line_columns = [entry.index_lines(key) for entry in dealt]
    index_lines = np.zeros(sum(numbers.size for numbers, _, _ in line_columns), dtype=_INDEX_TYPE)
    part_numbers = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for numbers, _, _ in line_columns)])
    index_lines["object"] = np.repeat(np.arange(len(dealt)), [numbers.size for numbers, _, _ in line_columns])
    for name, column in (("rows", 1), ("place", 2)):
        index_lines[name] = np.concatenate([np.zeros(0, dtype=np.int64), *(entry[column] for entry in line_columns)])
    index, seed = deal(store, folder, key, part_count, part_numbers, index_lines), os.urandom(SEED_BYTES)
    head = {
        "index": _encode_object(index),
        "objects": [_encode_object(entry._replace(sealed_ends=b"")) for entry in dealt],
    }
    sealed = key.cipher(seed).encrypt(_nonce(_HEADER), json.dumps(head).encode(), None)
    name = f"{folder}/{uuid.uuid4().hex}"
    store.put_values(name, np.frombuffer(sealed, dtype=np.uint8))
    return ShuffleIndex(name, seed, len(sealed), part_count)


def _encode_object(dealt: DealtObject) -> list[Any]:
    return [dealt.name, dealt.seed.hex(), dealt.dtype, dealt.sealed_ends.hex()]


def _decode_object(written: list[Any]) -> tuple[Any, ...]:
    name, seed, dtype, sealed_ends = written
    return name, bytes.fromhex(seed), [tuple(type_field) for type_field in dtype], bytes.fromhex(sealed_ends)


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _unseal(cipher: AESGCM, number: int, sealed: memoryview, name: str) -> bytes:
    try:
        return cipher.decrypt(_nonce(number), sealed, None)
    except InvalidTag:
        raise _altered(name) from None


def _altered(name: str) -> StoreError:
    return StoreError(f"{name!r} in the store was truncated or altered; run again")
