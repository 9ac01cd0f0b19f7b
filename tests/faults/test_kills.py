"""Releases killed at, or without power from, the n-th write, sync, rename, link or new folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import small
from tests.faults import harness

TINY = {"age": {"from": 0, "to": 11, "width": 4}, "sex": {"categories": ["f", "m"]}}
"""Six cells: a release takes half a second, and passes through every step."""
MECHANISMS: dict[str, dict[str, Any]] = {
    "coa": {"domain": TINY, "workload": [{"cdf": {"of": "age", "by": ["sex"]}}]},
    "identity": {"mechanism": "identity", "domain": TINY, "workload": [{"cdf": {"of": "age"}}]},
    "marginals": {"mechanism": "marginals", "domain": TINY, "workload": [{"marginals": {"ways": [1, 2]}}]},
    "dawa": {
        "mechanism": "dawa",
        "domain": {"age": {"from": 0, "to": 11}},
        "workload": [{"cdf": {"of": "age"}}],
        "budget": {"epsilon": 0.5},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1}},
    },
}
FINE = {"same bytes, one charge", "one charge; killed amid the optimisation, which went on from its checkpoint"}


def tried(folder: Path, mechanism: str, *, power: bool, first: int, count: int) -> None:
    path = small.write(folder / "data", **MECHANISMS[mechanism])
    outcomes = harness.trials(folder, path, power=power, first=first, count=count)
    print(harness.row(f"{'power lost' if power else 'killed'} at a random event, {mechanism}", outcomes))
    assert len(outcomes) == count
    assert all(outcome["killed"] for outcome in outcomes)
    assert {outcome["outcome"] for outcome in outcomes} <= FINE


@pytest.mark.parametrize("power", [False, True])
def test_a_release_killed_at_any_event_is_finished_with_the_same_bytes(tmp_path: Path, power: bool) -> None:
    tried(tmp_path, "identity", power=power, first=1, count=6)


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_two_thousand_kills(tmp_path: Path, mechanism: str, power: bool) -> None:
    tried(tmp_path, mechanism, power=power, first=1000, count=250)
