"""Which workers of a cluster get tasks: each is asked when it is first seen, before a stage hands out any.

One that cannot open the store, does not see a file that tasks read, or has other packages, would die or fail on every task it gets, and
it would get many, because it fails fast. It is left alone, and named with what it lacks.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from dpdist.engine import cluster_versions
from dpdist.errors import DpdistError, StoreError
from dpdist.storage.objects import parse_location, reason

ANSWER_SECONDS = 60
"""A worker that does not say for so long what it lacks gets no tasks."""
PROBE_BYTES = 16


class TaskStore(Protocol):
    """Where tasks take their functions from and leave their results: a ``Store``.

    Attributes:
        location: a folder, or a URL.
    """

    location: str

    def scratch(self) -> str:
        """A folder name of this caller's own."""

    def put_block(self, name: str, block: Any) -> str:
        """Write bytes; returns their digest."""

    def get_block(self, name: str, shape: Sequence[int], dtype: Any, digest: str) -> Any:
        """The bytes again."""

    def delete(self, name: str) -> None:
        """Remove everything below a folder."""


@dataclass(frozen=True)
class WorkerRequirements:
    """What tasks need on a worker: nothing of it is secret.

    Attributes:
        exchange: pickled; using it makes its folder, so it is used only where that is.
        folder: in the exchange, of one call: a worker reads there what the flow wrote, and writes.
        files: that tasks read, each with what messages call it.
    """

    exchange: bytes
    location: str
    folder: str
    digest: str
    files: tuple[tuple[str, str], ...]


class Admission:
    """Asks the workers of a cluster what they lack.

    Attributes:
        report: is called with a line for each worker that gets no tasks.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._exchange: TaskStore | None = None
        self._files: tuple[tuple[str, str], ...] = ()
        self._lacks: dict[tuple[str, str], str] = {}
        self.report: Callable[[str], None] | None = None

    def require(self, exchange: TaskStore | None, files: tuple[tuple[str, str], ...]) -> None:
        """From now on workers must have this exchange and these files."""
        if exchange is not self._exchange or files != self._files:
            self._exchange, self._files = exchange, files
            self._lacks = {worker: lack for worker, lack in self._lacks.items() if lack}

    def lacking(self, workers: dict[str, dict[str, Any]], *, again: Collection[str] = ()) -> dict[str, str]:
        """What each worker lacks that should get no tasks, by address.

        Args:
            workers: what the scheduler knows of the workers that are there.
            again: addresses that are asked even if they lacked nothing before.
        """
        identities = {address: (address, str(worker.get("local_directory"))) for address, worker in workers.items()}
        unchecked = [
            address
            for address, identity in identities.items()
            if identity not in self._lacks or (address in again and not self._lacks[identity])
        ]
        for address, lack in self._ask(unchecked).items():
            self._lacks[identities[address]] = lack
            if lack and self.report is not None:
                self.report(f"{describe_lack(address, lack)}; it gets no tasks of this run")
        lacks = {address: self._lacks.get(identity, "") for address, identity in identities.items()}
        return {address: lack for address, lack in lacks.items() if lack}

    def _ask(self, addresses: list[str]) -> dict[str, str]:
        if not addresses:
            return {}
        if self._exchange is None:
            return cast(dict[str, str], self._client.sync(_answers, self._client, addresses, None))
        folder = self._exchange.scratch()
        probe = np.frombuffer(os.urandom(PROBE_BYTES), dtype=np.uint8)
        digest = self._exchange.put_block(f"{folder}/probe", probe)
        files = tuple(file for file in self._files if os.path.exists(file[0]))  # what was extracted is gone at the end
        requirements = WorkerRequirements(pickle.dumps(self._exchange), self._exchange.location, folder, digest, files)
        try:
            return cast(dict[str, str], self._client.sync(_answers, self._client, addresses, requirements))
        finally:
            with suppress(StoreError):  # of no use to anybody; what is left of this call's scratch is swept
                self._exchange.delete(folder)


def describe_lack(address: str, lack: str) -> str:
    """A worker and what it lacks."""
    return f"the worker at {address} {lack}"


async def _answers(client: Any, addresses: list[str], requirements: WorkerRequirements | None) -> dict[str, str]:
    """What each worker lacks, empty if nothing."""
    own_versions = cluster_versions.here()
    answers = await asyncio.gather(*(_answer(client, address, requirements, own_versions) for address in addresses))
    return dict(zip(addresses, answers, strict=True))


async def _answer(client: Any, address: str, requirements: WorkerRequirements | None, own_versions: Any) -> str:
    asking = {"op": "versions", "packages": ["dpdist"]}
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            running = await client.scheduler.broadcast(msg=asking, workers=[address], on_error="ignore")
            differing = cluster_versions.differing_packages(own_versions, running[address]) if running.get(address) else []
            if differing or requirements is None:
                return f"runs {' and '.join(differing)}: give it the same image" if differing else ""
            answer = (await client.run(lack_of, requirements, workers=[address], on_error="return")).get(address, "")
    except TimeoutError:
        return f"has not answered for {ANSWER_SECONDS} seconds: look at its machine"
    if isinstance(answer, OSError):
        return ""  # it is gone, or going: Dask notices
    if isinstance(answer, BaseException):  # of other libraries, whose texts are not shown
        return "cannot load dpdist: give it the same image"
    return str(answer)


async def lack_of(requirements: WorkerRequirements) -> str:
    """On a worker: what it lacks, empty if nothing; found by a thread, so that a mount that hangs does not stop the worker."""
    return await asyncio.to_thread(_lack_of, requirements)


def _lack_of(requirements: WorkerRequirements) -> str:
    store_phrase = f"the store {requirements.location}"
    if parse_location(requirements.location).absent():
        return f"does not see the folder {requirements.location}, where the store is: mount it there and give the rights"
    try:
        exchange = pickle.loads(requirements.exchange)
        exchange.get_block(f"{requirements.folder}/probe", (PROBE_BYTES,), np.uint8, requirements.digest)
    except StoreError as error:
        cause = _system_reason(error)
        return f"does not find in {store_phrase} what the flow wrote there ({cause}): give it the same mount, or bucket and credentials"
    except (DpdistError, OSError) as error:
        return f"cannot open {store_phrase} ({_system_reason(error)}): give it the mount and its rights, or the bucket's credentials"
    try:
        exchange.put_block(f"{requirements.folder}/{uuid.uuid4().hex}", np.zeros(1, dtype=np.uint8))
    except (DpdistError, OSError) as error:
        return f"cannot write to {store_phrase} ({_system_reason(error)}): give it the right to"
    unseen = next((label for path, label in requirements.files if not os.access(path, os.R_OK)), None)
    return (
        ""
        if unseen is None
        else f"cannot read {unseen} of the records: put them on a volume that all workers share, or give the rights"
    )


def _system_reason(error: BaseException) -> str:
    """What the system said that is behind an error."""
    while error.__context__ is not None:
        error = error.__context__
    return reason(error)
