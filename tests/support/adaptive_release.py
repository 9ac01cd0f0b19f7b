"""A release whose tables are chosen in rounds, and records of attributes that depend on each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

WIDE = {f"x{i}": {"from": 0, "to": 3} for i in range(5)}
ASKED = {
    "mechanism": "adaptive", "domain": WIDE, "workload": [{"marginals": {"ways": [0, 1, 2, 3]}}], "budget": {"rho": 0.004},
}  # fmt: skip


def like(rows: int = 8000) -> pa.Table:
    state = np.random.default_rng(0)
    shared = state.integers(0, 4, rows)
    return pa.table({name: np.where(state.random(rows) < 0.6, shared, state.integers(0, 4, rows)) for name in WIDE})
