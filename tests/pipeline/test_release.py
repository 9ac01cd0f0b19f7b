"""The release as a whole, on small records: repeats and refusals.

Answers are compared with the truth at the rate of false alarms of ``fit``; distributions are tested with many draws in
strategies/test_dense_rows.py.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from distributed import LocalCluster

import dpdist as dp
from dpdist import engine
from dpdist.content import table_rows
from dpdist.errors import (
    BudgetExceeded,
    InvalidInput,
    KeyUnavailable,
    LedgerError,
    ReleaseConflict,
    StoreError,
)
from dpdist.mechanisms import dense_mechanisms
from dpdist.pipeline import measure, release_run
from dpdist.planner import strategy_search
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import always, slow_after_first
from tests.properties.spec_parts import AGES, PURE
from tests.support import small_release
from tests.support.complete_tree import installed_mechanisms, needs_plugin
from tests.support.small_release import run
from tests.support.standardised_errors import assert_errors_fit, assert_release_fits


def truth_of(path: Path) -> np.ndarray:
    spec = load(path)
    counts = np.zeros(spec.measured.domain.shape, dtype=np.int64)
    for row in pyarrow.parquet.read_table(spec.source.path).to_pylist():
        counts[row["age"], "fm".index(row["sex"]), "abc".index(row["work"])] += 1
    return np.asarray(spec.workload.queries.unweighted.matvec(counts.ravel()))


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["auto", "identity", "gaussian"])
def test_answers_lie_around_the_truth(home: Path, mechanism: str) -> None:
    path = small_release.write(home.parent / "data", mechanism=mechanism)
    done = run(path, home)
    table, certificate = release_folder.load_release(done.folder)
    assert done.charged
    assert certificate["mechanism"]["name"] == ("coa" if mechanism == "auto" else mechanism)
    assert_release_fits(done, table, truth_of(path))
    assert certificate["privacy"]["rho"] == "1/10"
    if mechanism == "auto":
        assert 0 <= certificate["mechanism"]["certified_gap"] < 1e-6
        costs = {row["mechanism"]: row["cost"] for row in certificate["mechanism"]["compared"]}
        assert costs["coa"] < min(costs["identity"], costs["gaussian"])


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["auto", "laplace"])
def test_pure_epsilon_releases(home: Path, mechanism: str) -> None:
    pure = {"budget": {"epsilon": 0.5}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}}
    path = small_release.write(home.parent / "data", mechanism=mechanism, **pure)
    done = run(path, home)
    table, certificate = release_folder.load_release(done.folder)
    privacy = certificate["privacy"]
    assert (privacy["epsilon"], privacy["delta"], privacy["noise"], privacy["rho"]) == (0.5, 0.0, "Laplace", "1/8")
    assert 4 * done.plan.measurement.sensitivity_squared <= done.plan.noise.scale**2  # Delta_1 / s <= 1/2, in integers
    assert_release_fits(done, table, truth_of(path))
    if mechanism == "auto":
        costs = {row["mechanism"]: row["cost"] for row in certificate["mechanism"]["compared"]}
        names = ("p-identity", "identity", "laplace", "wavelet", "hierarchical", "p-identity-products", "weighted-marginals")
        assert set(costs) == {*installed_mechanisms(*names)}
        assert certificate["mechanism"]["cost"] == min(costs.values())
        assert all(row["gap"] > 0 for row in certificate["mechanism"]["compared"])
    else:
        assert certificate["mechanism"]["name"] == mechanism
    page = (done.folder / "index.html").read_text()
    assert "pure differential privacy" in page
    assert "discrete Laplace" in page
    run(small_release.write(home.parent / "data", mechanism=mechanism, release="small-2", **pure), home)
    with pytest.raises(BudgetExceeded, match=r"charge of epsilon=0\.5 was refused, epsilon=0 is left"):
        run(small_release.write(home.parent / "data", mechanism=mechanism, release="small-3", **pure), home)


def test_another_budget_does_not_optimise_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies are kept by the workload's fingerprint: the budget changes the noise, other queries the strategy."""
    data = home.parent / "data"
    first = run(small_release.write(data), home)

    def solved_again(*_: object, **__: object) -> None:
        raise AssertionError("optimised again")

    monkeypatch.setattr(dense_mechanisms, "coa", solved_again)
    second = run(small_release.write(data, release="small-2", budget={"rho": 0.05}), home)
    assert second.plan.measurement.digest == first.plan.measurement.digest
    assert second.plan.noise.scale > first.plan.noise.scale
    with pytest.raises(AssertionError, match="optimised again"):
        run(small_release.write(data, release="small-3", budget={"rho": 0.05}, workload=[{"cdf": {"of": "age"}}]), home)


SERIES = {"of": "age", "ends": "cut", "apply": [{"running_sum": True}, {"mean": 3}, {"cycle": 4.0}]}


