"""The experiments of the seeds' papers, one command a figure: cached point by point, resumable, plotted like the papers'.

    python benchmarks/papers/reproduce.py [FIGURE ...] [--size small|medium|paper] [--folder benchmarks/papers/results] [--list]

Every finished point is kept in FOLDER/<figure>-<size>.json: an interrupted run goes on with the points that are missing. Plots need
matplotlib (extra ``bench``). COA: Yuan, Yang, Zhang, Hao 2016 (KDD); AM: Li & Miklau 2012 (VLDB).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.privacy.accounting import Loss
from dpdist.reconstruct import reader_of
from dpdist.strategies import (
    Strategy,
    coa,
    eigen_design,
    gaussian,
    hierarchical,
    identity,
    laplace,
    low_rank,
    singular_value_bound,
    smoothing,
    wavelet,
)
from dpdist.strategies.base import Step
from dpdist.strategies.dawa import adaptive_lattice, measured, read
from dpdist.workloads import Workload, all_ranges, discrete, marginal_queries, prefix, random_ranges, related

EPSILON, DELTA = 0.1, 1e-4
"""The COA paper's budget; its Gaussian noise is the classic sigma = sqrt(2 ln(2/delta)) / epsilon."""
VARIANCE = 2.0 * math.log(2.0 / DELTA) / EPSILON**2
SIZES: dict[str, dict[str, Any]] = {
    "small": {"n": (32, 64), "m": (16, 32, 64), "base": 64, "slow": 64, "ranks": (0.25, 1.0), "keys": 3},
    "medium": {
        "n": (64, 128, 256, 512),
        "m": (64, 128, 256, 512),
        "base": 256,
        "slow": 512,
        "ranks": (0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
        "keys": 20,
    },
    "paper": {
        "n": (128, 256, 512, 1024, 2048, 4096, 8192),
        "m": (64, 128, 256, 512, 1024, 2048),
        "base": 1024,
        "slow": 4096,
        "ranks": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "keys": 20,
    },
}


def _marginals(n: int, m: int) -> Workload:
    """WMarginal over log2(n) binary attributes; there are fewer counts than asked for at small n."""
    ways = int(math.log2(n))
    return marginal_queries((2,) * ways, min(m, 4 * math.comb(ways, 2)), seed=0)


WORKLOADS: dict[str, Callable[[int, int], Workload]] = {
    "WDiscrete": lambda n, m: discrete(n, m, seed=0),
    "WMarginal": _marginals,
    "WRange": lambda n, m: random_ranges(n, m, seed=0),
    "WRelated": lambda n, m: related(n, m, max(1, min(m, n) // 2), seed=0),
}
MECHANISMS: dict[str, Callable[[Workload], Strategy]] = {
    "Gaussian": gaussian,
    "identity": lambda w: identity(w.shape[1], w),
    "wavelet": lambda w: wavelet((w.shape[1],), w),
    "hierarchical": lambda w: hierarchical((w.shape[1],), w, branching=2),
    "ESM": smoothing,
    "LRM": low_rank,
    "AM": eigen_design,
    "COA": coa,
}
SLOW = ("ESM", "LRM")


def _flat(workload: Workload) -> Workload:
    """The same queries over one attribute: wavelets and trees are over a line, as in the paper."""
    from dpdist.workloads import explicit

    return workload if len(workload.domain.shape) == 1 else explicit(workload.rows(slice(None)))


@dataclass(frozen=True)
class Point:
    """One place of a figure: its panel, its x, and what is measured there."""

    panel: str
    x: float
    work: Callable[[], dict[str, float]]

    @property
    def key(self) -> str:
        return f"{self.panel}|{self.x:g}"


@dataclass(frozen=True)
class Figure:
    """A figure: its title, its axes, and its points at a size."""

    title: str
    x: str
    y: str
    points: Callable[[dict[str, Any]], Iterator[Point]]


def errors_at(workload: Workload, slow: bool) -> dict[str, float]:
    """Expected squared error of a query for every mechanism, and the singular value bound."""
    flat = _flat(workload)
    out = {}
    for name, make in MECHANISMS.items():
        if slow or name not in SLOW:
            cost = make(flat).workload_cost
            assert cost is not None
            out[name] = cost / flat.shape[0] * VARIANCE
    return {**out, "bound": singular_value_bound(flat.gram()) / flat.shape[0] * VARIANCE}


def seconds_at(workload: Workload, slow: bool) -> dict[str, float]:
    """Seconds that each optimiser takes."""
    gram = _flat(workload).gram()
    out = {}
    for name in ("AM", "COA", *(SLOW if slow else ())):
        begun = time.perf_counter()
        MECHANISMS[name](gram)  # type: ignore[arg-type]
        out[name] = time.perf_counter() - begun
    return out


def over_n(measure: Callable[[Workload, bool], dict[str, float]]) -> Callable[[dict[str, Any]], Iterator[Point]]:
    def points(size: dict[str, Any]) -> Iterator[Point]:
        for panel, make in WORKLOADS.items():
            for n in size["n"]:
                yield Point(panel, n, lambda make=make, n=n: measure(make(n, size["base"]), n <= size["slow"]))

    return points


def over_m(measure: Callable[[Workload, bool], dict[str, float]]) -> Callable[[dict[str, Any]], Iterator[Point]]:
    def points(size: dict[str, Any]) -> Iterator[Point]:
        for panel, make in WORKLOADS.items():
            for m in size["m"]:
                yield Point(panel, m, lambda make=make, m=m: measure(make(size["base"], m), size["base"] <= size["slow"]))

    return points


def over_rank(size: dict[str, Any]) -> Iterator[Point]:
    n = m = size["base"]
    for share in size["ranks"]:
        yield Point(
            "WRelated",
            share,
            lambda share=share: errors_at(related(n, m, max(1, round(share * n)), seed=0), n <= size["slow"]),
        )


def convergence(size: dict[str, Any]) -> Iterator[Point]:
    """Cost over the certified bound after each iteration: the published Newton method and the certified dual."""
    for panel, make in WORKLOADS.items():
        gram = _flat(make(size["base"], size["base"])).gram()

        def work(gram: np.ndarray = gram) -> dict[str, float]:
            out: dict[str, float] = {}
            best = coa(gram, tolerance=1e-9)
            assert best.lower_bound is not None
            for method in ("newton", "dual"):

                def told(step: Step, method: str = method) -> None:
                    out[f"{method} {step.iteration}"] = max(step.objective / best.lower_bound - 1.0, 1e-12)  # type: ignore[operator]

                coa(gram, method=method, on_step=told, max_iterations=30)  # type: ignore[arg-type]
            return out

        yield Point(panel, 0, work)


def data_dependent(size: dict[str, Any]) -> Iterator[Point]:
    """Mean squared error of a query: DAWA (pure epsilon) against COA at (epsilon, 1e-4), over real counts and epsilons."""
    for panel, x in _histograms(size["base"]).items():
        for epsilon in (0.01, 0.1, 1.0):

            def work(x: np.ndarray = x, epsilon: float = epsilon) -> dict[str, float]:
                workload = random_ranges(x.size, 2 * x.size, seed=0)
                lattice = adaptive_lattice(workload, "add-remove", 1)
                budget, truth = Loss.laplace(_fraction(epsilon)), workload.rows(slice(None)) @ x
                found = []
                for key in range(size["keys"]):
                    values = measured(x, workload, lattice, budget, key.to_bytes(32, "big"))
                    inner, grid, noisy = read(values, workload, lattice)
                    reader = reader_of(inner, grid, direct=False)
                    estimate = reader.estimate(noisy)
                    answers, _, _ = reader.answers(0, workload.shape[0], estimate, lattice.noise(budget))
                    found.append(float(np.mean((answers - truth) ** 2)))
                variance = 2.0 * math.log(2.0 / DELTA) / epsilon**2
                plain = {
                    "COA": coa(workload),
                    "identity (pure)": identity(x.size, workload, norm="l1"),
                    "Laplace": laplace(workload),
                }
                out = {"DAWA": float(np.mean(found))}
                for name, strategy in plain.items():
                    assert strategy.workload_cost is not None
                    out[name] = (
                        strategy.workload_cost / workload.shape[0] * (variance if name == "COA" else 1.0 / epsilon**2)
                    )
                return out

            yield Point(panel, epsilon, work)


def _fraction(value: float) -> Any:
    from fractions import Fraction

    return Fraction(str(value))


def _histograms(cells: int) -> dict[str, np.ndarray]:
    """Real counts, merged to so many cells, from DPDIST_DATA (shared data; not part of the project); else made ones."""
    folder = Path(os.environ.get("DPDIST_DATA", Path(__file__).parents[3] / "shared" / "data"))
    files = {"Adult (capital gain)": "adult_dpbench_1d_4096.npy", "web requests": "nettrace_web_requests_ip12_4096.npy"}
    out = {}
    for name, file in files.items():
        if (folder / file).exists():
            out[name] = np.load(folder / file).astype(np.int64).reshape(cells, -1).sum(axis=1)
    state = np.random.default_rng(0)
    steps = np.repeat(state.integers(0, 400, 8), cells // 8)
    return out or {"steps (made)": state.poisson(steps).astype(np.int64)}


def am_variants(size: dict[str, Any]) -> Iterator[Point]:
    """Root mean squared error over the bound: AM in full, in groups, with principal vectors (Li & Miklau, section 4.2)."""
    for panel, make in {"all ranges": all_ranges, "CDF": prefix}.items():
        for n in size["n"]:
            if n > size["slow"]:
                continue

            def work(make: Callable[[int], Workload] = make, n: int = n) -> dict[str, float]:
                workload = make(n)
                bound = singular_value_bound(workload.gram())
                made = {
                    "AM": eigen_design(workload),
                    "groups of n^(1/3)": eigen_design(workload, group_size=max(2, round(n ** (1 / 3)))),
                    "principal 6 %": eigen_design(workload, principal=max(1, round(0.06 * n))),
                    "wavelet": wavelet((n,), workload),
                    "hierarchical": hierarchical((n,), workload, branching=2),
                }
                return {name: math.sqrt((s.workload_cost or 0.0) / bound) for name, s in made.items()}

            yield Point(panel, n, work)


FIGURES = {
    "coa-convergence": Figure("COA: convergence (KDD 2016)", "iteration", "cost over the optimum - 1", convergence),
    "coa-error-n": Figure(
        "COA: error over the number of cells (KDD 2016)", "n", "expected squared error", over_n(errors_at)
    ),
    "coa-error-m": Figure(
        "COA: error over the number of queries (KDD 2016)", "m", "expected squared error", over_m(errors_at)
    ),
    "coa-error-rank": Figure(
        "COA: error over the rank of WRelated (KDD 2016)", "rank / min(m, n)", "expected squared error", over_rank
    ),
    "coa-time-n": Figure("COA: time over the number of cells (KDD 2016)", "n", "seconds", over_n(seconds_at)),
    "coa-time-m": Figure("COA: time over the number of queries (KDD 2016)", "m", "seconds", over_m(seconds_at)),
    "coa-dawa": Figure("DAWA against COA on real counts (KDD 2016)", "epsilon", "mean squared error", data_dependent),
    "am-variants": Figure("AM and its faster variants (VLDB 2012)", "n", "RMSE over the bound", am_variants),
}


def reproduced(name: str, size: str, folder: Path, *, tell: Callable[[str], None] = print) -> dict[str, dict[str, float]]:
    """All points of a figure; those that were measured before are read."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{size}.json"
    known: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
    for point in FIGURES[name].points(SIZES[size]):
        if point.key in known:
            continue
        begun = time.perf_counter()
        known[point.key] = point.work()
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(known, indent=1) + "\n")
        draft.replace(file)
        tell(f"{name} {point.key}: {time.perf_counter() - begun:.1f} s")
    return known


def plot(name: str, found: dict[str, dict[str, float]], target: Path) -> None:
    """One panel a workload, logarithmic axes, one line a mechanism."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure = FIGURES[name]
    panels = list(dict.fromkeys(key.split("|")[0] for key in found))
    canvas, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        points = {float(key.split("|")[1]): values for key, values in found.items() if key.split("|")[0] == panel}
        if name == "coa-convergence":
            (values,) = points.values()
            for method in ("newton", "dual"):
                steps = {int(key.split()[1]): value for key, value in values.items() if key.startswith(method)}
                axis.semilogy(list(steps), list(steps.values()), marker="o", markersize=3, label=method)
        else:
            for series in dict.fromkeys(key for values in points.values() for key in values):
                xs = sorted(x for x in points if series in points[x])
                axis.set_xscale("log", base=10 if figure.x == "epsilon" else 2)
                axis.set_yscale("log")
                axis.plot(xs, [points[x][series] for x in xs], marker="o", markersize=3, label=series)
        axis.set_title(panel)
        axis.set_xlabel(figure.x)
        axis.grid(visible=True, which="major", alpha=0.3)
    axes[0][0].set_ylabel(figure.y)
    axes[0][-1].legend(fontsize=7)
    canvas.suptitle(figure.title)
    canvas.tight_layout()
    canvas.savefig(target, metadata={"Date": None})
    plt.close(canvas)


def main() -> None:
    """Measure and plot the figures asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE")
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name}: {figure.title}" for name, figure in FIGURES.items()))
        return
    unknown = sorted(set(options.figures) - set(FIGURES))
    if unknown:
        parser.error(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    for name in options.figures or FIGURES:
        found = reproduced(name, options.size, options.folder)
        plot(name, found, options.folder / f"{name}-{options.size}.svg")


if __name__ == "__main__":
    main()
