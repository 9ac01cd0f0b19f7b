"""One person in several steps of a stream: neighbouring files through counting and the grid of a real plan, in exact integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.counting import contribution_bounding, histogram_counting
from dpdist.counting.contribution_bounding import HASHED, first_of_steps
from dpdist.domain import Layout
from dpdist.engine import inline
from dpdist.errors import InvalidSpec
from dpdist.measurement import filter_measurement
from dpdist.measurement.integer_measurement import Counts
from dpdist.measurement.sensitivity import participation
from dpdist.measurement.sensitivity.participation import (
    Crossing,
    band_squared,
    falling_squared,
    fitting_participations,
    gram_squared_bound,
    is_falling,
)
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.plugins.streams import participation_optimum, step_chains
from dpdist.plugins.streams.step_chains import band_of as band_width
from dpdist.plugins.streams.step_chains import chains_squared, rows_squared_bound
from dpdist.plugins.streams.triangular_measurement import TriangularMeasurement
from dpdist.privacy import keys
from dpdist.privacy.privacy_unit import RecordsInSteps
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources import record_sources
from dpdist.sources.record_sources import Participations
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release

Record = tuple[str, int, str]
STEPS = 6
BASE: tuple[Record, ...] = (
    ("u", 4, "x"),
    ("v", 1, "y"),
    ("u", 0, "x"),
    ("u", 1, "y"),
    ("u", 0, "x"),
    ("w", 5, "x"),
    ("u", 5, "x"),
    ("v", 3, "y"),
    ("u", 2, "x"),
    ("w", 2, "y"),
)
"""Person u has records in more steps than any bound keeps, closer than any separation, and twice in one cell; steps are in disorder."""
EVERYWHERE = tuple((step, series) for step in range(STEPS) for series in ("x", "x", "y"))
SETS: tuple[tuple[tuple[int, str], ...], ...] = (
    EVERYWHERE,
    EVERYWHERE[::-1],
    tuple((step, "x") for step in (0, 2, 4)),
    tuple((step, "y") for step in (1, 3, 5)),
    ((5, "x"), (3, "x"), (1, "x"), (4, "y")),
)
"""What the records of one person may be."""


SUMS = [{"filters": {"of": "a", "by": ["b"], "apply": [{"running_sum": True}]}}]
ONE_SERIES: dict[str, Any] = {
    "domain": {"a": {"from": 0, "to": STEPS - 1}},
    "workload": [{"filters": {"of": "a", "apply": [{"running_sum": True}]}}],
}


def planned(
    folder: Path,
    *,
    person: str | None = "who",
    most: int = 1,
    apart: tuple[int | None, int] = (3, 2),
    neighbours: str = "add-remove",
    **changes: Any,
) -> ReleasePlan:
    bound = {"most_records": most, **({} if apart[0] is None else {"participations": apart[0], "separation": apart[1]})}
    path = small_release.write(
        folder / "spec",
        table=table(BASE),
        neighbours=neighbours,
        records={"path": "records.parquet", "person": {**({} if person is None else {"column": person}), **bound}},
        stream={"name": "s", "through": STEPS - 1},
        **{
            "domain": {"a": {"from": 0, "to": STEPS - 1}, "b": {"categories": ["x", "y"]}},
            "workload": SUMS,
            "mechanism": "square-root",
            **changes,
        },
    )
    return plan(Context(folder, Store(folder / "store"), inline(), ignore_progress), load(path))


def table(data: tuple[Record, ...]) -> pa.Table:
    columns = list(zip(*data, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int64(), pa.string())
    return pa.table({name: pa.array(column, t) for name, column, t in zip(("who", "a", "b"), columns, types, strict=True)})


def counts(data: tuple[Record, ...], made: ReleasePlan) -> np.ndarray:
    """The counts of records, those of persons bounded as counting does it."""
    rows = np.zeros(len(data), dtype=HASHED)
    rows["high"] = [sum(map(ord, who)) for who, _, _ in data]
    spec = made.job
    one = len(spec.measured.domain.shape) == 1
    rows["cell"] = [step if one else 2 * step + "xy".index(series) for _, step, series in data]
    kept = contribution_bounding.select_records(spec.source.files, spec.measured.domain, rows)
    return np.bincount(rows["cell"][kept], minlength=spec.measured.domain.shape[0] * (1 if one else 2))


def integers(data: tuple[Record, ...], made: ReleasePlan) -> np.ndarray:
    """What is measured of them, without noise."""
    return to_array(
        made.measurement.exact_values(
            Counts(ArrayVector(counts(data, made)), Layout(made.job.measured.domain.shape)), MEMORY
        )
    ).astype(object)


def neighbours_of(made: ReleasePlan) -> Iterator[tuple[Record, ...]]:
    """Every person goes, comes or changes; without a column a record comes or is replaced in every choice of steps that are apart."""
    protection = made.job.guarantee.protection
    replaced = protection.neighbours == "replace-one"
    if protection.person is not None:
        for who in ("u", "v", "w", "new"):
            rest = tuple(record for record in BASE if record[0] != who)
            if who != "new":
                yield rest
            for some in SETS if replaced or who == "new" else ():
                yield tuple((who, *value) for value in some) + rest
        return
    assert isinstance(protection, RecordsInSteps)
    for size in range(1, protection.participations + 1):
        for steps in combinations(range(STEPS), size):
            if all(later - step >= protection.separation for step, later in zip(steps, steps[1:], strict=False)):
                for series in product("xy", repeat=size) if size < 3 else [("x",) * size]:
                    come = tuple(("t", *each) for each in zip(steps, series, strict=True)) * protection.most_records
                    yield BASE + come
                    if replaced:
                        yield BASE[1:] + come  # one that has been there: u in step 4


def farthest(made: ReleasePlan) -> int:
    base = integers(BASE, made)
    return max(int(((integers(data, made) - base) ** 2).sum()) for data in neighbours_of(made))


CASES: dict[str, dict[str, Any]] = {
    "persons": {},
    "persons replaced": {"neighbours": "replace-one", "apart": (2, 3)},
    "two in a step": {"most": 2, "apart": (2, 2)},
    "declared": {"person": None, "apart": (2, 2)},
    "triangular": {"mechanism": "triangular"},
    "triangular, one series": {"mechanism": "triangular", "person": None, "apart": (3, 2), **ONE_SERIES},
    "buffered": {"mechanism": "buffered", "apart": (2, 4)},
    "banded": {"mechanism": "banded", "person": None, "apart": (3, 2), **ONE_SERIES},
    "banded, series": {"mechanism": "banded", "apart": (2, 3)},
    "banded, replaced": {"mechanism": "banded", "neighbours": "replace-one", "apart": (2, 3), **ONE_SERIES},
}
SLOW: dict[str, dict[str, Any]] = {
    f"{mechanism}, {neighbours}, {most}, {apart}, {person}": {
        "mechanism": mechanism,
        "neighbours": neighbours,
        "most": most,
        "apart": apart,
        "person": person,
    }
    for mechanism in ("square-root", "triangular", "buffered", "banded")
    for neighbours in ("add-remove", "replace-one")
    for most in (1, 2)
    for apart in ((1, 1), (2, 1), (2, 3), (6, 2))
    for person in ("who", None)
} | {
    f"{mechanism}, one series, {neighbours}, {most}, {apart}, {person}": {
        "mechanism": mechanism,
        "neighbours": neighbours,
        "most": most,
        "apart": apart,
        "person": person,
        **ONE_SERIES,
    }
    for mechanism in ("banded", "triangular")
    for neighbours in ("add-remove", "replace-one")
    for most in (1, 2)
    for apart in ((1, 1), (3, 2), (2, 3), (6, 1))
    for person in ("who", None)
}


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_measured_integers_move_by_no_more_than_the_noise_hides(case: str, tmp_path: Path) -> None:
    """And by just that much where the sensitivity is exact."""
    given = (CASES | SLOW)[case]
    made = planned(tmp_path, **given)
    moved = farthest(made)
    assert moved <= made.measurement.sensitivity_squared
    every = given.get("person", "who") is None or made.strategy.name not in (
        "banded",
        "triangular",
    )  # all choices were tried
    if made.job.guarantee.neighbours == "add-remove" and every:
        assert made.measurement.sensitivity_squared - moved < moved // 2**25
    near = 0.25 if given.get("neighbours") != "replace-one" else 0.05
    assert moved > near * made.measurement.sensitivity_squared  # a bound that nothing comes near would show nothing
    alone = planned(tmp_path / "alone", **{**given, "apart": (None, 1), "most": 6}).measurement.sensitivity_squared
    assert made.measurement.sensitivity_squared < alone


def test_a_stream_of_weeks_under_a_cap_for_days_is_charged_for_two_days_of_one_week(tmp_path: Path) -> None:
    """Both promise two steps of one person; two days of one week move what is counted by the week farther than two weeks do."""
    made = {}
    for every in ("day", "week"):
        path = small_release.write(
            tmp_path / every,
            records={"path": "records.parquet", "columns": {"step": "when"}, "person": {"participations": 2}},
            domain={"step": {"dates": {"from": "2026-06-01", "to": "2026-06-14", "every": every}, "outside": "drop"}},
            workload=[{"filters": {"of": "step", "apply": [{"running_sum": True}]}}],
            stream={"name": every, "through": "2026-06-14"},
        )
        made[every] = plan(Context(tmp_path, Store(tmp_path / "store"), inline(), ignore_progress), load(path))
    day, week = made["day"].job.guarantee.protection, made["week"].job.guarantee.protection
    assert (day.steps, week.steps) == ("every day of column 'when'", "every week of column 'when'")
    two = to_array(
        made["week"].measurement.exact_values(Counts(ArrayVector(np.array([2, 0])), Layout((2,))), MEMORY)
    ).astype(object)
    assert int((two**2).sum()) > made["week"].measurement.sensitivity_squared
    scale = made["week"].noise.scale
    assert Fraction(int((two**2).sum()), 2 * scale**2) <= made["week"].loss.for_group(week.steps_to(day) or 0).rho


def test_the_steps_of_a_promise_are_those_of_its_column_whatever_the_horizon(tmp_path: Path) -> None:
    def steps(changes: dict[str, Any], **more: Any) -> str | None:
        given = {"from": 3, "to": STEPS + 2, **changes}
        path = small_release.write(
            tmp_path / "spec",
            records={"path": "records.parquet", "person": {"participations": 2, **more.pop("person", {})}},
            domain={"a": given},
            workload=[{"filters": {"of": "a", "apply": [{"running_sum": True}]}}],
            stream={"name": "s", "through": 5, **more},
        )
        return load(path).guarantee.protection.facts().get("steps")

    assert steps({}) == steps({"from": 0}) == "every number of column 'a'"
    assert steps({"width": 2}) == "every 2 numbers from 1 of column 'a'"
    clipped = steps({"outside": "clip"})
    assert clipped == "every number, from 3 or less to 8 or more, of column 'a'"
    assert steps({"outside": "clip", "to": 10}, extended_from=[8]) == clipped
    assert steps({"from": None, "to": None, "edges": [3, 6, 9.5]}) == "steps between 3.0, 6.0, 9.5, error, of column 'a'"
    assert steps({}, person={"column": "who"}) is None


def test_files_are_counted_so(tmp_path: Path) -> None:
    """The files of all those neighbours, through ``records.counting.count``."""
    made = planned(tmp_path, most=2)
    store = Store(tmp_path / "counts")
    for number, data in enumerate((BASE, *list(neighbours_of(made))[-2:])):
        pyarrow.parquet.write_table(table(data), tmp_path / f"{number}.parquet", row_group_size=3)
        source = record_sources.source_of(
            tmp_path / f"{number}.parquet",
            columns={},
            person=made.job.source.person,
            most_records=2,
        )
        stored, _ = histogram_counting.count(source, made.job.measured.domain, store, inline(), root=keys.Secret(bytes(32)))
        np.testing.assert_array_equal(store.read_array(stored), counts(data, made))


@pytest.mark.parametrize("fault", ["separation", "most", "records of a step", "one step only", "sides"])
def test_a_bound_that_is_forgotten_is_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true, alone = contribution_bounding.first_of_steps, falling_squared

    def wrong(rows: np.ndarray, steps: np.ndarray, apart: Participations, most: int) -> np.ndarray:
        if fault == "records of a step":
            return true(rows, steps, apart, 99)
        forgotten = {"separation": {"separation": 1}, "most": {"most_steps": 99}}.get(fault, {})
        return true(rows, steps, Participations(**{**vars(apart), **forgotten}), most)

    given: dict[str, Any] = {"apart": (2, 2) if fault == "most" else (2, 3)}
    if fault == "one step only":
        monkeypatch.setattr(filter_measurement, "falling_squared", lambda listed, most, separation: alone(listed, 1, 1))
    if fault == "sides":
        given["neighbours"] = "replace-one"
        monkeypatch.setattr(
            filter_measurement.FilterMeasurement,
            "participation_squared",
            lambda grid, distance, **_: grid.joint_sensitivity_squared(2, 3, Crossing.UNCHANGED),
        )
    monkeypatch.setattr(contribution_bounding, "first_of_steps", wrong)
    made = planned(tmp_path, **given)
    assert farthest(made) > made.measurement.sensitivity_squared


@pytest.mark.parametrize(("most", "apart"), [(1, (3, 2)), (2, (2, 3)), (1, (99, 1)), (3, (1, 5))])
def test_the_kept_steps_of_a_person_never_hang_on_later_ones(most: int, apart: tuple[int, int]) -> None:
    """Against a walk through every person's steps; without the records of later steps the earlier ones are kept alike."""
    state = np.random.default_rng(most)
    rows = np.zeros(400, dtype=HASHED)
    rows["high"], rows["low"] = state.integers(0, 9, 400), state.integers(0, 2, 400)
    steps = state.integers(0, 12, 400)
    chosen: dict[tuple[int, int], list[int]] = {}
    for high, low, step in sorted({(int(h), int(w), int(s)) for (h, w, _), s in zip(rows.tolist(), steps, strict=True)}):
        mine = chosen.setdefault((high, low), [])
        if len(mine) < apart[0] and (not mine or step - mine[-1] >= apart[1]):
            mine.append(step)
    seen: dict[tuple[int, int, int], int] = {}
    expected = []
    for place, ((high, low, _), step) in enumerate(zip(rows.tolist(), steps.tolist(), strict=True)):
        seen[high, low, step] = seen.get((high, low, step), 0) + 1
        if step in chosen[high, low] and seen[high, low, step] <= most:
            expected.append(place)
    bound = Participations("a", *apart)
    kept = sorted(first_of_steps(rows, steps, bound, most).tolist())
    assert kept == expected
    early = np.flatnonzero(steps < 7)
    before = early[first_of_steps(rows[early], steps[early], bound, most)]
    assert sorted(before.tolist()) == [place for place in expected if steps[place] < 7]
    assert first_of_steps(rows[:0], steps[:0], bound, most).size == 0


