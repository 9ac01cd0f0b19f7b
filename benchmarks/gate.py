"""How often the gate before publishing catches broken data beside the best possible test, and how often it stops whole ones.

    python -m benchmarks.gate [--json]

26 series of three years (weeks, and days with weekdays), drawn: levels from 50 to 20,000, a season of a year, a level that walks by one
per cent a period, 3 per cent of chance, and Gaussian noise of standard deviation 10. In the last two years every period is compared with
those before it, first as it is (false alarms), then with one fault. A fault counts as caught where the changed answers have an alarm in
the first period, they themselves, their shares or all of them as an earlier period again. An old period again is one of the last eight, of
which all answers are changed.

The best test knows the law by which series are drawn, but not the level and the size of the errors of a series, which it estimates from n
earlier periods. Its forecast is the best linear unbiased one, with errors of a standard deviation s, normal in the first order; and it has
as many false alarms a year over all answers as the gate is asked for. A fault that moves an answer by k s is then caught with probability
P(|T| > t), T of the noncentral t distribution with n - 1 degrees of freedom and noncentrality k, t the quantile of the level without a
fault. No invariant test of the same false alarms catches more in each answer by itself (Lehmann & Romano 2005, 6.4). "5 errors" are the
answers that a fault moves by more than five of these s.

Histories: so many earlier periods are compared, in place of up to 110, and the fault moves one series by exactly five s, or by seven.

Shares: in weeks that all go up and down together by a tenth (one factor of a week for all series), a fifth of one series is counted as
another one, while the total stays. It is counted how often that is seen in answers alone, and with shares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import chdtri, ndtr, stdtrit

from dpdist.plugins.gate.group_shares import DividedGroup
from dpdist.plugins.gate.series_comparison import Series, find_unlikely

SERIES, NOISE, SEED = 26, 10.0, 7
CHANCE, WALK, SEASON, WEEKDAYS = 0.03, 0.01, 0.3, 0.2
"""Parts of its level: standard deviations of a series' chance and of a step of its walk, and amplitudes of its seasons."""
MOST_HISTORY = 110
Fault = Callable[[np.ndarray, np.random.Generator, int, np.ndarray], np.ndarray]
"""The true counts of a period with a fault, from the right ones, a generator, the periods of a year and the counts of earlier periods."""


def _drop_country(counts: np.ndarray, state: np.random.Generator, *_: object) -> np.ndarray:
    changed = counts.copy()
    changed[state.integers(counts.size)] = 0
    return changed


def _one_taken_for_another(counts: np.ndarray, state: np.random.Generator, *_: object) -> np.ndarray:
    return _moved_to_another(counts, state, 1.0)


def _moved_to_another(counts: np.ndarray, state: np.random.Generator, part: float) -> np.ndarray:
    changed, (old, new) = counts.copy(), state.choice(counts.size, 2, replace=False)
    changed[new] += part * changed[old]
    changed[old] *= 1 - part
    return changed


def _old_period(_: np.ndarray, state: np.random.Generator, __: int, earlier: np.ndarray) -> np.ndarray:
    return np.asarray(earlier[-state.integers(1, 9)])


def _column_renamed(counts: np.ndarray, *_: object) -> np.ndarray:
    """The groups by one of two columns are empty."""
    return np.where(np.arange(counts.size) % 2, 0, counts)


def _zeros_for_a_day(counts: np.ndarray, _: np.random.Generator, a_year: int, __: np.ndarray) -> np.ndarray:
    return counts * (1 - a_year / 365)  # of a week one day of seven


FAULTS: dict[str, Fault] = {
    "one country gone": _drop_country,
    "a column renamed": _column_renamed,
    "one name taken for another": _one_taken_for_another,
    "double counting": lambda counts, *_: 2 * counts,
    "half of the files": lambda counts, *_: counts / 2,
    "zeros for a day": _zeros_for_a_day,
    "zeros for a period": lambda counts, *_: 0 * counts,
    "cents for euros": lambda counts, *_: 100 * counts,
    "a tenth more everywhere": lambda counts, *_: 1.1 * counts,
    "an old period again": _old_period,
}
SHARE_FAULT = "a fifth of one name as another"
TOGETHER = 0.1
"""By so much all series go up and down together, where shares are measured."""
DRIFT = 0.02
"""A slow drift: each period has so much more than the one before, in one series."""
FOLLOWED = 26
ALL = -1
"""Stands for all series of a period."""
HISTORIES, MOVED = (6, 8, 12, 16, 26, 52, 60, 104), (5, 7)
"""Numbers of earlier periods, and by how many errors answers are moved after them."""
LIMITS = (2, 4, 8, 16, 26)
"""Periods in which a fault stays, published each time that nothing is found, until it is caught."""


