"""What a folder or an object store must promise, and whether a given one keeps it: each promise is tried with small objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dpdist.api.storage import Bucket, Missing, StorageLocation, StoreError, probe_name

WRITERS, ROUNDS = 8, 4
"""How many threads write one name at the same time, and how often."""
NAMES = ("year=2026/é ü.bin", "a+b%2Fc.bin", "-.bin")
"""Names of objects as records and releases have them."""
PARTS_BYTES = 6 * 2**20
"""An object that is sent in two parts: S3 takes no part below 5 MiB but the last."""


@dataclass(frozen=True)
class StoreCheck:
    """What dpdist relies upon.

    Attributes:
        name: in a few words.
        consequence: what happens in a place that does not keep it.
        essential: a store without it must not be used.
        is_kept: tries it in a place of its own, which is empty.
        of_buckets: it is asked of object stores alone.
    """

    name: str
    consequence: str
    is_kept: Callable[[StorageLocation], bool]
    essential: bool = True
    of_buckets: bool = False


@dataclass(frozen=True)
class StoreCheckResult:
    """Whether a place keeps a promise.

    Attributes:
        kept: None where it is not asked of this kind of place.
        reason: what the place answered in place of doing it; "" where it did something else, or all is well.
    """

    promise: StoreCheck
    kept: bool | None
    reason: str = ""


def _writes_once(place: StorageLocation) -> bool:
    return (
        place.create("once", b"first")
        and not place.create("once", b"second")
        and bytes(place.read_bytes("once")) == b"first"
    )


def _writes_once_for_many(place: StorageLocation) -> bool:
    contents = [b"%d" % writer for writer in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as threads:
        for name in map(str, range(ROUNDS)):
            created = list(threads.map(place.create, [name] * WRITERS, contents))
            if created.count(True) != 1 or bytes(place.read_bytes(name)) != contents[created.index(True)]:
                return False
    return True


def _reads_what_was_written(place: StorageLocation) -> bool:
    for number in range(ROUNDS):
        content = os.urandom(100 + number)
        place.write("changed", content)
        if bytes(place.read_bytes("changed")) != content:
            return False
    return True


def _lists_what_is_there(place: StorageLocation) -> bool:
    place.write("folder/one", b"1")
    place.write("folder/two", b"22")
    before = {(entry.name, entry.size) for entry in place.entries("folder")}
    folders = place.folders("")
    place.delete(["folder/one"])
    after = {entry.name for entry in place.entries("folder")}
    return before == {("folder/one", 1), ("folder/two", 2)} and folders == ["folder"] and after == {"folder/two"}


def _deletes_many(place: StorageLocation) -> bool:
    names = [f"{number}" for number in range(12)]
    for name in names[:10]:
        place.write(name, b"x")
    place.delete(names)  # two of them are not there
    return not list(place.entries())


def _misses_what_is_gone(place: StorageLocation) -> bool:
    place.write("gone", b"x")
    place.delete(["gone"])
    try:
        place.read_bytes("gone")
    except Missing:
        return not place.exists("gone")
    return False


def _reads_ranges(place: StorageLocation) -> bool:
    content = os.urandom(1000)
    place.write("whole", content)
    ranges = ((0, 1), (1, 998), (999, 1), (500, 500))
    return all(
        bytes(place.read_range("whole", start, length)) == content[start : start + length] for start, length in ranges
    )


def _keeps_names(place: StorageLocation) -> bool:
    for name in NAMES:
        place.write(name, name.encode())
    listed = sorted(entry.name for entry in place.entries())
    return listed == sorted(NAMES) and all(bytes(place.read_bytes(name)) == name.encode() for name in NAMES)


def _keeps_large_objects(place: StorageLocation) -> bool:
    content = os.urandom(PARTS_BYTES)
    if isinstance(place, Bucket):
        place.upload("large", content, one_request=0)
    else:
        place.write("large", content)
    return b"".join(place.chunks(2**20, "large")) == content


def _refuses_altered_bytes(place: StorageLocation) -> bool:
    assert isinstance(place, Bucket)
    return place.refuses_wrong_md5()


def _tags_are_md5(place: StorageLocation) -> bool:
    assert isinstance(place, Bucket)
    return place.has_md5_tags()


STORE_CHECKS = (
    StoreCheck("writes a name once", "two runs of one release would both draw its noise", _writes_once),
    StoreCheck(
        f"writes a name once for {WRITERS} writers at the same time",
        "two runs of one release would both draw its noise",
        _writes_once_for_many,
    ),
    StoreCheck("reads what was written last", "a run would go on from what is no longer true", _reads_what_was_written),
    StoreCheck("lists what is there", "files would be left out of a release, or left behind", _lists_what_is_there),
    StoreCheck("misses what was deleted", "what was deleted would still be read", _misses_what_is_gone),
    StoreCheck("deletes many at once", "what is no longer needed would stay", _deletes_many),
    StoreCheck("reads ranges", "records would be counted wrongly", _reads_ranges),
    StoreCheck("keeps names as they are", "columns that folders name would be read wrongly", _keeps_names),
    StoreCheck("keeps objects of many parts", "objects beyond 1 GiB could not be written", _keeps_large_objects),
    StoreCheck(
        "refuses bytes that were altered on the way",
        "what the network altered is found when it is read, not when it is written",
        _refuses_altered_bytes,
        essential=False,
        of_buckets=True,
    ),
    StoreCheck(
        "tags objects by their MD5",
        "published files are read again to check them",
        _tags_are_md5,
        essential=False,
        of_buckets=True,
    ),
)


def probe(location: StorageLocation) -> Iterator[StoreCheckResult]:
    """Try every promise below a new name of the place, which is removed afterwards.

    Raises: StoreError when nothing can be written there at all.
    """
    path = location.path_or_url
    new_folder = path if isinstance(path, Path) and location.absent() else None
    location.claim()
    location.check_writable()
    name = probe_name()
    try:
        for number, promise in enumerate(STORE_CHECKS):
            if promise.of_buckets and not isinstance(location, Bucket):
                yield StoreCheckResult(promise, None)
                continue
            try:
                yield StoreCheckResult(promise, promise.is_kept(location / f"{name}/{number}"))
            except StoreError as error:
                yield StoreCheckResult(promise, False, str(error))
    finally:
        location.remove(name)
        if new_folder is not None:
            location.parent.remove(new_folder.name)
