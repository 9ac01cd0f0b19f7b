"""Running sums of persons by jax-privacy's banded strategies, for benchmarks/streams.py --persons: run in an environment of its own.

    python benchmarks/peers/jax_streams.py 1024,4,256 1024,16,64

Prints a JSON list: for each case (steps, participations, separation) the root mean squared error at multiplier 1 of the Toeplitz and of the
general form, optimised with as many bands as the separation; null where one fails.
"""

from __future__ import annotations

import json
import sys

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from jax_privacy.matrix_factorization import banded, toeplitz  # noqa: E402 - once the precision is set


def of_toeplitz(n: int, k: int, b: int) -> float:
    """Of a Toeplitz strategy."""
    listed = toeplitz.optimize_banded_toeplitz(n, b)
    errors = toeplitz.per_query_error(strategy_coef=listed, n=n)
    squared = toeplitz.minsep_sensitivity_squared(listed, b, k, n)
    return float(np.sqrt(np.mean(errors) * squared))


def of_bands(n: int, k: int, b: int) -> float:
    """Of a general banded strategy, whose columns a person has k of."""
    found = banded.optimize(n, bands=b)
    matrix = np.asarray(found.materialize())
    squares = (matrix**2).sum(axis=0)
    best = np.zeros(n)
    for _ in range(min(k, -(-n // b))):
        before = np.concatenate([np.zeros(b), best[: n - b]])
        best = np.maximum.accumulate(squares + before)
    spread = np.tril(np.ones((n, n))) @ np.linalg.inv(matrix)
    return float(np.sqrt((spread**2).sum() / n * best[-1]))


def main() -> None:
    """Print the errors."""
    out = []
    for case in sys.argv[1:]:
        n, k, b = map(int, case.split(","))
        row: list[float | None] = []
        for function in (of_toeplitz, of_bands):
            try:
                row.append(function(n, k, b))
            except (TypeError, ValueError, AttributeError, MemoryError) as error:
                print(f"{function.__name__} {case}: {error}", file=sys.stderr)
                row.append(None)
        out.append(row)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