@dataclass(frozen=True)
class DrawnSeries:
    """Series that were drawn, (periods, series).

    Attributes:
        levels: of each series, (series,).
        means: levels with their seasons and walks.
        counts: with chance.
        noisy: with noise.
    """

    levels: np.ndarray
    means: np.ndarray
    counts: np.ndarray
    noisy: np.ndarray


def drawn(periods: int, a_year: int, state: np.random.Generator, together: float = 0.0) -> DrawnSeries:
    """Series, one period a row; all of them go up and down together by a part of themselves."""
    time, level = np.arange(periods)[:, None], np.exp(state.uniform(np.log(50), np.log(20_000), SERIES))
    season = 1 + SEASON * np.sin(2 * np.pi * (time / a_year + state.random(SERIES)))
    week = 1 + WEEKDAYS * np.cos(2 * np.pi * (time / 7 + state.random(SERIES))) if a_year == 365 else 1
    walk = np.exp(np.cumsum(state.normal(0, WALK, (periods, SERIES)), axis=0))
    common = 1 + state.normal(0, together, (periods, 1)) if together else 1
    means = level * season * week * walk
    counts = means * common * (1 + state.normal(0, CHANCE, (periods, SERIES)))
    return DrawnSeries(level, means, counts, counts + state.normal(0, NOISE, counts.shape))


def best_errors(series: DrawnSeries, first: int, period: int, a_year: int) -> np.ndarray:
    """Standard deviations of the errors of the best linear unbiased forecasts of a period from some before it, (series,).

    Source: Goldberger 1962, of a mean that is not known and covariances that are.
    """
    time = np.arange(first, period + 1)
    apart, steps = time[:, None] - time, np.minimum.outer(time - first, time - first)
    common = SEASON**2 / 2 * np.cos(2 * np.pi * apart / a_year)
    if a_year == 365:
        common = common + WEEKDAYS**2 / 2 * np.cos(2 * np.pi * apart / 7)
    errors = []
    for level, means in zip(series.levels, series.means[first : period + 1].T, strict=True):
        independent = np.diag((CHANCE * means) ** 2 + NOISE**2)
        covariance = level**2 * common + WALK**2 * steps * np.outer(means, means) + independent
        known, with_newest, ones = covariance[:-1, :-1], covariance[:-1, -1], np.ones(len(time) - 1)
        weights, totals = np.linalg.solve(known, np.column_stack([with_newest, ones])).T
        unknown = (1 - with_newest @ totals) ** 2 / (ones @ totals)
        errors.append(np.sqrt(covariance[-1, -1] - with_newest @ weights + unknown))
    return np.array(errors)


def best_power(distances: np.ndarray, periods: int, a_year: int, false_alarms: float = 1.0) -> np.ndarray:
    """The probability that the best test of one answer catches faults that move it by so many standard errors.

    Args:
        periods: that are known before.
    """
    freedom, tails = periods - 1, (np.arange(500) + 0.5) / 500
    limits = -stdtrit(freedom, false_alarms / (a_year * SERIES) / 2) * np.sqrt(chdtri(freedom, tails) / freedom)
    return np.asarray((ndtr(distances[..., None] - limits) + ndtr(-distances[..., None] - limits)).mean(axis=-1))


@dataclass(frozen=True)
class CaughtShares:
    """How much of a fault is caught in its first period.

    Attributes:
        periods, best_periods: shares of the periods in which it is, by the gate and by the best test of each answer.
        answers, best_answers: of the answers that it moves by more than five errors; None where there are none.
    """

    periods: float
    best_periods: float
    answers: float | None
    best_answers: float | None


@dataclass(frozen=True)
class GateRates:
    """False alarms a year, and shares of each fault.

    Attributes:
        caught: in its first period.
        later: caught within so many periods in which it stays; earlier ones are published, and become history.
    """

    periods_a_year: int
    false_alarms_a_year: float
    caught: dict[str, CaughtShares]
    later: dict[str, dict[str, float]]


