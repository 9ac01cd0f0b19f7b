"""Bounds that a part of the budget chooses, on the records of a person and on amounts, beside the ways of OpenDP and Tumult at equal loss.

    pip install opendp tmlt.analytics
    python -m benchmarks.private_bounds [FLIGHTS] [PURCHASES]

A table of ten groups, in which records lie alike, is released under a rho or a pure epsilon. A tenth of it chooses how many records of
a person count, or the largest amount that does, in steps. OpenDP's way is its quantile (report noisy max, among dpdist's candidates) at
0.9, 0.95 and 0.99, Tumult's that of ``get_bounds``, whose share is always 0.95. Errors are roots of mean squares over 60 choices: noise
and what does not count together. Of a group's mean: of a sum and a count with half of the rest of the budget each. "best" of all
candidates, with the whole budget for the table, which nobody can have. A package that is not there has no column.

FLIGHTS is ``flights_hour_delay_distance_24x64x64.npy`` (US Bureau of Transportation Statistics), whose distances are taken in miles, a
flight being protected; PURCHASES the table of sales of ``examples/shop``, unpacked: purchases of a customer, and 'paid' of the first
three in steps of 0.10.

    python -m benchmarks.private_bounds groups

counts persons by group: 100 groups, of which the one in place i is 1/i as frequent, every cell measured by itself. A tenth of rho
chooses in how many groups a person counts, beside guesses that have all of it. It needs no other system.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.peer_bounds import QUANTILES, USUAL, is_here, opendp_quantile, tumult_bounds
from dpdist.plugins.private_bounds.counts_by_size import QUARTERS, UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.plugins.private_bounds.noisy_counts import AMOUNT_DETECTION_NATS, NoisyCounts
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise_distributions import LAPLACE
from dpdist.privacy.step_noise import split_budget

GROUPS, RUNS, PART = 10, 60, Fraction(1, 10)
LOSSES = (
    Loss.gaussian(Fraction(1, 20)),
    Loss.gaussian(Fraction(1, 200)),
    Loss.laplace(Fraction(3, 10)),
    Loss.laplace(Fraction(1, 10)),
)
Draw = Callable[[np.random.Generator, int], np.ndarray]
DRAWN: dict[str, Draw] = {
    "lognormal(1.5, 1)": lambda state, many: np.maximum(1, np.exp(state.normal(1.5, 1, many)).round()),
    "Pareto 1.8": lambda state, many: state.pareto(1.8, many) * 3 + 1,
    "Poisson 7 + 1": lambda state, many: state.poisson(7, many) + 1,
}
PAID: dict[str, Draw] = {
    "lognormal(4, 1)": lambda state, many: np.exp(state.normal(4, 1, many)),
    "Pareto 1.8": lambda state, many: 40 * (1 + state.pareto(1.8, many)),
    "gamma(2, 9)": lambda state, many: state.gamma(2, 9, many),
}


def choose_bound(rule: CountsBySize, counts: np.ndarray, variances: np.ndarray, seen: float, spread: float) -> int:
    """The bound that dpdist chooses."""
    noisy = rule.noisy(counts, lambda count: rule.noise.draw(os.urandom(32), count=count)) / 2.0**UNIT_BITS
    return noisy_counts(rule, noisy, seen).choose_bound(variances, spread)


def noisy_counts(rule: CountsBySize, noisy: np.ndarray, seen: float, kind: type[NoisyCounts] = NoisyCounts) -> NoisyCounts:
    """Noisy numbers of persons, or of records."""
    deviation, laplace = rule.noise.deviation / 2.0**UNIT_BITS, rule.noise.kind == LAPLACE
    return kind(rule.bin_starts, rule.bin_ends, noisy, deviation, 1.96, laplace, seen)


@dataclass(frozen=True)
class Kind:
    """What is bounded.

    Attributes:
        most: the largest size that is told apart.
        parts, seen: as dpdist has them for it.
    """

    title: str
    most: int
    parts: int
    seen: float


OF_RECORDS = Kind("records of a person", 200, QUARTERS, NoisyCounts.detection_nats)
OF_AMOUNTS = Kind("amounts", 20_000, WHOLES, AMOUNT_DETECTION_NATS)


@dataclass(frozen=True, eq=False)
class Case:
    """A file that is released under a loss.

    Attributes:
        sizes: of persons or of records.
        each: sizes of one person.
    """

    kind: Kind
    name: str
    sizes: np.ndarray
    each: int
    loss: Loss

    @property
    def title(self) -> str:
        told = f"epsilon {float(self.loss.pure):g}" if self.loss.pure else f"rho {float(self.loss.rho):g}"
        return f"{self.name} | {self.sizes.size:,} | {told}"

    @cached_property
    def rule(self) -> CountsBySize:
        return counts_by_size(
            self.kind.most,
            split_budget(self.loss, PART)[0],
            "add-remove",
            most_per_person=self.each,
            width_divisor=self.kind.parts,
        )

    @property
    def candidates(self) -> list[int]:
        return [int(last) for last in self.rule.bin_ends]

    def noise(self, part: float) -> float:
        """The variance of a group's answer to which one person adds ``each`` at most."""
        return self.each**2 * (
            2 / (float(self.loss.pure) * part) ** 2 if self.loss.pure else 1 / (2 * float(self.loss.rho) * part)
        )

    @cached_property
    def counts(self) -> np.ndarray:
        """Of each size."""
        return np.bincount(np.minimum(self.sizes, self.kind.most), minlength=self.kind.most + 1)

    @property
    def variances(self) -> np.ndarray:
        """What noise adds to all answers, squared, with each candidate."""
        return GROUPS * self.noise(float(1 - PART)) * self.rule.bin_ends**2.0

    def chosen_bound(self) -> int:
        """The bound that dpdist chooses."""
        return choose_bound(self.rule, self.counts, self.variances, self.kind.seen, 1 / GROUPS)

    def error(self, bound: int, part: float) -> float:
        """The squared error of a group's number of records, or sum of amounts."""
        lost = float(np.maximum(self.sizes - bound, 0).sum()) / GROUPS
        return bound**2 * self.noise(part) + lost**2

    def error_of_mean(self, bound: int, part: float) -> float:
        """The squared error of a group's mean amount."""
        records = self.sizes.size / GROUPS
        mean = float(np.minimum(self.sizes, bound).sum()) / GROUPS / records
        lost = float(np.maximum(self.sizes - bound, 0).sum()) / GROUPS
        return ((bound**2 + mean**2) * self.noise(part / 2) + lost**2) / records**2


