"""How often the gate before publishing catches broken data, and how often it stops whole ones.

    python -m benchmarks.gate [--json]

26 series of three years (weeks, and days with weekdays), drawn: levels from 50 to 20,000, a season of a year, a level that walks by one
per cent a period, 3 per cent of chance, and Gaussian noise of standard deviation 10. In the last two years every period is compared with
those before it, first as it is (false alarms), then with one fault. A fault counts as caught where the changed answers have an alarm in
the first period, they themselves, their shares or all of them as an earlier period again; "5 errors" are those alone that move a series by
more than five standard errors of its forecast. An old period again is one of the last eight, of which all answers are changed.

Shares: in weeks that all go up and down together by a tenth (one factor of a week for all series), a fifth of one series is counted as
another one, while the total stays. It is counted how often that is seen in answers alone, and with shares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from dpdist.plugins.gate.group_shares import DividedGroup
from dpdist.plugins.gate.outlier_test import find_outliers
from dpdist.plugins.gate.series_comparison import Series, find_unlikely

SERIES, NOISE, SEED = 26, 10.0, 7
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
LIMITS = (2, 4, 8, 16, 26)
"""Periods in which a fault stays, published each time that nothing is found, until it is caught."""


def drawn(periods: int, a_year: int, state: np.random.Generator, together: float = 0.0) -> np.ndarray:
    """True counts, one period a row; all series go up and down together by a part of themselves."""
    time, level = np.arange(periods)[:, None], np.exp(state.uniform(np.log(50), np.log(20_000), SERIES))
    season = 1 + 0.3 * np.sin(2 * np.pi * (time / a_year + state.random(SERIES)))
    week = 1 + 0.2 * np.cos(2 * np.pi * (time / 7 + state.random(SERIES))) if a_year == 365 else 1
    walk = np.exp(np.cumsum(state.normal(0, 0.01, (periods, SERIES)), axis=0))
    common = 1 + state.normal(0, together, (periods, 1)) if together else 1
    return level * season * week * walk * common * (1 + state.normal(0, 0.03, (periods, SERIES)))


@dataclass(frozen=True)
class GateRates:
    """False alarms a year, and shares of each fault.

    Attributes:
        caught_share: caught in its first period.
        series_beyond_5_errors_caught: of the series that it moves by more than five errors, those that are outliers.
        later: caught within so many periods in which it stays; earlier ones are published, and become history.
    """

    periods_a_year: int
    false_alarms_a_year: float
    caught_share: dict[str, float]
    series_beyond_5_errors_caught: dict[str, float]
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
    counts = drawn(3 * a_year, a_year, state)
    noisy = counts + state.normal(0, NOISE, counts.shape)
    deviations = np.full(counts.shape, NOISE)
    compared, alarms = range(a_year, 3 * a_year, stride if a_year < 100 else 5), 0
    caught, large = dict.fromkeys(faults, 0), {name: [0, 0] for name in faults}
    for period in compared:
        first = max(0, period - 110)
        history, known = noisy[first:period], deviations[first:period]
        alarms += len(_alarms(history, noisy[period], a_year))
        spreads = _spreads(history, known, noisy[period])
        for name in faults:
            broken = FAULTS[name](counts[period], state, a_year, counts[:period]) + noisy[period] - counts[period]
            moved = np.abs(broken - noisy[period])
            found = {place for _, place in _alarms(history, broken, a_year)}
            caught[name] += bool(found & {*np.flatnonzero(moved).tolist(), ALL})
            for index in np.flatnonzero(moved > 5 * spreads):
                large[name][0] += 1
                large[name][1] += int(index) in found
    return GateRates(
        a_year,
        (alarms + _false_alarms(a_year, histories - 1, state)) * a_year / (len(compared) * histories),
        {name: caught[name] / len(compared) for name in faults},
        {name: hit / max(all_, 1) for name, (all_, hit) in large.items()},
        _caught_later(noisy, counts, a_year, state) if followed else {},
    )


def _false_alarms(a_year: int, histories: int, state: np.random.Generator) -> int:
    """The alarms of so many further histories without a fault, in their last two years."""
    alarms = 0
    for _ in range(histories):
        counts = drawn(3 * a_year, a_year, state)
        noisy = counts + state.normal(0, NOISE, counts.shape)
        for period in range(a_year, 3 * a_year, 1 if a_year < 100 else 5):
            alarms += len(_alarms(noisy[max(0, period - 110) : period], noisy[period], a_year))
    return alarms


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


def shares_caught(a_year: int = 52, *, stride: int = 1) -> dict[str, float]:
    """How often records that are counted as another series are seen in answers alone, and with shares; and false alarms a year."""
    state = np.random.default_rng(SEED)
    counts = drawn(3 * a_year, a_year, state, TOGETHER)
    noisy = counts + state.normal(0, NOISE, counts.shape)
    compared, alarms, caught = range(a_year, 3 * a_year, stride), 0, {"answers alone": 0, "with shares": 0}
    for period in compared:
        history = noisy[max(0, period - 110) : period]
        alarms += len(_alarms(history, noisy[period], a_year))
        broken = _moved_to_another(counts[period], state, 0.2)
        moved = set(np.flatnonzero(broken != counts[period]).tolist())
        found = _alarms(history, broken + noisy[period] - counts[period], a_year)
        caught["answers alone"] += any(kind == "answers" and place in moved for kind, place in found)
        caught["with shares"] += any(place in moved for _, place in found)
    return {name: hits / len(compared) for name, hits in caught.items()} | {
        "false_alarms_a_year": alarms * a_year / len(compared)
    }


def _caught_later(
    noisy: np.ndarray, counts: np.ndarray, a_year: int, state: np.random.Generator
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
                    generator = np.random.default_rng(seed)  # the same series in each period
                    broken = FAULTS[name](broken, generator, a_year, counts[:period])
                changed[period] += broken - counts[period]
                moved = {*np.flatnonzero(broken != counts[period]).tolist(), ALL}
                if any(
                    place in moved for _, place in _alarms(changed[max(0, period - 110) : period], changed[period], a_year)
                ):
                    periods[number] = step + 1
                    break
    return {
        name: {f"within_{limit}": float((periods <= limit).mean()) for limit in LIMITS}
        for name, periods in first_periods.items()
    }


def _spreads(history: np.ndarray, known: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Standard errors of the forecasts: from the half widths of answers that are outliers by far."""
    found = find_outliers(history, known, answers + 1e9, known[0], 0.317310507862914)
    return np.array([abs(outlier.answer - outlier.forecast) / outlier.distance for outlier in found])


