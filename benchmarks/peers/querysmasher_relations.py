"""Counts by sums and differences under QuerySmasher, for benchmarks/attribute_relations.py: run in an environment of its own.

    python benchmarks/peers/querysmasher_relations.py FOLDER 10,10 7,4,2

FOLDER is a clone of cmla-psu/QuerySmasherMatrixMechanism, which names no licence: it is run as its README says and not read. Prints one
JSON list a line: sizes, kind, the root mean squared error at privacy cost 1, and CPU seconds.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import combinations

import numpy as np

sys.path.insert(0, sys.argv[1])

from query import MatrixQuery  # type: ignore[import-not-found]
from smasher import Smasher  # type: ignore[import-not-found]


def rows(kind: str, first: int, second: int) -> np.ndarray:
    """One query a row over all pairs of values."""
    x, y = np.indices((first, second)).reshape(2, -1)
    bounds = range(first + second - 1) if kind == "sum" else range(max(first, second))
    return np.array([x + y <= c if kind == "sum" else abs(x - y) <= c for c in bounds], dtype=float)


def main() -> None:
    for sizes in ([int(each) for each in listed.split(",")] for listed in sys.argv[2:]):
        for kind in ("sum", "difference"):
            started = time.process_time()
            made = Smasher(sizes, privacy_cost=1.0, default_solver="convex", verbose=False)
            pairs = list(combinations(range(len(sizes)), 2))
            asked = [MatrixQuery(sizes, (a, b), rows(kind, sizes[a], sizes[b])) for a, b in pairs]
            made.add_queries_to_workload(asked)
            made.optimize()
            variance = float(np.sum(made.workload_variance()))
            queries = sum(rows(kind, sizes[a], sizes[b]).shape[0] for a, b in pairs)
            print(json.dumps([sizes, kind, (variance / queries) ** 0.5, time.process_time() - started]), flush=True)


if __name__ == "__main__":
    main()
