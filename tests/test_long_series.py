"""Series too long for memory: the same strategy, the same integers and the same answers as in memory, through the store."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.domain import Attribute, Domain, EvenEdges
from dpdist.engine import Engine
from dpdist.errors import InvalidInput, StoreError
from dpdist.grids.filters import FilterGrid, _convolved, filter_grid
from dpdist.grids.stored import LongGrid
from dpdist.long_root import binomials, long_root_answers, long_square_root
from dpdist.long_series import _exact_around, get_or_compute, long_answers, long_convolution, long_measurement
from dpdist.operators import Circulant, Toeplitz
from dpdist.operators.toeplitz import PowerCoefficients
from dpdist.page import report
from dpdist.privacy.noise import Noise
from dpdist.sizes import SIZES, Sizes
from dpdist.store import Store
from dpdist.strategies import convolution, singular_value_bound, square_root
from dpdist.strategies import filters as filters_module
from dpdist.strategies.filters import pinched_bound
from dpdist.strategies.planner import considered, why_not
from dpdist.workloads import Workload, filtered, union
from dpdist.workloads.filters import RowNames, baxter_king, exponential, hodrick_prescott, polynomial, running_sum, window
from dpdist.workloads.kinds import is_long, line_of
from tests import small
from tests.readers import filtered_answers

CONVOLUTION = filters_module
STEPS = 3000
SMALL = Sizes(long_steps=1000, part_values=777, chart_rows=1000, shard_bytes=8 * 901, listed=100)
"""Everything that happens beyond millions of steps happens beyond a thousand."""
LISTED = replace(SMALL, listed=SIZES.listed)


def asked(steps: int, sizes: Sizes = LISTED) -> dict[str, Workload]:
    line = Domain.of_shape((steps,), sizes)
    return {
        "running sum": filtered(line, "x0", [running_sum(steps)]),
        "window": filtered(line, "x0", [window(24)]),
        "decay": filtered(line, "x0", [exponential(0.97, steps)]),
        "power": filtered(line, "x0", [polynomial(0.7, steps)]),
        "trend": filtered(line, "x0", [hodrick_prescott(1600.0, steps)]),
        "band": filtered(line, "x0", [baxter_king(6, 32, 12)]),
        "three together": union(
            filtered(line, "x0", [window(24), exponential(0.9, steps)]),
            filtered(line, "x0", [window(500)]),
            weights=(1.0, 0.3),
        ),
    }


def by(*others: str, place: int) -> Workload:
    """Windows and decays of a series for every value of other attributes, which stand before and after it in the table."""
    attributes = [Attribute(name, categories=tuple(name + str(i) for i in range(size))) for name, size in OTHERS.items()]
    attributes.insert(place, Attribute("t", edges=EvenEdges(0, 1, 1500)))
    return filtered(Domain(tuple(attributes), LISTED), "t", [window(24), exponential(0.9, 1500)], by=others)


OTHERS = {"sex": 2, "work": 3, "not asked for": 2}
ASKED = {
    **asked(STEPS),
    "circular mean": filtered(Domain.of_shape((4096,), LISTED), "x0", [window(7, mean=True)], circular=True),
    "by what follows": by("sex", place=0),
    "by what precedes": by("work", place=3),
    "by both": by("sex", "work", place=1),
}


def engine_of(memory: int = 2**30) -> Engine:
    return Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True)


def in_memory(workload: Workload, monkeypatch: pytest.MonkeyPatch, points: int) -> Any:
    """The same strategy in memory, around the same circle."""
    with monkeypatch.context() as patch:
        patch.setattr(CONVOLUTION, "_points", lambda _: points)
        return convolution(workload)


@pytest.mark.parametrize("name", ASKED)
def test_strategy_measurement_and_answers_are_those_in_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, store, engine = ASKED[name], Store(tmp_path, SMALL), engine_of(2**20)
    axis, axes, filters = line_of(workload)
    steps, table = filters[0].n, tuple(workload.domain.shape[a] for a in axes)
    series = math.prod(table) // steps
    assert is_long(workload)
    strategy = long_convolution(store, engine, workload, "coefficients")
    assert strategy.long is not None
    points = strategy.long.points
    assert points >= steps
    assert points & (points - 1) == 0
    memory = in_memory(workload, monkeypatch, points)
    coefficients = store.read(store.open("coefficients"))
    assert np.abs(coefficients - np.rint(memory.coefficients.values * 2.0**30)).max() <= 1
    assert strategy.workload_cost == pytest.approx(memory.workload_cost, rel=1e-9)
    assert strategy.sensitivity == pytest.approx(1.0, rel=1e-6)
    assert strategy.lower_bound is not None
    assert strategy.lower_bound <= strategy.workload_cost
    assert strategy.long.square == sum(int(t) ** 2 for t in coefficients)

    grid = strategy.grid(workload, neighbours="add-remove", most_records=3)
    assert isinstance(grid, LongGrid)
    assert grid.sensitivity_squared == 9 * strategy.long.square
    assert grid.rows == series * points
    unknown = strategy.grid(workload, neighbours="replace-one", most_records=1)
    assert unknown.sensitivity_squared == 4 * strategy.long.square
    moving = long_convolution(store, engine, workload, "coefficients", moves=True)
    assert moving.long is not None
    assert moving.long.farthest is not None
    columns = np.stack([np.roll(coefficients, shift) for shift in range(0, steps, 7)]).astype(object)
    seen = int(((columns[1:] - columns[0]) ** 2).sum(axis=1).max())  # every seventh step; the grid in memory looks at all
    assert seen <= moving.long.farthest <= 4 * moving.long.square
    exactly = filter_grid(
        replace(memory.coefficients, values=coefficients * 2.0**-30),
        workload.domain.shape,
        neighbours="replace-one",
        most_records=1,
    )
    known = moving.grid(workload, neighbours="replace-one", most_records=1)
    assert known.sensitivity_squared <= exactly.sensitivity_squared
    assert known.sensitivity_squared in (moving.long.farthest, 2 * moving.long.square)
    if series > 1:
        assert known.sensitivity_squared == exactly.sensitivity_squared
    same = FilterGrid(coefficients, True, table, axes.index(axis), axes, grid.spacing, grid.sensitivity_squared)
    counts = np.random.default_rng(1).poisson(20, series * steps).astype(np.int64)
    counts[::400] = 2**31  # limbs on both sides
    exact = long_measurement(store, engine, grid, store.put("counts", counts))
    by_step = store.read(exact).reshape(series, points).T.ravel()
    np.testing.assert_array_equal(by_step, same.measure(counts))

    noise = Noise("gaussian", 2**33)
    measured = store.put("measured", store.read(exact) + noise.draw(b"1" * 32, start=0, count=grid.rows))
    answers = long_answers(store, engine, workload, grid, measured, noise, "answers")
    noisy = store.read(measured).reshape(series, points).T.ravel()
    expected, errors = filtered_answers(workload, same, noisy, noise)
    np.testing.assert_allclose(store.read(answers.answers), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(np.repeat(answers.errors.values, series * steps), errors, rtol=1e-9)
    multiplier = noise.deviation * grid.spacing  # of unit sensitivity
    np.testing.assert_allclose(answers.errors.values, np.array(strategy.long.deviations) * multiplier, rtol=1e-3)
    weights = np.array([block.weight for block in workload.blocks])
    assert strategy.workload_cost == pytest.approx(
        series * steps * float((weights * strategy.long.deviations) @ (weights * strategy.long.deviations))
    )
    assert not list((tmp_path / "scratch").rglob("manifest.json")) or {
        p.parent.name for p in (tmp_path / "scratch").rglob("manifest.json")
    } == {Path(exact.name).name}


SUMS = {
    "one": lambda: filtered(Domain.of_shape((6000,), SMALL), "x0", [running_sum(6000, SMALL)]),  # also by their series
    "weighted": lambda: union(asked(STEPS)["running sum"], weights=(3.0,)),
    "by both": lambda: filtered(by("sex", place=1).domain, "t", [running_sum(1500)], by=("sex", "work")),
}


@pytest.mark.parametrize("name", SUMS)
def test_square_roots_of_running_sums_are_those_in_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, store, engine = SUMS[name](), Store(tmp_path, SMALL), engine_of(2**20)
    axis, axes, filters = line_of(workload)
    steps, table = filters[0].n, tuple(workload.domain.shape[a] for a in axes)
    series = math.prod(table) // steps
    assert considered("auto", "l2", workload) == ("convolution", "square-root")
    memory, strategy = square_root(workload), long_square_root(store, engine, workload, "coefficients")
    assert memory.coefficients is not None
    assert strategy.long is not None
    coefficients = store.read(store.open("coefficients"))
    assert np.abs(coefficients - np.rint(memory.coefficients.values * 2.0**30)).max() <= 1
    assert strategy.workload_cost == pytest.approx(memory.workload_cost, rel=1e-12)
    assert strategy.workload_cost < long_convolution(store, engine, workload, "circle").workload_cost
    assert strategy.long.square == sum(int(t) ** 2 for t in coefficients)
    grid = strategy.grid(workload, neighbours="replace-one", most_records=2)
    assert grid.sensitivity_squared == 16 * strategy.long.square
    grid = strategy.grid(workload, neighbours="add-remove", most_records=1)
    assert isinstance(grid, LongGrid)
    assert grid.rows == series * steps
    same = FilterGrid(coefficients, False, table, axes.index(axis), axes, grid.spacing, grid.sensitivity_squared)
    counts = np.random.default_rng(1).poisson(20, series * steps).astype(np.int64)
    counts[::400] = 2**31
    exact = store.read(long_measurement(store, engine, grid, store.put("counts", counts)))
    np.testing.assert_array_equal(exact.reshape(series, steps).T.ravel(), same.measure(counts))
    noise = Noise("gaussian", 2**33)
    measured = store.put("measured", exact + noise.draw(b"1" * 32, start=0, count=grid.rows))
    answers = long_root_answers(store, engine, workload, grid, measured, noise, "answers")
    noisy = store.read(measured).reshape(series, steps).T.ravel()
    expected, errors = filtered_answers(workload, same, noisy, noise)
    np.testing.assert_allclose(store.read(answers.answers), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    found = np.concatenate([answers.errors.read(low, min(low + 701, errors.size)) for low in range(0, errors.size, 701)])
    np.testing.assert_allclose(found, errors, rtol=1e-9)
    weight = workload.blocks[0].weight
    assert weight * errors.max() == pytest.approx(strategy.long.deviations[0] * noise.deviation * grid.spacing, rel=1e-6)
    truth = np.moveaxis(
        np.cumsum(np.moveaxis(counts.reshape(table), axes.index(axis), 0), axis=0), 0, axes.index(axis)
    ).ravel()
    quiet = long_root_answers(store, engine, workload, grid, store.put("quiet", exact), noise, "exactly")
    np.testing.assert_allclose(store.read(quiet.answers), truth, atol=1e-6 * truth.max() ** 0.5)


def test_binomial_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The series in 1 / k meets the product within an ulp or two, from either side."""
    k = np.arange(1.0, 20_000)
    exact = np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))
    np.testing.assert_allclose(binomials(0, 20_000), exact, rtol=1e-13)
    np.testing.assert_allclose(binomials(5000, 6000), exact[5000:6000], rtol=1e-13)
    np.testing.assert_allclose(binomials(4000, 4200), exact[4000:4200], rtol=1e-13)
    assert binomials(100, 100).size == 0


