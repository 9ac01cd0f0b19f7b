"""Releases of purchases that ask plugins for more than answers: what bounds leave out, and quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

WIDEST = 20_000
WORK = "abc"
LARGEST_BOUND = 40
BUDGETS: dict[str, dict[str, Any]] = {
    "rho": {"budget": {"rho": 0.1}},
    "delta": {"budget": {"epsilon": 1, "delta": 1e-6}, "ledger": {"dataset": "small", "cap": {"epsilon": 2, "delta": 1e-6}}},
    "pure": {"budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 2}}},
}
ALWAYS = {("add-remove", "rho"), ("replace-one", "delta"), ("replace-one", "pure")}
RELATIONS_AND_BUDGETS = [
    pytest.param(neighbours, budget, marks=[] if (neighbours, budget) in ALWAYS else pytest.mark.slow)
    for neighbours in ("add-remove", "replace-one")
    for budget in BUDGETS
]
"""Relations and budgets: every one of them at every run, each with each when slow."""


BOUND, RANGE = 3, (5, 40)
MOST = 64
AMOUNT = {"from": 0, "to": 5000, "step": 0.01, "unit": "EUR"}
DOMAIN = {"sex": {"categories": ["f", "m"]}, "work": {"categories": ["a", "b", "c"]}}


def purchases(persons: int = 800, seed: int = 4) -> pa.Table:
    """Persons with lognormal numbers of records."""
    state = np.random.default_rng(seed)
    number = np.maximum(1, np.exp(state.normal(1, 0.8, persons)).round().astype(int))
    person = np.repeat(np.arange(persons), number)
    table = {"age": state.integers(0, 12, person.size), "sex": state.choice(["f", "m"], person.size), "person": person}
    return pa.table({**table, "work": state.choice(["a", "b", "c"], person.size)})


def purchases_with_amounts() -> pa.Table:
    """The same with amounts, of which some lie outside every range that tests declare."""
    table = purchases()
    amounts = np.round(np.random.default_rng(8).gamma(2, 10, table.num_rows), 2)
    return table.append_column("amount", pa.array(amounts))


def _records(bound: int) -> dict[str, Any]:
    return {"path": "records.parquet", "called": "purchases", "person": {"column": "person", "most_records": bound}}


def loss_release(**changes: Any) -> dict[str, Any]:
    """Of a spec that publishes what its bounds leave out."""
    sums = {"amount": {"from": RANGE[0], "to": RANGE[1], "step": 0.01, "missing": "drop", "unit": "EUR"}}
    workload = [{"marginals": {"ways": [0, 1]}}, {"marginals": {"of": [[], ["sex"]]}, "sum": "amount"}]
    given = {"sums": sums, "workload": workload, "mechanism": "identity", "left_out": {"most": MOST, "share": 0.2}}
    return {"records": _records(BOUND), "domain": DOMAIN, **given, **changes}


def quantile_release(**changes: Any) -> dict[str, Any]:
    """Of a spec that publishes quantiles."""
    asked = {"of": {"amount": AMOUNT}, "by": ["sex"], "at": [0.5, 0.9]}
    given = {"quantiles": asked, "workload": [{"marginals": {"ways": [1]}}]}
    return {"records": _records(2), "domain": DOMAIN, **given, **changes}


def bound_release(share: float = 0.1, **changes: Any) -> dict[str, Any]:
    """Of a spec with a bound on the records of a person that is chosen."""
    person = {"column": "person", "most_records": "private", "selection": {"share": share, "most": LARGEST_BOUND}}
    return {"records": {"path": "records.parquet", "called": "purchases", "person": person}, **changes}


def groups_release(**changes: Any) -> dict[str, Any]:
    """Persons by group, with a bound on their groups that is chosen."""
    person = {"column": "person", "most_groups": "private", "selection": {"share": 0.1, "most": LARGEST_BOUND}}
    tables = {"workload": [{"marginals": {"of": [["age", "sex", "work"]]}}]}
    records = {"path": "records.parquet", "called": "buyers", "count": "persons", "person": person}
    return tables | {"records": records, **changes}


def payments(many: int = 4000, seed: int = 3) -> pa.Table:
    """Lognormal amounts of persons with up to four records."""
    state = np.random.default_rng(seed)
    table = {
        "age": state.integers(0, 12, many),
        "sex": state.choice(["f", "m"], many),
        "person": state.integers(0, many // 3, many),
    }
    amounts = np.exp(state.normal(4, 1.2, many)).round(1)
    return pa.table(
        {**table, "work": state.choice(list(WORK), many), "paid": np.where(state.random(many) < 0.02, np.nan, amounts)}
    )


def range_release(person: bool = True, **changes: Any) -> dict[str, Any]:
    of = {"person": {"column": "person", "most_records": 2}} if person else {}
    paid = {
        "from": 0,
        "to": "private",
        "step": 1,
        "unit": "EUR",
        "missing": "drop",
        "selection": {"share": 0.2, "most": WIDEST},
    }
    tables = [{"marginals": {"of": [["sex"]]}}, {"marginals": {"of": [["sex"], ["work"]]}, "sum": "paid"}]
    return {"records": {"path": "records.parquet", **of}, "sums": {"paid": paid}, "workload": tables, **changes}
