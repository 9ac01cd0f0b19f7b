"""A folder and a prefix of an object store are one thing to everybody: the same calls give the same values and the same errors."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import StoreError
from dpdist.process.durable_files import private_files
from dpdist.storage.objects import Denied, Folder, Missing, StorageLocation, file_at, parse_location

BYTES = bytes(range(256)) * 40_000
"""More than one request brings of an object."""


SCRIPT: list[Callable[[StorageLocation], Any]] = [
    lambda place: place.exists("a/b"),
    lambda place: [place.write("a/b", b"one"), place.write("a/b", b"two")] and place.read_bytes("a/b"),
    lambda place: [place.create("a/c", b"first"), place.create("a/c", b"second"), bytes(place.read_bytes("a/c"))],
    lambda place: place.write("long", BYTES) and None,
    lambda place: place.exists("a"),
    lambda place: place.file_state("long").size,
    lambda place: place.read_range("long", 250, 20),
    lambda place: place.read_range("long", 250, 0),
    lambda place: [len(each) for each in place.chunks(3_000_000, "long")],
    lambda place: place.read_range("long", len(BYTES) - 3, 10),
    lambda place: place.digest("a/b")[:2],
    lambda place: place.digest("a/none"),
    lambda place: place.read_bytes("a/none"),
    lambda place: place.read_range("a/none", 0, 1),
    lambda place: list(place.chunks(5, "a/none")),
    lambda place: place.file_state("a/none"),
    lambda place: sorted((each.name, each.size) for each in place.entries()),
    lambda place: sorted(each.name for each in place.entries("a")),
    lambda place: list(place.entries("none")),
    lambda place: [place.folders(), place.folders("a"), place.folders("none")],
    lambda place: bytes((place / "a").read_bytes("b")),
    lambda place: bytes(file_at(f"{place}/a/b").read_bytes()),
    lambda place: place.write("town=a%2Fb c/x%20y", b"escaped") and None,
    lambda place: [bytes(file_at(f"{place}/{each.name}").read_bytes()) for each in place.entries("town=a%2Fb c")],
    lambda place: [each.name for each in place.verbatim().entries("town=a%2Fb c")],
    lambda place: place.remove("town=a%2Fb c"),
    lambda place: [(place / "a").parent.location == place.location, (place / "a").name],
    lambda place: place.delete(["a/b", "a/none"]),
    lambda place: place.write("records/x/manifest.json", b"{}") and None,
    lambda place: place.write("records/x/c/0", b"0") and None,
    lambda place: place.remove("records", delete_first=("manifest.json",)),
    lambda place: place.remove("records"),
    lambda place: place.remove("a/c"),
    lambda place: [each.name for each in place.entries()],
    lambda place: place.check_writable() if not isinstance(place, Folder) else None,
    lambda place: bytes(pickle.loads(pickle.dumps(place)).read_range("long", 0, 3)),
]


def lived(place: StorageLocation) -> list[Any]:
    out: list[Any] = []
    for step in SCRIPT:
        try:
            found = step(place)
        except StoreError as error:
            found = f"{type(error).__name__}: {error}".replace(place.location, "PLACE")
            assert "\n" not in found
        out.append(bytes(found) if not isinstance(found, list | tuple | str | int | bool | type(None)) else found)
    return out


def test_a_folder_and_a_prefix_are_the_same(tmp_path: Path, s3: str) -> None:
    one, other = lived(parse_location(tmp_path / "place")), lived(parse_location(f"{s3}/{tmp_path.name}/place"))
    for number, (found, expected) in enumerate(zip(one, other, strict=True)):
        assert found == expected, f"step {number}"
    refused = [found for found in one if isinstance(found, str)]
    assert (
        refused
        == [
            "Missing: 'a/none' in PLACE is missing; restore it, or correct its name",
        ]
        * 5
    )


def test_what_the_system_refuses_names_the_place(tmp_path: Path, s3: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        StoreError, match=r"'x' in .*/file could not be written: .*; mend that and run again: nothing is charged twice"
    ):
        parse_location(tmp_path / "file").write("x", b"")
    with pytest.raises(
        StoreError,
        match=r"'x' in the records could not be written: http://[\d.:]+ answered 404; check the bucket, its credentials and rights",
    ):
        parse_location(f"{s3}-none/a", label="the records").write("x", b"")
    with pytest.raises(StoreError, match="'what://x' is not the URL of an object store"):
        parse_location("what://x").claim()


def test_a_folder_that_may_not_be_listed_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not a folder without files."""

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.scandir", refused)
    with pytest.raises(Denied, match="could not be listed: Permission denied; mend that"):
        parse_location(tmp_path).folders()


def test_what_is_written_privately_stays_private(tmp_path: Path) -> None:
    with private_files():
        parse_location(tmp_path / "place").write("a/b", b"x", lasting=True)
        assert parse_location(tmp_path / "place").create("a/c", b"x", lasting=True)
    modes = [stat.S_IMODE((tmp_path / "place" / name).stat().st_mode) for name in ("a", "a/b", "a/c")]
    assert modes == [0o700, 0o600, 0o600]


def test_a_file_that_was_changed_a_moment_ago_is_not_settled_whatever_its_time_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time can be set back, or be that of another file that took its place."""
    place, path, long_ago = parse_location(tmp_path), tmp_path / "x", 1e9

    def set_back() -> None:
        path.write_bytes(b"x")
        os.utime(path, (long_ago, long_ago))

    def replaced() -> None:
        (tmp_path / "other").write_bytes(b"x")
        os.utime(tmp_path / "other", (long_ago, long_ago))
        (tmp_path / "other").replace(path)

    for change in (lambda: path.write_bytes(b"x"), set_back, replaced):
        change()
        assert place.file_state("x").version is None
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 3600)
    assert place.file_state("x").version is not None


def test_bytes_that_have_to_last_are_on_the_disk_before_they_have_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("fsync", "link", "replace"):
        original = getattr(os, name)

        def noted(*given: Any, _name: str = name, _original: Any = original, **options: Any) -> Any:
            done.append(_name)
            return _original(*given, **options)

        monkeypatch.setattr(os, name, noted)
    place = parse_location(tmp_path / "place")
    place.write("a", b"x", lasting=True)
    place.create("b", b"x", lasting=True)
    place.write("c", b"x")
    assert done == ["fsync", "replace", "fsync", "link", "replace"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x/y", "/base/x/y"),
        ("/x/y/", "/x/y"),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        ("az://container/a b", "az://container/a b"),
    ],
)
def test_a_users_text_becomes_a_place_once(text: str, expected: str) -> None:
    place = parse_location(text, below=Path("/base"))
    assert (str(place), str(place.path_or_url)) == (expected, expected)
    assert parse_location(place) is place


def test_a_missing_file_is_not_a_failure_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        parse_location(tmp_path).read_bytes("x")
    (tmp_path / "x").mkdir()
    with pytest.raises(StoreError, match="could not be read: Is a directory") as told:
        parse_location(tmp_path).read_bytes("x")
    assert not isinstance(told.value, Missing)
