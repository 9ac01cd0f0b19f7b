"""Releases of purchases that ask plugins for more than answers: what bounds leave out, and quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tests.planner.test_bound_selection import purchases

BOUND, RANGE = 3, (5, 40)
MOST = 64
AMOUNT = {"from": 0, "to": 5000, "step": 0.01, "unit": "EUR"}
DOMAIN = {"sex": {"categories": ["f", "m"]}, "work": {"categories": ["a", "b", "c"]}}


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
