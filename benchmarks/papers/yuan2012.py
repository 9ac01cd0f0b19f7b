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
from experiment import Experiment, Figure, Found, Measurement, Size, histograms
from yuan2016 import WORKLOADS, flat

from dpdist.grids.base import Norm
from dpdist.operators import Matrix
from dpdist.strategies import (
    hierarchical,
    identity,
    laplace,
    low_rank,
    low_rank_bounds,
    p_identity,
    singular_value_bound,
    smoothing,
    wavelet,
)
from dpdist.strategies.base import UNIT_VARIANCE
from dpdist.workloads import Workload, related

PANELS = ("WDiscrete", "WRange", "WRelated")
HALF_WIDTH: dict[Norm, float] = {"l1": math.log(20.0) / math.sqrt(2.0), "l2": 1.96}
"""Half width of the interval that holds 95 % of the noise, in standard deviations."""


def _published(gram: Matrix) -> float:
    """LRM from the singular vectors alone, as the paper starts it (the construction of its Lemma 3)."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > gram.shape[0] * np.finfo(float).eps * values[-1]
    rank = int(kept.sum())
    spare = 1e-2 * np.random.default_rng(0).standard_normal((round(1.2 * rank) - rank, gram.shape[0]))
    start = np.vstack([vectors[:, kept].T / math.sqrt(rank), spare])
    return float(low_rank(gram, norm="l1", start=start / np.abs(start).sum(axis=0).max()).workload_cost or math.inf)


def _matrix_mechanism(gram: Matrix) -> float:
    """Appendix B: the L2 program, smoothed; A = M^(1/2) measured with Laplace noise."""
    values, vectors = np.linalg.eigh(smoothing(gram).operator.gram())
    root = (vectors * np.sqrt(values)) @ vectors.T
    return float(2.0 * np.abs(root).sum(axis=0).max() ** 2 * np.trace(gram @ (vectors / values) @ vectors.T))


COSTS: dict[str, Callable[[Workload, Matrix], float | None]] = {
    "LRM": lambda _, gram: low_rank(gram, norm="l1").workload_cost,
    "LRM, from singular vectors": lambda _, gram: _published(gram),
    "matrix mechanism": lambda _, gram: _matrix_mechanism(gram),
    "noise on answers": lambda workload, _: laplace(workload).workload_cost,
    "noise on cells": lambda workload, _: identity(workload.shape[1], workload, norm="l1").workload_cost,
    "wavelet": lambda workload, _: wavelet((workload.shape[1],), workload, norm="l1").workload_cost,
    "hierarchical": lambda workload, _: hierarchical((workload.shape[1],), workload, norm="l1").workload_cost,
    "p-Identity": lambda _, gram: p_identity(gram).workload_cost,
    "upper bound (Lemma 3)": lambda _, gram: low_rank_bounds(gram)[0],
    "lower bound (Lemma 4)": lambda _, gram: low_rank_bounds(gram)[1],
    "lower bound (twice svdb)": lambda _, gram: 2 * singular_value_bound(gram),
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


def relaxed(size: Size) -> Iterator[Measurement]:
    """Theorem on gamma (a share of ||W||_F): less noise for a structural error, on real counts and in an honest interval."""
    n = size["pure_n"]
    for panel in PANELS:
        for share in size["gammas"]:
            lines: dict[str, Norm] = {"LRM, Gaussian noise": "l2"}
            if share == max(size["gammas"]):  # under the L1 norm the penalty does not reach even this one
                lines["LRM"] = "l1"
            for line, norm in lines.items():
                work = partial(_relaxed, partial(WORKLOADS[panel], n, n), share, norm)
                yield Measurement(panel, share, line, work, n)


def _relaxed(make: Callable[[], Workload], share: float, norm: Norm) -> Found:
    """Squared errors of a query with W = B L given up by ``share`` of ||W||_F, as ratios to those without; noise of scale 1."""
    workload = flat(make())
    gram, rows = workload.gram(), workload.rows(slice(None))
    exact = low_rank(gram, norm=norm).workload_cost
    strategy = low_rank(gram, norm=norm, gamma=share * math.sqrt(float(np.trace(gram))))
    right = strategy.matrix() / strategy.sensitivity
    left = _left(rows, right, share)
    missed = rows - left @ right
    noise, queries = UNIT_VARIANCE[norm] * float((left**2).sum()), rows.shape[0]
    assert exact is not None
    out: Found = {"noise": noise / exact, "missed": float(np.linalg.norm(missed) / np.linalg.norm(rows))}
    for name, x in histograms(rows.shape[1]).items():
        out[f"records, {name}"] = int(x.sum())
        out[f"all error, {name}"] = (noise + float(((missed @ x) ** 2).sum())) / exact
        bound = float((missed**2).sum()) * float(x @ x)
        out[f"bound of all error, {name}"] = (noise + bound) / exact
    # an interval that holds for every histogram of N records is wider by N max_j |row|: N at which nothing is gained
    shorter = HALF_WIDTH[norm] * (math.sqrt(exact / queries) - math.sqrt(noise / queries))
    out["records at which intervals are as wide"] = max(0.0, shorter / float(np.abs(missed).max(axis=1).mean()))
    return out


def _left(rows: Matrix, right: Matrix, share: float) -> Matrix:
    """The shortest B with ||W - B L|| at most ``share`` of ||W||, or with about the least residual where L reaches no such one."""
    u, s, v = np.linalg.svd(right, full_matrices=False)
    turned, size = rows @ v.T, float(np.linalg.norm(rows))
    outside = max(0.0, size**2 - float((turned**2).sum()))

    def missed(ridge: float) -> float:
        left_out = turned * (ridge / (s**2 + ridge))
        return math.sqrt(outside + float((left_out**2).sum()))

    low, high = 1e-8 * float(s[0]) ** 2, 1e8 * float(s[0]) ** 2
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if missed(middle) <= share * size else (low, middle)
    return np.asarray((turned * (s / (s**2 + low))) @ u.T)


EXPERIMENTS: dict[str, Experiment] = {
    "lrm-over-n": grid(lambda size: ((n, n, size["pure_n"]) for n in size["pure_ns"])),
    "lrm-over-m": grid(lambda size: ((m, size["pure_n"], m) for m in size["pure_ms"])),
    "lrm-over-rank": over_rank,
    "lrm-relaxed": relaxed,
}
_ERROR = "expected squared error of a query"
FIGURES = {
    "lrm-error-over-n": Figure("LRM, pure epsilon: error over n", "lrm-over-n", "error", "n", _ERROR),
    "lrm-error-over-m": Figure("LRM, pure epsilon: error over m", "lrm-over-m", "error", "m", _ERROR),
    "lrm-error-over-rank": Figure(
        "LRM, pure epsilon: error over rank", "lrm-over-rank", "error", "s / min(m, n)", _ERROR, linear=True
    ),
    "lrm-relaxed": Figure(
        "LRM, pure epsilon: noise left over gamma", "lrm-relaxed", "noise", "gamma / ||W||", "noise / noise at 0"
    ),
}
