"""Rows that tasks deal out to other tasks, through objects of the store: no folder is shared, and nothing is listed.

A task writes its rows as one object, those of one part behind those of another, and returns where each part ends. What all tasks
returned becomes one index in the store; whoever gathers a part reads the part's lines of the index, and then its rows. All of it is
sealed (AES-256-GCM) under a key of the run, which exists in memory only: whoever reads the store, then or after the run was killed,
learns how large the objects are, and what was altered is never used.
"""

from __future__ import annotations

import hmac
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from dpdist.errors import StoreError
from dpdist.process.threads import in_order
from dpdist.storage.array_store import Store

SEAL_BYTES = 16
"""What sealing adds to the rows of a part."""
SEED_BYTES = 16
_LINES = np.dtype([("object", "<u4"), ("rows", "<i8"), ("place", "<i8")])
"""Of the index: how many rows of a part an object holds, and at which byte."""
_HEADER = 2**32 - 1
"""The number under which the head of an index is sealed; parts have smaller ones."""

Rows = NDArray[Any]
"""A structured array."""


@dataclass(frozen=True)
class RunKey:
    """Random for a run, and never written to a file.

    It travels with every task, in the items that the engine gives to the scheduler: the function may be left in the store.
    """

    content: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> RunKey:
        """A key that nobody else has."""
        return cls(os.urandom(32))

    def derived(self, purpose: bytes) -> bytes:
        """32 bytes for one purpose."""
        return hmac.digest(self.content, purpose, "sha256")

    def cipher(self, seed: bytes) -> AESGCM:
        """The cipher of one object: under it every part is sealed once."""
        return AESGCM(self.derived(b"sealed" + seed))


class Dealt(NamedTuple):
    """An object that a task wrote.

    Attributes:
        seed: of its key; random, so that a task that runs twice seals nothing twice.
        dtype: of its rows.
        ends: rows up to the end of each part; private.
    """

    name: str
    seed: bytes
    dtype: list[Any]
    ends: NDArray[np.int64]

    def lines(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The parts that have rows, how many, and the byte at which they begin."""
        rows = np.diff(self.ends, prepend=0)
        (parts,) = np.nonzero(rows)
        before = self.ends[parts] - rows[parts]
        return parts, rows[parts], before * np.dtype(self.dtype).itemsize + SEAL_BYTES * np.arange(parts.size)


def deal(store: Store, folder: str, key: RunKey, parts: int, part: NDArray[np.int64], rows: Rows) -> Dealt:
    """Write rows as one object of a folder. The rows of a part stay in their order.

    Args:
        part: of every row, 0..parts.
    """
    ends = np.cumsum(np.bincount(part, minlength=parts))
    ordered = rows[np.argsort(part, kind="stable")]
    done = Dealt(f"{folder}/{uuid.uuid4().hex}", os.urandom(SEED_BYTES), ordered.dtype.descr, ends)
    cipher, out = key.cipher(done.seed), bytearray()
    for number in np.flatnonzero(np.diff(ends, prepend=0)):
        block = ordered[ends[number - 1] if number else 0 : ends[number]]
        out += cipher.encrypt(_nonce(int(number)), block.tobytes(), None)
    if out:
        store.put_values(done.name, np.frombuffer(out, dtype=np.uint8))
    return done


class Gathered(NamedTuple):
    """The index of what all tasks dealt out: tells nothing by itself.

    Attributes:
        size: bytes of its head.
        parts: how many there are.
    """

    name: str
    seed: bytes
    size: int
    parts: int

    def opened(self, store: Store, key: RunKey) -> Parts:
        """The parts, to be read."""
        sealed = store.get_values(self.name, 0, self.size)
        head = json.loads(_unsealed(key.cipher(self.seed), _HEADER, sealed, self.name))
        return Parts(store, key, Dealt(*_read(head["index"])), tuple(Dealt(*_read(each)) for each in head["objects"]))


class Parts:
    """Rows that were dealt out, by part."""

    def __init__(self, store: Store, key: RunKey, index: Dealt, objects: tuple[Dealt, ...]) -> None:
        self._store, self._key, self._objects = store, key, objects
        self._index = (index, *index.lines())

    def of(self, part: int) -> Iterator[Rows]:
        """The rows of a part, those of one object after those of another, in the order in which they were dealt.

        Raises: StoreError when they are missing or were altered.
        """
        index, parts, rows, places = self._index
        at = int(np.searchsorted(parts, part))
        if at == parts.size or parts[at] != part:
            return
        lines = self._block(index, part, int(rows[at]), int(places[at]))
        yield from in_order(
            lambda line: self._block(self._objects[line["object"]], part, int(line["rows"]), int(line["place"])), lines
        )

    def _block(self, dealt: Dealt, part: int, rows: int, place: int) -> Rows:
        size = rows * np.dtype(dealt.dtype).itemsize + SEAL_BYTES
        sealed = self._store.get_values(dealt.name, place, size)
        plain = _unsealed(self._key.cipher(dealt.seed), part, sealed, dealt.name)
        return np.frombuffer(plain, dtype=dealt.dtype)


def gather(store: Store, folder: str, key: RunKey, parts: int, dealt: Sequence[Dealt]) -> Gathered:
    """Write the index of what tasks dealt out to so many parts, in their order."""
    found = [each.lines() for each in dealt]
    lines = np.zeros(sum(numbers.size for numbers, _, _ in found), dtype=_LINES)
    part = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for numbers, _, _ in found)])
    lines["object"] = np.repeat(np.arange(len(dealt)), [numbers.size for numbers, _, _ in found])
    for name, column in (("rows", 1), ("place", 2)):
        lines[name] = np.concatenate([np.zeros(0, dtype=np.int64), *(each[column] for each in found)])
    index, seed = deal(store, folder, key, parts, part, lines), os.urandom(SEED_BYTES)
    head = {"index": _written(index), "objects": [_written(each._replace(ends=each.ends[:0])) for each in dealt]}
    sealed = key.cipher(seed).encrypt(_nonce(_HEADER), json.dumps(head).encode(), None)
    name = f"{folder}/{uuid.uuid4().hex}"
    store.put_values(name, np.frombuffer(sealed, dtype=np.uint8))
    return Gathered(name, seed, len(sealed), parts)


def _written(dealt: Dealt) -> list[Any]:
    return [dealt.name, dealt.seed.hex(), dealt.dtype, dealt.ends.tolist()]


def _read(written: list[Any]) -> tuple[Any, ...]:
    name, seed, dtype, ends = written
    return name, bytes.fromhex(seed), [tuple(each) for each in dtype], np.asarray(ends, dtype=np.int64)


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _unsealed(cipher: AESGCM, number: int, sealed: memoryview, name: str) -> bytes:
    try:
        return cipher.decrypt(_nonce(number), sealed, None)
    except InvalidTag:
        raise StoreError(f"{name!r} in the store was truncated or altered; run again") from None
