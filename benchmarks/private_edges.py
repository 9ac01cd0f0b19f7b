"""Edges of bins that a part of the budget chooses, beside declared ones at equal loss.

    python -m benchmarks.private_edges [FLIGHTS] [PURCHASES]

A histogram of amounts is released under rho in 16 bins, where each unit of protection has one record. ``edges: private`` has a tenth of rho
for the edges and the rest for the counts; declared edges have all of it: bins of equal width over the range, which is up to twenty times as
wide as what nearly all amounts are, and bins that double. "best": the true quantiles as edges, with all of rho, which nobody can have.

Two errors, each the root of a mean square over 40 draws with exact noise. *Shares*: of the records up to each of the 99 percentiles, as
the histogram says it (records lie evenly within a bin), in percent of all. *Deciles*: the nine that are read of the histogram, in percent
of the true ones.

FLIGHTS is ``flights_hour_delay_distance_24x64x64.npy`` (US Bureau of Transportation Statistics), of which the distances are taken;
PURCHASES the table of sales of ``examples/shop``, unpacked, of which 'paid' is taken in steps of 0.10 up to 500. Rows of files that are not
given are left out.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpdist.privacy.accounting import Loss
from dpdist.privacy.selection.private_edges import edges_rule
from dpdist.spec.steps.domain_selection import inner_edges

BINS, RUNS = 16, 40
RHOS = (Fraction(1, 20), Fraction(1, 200), Fraction(1, 2000))
PERCENTILES, DECILES = np.arange(1, 100) / 100, np.arange(1, 10) / 10
Errors = tuple[float, float]


def errors(steps: np.ndarray, edges: np.ndarray, rho: float, state: np.random.Generator) -> Errors:
    """Squared errors of shares and of deciles that one noisy histogram tells.

    Args:
        steps: sorted amounts, in whole steps.
        edges: rising, the first 0 and the last beyond all steps.
    """
    counts = np.histogram(steps, edges)[0] + state.normal(0, 1 / math.sqrt(2 * rho), edges.size - 1)
    up_to = np.concatenate([[0.0], np.maximum.accumulate(np.cumsum(np.maximum(counts, 0)))])
    told = up_to / max(up_to[-1], 1.0)
    at = np.quantile(steps, PERCENTILES, method="inverted_cdf") + 1
    true = np.searchsorted(steps, at) / steps.size
    shares = float(np.mean((np.interp(at, edges, told) - true) ** 2))
    rising = told + np.arange(told.size) * 1e-12
    deciles = np.quantile(steps, DECILES, method="inverted_cdf") + 1
    return shares, float(np.mean((np.interp(DECILES, rising, edges) / deciles - 1) ** 2))


def rows(name: str, steps: np.ndarray, size: int) -> None:
    """Print the errors of one set of amounts.

    Args:
        size: how many steps the range has.
    """
    steps, state = np.sort(np.minimum(steps, size - 1)), np.random.default_rng(2)
    counts = np.bincount(steps, minlength=size)
    quantiles = np.quantile(steps, np.arange(1, BINS) / BINS, method="inverted_cdf").astype(int)
    even = np.linspace(0, size, BINS + 1)
    doubling = np.unique(np.concatenate([[0], np.rint(size / 2.0 ** np.arange(BINS - 1, -1, -1))]))
    best = np.array([0, *inner_edges(quantiles.tolist(), size), size])
    for rho in RHOS:
        rule = edges_rule(size, BINS, 1, Loss.gaussian(rho / 10))
        found = []
        for _ in range(RUNS):
            inner = inner_edges(rule.choose_edges(counts, os.urandom(32)), size)
            found.append(errors(steps, np.array([0, *inner, size]), float(rho) * 0.9, state))
        ways = [found, *([errors(steps, edges, float(rho), state) for _ in range(RUNS)] for edges in (even, doubling, best))]
        cells = [[f"{100 * math.sqrt(np.mean([each[place] for each in way])):.2g}" for way in ways] for place in (0, 1)]
        told = " | ".join(" | ".join(each) for each in cells)
        print(f"| {name} | {steps.size:,} | {float(rho):g} | {rule.largest_rank_error:,} | {told} |", flush=True)


def main() -> None:
    """Print the table of benchmarks/results/private_edges.md."""
    ways = "private | even | doubling | best"
    print(f"| amounts | records | rho | edges lie within | shares: {ways} | deciles: {ways} |\n{'|---' * 12}|")
    for many in (3_000, 30_000):
        state = np.random.default_rng(1)
        rows("lognormal(4, 1)", np.exp(state.normal(4, 1, many)).astype(np.int64), 20_000)
        rows("Pareto 1.8", (40 * (1 + state.pareto(1.8, many))).astype(np.int64), 20_000)
    for path in map(Path, sys.argv[1:]):
        if path.suffix == ".npy":
            distances = np.load(path).sum(axis=(0, 1))
            rows("flights, distance", np.repeat(np.arange(distances.size), distances), distances.size)
        else:
            with path.open(encoding="utf-8") as file:
                paid = [float(row["paid"]) for row in csv.DictReader(file) if row["paid"]]
            rows("purchases, paid", (np.array(paid) * 10).astype(np.int64), 5_000)


if __name__ == "__main__":
    main()
