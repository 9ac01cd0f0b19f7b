"""What ``pip install dpdist`` alone does: a strategy, exact noise, and one line for each thing that needs a layer more."""

from __future__ import annotations

import json
import pickle
import sys

import dpdist as dp

workload = dp.workloads.marginals((4, 3, 2), ways=(1, 2))
ranges = dp.workloads.prefix(48)
strategy = dp.strategies.coa(ranges)
assert strategy.lower_bound <= strategy.workload_cost <= strategy.lower_bound * (1 + 1e-5)
found = {
    "costs": [dp.strategies.identity(48).cost(ranges), dp.strategies.marginals(workload).workload_cost],
    "gaussian": dp.privacy.noise.discrete_gaussian(bytes(range(32)), 1000, start=16380, count=8).tolist(),
    "laplace": dp.privacy.noise.discrete_laplace(bytes(range(32)), 1000, count=8).tolist(),
    "epsilon": dp.privacy.accounting.zcdp_epsilon(0.5, 1e-6),
}


def refused(ask: object) -> str:
    """The one line of a layer that is not installed; it survives pickling."""
    try:
        ask()
    except dp.errors.NotInstalled as missing:
        return str(pickle.loads(pickle.dumps(missing)))
    raise AssertionError("this layer is installed")


if sys.argv[1:] == ["alone"]:
    spec = {"release": "small"}
    asked = [lambda: dp.plan(spec), lambda: dp.run(spec), lambda: dp.published("small"), lambda: dp.privacy.Ledger]
    found["refused"] = [refused(ask) for ask in asked]
print(json.dumps(found))
