"""The bound on the records of a person, and on amounts: chosen by a part of the budget, against fixed quantiles at equal loss.

    pip install opendp
    python -m benchmarks.bounds

A table of ten groups, in which records lie alike, is released under rho. A tenth of it chooses how many records of a person count.
OpenDP's way is its quantile of the persons' numbers of records (report noisy max, the same candidates) at 0.9, 0.95 and 0.99. The
error is the root of the mean squared error of a group's count, noise and records that do not count together. So is that of a group's sum
of amounts (in steps, three records of each person), of which a tenth of the budget chooses the largest one.

    python -m benchmarks.bounds groups

counts persons by group: 100 groups, of which the one in place i is 1/i as frequent, every cell measured by itself. A tenth of rho chooses
in how many groups a person counts, beside guesses that have all of it. It needs no OpenDP.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpdist.privacy.accounting import Loss
from dpdist.privacy.bounds import QUARTERS, UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.quantities import beyond
from dpdist.quantities.beyond import SEEN, NoisyCounts

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


def chosen(rule: CountsBySize, counts: np.ndarray, variances: np.ndarray, seen: float, spread: float) -> int:
    """The bound that dpdist chooses."""
    noisy = rule.noisy(counts, lambda count: rule.noise.draw(os.urandom(32), count=count)) / 2.0**UNIT_BITS
    found = NoisyCounts(rule.firsts, rule.lasts, noisy, rule.noise.deviation / 2.0**UNIT_BITS, 1.96, seen)
    return found.chosen(variances, spread)


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
    ways = [lambda: chosen(rule, counts, variance * rule.lasts**2.0, seen, 1 / GROUPS)]
    ways += [quantile(rule, sizes, float(rho) / 10, alpha, each) for alpha in QUANTILES]
    found = [math.sqrt(np.mean([error(way(), 0.9) for _ in range(RUNS)])) for way in ways]
    best = min(error(k, 1.0) for k in rule.lasts.tolist()) ** 0.5
    cells = " | ".join(f"{value:,.0f}" for value in [*found, error(guess, 1.0) ** 0.5, best])
    return f"| {name} | {sizes.size:,} | {float(rho):g} | {cells} |"


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

    variances = CELLS * rule.lasts / (2 * float(rho) * 0.9)
    bounds = [chosen(rule, counts, variances, SEEN, 1 / CELLS) for _ in range(RUNS)]
    found = math.sqrt(np.mean([error(bound, 0.9) for bound in bounds]))
    errors = [error(bound, 1.0) ** 0.5 for bound in GUESSES] + [
        min(error(bound, 1.0) for bound in rule.lasts.tolist()) ** 0.5
    ]
    cells = " | ".join(f"{value:,.0f}" for value in (found, *errors))
    return f"| {name} | {numbers.size:,} | {float(rho):g} | {min(bounds)} to {max(bounds)} | {cells} |"


def groups() -> None:
    """Print the table of persons by group."""
    guesses = " | ".join(f"{guess}, guessed" for guess in GUESSES)
    print(f"| groups of a person | persons | rho | chosen | dpdist | {guesses} | best |\n{'|---' * (6 + len(GUESSES))}|")
    bounds = sorted({*counts_by_size(MOST_OF_PERSON, Loss.gaussian(1), "add-remove").lasts.tolist(), *GUESSES})
    for name, draw in NUMBERS.items():
        for many in (3_000, 30_000):
            state = np.random.default_rng(1)
            numbers = np.minimum(draw(state, many), CELLS).astype(np.int64)
            lost = lost_by_group(numbers, state, bounds)
            for rho in (Fraction(1, 20), Fraction(1, 200)):
                print(row_of_groups(name, numbers, rho, lost), flush=True)


def main() -> None:
    """Print the tables of benchmarks/results/bounds.md."""
    if sys.argv[1:] == ["groups"]:
        groups()
        return
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