@pytest.mark.statistical
@pytest.mark.parametrize("neighbours", slow_after_first(1, ["add-remove", "replace-one"]))
@pytest.mark.parametrize(
    ("mechanism", "filters"),
    [
        ("auto", SERIES),
        ("convolution", SERIES),
        ("convolution", {**SERIES, "by": ["sex"], "circular": True}),
        ("square-root", {"of": "age", "by": ["sex", "work"], "apply": [{"exponential": 0.7}]}),
        ("auto", {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}),
    ],
)
def test_filtered_series(home: Path, mechanism: str, filters: dict[str, Any], neighbours: str) -> None:
    path = small_release.write(
        home.parent / "data", workload=[{"filters": filters}], mechanism=mechanism, neighbours=neighbours
    )
    done = run(path, home)
    table, certificate = release_folder.load_release(done.folder)
    name = certificate["mechanism"]["name"]
    alone = "smoothing" if neighbours == "replace-one" else "coa"  # where records are replaced, its rows cost 2 % less
    assert name == (mechanism if mechanism != "auto" else "kronecker" if filters.get("by") else alone)
    assert_release_fits(done, table, truth_of(path))
    predicted = certificate["mechanism"]["rmse"]
    assert np.sqrt(np.mean(table["standard_error"].to_numpy() ** 2)) == pytest.approx(predicted, rel=0.01)
    compared = {row["mechanism"]: row for row in certificate["mechanism"]["compared"]}
    assert compared[name]["worst"] == pytest.approx(table["standard_error"].to_numpy().max(), rel=0.01)
    if mechanism == "auto":
        assert "convolution" in compared
        least = min(row["cost"] for row in compared.values())
        assert compared[name]["cost"] == pytest.approx(least, rel=1e-6)  # of two optima the first is taken
    before = small_release.tree(done.folder)
    shutil.rmtree(done.folder)
    assert small_release.tree(run(path, home).folder) == before


@pytest.mark.statistical
def test_formulas_over_binary_attributes(home: Path) -> None:
    """The optimum over characters, only the formula's table is counted; the page names each answer in words."""
    table = small_release.records().append_column(
        "old", pa.array(np.where(small_release.records()["age"].to_numpy() > 6, "yes", "no"))
    )
    domain = {
        "sex": {"categories": ["f", "m"]},
        "work": {"categories": ["a", "b", "c"]},
        "old": {"categories": ["no", "yes"]},
    }
    path = small_release.write(
        home.parent / "data", table=table, domain=domain, workload=[{"dnf": {"terms": [["sex"], ["old"]]}}]
    )
    done = run(path, home)
    published, certificate = release_folder.load_release(done.folder)
    assert done.plan.layout.size == 4
    assert certificate["mechanism"]["name"] == "convolution"
    assert certificate["mechanism"]["certified_gap"] < 2e-9
    assert published["query"].to_pylist()[:2] == ["(sex m) or (old yes)", "(sex m) or (old no)"]
    sex, old = table["sex"].to_numpy(zero_copy_only=False) == "m", table["age"].to_numpy() > 6
    truth = [float(((sex ^ a) | (old ^ b)).sum()) for a in (False, True) for b in (False, True)]
    assert_release_fits(done, published, np.array(truth))
    errors = published["standard_error"].to_numpy()
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(certificate["mechanism"]["rmse"], rel=1e-3)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["coa", "convolution"])
def test_volatility_around_a_public_mean(home: Path, mechanism: str) -> None:
    """Decayed sums of |count - mean|: the distances are filtered, one record still moves one of them by one."""
    filters = {"of": "age", "apply": [{"exponential": 0.7}, {"window": 3}], "ends": "cut", "around": 250}
    changes = {"domain": {"age": {"from": 0, "to": 11}}, "mechanism": mechanism}
    path = small_release.write(home.parent / "data", workload=[{"filters": filters}], **changes)
    done = run(path, home)
    table = release_folder.load_release(done.folder)[0]
    distances = np.abs(np.bincount(small_release.records()["age"].to_numpy(), minlength=12) - 250)
    truth = load(path).workload.queries.unweighted.matvec(distances)
    assert_release_fits(done, table, truth)
    assert table["group"][0].as_py() == "exponential decay 0.7, of |count - 250|"


