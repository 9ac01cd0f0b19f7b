"""How every system is asked: a folder of files in, noisy answers out. Standard library only: each has a Python of its own."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

REGIONS, SEXES, AGES, MOST_PAID = ("North", "South", "East", "West"), ("f", "m"), range(100), 100_000
TABLES = (("region",), ("sex",), ("age",), ("region", "sex", "age"))
HOURS, DELAYS = range(24), range(64)
FLIGHTS = (("departure",), ("delay",), ("departure", "delay"))
TOWNS, MOST_SPENT, PURCHASES, DAYS = ("Köln", "Zürich", "Besançon", "A Coruña"), 80, 3, 91
LEVELS = ("region", "subregion", "born")
GROUPS = Path(__file__).parents[2] / "examples" / "birthplaces" / "levels.csv"
WORLD = {name: sorted({row[name] for row in csv.DictReader(GROUPS.open(encoding="utf-8"))}) for name in LEVELS}
"""The public names of countries and of the groups that they are in."""
CODES = {"workclass": 9, "education": 16, "marital": 7, "occupation": 15, "relationship": 6}
SPARSE = tuple(combinations(CODES, 3))
VALUES = {
    "region": REGIONS,
    "sex": SEXES,
    "age": AGES,
    "departure": HOURS,
    "delay": DELAYS,
    "town": TOWNS,
    "bought": range(DAYS),
    **{name: range(size) for name, size in CODES.items()},
}
TAKEN = "NOISE "
"""How a line begins that says of a question which kind of noise was taken."""
Answers = dict[str, float]
"""By 'North|f|34', the values of the attributes asked for; of several tables, each key begins with the names of its attributes."""


def key(*values: object) -> str:
    return "|".join(map(str, values))


def cells(of: tuple[str, ...]) -> list[str]:
    """Keys of a table, the last attribute fastest."""
    found = [""]
    for name in of:
        found = [f"{head}|{value}".lstrip("|") for head in found for value in VALUES[name]]
    return found


def in_table(of: tuple[str, ...], answers: Answers) -> Answers:
    """Answers of one of several tables."""
    return {f"{key(*of)}: {cell}": float(value) for cell, value in answers.items()}


def running(counts: Answers, upto: range) -> Answers:
    """The sum of all counts up to each value."""
    return {key(last): sum(counts.get(key(k), 0.0) for k in range(last + 1)) for last in upto}


def main(load: Callable[[str], Any], **questions: Callable[[Any], Answers]) -> None:
    """Answer every question as often as it is asked: the folder of the files, and how often, by question."""
    data = load(sys.argv[1])
    found: dict[str, Any] = {}
    for name, repeats in json.loads(sys.argv[2]).items():
        if name not in questions:
            continue
        try:
            found[name] = [questions[name](data) for _ in range(repeats)]
        except Exception as error:  # noqa: BLE001 - a system that cannot answer is told so in the table
            found[name] = f"{type(error).__name__}: {str(error)[:200]}"
    print("ANSWERS" + json.dumps(found))
