"""Records of which some miss a value or lie outside the domain, and a release that publishes how many do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

ASKED: dict[str, Any] = {
    "domain": {
        "sex": {"categories": ["f", "m"], "outside": "drop"},
        "age": {"from": 0, "to": 99, "width": 10, "outside": "drop", "missing": "unknown"},
    },
    "workload": [{"marginals": {"of": [["sex"], []]}}],
    "mechanism": "identity",
    "gate": {"completeness": {"share": 0.2}},
}
PERSON = {"path": "records.parquet", "person": {"column": "person", "most_records": 1}, "most_missing": "100%"}


def visit_records(size: int = 6000, seed: int = 1, outside: float = 0.1) -> pa.Table:
    """Records of about a third as many persons; some miss an age, have one beyond the bins, or a sex that is not declared."""
    state = np.random.default_rng(seed)
    ages = state.integers(0, 100, size).astype(float)
    ages[state.random(size) < 0.05] = np.nan
    ages[state.random(size) < 0.02] = 250.0
    sexes = np.where(state.random(size) < outside, "x", state.choice(["f", "m"], size))
    return pa.table({"person": state.integers(0, size // 3, size), "age": pa.array(ages, from_pandas=True), "sex": sexes})
