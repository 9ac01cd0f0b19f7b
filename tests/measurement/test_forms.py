"""Filters and formulas in memory and in the store: the same strategy, the same integers, the same answers and error bars."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.causal_filters import binomials
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.domain import Attribute, Domain, EvenEdges, Layout
from dpdist.engine import Engine
from dpdist.errors import OutOfMemory
from dpdist.measurement.coefficient_vectors import GRID_UNIT, Form
from dpdist.measurement.filter_measurement import FilterMeasurement
from dpdist.measurement.hadamard_measurement import HadamardMeasurement
from dpdist.measurement.integer_measurement import Counts
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.runtime.stored_vectors import KeepingWorkspace, StoreWorkspace
from dpdist.size_limits import SIZES, Sizes
from dpdist.storage.array_store import Store
from dpdist.strategies import convolution, singular_value_bound, square_root
from dpdist.strategies.filter_strategies import finite_series_bound
from dpdist.workloads import Workload, dnf, filtered, union
from dpdist.workloads.time_filters import baxter_king, exponential, hodrick_prescott, polynomial, running_sum, window
from tests.case_selection import always

STEPS = 1100
SMALL = Sizes(long_steps=100, part_values=777, shard_bytes=8 * 901, pinched_steps=250)
NOISE = Noise(GAUSSIAN, 2**33)


def workspace(folder: Path, memory: int = 2**20, sizes: Sizes = SMALL) -> StoreWorkspace:
    return StoreWorkspace(Store(folder, sizes), Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True))


def series_domain(*others: str, place: int) -> Domain:
    """A series for every value of other attributes, which stand before and after it in the table."""
    attributes = [Attribute(name, categories=tuple(name + str(i) for i in range(size))) for name, size in OTHERS.items()]
    attributes.insert(place, Attribute("t", edges=EvenEdges(0, 1, 500)))
    return Domain(tuple(attributes), SMALL)


OTHERS = {"sex": 2, "work": 3, "not asked for": 2}
LINE = Domain.of_shape((STEPS,), SMALL)
SOME = [window(24), exponential(0.9, 500)]
FILTERS: dict[str, Workload] = {
    "running sum": filtered(LINE, "x0", [running_sum(STEPS)]),
    "window": filtered(LINE, "x0", [window(24)]),
    "decay": filtered(LINE, "x0", [exponential(0.97, STEPS)]),
    "power": filtered(LINE, "x0", [polynomial(0.7, STEPS)]),
    "trend": filtered(LINE, "x0", [hodrick_prescott(1600.0, STEPS)]),
    "band": filtered(LINE, "x0", [baxter_king(6, 32, 12)]),
    "three together": union(
        filtered(LINE, "x0", [window(24), exponential(0.9, STEPS)]),
        filtered(LINE, "x0", [window(500)]),
        weights=(1.0, 0.3),
    ),
}
AROUND = {
    **FILTERS,
    "circular mean": filtered(Domain.of_shape((512,), SMALL), "x0", [window(7, mean=True)], circular=True),
    "by what follows": filtered(series_domain(place=0), "t", SOME, by=("sex",)),
    "by what precedes": filtered(series_domain(place=3), "t", SOME, by=("work",)),
    "by both": filtered(series_domain(place=1), "t", SOME, by=("sex", "work")),
}
SUMS = {
    "one": FILTERS["running sum"],
    "weighted": union(FILTERS["running sum"], weights=(3.0,)),
    "by both": filtered(series_domain(place=1), "t", [running_sum(500)], by=("sex", "work")),
}
TERMS = [["x0", "x1", "x4"], ["x2", "x3"], ["x5", "x6", "x7", "x8"]]
BITS = Domain.of_shape((2,) * 9, SMALL)
FORMULAS = {
    "one conjunction": dnf(BITS, [[f"x{i}" for i in range(9)]]),
    "two formulas": union(dnf(BITS, TERMS), dnf(BITS, [["x0", "x8"], [f"x{i}" for i in range(1, 8)]]), weights=(1.0, 2.0)),
}
CASES: dict[str, tuple[Workload, Callable[..., Any]]] = {
    **{name: (workload, convolution) for name, workload in AROUND.items()},
    **{f"square root, {name}": (workload, square_root) for name, workload in SUMS.items()},
    **{f"formulas, {name}": (workload, convolution) for name, workload in FORMULAS.items()},
}


def counted(grid: Any, work: StoreWorkspace) -> tuple[Counts, np.ndarray]:
    """Counts of the table that a grid measures, with limbs on both sides."""
    shape = (2,) * len(grid.axes) if isinstance(grid, HadamardMeasurement) else grid.shape
    table = np.random.default_rng(1).poisson(20, math.prod(shape)).astype(np.int64)
    table[::400] = 2**28
    return Counts(work.write(ArrayVector(table)), Layout(shape), int(table.sum())), table


def in_memory(grid: Any) -> Any:
    """The grid with the same whole numbers in the other form."""
    if isinstance(grid, HadamardMeasurement):
        return replace(grid, weights=ArrayVector(to_array(grid.weights)), form=Form.IN_MEMORY)
    return replace(grid, coefficients=ArrayVector(to_array(grid.coefficients)), form=Form.IN_MEMORY)


def in_the_other_order(grid: Any, z: np.ndarray) -> np.ndarray:
    """What is measured in the store, as it stands in memory."""
    if isinstance(grid, HadamardMeasurement):
        return z[np.flatnonzero(to_array(grid.weights))]
    return z.reshape(grid.series, -1).T.ravel()


@pytest.mark.parametrize("name", always(list(CASES)[::2], CASES))
def test_both_forms_are_one(name: str, tmp_path: Path) -> None:
    workload, find = CASES[name]
    work = workspace(tmp_path)
    strategy, memory = find(workload, work, "kept"), find(workload)
    assert strategy.coefficients.form is Form.STORED
    assert memory.coefficients.form is Form.IN_MEMORY
    if find is square_root or name.startswith("formulas") or name == "circular mean":  # else the circles differ
        listed = to_array(strategy.coefficients.values)
        assert np.abs(listed - np.rint(memory.coefficients.real_values / GRID_UNIT)).max() <= 1
        assert strategy.workload_cost == pytest.approx(memory.workload_cost, rel=1e-9)
        assert strategy.worst(workload) == pytest.approx(memory.worst(workload), rel=1e-8)
    assert strategy.sensitivity == pytest.approx(1.0, rel=1e-6)
    assert (strategy.lower_bound or 0.0) <= strategy.workload_cost

    for neighbours in ("add-remove", "replace-one"):
        grid = strategy.measurement(workload, neighbours=neighbours, most_records=3)
        assert grid.sensitivity_squared >= 9 * sum(int(c) ** 2 for c in to_array(strategy.coefficients.values))
        assert grid.sensitivity_squared <= 4 * 9 * sum(int(c) ** 2 for c in to_array(strategy.coefficients.values))
    grid = strategy.measurement(workload, neighbours="add-remove", most_records=1)
    same = in_memory(grid)
    counts, table = counted(grid, work)
    exact = grid.exact_values(counts, work)
    z = to_array(exact)
    assert z.size == grid.rows
    np.testing.assert_array_equal(in_the_other_order(grid, z), same.measure(table))

    noisy = z + NOISE.draw(b"1" * 32, start=0, count=z.size)
    answers = grid.answers(workload, work.write(ArrayVector(noisy)), NOISE, AnswerRequest("stored", work))
    others = same.answers(workload, ArrayVector(in_the_other_order(grid, noisy)), NOISE, AnswerRequest("held", work))
    scale = float(np.abs(to_array(others.answer)).max())
    np.testing.assert_allclose(to_array(answers.answer), to_array(others.answer), rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(to_array(answers.error), to_array(others.error), rtol=1e-9)
    np.testing.assert_allclose(to_array(answers.half_width), to_array(others.half_width), rtol=1e-9)
    assert float(to_array(answers.error).max()) == pytest.approx(
        max(strategy.coefficients.deviations) * NOISE.deviation * GRID_UNIT, rel=1e-3
    )
    quiet = grid.answers(workload, exact, NOISE, AnswerRequest("quiet", work))
    shape = workload.domain.shape
    spread = [size if axis in grid.axes else 1 for axis, size in enumerate(shape)]
    whole = np.zeros(shape)
    whole[tuple(slice(None) if axis in grid.axes else 0 for axis in range(len(shape)))] = table.reshape(
        [size for size in spread if size > 1]
    )
    truth = workload.unweighted.matvec(whole.ravel())
    np.testing.assert_allclose(to_array(quiet.answer), truth, atol=1e-6 * float(np.abs(truth).max()) + 1e-6)
    work.delete(exact, counts.values)
    assert len(list((tmp_path / "scratch").rglob("manifest.json"))) == 1  # the noisy values


def test_a_formula_leaves_only_what_is_read_of_it_in_the_store(tmp_path: Path) -> None:
    """Not its eigenvalues: of many formulas, these would fill the store before the answers are written."""
    workload, work = FORMULAS["two formulas"], workspace(tmp_path)
    grid = convolution(workload, work, "kept").measurement(workload, neighbours="add-remove", most_records=1)
    assert isinstance(grid, HadamardMeasurement)
    measured = work.write(ArrayVector(np.arange(grid.rows)))
    before = len(list((tmp_path / "scratch").rglob("manifest.json")))
    grid.transform_answers(workload, work, measured)
    assert len(list((tmp_path / "scratch").rglob("manifest.json"))) == before + len(workload.blocks)


def test_what_is_kept_stays(tmp_path: Path) -> None:
    """A second plan, of a later version perhaps, measures with the first one's numbers, in either form."""
    work, workload = workspace(tmp_path), FILTERS["decay"]
    for place, name in ((work, "stored"), (KeepingWorkspace(work.store), "held")):
        for find in (convolution, square_root):
            if find is square_root and name == "stored":
                continue
            first = find(workload, place, f"{name}-{find.__name__}")
            again = find(workload, place, f"{name}-{find.__name__}")
            for neighbours in ("add-remove", "replace-one"):
                grids = [made.measurement(workload, neighbours=neighbours, most_records=1) for made in (first, again)]
                assert grids[0].digest == grids[1].digest
            assert (again.workload_cost, again.lower_bound) == (first.workload_cost, first.lower_bound)
            kind = work.store.open(f"{name}-{find.__name__}").plan.dtype
            assert np.dtype(kind) == (np.int64 if name == "stored" else np.float64)


