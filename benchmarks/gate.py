"""How often the gate before publishing catches broken data, and how often it stops whole ones.

    python -m benchmarks.gate [--json]

26 series of three years (weeks, and days with weekdays), drawn: levels from 50 to 20,000, a season of a year, a level that walks by one
per cent a period, 3 per cent of chance, and Gaussian noise of standard deviation 10. In the last two years every period is compared with
those before it, first as it is (false alarms), then with one fault. A fault counts as caught where the changed answers have an alarm in
the first period; "5 errors" are those alone that move a series by more than five standard errors of its forecast.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers

SERIES, NOISE, SEED = 26, 10.0, 7
Fault = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""The true counts of a period with a fault."""


def _one_gone(counts: np.ndarray, state: np.random.Generator) -> np.ndarray:
    changed = counts.copy()
    changed[state.integers(counts.size)] = 0
    return changed


def _renamed(counts: np.ndarray, state: np.random.Generator) -> np.ndarray:
    changed, (old, new) = counts.copy(), state.choice(counts.size, 2, replace=False)
    changed[new] += changed[old]
    changed[old] = 0
    return changed


FAULTS: dict[str, Fault] = {
    "one country gone": _one_gone,
    "one name taken for another": _renamed,
    "counted twice": lambda counts, _: 2 * counts,
    "half of the files": lambda counts, _: counts / 2,
    "zeros": lambda counts, _: 0 * counts,
    "cents for euros": lambda counts, _: 100 * counts,
    "a tenth more everywhere": lambda counts, _: 1.1 * counts,
}
DRIFT = 0.02
"""A slow drift: each period has so much more than the one before, in one series."""
FOLLOWED = 8
"""Periods in which a fault stays, published each time that nothing is found, until it is caught."""


def drawn(periods: int, a_year: int, state: np.random.Generator) -> np.ndarray:
    """True counts, one period a row."""
    time, level = np.arange(periods)[:, None], np.exp(state.uniform(np.log(50), np.log(20_000), SERIES))
    season = 1 + 0.3 * np.sin(2 * np.pi * (time / a_year + state.random(SERIES)))
    week = 1 + 0.2 * np.cos(2 * np.pi * (time / 7 + state.random(SERIES))) if a_year == 365 else 1
    walk = np.exp(np.cumsum(state.normal(0, 0.01, (periods, SERIES)), axis=0))
    return level * season * week * walk * (1 + state.normal(0, 0.03, (periods, SERIES)))


@dataclass(frozen=True)
class GateRates:
    """False alarms a year, and shares of each fault.

    Attributes:
        caught_share: caught in its first period.
        series_beyond_5_errors_caught: of the series that it moves by more than five errors, those that are outliers.
        later: caught within two, four and eight periods in which it stays; earlier ones are published, and become history.
    """

    periods_a_year: int
    false_alarms_a_year: float
    caught_share: dict[str, float]
    series_beyond_5_errors_caught: dict[str, float]
    later: dict[str, dict[str, float]]


def measured(a_year: int, *, followed: bool = False) -> GateRates:
    """False alarms a year, and what is caught of each fault; where faults are followed, also in later periods."""
    state = np.random.default_rng(SEED)
    counts = drawn(3 * a_year, a_year, state)
    noisy = counts + state.normal(0, NOISE, counts.shape)
    level, deviations = comparison_level(1.0, a_year, SERIES), np.full(counts.shape, NOISE)
    compared, alarms = range(a_year, 3 * a_year, 1 if a_year < 100 else 5), 0
    caught, large = dict.fromkeys(FAULTS, 0), {name: [0, 0] for name in FAULTS}
    for period in compared:
        first = max(0, period - 110)
        history, known = noisy[first:period], deviations[first:period]
        alarms += len(find_outliers(history, known, noisy[period], deviations[0], level))
        spreads = _spreads(history, known, noisy[period])
        for name, fault in FAULTS.items():
            broken = fault(counts[period], state) + noisy[period] - counts[period]
            moved = np.abs(broken - noisy[period])
            found = {outlier.index for outlier in find_outliers(history, known, broken, deviations[0], level)}
            caught[name] += bool(found & set(np.flatnonzero(moved).tolist()))
            for index in np.flatnonzero(moved > 5 * spreads):
                large[name][0] += 1
                large[name][1] += int(index) in found
    return GateRates(
        a_year,
        alarms * a_year / len(compared),
        {name: caught[name] / len(compared) for name in FAULTS},
        {name: hit / max(all_, 1) for name, (all_, hit) in large.items()},
        _caught_later(noisy, counts, level, a_year, state) if followed else {},
    )


def _caught_later(
    noisy: np.ndarray, counts: np.ndarray, level: float, a_year: int, state: np.random.Generator
) -> dict[str, dict[str, float]]:
    """Shares of faults that are caught within some periods in which they stay, from a few first periods on."""
    starts = range(a_year, len(counts) - FOLLOWED, max(1, (len(counts) - a_year) // 30))
    first_periods = {name: np.full(len(starts), np.inf) for name in (*FAULTS, "slow drift")}
    for name, periods in first_periods.items():
        for number, start in enumerate(starts):
            changed, seed = noisy.copy(), int(state.integers(2**31))
            for step in range(FOLLOWED):
                period = start + step
                broken = counts[period].copy()
                if name == "slow drift":
                    broken[seed % SERIES] *= (1 + DRIFT) ** (step + 1)
                else:
                    broken = FAULTS[name](broken, np.random.default_rng(seed))  # the same series in each period
                changed[period] += broken - counts[period]
                moved = set(np.flatnonzero(broken != counts[period]).tolist())
                history = changed[max(0, period - 110) : period]
                deviations = np.full(history.shape, NOISE)
                found = find_outliers(history, deviations, changed[period], deviations[0], level)
                if moved & {outlier.index for outlier in found}:
                    periods[number] = step + 1
                    break
    return {
        name: {f"within_{limit}": float((periods <= limit).mean()) for limit in (2, 4, 8)}
        for name, periods in first_periods.items()
    }


def _spreads(history: np.ndarray, known: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Standard errors of the forecasts: from the half widths of answers that are outliers by far."""
    found = find_outliers(history, known, answers + 1e9, known[0], 0.317310507862914)
    return np.array([abs(outlier.answer - outlier.forecast) / outlier.distance for outlier in found])


def main() -> None:
    """Print the table of benchmarks/results/gate.md."""
    results = [measured(52, followed=True), measured(365, followed=True)]
    if "--json" in sys.argv[1:]:
        print(json.dumps([asdict(result) for result in results]))
        return
    for result in results:
        print(f"\n{result.periods_a_year} periods a year: {result.false_alarms_a_year:.2f} false alarms a year\n")
        print("| fault | caught in its first period | series moved beyond five errors: caught |\n|---|---|---|")
        for name, share in result.caught_share.items():
            print(f"| {name} | {share:.1%} | {result.series_beyond_5_errors_caught[name]:.1%} |")
        print("\n| fault that stays | caught within 2 periods | 4 periods | 8 periods |\n|---|---|---|---|")
        for name, shares in result.later.items():
            print(f"| {name} | {' | '.join(f'{share:.0%}' for share in shares.values())} |")


if __name__ == "__main__":
    main()
