"""How OpenDP and Tumult choose the largest size that counts, for ``benchmarks.private_bounds``: each runs where its package is importable.

Both look for a share of what is counted, which has to be given: OpenDP has no default for it, and in Tumult Analytics it is 0.95 and
cannot be chosen.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from dpdist.privacy.accounting import Loss

USUAL = 0.95
QUANTILES = (0.9, USUAL, 0.99)


def is_here(package: str) -> bool:
    """Whether a package can be imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def opendp_quantile(candidates: list[int], sizes: np.ndarray, loss: Loss, alpha: float, each: int) -> Callable[[], int]:
    """OpenDP's choice among candidates: their scores for a quantile, and report noisy max.

    Args:
        sizes: of all that is counted, one for each.
        loss: what the choice may cost.
        each: sizes that one person adds.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = (dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance())
    scores = space >> dp.t.then_quantile_score_candidates(candidates, alpha=alpha)
    measure = dp.max_divergence() if loss.pure else dp.zero_concentrated_divergence()

    def noisy_maximum(scale: float) -> object:
        return scores >> dp.m.then_noisy_max(measure, scale=scale, negate=True)

    measurement = dp.binary_search_chain(noisy_maximum, d_in=each, d_out=float(loss.pure or loss.rho))
    values = np.minimum(sizes, candidates[-1]).tolist()
    return lambda: candidates[measurement(values)]


def tumult_bounds(files: list[np.ndarray], loss: Loss, each: int, most: int, runs: int) -> list[list[int]]:
    """What Tumult's ``get_bounds`` chooses of each file: powers of two, up to the largest size.

    Tumult Core's measurement behind it is called with what ``get_bounds`` would give it: counts of the sizes up to each power of two, and
    the scale of the noise. All files and runs are groups of one data frame, as a call of Spark takes seconds.

    Args:
        files: the sizes in each.
    """
    from tmlt.core.domains.spark_domains import SparkDataFrameDomain, SparkIntegerColumnDescriptor
    from tmlt.core.measurements.spark_measurements import SparseVectorPrefixSums
    from tmlt.core.utils.exact_number import ExactNumber

    ranks = (most - 1).bit_length() + 1  # a bound above the largest size counts as that
    rows = []
    for number, sizes in enumerate(files):
        powers = np.minimum(np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64), ranks - 1)
        counts = np.bincount(powers, minlength=ranks).tolist()
        rows += [(number * runs + run, rank, count) for run in range(runs) for rank, count in enumerate(counts)]
    columns = ["run", "rank", "count"]
    of_integers = SparkDataFrameDomain({name: SparkIntegerColumnDescriptor() for name in columns})
    epsilon = float(loss.pure) if loss.pure else (2 * float(loss.rho)) ** 0.5  # as it is in Tumult Core
    measurement = SparseVectorPrefixSums(
        of_integers, "count", "rank", ExactNumber.from_float(4 * each / epsilon, round_up=True), ["run"], USUAL
    )
    found = measurement(_spark().createDataFrame(rows, columns)).collect()
    chosen = {row["run"]: min(2 ** row["rank"], most) for row in found}
    return [[chosen[number * runs + run] for run in range(runs)] for number in range(len(files))]


@cache
def _spark() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