def _summary(results: list[GateRates]) -> dict[str, object]:
    """The worse of both kinds of series, and each of them."""
    return {
        "caught_share": {name: min(result.caught_share[name] for result in results) for name in FAULTS},
        "false_alarms_a_year": max(result.false_alarms_a_year for result in results),
        "later": {
            name: {within: min(result.later[name][within] for result in results) for within in shares}
            for name, shares in results[0].later.items()
        },
        "by_periods_a_year": [asdict(result) for result in results],
        "shares": shares_caught(),
    }


def main() -> None:
    """Print the table of benchmarks/results/gate.md."""
    results = [measured(52, followed=True, histories=24), measured(365, followed=True)]
    if "--json" in sys.argv[1:]:
        print(json.dumps(_summary(results)))
        return
    for result in results:
        print(f"\n{result.periods_a_year} periods a year: {result.false_alarms_a_year:.2f} false alarms a year\n")
        print("| fault | caught in its first period | series moved beyond five errors: caught |\n|---|---|---|")
        for name, share in result.caught_share.items():
            print(f"| {name} | {share:.1%} | {result.series_beyond_5_errors_caught[name]:.1%} |")
        print(
            f"\n| fault that stays | {' | '.join(f'caught within {limit}' for limit in LIMITS)} |\n|---|{'---|' * len(LIMITS)}"
        )
        for name, shares in result.later.items():
            print(f"| {name} | {' | '.join(f'{share:.0%}' for share in shares.values())} |")
    seen = shares_caught()
    print(
        f"\nWeeks that go up and down together: {SHARE_FAULT} is caught in {seen['answers alone']:.0%} by answers alone, in "
        f"{seen['with shares']:.0%} with shares; {seen['false_alarms_a_year']:.2f} false alarms a year."
    )


if __name__ == "__main__":
    main()
