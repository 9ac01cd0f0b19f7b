"""Neighbours that are as far apart as a mechanism can be asked to hide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from tests.contracts.cases import CASES, Case
from tests.contracts.pipeline import Pipeline

RHO, EPSILON = "1/2", "1"
"""Budgets at which few samples show a fault."""


def stronger(name: str) -> Case:
    """A case of the contracts with the budget of the audits."""
    case = CASES[name]
    pure = "epsilon" in case.changes.get("budget", {})
    budget, cap = ({"epsilon": EPSILON}, {"epsilon": 4}) if pure else ({"rho": RHO}, {"rho": 4})
    return replace(case, changes={**case.changes, "budget": budget, "ledger": {"dataset": "audit", "cap": cap}})


def moved(grid: Any, one: np.ndarray, other: np.ndarray) -> int:
    """The squared distance, in the norm that the noise of the grid hides, in Python's integers."""
    steps = [abs(int(a) - int(b)) for a, b in zip(one, other, strict=True)]
    return sum(steps) ** 2 if grid.norm == "l1" else sum(step * step for step in steps)


def persons(planned: Any) -> Iterator[tuple[int, ...]]:
    """Cells of all records of one more person who is a candidate for the farthest."""
    protection = planned.job.guarantee.protection
    cells = int(np.prod(planned.job.measured.domain.shape))
    most, steps = protection.most_records, getattr(protection, "participations", None)
    if steps is None:
        yield from ((cell,) * most for cell in range(cells))
        return
    apart = protection.separation
    for first, times in product(range(cells), range(1, steps + 1)):
        if first + (times - 1) * apart < cells:
            yield tuple(first + place * apart for place in range(times))


def farthest(pipeline: Pipeline, planned: Any, x: np.ndarray) -> tuple[int, ...]:
    """The cells of the person whose records, added to a histogram, move what is measured the most."""

    def movement_of_person(person: tuple[int, ...]) -> int:
        neighbour = x + np.bincount(person, minlength=x.size)
        return moved(planned.measurement, pipeline.exact_in_memory(planned, neighbour), base)

    base = pipeline.exact_in_memory(planned, x)
    return max(persons(planned), key=movement_of_person)