def patterns(steps: int, most: int, separation: int) -> list[tuple[int, ...]]:
    return [
        chosen
        for size in range(1, most + 1)
        for chosen in combinations(range(steps), size)
        if all(later - step >= separation for step, later in zip(chosen, chosen[1:], strict=False))
    ]


@pytest.mark.parametrize("seed", range(12))
def test_sensitivities_against_every_choice_of_steps(seed: int) -> None:
    """Exact for coefficients that fall; for other matrices never below, and at most a quarter above."""
    state = np.random.default_rng(seed)
    steps, separation = int(state.integers(2, 9)), int(state.integers(1, 4))
    most = fitting_participations(int(state.integers(1, 5)), separation, steps)
    every = patterns(steps, most, separation)
    listed = np.sort(state.integers(0, 2**30, steps))[::-1]
    assert is_falling(listed)
    rows = scipy.linalg.toeplitz(listed, np.zeros_like(listed)).astype(object)
    true = max(int((rows[:, chosen].sum(axis=1) ** 2).sum()) for chosen in map(list, every))
    assert falling_squared(listed, most, separation) == true
    factor = np.tril(state.integers(-(2**29), 2**29, (steps, steps)))
    gram = np.abs(factor.T.astype(object) @ factor.astype(object))
    true = max(sum(gram[i, j] for i in chosen for j in chosen) for chosen in every)
    assert true <= gram_squared_bound(factor, most, separation) <= true * 5 // 4 + 2**20
    signed = factor.T.astype(object) @ factor.astype(object)
    for crossing in Crossing:
        true = max(length_of(signed, chosen, crossing) for chosen in every)
        assert true <= chains_squared(factor, most, separation, crossing) <= true + true // 2**40 + most**2


