"""The event of a release, recomputed by dp-accounting to what the release states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.case_selection import slow_after_first
from tests.support import small_release

CASES: dict[str, dict[str, Any]] = {
    "gaussian": {"budget": {"epsilon": 1, "delta": "1/1000000"}, "ledger": {"dataset": "small", "cap": {"rho": 4}}},
    "rho": {"budget": {"rho": "1/7"}, "ledger": {"dataset": "small", "cap": {"rho": 4}}},
    "replaced persons": {
        "budget": {"rho": "1/7"},
        "ledger": {"dataset": "small", "cap": {"rho": 4}},
        "neighbours": "replace-one",
        "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 3}},
    },
    "selected names": {
        "ledger": {"dataset": "small", "cap": {"rho": 0.3, "selection": 1e-6}},
        "domain": {
            "sex": {"categories": ["f", "m"]},
            "work": {"categories": "private", "selection": {"share": 0.2, "delta": 1e-6, "most": 70}, "other": "elsewhere"},
        },
        "workload": [{"marginals": {"ways": [1, 2]}}],
    },
    "laplace": {"budget": {"epsilon": "3/4"}, "ledger": {"dataset": "small", "cap": {"epsilon": 2}}},
}


@pytest.mark.parametrize("name", slow_after_first(3, CASES))
def test_what_dp_accounting_makes_of_it(name: str, home: Path) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    done = small_release.run(small_release.write(home.parent / "data", **CASES[name]), home)
    facts = json.loads((Path(done.folder) / "dp_event.json").read_text())
    privacy = json.loads((Path(done.folder) / "release.json").read_text())["privacy"]
    told = dict(facts["event"])
    assert told.pop("module_name") == "dp_accounting.dp_event"
    event = getattr(dp_accounting, told.pop("class_name"))(**told)
    assert facts["event"] == {**event.to_named_tuple()._asdict()}
    relation = dp_accounting.NeighboringRelation[facts["neighboring_relation"]]
    accountant = pld.PLDAccountant(relation).compose(event)
    both = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    assert both.compose(event).get_epsilon(1e-6) >= accountant.get_epsilon(1e-6) * (1 - 1e-3)  # takes events of both kinds
    assert (facts["epsilon"], facts["delta"]) == (privacy["epsilon"], privacy["delta"])
    found = accountant.get_epsilon(facts["delta"] - facts["failure"])
    assert found == pytest.approx(privacy["epsilon"], rel=1e-3)
    assert accountant.get_delta(privacy["epsilon"] * 0.99) > privacy["delta"] - facts["failure"]
    assert (facts["failure"] > 0) == (name == "selected names")
