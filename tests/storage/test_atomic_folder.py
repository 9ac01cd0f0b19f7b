"""Folders that are written whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpdist.errors import StoreError
from dpdist.storage.objects import atomic_folder

HOLD = """
import sys
from pathlib import Path
from dpdist.storage.objects.atomic_folder import draft_of
with draft_of(Path(sys.argv[1])) as draft:
    (draft / "half").write_text("written")
    print(draft, flush=True)
    sys.stdin.read()
"""


def test_drafts_of_killed_runs_are_swept_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    other = tmp_path / ".target.mine"
    other.mkdir()
    command = [sys.executable, "-c", HOLD, str(target)]
    runs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    living, killed = (Path((run.stdout or sys.stdin).readline().strip()) for run in runs)
    runs[1].send_signal(signal.SIGKILL)
    runs[1].wait()
    with atomic_folder.draft_of(target) as draft:
        (draft / "whole").write_text("written")
        draft.replace(target)
    assert not killed.exists()
    assert (living / "half").exists()
    runs[0].communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, target.name]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:
        monkeypatch.setattr(atomic_folder, "_exchange_names", lambda one, other: False)
    for text in ("first", "second"):
        with atomic_folder.draft_of(tmp_path / "target") as draft:
            (draft / text).write_text(text)
            atomic_folder.replace(tmp_path / "target", draft)
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["target", "target/second"]


def test_names_are_exchanged_in_one_step(tmp_path: Path) -> None:
    """A reader who looks between any two calls finds a folder: this system has the call."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert atomic_folder._exchange_names(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists()


def test_what_cannot_be_written_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    atomic_folder.check_writable(tmp_path / "a" / "b" / "release")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory.*a file is where a folder must be"):
        atomic_folder.check_writable(tmp_path / "file" / "release")
    with pytest.raises(StoreError, match="File name too long.*set a shorter 'output.folder'"):
        atomic_folder.check_writable(tmp_path / ("x" * 250))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
