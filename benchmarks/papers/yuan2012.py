"""The claims of the low-rank mechanism's own paper (Yuan et al., VLDB 2012: LRM) under pure epsilon.

The scan that the project works from holds the abstract, the conclusion, the proofs and appendix B, but none of the figures. So its
claims are those of these texts, measured over the workloads, sizes and mechanisms of the authors' later paper (``yuan2016.py``) with
Laplace noise. Errors are per query at epsilon 1; every one of them is proportional to 1 / epsilon^2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from experiment import Experiment, Figure, Found, Measurement, Size
from paper_bounds import low_rank_bounds
from yuan2016 import WORKLOADS, flat

from dpdist.operators import Matrix
from dpdist.strategies import (
    hierarchical,
    identity,
    laplace,
    low_rank,
    p_identity,
    singular_value_bound,
    smoothing,
    wavelet,
)
from dpdist.workloads import Gram, Workload, related

PANELS = ("WDiscrete", "WRange", "WRelated")


def _published(gram: Matrix) -> float:
    """LRM from the singular vectors alone, as the paper starts it (the construction of its Lemma 3)."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > gram.shape[0] * np.finfo(float).eps * values[-1]
    rank = int(kept.sum())
    spare = 1e-2 * np.random.default_rng(0).standard_normal((round(1.2 * rank) - rank, gram.shape[0]))
    start = np.vstack([vectors[:, kept].T / math.sqrt(rank), spare])
    return float(low_rank(Gram(gram), norm="l1", start=start / np.abs(start).sum(axis=0).max()).workload_cost or math.inf)


def _matrix_mechanism(gram: Matrix) -> float:
    """Appendix B: the L2 program, smoothed; A = M^(1/2) measured with Laplace noise."""
    values, vectors = np.linalg.eigh(smoothing(Gram(gram)).operator.gram())
    root = (vectors * np.sqrt(values)) @ vectors.T
    return float(2.0 * np.abs(root).sum(axis=0).max() ** 2 * np.trace(gram @ (vectors / values) @ vectors.T))


COSTS: dict[str, Callable[[Workload, Matrix], float | None]] = {
    "LRM": lambda _, gram: low_rank(Gram(gram), norm="l1").workload_cost,
    "LRM, from singular vectors": lambda _, gram: _published(gram),
    "matrix mechanism": lambda _, gram: _matrix_mechanism(gram),
    "noise on answers": lambda workload, _: laplace(workload).workload_cost,
    "noise on cells": lambda workload, _: identity(workload.shape[1], workload, norm="l1").workload_cost,
    "wavelet": lambda workload, _: wavelet((workload.shape[1],), workload, norm="l1").workload_cost,
    "hierarchical": lambda workload, _: hierarchical((workload.shape[1],), workload, norm="l1").workload_cost,
    "p-Identity": lambda _, gram: p_identity(Gram(gram)).workload_cost,
    "upper bound (Lemma 3)": lambda _, gram: low_rank_bounds(Gram(gram))[0],
    "lower bound (Lemma 4)": lambda _, gram: low_rank_bounds(Gram(gram))[1],
    "lower bound (twice svdb)": lambda _, gram: 2 * singular_value_bound(Gram(gram)),
}


def solved(make: Callable[[], Workload], line: str) -> Found:
    """Expected squared error of a query at epsilon 1, and CPU seconds (W'W not counted)."""
    workload = flat(make())
    gram = workload.gram()
    begun = time.process_time()
    cost = COSTS[line](workload, gram)
    assert cost is not None
    return {"error": cost / workload.shape[0], "seconds": time.process_time() - begun}


def grid(points: Callable[[Size], Iterator[tuple[float, int, int]]]) -> Experiment:
    """Every workload and mechanism at (x, n, m)."""

    def measurements(size: Size) -> Iterator[Measurement]:
        for x, n, m in points(size):
            for panel in PANELS:
                for line in COSTS:
                    yield Measurement(panel, x, line, partial(solved, partial(WORKLOADS[panel], n, m), line), n)

    return measurements


def over_rank(size: Size) -> Iterator[Measurement]:
    n = size["pure_n"]
    for share in size["ranks"]:
        make = partial(related, n, n, max(1, round(share * n)), seed=0)
        for line in COSTS:
            yield Measurement("WRelated", share, line, partial(solved, make, line), n)


EXPERIMENTS: dict[str, Experiment] = {
    "lrm-over-n": grid(lambda size: ((n, n, size["pure_n"]) for n in size["pure_ns"])),
    "lrm-over-m": grid(lambda size: ((m, size["pure_n"], m) for m in size["pure_ms"])),
    "lrm-over-rank": over_rank,
}
_ERROR = "expected squared error of a query"
FIGURES = {
    "lrm-error-over-n": Figure("LRM, pure epsilon: error over n", "lrm-over-n", "error", "n", _ERROR),
    "lrm-error-over-m": Figure("LRM, pure epsilon: error over m", "lrm-over-m", "error", "m", _ERROR),
    "lrm-error-over-rank": Figure(
        "LRM, pure epsilon: error over rank", "lrm-over-rank", "error", "s / min(m, n)", _ERROR, linear=True
    ),
}
