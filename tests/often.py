"""Which cases of a test run at every change, and which with ``make slow`` alone.

A rule that holds for many cases is seen at every change in one of every kind; that it holds for all is seen before a version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.complete_tree import is_plugin_missing


def first_of(count: int, cases: Iterable[Any]) -> list[Any]:
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
