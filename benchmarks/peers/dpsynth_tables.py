"""A mechanism of dpsynth on one data set, as ``private_pgm.py`` measures those of private-pgm.

    python benchmarks/peers/dpsynth_tables.py RECORDS.npz SIZES.json MECHANISM WAYS EPSILON SEED [ITERATIONS]

The Python has checkouts of github.com/google/dpsynth (cf8075f) and github.com/ryan112358/mbi (361705d; both Apache 2.0) on its path, and
jax 0.11.0, chex, optax, attrs, etils, pandas, scipy, networkx, more-itertools, absl-py, tqdm, pydantic, PyYAML and dp-accounting (Python
3.12). MECHANISM is AIM, MST or SWIFT, with rare values merged, as dpsynth recommends, and all tables of WAYS attributes of at most 10,000
cells as the workload of AIM and SWIFT; delta is 1e-9. ITERATIONS of the estimate: its own default unless given.
"""

import itertools
import json
import math
import resource
import sys
import time
from pathlib import Path

import dpsynth.discrete_mechanisms as mechanisms
import mbi
import numpy as np


def rho_of(epsilon: float, delta: float) -> float:
    """The rho whose zCDP is (epsilon, delta)-DP (Canonne, Kamath & Steinke 2020, corollary 13), by halving."""
    orders = 1 + np.geomspace(1e-2, 1e4, 20_000)
    low, high = 0.0, epsilon
    for _ in range(60):
        rho = (low + high) / 2
        logs = (orders - 1) * (orders * rho - epsilon) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
        low, high = (rho, high) if logs.min() <= math.log(delta) else (low, rho)
    return low


RECORDS, SIZES, MECHANISM, WAYS, EPSILON, SEED = sys.argv[1:7]
sizes = json.loads(Path(SIZES).read_text())
read = np.load(RECORDS)
columns = {name: read[name] for name in sizes}
records = len(next(iter(columns.values())))
few = {k: [s for s in itertools.combinations(sizes, k) if math.prod(sizes[name] for name in s) <= 10_000] for k in (2, 3)}
own = {"pgm_iters": int(sys.argv[7])} if len(sys.argv) > 7 else {}
own |= {} if MECHANISM == "MST" else {"workload": few[int(WAYS)]}
inner = getattr(mechanisms, f"{MECHANISM}Config")(**own)
start = time.process_time()
config = mechanisms.DiscreteConfig(mechanism=inner, compress_columns=True)
try:
    calibrated = config.calibrate(epsilon=float(EPSILON), delta=1e-9)
except ZeroDivisionError:  # SWIFT at this commit: its search begins with a budget of nothing
    calibrated = config.configure(zcdp_rho=rho_of(float(EPSILON), 1e-9), delta=1e-9)
data = mbi.Dataset(columns, mbi.Domain(list(sizes), list(sizes.values())))
synthetic = calibrated(np.random.default_rng(int(SEED)), data).synthetic_data
took = time.process_time() - start
made = {name: np.asarray(synthetic.data[name]) for name in sizes}


def counts(of: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    """A table, as if of as many records as there are."""
    shape = tuple(sizes[name] for name in names)
    table = np.bincount(np.ravel_multi_index([of[name] for name in names], shape), minlength=math.prod(shape))
    return table * (records / table.sum())


apart = {k: [np.abs(counts(columns, s) - counts(made, s)) for s in few[k]] for k in few}
found = {k: float(np.mean([each.sum() for each in apart[k]])) / (2 * records) if apart[k] else None for k in few}
asked = np.concatenate(apart[int(WAYS)])
true = np.concatenate([counts(columns, s) for s in few[int(WAYS)]])
told = {"two": found[2], "three": found[3], "squared": float((asked**2).sum())}
told |= {"relative": float(np.mean(asked / np.maximum(true, 10))), "cpu": took}
print(json.dumps({**told, "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
