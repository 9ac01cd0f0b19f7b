"""Releases killed at, or without power from, the n-th write, sync, rename, link or new folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.case_selection import always
from tests.faults import harness
from tests.support import small_release
from tests.support.complete_tree import installed_releases

TINY = {"age": {"from": 0, "to": 11, "width": 4}, "sex": {"categories": ["f", "m"]}}
"""Six cells: a release takes half a second, and passes through every step."""
MECHANISMS: dict[str, dict[str, Any]] = {
    "coa": {"domain": TINY, "workload": [{"cdf": {"of": "age", "by": ["sex"]}}]},
    "identity": {"mechanism": "identity", "domain": TINY, "workload": [{"cdf": {"of": "age"}}]},
    "marginals": {"mechanism": "marginals", "domain": TINY, "workload": [{"marginals": {"ways": [1, 2]}}]},
    "completeness": {
        "mechanism": "identity",
        "domain": {**TINY, "sex": {"categories": ["f"], "outside": "drop"}},
        "workload": [{"cdf": {"of": "age"}}],
        "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 1}},
        "gate": {"completeness": {"share": 0.2}},
    },
    "adaptive": {"mechanism": "adaptive", "domain": TINY, "workload": [{"marginals": {"ways": [1, 2]}}]},
    "dawa": {
        "mechanism": "dawa",
        "domain": {"age": {"from": 0, "to": 11}},
        "workload": [{"cdf": {"of": "age"}}],
        "budget": {"epsilon": 0.5},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1}},
    },
}
FINE = {"same bytes, one charge", "one charge; killed amid the optimisation, which went on from its checkpoint"}


def tried(folder: Path, mechanism: str, *, kinds: str, first: int, count: int) -> None:
    path = small_release.write(folder / "data", **MECHANISMS[mechanism])
    outcomes = harness.trials(folder, path, kinds=kinds, first=first, count=count)
    for kind in kinds.split():
        mine = [outcome for outcome in outcomes if outcome["kind"] == kind]
        print(harness.row(f"{kind} at a random event, {mechanism}", mine))
        assert len(mine) == count
    assert all(outcome["killed"] for outcome in outcomes)
    assert {outcome["outcome"] for outcome in outcomes} <= FINE


@pytest.mark.parametrize(
    "mechanism", always(["identity"], ["identity", *({"completeness"} & installed_releases(MECHANISMS).keys())])
)
def test_a_release_killed_at_any_event_is_finished_with_the_same_bytes(tmp_path: Path, mechanism: str) -> None:
    tried(tmp_path, mechanism, kinds="kill power", first=1, count=2 if mechanism == "identity" else 10)


@pytest.mark.large
@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("mechanism", installed_releases(MECHANISMS))
def test_two_thousand_kills(tmp_path: Path, mechanism: str, kind: str) -> None:
    tried(tmp_path, mechanism, kinds=kind, first=1000, count=250)
