"""Formulas over too many cells for memory: the same weights, integers and answers as in memory, through the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.domain import Domain
from dpdist.engine import Engine
from dpdist.grids.characters import HadamardGrid, hadamard_grid
from dpdist.grids.stored import LongGrid
from dpdist.long_formulas import formula_measurement, long_characters, long_formula_answers
from dpdist.operators.base import Listed
from dpdist.page import report
from dpdist.privacy.noise import Noise
from dpdist.sizes import Sizes
from dpdist.store import Store
from dpdist.strategies import convolution, singular_value_bound
from dpdist.strategies.planner import considered, why_not
from dpdist.workloads import dnf, union
from dpdist.workloads.kinds import is_long
from tests import small
from tests.readers import formula_answers

SMALL = Sizes(long_steps=100, part_values=77, shard_bytes=8 * 90, listed=100)
"""What happens beyond millions of cells happens beyond a hundred."""
BITS = Domain.of_shape((2,) * 9, SMALL)
TERMS = [["x0", "x1", "x4"], ["x2", "x3"], ["x5", "x6", "x7", "x8"]]
ASKED = {
    "one conjunction": lambda: dnf(BITS, [[f"x{i}" for i in range(9)]]),
    "three terms": lambda: dnf(BITS, TERMS),
    "two formulas": lambda: union(
        dnf(BITS, TERMS), dnf(BITS, [["x0", "x8"], [f"x{i}" for i in range(1, 8)]]), weights=(1.0, 2.0)
    ),
}


@pytest.mark.parametrize("memory", [2**14, 2**30])
@pytest.mark.parametrize("name", ASKED)
def test_strategy_measurement_and_answers_are_those_in_memory(name: str, memory: int, tmp_path: Path) -> None:
    workload, store = ASKED[name](), Store(tmp_path, SMALL)
    engine = Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True)
    assert is_long(workload)
    assert considered("auto", "l2", workload) == ("convolution",)
    assert "streamed" in why_not("l2", workload)["identity"]
    held = convolution(workload)
    strategy = long_characters(store, engine, workload, "weights", moves=True)
    assert strategy.long is not None
    weights = store.read(store.open("weights"))
    np.testing.assert_array_equal(weights, np.rint(held.scales * 2.0**30))
    assert strategy.workload_cost == pytest.approx(held.workload_cost, rel=1e-12)
    assert strategy.workload_cost == pytest.approx(singular_value_bound(workload), rel=1e-9)
    assert strategy.lower_bound is not None
    assert strategy.lower_bound < strategy.workload_cost
    for neighbours in ("add-remove", "replace-one"):
        grid = strategy.grid(workload, neighbours=neighbours, most_records=2)
        same = hadamard_grid(held.scales, held.axes, neighbours=neighbours, most_records=2)
        assert grid.sensitivity_squared == same.sensitivity_squared
    apart = replace(strategy, long=replace(strategy.long, farthest=None))
    unknown = apart.grid(workload, neighbours="replace-one", most_records=1)
    assert unknown.sensitivity_squared == 4 * strategy.long.square

    grid = strategy.grid(workload, neighbours="add-remove", most_records=1)
    same = hadamard_grid(held.scales, held.axes, neighbours="add-remove", most_records=1)
    assert isinstance(grid, LongGrid)
    assert isinstance(same, HadamardGrid)
    counts = np.random.default_rng(1).poisson(20, 512).astype(np.int64)
    counts[7] = 2**31
    exact = store.read(formula_measurement(store, engine, grid, store.put("counts", counts)))
    np.testing.assert_array_equal(exact[same.characters], same.measure(counts))
    noise = Noise("gaussian", 2**33)
    noisy = exact + noise.draw(b"1" * 32, start=0, count=512)
    answers = long_formula_answers(store, engine, workload, grid, store.put("measured", noisy), noise, "answers")
    expected, errors = formula_answers(workload, same, noisy[same.characters], noise)
    np.testing.assert_allclose(store.read(answers.answers), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(np.repeat(answers.errors.values, 512), errors, rtol=1e-9)
    multiplier = noise.deviation * grid.spacing
    np.testing.assert_allclose(answers.errors.values, np.array(strategy.long.deviations) * multiplier, rtol=1e-6)


def test_tables_of_truth_are_computed() -> None:
    lazy, listed = dnf(BITS, TERMS), dnf(Domain.of_shape((2,) * 6, SMALL), [["x0", "x1"], ["x2", "x5"]])
    assert not isinstance(lazy.blocks[0].factors[0].entries, Listed)
    assert isinstance(listed.blocks[0].factors[0].entries, Listed)
    function: Any = lazy.blocks[0].factors[0]
    other = type(function)(function.values)
    assert other.fingerprint == function.fingerprint
    assert other.integral == function.integral


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_release(home: Path, neighbours: str) -> None:
    """Answers within their error bars, beside an attribute that no formula asks for; a second run changes nothing."""
    state = np.random.default_rng(3)
    columns = {f"x{i}": state.choice(["no", "yes"], 5000, p=[0.3 + 0.05 * i, 0.7 - 0.05 * i]) for i in range(9)}
    table = pa.table({**columns, "other": state.choice(["a", "b", "c"], 5000)})
    path = small.write(
        home.parent / "data",
        table=table,
        domain={
            **{name: {"categories": ["no", "yes"]} for name in columns},
            "other": {"categories": ["a", "b", "c"]},
        },
        workload=[{"dnf": {"terms": TERMS}}],
        neighbours=neighbours,
        budget={"epsilon": 1.0, "delta": 1e-6},
        ledger={"dataset": "formulas", "cap": {"epsilon": 3.0, "delta": 1e-5}},
    )
    done = small.run(path, home, sizes=SMALL)
    assert isinstance(done.plan.grid, LongGrid)
    found = report.load(Path(done.folder))[0].to_pandas()
    yes = {name: values == "yes" for name, values in columns.items()}
    truth = []
    for row in range(512):
        bits = {f"x{i}": yes[f"x{i}"] ^ bool(row >> (8 - i) & 1) for i in range(9)}
        truth.append(np.any([np.all([bits[name] for name in term], axis=0) for term in TERMS], axis=0).sum())
    away = (found["answer"].to_numpy() - np.array(truth)) / found["standard_error"].to_numpy()
    assert 0.8 < float(np.sqrt((away**2).mean())) < 1.2
    assert done.certificate["mechanism"]["rmse"] == pytest.approx(found["standard_error"][0], rel=1e-4)
    assert done.certificate["mechanism"]["certified_gap"] < 1e-9
    first = small.tree(Path(done.folder))
    again = small.run(path, home, sizes=SMALL)
    assert not again.charged
    assert small.tree(Path(again.folder)) == first