CROSSED = {Crossing.UNCHANGED: int, Crossing.POSITIVE: lambda entry: max(entry, 0), Crossing.ABSOLUTE: abs}


def length_of(gram: np.ndarray, chosen: tuple[int, ...], crossing: Crossing) -> int:
    """What a person in some steps adds, squared, pair by pair."""
    return sum(int(gram[i, i]) for i in chosen) + sum(
        2 * CROSSED[crossing](int(gram[i, j])) for i, j in combinations(chosen, 2)
    )


def band_of(seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """A filter of both signs that ends within two separations, its gram, how many steps of a person fit, and how far apart they are."""
    state = np.random.default_rng(seed)
    steps, separation = int(state.integers(4, 11)), int(state.integers(1, 5))
    width = int(state.integers(separation + 1, min(2 * separation, steps) + 1)) if separation < steps else 1
    listed = np.zeros(steps, dtype=np.int64)
    listed[:width] = state.integers(-(2**29), 2**29, width)
    rows = scipy.linalg.toeplitz(listed, np.zeros_like(listed)).astype(object)
    return listed, rows.T @ rows, fitting_participations(int(state.integers(2, 6)), separation, steps), separation


@pytest.mark.parametrize("crossing", Crossing)
@pytest.mark.parametrize("seed", range(12))
def test_bands_against_every_choice_of_steps(seed: int, crossing: Crossing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact: rounding upwards adds less than one part in 2^40; too many chains are bounded."""
    listed, gram, most, separation = band_of(seed)
    true = max(length_of(gram, chosen, crossing) for chosen in patterns(listed.size, most, separation))
    assert true <= band_squared(listed, most, separation, crossing) <= true + true // 2**40 + most
    monkeypatch.setattr(participation, "CHAIN_WORK", 0)
    assert true <= band_squared(listed, most, separation, crossing)


def test_a_long_band_of_many_steps_of_a_person_is_bounded_at_once() -> None:
    """Its chains would take 4 x 10^11 additions, which are hours: the bound is that of steps as close as is allowed or more, and at most
    three times that of steps apart, each of which meets two others."""
    most, separation, width = 1000, 500, 900
    coefficients = np.zeros(10**6, dtype=np.int64)
    coefficients[:width] = np.random.default_rng(0).integers(1, 2**14, width)
    reached = np.zeros(coefficients.size)
    for step in range(0, most * separation, separation):
        reached[step : step + width] += coefficients[:width]
    bound = band_squared(coefficients, most, separation, Crossing.UNCHANGED)
    assert reached @ reached <= bound <= 3 * most * int(coefficients @ coefficients)


def below_the_truth(made: Callable[[int], tuple[Any, ...]], squared: Callable[..., int]) -> int:
    """For how many of twelve strategies the largest squared length is too small."""
    below = 0
    for seed in range(12):
        rows, gram, most, separation = made(seed)
        true = max(length_of(gram, chosen, Crossing.UNCHANGED) for chosen in patterns(len(rows), most, separation))
        below += squared(rows, most, separation, Crossing.UNCHANGED) < true
    return below


@pytest.mark.parametrize("fault", ["a cross term", "its sign", "a step"])
def test_a_chain_that_forgets_something_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the planted faults every one is below the truth for some filter."""
    true, products = participation.heaviest_chain, participation.lag_products
    if fault == "a step":
        monkeypatch.setattr(
            participation, "heaviest_chain", lambda alone, between, most, *rest: true(alone, between, most - 1, *rest)
        )
    else:
        factor = 0 if fault == "a cross term" else -1
        monkeypatch.setattr(participation, "lag_products", lambda listed, lag: factor * products(listed, lag))
    assert below_the_truth(band_of, band_squared) >= 3


def rows_in_bands(seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """A lower triangular matrix of both signs that ends within two separations, its gram, how many steps fit, and how far apart."""
    listed, _, most, separation = band_of(seed)
    steps, state = listed.size, np.random.default_rng(seed)
    factor = np.tril(state.integers(-(2**29), 2**29, (steps, steps)))
    factor = np.where(np.subtract.outer(np.arange(steps), np.arange(steps)) < 2 * separation, factor, 0)
    return factor, factor.T.astype(object) @ factor.astype(object), most, separation


@pytest.mark.parametrize("crossing", Crossing)
@pytest.mark.parametrize("seed", range(12))
def test_rows_in_bands_against_every_choice_of_steps(seed: int, crossing: Crossing) -> None:
    factor, gram, most, separation = rows_in_bands(seed)
    true = max(length_of(gram, chosen, crossing) for chosen in patterns(len(factor), most, separation))
    assert true <= rows_squared_bound(factor, most, separation, crossing) <= true + true // 2**40 + most


def far_alike(seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """A factor of 2^24 whose steps have one product, below zero but for rounding, from two separations on, and its gram."""
    state = np.random.default_rng(seed)
    steps, separation = int(state.integers(6, 13)), int(state.integers(1, 4))
    rows = np.tril(state.standard_normal((steps, steps))) + 2 * np.eye(steps)
    rows[np.subtract.outer(np.arange(steps), np.arange(steps)) >= 2 * separation] = 0
    gram = rows.T @ rows
    gram -= state.uniform(0.1, 0.9) / np.linalg.inv(gram).sum()
    factor = np.rint(2.0**24 * np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]).astype(np.int64)
    exact = factor.T.astype(object) @ factor.astype(object)
    return factor, exact, fitting_participations(int(state.integers(3, 7)), separation, steps), separation


@pytest.mark.parametrize("crossing", Crossing)
@pytest.mark.parametrize("seed", range(12))
def test_rows_that_reach_far_against_every_choice_of_steps(seed: int, crossing: Crossing) -> None:
    """One product below zero for all far steps: as good as exact. Any other matrix: never below."""
    factor, gram, most, separation = far_alike(seed)
    true = max(length_of(gram, chosen, crossing) for chosen in patterns(len(factor), most, separation))
    found = rows_squared_bound(factor, most, separation, crossing)
    assert true <= found
    if crossing is not Crossing.ABSOLUTE:
        assert found <= true + true // 2**15
    other = np.tril(np.random.default_rng(seed).integers(-(2**29), 2**29, factor.shape))
    gram = other.T.astype(object) @ other.astype(object)
    true = max(length_of(gram, chosen, crossing) for chosen in patterns(len(factor), most, separation))
    assert true <= rows_squared_bound(other, most, separation, crossing)


@pytest.mark.parametrize("fault", ["none", "the least far product", "pairs twice", "a step"])
def test_far_products_that_are_forgotten_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the planted faults every one is below the truth for some matrix."""
    true = step_chains.heaviest_chain

    def planted(alone: Any, between: Any, most: int, separation: int, width: int, beside: Any) -> Any:
        fewer, times = int(fault == "a step"), 2 if fault == "pairs twice" else 1
        return true(alone, between, most - fewer, separation, width, times * beside)

    monkeypatch.setattr(step_chains, "heaviest_chain", planted)
    if fault == "the least far product":
        products = step_chains.far_products
        monkeypatch.setattr(step_chains, "far_products", lambda gram, lag: -products(-gram, lag) - 2**30)
    below = below_the_truth(far_alike, rows_squared_bound)
    assert below == 0 if fault == "none" else below >= 3


@pytest.mark.parametrize("fault", ["none", "a cross term", "its sign", "a step"])
def test_rows_in_bands_that_forget_something_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the planted faults every one is below the truth for some matrix."""
    true, product = step_chains.heaviest_chain, step_chains.exact_gram
    times = {"a cross term": 0, "its sign": -1}.get(fault, 1)

    def crossed(factor: np.ndarray) -> np.ndarray:
        gram = product(factor)
        return np.where(np.eye(len(gram), dtype=bool), gram, times * gram)

    monkeypatch.setattr(step_chains, "exact_gram", crossed)
    fewer = int(fault == "a step")
    monkeypatch.setattr(
        step_chains, "heaviest_chain", lambda alone, between, most, *rest: true(alone, between, most - fewer, *rest)
    )
    below = below_the_truth(rows_in_bands, rows_squared_bound)
    assert below == 0 if fault == "none" else below >= 3


@pytest.mark.parametrize("case", ["one series", "series", "replaced"])
def test_persons_of_rows_in_bands_move_the_integers_no_further(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a whole plan, for more steps than the optimum is found for: as good as exact for one series, whose steps meet below zero."""
    monkeypatch.setattr(participation_optimum, "DENSE_STEPS", 0)
    monkeypatch.setattr("dpdist.plugins.streams.triangular_measurement.CHAINS", 0)
    given: dict[str, Any] = {"mechanism": "triangular", "person": None, "apart": (3, 2)}
    given |= {} if case == "series" else ONE_SERIES
    given |= {"neighbours": "replace-one"} if case == "replaced" else {}
    made = planned(tmp_path, **given)
    assert isinstance(made.measurement, TriangularMeasurement)
    assert band_width(made.measurement.factor) == (6 if case == "one series" else 2)
    moved = farthest(made)
    assert moved <= made.measurement.sensitivity_squared
    if case != "replaced":
        assert made.measurement.sensitivity_squared - moved < moved // 2**25


def test_a_separation_beyond_the_series_leaves_one_step() -> None:
    """Steps that are further apart than the series is long: one step, and its column."""
    factor = np.tril(np.arange(1, 26, dtype=np.int64).reshape(5, 5))
    assert gram_squared_bound(factor, fitting_participations(4, 7, 5), 7) == int((factor**2).sum(axis=0).max())


def test_coefficients_that_rise_are_not_taken_for_falling_ones() -> None:
    """[1, 0, 1] in steps 0 and 1: the theorem does not hold, and its formula would be below the truth."""
    listed = np.array([1, 0, 1, 0, 1, 0])
    assert not is_falling(listed)
    assert not is_falling(np.array([3, 2, -1]))
    rows = scipy.linalg.toeplitz(listed, np.zeros_like(listed))
    true = max(int((rows[:, list(chosen)].sum(axis=1) ** 2).sum()) for chosen in patterns(6, 2, 1))
    assert falling_squared(listed, 2, 1) < true <= gram_squared_bound(rows, 2, 1)


WINDOW = [{"filters": {"of": "a", "by": ["b"], "apply": [{"window": 2}]}}]
"""The root of 1 + x has coefficients of both signs."""


def test_filters_that_do_not_fall_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their gram, and long ones by the triangle inequality."""
    made = planned(tmp_path / "short", workload=WINDOW, neighbours="replace-one")
    assert isinstance(made.measurement, filter_measurement.FilterMeasurement)
    assert not is_falling(to_array(made.measurement.coefficients))
    assert 0.3 * made.measurement.sensitivity_squared < farthest(made) <= made.measurement.sensitivity_squared
    monkeypatch.setattr(filter_measurement, "GRAM_STEPS", STEPS - 1)
    longer = planned(tmp_path / "long", workload=WINDOW, neighbours="replace-one").measurement
    alone = planned(tmp_path / "alone", workload=WINDOW, apart=(1, 1)).measurement
    assert longer.sensitivity_squared == 4 * 3**2 * alone.sensitivity_squared > made.measurement.sensitivity_squared


TABLES: dict[str, Any] = {"stream": None, "workload": [{"marginals": {"ways": [1]}}]}


@pytest.mark.parametrize(
    ("records", "changes", "said"),
    [
        ({"person": {"column": "who", "separation": 2}}, {}, "say in how many, with 'participations'"),
        (
            {"person": {"column": "who", "participations": 2}},
            {"stream": None, "workload": [{"marginals": {"ways": [1]}}]},
            "ask for 'filters'",
        ),
        ({"person": {"column": "who", "participations": 2, "most_groups": 2}}, {}, "leave 'most_groups' out"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, records: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    path = small_release.write(
        tmp_path / "spec",
        **{
            "table": table(BASE),
            "records": {"path": "records.parquet", **records},
            "domain": {"a": {"from": 0, "to": STEPS - 1}, "b": {"categories": ["x", "y"]}},
            "workload": SUMS,
            "stream": {"name": "s", "through": 3},
            **changes,
        },
    )
    with pytest.raises(InvalidSpec, match=said):
        load(path)
