"""Names that say nothing: the shares of the tree, and what the measure finds in a planted file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.vague_names import is_vague, is_vague_file, words_of

ROOT = Path(__file__).parents[1]


def measured(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "vague_names.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_of_tests_classes_and_functions_are_measured_and_variables_are_not(tmp_path: Path) -> None:
    file = tmp_path / "test_counts.py"
    file.write_text("".join(f"def count_{i}(given):\n    kept = given\n    return kept\n" for i in range(100)))
    assert measured("--check", tmp_path).returncode == 1
    done = measured("--check", "--list", "--definitions", tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2), done.stdout  # an empty list, and the share
    with file.open("a") as planted:
        planted.write("def told():\n    pass\nclass LeftOut:\n    pass\n")
    done = measured("--check", "--list", "--definitions", tmp_path)
    assert done.returncode == 1
    assert [line.split("\t")[2] for line in done.stdout.splitlines()[:-1]] == ["told", "LeftOut"]


def test_files_of_tests_and_programs_say_what_they_are_about() -> None:
    folders = ("dpdist", "flows", "tests", "benchmarks", "tools", "deploy", "docs", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if not path.stem.startswith("__")]
    assert len(files) > 1000
    assert [str(path.relative_to(ROOT)) for path in files if is_vague_file(path.stem)] == []


@pytest.mark.parametrize("name", ["alone", "test_ends", "test_left_out", "often", "in_parts"])
def test_files_that_say_nothing_are_found(name: str) -> None:
    assert is_vague_file(name)


def test_names_that_say_nothing_are_found(tmp_path: Path) -> None:
    (tmp_path / "beyond.py").write_text(
        "class LeftOut:\n    def as_read(self, given):\n        kept = given\n        return kept\n"
    )
    done = measured("--list", "--check", tmp_path)
    assert done.returncode == 1
    assert [line.split("\t")[2] for line in done.stdout.splitlines()[:-2]] == [
        "beyond",
        "LeftOut",
        "as_read",
        "given",
        "kept",
    ]


@pytest.mark.parametrize(
    ("name", "vague"),
    [
        ("course_of", True),
        ("LeftOut", True),
        ("as_read", True),
        ("read_header", False),
        ("FileSource", False),
        ("noise_scale", False),
    ],
)
def test_a_name_needs_one_word_that_says_something(name: str, vague: bool) -> None:
    assert is_vague(name) is vague


def test_words_of_both_cases() -> None:
    assert words_of("_read_HTTPHeader2") == ["read", "http", "header2"]
