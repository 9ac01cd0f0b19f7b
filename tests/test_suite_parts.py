"""Parts of the slow suite: equal, stable and whole; what is not begun or takes too long is output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.config.argparsing import Parser

from tests import HANGS, suite_parts
from tests.case_selection import DATED_CASES
from tests.suite_parts import PARTS, part_number, updated_record, write_record

ROOT = Path(__file__).parents[1]
SECONDS = {"a": 50.0, "b": 30.0, "c": 20.0, "d": 10.0, "e": 5.0, "f": 5.0}


def test_new_files_go_to_the_part_with_the_fewest_seconds_and_measuring_moves_none() -> None:
    first = updated_record({}, SECONDS)
    assert {name: entry["cpu_seconds"] for name, entry in first.items()} == SECONDS
    assert len({entry["part"] for entry in first.values()}) == len(SECONDS)
    again = updated_record(first, {"a": 1.0, "new": 400.0, "newer": 3.0})
    assert {name: again[name]["part"] for name in SECONDS} == {name: entry["part"] for name, entry in first.items()}
    assert again["a"]["cpu_seconds"] == 1
    assert again["b"] == first["b"]
    assert updated_record({"a": {"part": 7}}, {"b": 1.0})["a"] == {"part": 7}  # it was never run whole
    assert {again["new"]["part"], again["newer"]["part"]}.isdisjoint({first[name]["part"] for name in SECONDS})


def test_files_without_a_record_have_a_part_too() -> None:
    assert {part_number(str(number), {}) for number in range(100)} == {*range(1, PARTS + 1)}
    record = updated_record({}, SECONDS)
    assert {name: part_number(name, record) for name in SECONDS} == {name: entry["part"] for name, entry in record.items()}
    assert json.loads(write_record(record)) == record


CASES = """
import pytest
@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_many(number): pass
@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_few(number): pass
def test_quick(): pass
"""
CONFIGURED = """
import os
from tests.case_selection import leave_cases_to_other_days
def pytest_collection_modifyitems(items):
    leave_cases_to_other_days(items, os.environ["DPDIST_TEST_DAY"])
"""


def selected(folder: Path, markers: str, day: str) -> list[str]:
    """The tests of a day that have the markers."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  large\n")
    (folder / "conftest.py").write_text(CONFIGURED)
    (folder / "test_cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", markers, "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "DPDIST_TEST_DAY": day, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=HANGS, env=environment)
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_a_day_draws_some_of_many_cases_and_all_are_large_or_drawn(tmp_path: Path) -> None:
    first, again, next_day = (
        selected(tmp_path, "slow and not large", day) for day in ("2026-11-28", "2026-11-28", "2026-11-29")
    )
    assert first == again
    assert {*first} != {*next_day}
    for drawn in (first, next_day):
        assert (sum("test_many" in name for name in drawn), sum("test_few" in name for name in drawn)) == (DATED_CASES, 3)
    whole = selected(tmp_path, "slow or large", "2026-11-28")
    assert len(whole) == 43
    assert {*whole} - {*first} == {*selected(tmp_path, "large", "2026-11-28")}


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
    record.write_text(json.dumps({"another.py": {"part": 2, "cpu_seconds": 7.0}}))
    output = run(tmp_path, "--cpu-record", str(record), "--write-record")
    assert "3 passed; 0.0 CPU minutes" in output
    assert "test_three.py::test_quick" in output
    assert json.loads(record.read_text()).keys() == {"another.py", "test_three.py"}


def test_what_is_not_begun_in_time_is_output_and_keeps_its_record(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"test_three.py": {"part": 2, "cpu_seconds": 7.0}}))
    output = run(tmp_path, "--cpu-record", str(record), "--write-record", "--begin-within", "1", sleep=1.5)
    assert "1 not begun, 2 passed" in output
    assert "not begun: test_three.py::test_last" in output
    assert json.loads(record.read_text()) == {"test_three.py": {"part": 2, "cpu_seconds": 7.0}}


@pytest.mark.slow
def test_a_test_that_takes_too_long_fails_alone(tmp_path: Path) -> None:
    output = run(tmp_path, "--test-limit", "1", sleep=30)
    assert "1 failed, 2 passed" in output
    assert "the test took longer than --test-limit" in output


@pytest.mark.parametrize("part", ["0/12", "13/12", "3/4", "3", "x/y"])
def test_parts_that_are_none_are_refused(part: str, pytestconfig: pytest.Config) -> None:
    parser = Parser(_ispytest=True)
    suite_parts.pytest_addoption(parser)
    with pytest.raises(pytest.UsageError, match="--part"):
        parser.parse(["--part", part])
