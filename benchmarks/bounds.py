"""The bound on the records of a person, and on amounts: chosen by a part of the budget, against fixed quantiles at equal loss.

    pip install opendp
    python -m benchmarks.bounds

A table of ten groups, in which records lie alike, is released under rho. A tenth of it chooses how many records of a person count.
OpenDP's way is its quantile of the persons' numbers of records (report noisy max, the same candidates) at 0.9, 0.95 and 0.99. The
error is the root of the mean squared error of a group's count, noise and records that do not count together. So is that of a group's sum
of amounts (in steps, three records of each person), of which a tenth of the budget chooses the largest one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpdist.privacy.accounting import Loss
from dpdist.privacy.bounds import QUARTERS, UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.quantities import beyond
from dpdist.quantities.left_out import SEEN, NoisyCounts

MOST, GROUPS, RUNS = 200, 10, 40
QUANTILES = (0.9, 0.95, 0.99)
DRAWN: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "lognormal(1.5, 1)": lambda state, many: np.maximum(1, np.exp(state.normal(1.5, 1, many)).round()),
    "Pareto 1.8": lambda state, many: state.pareto(1.8, many) * 3 + 1,
    "Poisson 7 + 1": lambda state, many: state.poisson(7, many) + 1,
}


AMOUNTS, RECORDS = 20_000, 3
"""The widest range in steps, and the records of a person that count."""
PAID: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "lognormal(4, 1)": lambda state, many: np.exp(state.normal(4, 1, many)),
    "Pareto 1.8": lambda state, many: 40 * (1 + state.pareto(1.8, many)),
    "gamma(2, 9)": lambda state, many: state.gamma(2, 9, many),
}


def chosen(rule: CountsBySize, counts: np.ndarray, variance: float, seen: float) -> int:
    """The bound that dpdist chooses."""
    noisy = rule.noisy(counts, lambda count: rule.noise.draw(os.urandom(32), count=count)) / 2.0**UNIT_BITS
    found = NoisyCounts(rule.firsts, rule.lasts, noisy, rule.noise.deviation / 2.0**UNIT_BITS, 1.96, seen)
    return found.chosen(variance, 1 / GROUPS)


def quantile(rule: CountsBySize, sizes: np.ndarray, rho: float, alpha: float, moved: int) -> Callable[[], int]:
    """OpenDP's quantile of the sizes.

    Args:
        moved: sizes that one person adds.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = (dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance())
    candidates = rule.lasts.tolist()
    scores = space >> dp.t.then_quantile_score_candidates(candidates, alpha=alpha)

    def made(scale: float) -> object:
        return scores >> dp.m.then_noisy_max(dp.zero_concentrated_divergence(), scale=scale, negate=True)

    measurement = dp.binary_search_chain(made, d_in=moved, d_out=rho)
    values = np.minimum(sizes, rule.most).tolist()
    return lambda: candidates[measurement(values)]


def row(name: str, sizes: np.ndarray, rho: Fraction, *, most: int, each: int, parts: int, guess: int, seen: float) -> str:
    """The errors of one table under every way to choose a bound.

    Args:
        each: sizes of one person: a bound of one is hidden by noise for so many.
        guess: a bound that somebody might guess.
    """
    counts = np.bincount(np.minimum(sizes, most), minlength=most + 1)
    rule = counts_by_size(most, Loss.gaussian(rho / 10), "add-remove", each=each, parts=parts)

    def error(k: int, part: float) -> float:
        return float((each * k) ** 2 / (2 * float(rho) * part) + (np.maximum(sizes - k, 0).sum() / GROUPS) ** 2)

    variance = GROUPS * each**2 / (2 * float(rho) * 0.9)
    ways = [lambda: chosen(rule, counts, variance, seen)]
    ways += [quantile(rule, sizes, float(rho) / 10, alpha, each) for alpha in QUANTILES]
    found = [math.sqrt(np.mean([error(way(), 0.9) for _ in range(RUNS)])) for way in ways]
    best = min(error(k, 1.0) for k in rule.lasts.tolist()) ** 0.5
    cells = " | ".join(f"{value:,.0f}" for value in [*found, error(guess, 1.0) ** 0.5, best])
    return f"| {name} | {sizes.size:,} | {float(rho):g} | {cells} |"


def main() -> None:
    """Print the tables of benchmarks/results/bounds.md."""
    for title, drawn, most, each, parts, guess, seen in (
        ("records of a person | persons", DRAWN, MOST, 1, QUARTERS, 10, SEEN),
        ("amounts of a record | records", PAID, AMOUNTS, RECORDS, WHOLES, 100, beyond.SEEN),
    ):
        ways = " | ".join(f"OpenDP {quantile}" for quantile in QUANTILES)
        print(f"| {title} | rho | dpdist | {ways} | {guess}, guessed | best |\n{'|---' * (6 + len(QUANTILES))}|")
        for name, draw in drawn.items():
            for many in (3_000, 30_000):
                sizes = draw(np.random.default_rng(1), many * each).astype(np.int64)
                for rho in (Fraction(1, 20), Fraction(1, 200)):
                    print(row(name, sizes, rho, most=most, each=each, parts=parts, guess=guess, seen=seen), flush=True)


if __name__ == "__main__":
    main()
