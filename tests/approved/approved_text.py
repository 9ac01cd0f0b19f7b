"""Approved texts, in files of this folder: words are equal, numbers to within a relative 1e-6; time and place are left out."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dpdist.version import version

FOLDER = Path(__file__).parent / "texts"
WRITE = "DPDIST_GOLDEN=write .venv/bin/python -m pytest -n 0 tests/approved"
RELATIVE_TOLERANCE = 1e-6
LEAST_NUMBER = 1e-9
"""What is smaller is rounding of a zero."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
CHANGING: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)"), "TIME"),
    (re.compile(r"(?<![\d.])\b(?=\d*[a-f])[0-9a-f]{16,}\b"), "DIGEST"),
    (re.compile(r'(versions\.\w+: )".*"'), r"\1VERSION"),
    (re.compile(r"page: right \([\d,]+ numbers\)"), "page: right (NUMBER numbers)"),
    (re.compile(r"[\d.]+ \(standard error [\d.]+\)"), "SIMULATED"),
    (re.compile(r"(non_negative\.\S*(?:ratio|error): |\"(?:ratio|error)\": )[\d.e-]+"), r"\1SIMULATED"),
    (re.compile(r'("who": )".*"'), r"\1USER"),
    (re.compile(r'("limit": )\d+'), r"\1BYTES"),
    (re.compile(r"(gap(?:_of_the_worst)?: )\S*e-\d+"), r"\1GAP"),
    (re.compile(r"\b1 \+ \d\S*|\d\S*(?:e-\d\d| × 10⁻\S+)(?= of this one's)"), "GAP"),
    (re.compile(r"\b[A-Za-z0-9+/]{86}=="), "SIGNATURE"),
    (re.compile(r"\bm[0-9a-f]{8,}(?=[-\"wn)])"), "MAP"),
    (re.compile(r"in \d+\.\d s\b"), "in SECONDS s"),
    (re.compile(r"(?:/\w[\w.-]*)+/(?=work\b|home\b)"), "FOLDER/"),
]
"""What differs from run to run or from machine to machine, and what stands for it."""


PROGRESS = re.compile(r"(?:plan|count|measure|answer|publish): |memory, GiB: ")
"""A line about how far a stage is, or how much memory it takes: which there are hangs on the machine and on what the process did before."""


def normalised(lines: Iterable[str]) -> list[str]:
    """Lines without what differs from run to run."""
    return [_normalised(line) for line in lines if not PROGRESS.match(line)]


def _normalised(line: str) -> str:
    line = line.replace(f"dpdist {version()}", "dpdist VERSION")
    for pattern, word in CHANGING:
        line = pattern.sub(word, line)
    return line


def same(one: str, other: str) -> bool:
    """Whether two lines have the same words, and the same numbers to within the tolerance."""
    if one == other:
        return True
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    return all(
        abs(float(a) - float(b)) <= max(LEAST_NUMBER, RELATIVE_TOLERANCE * abs(float(b)))
        for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    )


def difference(approved: Sequence[str], made: Sequence[str]) -> str:
    """A unified diff without the lines that are the same; empty where all are."""
    if len(approved) == len(made) and all(map(same, approved, made)):
        return ""
    if len(approved) == len(made):  # lines of which only the last digits differ are no difference
        approved = [new if same(old, new) else old for old, new in zip(approved, made, strict=True)]
    return "\n".join(difflib.unified_diff(approved, made, "approved", "made", lineterm="", n=2))


def check(name: str, lines: Iterable[str]) -> None:
    """Compare lines with the approved ones, or write them where the environment says so."""
    path, made = FOLDER / f"{name}.txt", normalised(lines)
    if os.environ.get("DPDIST_GOLDEN") == "write":
        path.write_text("\n".join(made) + "\n", encoding="utf-8")
    differs = difference(path.read_text("utf-8").splitlines(), made)
    assert not differs, f"{differs}\n\nRead the difference; if it is meant: {WRITE} -k {name}"
