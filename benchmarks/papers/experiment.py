"""What the experiments of the papers have in common: measurements that are cached, figures over them, real counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Size = dict[str, Any]
"""The sizes of one run: which n, m, ranks and so on (``reproduce.SIZES``)."""
Found = dict[str, Any]
"""What one measurement gives: numbers or lists of numbers by name."""


@dataclass(frozen=True)
class Measurement:
    """One point of one line: its panel, its x, the name of its line, the work that measures it, and how much that is.

    Attributes:
        effort: cells, times five or sixteen for slow optimisers; small efforts come first.
    """

    panel: str
    x: float
    line: str
    work: Callable[[], Found]
    effort: int = 0

    @property
    def key(self) -> str:
        return f"{self.panel}|{self.x:g}|{self.line}"


Experiment = Callable[[Size], Iterator[Measurement]]


@dataclass(frozen=True)
class Figure:
    """A picture of an experiment: which of its numbers is drawn, over what. ``by_step``: lists drawn over their index."""

    title: str
    experiment: str
    value: str
    x: str
    y: str
    lines: tuple[str, ...] = ()
    bars: bool = False
    by_step: bool = False
    linear: bool = False


def real_counts(name: str) -> np.ndarray | None:
    """An array of the shared data (not part of the project; its folder may be given in DPDIST_DATA), or None."""
    folder = Path(os.environ.get("DPDIST_DATA", Path(__file__).parents[3] / "shared" / "data"))
    file = folder / f"{name}.npy"
    return np.load(file).astype(np.int64) if file.exists() else None


def made_counts(cells: int) -> np.ndarray:
    """Eight steps of Poisson counts, where there are no real ones."""
    state = np.random.default_rng(0)
    return state.poisson(np.repeat(state.integers(0, 400, 8), -(-cells // 8))[:cells]).astype(np.int64)


def histograms(cells: int) -> dict[str, np.ndarray]:
    """Counts over so many cells for the papers' Adult and Net Trace, merged from 4,096; without them made ones."""
    out = {}
    for title, name in {
        "Adult (capital loss)": "adult_dpbench_1d_4096",
        "web requests": "nettrace_web_requests_ip12_4096",
    }.items():
        if (counts := real_counts(name)) is not None and cells <= counts.size:
            out[title] = counts.reshape(cells, -1).sum(axis=1)
    return out or {"steps (made)": made_counts(cells)}
