"""Which periods of a data set should be published by now, and which of them are.

The ledger says since when: from the period in which the cap was declared on, every period of the cap. Runs say it of schedules that go by
other periods than the cap, or under a cap in total: from the newest period that they published on, every period of theirs.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, cast, get_args

from dpdist.privacy.charges import period_of
from flows.periods import Every, last_complete, periods, start_of

NEWEST = 8
"""Periods over which an alert is raised, each by its own series: an older gap does not ring for ever, and the number of all stays."""


def expected(
    per: str | None, declared: str, finished: frozenset[str], known: Mapping[str, Any], moment: datetime.datetime
) -> dict[str, bool]:
    """Every period that was over at a moment and should be published, oldest first, and whether it is.

    A release that was measured and not published, because its run was killed, is not the newest that runs published.

    Args:
        per: how long the periods of the data set's cap are, or ``total``; None where the ledger does not know it.
        declared: when the cap was declared, ISO.
        finished: the budget periods of the cap in which a release was committed.
        known: what runs wrote down of their publications; empty where none did.
    """
    newest = datetime.date.fromisoformat(known["period"]) if known.get("period") else None
    out = {}
    if per is not None and per in get_args(Every):
        for day in _over(datetime.datetime.fromisoformat(declared).date(), cast(Every, per), moment):
            key = period_of(day, per)
            out[key] = key in finished and (newest is None or day <= newest)
    every = str(known.get("every"))
    if newest is not None and every != per and every in get_args(Every):
        out |= {period_of(day, every): day <= newest for day in _over(newest, cast(Every, every), moment)}
    return out


def _over(first: datetime.date, every: Every, moment: datetime.datetime) -> list[datetime.date]:
    """First days of the periods from the one that holds a day to the last that is over."""
    begin, last = start_of(first, every), last_complete(moment, every)
    return list(periods(begin, last, every)) if begin <= last else []
