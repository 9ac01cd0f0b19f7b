"""Keys of public files: the same as in a list, whatever the form of the file, and no other file than the spec means."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.domain.key_spaces import ListedKeys
from dpdist.errors import DpdistError, InvalidInput
from dpdist.sources import key_files
from dpdist.sources.key_files import FileKeys

ONE_LENGTH = sorted(f"{number * 7919 % 10**5:05d}" for number in range(3000))
OTHERS = sorted(["a", "b\r", "Zürich", "x" * 40, "0", "00", *ONE_LENGTH], key=str.encode)


def file_keys(path: Path, content: bytes) -> FileKeys:
    path.write_bytes(content)
    return FileKeys.of_location(str(path), hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("codes", [ONE_LENGTH, [code for code in OTHERS if "\r" not in code], ["one"]])
@pytest.mark.parametrize("form", ["lines", "lines of Windows", "no newline at the end", "parquet"])
def test_keys_of_a_file_are_those_of_a_list(
    tmp_path: Path, codes: list[str], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_files, "BATCH_ROWS", 1000)
    path = tmp_path / ("keys.parquet" if form == "parquet" else "keys.txt")
    if form == "parquet":
        pa.parquet.write_table(pa.table({"key": codes}), path)
        keys = file_keys(path, path.read_bytes())
    else:
        newline = "\r\n" if "Windows" in form else "\n"
        keys = file_keys(path, (newline.join(codes) + ("" if "no newline" in form else newline)).encode())
    listed = ListedKeys.of_texts(codes)
    state = np.random.default_rng(1)
    asked = [*state.permutation(codes)[:500].tolist(), "", "nowhere", codes[0] + "0" * 50, codes[-1] + "\0", codes[0][:-1]]
    assert keys.size == listed.size == len(codes)
    assert keys.numbers_of(asked).tolist() == listed.numbers_of(asked).tolist()
    assert keys.numbers_of(asked).tolist() == [codes.index(code) if code in codes else -1 for code in asked]
    assert [keys.key_at(number) for number in (0, len(codes) - 1)] == [codes[0], codes[-1]]


def test_keys_of_many_blocks_are_read_whole(tmp_path: Path) -> None:
    codes = [f"{number:07d}" + "x" * (number % 50_000 == 9) for number in range(300_000)]
    keys = file_keys(tmp_path / "keys.txt", "\n".join(codes).encode())
    assert keys.size == 300_000
    assert keys.numbers_of(codes[::1000]).tolist() == [*range(0, 300_000, 1000)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 keys"),
        (b"b\na\n", "in the order of their bytes"),
        (b"a\na\n", "in the order of their bytes"),
        (b"a\n\nb\n", "empty key"),
        (b"a\0\nb\0\n", "zero byte"),
        (b"a\n\xff\n", "UTF-8"),
    ],
)
def test_a_file_that_lists_no_different_keys_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DpdistError, match=message):
        _ = file_keys(tmp_path / "keys.txt", content).size


def test_another_file_is_refused(tmp_path: Path) -> None:
    keys = file_keys(tmp_path / "keys.txt", b"a\nb\n")
    assert keys.size == 2
    (tmp_path / "keys.txt").write_bytes(b"a\nc\n")
    with pytest.raises(InvalidInput, match="has the SHA-256 .* the spec says"):
        _ = FileKeys.of_location(keys.location, keys.sha256).size
    with pytest.raises(InvalidInput, match=r"other\.txt is not there"):
        FileKeys.of_location(str(tmp_path / "other.txt"), keys.sha256)


def test_as_many_keys_are_read_as_the_limit_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "MOST_KEYS", 3)
    assert file_keys(tmp_path / "three.txt", b"a\nb\nc\n").size == 3
    with pytest.raises(InvalidInput, match="has 4 keys: from 1 to 3 are read"):
        assert file_keys(tmp_path / "four.txt", b"a\nb\nc\nd\n").size == 4