@pytest.mark.statistical
@pytest.mark.slow
@needs_plugin("mechanism.buffered")
def test_a_long_series(home: Path) -> None:
    """20,000 steps, beyond what can be written down: the best filter is taken, errors are as predicted, a person's records count."""
    state = np.random.default_rng(4)
    hours = np.sort(state.integers(0, 20_000, 30_000))
    table = pa.table({"hour": hours, "person": state.integers(0, 9000, hours.size)})
    path = small_release.write(
        home.parent / "data",
        table=table,
        records={"path": "records.parquet", "person": {"column": "person", "most_records": 5}},
        domain={"hour": {"from": 0, "to": 19_999}},
        workload=[{"filters": {"of": "hour", "apply": [{"running_sum": True}]}}],
    )
    done = run(path, home)
    published, certificate = release_folder.load_release(done.folder)
    names = [row["mechanism"] for row in certificate["mechanism"]["compared"]]
    assert names == ["convolution", "square-root", "buffered", "identity", "gaussian"]
    assert certificate["mechanism"]["name"] == "buffered"
    costs = {row["mechanism"]: row["cost"] for row in certificate["mechanism"]["compared"]}
    assert costs["buffered"] == min(costs.values())
    seen: dict[int, int] = {}
    kept = []
    for hour, person in zip(hours.tolist(), table["person"].to_pylist(), strict=True):
        seen[person] = seen.get(person, 0) + 1
        if seen[person] <= 5:
            kept.append(hour)
    truth = np.cumsum(np.bincount(kept, minlength=20_000))
    assert_errors_fit(published["answer"].to_numpy() - truth, published["standard_error"].to_numpy(), freedom=5)
    assert published["query"][17].as_py() == "hour at 17"


def test_a_data_dependent_release(home: Path) -> None:
    """DAWA charges its epsilon once, tells the noise and no interval, and publishes the same bytes again."""
    changes = {
        "mechanism": "dawa",
        "domain": {"age": {"from": 0, "to": 11}},
        "workload": [{"cdf": {"of": "age"}}, {"ranges": {"of": ["age"]}, "relative": True}],
        "budget": {"epsilon": 0.5},
        "ledger": {"dataset": "small", "cap": {"epsilon": 0.5}},
    }
    path = small_release.write(home.parent / "data", **changes)
    done = run(path, home)
    table, certificate = release_folder.load_release(done.folder)
    assert table["low_95"].null_count == table["high_95"].null_count == table.num_rows == 12 + 78
    assert certificate["mechanism"]["biased"]
    assert certificate["mechanism"]["rmse"] is None
    assert certificate["privacy"]["epsilon"] == 0.5
    page = (done.folder / "index.html").read_text()
    assert "not known" in page
    assert "95 of 100" not in page
    answers = table["answer"].to_numpy()
    assert np.abs(answers[:12] - np.cumsum(np.bincount(small_release.records()["age"].to_numpy()))).max() < 300
    before = small_release.tree(done.folder)
    shutil.rmtree(done.folder)
    again = run(path, home)
    assert not again.charged
    assert small_release.tree(again.folder) == before


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "workload"),
    [
        ("marginals", [{"marginals": {"ways": [0, 1, 2]}}]),
        ("kronecker", [{"cdf": {"of": "age", "by": ["sex"]}}]),
        pytest.param(
            "oblique",
            [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "age", "by": ["sex"]}, "weight": 2}],
            marks=needs_plugin("mechanism.oblique"),
        ),
    ],
)
@pytest.mark.parametrize("neighbours", slow_after_first(1, ["add-remove", "replace-one"]))
def test_structured_releases(home: Path, mechanism: str, workload: list[Any], neighbours: str) -> None:
    """``auto`` takes the closed form or the product; only tables are counted for marginals."""
    person = {"column": "person", "most_records": 2}
    path = small_release.write(
        home.parent / "data",
        workload=workload,
        neighbours=neighbours,
        records={"path": "records.parquet", "person": person},
        limits={"memory_gib": 1e-6} if mechanism == "oblique" else {},
        mechanism=mechanism if neighbours == "replace-one" else "auto",  # tables of replaced records have a better one
    )
    done = run(path, home)
    table, certificate = release_folder.load_release(done.folder)
    assert certificate["mechanism"]["name"] == mechanism
    gap = certificate["mechanism"]["certified_gap"]
    if neighbours == "replace-one":  # nothing is proven of a record that is replaced
        assert gap is None
    else:
        assert gap < (0.1 if mechanism == "oblique" else 1e-6)
    seen: dict[int, int] = {}
    counts = np.zeros((12, 2, 3), dtype=np.int64)
    for row in small_release.records().to_pylist():
        seen[row["person"]] = seen.get(row["person"], 0) + 1
        if seen[row["person"]] <= 2:
            counts[row["age"], "fm".index(row["sex"]), "abc".index(row["work"])] += 1
    truth = load(path).workload.queries.unweighted.matvec(counts.ravel())
    assert_release_fits(done, table, truth)
    predicted, weights = certificate["mechanism"]["rmse"], load(path).workload.queries.weights
    errors = table["standard_error"].to_numpy()
    assert np.sqrt(np.average(errors**2, weights=weights**2)) == pytest.approx(predicted, rel=1e-3)
    layout = done.plan.layout
    assert layout.size == (24 if mechanism == "kronecker" else 12 * 2 + 12 * 3 + 2 * 3)
    before = small_release.tree(done.folder)
    shutil.rmtree(done.folder)
    assert small_release.tree(run(path, home).folder) == before