Chosen = dict[str, dict[Case, list[int]]]
"""By way: the bounds that it chose in every run."""


def bounds_by_system(cases: list[Case]) -> Chosen:
    """What dpdist and the systems that are here choose."""
    bounds_found: Chosen = {"dpdist": {case: [case.chosen_bound() for _ in range(RUNS)] for case in cases}}
    if is_here("opendp"):
        for alpha in QUANTILES:
            ways = {case: opendp_quantile(case.candidates, case.sizes, case.rule.loss, alpha, case.each) for case in cases}
            bounds_found[f"OpenDP {alpha}"] = {case: [way() for _ in range(RUNS)] for case, way in ways.items()}
    if is_here("tmlt.core"):
        alike = defaultdict(list)
        for case in cases:
            alike[case.loss, case.each, case.kind.most].append(case)
        bounds: dict[Case, list[int]] = {}
        for (loss, each, most), some in alike.items():
            part = split_budget(loss, PART)[0]
            bounds |= zip(some, tumult_bounds([case.sizes for case in some], part, each, most, RUNS), strict=True)
        bounds_found["Tumult"] = bounds
    return bounds_found


def table(title: str, cases: list[Case], found: Chosen, error: Callable[[Case, int, float], float]) -> None:
    """Print the errors of all ways, and in how many rows dpdist has more than the peers have at the usual share."""
    print(f"| {title} | records | loss | {' | '.join(found)} | best |\n{'|---' * (4 + len(found))}|")
    peers, above = [name for name in found if name in (f"OpenDP {USUAL}", "Tumult")], []
    for case in cases:
        errors = {
            way: math.sqrt(np.mean([error(case, bound, float(1 - PART)) for bound in bounds[case]]))
            for way, bounds in found.items()
        }
        best = min(error(case, bound, 1.0) for bound in case.candidates) ** 0.5
        told = " | ".join(f"{value:,.4g}" if value < 1e3 else f"{value:,.0f}" for value in (*errors.values(), best))
        print(f"| {case.title} | {told} |")
        better = min((errors[name] for name in peers), default=math.inf)
        if errors["dpdist"] > better:
            above.append(f"{case.title.replace(' | ', ', ')}: {errors['dpdist'] / better:.2f}")
    if peers:
        print(
            f"\nAbove the better of {' and '.join(peers)}, times: {'; '.join(above) or 'nowhere'}. ({len(above)} of {len(cases)} rows)"
        )
    print(flush=True)