def test_digests_tell_forms_apart(tmp_path: Path) -> None:
    grid = convolution(FILTERS["window"], workspace(tmp_path), "kept").measurement(
        FILTERS["window"], neighbours="add-remove", most_records=1
    )
    assert grid.digest != in_memory(grid).digest
    assert grid.stream is None
    made = convolution(FILTERS["window"], workspace(tmp_path), "kept")
    with pytest.raises(OutOfMemory, match="through the store, with its measurement") as told:
        made.matrix()
    assert told.value.needed_bytes == made.coefficients.values.size * np.dtype(np.float64).itemsize


def test_same_bytes_for_every_slab_and_part(tmp_path: Path) -> None:
    seen = set()
    for number, (memory, part) in enumerate([(2**30, 10**6), (2**18, 1000), (2**19, 64)]):
        work = workspace(tmp_path / str(number), memory, replace(SMALL, part_values=part))
        grid = convolution(FILTERS["window"], work, "kept").measurement(
            FILTERS["window"], neighbours="replace-one", most_records=1
        )
        counts, _ = counted(grid, work)
        seen.add((grid.digest, hashlib.sha256(to_array(grid.exact_values(counts, work)).tobytes()).hexdigest()))
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["one", "by both"])
def test_a_stream_is_read_at_every_step(name: str) -> None:
    """The first steps of a longer series: what was measured of them answers them, with the whole series' numbers."""
    workload = SUMS[name]
    grid = square_root(workload).measurement(workload, neighbours="add-remove", most_records=1)
    assert isinstance(grid, FilterMeasurement)
    counts = np.random.default_rng(2).poisson(9, grid.shape)
    z = ArrayVector(grid.measure(counts))
    for steps in (1, 3, 200):
        begun = grid.measurement_of_steps(steps)
        part = to_array(begun.steps_of(z, 0, steps))
        np.testing.assert_array_equal(part, begun.measure(grid.first_step_counts(counts, steps)))
        few = filtered(Domain.of_shape((steps,), SIZES), "x0", [running_sum(steps)])
        found: Vector = begun.transform_answers(few, MEMORY, ArrayVector(part)).answers
        truth = np.cumsum(grid.first_step_counts(counts, steps), axis=grid.step_axis)
        np.testing.assert_allclose(to_array(found), truth.ravel(), atol=1e-5 * float(truth.max()))


def test_binomial_coefficients() -> None:
    """The series in 1 / k meets the product within an ulp or two, from either side."""
    k = np.arange(1.0, 20_000)
    exact = np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))
    for start, stop in ((0, 20_000), (5000, 6000), (4000, 4200)):
        np.testing.assert_allclose(binomials(start, stop), exact[start:stop], rtol=1e-13)
    assert binomials(100, 100).size == 0


@pytest.mark.parametrize(
    ("name", "least"),
    {
        "running sum": 0.999999,
        "window": 0.9,
        "decay": 0.95,
        "power": 0.97,
        "trend": 0.999999,
        "band": 0.98,
        "three together": 0.78,
    }.items(),
)
def test_the_bound_of_blocks_is_below_that_of_all_singular_values(name: str, least: float) -> None:
    workload = FILTERS[name]
    exact = singular_value_bound(workload)
    assert least * exact <= finite_series_bound(workload) <= exact * (1 + 1e-9)
    lighter = union(workload, weights=(1e-6,))
    assert finite_series_bound(lighter) == pytest.approx(1e-12 * finite_series_bound(workload), rel=1e-9)
