"""What a stored array is: its plan before it is written, and the reference to it that travels in place of its values."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

Array = NDArray[Any]
MOST_CODED = 2**31 - 2**20
"""Bytes that the codec takes at once."""


FUNCTIONS: dict[str, Callable[[memoryview], Any]] = {"sha256": hashlib.sha256, "blake3": blake3}
"""Of digests, by the name that the record of an array has for them."""


def digest_of(block: Array, function: str = "sha256") -> str:
    """The digest of raw values, 64 hex digits, by SHA-256 or BLAKE3."""
    return str(FUNCTIONS[function](np.ascontiguousarray(block).reshape(-1).view(np.uint8).data).hexdigest())


@dataclass(frozen=True)
class ArrayPlan:
    """Shape, type and sharding of an array before it is written.

    Attributes:
        shard_rows: rows (first axis) in each shard but the last.
        attempt: names the folder of this writer, and the lease of its run: writers that race for one name never touch each
            other's shards, and those of a run that died are deleted.
        compressed: whether blocks are compressed; scratch that is read back once is not.
        hashed: the function of the shards' digests, one of ``FUNCTIONS``. The noise key is bound to those of counts and coefficients, so
            that theirs can never change.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    shard_rows: int
    attempt: str
    compressed: bool = True
    hashed: str = "sha256"

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.shape[0] // self.shard_rows) if self.shape[0] else 0

    @property
    def chunk(self) -> tuple[int, ...]:
        """The shape of what an object holds: of a whole shard."""
        return (self.shard_rows, *self.shape[1:])

    @property
    def framed(self) -> bool:
        """Whether objects are frames of the codec, which takes no more at once."""
        return self.compressed and np.dtype(self.dtype).itemsize * math.prod(self.chunk) < MOST_CODED

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


class StoredPart(NamedTuple):
    """Values within an object: of what shape, type and digest, and from which byte on."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str
    start: int
