"""The experiments of the seeds' papers, one command a figure: cached point by point, resumable, plotted like the papers'.

    python benchmarks/papers/reproduce.py [FIGURE ...] [--size tiny|small|medium|paper] [--jobs 2] [--limit 600] [--list]

Every finished measurement is kept in FOLDER/<experiment>-<size>.json, so an interrupted run goes on with what is missing. A
measurement that takes longer than --limit seconds is stopped and noted, and larger ones of the same line are left out; a run
with a longer limit tries them again. Each measurement has a process and one BLAS thread of its own. Plots need matplotlib
(extra ``bench``). COA: ``yuan2016.py`` (KDD 2016); LRM: ``yuan2012.py`` (VLDB 2012); AM: ``li2012.py`` (VLDB 2012);
private convolution: ``fawaz2013.py`` (ESA 2013).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import fawaz2013
import li2012
import yuan2012
import yuan2016
from experiment import Figure, Found, Measurement, Size
from threadpoolctl import threadpool_limits

EXPERIMENTS = {**yuan2016.EXPERIMENTS, **yuan2012.EXPERIMENTS, **li2012.EXPERIMENTS, **fawaz2013.EXPERIMENTS}
FIGURES: dict[str, Figure] = {**yuan2016.FIGURES, **yuan2012.FIGURES, **li2012.FIGURES, **fawaz2013.FIGURES}
SIZES: dict[str, Size] = {
    "tiny": {
        "ns": (16,),
        "ms": (16,),
        "m": 16,
        "n": 16,
        "time_n": 16,
        "rank_n": 16,
        "pure_n": 8,
        "pure_ns": (8,),
        "pure_ms": (8,),
        "ranks": (0.25, 1.0),
        "convergence": (16, 16),
        "keys": 2,
        "cells": 64,
        "pure_cells": 16,
        "steps": (64,),
        "bits": (4,),
    },
    "small": {
        "ns": (32, 64),
        "ms": (16, 32, 64),
        "m": 64,
        "n": 64,
        "time_n": 64,
        "rank_n": 64,
        "pure_n": 64,
        "pure_ns": (32, 64),
        "pure_ms": (32, 64),
        "ranks": (0.25, 1.0),
        "convergence": (64, 64),
        "keys": 3,
        "cells": 64,
        "pure_cells": 64,
        "steps": (64, 256),
        "bits": (4, 8),
    },
    "medium": {
        "ns": (64, 128, 256, 512),
        "ms": (64, 128, 256, 512),
        "m": 256,
        "n": 256,
        "time_n": 256,
        "rank_n": 256,
        "pure_n": 64,
        "pure_ns": (32, 64, 128),
        "pure_ms": (32, 64, 128),
        "ranks": (0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
        "convergence": (256, 256),
        "keys": 20,
        "cells": 256,
        "pure_cells": 256,
        "steps": tuple(2**k for k in range(6, 17)),
        "bits": tuple(range(4, 17)),
    },
    "paper": {
        "ns": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "ms": (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "m": 1024,
        "n": 512,
        "time_n": 1024,
        "rank_n": 1024,
        "pure_n": 128,
        "pure_ns": (32, 64, 128, 256),
        "pure_ms": (32, 64, 128, 256, 512),
        "ranks": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "convergence": (1024, 1024),
        "keys": 20,
        "cells": 2048,
        "pure_cells": 512,
        "steps": tuple(2**k for k in range(6, 21)),
        "bits": tuple(range(4, 21)),
    },
}
STOPPED = "stopped after"
TALLEST = 1e8
"""A plot ends so many times above its lowest value."""


@dataclass
class Results:
    """Finished measurements of one experiment at one size, in a file that is replaced whole."""

    file: Path
    found: dict[str, Found] = field(default_factory=dict)

    @classmethod
    def load(cls, experiment: str, size: str, folder: Path) -> Results:
        file = folder / f"{experiment}-{size}.json"
        return cls(file, json.loads(file.read_text()) if file.exists() else {})

    def save_point(self, key: str, values: Found) -> None:
        self.found[key] = values
        draft = self.file.with_suffix(".draft")
        draft.write_text(json.dumps(dict(sorted(self.found.items())), indent=1) + "\n")
        draft.replace(self.file)

    def wants(self, one: Measurement, limit: float) -> bool:
        """Whether it is not measured yet and no smaller one of its line was stopped by such a limit."""
        if one.key in self.found:
            return self.found[one.key].get(STOPPED, math.inf) < limit
        return not any(
            values.get(STOPPED, 0.0) >= limit
            for key, values in self.found.items()
            if (key.split("|")[0], key.split("|")[2]) == (one.panel, one.line) and float(key.split("|")[1]) <= one.x
        )


def reproduced(names: list[str], size: str, folder: Path, *, jobs: int, limit: float, tell: Callable[[str], None]) -> None:
    """Measure what is missing of these experiments, small ones first, so many at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {name: Results.load(name, size, folder) for name in names}
    waiting = [(name, one) for name in names for one in EXPERIMENTS[name](SIZES[size])]
    waiting.sort(key=lambda item: item[1].effort)
    running: dict[Connection, tuple[str, Measurement, Any, float]] = {}
    fork = multiprocessing.get_context("fork")
    while waiting or running:
        while waiting and len(running) < jobs:
            name, one = waiting.pop(0)
            if results[name].wants(one, limit):
                ours, theirs = fork.Pipe(duplex=False)
                process = fork.Process(target=_measure, args=(one, theirs), daemon=True)
                process.start()
                theirs.close()
                running[ours] = name, one, process, time.perf_counter()
        for connection, (name, one, process, begun) in list(running.items()):
            if time.perf_counter() - begun > limit:
                process.kill()
                process.join()
                del running[connection]
                results[name].save_point(one.key, {STOPPED: limit})
                tell(f"{name} {one.key}: stopped after {limit:g} s")
        for ready in wait(list(running), timeout=0.2):
            assert isinstance(ready, Connection)
            name, one, process, begun = running.pop(ready)
            try:
                results[name].save_point(one.key, ready.recv())
            except EOFError:
                raise SystemExit(f"{name} {one.key} failed") from None
            process.join()
            tell(f"{name} {one.key}: {time.perf_counter() - begun:.1f} s")


