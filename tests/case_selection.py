"""Which cases of a test run at every change, and which with ``make slow`` alone.

A rule that holds for many cases is seen at every change in one of every kind; ``make slow`` runs a few more of them, drawn by the date, and
``make large`` runs all, before a version.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from tests.support.complete_tree import is_plugin_missing

DATED_CASES = 3
"""So many of a test's slow cases run with ``make slow``."""
DAY = os.environ.get("DPDIST_TEST_DAY") or datetime.now(UTC).date().isoformat()
"""The day that draws them: today, unless an earlier day's cases are to be run again."""


def slow_after_first(count: int, cases: Iterable[Any]) -> list[Any]:
    """The first so many run at every change."""
    return [case if number < count else slow(case) for number, case in enumerate(cases)]


def always(often: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Those that are named run at every change.

    :raises ValueError: If one of them is none of the cases.
    """
    named, all_of_them = list(often), list(cases)
    strangers = [case for case in named if case not in all_of_them]
    if strangers and not is_plugin_missing():
        raise ValueError(f"{strangers} are none of the cases; there are {all_of_them}")
    return [case if case in named else slow(case) for case in all_of_them]


def slow(case: Any) -> Any:
    """A case that runs with ``make slow`` alone."""
    if hasattr(case, "values") and hasattr(case, "marks"):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)


def leave_cases_to_other_days(items: Iterable[pytest.Item], day: str) -> None:
    """Mark ``large`` the slow cases of a test that a day does not draw. All are kept of tests that have few of them."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("large"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, all_cases in cases.items():
        if len(all_cases) <= DATED_CASES:
            continue
        all_cases.sort(key=lambda item: item.nodeid)
        drawn = Random(f"{day} {name}").sample(all_cases, DATED_CASES)
        for item in all_cases:
            if item not in drawn:
                item.add_marker("large")
