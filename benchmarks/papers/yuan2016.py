"""Figures 1 to 14 of Yuan, Yang, Zhang, Hao, KDD 2016 (COA).

The expected error of a linear mechanism does not depend on the data, so the paper's four panels a figure, one a data set, are
one here; measured errors on real counts stand in ``convergence``. Left out by nature: their Search Log and Social Network
files, which may not be passed on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

import numpy as np
import scipy.linalg
from experiment import Experiment, Figure, Found, Measurement, Size, histograms

from dpdist.plugins.adaptive.dawa import dawa_measurement, measure_buckets, parse_measurement
from dpdist.privacy.accounting import Loss
from dpdist.strategies import (
    Strategy,
    coa,
    eigen_design,
    gaussian,
    hierarchical,
    identity,
    low_rank,
    singular_value_bound,
    smoothing,
    wavelet,
)
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, Workload, discrete, explicit, marginal_queries, random_ranges, related

EPSILON, DELTA = 0.1, 1e-4
"""The paper's budget; its Gaussian noise is the classic sigma = sqrt(2 ln(2/delta)) / epsilon."""


def variance(epsilon: float = EPSILON, delta: float = DELTA) -> float:
    return 2.0 * math.log(2.0 / delta) / epsilon**2


def _marginals(n: int, m: int) -> Workload:
    """WMarginal over log2(n) binary attributes; at small n there are fewer counts than asked for."""
    ways = int(math.log2(n))
    return marginal_queries((2,) * ways, min(m, 4 * math.comb(ways, 2)), seed=0)