def test_same_bytes_for_every_slab_and_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = ASKED["window"]
    counts = np.random.default_rng(2).poisson(5, STEPS).astype(np.int64)
    seen = set()
    for number, (memory, part) in enumerate([(2**30, 10**6), (2**18, 1000), (2**19, 64)]):
        store, engine = Store(tmp_path / str(number), replace(SMALL, part_values=part)), engine_of(memory)
        strategy = long_convolution(store, engine, workload, "taps")
        grid = strategy.grid(workload, neighbours="add-remove", most_records=1)
        assert isinstance(grid, LongGrid)
        exact = long_measurement(store, engine, grid, store.put("counts", counts))
        seen.add((grid.digest, hashlib.sha256(store.read(exact).tobytes()).hexdigest()))
    assert len(seen) == 1


def test_of_strategies_found_at_once_the_first_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, SMALL)

    def late() -> None:
        store.put("coefficients", np.arange(5))  # another process was faster
        raise StoreError("array 'coefficients' is already whole with other content; arrays are written once")

    assert store.read(get_or_compute(store, "coefficients", late)).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(StoreError, match="disk"):
        get_or_compute(store, "others", mock.Mock(side_effect=StoreError("the disk is full")))


def test_a_wrong_convolution_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform off by 1e-3 of a count in one value, or limbs that are too wide, stop the measurement."""
    workload, store, engine = ASKED["window"], Store(tmp_path, SMALL), engine_of()
    strategy = long_convolution(store, engine, workload, "taps")
    grid = strategy.grid(workload, neighbours="add-remove", most_records=1)
    assert isinstance(grid, LongGrid)
    counts = store.put("counts", np.full(STEPS, 2**20))
    monkeypatch.setattr("dpdist.long_series.limb_width", lambda widest, length, lengths: lengths(31) and 31)
    with pytest.raises(FloatingPointError, match="not exact|sum check"):
        long_measurement(store, engine, grid, counts)


@pytest.mark.parametrize(
    ("name", "least"),
    {
        "running sum": 0.999,
        "window": 0.6,
        "decay": 0.1,
        "power": 0.3,
        "trend": 0.0,
        "band": 0.7,
        "three together": 0.2,
    }.items(),
)
def test_the_bound_of_blocks_is_below_that_of_all_singular_values(name: str, least: float) -> None:
    workload = asked(1100, replace(LISTED, pinched_steps=250))[name]
    exact = singular_value_bound(workload)
    assert least * exact <= pinched_bound(workload) <= exact * (1 + 1e-9)


def release(folder: Path, **changes: Any) -> Path:
    state = np.random.default_rng(3)
    table = pa.table({"t": state.integers(0, STEPS, 40_000)})
    content = {
        "domain": {"t": {"from": 0, "to": STEPS - 1}},
        "workload": [{"filters": {"of": "t", "apply": [{"running_sum": True}, {"window": 24}]}}],
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "ledger": {"dataset": "long", "cap": {"epsilon": 3.0, "delta": 1e-5}},
        **changes,
    }
    return small.write(folder, table=table, **content)


@pytest.mark.parametrize("changes", [{}, {"postprocess": {"integer": True}}, {"neighbours": "replace-one"}])
@pytest.mark.usefixtures("fixed_noise")
def test_a_release(home: Path, changes: dict[str, Any]) -> None:
    """Published answers are within their error bars, predicted errors are those published, and a second run changes nothing."""
    path = release(home.parent / "data", **changes)
    done = small.run(path, home, sizes=SMALL)
    assert isinstance(done.plan.grid, LongGrid)
    table = report.load(Path(done.folder))[0].to_pandas()
    counts = np.bincount(pa.parquet.read_table(path.parent / "records.parquet")["t"].to_numpy(), minlength=STEPS)
    sums = np.cumsum(counts)
    truth = np.concatenate([sums, sums - np.concatenate([np.zeros(24), sums[:-24]])])
    assert table["query"].tolist()[:2] == ["t at 0", "t at 1"]
    away = (table["answer"] - truth) / table["standard_error"]
    for part in (away[:STEPS], away[STEPS:]):  # neighbouring steps share noise: some 60 independent windows
        assert 0.6 < math.sqrt(float((part**2).mean())) < 1.4
    inside = (table["low_95"] <= truth) & (truth <= table["high_95"])
    assert inside.mean() > 0.85
    rmse = done.certificate["mechanism"]["rmse"]
    assert rmse == pytest.approx(float(np.sqrt((table["standard_error"] ** 2).mean())), rel=1e-3)
    page = (Path(done.folder) / "index.html").read_text()
    assert page.count("<svg") == 3
    first = small.tree(Path(done.folder))
    again = small.run(path, home, sizes=SMALL)
    assert not again.charged
    assert small.tree(Path(again.folder)) == first


@pytest.mark.parametrize(
    "broken", ["dpdist.long_series.inverse_fourier", "dpdist.measure.draw", "dpdist.long_series.gathered"]
)
def test_an_interrupted_release_goes_on_with_the_same_bytes(home: Path, broken: str) -> None:
    """Stopped while it measures, draws or answers: one charge, and the bytes of an undisturbed run."""
    path = release(home.parent / "data")
    small.reserved(path, home, sizes=SMALL)
    expected = small.undisturbed(path, home, sizes=SMALL)
    with mock.patch(broken, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small.run(path, home, sizes=SMALL)
    done = small.run(path, home, sizes=SMALL)
    assert not done.charged
    assert small.tree(Path(done.folder)) == expected


@pytest.mark.usefixtures("fixed_noise")
def test_a_release_of_several_series(home: Path) -> None:
    """Two series side by side: every row of the table is the series, and the step, that it says."""
    state = np.random.default_rng(4)
    table = pa.table({"t": state.integers(0, STEPS, 60_000), "sex": state.choice(["f", "m"], 60_000, p=[0.2, 0.8])})
    path = small.write(
        home.parent / "data",
        table=table,
        domain={"t": {"from": 0, "to": STEPS - 1}, "sex": {"categories": ["f", "m"]}},
        workload=[{"filters": {"of": "t", "by": ["sex"], "apply": [{"window": 200}]}}],
        budget={"rho": 0.1},
        ledger={"dataset": "several", "cap": {"rho": 0.1}},
    )
    done = small.run(path, home, sizes=SMALL)
    assert isinstance(done.plan.grid, LongGrid)
    found = report.load(Path(done.folder))[0].to_pandas()
    assert found["query"].tolist()[:3] == ["t at 0, sex f", "t at 0, sex m", "t at 1, sex f"]
    records = table.to_pandas()
    for sex in ("f", "m"):
        sums = np.cumsum(np.bincount(records.loc[records["sex"] == sex, "t"], minlength=STEPS))
        truth = sums - np.concatenate([np.zeros(200), sums[:-200]])
        mine = found[found["sex"] == sex]
        away = (mine["answer"].to_numpy() - truth) / mine["standard_error"].to_numpy()
        assert 0.6 < math.sqrt(float((away**2).mean())) < 1.4


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("integer", [False, True])
def test_a_release_of_running_sums(home: Path, integer: bool) -> None:
    """The square root wins, errors grow with the steps, and what was published before stays."""
    path = release(
        home.parent / "data",
        workload=[{"filters": {"of": "t", "apply": [{"running_sum": True}]}}],
        postprocess={"integer": integer},
    )
    done = small.run(path, home, sizes=SMALL)
    assert done.plan.strategy.name == "square-root"
    assert [row["mechanism"] for row in done.certificate["mechanism"]["compared"]] == ["convolution", "square-root"]
    found = report.load(Path(done.folder))[0].to_pandas()
    counts = np.bincount(pa.parquet.read_table(path.parent / "records.parquet")["t"].to_numpy(), minlength=STEPS)
    away = (found["answer"] - np.cumsum(counts)) / found["standard_error"]
    assert 0.5 < math.sqrt(float((away**2).mean())) < 1.5
    errors = found["standard_error"].to_numpy()
    assert (np.diff(errors) >= 0).all()
    assert errors[-1] > 1.5 * errors[0]
    rmse = done.certificate["mechanism"]["rmse"]
    assert rmse == pytest.approx(float(np.sqrt((errors**2).mean())), rel=1e-3)
    half = (found["high_95"] - found["low_95"]).to_numpy() / 2
    np.testing.assert_allclose(half, 1.959964 * errors + (0.5 if integer else 0.0), atol=1e-4)
    first = small.tree(Path(done.folder))
    again = small.run(path, home, sizes=SMALL)
    assert small.tree(Path(again.folder)) == first


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": "gaussian"},
        {"mechanism": "identity"},
        {"budget": {"epsilon": 1.0}, "ledger": {"dataset": "pure", "cap": {"epsilon": 1.0}}},
    ],
)
def test_what_would_never_end_is_refused(home: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="with Gaussian noise, found '(gaussian|identity)'; set 'mechanism: auto'"):
        small.run(release(home.parent / "data", **changes), home, sizes=SMALL)


def test_what_the_planner_says() -> None:
    workload = ASKED["window"]
    assert considered("auto", "l2", workload) == ("convolution",)
    reasons = why_not("l2", workload)
    assert "streamed" in reasons["identity"]
    assert "pure" not in reasons["identity"]
    assert not is_long(filtered(Domain.of_shape((3001,), LISTED), "x0", [window(3)], circular=True))


@pytest.mark.parametrize("bits", [2, 3, 9, 10, 11, 19, 20, 21, 30])
def test_whole_convolutions_are_exact_for_every_width(bits: int, tmp_path: Path) -> None:
    """Also where the largest values need one limb more than their bits say."""
    store, state, largest = Store(tmp_path, SMALL), np.random.default_rng(bits), 2 ** (bits - 1) - 1
    left, right = (state.integers(-largest, largest + 1, 64) for _ in range(2))
    left[:4], right[:3] = (largest, -largest, largest, largest), (largest, -largest, largest)
    found = _exact_around(store, engine_of(), store.put("left", left), store.put("right", right), 64, None)
    np.testing.assert_array_equal(store.read(found), _convolved(left, right, 64))
    alone = _exact_around(store, engine_of(), store.put("left", left), None, 64, None)
    turned = np.roll(left[::-1], 1)
    np.testing.assert_array_equal(store.read(alone), _convolved(left, turned, 64))


@given(
    st.integers(-50, 50),
    st.integers(1, 7),
    st.integers(1, 300),
    st.lists(st.one_of(st.floats(-100, 2500), st.integers(-100, 2500), st.just(float("nan"))), max_size=40),
    st.sampled_from(["clip", "drop"]),
)
def test_computed_edges_are_the_listed_ones(first: int, width: int, bins: int, values: list[float], outside: Any) -> None:
    edges = EvenEdges(first, width, bins)
    listed = tuple(float(first + i * width) for i in range(bins + 1))
    assert tuple(edges) == listed
    assert edges[-1] == listed[-1]
    assert tuple(edges[1:]) == listed[1:]
    np.testing.assert_array_equal(np.asarray(edges), listed)
    one, other = (Attribute("a", edges=e, outside=outside) for e in (edges, listed))
    assert tuple(one.labels) == other.labels
    assert one.size == other.size
    for kind in (np.array(values, dtype=np.float64), np.array([v for v in values if float(v).is_integer()], dtype=np.int64)):
        nearly = np.concatenate([kind, np.nextafter(listed, -np.inf)]) if kind.dtype.kind == "f" else kind
        found, expected = one.encode(nearly), other.encode(nearly)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1] == expected[1]


def test_taps_that_follow_a_rule_are_the_listed_ones() -> None:
    for power in (0.0, 0.7, 2.0):
        lazy, listed = Toeplitz(200, PowerCoefficients(200, power)), Toeplitz(200, np.arange(1.0, 201.0) ** -power)
        assert lazy.fingerprint == listed.fingerprint
        assert lazy.integral == listed.integral
        np.testing.assert_array_equal(lazy.dense(), listed.dense())
    for each in (
        Toeplitz(200, np.arange(1.0, 40.0), -17),
        Toeplitz(200, np.arange(1.0, 40.0), 5),
        Circulant(256, np.ones(9), -3),
    ):
        whole = Circulant(256, each.coefficients, each.first_lag).coefficients
        pieces = [each.around(256, start, min(256, start + 37)) for start in range(0, 256, 37)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_names_are_made_when_asked_for() -> None:
    labels = ASKED["window"].blocks[0].labels[0]
    assert isinstance(labels, tuple)
    lazy = RowNames(ASKED["window"].blocks[0].factors[0], labels)
    made = asked(STEPS, SMALL)["window"].blocks[0].labels[0]
    assert isinstance(made, RowNames)
    assert made[5] == "at 5"
    assert list(made[10:13]) == ["at 10", "at 11", "at 12"]
    assert list(made[::1000]) == ["at 0", "at 1000", "at 2000"]
    assert len(lazy) == len(made) == STEPS