@pytest.mark.parametrize("mechanism", slow_after_first(2, ["coa", "residual", "identity", "gaussian"]))
def test_queries_scaled_for_relative_errors(home: Path, mechanism: str) -> None:
    """What the plan predicts is what the published standard errors add up to, each by the square of its scale."""
    queries = [{"ranges": {"of": ["age"], "by": ["sex"]}, "relative": True}, {"marginals": {"ways": [1]}, "weight": 2}]
    path = small_release.write(home.parent / "data", mechanism=mechanism, workload=queries)
    table, certificate = release_folder.load_release(run(path, home).folder)
    errors, weights = table["standard_error"].to_numpy(), load(path).workload.queries.weights
    predicted = certificate["mechanism"]["rmse"]
    assert np.sqrt(np.average(errors**2, weights=weights**2)) == pytest.approx(predicted, rel=1e-3)
    assert len({float(w) for w in weights}) == 13  # 12 lengths of a range, 2 for the marginals
    worst = max(row["worst"] for row in certificate["mechanism"]["compared"])
    assert worst == pytest.approx(errors.max(), rel=1e-3)


@pytest.mark.statistical
@pytest.mark.parametrize("by", slow_after_first(1, [["sex", "work"], ["work"]]))
def test_products_beyond_memory(home: Path, monkeypatch: pytest.MonkeyPatch, by: list[str]) -> None:
    """Measured and read in two passes: the same standard errors as at once, the same bytes for every size of slab."""
    workload = [{"ranges": {"of": ["age"], "by": by}}]
    path = small_release.write(
        home.parent / "data", workload=workload, mechanism="kronecker", postprocess={"integer": by == ["work"]}
    )
    whole = run(path, home.parent / "whole-home") if shutil.copytree(home, home.parent / "whole-home") else None
    assert whole is not None
    expected = release_folder.load_release(whole.folder)[0]
    shutil.rmtree(whole.folder)
    sizes = Sizes(streamed_cells=10, shard_bytes=8 * 50)
    small_release.reserved(path, home, sizes=sizes)  # one attempt: measurements tell theirs
    found = []
    for memory in (2**30, 40_000):
        shutil.copytree(home, home.parent / f"home-{memory}")
        some = engine.Engine(workers=1, memory_bytes=memory, threads=1, connect=None, local=True)
        store = Store(home.parent / f"home-{memory}" / "store", sizes)
        monkeypatch.setattr(strategy_search.Planning, "check_memory", lambda *_, **__: None)
        monkeypatch.setattr("dpdist.planner.memory_estimate.check", lambda *_: None)
        context = Context(home.parent / f"home-{memory}", store, some, ignore_progress)
        done = release_run.release(context, load(path, sizes=sizes))
        assert done.plan.measurement.is_streamed
        found.append(small_release.tree(done.folder))
        table = release_folder.load_release(done.folder)[0]
        shutil.rmtree(done.folder)
        assert not list(Path(store.location, "scratch").rglob("*.json"))
    assert found[0] == found[1]
    np.testing.assert_allclose(table["standard_error"], expected["standard_error"])
    assert_release_fits(done, table, truth_of(path))


