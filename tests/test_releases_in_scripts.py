"""Releases in Python without ``if __name__ == "__main__"``: in a plain script, on standard input and in a cell, small and large."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpdist as dp
from dpdist.errors import InvalidSpec, NoRecords
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests import HANGS
from tests.case_selection import slow
from tests.support import small_release

PLAIN = """
import json, sys
import dpdist as dp
from dpdist.planner import size_estimate

print("once")
size_estimate.RECORD_BYTES = {most}
planned = dp.plan("data/release.yaml")
assert "distributed" not in sys.modules
done = dp.run("data/release.yaml")
print(json.dumps([done.charged, done.answers.arrow.num_rows, planned.loss == done.plan.loss, "distributed" in sys.modules]))
"""
LARGE, SMALL = 0, 2**20


@pytest.mark.parametrize(
    ("how", "most"),
    [
        ("text", LARGE),
        *(
            slow(case)
            for case in (("input", LARGE), ("text", SMALL), ("script", SMALL), ("input", SMALL), ("script", LARGE))
        ),
    ],
)
def test_a_plain_script_publishes_once(home: Path, how: str, most: int) -> None:
    """Workers know nothing of it; what is small starts none."""
    small_release.write(Path("data"))
    text = PLAIN.format(most=most)
    Path("script.py").write_text(text)
    command = {"script": ["script.py"], "text": ["-c", text], "input": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, *command],
        input=text if how == "input" else "",
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
        env={name: value for name, value in os.environ.items() if name != "DPDIST_ENGINE"} | {"DPDIST_HOME": str(home)},
    )
    started = str(most == LARGE).lower()
    assert (done.stdout, done.stderr) == (f"once\n[true, 107, true, {started}]\n", "")
    with open_ledger(home) as ledger:
        (budget,) = ledger.budgets(charges=True)
    assert [*budget.charges] == ["small-1"]
    assert (Path("releases/small-1") / "answers.csv").read_text().count("\n") == 108


def spec_without_records(**changes: Any) -> dict[str, Any]:
    """The spec of records that do not say where they are."""
    return {name: value for name, value in small_release.spec(**changes).items() if name != "records"}


def test_records_in_memory_need_no_place(home: Path) -> None:
    """Whether the spec says more of them or nothing; without them it is refused, and nothing is charged."""
    del home
    content = spec_without_records(release="small-2", ledger={"dataset": "persons", "cap": {"rho": 0.1}})
    for spec in (spec_without_records(), {**content, "records": {"person": {"column": "person"}}}):
        planned = dp.plan(spec)
        done = dp.run(spec, records=small_release.records(seed=len(spec["release"] + str(spec.get("records")))))
        assert done.charged
        assert done.plan.loss == planned.loss
    with pytest.raises(InvalidSpec, match="'records' names no place: give exactly one of 'path'"):
        dp.run(spec_without_records(release="small-3"))
    with pytest.raises(InvalidSpec, match="'records' names no place"):
        dp.run(planned.job)


def test_a_plan_touches_no_records(home: Path) -> None:
    """Not even to see whether they are there. A release sees that before the charge."""
    spec = small_release.spec(records={"path": "nowhere.parquet"})
    assert dp.plan(spec).strategy.name == "coa"
    assert dp.plan(small_release.spec(records={"sql": "SELECT * FROM 'nowhere.parquet'"})).strategy.name == "coa"
    with pytest.raises(NoRecords, match="no records in .*nowhere.parquet"):
        dp.run(spec)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1") is None