def measured(
    a_year: int, *, followed: bool = False, histories: int = 1, faults: Sequence[str] = tuple(FAULTS), stride: int = 1
) -> GateRates:
    """False alarms a year, and what is caught of each fault; where faults are followed, also in later periods.

    Args:
        histories: so many are drawn for the false alarms, which are rare.
        faults: those that are planted.
        stride: every how many periods, of weeks, is compared.
    """
    state = np.random.default_rng(SEED)
    series = drawn(3 * a_year, a_year, state)
    compared, alarms = range(a_year, 3 * a_year, stride if a_year < 100 else 5), 0
    caught = {name: list[tuple[float, float]]() for name in faults}
    large = {name: list[tuple[float, float]]() for name in faults}
    for period in compared:
        first = max(0, period - MOST_HISTORY)
        history, answers, counts = series.noisy[first:period], series.noisy[period], series.counts[period]
        alarms += len(_alarms(history, answers, a_year))
        errors = best_errors(series, first, period, a_year) if faults else np.ones(SERIES)
        for name in faults:
            changes = FAULTS[name](counts, state, a_year, series.counts[:period]) - counts
            found = {place for _, place in _alarms(history, answers + changes, a_year)}
            power = np.where(changes, best_power(np.abs(changes) / errors, period - first, a_year), 0.0)
            is_caught = bool(found & {*np.flatnonzero(changes).tolist(), ALL})
            caught[name].append((float(is_caught), 1 - float(np.prod(1 - power))))
            large[name] += [(float(index in found), power[index]) for index in np.flatnonzero(np.abs(changes) > 5 * errors)]
    return GateRates(
        a_year,
        (alarms + _false_alarms(a_year, histories - 1, state)) * a_year / (len(compared) * histories),
        {name: CaughtShares(*_mean_shares(caught[name]), *_mean_shares(large[name])) for name in faults},
        _caught_later(series, a_year, state) if followed else {},
    )


def _mean_shares(pairs: list[tuple[float, float]]) -> list[float] | list[None]:
    return np.mean(pairs, axis=0).tolist() if pairs else [None, None]


def _false_alarms(a_year: int, histories: int, state: np.random.Generator) -> int:
    """The alarms of so many further histories without a fault, in their last two years."""
    alarms = 0
    for _ in range(histories):
        noisy = drawn(3 * a_year, a_year, state).noisy
        for period in range(a_year, 3 * a_year, 1 if a_year < 100 else 5):
            alarms += len(_alarms(noisy[max(0, period - MOST_HISTORY) : period], noisy[period], a_year))
    return alarms


def caught_by_history(a_year: int, lengths: Sequence[int] = HISTORIES, *, draws: int = 300) -> dict[int, dict[str, float]]:
    """False alarms a year after so many periods, and what is caught of answers that are moved by five and by seven errors.

    Args:
        draws: so many times series are drawn for each length.
    """
    state, rates = np.random.default_rng(SEED), dict[int, dict[str, float]]()
    for length in lengths:
        alarms, hits = 0, dict.fromkeys(MOVED, 0.0)
        for number in range(draws):
            series = drawn(length + 1, a_year, state)
            history, answers = series.noisy[:-1], series.noisy[-1]
            alarms += len(_alarms(history, answers, a_year))
            if number % 5 == 0:
                errors = best_errors(series, 0, length, a_year) * state.choice([-1, 1], SERIES)
                for distance in MOVED:
                    found = {place for _, place in _alarms(history, answers + distance * errors, a_year) if place != ALL}
                    hits[distance] += 5 * len(found) / (SERIES * draws)
        rates[length] = {"false_alarms_a_year": alarms * a_year / draws}
        for distance in MOVED:
            best = float(best_power(np.array(float(distance)), length, a_year))
            rates[length] |= {f"caught_at_{distance}_errors": hits[distance], f"best_at_{distance}_errors": best}
    return rates


def _alarms(history: np.ndarray, answers: np.ndarray, a_year: int) -> set[tuple[str, int]]:
    """What the gate finds, and in which series: "answers", "shares" or a "period" that is an earlier one again (``ALL``)."""
    together, step = np.vstack([history, answers]), 365.25 / a_year
    days = [step * period for period in range(len(together))]
    group = DividedGroup(0, answers.size, np.eye(answers.size))
    series = Series(days, together, np.full(together.shape, NOISE), [""] * answers.size, [group])
    found = set[tuple[str, int]]()
    for unlikely in find_unlikely([series], 1.0):
        kind = "shares" if unlikely.series.is_share else "answers"
        found |= {(kind, each.index) for kinds in (unlikely.outliers, unlikely.drifts) for each in kinds}
        found |= {("period", ALL)} if unlikely.repeated is not None else set()
    return found