@pytest.mark.parametrize("stop_at", always([2], [1, 2, 3]))
def test_an_interrupted_release_beyond_memory(home: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    """Stopped at a write of the measurement: run again, the same noise meets the same integers."""
    sizes = Sizes(streamed_cells=10, shard_bytes=8 * 30)
    path = small_release.write(home.parent / "data", workload=[{"ranges": {"of": ["age"], "by": ["sex", "work"]}}])
    expected = small_release.undisturbed(path, home, sizes=sizes)
    writes = 0
    original = Store.write_shard

    def failing(self: Store, plan: Any, shard: int, block: np.ndarray) -> str:
        nonlocal writes
        writes += plan.name.startswith("measurements/")
        if writes == stop_at:
            raise KeyboardInterrupt
        return original(self, plan, shard, block)

    monkeypatch.setattr(Store, "write_shard", failing)
    with pytest.raises(KeyboardInterrupt):
        small_release.run(path, home, sizes=sizes)
    monkeypatch.setattr(Store, "write_shard", original)
    assert small_release.tree(small_release.run(path, home, sizes=sizes).folder) == expected


@pytest.mark.statistical
def test_known_counts_make_errors_smaller_and_stay_exact(home: Path) -> None:
    records = small_release.records()
    women = int((np.array(records["sex"].to_pylist()) == "f").sum())
    plain = run(small_release.write(home.parent / "data"), home)
    known = [{"count": 3000}, {"where": "sex == 'f'", "count": women}]
    given = run(small_release.write(home.parent / "data", release="small-2", postprocess={"known": known}), home)
    before, after = (release_folder.load_release(done.folder)[0] for done in (plain, given))
    errors = [t["standard_error"].to_numpy() for t in (before, after)]
    assert (errors[1] <= errors[0] * (1 + 1e-9)).all()
    assert errors[1].mean() < errors[0].mean() * 0.99
    row = {r["query"]: r for r in after.to_pylist()}
    assert row["sex f"]["answer"] == pytest.approx(women, abs=1e-3)
    assert row["sex f"]["standard_error"] == pytest.approx(0, abs=1e-3)
    assert row["sex m"]["answer"] == pytest.approx(3000 - women, abs=1e-3)
    sure = errors[1] < 1e-3
    away = (after["answer"].to_numpy() - truth_of(home.parent / "data" / "release.yaml"))[~sure]
    assert_errors_fit(away, errors[1][~sure])
    assert "public counts taken as given (all records = 3000" in (given.folder / "index.html").read_text()
    # a count that cannot be true is found, and corrected without another charge
    shutil.rmtree(given.folder)
    wrong = {"release": "small-2", "postprocess": {"known": [{"count": 9000}]}}
    with pytest.raises(InvalidInput, match="contradicts the noisy records"):
        run(small_release.write(home.parent / "data", **wrong), home)
    again = run(small_release.write(home.parent / "data", release="small-2", postprocess={"known": known}), home)
    assert not again.charged
    with pytest.raises(StoreError, match="does not hold a complete copy"):
        run(small_release.write(home.parent / "data", release="small-2"), home)


@pytest.mark.parametrize("mechanism", ["coa", "identity", "residual"])
def test_non_negative_whole_answers(home: Path, mechanism: str) -> None:
    few = small_release.records(rows=40)
    options = {"table": few, "mechanism": mechanism, "budget": {"rho": 0.01}}
    path = small_release.write(home.parent / "data", **options, postprocess={"non_negative": True, "integer": True})
    done = run(path, home)
    table, certificate = release_folder.load_release(done.folder)
    answers = table["answer"].to_numpy()
    assert (answers >= 0).all()
    assert (answers == np.rint(answers)).all()
    truth = truth_of(path)
    assert answers[truth == 0].mean() > 0  # the bias that the page tells of, whatever the noise
    low, high = (table[name].to_numpy() for name in ("low_95", "high_95"))
    assert (low >= 0).all()
    assert ((low <= answers) & (answers + 0.499 <= high)).all()
    assert len(certificate["post_processing"]) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mechanism": "gaussian", "postprocess": {"known": [{"count": 400}]}}, "which mechanism 'gaussian' does not make"),
        (
            {**PURE, **AGES, "mechanism": "dawa", "postprocess": {"non_negative": True}},
            "which mechanism 'dawa' does not make",
        ),
        (
            {"postprocess": {"known": [{"where": "age == 1 and sex == 'f' and work == 'a'", "count": 1}]}},
            "cannot be computed from the",
        ),
    ],
)
def test_fits_that_are_not_possible_are_told_before_the_charge(home: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run(small_release.write(home.parent / "data", **changes), home)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


def test_the_least_largest_error(home: Path) -> None:
    queries = [{"marginals": {"ways": [1, 2]}}]
    total = run(small_release.write(home.parent / "data", workload=queries), home)
    worst = run(small_release.write(home.parent / "data", workload=queries, objective="worst", release="small-2"), home)
    errors = [release_folder.load_release(done.folder)[0]["standard_error"].to_numpy() for done in (total, worst)]
    assert errors[1].max() < errors[0].max() * 0.95
    assert (errors[1] ** 2).mean() > (errors[0] ** 2).mean()
    mechanism = release_folder.load_release(worst.folder)[1]["mechanism"]
    assert mechanism["objective"] == "worst"
    assert mechanism["certified_gap_of_the_worst"] <= 1e-4
    rows = {row["mechanism"]: row["worst"] for row in mechanism["compared"]}
    assert rows["marginals"] == pytest.approx(errors[1].max(), rel=1e-3)
    assert min(rows.values()) == rows["marginals"]
    assert [row["mechanism"] for row in mechanism["compared"]] == [
        "marginals",
        *installed_mechanisms("fourier", "datacube"),
        "identity",
        "gaussian",
    ]


ADULT = Path(__file__).parents[3] / "shared" / "data" / "adult_discretized.npz"


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.skipif(not ADULT.exists(), reason="the shared data is not here")
@pytest.mark.parametrize("largest", [pytest.param(10**9, id="all"), pytest.param(50, id="of up to 50 values")])
def test_pairs_of_adult_s_fourteen_attributes(home: Path, largest: int) -> None:
    """6.4e17 cells, never enumerated: 148,137 answers, or those for smaller attributes only, certified optimal."""
    sizes = json.loads(ADULT.with_name("adult_discretized.domain.json").read_text())
    with np.load(ADULT) as data:
        columns = {f"a{i}": data[name].astype(np.int64) for i, name in enumerate(sizes)}
    asked = [f"a{i}" for i, size in enumerate(sizes.values()) if size <= largest]
    spec = {
        "release": "adult",
        "records": {"path": "x"},
        "domain": {f"a{i}": {"from": 0, "to": size - 1} for i, size in enumerate(sizes.values())},
        "workload": [{"marginals": {"of": [list(pair) for pair in itertools.combinations(asked, 2)]}}],
        "budget": {"epsilon": 1, "delta": 1e-9},
        "ledger": {"dataset": "adult", "cap": {"epsilon": 1, "delta": 1e-9}},
    }
    done = dp.run(spec, records=pa.table(columns), engine="inline")
    table, certificate = release_folder.load_release(done.folder)
    assert certificate["cells"] == 641263392000000000
    assert certificate["mechanism"]["certified_gap"] < 1e-6  # of the whole numbers
    truth = []
    for block in done.job.workload.queries.blocks:
        names = [f"a{axis}" for axis in block.axes]
        flat = columns[names[0]] * block.factors[1].shape[0] + columns[names[1]]
        truth.append(np.bincount(flat, minlength=block.queries))
    errors = table["answer"].to_numpy() - np.concatenate(truth)
    assert_errors_fit(errors, table["standard_error"].to_numpy())
    assert (
        0.95 < np.sqrt(np.mean((errors / table["standard_error"].to_numpy()) ** 2)) < 1.05
    )  # many tables, hardly correlated
    assert certificate["mechanism"]["rmse"] == pytest.approx(
        np.sqrt(np.mean(table["standard_error"].to_numpy() ** 2)), rel=1e-4
    )


def test_published_files_are_whole_and_readable(home: Path) -> None:
    done = run(small_release.write(home.parent / "data", output={"formats": small_release.EVERY_FORMAT}), home)
    table, certificate = release_folder.load_release(done.folder)
    rows = {row["query"]: row for row in table.to_pylist()}
    one = rows["age 3, sex f"]
    assert (one["group"], one["age"], one["sex"], one["work"]) == ("age x sex", "3", "f", "")
    assert one["low_95"] < one["answer"] < one["high_95"]
    assert "age up to 5, sex m" in rows
    group = __import__("zarr").open_group(done.folder / "answers.zarr", mode="r")
    np.testing.assert_array_equal(group["answer"][:], table["answer"].to_numpy())
    csv_lines = (done.folder / "answers.csv").read_text().splitlines()
    assert len(csv_lines) == table.num_rows + 1
    page = (done.folder / "index.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "src=" not in page.replace('<iframe src="${', "")  # the code that readers may copy to show a chart elsewhere
    assert certificate["queries"] == table.num_rows
    (done.folder / "answers.csv").write_text("altered")
    with pytest.raises(StoreError, match="altered"):
        release_folder.load_release(done.folder)


@pytest.mark.parametrize("through", ["CSV", "Parquet"])
def test_first_rows_of_a_group(through: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "SHORT_BYTES", table_rows.SHORT_BYTES if through == "CSV" else 0)
    done = run(small_release.write(home.parent / "data"), home)
    table, _ = release_folder.load_release(done.folder)
    everything = table.to_pylist()
    assert release_folder.first_rows(done.folder, group=None, limit=0) == (everything, table.num_rows)
    assert release_folder.first_rows(done.folder, group=None, limit=5) == (everything[:5], table.num_rows)
    of_sex = [row for row in everything if row["group"] == "sex"]
    assert release_folder.first_rows(done.folder, group="sex", limit=1) == (of_sex[:1], 2)
    assert release_folder.first_rows(done.folder, group="sex", limit=9) == (of_sex, 2)
    with pytest.raises(InvalidInput, match=r"no group 'agee' \(did you mean 'age'\?\); there are age, age x sex"):
        release_folder.first_rows(done.folder, group="agee", limit=1)


def test_nothing_private_is_published(home: Path) -> None:
    """The tally of rows, the key, the salt and the histogram's digest stay inside."""
    path = small_release.write(home.parent / "data", output={"formats": small_release.EVERY_FORMAT})
    done = run(path, home)
    root, counted = (home / "root.key").read_text().strip(), small_release.counts_digest(home)
    with open_ledger(home) as ledger:
        assert counted not in json.dumps(ledger.entries())
    for name, content in small_release.tree(done.folder).items():
        text = content.decode("utf-8", errors="replace")
        assert root not in text, name
        assert counted not in text, name
        assert "tally" not in text, name
        assert not small_release.has_number(3000, text) or name.startswith("answers.zarr"), name


def test_a_second_run_changes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_release.write(home.parent / "data")
    first = run(path, home)
    before = small_release.tree(first.folder)
    monkeypatch.setattr(measure, "draw", None)
    second = run(path, home)
    assert not second.charged
    assert small_release.tree(second.folder) == before
    shutil.rmtree(second.folder)
    assert small_release.tree(run(path, home).folder) == before
    with open_ledger(home) as ledger:
        assert ledger.budgets()[0].releases == 1


def test_changed_input_under_the_same_id_is_refused(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    run(path, home)
    small_release.write(home.parent / "data", table=small_release.records(seed=1))
    with pytest.raises(ReleaseConflict, match="another (histogram|set of records)"):
        run(path, home)
    small_release.write(home.parent / "data", budget={"rho": 0.05})
    with pytest.raises(ReleaseConflict, match="another (spec|budget)"):
        run(path, home)
    small_release.write(home.parent / "data", neighbours="replace-one")
    with pytest.raises(ReleaseConflict, match="another spec"):
        run(path, home)


def test_too_small_a_budget_is_refused_before_anything_is_drawn(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(small_release.write(home.parent / "data"), home)
    run(small_release.write(home.parent / "data", release="small-2"), home)
    drawn: list[object] = []
    monkeypatch.setattr(measure, "draw", lambda *a: drawn.append(a))
    with pytest.raises(BudgetExceeded) as refusal:
        run(small_release.write(home.parent / "data", release="small-3"), home)
    assert refusal.value.remaining == pytest.approx(0.05)
    assert drawn == []
    assert not Path("releases/small-3").exists()
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-3") is None


def test_without_a_key_nothing_is_charged(home: Path) -> None:
    (home / "root.key").unlink()
    with pytest.raises(KeyUnavailable):
        run(small_release.write(home.parent / "data"), home)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


def test_another_key_draws_other_noise(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    first = release_folder.load_release(run(path, home).folder)[0]["answer"].to_numpy()
    other = home.parent / "other"
    dp.privacy.keys.initialise(other)
    shutil.rmtree("releases")
    second = release_folder.load_release(run(path, other).folder)[0]["answer"].to_numpy()
    assert (first != second).mean() > 0.9  # rounded to three digits, one of the many can be the same by chance


def test_a_store_and_a_ledger_that_disagree_stop_the_release(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    run(path, home)
    ledger_file = home / "ledger.db"
    kept = ledger_file.read_bytes()
    ledger_file.unlink()
    with pytest.raises(LedgerError, match="charged to another ledger: this one was emptied or lost"):
        run(path, home)
    ledger_file.write_bytes(kept)
    shutil.rmtree(home / "store" / "measurements")
    with pytest.raises(StoreError, match="cannot be drawn again"):
        run(path, home)


MIXED = [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "age", "by": ["sex"]}, "weight": 2}]


OF_OTHERS: dict[str, dict[str, Any]] = {
    "three processes": {"n_workers": 3, "threads_per_worker": 1},
    "four threads": {"n_workers": 1, "threads_per_worker": 4, "processes": False},
}
"""Clusters that exist before a release."""


@pytest.fixture(scope="module")
def engine_on() -> Iterator[Callable[[str], engine.Engine]]:
    """Starts what a release runs on, once each: "our own", two processes that a release starts itself, or an existing cluster."""
    with ExitStack() as stack:

        @cache
        def started(where: str) -> engine.Engine:
            if where == "our own":
                return stack.enter_context(engine.open_engine(workers=2))
            cluster = stack.enter_context(LocalCluster(dashboard_address="127.0.0.1:0", **OF_OTHERS[where]))
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(engine.WITHOUT_TLS, "1")
                return stack.enter_context(engine.open_engine(cluster.scheduler_address))

        yield started


ON_WORKERS: dict[str, dict[str, Any]] = {
    "coa": {"workload": MIXED},
    "residual": {"workload": MIXED, "mechanism": "residual"},
    "convolution": {"workload": [{"filters": SERIES}], "mechanism": "convolution"},
    "dawa": {
        "workload": [{"cdf": {"of": "age"}}],
        "mechanism": "dawa",
        "domain": {"age": {"from": 0, "to": 11}},
        "budget": {"epsilon": 0.3},
    },
    "kronecker beyond memory": {"workload": [{"ranges": {"of": ["age"], "by": ["sex", "work"]}}]},
    "identity": {"workload": [{"marginals": {"ways": [3]}}], "mechanism": "identity"},
}
RUNS_ON = {
    "coa": "three processes",
    "residual": "four threads",
    "convolution": "our own",
    "dawa": "three processes",
    "kronecker beyond memory": "our own",
    "identity": "four threads",
}
"""Two mechanisms on each engine. All are compared with one process, and so with each other; ``make slow`` runs each on all."""


@pytest.mark.parametrize("mechanism", always(["residual", "convolution", "kronecker beyond memory"], ON_WORKERS))
def test_a_release_on_dask_workers_has_the_same_bytes(
    home: Path, mechanism: str, engine_on: Callable[[str], engine.Engine]
) -> None:
    """On one engine, with the bytes of this process."""
    same_bytes(home, mechanism, {RUNS_ON[mechanism]: engine_on(RUNS_ON[mechanism])})


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ON_WORKERS)
def test_a_release_on_every_engine_has_the_same_bytes(
    home: Path, mechanism: str, engine_on: Callable[[str], engine.Engine]
) -> None:
    same_bytes(home, mechanism, {where: engine_on(where) for where in ("our own", *OF_OTHERS)})


def same_bytes(home: Path, mechanism: str, engines: dict[str, engine.Engine]) -> None:
    """Everything but the reservation is made anew on every engine."""
    sizes = Sizes(streamed_cells=10) if mechanism == "kronecker beyond memory" else SIZES
    person = {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}
    path = small_release.write(home.parent / "data", records=person, **ON_WORKERS[mechanism])
    expected = small_release.undisturbed(path, home, sizes=sizes)
    shutil.rmtree(home / "store" / "histograms")
    shutil.rmtree(home / "store" / "strategies", ignore_errors=True)
    for name, started in engines.items():
        shutil.rmtree("releases", ignore_errors=True)
        where = home.parent / f"on {name}"
        shutil.copytree(home, where)
        context = Context(where, Store(where / "store", sizes), started, ignore_progress)
        done = release_run.release(context, load(path, sizes=sizes))
        assert small_release.tree(done.folder) == expected
        assert done.plan.strategy.name == mechanism.partition(" ")[0]


def test_python_interface(home: Path) -> None:
    content = small_release.spec()
    small_release.write(home.parent / "data")
    content["records"] = {"path": str(home.parent / "data" / "records.parquet")}
    planned = dp.plan(content, engine="inline")
    assert planned.strategy.gap < 1e-6
    with open_ledger(home) as ledger:
        assert ledger.entries() == []
    released = dp.run({**content, "records": {"path": "nowhere"}}, records=small_release.records(), engine="inline")
    assert not list((home / "records").rglob("*.parquet"))
    assert not dp.run({**content, "records": {"path": "nowhere"}}, records=small_release.records(), engine="inline").charged
    with pytest.raises(ReleaseConflict, match="set of records"):
        dp.run(content, records=small_release.records(seed=1), engine="inline")
    assert json.loads((released.folder / "release.json").read_text())["release"] == "small-1"


@pytest.mark.statistical
def test_explicit_rows_and_blockwise_gram(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home.parent / "data"
    folder.mkdir()
    rows = np.random.default_rng(0).integers(-1, 3, (50, 72))
    np.save(folder / "rows.npy", rows)
    path = small_release.write(folder, workload=[{"rows": {"file": "rows.npy"}}, {"marginals": {"ways": [1]}}])
    spec = load(path)
    for shard_bytes in (8 * 72, 8 * 72 * 7, 2**20):
        for workers in (1, 3):
            where = engine.Engine(workers=workers, memory_bytes=2**30, threads=1, connect=None, local=True)
            context = Context(
                home,
                Store(home.parent / f"store-{shard_bytes}-{workers}", Sizes(shard_bytes=shard_bytes)),
                where,
                ignore_progress,
            )
            np.testing.assert_array_equal(
                strategy_search.Planning(context).gram(spec.workload.queries), spec.workload.queries.gram()
            )
    done = run(path, home)
    table, _ = release_folder.load_release(done.folder)
    assert_release_fits(done, table, truth_of(path))


def test_a_killed_optimisation_resumes_from_its_checkpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_release.write(home.parent / "data")
    spec = load(path)
    steps: list[str] = []

    def interrupt_third_line(stage: str, line: str) -> None:
        steps.append(line)
        if len(steps) == 3:
            raise KeyboardInterrupt

    context = Context(home, Store(home / "store"), engine.inline(), interrupt_third_line)
    with pytest.raises(KeyboardInterrupt):
        strategy_search.plan_strategy(context, spec, "coa", "l2")
    starts: list[Any] = []
    original = dense_mechanisms.coa
    monkeypatch.setattr(dense_mechanisms, "coa", lambda w, **o: starts.append(o["start"]) or original(w, **o))
    quiet = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    assert strategy_search.plan_strategy(quiet, spec, "coa", "l2").gap < 1e-6
    assert starts[0] is not None
    assert not list((home / "store").rglob("*checkpoint*"))
    monkeypatch.setattr(dense_mechanisms, "coa", None)
    assert strategy_search.plan_strategy(quiet, spec, "coa", "l2").gap < 1e-6
