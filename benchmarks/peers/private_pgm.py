"""AIM or MST of private-pgm on one data set, for ``benchmarks/adaptive_tables.py``.

    python benchmarks/peers/private_pgm.py FOLDER RECORDS.npz SIZES.json MECHANISM WAYS EPSILON SEED [ROUNDS MEGABYTES ITERATIONS]

FOLDER is a checkout of github.com/ryan112358/private-pgm (4d2b3c56, mbi 1.0.0, Apache 2.0), in an environment that has jax,
attrs, chex, optax, pandas, scipy, matplotlib and networkx: jax 0.4.35, chex 0.1.87, optax 0.2.3 and pandas below 3 (with newer
ones it fails). AIM runs for all tables of WAYS attributes of at most 10,000 cells, by default with a model of at most 10 MB and 300
iterations (its own defaults, 80 and 1,000, take hours) and with noise for 16 rounds an attribute, its default; delta is 1e-9. One
line of JSON comes back: the mean total variation distance of all tables of two and of three attributes of at most 10,000 cells, counted
in its synthetic records; the sum of the squared errors of the tables of WAYS attributes and the mean of |error| / max(count, 10); the
CPU seconds and the memory of the process.
"""

import itertools
import json
import math
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

FOLDER, RECORDS, SIZES, MECHANISM, WAYS, EPSILON, SEED = sys.argv[1:8]
ROUNDS, MEGABYTES, ITERATIONS = map(int, sys.argv[8:] or (0, 10, 300))
sys.path[:0] = [str(Path(FOLDER) / "src"), str(Path(FOLDER) / "mechanisms")]

from mbi import Dataset, Domain  # noqa: E402 - which is in FOLDER

sizes = json.loads(Path(SIZES).read_text())
columns = np.load(RECORDS)
data = Dataset(pd.DataFrame({name: columns[name] for name in sizes}), Domain(list(sizes), list(sizes.values())))
few = {k: [s for s in itertools.combinations(sizes, k) if math.prod(sizes[name] for name in s) <= 10_000] for k in (2, 3)}
np.random.seed(int(SEED))  # both draw from NumPy's global state
start = time.process_time()
if MECHANISM == "aim":
    from aim import AIM

    made = AIM(float(EPSILON), 1e-9, prng=np.random, rounds=ROUNDS or None, max_model_size=MEGABYTES, max_iters=ITERATIONS)
    _, synthetic = made.run(data, [(each, 1.0) for each in few[int(WAYS)]])
else:
    from mst import MST

    synthetic = MST(data, float(EPSILON), 1e-9)
took = time.process_time() - start


def counts(of: Dataset, names: tuple[str, ...]) -> np.ndarray:
    """A table, as if of as many records as there are."""
    table = np.asarray(of.project(names).datavector(), dtype=float)
    return table * records / table.sum()


records = len(columns[next(iter(sizes))])
apart = {k: [np.abs(counts(data, s) - counts(synthetic, s)) for s in few[k]] for k in few}
found = {k: float(np.mean([each.sum() for each in apart[k]])) / (2 * records) if apart[k] else None for k in few}
asked = np.concatenate(apart[int(WAYS)])
relative = float(np.mean(asked / np.maximum(np.concatenate([counts(data, s) for s in few[int(WAYS)]]), 10)))
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
told = {"two": found[2], "three": found[3], "squared": float((asked**2).sum()), "relative": relative}
print(json.dumps({**told, "cpu": took, "gib": memory}))