def cases_of(flights: Path | None, purchases: Path | None) -> tuple[list[Case], list[Case]]:
    """All files: of persons by their records, and of amounts."""
    records = [
        (name, draw(np.random.default_rng(1), many).astype(np.int64), 1)
        for name, draw in DRAWN.items()
        for many in (3_000, 30_000)
    ]
    amounts = [
        (name, draw(np.random.default_rng(1), many * 3).astype(np.int64), 3)
        for name, draw in PAID.items()
        for many in (3_000, 30_000)
    ]
    if flights:
        miles = np.load(flights).sum(axis=(0, 1))
        amounts.append(("flights, distance", np.repeat(np.arange(miles.size) * 64 + 32, miles), 1))
    if purchases:
        with purchases.open(encoding="utf-8") as file:
            rows = [(row["customer"], row["paid"]) for row in csv.DictReader(file)]
        own: dict[str, list[float]] = defaultdict(list)
        for customer, paid in rows:
            own[customer].append(float(paid or 0))
        records.append(("purchases of a customer", np.array([len(each) for each in own.values()]), 1))
        paid = np.array([each for some in own.values() for each in some[:3]])
        amounts.append(("purchases, paid", (paid * 10).astype(np.int64), 3))
    return (
        [Case(OF_RECORDS, *each, loss) for each in records for loss in LOSSES],
        [Case(OF_AMOUNTS, *each, loss) for each in amounts for loss in LOSSES],
    )


CELLS, MOST_OF_PERSON = 100, 100
"""Groups in all, and the most of a person that are told apart."""
GUESSES = (1, 4, 16, 100)
NUMBERS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "Poisson 3 + 1": lambda state, many: state.poisson(3, many) + 1,
    "lognormal(1, 1)": lambda state, many: np.maximum(1, np.exp(state.normal(1, 1, many)).round()),
    "Pareto 1.2": lambda state, many: np.floor(state.pareto(1.2, many)) + 1,
}


def lost_by_group(numbers: np.ndarray, state: np.random.Generator, bounds: list[int]) -> dict[int, np.ndarray]:
    """Persons of each group who do not count there, for every bound. A person's groups come in an order drawn by their frequency."""
    keys = state.exponential(size=(numbers.size, CELLS)) * np.arange(1, CELLS + 1)  # Efraimidis & Spirakis 2006
    rank = np.argsort(np.argsort(keys, axis=1), axis=1)
    has = rank < numbers[:, None]
    return {bound: (has & (rank >= bound)).sum(axis=0).astype(np.float64) for bound in bounds}


def row_of_groups(name: str, numbers: np.ndarray, rho: Fraction, lost: dict[int, np.ndarray]) -> str:
    """The errors of counts by group under a chosen bound and under guesses."""
    counts = np.bincount(numbers, minlength=MOST_OF_PERSON + 1)
    rule = counts_by_size(MOST_OF_PERSON, Loss.gaussian(rho / 10), "add-remove")

    def error(bound: int, part: float) -> float:
        return float(bound / (2 * float(rho) * part) + np.mean(lost[bound] ** 2))

    variances = CELLS * rule.bin_ends / (2 * float(rho) * 0.9)
    bounds = [choose_bound(rule, counts, variances, NoisyCounts.detection_nats, 1 / CELLS) for _ in range(RUNS)]
    found = math.sqrt(np.mean([error(bound, 0.9) for bound in bounds]))
    errors = [error(bound, 1.0) ** 0.5 for bound in GUESSES] + [
        min(error(bound, 1.0) for bound in rule.bin_ends.tolist()) ** 0.5
    ]
    cells = " | ".join(f"{value:,.0f}" for value in (found, *errors))
    return f"| {name} | {numbers.size:,} | {float(rho):g} | {min(bounds)} to {max(bounds)} | {cells} |"


def groups() -> None:
    """Print the table of persons by group."""
    guesses = " | ".join(f"{guess}, guessed" for guess in GUESSES)
    print(f"| groups of a person | persons | rho | chosen | dpdist | {guesses} | best |\n{'|---' * (6 + len(GUESSES))}|")
    bounds = sorted({*counts_by_size(MOST_OF_PERSON, Loss.gaussian(1), "add-remove").bin_ends.tolist(), *GUESSES})
    for name, draw in NUMBERS.items():
        for many in (3_000, 30_000):
            state = np.random.default_rng(1)
            numbers = np.minimum(draw(state, many), CELLS).astype(np.int64)
            lost = lost_by_group(numbers, state, bounds)
            for rho in (Fraction(1, 20), Fraction(1, 200)):
                print(row_of_groups(name, numbers, rho, lost), flush=True)


def main() -> None:
    """Print the tables of benchmarks/results/private_bounds.md."""
    if sys.argv[1:] == ["groups"]:
        groups()
        return
    given = {path.suffix: path for path in map(Path, sys.argv[1:])}
    of_records, of_amounts = cases_of(given.get(".npy"), given.get(".csv"))
    table("records of a person", of_records, bounds_by_system(of_records), Case.error)
    found = bounds_by_system(of_amounts)
    table("sums of amounts", of_amounts, found, Case.error)
    table("means of amounts", of_amounts, found, Case.error_of_mean)


if __name__ == "__main__":
    main()