WORKLOADS: dict[str, Callable[[int, int], Workload]] = {
    "WDiscrete": lambda n, m: discrete(n, m, seed=0),
    "WMarginal": _marginals,
    "WRange": lambda n, m: random_ranges(n, m, seed=0),
    "WRelated": lambda n, m: related(n, m, max(1, min(m, n) // 2), seed=0),
}
MECHANISMS: dict[str, Callable[[Workload], Strategy]] = {
    "COA": coa,
    "AM": eigen_design,
    "wavelet": lambda w: wavelet((w.shape[1],), w),
    "hierarchical": lambda w: hierarchical((w.shape[1],), w, branching=2),
    "GM on cells": lambda w: identity(w.shape[1], w),
    "GM on answers": gaussian,
    "COA, 10 Newton steps": lambda w: coa(w, method="newton", max_iterations=10),
    "LRM": low_rank,
    "ESM": smoothing,
}
ERRORS = tuple(name for name in MECHANISMS if name != "COA, 10 Newton steps")
TIMES = ("COA", "COA, 10 Newton steps", "LRM", "ESM")


def flat(workload: Workload) -> Workload:
    """The same queries over one attribute: wavelets and trees are over a line, as in the paper."""
    return workload if len(workload.domain.shape) == 1 else explicit(workload.rows(slice(None)))


def effort(n: int, mechanism: str) -> int:
    return {"ESM": 16, "LRM": 5, "COA, 10 Newton steps": 5}.get(mechanism, 1) * n


def solved(make: Callable[[], Workload], mechanism: str) -> Found:
    """Expected squared error of a query, CPU seconds of the optimiser (W'W not counted), and the singular value bound."""
    workload = flat(make())
    gram = workload.gram()
    asked = Gram(gram) if mechanism in TIMES or mechanism == "AM" else workload
    begun = time.process_time()
    strategy = MECHANISMS[mechanism](asked)
    seconds = time.process_time() - begun
    cost = strategy.workload_cost
    assert cost is not None
    scale = variance() / workload.shape[0]
    out = {"error": cost * scale, "seconds": seconds}
    if mechanism == "COA":
        out |= {"gap": strategy.gap, "bound": singular_value_bound(Gram(gram)) * scale}
    return out


def grid(points: Callable[[Size], Iterator[tuple[float, int, int]]], mechanisms: tuple[str, ...]) -> Experiment:
    """Every workload and mechanism at (x, n, m)."""

    def measurements(size: Size) -> Iterator[Measurement]:
        for x, n, m in points(size):
            for panel, make in WORKLOADS.items():
                for mechanism in mechanisms:
                    yield Measurement(
                        panel, x, mechanism, partial(solved, partial(make, n, m), mechanism), effort(n, mechanism)
                    )

    return measurements


def over_rank(size: Size) -> Iterator[Measurement]:
    n = size["rank_n"]
    for share in size["ranks"]:
        make = partial(related, n, n, max(1, round(share * n)), seed=0)
        for mechanism in ERRORS:
            yield Measurement("WRelated", share, mechanism, partial(solved, make, mechanism), effort(n, mechanism))


def convergence(size: Size) -> Iterator[Measurement]:
    """Figure 1: after each step of Algorithm 1 cost, ||G||_F and the error measured on real counts; and the dual's steps."""
    n, m = size["convergence"]
    for panel, make in WORKLOADS.items():
        yield Measurement(panel, 0, "COA, Newton as published", partial(_newton_steps, make, n, m), n)
        yield Measurement(panel, 0, "COA, certified dual", partial(_dual_steps, make, n, m), n)


def _newton_steps(make: Callable[[int, int], Workload], n: int, m: int) -> Found:
    workload = flat(make(n, m))
    best = coa(workload, tolerance=1e-9).lower_bound
    assert best is not None
    rows, scale, state = workload.rows(slice(None)), math.sqrt(variance()), np.random.default_rng(0)
    data = histograms(n)
    out: Found = {"gap": [], "expected error": [], "gradient": [], **{f"error on {name}": [] for name in data}}

    def record_step(step: Step) -> None:
        out["gap"].append(max(step.objective / best - 1.0, 1e-12))
        out["expected error"].append(step.objective / workload.shape[0] * variance())
        out["gradient"].append(step.gradient_norm)
        root = scipy.linalg.cholesky(step.checkpoint, lower=False)
        for name, x in data.items():
            measurements = root @ x + scale * state.standard_normal(n)
            wrong = rows @ scipy.linalg.solve_triangular(root, measurements) - rows @ x
            out[f"error on {name}"].append(float(np.mean(wrong**2)))

    coa(Gram(workload.gram()), method="newton", on_step=record_step, max_iterations=30)
    return out


def _dual_steps(make: Callable[[int, int], Workload], n: int, m: int) -> Found:
    gram = flat(make(n, m)).gram()
    best = coa(Gram(gram), tolerance=1e-9).lower_bound
    assert best is not None
    out: Found = {"gap": []}
    coa(Gram(gram), on_step=lambda step: out["gap"].append(max(step.objective / best - 1.0, 1e-12)))
    return out


def _uniform(cells: int) -> np.ndarray:
    """The paper's Random Uniform (variance 10), as counts: uniform on 0..10, whose variance is 10."""
    return np.random.default_rng(1).integers(0, 11, cells).astype(np.int64)


def data_dependent(points: Callable[[Size], Iterator[tuple[float, int, int]]]) -> Experiment:
    """Figure 14: DAWA (pure epsilon 0.1) measured, COA at (0.1, delta), on WRange."""

    def measurements(size: Size) -> Iterator[Measurement]:
        for x, n, m in points(size):
            for panel, counts in {**histograms(n), "Random Uniform": _uniform(n)}.items():
                yield Measurement(panel, x, "DAWA", partial(_dawa, counts, m, size["keys"]), n)
                yield Measurement(panel, x, "COA", partial(_coa_by_delta, n, m), n)

    return measurements


def _dawa(counts: np.ndarray, m: int, keys: int) -> Found:
    workload = random_ranges(counts.size, m, seed=0)
    grid = dawa_measurement(workload, "add-remove", 1)
    budget, truth = Loss.laplace(Fraction(str(EPSILON))), workload.rows(slice(None)) @ counts
    found = []
    for key in range(keys):
        inner, spacing, noisy = parse_measurement(
            measure_buckets(counts, workload, grid, budget, key.to_bytes(32, "big")), workload, grid
        )
        reader = spacing.least_squares(inner)
        answers, _, _ = reader.answers(0, workload.shape[0], reader.estimate(noisy), grid.noise(budget))
        found.append(float(np.mean((answers - truth) ** 2)))
    return {"DAWA": float(np.mean(found))}


def _coa_by_delta(n: int, m: int) -> Found:
    cost = coa(random_ranges(n, m, seed=0)).workload_cost
    assert cost is not None
    return {f"COA (delta {delta:g})": cost / m * variance(delta=delta) for delta in (1e-2, 1e-3, 1e-4, 1e-5)}


EXPERIMENTS: dict[str, Experiment] = {
    "coa-convergence": convergence,
    "coa-over-n": grid(lambda size: ((n, n, size["m"]) for n in size["ns"]), (*ERRORS, "COA, 10 Newton steps")),
    "coa-over-m": grid(lambda size: ((m, size["n"], m) for m in size["ms"]), ERRORS),
    "coa-over-rank": over_rank,
    "coa-times-over-m": grid(lambda size: ((m, size["time_n"], m) for m in size["ms"]), TIMES),
    "coa-times-over-n": grid(lambda size: ((n, n, 2 * size["m"]) for n in size["ns"]), TIMES),
    "coa-dawa-over-n": data_dependent(lambda size: ((n, n, size["m"]) for n in size["ns"] if n <= 4096)),
    "coa-dawa-over-m": data_dependent(lambda size: ((m, size["rank_n"], m) for m in size["ms"])),
}
_ERROR = "expected squared error of a query"
FIGURES = {
    "coa-1-convergence": Figure(
        "Figure 1: convergence", "coa-convergence", "gap", "iteration", "cost / optimum - 1", by_step=True
    ),
    "coa-2-5-error-over-n": Figure("Figures 2-5: error over n", "coa-over-n", "error", "n", _ERROR, lines=ERRORS),
    "coa-6-9-error-over-m": Figure("Figures 6-9: error over m", "coa-over-m", "error", "m", _ERROR),
    "coa-10-error-over-rank": Figure(
        "Figure 10: error over rank", "coa-over-rank", "error", "s / min(m, n)", _ERROR, linear=True
    ),
    "coa-11-time-over-m": Figure("Figure 11: time over m", "coa-times-over-m", "seconds", "m", "seconds of one core"),
    "coa-12-time-over-n": Figure(
        "Figure 12: time over n", "coa-over-n", "seconds", "n", "seconds of one core", lines=(*TIMES, "AM")
    ),
    "coa-13-time-over-n": Figure(
        "Figure 13: time over n, twice the queries", "coa-times-over-n", "seconds", "n", "seconds of one core"
    ),
    "coa-14-dawa-over-n": Figure("Figure 14 a, b: DAWA", "coa-dawa-over-n", "*", "n", "mean squared error"),
    "coa-14-dawa-over-m": Figure("Figure 14 c, d: DAWA", "coa-dawa-over-m", "*", "m", "mean squared error"),
}
