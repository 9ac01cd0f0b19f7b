"""Releases of filters and formulas that go through the store: published answers, interruptions, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.measurement.coefficient_vectors import Form
from dpdist.mechanisms.comparison import compared_mechanisms, exclusion_reasons
from dpdist.pipeline import release_run
from dpdist.planner.release_plan import plan
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.workloads import dnf, filtered
from dpdist.workloads.time_filters import window
from tests.case_selection import always, slow_after_first
from tests.support import small_release

STEPS = 3000
SMALL = Sizes(long_steps=1000, part_values=777, chart_rows=1000, shard_bytes=8 * 901, listed_values=100)
"""Everything that happens beyond millions of steps happens beyond a thousand."""
LISTED = replace(SMALL, listed_values=SIZES.listed_values)
CELLS = Sizes(long_steps=100, part_values=77, shard_bytes=8 * 90, listed_values=100)
"""What happens beyond millions of cells happens beyond a hundred."""
TERMS = [["x0", "x1", "x4"], ["x2", "x3"], ["x5", "x6", "x7", "x8"]]


def release(folder: Path, **changes: Any) -> Path:
    state = np.random.default_rng(3)
    table = pa.table({"t": state.integers(0, STEPS, 40_000)})
    content = {
        "domain": {"t": {"from": 0, "to": STEPS - 1}},
        "workload": [{"filters": {"of": "t", "apply": [{"running_sum": True}, {"window": 24}], "ends": "cut"}}],
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "ledger": {"dataset": "long", "cap": {"epsilon": 3.0, "delta": 1e-5}},
        **changes,
    }
    return small_release.write(folder, table=table, **content)


@pytest.mark.parametrize(
    "changes",
    always([{"neighbours": "replace-one"}], [{}, {"postprocess": {"integer": True}}, {"neighbours": "replace-one"}]),
)
def test_a_release(home: Path, changes: dict[str, Any]) -> None:
    """Published answers are within their error bars, predicted errors are those published, and a second run changes nothing."""
    path = release(home.parent / "data", **changes)
    done = small_release.run(path, home, sizes=SMALL)
    assert done.plan.measurement.form is Form.STORED
    table = release_folder.load_release(Path(done.folder))[0].to_pandas()
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
    assert page.count('<svg class="wide"') == 3
    first = small_release.tree(Path(done.folder))
    again = small_release.run(path, home, sizes=SMALL)
    assert not again.charged
    assert small_release.tree(Path(again.folder)) == first


@pytest.mark.slow
def test_it_is_described_after_its_workers_have_gone(home: Path) -> None:
    """As in a notebook: nothing of the description of a release, or of a plan, is worked out on the cluster that made it."""
    path = release(home.parent / "data")
    with engine.open_engine(workers=1) as started:
        context = Context(home, Store(home / "store", SMALL), started, ignore_progress)
        planned = plan(context, load(path, sizes=SMALL))
        done = release_run.release(context, load(path, sizes=SMALL))
    assert done.certificate["mechanism"] == planned.certificate()["mechanism"]
    assert "by convolution" in repr(done)


STAGES = (
    "dpdist.arrays.convolution.inverse_fourier",
    "dpdist.pipeline.measure.draw",
    "dpdist.measurement.filter_measurement.table_of",
)
"""A function of each stage after the charge: measuring, drawing, answering."""


def test_an_interrupted_release_goes_on_with_the_same_bytes(home: Path) -> None:
    """Stopped while it measures, again while it draws and again while it answers: one charge, the bytes of an undisturbed run."""
    path = release(home.parent / "data")
    small_release.reserved(path, home, sizes=SMALL)
    expected = small_release.undisturbed(path, home, sizes=SMALL)
    for broken in STAGES:
        with mock.patch(broken, side_effect=KeyboardInterrupt) as stopped, pytest.raises(KeyboardInterrupt):
            small_release.run(path, home, sizes=SMALL)
        stopped.assert_called_once()
    done = small_release.run(path, home, sizes=SMALL)
    assert not done.charged
    assert small_release.tree(Path(done.folder)) == expected


def test_a_release_of_several_series(home: Path) -> None:
    """Two series side by side: every row of the table is the series, and the step, that it says."""
    state = np.random.default_rng(4)
    table = pa.table({"t": state.integers(0, STEPS, 60_000), "sex": state.choice(["f", "m"], 60_000, p=[0.2, 0.8])})
    path = small_release.write(
        home.parent / "data",
        table=table,
        domain={"t": {"from": 0, "to": STEPS - 1}, "sex": {"categories": ["f", "m"]}},
        workload=[{"filters": {"of": "t", "by": ["sex"], "apply": [{"window": 200}], "ends": "cut"}}],
        budget={"rho": 0.1},
        ledger={"dataset": "several", "cap": {"rho": 0.1}},
    )
    done = small_release.run(path, home, sizes=SMALL)
    assert done.plan.measurement.form is Form.STORED
    found = release_folder.load_release(Path(done.folder))[0].to_pandas()
    assert found["query"].tolist()[:3] == ["t at 0, sex f", "t at 0, sex m", "t at 1, sex f"]
    records = table.to_pandas()
    for sex in ("f", "m"):
        sums = np.cumsum(np.bincount(records.loc[records["sex"] == sex, "t"], minlength=STEPS))
        truth = sums - np.concatenate([np.zeros(200), sums[:-200]])
        mine = found[found["sex"] == sex]
        away = (mine["answer"].to_numpy() - truth) / mine["standard_error"].to_numpy()
        assert 0.6 < math.sqrt(float((away**2).mean())) < 1.4


@pytest.mark.parametrize("integer", always([True], [False, True]))
def test_a_release_of_running_sums(home: Path, integer: bool) -> None:
    """The square root wins, errors grow with the steps, and what was published before stays."""
    path = release(
        home.parent / "data",
        workload=[{"filters": {"of": "t", "apply": [{"running_sum": True}]}}],
        postprocess={"integer": integer},
    )
    done = small_release.run(path, home, sizes=SMALL)
    assert done.plan.strategy.name == "square-root"
    assert [row["mechanism"] for row in done.certificate["mechanism"]["compared"]] == ["convolution", "square-root"]
    found = release_folder.load_release(Path(done.folder))[0].to_pandas()
    counts = np.bincount(pa.parquet.read_table(path.parent / "records.parquet")["t"].to_numpy(), minlength=STEPS)
    away = (found["answer"] - np.cumsum(counts)) / found["standard_error"]
    assert 0.5 < math.sqrt(float((away**2).mean())) < 1.5
    errors = found["standard_error"].to_numpy()
    assert (np.diff(errors) >= 0).all()
    assert errors[-1] > 1.5 * errors[0]
    rmse = done.certificate["mechanism"]["rmse"]
    assert rmse == pytest.approx(float(np.sqrt((errors**2).mean())), rel=1e-3)
    half = (found["high_95"] - found["answer"]).to_numpy()  # the other end is cut at 0
    np.testing.assert_allclose(half, 1.959964 * errors + (0.5 if integer else 0.0), atol=1e-4)
    first = small_release.tree(Path(done.folder))
    again = small_release.run(path, home, sizes=SMALL)
    assert small_release.tree(Path(again.folder)) == first


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": "gaussian"},
        {"mechanism": "identity"},
        {"budget": {"epsilon": 1.0}, "ledger": {"dataset": "pure", "cap": {"epsilon": 1.0}}},
    ],
)
def test_what_would_never_end_is_refused(home: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidInput, match="with Gaussian noise, found ('gaussian'|'identity'|Laplace noise); set 'mechanism: auto'"
    ):
        small_release.run(release(home.parent / "data", **changes), home, sizes=SMALL)


def test_what_the_planner_says() -> None:
    workload = filtered(Domain.of_shape((STEPS,), LISTED), "x0", [window(24)])
    formulas = dnf(Domain.of_shape((2,) * 9, CELLS), TERMS)
    for asked in (workload, formulas):
        assert asked.kind.is_long
        assert compared_mechanisms("auto", "l2", asked) == ("convolution",)
        reasons = exclusion_reasons("l2", asked)
        assert "pure" not in reasons["identity"]
        assert "steps or cells" in reasons["identity"]
    assert not filtered(Domain.of_shape((3001,), LISTED), "x0", [window(3)], circular=True).kind.is_long


@pytest.mark.parametrize("neighbours", slow_after_first(1, ["add-remove", "replace-one"]))
def test_a_release_of_formulas(home: Path, neighbours: str) -> None:
    """Answers within their error bars, beside an attribute that no formula asks for; a second run changes nothing."""
    state = np.random.default_rng(3)
    columns = {f"x{i}": state.choice(["no", "yes"], 5000, p=[0.3 + 0.05 * i, 0.7 - 0.05 * i]) for i in range(9)}
    table = pa.table({**columns, "other": state.choice(["a", "b", "c"], 5000)})
    path = small_release.write(
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
    done = small_release.run(path, home, sizes=CELLS)
    assert done.plan.measurement.form is Form.STORED
    found = release_folder.load_release(Path(done.folder))[0].to_pandas()
    yes = {name: values == "yes" for name, values in columns.items()}
    truth = []
    for row in range(512):
        bits = {f"x{i}": yes[f"x{i}"] ^ bool(row >> (8 - i) & 1) for i in range(9)}
        truth.append(np.any([np.all([bits[name] for name in term], axis=0) for term in TERMS], axis=0).sum())
    away = (found["answer"].to_numpy() - np.array(truth)) / found["standard_error"].to_numpy()
    assert 0.8 < float(np.sqrt((away**2).mean())) < 1.2
    assert done.certificate["mechanism"]["rmse"] == pytest.approx(found["standard_error"][0], rel=1e-4)
    gap = done.certificate["mechanism"]["certified_gap"]
    assert gap is None if neighbours == "replace-one" else gap < 2e-9  # nothing is proven of a record that is replaced
    first = small_release.tree(Path(done.folder))
    again = small_release.run(path, home, sizes=CELLS)
    assert not again.charged
    assert small_release.tree(Path(again.folder)) == first
