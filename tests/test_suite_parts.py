"""Parts of the slow suite: equal, stable and whole; what is not begun or takes too long is output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HANGS
from tests.suite_parts import assign_parts

ROOT = Path(__file__).parents[1]
SECONDS = {"a": 50.0, "b": 30.0, "c": 20.0, "d": 10.0, "e": 5.0, "f": 5.0}


def test_parts_take_equal_time_and_hold_every_file_once() -> None:
    parts = assign_parts(SECONDS, SECONDS, 3)
    loads = [sum(SECONDS[name] for name in SECONDS if parts[name] == part) for part in (1, 2, 3)]
    assert sum(loads) == sum(SECONDS.values())
    assert loads == [50, 35, 35]


def test_a_part_stays_the_same_whichever_files_are_asked_for_and_new_ones_move_none() -> None:
    whole = assign_parts(SECONDS, SECONDS, 3)
    assert all(assign_parts([name], SECONDS, 3) == {name: whole[name]} for name in SECONDS)
    with_new = assign_parts([*SECONDS, "new", "newer"], SECONDS, 3)
    assert {name: with_new[name] for name in SECONDS} == whole
    assert with_new == assign_parts(["newer", "new", *SECONDS], SECONDS, 3)
    assert {*assign_parts(map(str, range(100)), {}, 12).values()} == {*range(1, 13)}


SUITE = """
import time
def test_quick(): pass
def test_longer(): time.sleep({sleep})
def test_last(): pass
"""


def run(folder: Path, *options: str, sleep: float = 0) -> str:
    """What pytest prints of three tests."""
    (folder / "pytest.ini").write_text("[pytest]")
    (folder / "test_three.py").write_text(SUITE.format(sleep=sleep))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.suite_parts",
        "-p",
        "no:cacheprovider",
        *options,
        str(folder),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANGS).stdout


def test_a_run_tells_what_it_took_and_records_it(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"another.py": 7.0}))
    output = run(tmp_path, "--cpu-record", str(record), "--write-record")
    assert "3 passed; 0.0 CPU minutes" in output
    assert "test_three.py::test_quick" in output
    assert json.loads(record.read_text()).keys() == {"another.py", "test_three.py"}


def test_what_is_not_begun_in_time_is_output_and_keeps_its_record(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"test_three.py": 7.0}))
    output = run(tmp_path, "--cpu-record", str(record), "--write-record", "--begin-within", "1", sleep=1.5)
    assert "1 not begun, 2 passed" in output
    assert "not begun: test_three.py::test_last" in output
    assert json.loads(record.read_text()) == {"test_three.py": 7.0}


def test_a_test_that_takes_too_long_fails_alone(tmp_path: Path) -> None:
    output = run(tmp_path, "--test-limit", "1", sleep=30)
    assert "1 failed, 2 passed" in output
    assert "the test took longer than --test-limit" in output


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "x/y"])
def test_parts_that_are_none_are_refused(part: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.suite_parts", "--part", part, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANGS)
    assert done.returncode == 4
