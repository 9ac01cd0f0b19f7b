"""Small releases by ``dpdist.run``: one, or with ``every`` one of each kind. Prints the number of answers of each."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

import dpdist as dp
from dpdist.planner import size_estimate
from dpdist.privacy import keys

every = sys.argv[1] == "every"
keys.initialise(pathlib.Path("home").resolve())
state = np.random.default_rng(0)
names = np.repeat([f"town {number}" for number in range(20)], 30)
records = pa.table(
    {
        "age": state.integers(0, 12, 600),
        "sex": state.choice(["f", "m"], 600),
        "town": names,
        "paid": state.integers(0, 100, 600),
    }
)
domain = {"age": {"from": 0, "to": 11}, "sex": {"categories": ["f", "m"]}}
asked = [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "age", "by": ["sex"]}}]
rho, epsilon = {"rho": 0.1}, {"epsilon": 1}
towns = {"town": {"categories": "private", "selection": {"share": 0.2, "delta": 1e-6, "most": 70}, "other": "elsewhere"}}
steps = [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}]
kinds: dict[str, dict[str, Any]] = {
    "counts": {"domain": domain, "workload": asked, "budget": rho},
    "pure": {"domain": domain, "workload": asked, "budget": epsilon},
    "processes": {"domain": domain, "workload": asked, "budget": rho},
    "series": {"domain": domain, "workload": steps, "budget": rho},
    "stream": {"domain": domain, "workload": steps, "budget": rho, "stream": {"name": "ages", "through": 5}},
    "sums": {
        "domain": domain,
        "sums": {"paid": {"from": 0, "to": 99}},
        "budget": rho,
        "workload": [*asked, {"marginals": {"ways": [1]}, "mean": "paid"}],
    },
    "names": {"domain": {**towns, "sex": domain["sex"]}, "workload": [{"marginals": {"ways": [1, 2]}}], "budget": rho},
}
done = {}
for kind in kinds if every else ["counts"]:
    content = kinds[kind]
    selection: dict[str, float] = {"selection": 1e-6} if kind == "names" else {}
    cap = {"epsilon": 2} if content["budget"] is epsilon else {"rho": 0.3, **selection}
    spec: dict[str, Any] = {"release": kind, **content, "ledger": {"dataset": kind, "cap": cap, "shared_records": True}}
    if kind == "processes":
        size_estimate.RECORD_BYTES = -1  # as if there were many
    given = records.filter(compute.less_equal(records["age"], 5)) if kind == "stream" else records
    release = dp.run(spec, records=given)
    size_estimate.RECORD_BYTES = 2**24
    assert ("distributed" in sys.modules) == (kind not in ("counts", "pure")), kind
    answers = release.answers.arrow
    assert release.charged, kind
    assert answers.num_rows > 3, kind
    done[kind] = answers.num_rows
print(json.dumps(done))
