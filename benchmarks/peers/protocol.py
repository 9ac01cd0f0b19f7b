"""How every system is asked: a file of people in, noisy answers out. Standard library only: each has a Python of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

REGIONS, SEXES, AGES, MOST_PAID = ("North", "South", "East", "West"), ("f", "m"), range(100), 100_000
TABLES = (("region",), ("sex",), ("age",), ("region", "sex", "age"))
VALUES = {"region": REGIONS, "sex": SEXES, "age": AGES}
TAKEN = "NOISE "
"""How a line begins that says of a question which kind of noise was taken."""
Answers = dict[str, float]
"""By 'North|f|34', the values of the attributes asked for."""


def key(*values: object) -> str:
    return "|".join(map(str, values))


def main(load: Callable[[str], Any], **questions: Callable[[Any], Answers]) -> None:
    """Answer every question some times: the file, how often."""
    data = load(sys.argv[1])
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        try:
            found[name] = [ask(data) for _ in range(int(sys.argv[2]))]
        except Exception as error:  # noqa: BLE001 - a system that cannot answer is told so in the table
            found[name] = f"{type(error).__name__}: {str(error)[:200]}"
    print("ANSWERS" + json.dumps(found))
