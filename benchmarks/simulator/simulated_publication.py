"""A release published to a simulated object store, part by part, as its workers write it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from benchmarks.simulator.simulated_storage import SCALE, SimulatedEngine, SimulatedStore
from benchmarks.simulator.stages import LISTED_AT_ONCE
from dpdist.arrays.lazy_vector import FLOAT, Constant
from dpdist.content.answer_tables import write_tables
from dpdist.content.destination import ObjectStorePrefix, WrittenFile
from dpdist.content.release_content import ReleaseContent
from dpdist.errors import StoreError
from dpdist.operators import Matrix
from dpdist.pipeline.publish import write_checked
from dpdist.privacy import signatures
from dpdist.privacy.keys import KEY_BYTES, Secret
from dpdist.publish import release_folder
from dpdist.storage.objects.bucket import Bucket
from dpdist.workloads import prefix

BESIDE_ROWS = 4096
"""Bytes of a part that are not rows: they do not grow with them."""
PUBLISHED = Bucket("published", "published", "published")


@dataclass(frozen=True)
class SimulatedObjects(ObjectStorePrefix):
    """The objects of a release, beside those of the run's store."""

    store: SimulatedStore

    def write_file(self, name: str, write: Callable[[BinaryIO], object]) -> WrittenFile:
        file = io.BytesIO()
        write(file)
        return self.write_bytes(name, file.getvalue())

    def write_bytes(self, name: str, data: bytes) -> WrittenFile:
        world = self.store.world
        world.requested(_scaled(data), written=self._object_name(name) not in world.objects)
        world.objects[self._object_name(name)] = data
        world.parts += 1
        truth = _written_file(name, data)
        return replace(truth, digest="0" * 64) if world.parts == world.faults.part_liar else truth

    def read_back(self, name: str) -> WrittenFile | None:
        found = self.store.world.objects.get(self._object_name(name))
        self.store.world.requested(0 if found is None else _scaled(found))
        return None if found is None else _written_file(name, found)

    def tags(self) -> dict[str, tuple[int, str | None]]:
        """What a listing says, some objects a request."""
        world = self.store.world
        found: dict[str, tuple[int, str | None]] = {
            name.removeprefix(self._object_name("")): (len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
            for name, data in world.objects.items()
            if name.startswith(self._object_name(""))
        }
        for _ in range(0, len(found), LISTED_AT_ONCE):
            world.requested(0)
        return found

    def delete(self, names: list[str]) -> None:
        for name in names:
            self.store.world.requested(0)
            del self.store.world.objects[self._object_name(name)]

    def published_bytes(self, name: str) -> bytes:
        """What a reader gets: no request of the release."""
        return self.store.world.objects[self._object_name(name)]

    def _object_name(self, name: str) -> str:
        return f"{self.bucket}/{name}"


def _scaled(data: bytes) -> int:
    """Bytes that a published file stands for."""
    return len(data) + (SCALE - 1) * max(0, len(data) - BESIDE_ROWS)


def _written_file(name: str, data: bytes) -> WrittenFile:
    return WrittenFile(
        name, hashlib.sha256(data).hexdigest(), len(data), hashlib.md5(data, usedforsecurity=False).hexdigest()
    )


@dataclass(frozen=True)
class Answers:
    """Made-up answers, which take as long to write as real ones."""

    size: int
    store: SimulatedStore
    dtype: np.dtype[Any] = FLOAT
    bytes_each: int = 0
    digest: str = ""

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop, of three digits."""
        self.store.world.spent += (stop - start) * SCALE / 2 / self.store.world.rates.published_rows
        return np.asarray(
            np.arange(start, stop, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(54), np.float64
        )


def publish(store: SimulatedStore, engine: SimulatedEngine, answers: int) -> str:
    """Write a release of so many answers, check its parts and seal it. Returns: the digest of its certificate."""
    place = SimulatedObjects(PUBLISHED, True, store)
    size = answers // SCALE
    content = ReleaseContent(
        "simulated",
        "",
        prefix(size),
        Answers(size, store),
        Constant(100.0, size),
        Constant(196.0, size),
        {},
        formats=("parquet", "zarr"),
        sizes=store.sizes,
    )
    written = write_tables(content, 0, place, partial(write_checked, engine))
    certificate = {"release": content.release, "files": {each.name: each.digest for each in written}}
    release_folder.seal_release(place, written, json.dumps(certificate).encode(), _Seal())
    return hashlib.sha256(place.published_bytes(release_folder.CERTIFICATE)).hexdigest()


class _Seal:
    """Signs under a key that everybody knows."""

    def sign(self, certificate: bytes) -> bytes:
        return signatures.sign(Secret(bytes(KEY_BYTES)), certificate)

    def check(self, certificate: bytes, where: object) -> None:
        del certificate, where


def read_back(store: SimulatedStore) -> None:
    """What every reader does first. Raises: StoreError when a file is not what the certificate says."""
    place = SimulatedObjects(PUBLISHED, True, store)
    for name, digest in json.loads(place.published_bytes(release_folder.CERTIFICATE))["files"].items():
        if hashlib.sha256(place.published_bytes(name)).hexdigest() != digest:
            raise StoreError(f"{name} of the simulated release was altered")
