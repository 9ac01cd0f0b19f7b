"""The bound on the records of a person: chosen by a part of the budget, against fixed quantiles at equal loss.

    pip install opendp
    python -m benchmarks.bounds

A table of ten groups, in which records lie alike, is released under rho. A tenth of it chooses how many records of a person count.
OpenDP's way is its quantile of the persons' numbers of records (report noisy max, the same candidates) at 0.9, 0.95 and 0.99. The
error is the root of the mean squared error of a group's count, noise and records that do not count together.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpdist.privacy.accounting import Loss
from dpdist.privacy.bounds import UNIT_BITS, PersonsByRecords, persons_by_records
from dpdist.quantities.left_out import NoisyPersons

MOST, GROUPS, RUNS = 200, 10, 40
QUANTILES = (0.9, 0.95, 0.99)
DRAWN: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "lognormal(1.5, 1)": lambda state, many: np.maximum(1, np.exp(state.normal(1.5, 1, many)).round()),
    "Pareto 1.8": lambda state, many: state.pareto(1.8, many) * 3 + 1,
    "Poisson 7 + 1": lambda state, many: state.poisson(7, many) + 1,
}


def chosen(rule: PersonsByRecords, counts: np.ndarray, variance: float) -> int:
    """The bound that dpdist chooses."""
    noisy = rule.noisy(counts, lambda count: rule.noise.draw(os.urandom(32), count=count)) / 2.0**UNIT_BITS
    found = NoisyPersons(rule.firsts, rule.lasts, noisy, rule.noise.deviation / 2.0**UNIT_BITS, 1.96)
    return found.chosen(variance, 1 / GROUPS)


def quantile(rule: PersonsByRecords, numbers: np.ndarray, rho: float, alpha: float) -> Callable[[], int]:
    """OpenDP's quantile of the numbers of records of persons."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = (dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance())
    candidates = rule.lasts.tolist()
    scores = space >> dp.t.then_quantile_score_candidates(candidates, alpha=alpha)

    def made(scale: float) -> object:
        return scores >> dp.m.then_noisy_max(dp.zero_concentrated_divergence(), scale=scale, negate=True)

    measurement = dp.binary_search_chain(made, d_in=1, d_out=rho)
    values = np.minimum(numbers, MOST).tolist()
    return lambda: candidates[measurement(values)]


def main() -> None:
    """Print the table of benchmarks/results/bounds.md."""
    print(
        "| records of a person | persons | rho | dpdist | "
        + " | ".join(f"OpenDP {each}" for each in QUANTILES)
        + " | 10, guessed | best |"
    )
    print("|---" * (6 + len(QUANTILES)) + "|")
    for name, draw in DRAWN.items():
        for many in (3_000, 30_000):
            numbers = draw(np.random.default_rng(1), many).astype(np.int64)
            counts = np.bincount(np.minimum(numbers, MOST), minlength=MOST + 1)
            for rho in (Fraction(1, 20), Fraction(1, 200)):
                rule = persons_by_records(MOST, Loss.gaussian(rho / 10), "add-remove")

                def error(k: int, part: float, numbers: np.ndarray = numbers, rho: Fraction = rho) -> float:
                    lost = np.maximum(numbers - k, 0).sum() / GROUPS
                    return float(k**2 / (2 * float(rho) * part) + lost**2)

                variance = GROUPS / (2 * float(rho) * 0.9)
                ways = [lambda rule=rule, counts=counts, variance=variance: chosen(rule, counts, variance)]
                ways += [quantile(rule, numbers, float(rho) / 10, alpha) for alpha in QUANTILES]
                found = [math.sqrt(np.mean([error(way(), 0.9) for _ in range(RUNS)])) for way in ways]
                best = min(error(k, 1.0) for k in range(1, MOST + 1)) ** 0.5
                row = [*found, error(10, 1.0) ** 0.5, best]
                print(
                    f"| {name} | {many:,} | {float(rho):g} | " + " | ".join(f"{each:,.0f}" for each in row) + " |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