def shares_caught(a_year: int = 52, *, stride: int = 1, seed: int = SEED) -> dict[str, float]:
    """How often records that are counted as another series are seen in answers alone, and with shares; and false alarms a year."""
    state = np.random.default_rng(seed)
    series = drawn(3 * a_year, a_year, state, TOGETHER)
    counts, noisy = series.counts, series.noisy
    compared, alarms, caught = range(a_year, 3 * a_year, stride), 0, {"answers alone": 0, "with shares": 0}
    for period in compared:
        history = noisy[max(0, period - MOST_HISTORY) : period]
        alarms += len(_alarms(history, noisy[period], a_year))
        broken = _moved_to_another(counts[period], state, 0.2)
        moved = set(np.flatnonzero(broken != counts[period]).tolist())
        found = _alarms(history, broken + noisy[period] - counts[period], a_year)
        caught["answers alone"] += any(kind == "answers" and place in moved for kind, place in found)
        caught["with shares"] += any(place in moved for _, place in found)
    return {name: hits / len(compared) for name, hits in caught.items()} | {
        "false_alarms_a_year": alarms * a_year / len(compared)
    }


def _caught_later(series: DrawnSeries, a_year: int, state: np.random.Generator) -> dict[str, dict[str, float]]:
    """Shares of faults that are caught within some periods in which they stay, from a few first periods on."""
    noisy, counts = series.noisy, series.counts
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
                    generator = np.random.default_rng(seed)  # the same series in each period
                    broken = FAULTS[name](broken, generator, a_year, counts[:period])
                changed[period] += broken - counts[period]
                moved = {*np.flatnonzero(broken != counts[period]).tolist(), ALL}
                if any(
                    place in moved
                    for _, place in _alarms(changed[max(0, period - MOST_HISTORY) : period], changed[period], a_year)
                ):
                    periods[number] = step + 1
                    break
    return {
        name: {f"within_{limit}": float((periods <= limit).mean()) for limit in LIMITS}
        for name, periods in first_periods.items()
    }


def _summary(results: list[GateRates]) -> dict[str, object]:
    """The worse of both kinds of series, and each of them."""
    return {
        "caught_share": {name: min(result.caught[name].periods for result in results) for name in FAULTS},
        "false_alarms_a_year": max(result.false_alarms_a_year for result in results),
        "later": {
            name: {within: min(result.later[name][within] for result in results) for within in shares}
            for name, shares in results[0].later.items()
        },
        "by_periods_a_year": [asdict(result) for result in results],
        "by_history": {result.periods_a_year: caught_by_history(result.periods_a_year) for result in results},
        "shares": shares_caught(),
    }


def print_rates(rates: GateRates) -> None:
    """Print the tables of one kind of series."""
    print(f"\n{rates.periods_a_year} periods a year: {rates.false_alarms_a_year:.2f} false alarms a year\n")
    print("| fault | caught in its first period | best test | answers moved beyond five errors: caught | best test |")
    print("|---|---|---|---|---|")
    for name, caught in rates.caught.items():
        shares = ("none" if share is None else f"{share:.1%}" for share in asdict(caught).values())
        print(f"| {name} | {' | '.join(shares)} |")
    print(
        f"\n| fault that stays | {' | '.join(f'caught within {limit}' for limit in LIMITS)} |\n|---|{'---|' * len(LIMITS)}"
    )
    for name, later in rates.later.items():
        print(f"| {name} | {' | '.join(f'{share:.0%}' for share in later.values())} |")


def print_histories(a_year: int) -> None:
    """Print what is caught after how many periods."""
    columns = [text for distance in MOVED for text in (f"moved by {distance} errors: caught", "best test")]
    print(
        f"\n| earlier periods, {a_year} a year | false alarms a year | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}"
    )
    for length, rates in caught_by_history(a_year).items():
        alarms, *shares = rates.values()
        print(f"| {length} | {alarms:.2f} | {' | '.join(f'{share:.1%}' for share in shares)} |")


def main() -> None:
    """Print the tables of benchmarks/results/gate.md."""
    results = [measured(52, followed=True, histories=24), measured(365, followed=True, histories=6)]
    if "--json" in sys.argv[1:]:
        print(json.dumps(_summary(results)))
        return
    for rates in results:
        print_rates(rates)
        print_histories(rates.periods_a_year)
    seen = shares_caught()
    print(
        f"\nWeeks that go up and down together: {SHARE_FAULT} is caught in {seen['answers alone']:.0%} by answers alone, in "
        f"{seen['with shares']:.0%} with shares; {seen['false_alarms_a_year']:.2f} false alarms a year."
    )


if __name__ == "__main__":
    main()
