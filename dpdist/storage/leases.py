"""Leases: which runs are alive, so that only what dead runs left behind is deleted. No clocks of two machines are compared.

A run takes a lease before it writes scratch or begins an array, names both by it, and renews it by counting. It is dead when its
process is provably gone (same boot, same process namespace, no process of its number and start), or when its count stood still
while others watched for ``STRETCH_SECONDS`` of the watchers' monotonic clock, which runs on across processes until the next boot.
Where every run has a machine of its own, no two looks share a boot: there the count must have stood still between looks of two
machines that the store itself dates more than ``UNWATCHED_SECONDS`` apart.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import queue
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpdist.errors import StoreError
from dpdist.storage.documents import Documents

BEAT_SECONDS = 30.0
STRETCH_SECONDS = 900.0
"""A run that does not count for so long, while it is watched, is dead."""
UNWATCHED_SECONDS = 2 * 86_400.0
"""A run whose count is the same in looks of two machines that are so far apart by the store's clock is dead."""
UNHELD_SECONDS = 7 * 86_400.0
"""What no lease was taken for (shared sums that a killed run goes on with) goes when it stood still so long."""
RECORD = "manifest.json"
"""The record that makes an array whole."""


def _system(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


BOOT = _system("/proc/sys/kernel/random/boot_id") or uuid.uuid4().hex
"""Names the stretch in which this process may compare its monotonic clock with that of others."""


@dataclass(frozen=True)
class Owner:
    """A process, wherever it runs.

    Attributes:
        space: its process namespace: numbers of processes mean something in one only.
        started: when it started, in ticks since the boot: numbers are given away again.
    """

    boot: str
    space: str
    pid: int
    started: str

    @property
    def lives(self) -> bool | None:
        """Whether the process is there; None where it cannot be known."""
        here = this_process()
        if not here.started or not here.space or (self.boot, self.space) != (here.boot, here.space):
            return None
        return _started(self.pid) == self.started


def this_process() -> Owner:
    """The owner that this process is."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return Owner(BOOT, space, os.getpid(), _started(os.getpid()))


def _started(pid: int) -> str:
    """When a process started, empty if there is none."""
    fields = _system(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


class Lease:
    """A run's claim on ``scratch/<id>`` and on the arrays that it has begun, renewed by a thread until ``end``."""

    def __init__(self, location: str) -> None:
        self.id = uuid.uuid4().hex[:16]
        self.pid = os.getpid()
        self._documents = Documents(location, briefly=True)
        self._documents.write_document(f"leases/{self.id}/lease.json", asdict(this_process()))
        self._stop = queue.SimpleQueue[None]()
        self._thread = threading.Thread(target=self._live, name="dpdist lease", daemon=True)
        _ACTIVE_LEASES.add(self)
        self._thread.start()

    def end(self) -> None:
        """Give the lease back and delete what it names. A forked child leaves it to its parent."""
        self.leave()
        if os.getpid() == self.pid:
            self._thread.join()

    def leave(self) -> None:
        """Have its thread end it, and wait for nothing: finalizers run in any thread, amid anything, and may hold what an answer needs."""
        if os.getpid() == self.pid:
            self._stop.put(None)

    def _live(self) -> None:
        beat = 0
        while not self._stopped():
            beat += 1
            with suppress(StoreError):  # a full disk or a silent network: the next beat may succeed
                self._documents.write_document(f"leases/{self.id}/beat.json", {"beat": beat})
                sweep(self._documents, self.id)
        with suppress(StoreError):  # what is left is swept by the next run
            clear(self._documents, self.id)
        _ACTIVE_LEASES.discard(self)

    def _stopped(self) -> bool:
        try:
            self._stop.get(timeout=BEAT_SECONDS)
        except queue.Empty:
            return False
        return True


_ACTIVE_LEASES: set[Lease] = set()


@atexit.register
def _end_all() -> None:
    for lease in tuple(_ACTIVE_LEASES):
        lease.end()


def holds_lease(documents: Documents, lease: str) -> bool:
    """Whether the run still holds its lease: no other run has taken it for dead. A swept lease never comes back."""
    return documents.has_document(f"leases/{lease}/lease.json")


def record_attempt(documents: Documents, attempt: str, name: str) -> None:
    """Note that an array was begun: its blocks are deleted with the lease that begins the attempt's name."""
    documents.write_document(_marker(attempt), {"name": name})


def forget_attempt(documents: Documents, attempt: str) -> None:
    """The array is whole, or nothing of it is left."""
    documents.delete(_marker(attempt))


def _marker(attempt: str) -> str:
    return f"leases/{attempt.partition('-')[0]}/begun/{attempt}.json"


def sweep(documents: Documents, mine: str | None) -> int:
    """Delete what dead runs left behind; returns how many runs that were."""
    names = dict.fromkeys([*documents.folders("scratch"), *documents.folders("leases")])
    dead = [name for name in names if name != mine and _is_dead(documents, name)]
    for name in dead:
        clear(documents, name)
    return len(dead)


def clear(documents: Documents, lease: str) -> None:
    """Delete what a lease names. The lease goes first: a run that was only taken for dead finds out before it commits."""
    documents.delete(f"leases/{lease}/lease.json")
    for path in documents.names(f"leases/{lease}/begun"):
        attempt = path.rpartition("/")[2].removesuffix(".json")
        with suppress(StoreError):
            name = documents.read_document(path)["name"]
            if _attempt_of(documents, name) != attempt:
                documents.delete(f"{name}/{attempt}")
    documents.delete(f"scratch/{lease}")
    documents.delete(f"leases/{lease}")


def _attempt_of(documents: Documents, name: str) -> str | None:
    """The attempt that became the array; None if none did."""
    record = f"{name}/{RECORD}"
    return str(documents.read_document(record)["attempt"]) if documents.has_document(record) else None


def _is_dead(documents: Documents, lease: str) -> bool:
    owner = _document(documents, f"leases/{lease}/lease.json")
    sign: Any
    if owner is None:
        listing = repr(sorted(documents.storage.entries(f"scratch/{lease}"), key=lambda entry: entry.name))
        sign, stretch = hashlib.sha256(listing.encode()).hexdigest(), UNHELD_SECONDS
    else:
        lives = Owner(**owner).lives
        if lives is not None:
            return not lives
        sign, stretch = _document(documents, f"leases/{lease}/beat.json"), STRETCH_SECONDS
    return _stood_still(documents, f"leases/{lease}/seen-{BOOT}.json", sign, stretch)


def _stood_still(documents: Documents, name: str, sign: Any, stretch: float) -> bool:
    """Whether all looks since some look ``stretch`` ago saw the same sign."""
    observation, now = _document(documents, name), time.monotonic()
    if observation is None or observation["sign"] != sign or observation["at"] > now:
        with suppress(StoreError):  # the lease has ended meanwhile, and its folder is gone; else the next look tries again
            documents.write_document(name, {"sign": sign, "at": now})
            return _stood_still_for_other_boots(documents, name, sign, max(stretch, UNWATCHED_SECONDS))
        return False
    return bool(now - observation["at"] > stretch)


def _stood_still_for_other_boots(documents: Documents, name: str, sign: Any, stretch: float) -> bool:
    """Whether a look of another boot saw the same sign so long before the look that was just written, by the clock of the store."""
    others = [each for each in documents.names(name.rpartition("/")[0]) if "/seen-" in each and each != name]
    return any(
        (observation := _document(documents, other)) is not None
        and observation["sign"] == sign
        and documents.storage.written_at(name) - documents.storage.written_at(other) > stretch
        for other in others
    )


def _document(documents: Documents, name: str) -> dict[str, Any] | None:
    try:
        return documents.read_document(name)
    except StoreError:
        return None
