"""Time to a certified 1e-6: dpdist's optimiser against the best peer methods, side by side in one process.

    python benchmarks/optimisers.py --sizes 256 1024 --out benchmarks/results/optimisers.md

Peers are written out below as small references: the fixed point on the dual (Denisov et al. 2022), the same over-relaxed and with
the certificate of X rescaled to unit diagonal, L-BFGS on X from the identity, L-BFGS as HDMM starts it (from V^1/2, with a penalty
outside the cone), and COA as published (theta = 1e-3). They are told the optimum and stop at a true gap of 1e-6, for which nothing
is charged to them; one that is not there after ``--cap`` times dpdist's time is stopped, and its ratio is a lower bound
(">"); one that is slower than an earlier peer was is stopped then. Marginals are handed to dpdist as a workload, whose
integer basis it uses; everything else as a gram. Times are CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from dpdist.errors import NotPositiveDefinite
from dpdist.strategies import coa
from dpdist.strategies.dense.adaptive_mechanism import eigen_queries, program_1
from dpdist.strategies.dense.trace_problem import FullRankProblem, problem_of
from dpdist.strategies.optimal import _armijo, newton_direction, objective_and_gradient
from dpdist.workloads import Gram, Workload, all_ranges, discrete, marginals, prefix, random_ranges, related

TOLERANCE = 1e-6
FLOOR = 2
"""Eigen-decompositions of a full-rank solve that starts from one and proves its gap by another."""
MARGINAL_SHAPES = {64: (4, 4, 4), 256: (4, 8, 8), 512: (8, 8, 8), 1024: (8, 8, 16), 2048: (8, 16, 16), 4096: (16, 16, 16)}


def permuted_prefix(n: int) -> np.ndarray:
    """Prefix sums in a random order of the cells, and three times the identity."""
    order, last = np.random.default_rng(1).permutation(n), np.arange(n)
    return (n - np.maximum(order[:, None], order) + 3.0 * (last[:, None] == last)).astype(float)


def sparse_rows(n: int) -> np.ndarray:
    """2 n queries that count each cell with probability 1/20."""
    rows = (np.random.default_rng(2).random((2 * n, n)) < 0.05).astype(float)
    return rows.T @ rows


def windows(n: int) -> np.ndarray:
    """Sums of the last n / 8 steps."""
    apart = np.arange(n)[:, None] - np.arange(n)
    rows = ((apart >= 0) & (apart < n // 8)).astype(float)
    return rows.T @ rows


def exponential_kernel(n: int) -> np.ndarray:
    """exp(-10 |i - j| / n)."""
    return np.exp(-10.0 * np.abs(np.arange(n)[:, None] - np.arange(n)) / n)


def ill_conditioned(n: int, least: float) -> np.ndarray:
    """Random orthogonal factors with singular values from 1 down to the least."""
    state = np.random.default_rng(3)
    left, right = (np.linalg.qr(state.standard_normal((n, n)))[0] for _ in range(2))
    rows = (left * np.geomspace(1.0, least, n)) @ right.T
    return rows.T @ rows


def over_decades(gram: np.ndarray) -> np.ndarray:
    """The cells scaled by 1 to 1e-4, in a random order."""
    scales = np.random.default_rng(4).permutation(np.geomspace(1.0, 1e-4, len(gram)))
    return scales[:, None] * gram * scales


def short_ranges(n: int) -> np.ndarray:
    """2 n random ranges of at most n / 16 cells."""
    state = np.random.default_rng(5)
    first, length = state.integers(0, n, 2 * n)[:, None], state.integers(1, n // 16 + 1, 2 * n)[:, None]
    cells = np.arange(n)
    rows = ((cells >= first) & (cells < first + length)).astype(float)
    return rows.T @ rows


def normal_rows(n: int) -> np.ndarray:
    """2 n queries with standard normal entries."""
    rows = np.random.default_rng(6).standard_normal((2 * n, n))
    return rows.T @ rows


def two_prefixes(n: int) -> np.ndarray:
    """Prefixes of two attributes together, about sqrt(n) values each."""
    fewer = 2 ** (math.isqrt(n).bit_length() - 1)
    return np.kron(prefix(fewer).gram(), prefix(n // fewer).gram())


def power_kernel(n: int) -> np.ndarray:
    """1 / (1 + |i - j|)."""
    return 1.0 / (1.0 + np.abs(np.arange(n)[:, None] - np.arange(n)))


GRAMS: dict[str, Callable[[int], np.ndarray]] = {
    "permuted prefix + 3 I": permuted_prefix,
    "sparse 0/1": sparse_rows,
    "windows": windows,
    "exponential kernel": exponential_kernel,
    "singular values to 1e-6": lambda n: ill_conditioned(n, 1e-6),
    "singular values to 1e-10": lambda n: ill_conditioned(n, 1e-10),
    "prefix over four decades": lambda n: over_decades(prefix(n).gram()),
    "all ranges over four decades": lambda n: over_decades(all_ranges(n).gram()),
    "exponential kernel over four decades": lambda n: over_decades(exponential_kernel(n)),
    "short ranges": short_ranges,
    "normal rows": normal_rows,
    "two prefixes": two_prefixes,
    "power kernel": power_kernel,
}
WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "prefix": lambda n: prefix(n),
    "all ranges": lambda n: all_ranges(n),
    "random ranges": lambda n: random_ranges(n, 1024),
    "WRelated": lambda n: related(n, 1024, int(0.4 * min(1024, n))),
    "WDiscrete": lambda n: discrete(n, 1024),
    "2-way marginals": lambda n: marginals(MARGINAL_SHAPES[n], 2),
}


class Watch:
    """CPU seconds of a peer; ends the peer at its goal or its cap."""

    class PeerFinished(Exception):
        """The peer is finished."""

    def __init__(self, goal: float, cap: float) -> None:
        self.goal, self.cap, self.best, self.gave_up = goal, cap, math.inf, False
        self.started = time.process_time()

    @property
    def spent(self) -> float:
        return time.process_time() - self.started

    def see(self, cost: float) -> None:
        self.best = min(self.best, cost)
        if self.best <= self.goal or self.spent > self.cap:
            raise Watch.PeerFinished


def fixed_point(gram: np.ndarray, watch: Watch) -> None:
    """v <- v * diag X(v) on the whole gram without empty cells, from v = diag V^(1/2)."""
    asked = np.diag(gram) > 0
    gram = gram[np.ix_(asked, asked)]
    values, vectors = scipy.linalg.eigh(gram, driver="evd", check_finite=False)
    v = np.maximum((vectors * vectors) @ np.sqrt(np.maximum(values, 0)), 1e-300)
    while True:
        d = np.sqrt(v)
        values, vectors = scipy.linalg.eigh((d[:, None] * gram * d).T, driver="evd", overwrite_a=True, check_finite=False)
        roots = np.sqrt(np.maximum(values, 0))
        diagonal = ((vectors * vectors) @ roots) / v
        watch.see(float(diagonal.max() * roots.sum()))
        v = v * diagonal


def relaxed_fixed_point(gram: np.ndarray, watch: Watch) -> None:
    """v <- v * diag X(v)^1.6, with the cost of X rescaled to unit diagonal beside that of X divided by its largest entry."""
    asked = np.diag(gram) > 0
    gram = gram[np.ix_(asked, asked)]
    v = np.sqrt(np.diag(gram))
    while True:
        d = np.sqrt(v)
        scaled = (d[:, None] * gram * d).T
        values, vectors = scipy.linalg.eigh(scaled, driver="evd", overwrite_a=True, check_finite=False)
        roots = np.sqrt(np.maximum(values, 1e-30 * values[-1]))
        diagonal = ((vectors * vectors) @ roots) / v
        watch.see(float(diagonal.max() * roots.sum()))
        if np.log(diagonal).std() < 0.05:
            z = np.sqrt(v * diagonal)
            watch.see(float(np.einsum("ia,ia,a->", vectors, (z[:, None] * gram * z) @ vectors, 1.0 / roots)))
        v = v * diagonal**1.6
        v *= roots.sum() / v.sum()


def lbfgs_of_hdmm(gram: np.ndarray, watch: Watch) -> None:
    """L-BFGS from V^1/2 scaled to a largest diagonal entry of 1; outside the cone a hundred times the last value."""
    values, vectors = scipy.linalg.eigh(gram, check_finite=False)
    root = (vectors * np.sqrt(np.where(values < 1e-10, 0.0, values))) @ vectors.T
    lbfgs(gram, watch, start=root / root.diagonal().max(), penalty=100.0)


def lbfgs(gram: np.ndarray, watch: Watch, start: np.ndarray | None = None, penalty: float = math.inf) -> None:
    """Quasi-Newton on the off-diagonal entries of X from X = I, infinite outside the cone (HDMM's COA by L-BFGS)."""
    n = gram.shape[0]
    lower = np.tril_indices(n, -1)
    last = 1e300

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal last
        x = np.eye(n)
        x[lower] = flat
        x.T[lower] = flat
        try:
            value, gradient, _ = objective_and_gradient(gram, x)
        except NotPositiveDefinite:
            watch.see(math.inf)
            return min(1e300, penalty * last), np.zeros(flat.size)
        watch.see(value)
        last = value
        return value, 2 * gradient[lower]

    options = {"maxiter": 10**6, "maxfun": 10**6, "ftol": 0, "gtol": 0}
    point, before = np.zeros(lower[0].size) if start is None else start[lower], math.inf
    while True:  # its line search gives up at the edge of the cone: start it again while that helps
        if watch.best >= before * (1 - 1e-12) and math.isfinite(before):
            break
        before = watch.best
        point = minimize(objective, point, jac=True, method="L-BFGS-B", options=options).x
    watch.gave_up = True


def published_coa(gram: np.ndarray, watch: Watch) -> None:
    """Algorithm 1 with Algorithm 2's five conjugate-gradient steps, from X = I, theta = 1e-3."""
    n = gram.shape[0]
    ridged = gram + 1e-3 * np.eye(n)
    x = np.eye(n)
    value, gradient, inverse = objective_and_gradient(ridged, x)
    while True:
        direction = newton_direction(inverse, gradient)
        moved = _armijo(ridged, x, direction, value, float(np.vdot(gradient, direction)))
        if moved is None:
            return
        x = moved
        value, gradient, inverse = objective_and_gradient(ridged, x)
        watch.see(float(np.vdot(gram, inverse)))


PEERS: dict[str, Callable[[np.ndarray, Watch], None]] = {
    "relaxed fixed point": relaxed_fixed_point,
    "fixed point": fixed_point,
    "L-BFGS": lbfgs,
    "HDMM's L-BFGS": lbfgs_of_hdmm,
    "published COA": published_coa,
}


@dataclass
class Row:
    workload: str
    n: int
    rank: int
    cost: float
    gap: float
    seconds: float
    equivalents: float
    eigendecompositions: float
    products: float
    memory: float
    tight_gap: float | None
    cap: float
    peers: dict[str, tuple[float, bool, float]]
    eigendecomposition: float

    @property
    def attainable(self) -> float:
        """The ratio of a solve that takes two eigen-decompositions, one to set up and one to certify, and nothing else."""
        return self.best[1] * self.seconds / (FLOOR * self.eigendecomposition)

    @property
    def best(self) -> tuple[str, float, bool]:
        """The fastest peer that arrived, else the cap as a lower bound of the ratio."""
        arrived = [(seconds, name) for name, (seconds, done, _) in self.peers.items() if done]
        if arrived:
            seconds, name = min(arrived)
            return name, seconds / self.seconds, True
        return "none", min((s for s, _, _ in self.peers.values() if s >= self.cap), default=math.nan) / self.seconds, False


def product_seconds(n: int) -> float:
    """CPU seconds of one n x n product, the median of five."""
    a = np.random.default_rng(0).standard_normal((n, n))
    a @ a
    found = []
    for _ in range(5):
        started = time.process_time()
        a @ a
        found.append(time.process_time() - started)
    return float(np.median(found))


def eigendecomposition_seconds(gram: np.ndarray) -> float:
    """CPU seconds of the gram's eigen-decomposition in double precision, the best of three."""
    found = []
    for _ in range(3):
        started = time.process_time()
        scipy.linalg.eigh(gram, driver="evd", check_finite=False)
        found.append(time.process_time() - started)
    return min(found)


def measure(name: str, n: int, *, cap: float, peers: list[str], thorough: bool) -> Row:
    workload = WORKLOADS[name](n) if name in WORKLOADS else None
    gram = GRAMS[name](n) if workload is None else workload.gram()
    given = workload if workload is not None and name == "2-way marginals" else Gram(gram)
    unit = product_seconds(n)
    if not thorough:  # the only solve
        tracemalloc.start()
    started = time.process_time()
    found = coa(given, tolerance=TOLERANCE)
    seconds, peak = time.process_time() - started, math.nan
    if not thorough:
        peak = tracemalloc.get_traced_memory()[1] / (8 * n * n)
        tracemalloc.stop()
    assert found.solve is not None
    problem = problem_of(given)
    tight = coa(given, tolerance=1e-9).gap if thorough and isinstance(problem, FullRankProblem) else None
    if thorough:
        tracemalloc.start()
        coa(given, tolerance=TOLERANCE)
        peak = tracemalloc.get_traced_memory()[1] / (8 * n * n)
        tracemalloc.stop()
    goal = found.lower_bound * (1 + TOLERANCE)
    results: dict[str, tuple[float, bool, float]] = {}
    for peer in peers:
        arrived = [spent for spent, done, _ in results.values() if done]
        watch = Watch(goal, min([cap * seconds, *arrived]))
        with contextlib.suppress(Watch.PeerFinished):
            PEERS[peer](gram, watch)
        results[peer] = (watch.spent, watch.best <= goal, watch.best / found.lower_bound - 1)
    return Row(
        name, n, problem.rank, found.workload_cost, found.gap, seconds, seconds / unit, found.solve.eigendecompositions,
        found.solve.products, peak, tight, cap * seconds, results, eigendecomposition_seconds(gram) if peers else math.nan,
    )  # fmt: skip


def adaptive(name: str, n: int) -> tuple[str, int, float, float]:
    """AM after its eigen-decomposition: time over the eigen-decomposition's, and the gap to Program 1's optimum."""
    gram = WORKLOADS[name](n).gram()
    started = time.process_time()
    queries, costs, _ = eigen_queries(gram)
    decomposed = time.process_time()
    weights = program_1(np.square(queries.T), costs)
    return name, n, (time.process_time() - decomposed) / (decomposed - started), weights.gap


def report(rows: list[Row], adaptive_rows: list[tuple[str, int, float, float]], cap: float) -> str:
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    lines = [
        "# Optimisers: time to a certified 1e-6",
        "",
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, OPENBLAS_NUM_THREADS={threads}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}. CPU seconds. Command: `benchmarks/optimisers.py`; peers "
        f"stopped at {cap:g} times dpdist's time unless noted.",
        "",
        "| workload | n | rank | cost | gap | s | product equivalents | eigh | products | memory / n^2 doubles | gap asked 1e-9 "
        "| fastest peer | times slower | two eigh alone |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        who, ratio, done = r.best
        bar = "" if done else "> "
        against = f"{who} | {bar}{ratio:.1f} | {bar}{r.attainable:.1f}" if r.peers else "- | - | -"
        tight = "-" if r.tight_gap is None else f"{r.tight_gap:.1e}"
        lines.append(
            f"| {r.workload} | {r.n} | {r.rank} | {r.cost:.9g} | {r.gap:.1e} | {r.seconds:.2f} | {r.equivalents:.0f} | "
            f"{r.eigendecompositions:g} | {r.products:g} | {r.memory:.1f} | {tight} | {against} |"
        )
    lines += [
        "",
        "'two eigh alone': the ratio of a solve of two eigen-decompositions of the gram, one to set up and one to certify.",
    ]
    ratios = [r.best[1] for r in rows if r.peers]
    if ratios:
        lines += [
            "",
            f"Smallest ratio {min(ratios):.1f}, geometric mean {math.exp(np.mean(np.log(ratios))):.1f} (capped ones at their cap).",
        ]
    lines += ["", "Where each peer stood when it arrived or was stopped (CPU seconds, true gap):", ""]
    lines += ["| workload | n | " + " | ".join(PEERS) + " |", "|---|---|" + "---|" * len(PEERS)]
    for r in rows:
        cells = [f"{r.peers[p][0]:.1f} s, {r.peers[p][2]:.1e}" if p in r.peers else "-" for p in PEERS]
        lines.append(f"| {r.workload} | {r.n} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## AM after its eigen-decomposition",
        "",
        "| workload | n | time / eigen-decomposition | gap to Program 1's optimum |",
    ]
    lines += ["|---|---|---|---|"]
    lines += [f"| {name} | {n} | {share:.3f} | {gap:.1e} |" for name, n, share, gap in adaptive_rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--cap", type=float, default=20.0, help="peers are stopped at this multiple of dpdist's time")
    parser.add_argument("--grams", nargs="+", choices=[*WORKLOADS, *GRAMS], default=[*WORKLOADS, *GRAMS])
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--once", action="store_true", help="one solve a row, memory traced in it; none to 1e-9, no AM")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for n in options.sizes:
        for name in options.grams:
            row = measure(name, n, cap=options.cap, peers=options.peers, thorough=n <= 2048 and not options.once)
            who, ratio, done = row.best
            print(f"{name:16} n={n:5} {row.seconds:8.2f} s = {row.equivalents:5.0f} products, gap {row.gap:.1e}; "
                  f"{who} {'' if done else '> '}{ratio:.1f} x", flush=True)  # fmt: skip
            rows.append(row)
            if options.out:
                options.out.write_text(report(rows, [], options.cap))
    weighed = [adaptive(name, n) for n in options.sizes if n <= 2048 and not options.once for name in WORKLOADS]
    for name, n, share, gap in weighed:
        print(f"AM {name:16} n={n:5} {share:.3f} of the eigen-decomposition, gap {gap:.1e}")
    if options.out:
        options.out.write_text(report(rows, weighed, options.cap))


if __name__ == "__main__":
    main()
