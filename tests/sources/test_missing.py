"""A release stops before its charge when too many records are missing or outside; how many is the operator's alone."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.errors import InvalidSpec, MissingRecords
from dpdist.pipeline import release_run
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from flows.public_facts import PublicRefusal
from tests.support import small_release

AGES = {"age": {"from": 0, "to": 11, "outside": "drop"}}
WORKLOAD = [{"marginals": {"ways": [1]}}]


def release(path: Path, home: Path, *, accept: bool = False) -> None:
    job = load(path)
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    try:
        release_run.release(context, job.accepting_missing() if accept else job)
    finally:
        context.close()


def charges(home: Path) -> int:
    with open_ledger(home) as ledger:
        return sum(len(budget.charges) for budget in ledger.budgets(charges=True))


def written(folder: Path, outside: int, **changes: Any) -> Path:
    """A spec over 1000 records, of which so many are outside the domain."""
    ages = [99] * outside + [5] * (1000 - outside)
    table = pa.table({"age": ages, "town": ["a"] * 1000, "person": list(range(1000))})
    content = {
        "domain": AGES,
        "workload": WORKLOAD,
        "budget": {"rho": 1},
        "ledger": {"dataset": "small", "cap": {"rho": 10}},
    }
    return small_release.write(folder, table=table, gated=True, **{**content, **changes})


def test_a_tenth_is_allowed_and_not_one_more(home: Path, tmp_path: Path) -> None:
    refused = written(tmp_path / "more", 101, release="more")
    with pytest.raises(MissingRecords, match="the operator has to look at") as stopped:
        release(refused, home)
    assert charges(home) == 0
    assert "101" not in str(stopped.value)
    assert "101 of 1,000" in stopped.value.private
    assert "101" not in PublicRefusal.of(stopped.value).line
    assert b"101" not in pickle.dumps(stopped.value)
    release(written(tmp_path / "tenth", 100, release="tenth"), home)
    assert charges(home) == 1
    release(refused, home, accept=True)
    release(refused, home)  # was charged
    assert charges(home) == 2


@pytest.mark.parametrize(("share", "runs"), [("10%", False), ("30%", True), ("29.9%", False), ("100%", True)])
def test_the_share_is_declared(share: object, runs: bool, home: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "data", 300, records={"path": "records.parquet", "most_missing": share})
    if runs:
        release(path, home)
    else:
        with pytest.raises(MissingRecords):
            release(path, home)
    assert charges(home) == runs


@pytest.mark.parametrize("share", ["101%", "-1%", "many", "%", 0.3, True])
def test_what_is_no_share_is_refused(share: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="a share is needed, from 0% to 100%"):
        load(written(tmp_path / "data", 0, records={"path": "records.parquet", "most_missing": share}))


BEFORE: dict[str, dict[str, Any]] = {
    "names": {
        "ledger": {"dataset": "small", "cap": {"rho": 10, "selection": 1e-6}},
        "domain": {**AGES, "town": {"categories": "private", "selection": {"share": 0.1, "delta": 1e-7}}},
    },
    "left out": {"records": {"path": "records.parquet", "person": {"column": "person", "most_records": 1}}, "left_out": {}},
    "quantiles": {"quantiles": {"of": {"age": {"from": 0, "to": 11}}, "at": ["1/2"]}},
    "thresholded": {
        "records": {"path": "records.parquet", "columns": {"key": "person"}},
        "thresholded": {"of": {"key": {"integers": {"from": 0, "to": 999}}}, "at_least": 20, "share": 0.5},
    },
}


@pytest.mark.parametrize("what", BEFORE)
def test_what_is_found_first_is_not_charged_either(what: str, home: Path, tmp_path: Path) -> None:
    changes = BEFORE[what]
    with pytest.raises(MissingRecords):
        release(written(tmp_path / "data", 500, **changes), home)
    assert charges(home) == 0
    release(written(tmp_path / "few", 10, **changes), home)
    assert charges(home) >= 1


LABELLED = {"age": {"from": 0, "to": 11, "missing": "unknown"}, "town": {"categories": ["a", "b"], "missing": "unknown"}}


@pytest.mark.parametrize("text", ["[\n{lines}\n]", "[{lines}]"])
def test_an_array_that_is_called_json_lines_is_not_charged(text: str, home: Path, tmp_path: Path) -> None:
    records = [{"age": number % 12, "town": "ab"[number % 2]} for number in range(200)]
    path = written(tmp_path, 0, records={"path": "records.jsonl"}, domain=LABELLED)
    (tmp_path / "records.jsonl").write_text(text.replace("{lines}", ",\n".join(map(json.dumps, records))))
    with pytest.raises(MissingRecords):
        release(path, home)
    assert charges(home) == 0
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, records)))
    release(path, home)


def test_german_numbers_are_not_charged_for_unless_they_are_declared(home: Path, tmp_path: Path) -> None:
    text = "fee;town\n" + "".join(f"{number % 11},50;a\n" for number in range(300))
    domain = {"fee": {"edges": [0, 2, 4, 12], "outside": "drop"}, "town": LABELLED["town"]}
    path = written(tmp_path, 0, records={"path": "r.csv", "csv": {"delimiter": ";"}}, domain=domain)
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(MissingRecords):
        release(path, home)
    assert charges(home) == 0
    release(written(tmp_path, 0, records={"path": "r.csv", "csv": {"delimiter": ";", "decimal": ","}}, domain=domain), home)


def test_values_that_are_missing_and_have_a_label_are_declared(home: Path, tmp_path: Path) -> None:
    table = pa.table(
        {"age": pa.array([None] * 500 + [5] * 500, pa.int64()), "town": ["a"] * 1000, "person": list(range(1000))}
    )
    release(small_release.write(tmp_path / "data", table=table, gated=True, domain=LABELLED, workload=WORKLOAD), home)
    assert charges(home) == 1
