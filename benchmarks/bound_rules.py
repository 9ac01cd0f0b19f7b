"""The rule by which private bounds are chosen, beside others, on files that chose it and on files that had no part in that.

    python -m benchmarks.bound_rules [FOLDER]

Roots of mean squared errors of a table of ten groups (``benchmarks.private_bounds``) with the bound that a rule chooses, as a multiple of
that with the best bound and the whole budget, which nobody can have; 100 choices a file, with noise of fixed seeds. A row is the geometric
mean and the largest of all files of its kind and number of persons under rho 0.05 and 0.005, or epsilon 0.3 and 0.1.

The files are drawn: of 300, 3,000 and 30,000 persons by their number of records, or three amounts of each. Those "which chose" decided
on numbers of the rule (docs/decisions/0017-budgeted-steps.md). FOLDER holds
``nettrace_web_requests_per_host.npy``
(Internet Traffic Archive), ``ca_pums_10000.csv`` (US Census Bureau) and ``flights_hour_delay_distance_24x64x64.npy`` (US Bureau of
Transportation Statistics): real files are among the others.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.private_bounds import GROUPS, LOSSES, OF_AMOUNTS, OF_RECORDS, PART, Case, Draw, Kind, noisy_counts
from dpdist.plugins.private_bounds.counts_by_size import UNIT_BITS
from dpdist.plugins.private_bounds.noisy_counts import NoisyCounts

CHOICES, SEED = 100, 68


def lognormal(mean: float, deviation: float) -> Draw:
    """Amounts, or numbers of records when they are rounded."""
    return lambda state, many: np.exp(state.normal(mean, deviation, many))


def two_kinds(few: float, far: float, near: float) -> Draw:
    """A few persons or amounts far from the others."""
    return lambda state, many: np.where(
        state.random(many) < few, state.normal(far, far / 10, many), state.exponential(near, many)
    )


RECORDS: dict[str, Draw] = {
    "lognormal(1, 0.8)": lognormal(1, 0.8),
    "lognormal(2.2, 1.2)": lognormal(2.2, 1.2),
    "Pareto 1.3": lambda state, many: state.pareto(1.3, many) + 1,
    "Pareto 2.5": lambda state, many: 5 * state.pareto(2.5, many) + 1,
    "geometric 3": lambda state, many: state.geometric(1 / 3, many),
    "geometric 20": lambda state, many: state.geometric(1 / 20, many),
    "Poisson 3": lambda state, many: state.poisson(3, many) + 1,
    "Poisson 30": lambda state, many: state.poisson(30, many) + 1,
    "two kinds": two_kinds(0.05, 60, 2),
    "five each": lambda state, many: np.full(many, 5),
    "1 to 30": lambda state, many: state.integers(1, 31, many),
    "negative binomial": lambda state, many: state.negative_binomial(0.5, 0.05, many) + 1,
}
OTHER_RECORDS: dict[str, Draw] = {
    "lognormal(1.5, 1)": lognormal(1.5, 1),
    "Pareto 1.8": lambda state, many: state.pareto(1.8, many) * 3 + 1,
    "Poisson 7": lambda state, many: state.poisson(7, many) + 1,
    "Weibull 0.6": lambda state, many: 4 * state.weibull(0.6, many) + 1,
    "Weibull 3": lambda state, many: 20 * state.weibull(3, many) + 1,
    "Zipf 2.2": lambda state, many: np.minimum(state.zipf(2.2, many), 10**6),
    "logistic": lambda state, many: np.maximum(state.logistic(15, 3, many), 1),
    "binomial 5": lambda state, many: state.binomial(5, 0.4, many) + 1,
}
AMOUNTS: dict[str, Draw] = {
    "lognormal(3, 0.7)": lognormal(3, 0.7),
    "lognormal(5, 1.3)": lognormal(5, 1.3),
    "lognormal(6, 2)": lognormal(6, 2),
    "Pareto 1.4": lambda state, many: 30 * (1 + state.pareto(1.4, many)),
    "exponential 50": lambda state, many: state.exponential(50, many),
    "0 to 500": lambda state, many: state.uniform(0, 500, many),
    "normal(200, 30)": lambda state, many: state.normal(200, 30, many),
    "two kinds": two_kinds(0.03, 3000, 40),
}
OTHER_AMOUNTS: dict[str, Draw] = {
    "lognormal(4, 1)": lognormal(4, 1),
    "Pareto 1.8": lambda state, many: 40 * (1 + state.pareto(1.8, many)),
    "gamma(2, 9)": lambda state, many: state.gamma(2, 9, many),
    "Weibull 0.5": lambda state, many: 60 * state.weibull(0.5, many),
    "Weibull 4": lambda state, many: 900 * state.weibull(4, many),
    "logistic": lambda state, many: np.maximum(state.logistic(1500, 150, many), 0),
    "triangular": lambda state, many: state.triangular(0, 100, 4000, many),
}


@dataclass(frozen=True)
class PowerLaws(NoisyCounts):
    """Beyond the last bin in which persons are seen there are power laws alone, and the mean squared error decides."""

    def choose_bound(self, variances: np.ndarray, record_loss: float) -> int:
        weights, occupied = self._lost_records(self.bin_ends[:, None])[0], max(self.occupied_bins, 1)
        tails, nats = self._tails
        lost = np.maximum(weights[:, :occupied] @ self.counts[:occupied], 0.0)[:, None] + weights[:, occupied:] @ tails.T
        likely = np.exp(nats.min() - nats)
        return int(self.bin_ends[np.argmin(variances + lost**2 @ (likely / likely.sum()) * record_loss)])


@dataclass(frozen=True)
class EmptyTail(NoisyCounts):
    """There is nobody beyond the last bin in which persons are seen."""

    def lost_records(self, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = self._lost_records(bounds[:, None])[0] * (np.arange(self.counts.size) < max(self.occupied_bins, 1))
        return np.maximum(weights @ self.counts, 0.0)[:, None], np.ones(1)


RULES: dict[str, type[NoisyCounts]] = {"the rule": NoisyCounts, "power laws": PowerLaws, "nobody beyond": EmptyTail}
"""How a bound is found."""
PERSONS = (300, 3_000, 30_000)


def errors(case: Case) -> dict[str, float]:
    """The error with the bounds that each rule chooses, over that with the best one."""
    state, exact = np.random.default_rng(SEED), case.rule.binned(case.counts).astype(float)
    deviation = case.rule.noise.deviation / 2.0**UNIT_BITS
    size = (CHOICES, exact.size)
    noise = state.laplace(0, deviation / math.sqrt(2), size) if case.loss.pure else state.normal(0, deviation, size)
    lost = {bound: case.error(bound, float(1 - PART)) for bound in case.candidates}
    best = min(case.error(bound, 1.0) for bound in case.candidates)
    found = {}
    for name, made in RULES.items():
        runs = (noisy_counts(case.rule, row, case.kind.seen, made) for row in exact + noise)
        squares = [lost[each.choose_bound(case.variances, 1 / GROUPS)] for each in runs]
        found[name] = math.sqrt(np.mean(squares) / best)
    return found


def drawn(kind: Kind, files: dict[str, Draw]) -> Iterator[tuple[str, np.ndarray, int]]:
    """Sizes of files of three lengths, and how many one person has."""
    each = 3 if kind is OF_AMOUNTS else 1
    least = 1 if kind is OF_RECORDS else 0
    for name, draw in files.items():
        for many in (persons * each for persons in PERSONS):
            found = draw(np.random.default_rng(1), many)
            yield name, np.maximum(found.round() if kind is OF_RECORDS else found, least).astype(np.int64), each


def real(folder: Path) -> dict[Kind, list[tuple[str, np.ndarray, int]]]:
    """Real files."""
    hosts = np.load(folder / "nettrace_web_requests_per_host.npy").astype(np.int64)
    with (folder / "ca_pums_10000.csv").open(encoding="utf-8") as file:
        incomes = np.array([float(row["income"]) for row in csv.DictReader(file)])
    miles = np.load(folder / "flights_hour_delay_distance_24x64x64.npy").sum(axis=(0, 1))
    flights = np.repeat(np.arange(miles.size) * 64 + 32, miles)
    return {
        OF_RECORDS: [("requests of a host", hosts[hosts > 0], 1)],
        OF_AMOUNTS: [("incomes", (incomes.clip(0) / 100).astype(np.int64), 1), ("distances", flights, 1)],
    }


def main() -> None:
    """Print the table of benchmarks/results/private_bounds.md."""
    others = real(Path(sys.argv[1])) if sys.argv[1:] else {OF_RECORDS: [], OF_AMOUNTS: []}
    print(f"| of | files | persons | noise | {' | '.join(RULES)} |\n{'|---' * (4 + len(RULES))}|")
    for kind, own, other in ((OF_RECORDS, RECORDS, OTHER_RECORDS), (OF_AMOUNTS, AMOUNTS, OTHER_AMOUNTS)):
        groups = [("which chose", [*drawn(kind, own)]), ("others", [*drawn(kind, other)]), ("real", others[kind])]
        for title, files in groups:
            found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
            for name, sizes, each in files:
                persons = "all" if title == "real" else f"{sizes.size // each:,}"
                for loss in LOSSES:
                    noise = "Laplace" if loss.pure else "Gaussian"
                    found[persons, noise].append(errors(Case(kind, name, sizes, each, loss)))
            for (persons, noise), rows in found.items():
                every = {name: np.array([row[name] for row in rows]) for name in RULES}
                ratios = (f"{np.exp(np.log(each).mean()):.2f} (up to {each.max():.2f})" for each in every.values())
                print(f"| {kind.title} | {title}: {len(rows)} | {persons} | {noise} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