def _measure(one: Measurement, out: Connection) -> None:
    with threadpool_limits(1):
        out.send(one.work())


def plot(name: str, found: dict[str, Found], target: Path) -> None:
    """One panel a workload, one line a mechanism; the values of an experiment that the figure shows."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "dpdist"  # the same picture, the same bytes
    from matplotlib import pyplot as plt

    figure = FIGURES[name]
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for key, values in found.items():
        panel, x, line = key.split("|")
        if figure.lines and line not in figure.lines:
            continue
        if figure.by_step:
            lines.setdefault(panel, {})[line] = list(enumerate(values.get(figure.value, ()), 1))
        elif figure.value == "*":
            for inner, value in values.items():
                if inner not in (STOPPED, "p of the spectrum"):
                    lines.setdefault(panel, {}).setdefault(inner, []).append((float(x), value))
        elif figure.value in values:
            lines.setdefault(panel, {}).setdefault(line, []).append((float(x), values[figure.value]))
    across = min(4, len(lines))
    down = -(-len(lines) // across)
    canvas, axes = plt.subplots(down, across, figsize=(4.2 * across, 3.6 * down), squeeze=False, layout="constrained")
    colours = {line: f"C{index}" for index, line in enumerate(sorted({line for panel in lines.values() for line in panel}))}
    for axis, panel in zip(axes.flat, lines, strict=False):
        for line, points in sorted(lines[panel].items()):
            if figure.bars:
                axis.bar(line, points[0][1], color=colours[line])
            else:
                xs, ys = zip(*sorted(points), strict=True)
                axis.plot(xs, ys, marker="o", markersize=3, label=line, color=colours[line])
        if figure.bars:
            axis.tick_params(axis="x", rotation=60)
        else:
            axis.legend(fontsize=6)
        if not figure.by_step and not figure.linear and not figure.bars:
            axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        heights = [y for points in lines[panel].values() for _, y in points]
        if not figure.by_step and max(heights) > TALLEST * min(heights):  # a method that did not converge
            axis.set_ylim(top=TALLEST * min(heights))
        axis.set_title(panel)
        axis.set_xlabel(figure.x)
        axis.grid(visible=True, which="major", alpha=0.3)
    for axis in axes.flat[len(lines) :]:
        axis.set_axis_off()
    axes[0][0].set_ylabel(figure.y)
    canvas.suptitle(figure.title)
    canvas.savefig(target, metadata={"Date": None})
    plt.close(canvas)


def main() -> None:
    """Measure and plot the figures asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE")
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--jobs", type=int, default=1, help="measurements at a time")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds that a measurement may take")
    parser.add_argument("--no-plots", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name}: {figure.title}" for name, figure in FIGURES.items()))
        return
    unknown = sorted(set(options.figures) - set(FIGURES))
    if unknown:
        parser.error(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    figures = options.figures or list(FIGURES)
    names = list(dict.fromkeys(FIGURES[name].experiment for name in figures))
    reproduced(names, options.size, options.folder, jobs=options.jobs, limit=options.limit, tell=partial(print, flush=True))
    for name in () if options.no_plots else figures:
        results = Results.load(FIGURES[name].experiment, options.size, options.folder)
        plot(name, results.found, options.folder / f"{name}-{options.size}.svg")


if __name__ == "__main__":
    main()
