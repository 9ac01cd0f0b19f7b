"""Every number that is published was given noise of its own: which addresses of which key a release draws from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.pipeline import release_run
from dpdist.pipeline.measure import draw
from dpdist.pipeline.release_run import Release
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind
from dpdist.runtime.context import Context, ignore_progress
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.spec import load
from dpdist.spec.steps.domain_selection import EdgesChoice, NameSelection
from dpdist.spec.steps.thresholded_step import ThresholdedRows
from dpdist.storage.array_store import Store
from tests.case_selection import always
from tests.pipeline.test_step_sequences import purchases, spec_changes
from tests.properties.draws import PURPOSES, Draws, GroupsChoice, RecordsChoice, owned_by, record_draws
from tests.properties.spec_parts import AGES, FORMULAS, PURE, SERIES
from tests.support import small_release
from tests.support.complete_tree import Deleted, installed_steps
from tests.support.measurement_readers import measured as exact_values

SHARDS = 4
"""Of every measurement here, the last one shorter where rows do not divide."""


def shard_rows(rows: int) -> int:
    """Of so many rows that make a few shards."""
    return max(1, -(-rows // SHARDS))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draws]:
    """Every draw that is made, and shards so small that every measurement has several."""
    plan = Store.plan

    def in_small_shards(self: Store, name: str, shape: Any, dtype: Any, **options: Any) -> Any:
        return plan(self, name, shape, dtype, **{"shard_rows": shard_rows(shape[0]), **options})

    monkeypatch.setattr(Store, "plan", in_small_shards)
    with record_draws() as found:
        yield found
    monkeypatch.undo()


def run(path: Path, home: Path) -> tuple[Release, dict[str, Any]]:
    """The release, and what its stages handed on."""
    handed: dict[str, Any] = {}

    def step(name: str, work: Any) -> Any:
        handed[name] = work()
        return handed[name]

    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    return release_run.release(context, load(path), step=step), handed


CASES: dict[str, dict[str, Any]] = {
    "coa": {},
    "identity": {},
    "gaussian": {},
    "wavelet": {},
    "hierarchical": AGES,
    "low-rank": {
        "domain": {"age": {"from": 0, "to": 11}},
        "workload": [{"ranges": {"of": ["age"], "list": [[0, 5], [3, 9]]}}],
    },
    "smoothing": AGES,
    "eigen": AGES,
    "fourier": {"workload": [{"marginals": {"ways": [1, 2]}}]},
    "datacube": {"workload": [{"marginals": {"ways": [1, 2]}}]},
    "marginals": {"workload": [{"marginals": {"ways": [1, 2]}}]},
    "residual": {"workload": [{"marginals": {"ways": [1, 2]}}]},
    "kronecker": {"workload": [{"cdf": {"of": "age", "by": ["sex"]}}]},
    "convolution": SERIES,
    "square-root": SERIES,
    "convolution of formulas": FORMULAS,
    "laplace": {**PURE, **AGES},
    "identity, Laplace noise": PURE,
    "wavelet, Laplace noise": PURE,
    "low-rank, Laplace noise": {**PURE, **AGES},
    "dawa": {**PURE, **AGES},
}


def records() -> pa.Table:
    table, state = small_release.records(400), np.random.default_rng(4)
    for name in ("p", "q", "r"):
        table = table.append_column(name, pa.array(state.choice(["no", "yes"], 400)))
    return table


@pytest.mark.parametrize(
    "case",
    always(
        [
            "coa",
            "identity",
            "low-rank",
            "datacube",
            "residual",
            "kronecker",
            "square-root",
            "convolution of formulas",
            "laplace",
            "wavelet, Laplace noise",
            "dawa",
        ],
        CASES,
    ),
)
def test_a_release_draws_every_address_once(case: str, home: Path, drawn: Draws) -> None:
    """One key; addresses that never meet; together one whole draw; and nothing else is in the measurement but exact integers."""
    mechanism = case.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    path = small_release.write(home.parent / "data", table=records(), mechanism=mechanism, **CASES[case])
    done, handed = run(path, home)
    assert done.plan.strategy.name == mechanism
    drawn.check({done.job.release: owned_by(done.plan.measurement)})
    ranges = drawn.reads_of_release(done.job.release)["noise"]
    if mechanism == "dawa":
        assert len(ranges) == 2  # one for what chooses the partition, one for its totals
        return
    rows = done.plan.measurement.rows
    assert len(ranges) == -(-rows // shard_rows(rows)) > 1
    (key,) = drawn.releases
    assert (ranges[0][0], ranges[-1][1]) == (0, rows)
    assert all(stop == start for (_, stop), (start, _) in zip(ranges, ranges[1:], strict=False))
    store, counts = Store(home / "store"), handed["count"][0]
    measured = store.read_array(handed["measure"][0])
    exact = exact_values(store, engine.inline(), done.plan.measurement, counts, done.plan.layout)
    np.testing.assert_array_equal(measured - exact, done.plan.noise.draw(key, start=0, count=rows))


def test_every_release_of_a_stream_has_a_key_of_its_own(home: Path, drawn: Draws) -> None:
    """Steps that were released are not drawn again; what is drawn for the next ones is not what was drawn for the first."""
    sizes = {}
    for number, through in enumerate((4, 8, 11)):
        changes = {**SERIES, "stream": {"name": "ages", "through": through}, "release": f"part-{number}"}
        table = small_release.records(400)
        kept = table.filter(pa.compute.less_equal(table["age"], through))
        _, handed = run(small_release.write(home.parent / f"data-{number}", table=kept, **changes), home)
        sizes[changes["release"]] = Store(home / "store").read_array(handed["measure"][0]).size
    drawn.check({release: {"noise": [(0, size)]} for release, size in sizes.items()})
    for release, size in sizes.items():
        assert np.concatenate([np.arange(*part) for part in drawn.reads_of_release(release)["noise"]]).tolist() == list(
            range(size)
        )


@pytest.mark.parametrize("form", ["in memory", "stored"])
@pytest.mark.parametrize("kind", list(Kind))
def test_shards_of_any_size_are_parts_of_one_draw(tmp_path: Path, form: str, kind: Any, drawn: Draws) -> None:
    store, noise, key = Store(tmp_path), Noise(kind, 1000), Secret(b"k" * 32)
    values = np.random.default_rng(0).integers(-50, 50, 11)
    kept = store.put("exact", values)
    exact: Vector = ArrayVector(values) if form == "in memory" else StoredVector(store, kept)
    measured = store.read_array(draw(store, "measured", NoisyVector(exact, key, noise), {}))
    whole = noise.draw(key.reveal(), start=0, count=values.size)
    np.testing.assert_array_equal(measured - values, whole)
    assert np.unique(whole).size > values.size - 3
    assert len(drawn.reads[key.reveal(), "noise"]) == SHARDS + 1  # the shards, and this test's own


BINS = {"from": 0, "to": 60, "bins": 5, "share": 0.1}
STEPS = {"rho": (False, "rho"), "rho, groups": (True, "rho"), "epsilon": (False, "pure")}
"""Releases before which all is found that can be: whether a bound on groups, and the budget."""


@pytest.mark.parametrize("case", always(["rho", "rho, groups"], STEPS))
def test_every_budgeted_step_draws_addresses_of_its_own(case: str, home: Path, drawn: Draws) -> None:
    """Names, edges, bounds, ranges, what they leave out, completeness, quantiles: no key reads a number twice, and each has its own."""
    groups, budget = STEPS[case]
    found = spec_changes(budget, groups=groups)
    found["domain"]["wait"] = {"edges": "private", "selection": BINS}
    found["records"]["columns"] = {"place": "town"}
    rows = {"of": {"place": {"text": {"alphabet": "town 0123456789", "length": 6}}}, "share": 0.1}
    found["gate"] = {"completeness": {"share": 0.05}}
    found["thresholded"] = {**rows, "at_least": 30 if budget == "rho" else 200}
    done = small_release.run(small_release.write(home.parent / "data", table=purchases(), **found), home)
    steps = [before for before, _ in done.job.found_steps]
    drawn.check(
        {each.release: PURPOSES[type(each)](each) for each in steps} | {done.job.release: owned_by(done.plan.measurement)}
    )
    lacking = {NameSelection} if budget == "pure" else set()
    assert {type(each) for each in steps} == {*PURPOSES} - {RecordsChoice if groups else GroupsChoice} - lacking
    for each in steps:  # as many as it owns, of all that is counted beforehand
        if not isinstance(each, NameSelection | EdgesChoice | ThresholdedRows):
            ((stream, (owned,)),) = PURPOSES[type(each)](each).items()
            reads = drawn.reads_of_release(each.release)[stream]
            assert np.concatenate([np.arange(*part) for part in reads]).tolist() == list(range(*owned))


def test_every_budgeted_step_says_which_addresses_it_owns() -> None:
    assert {*PURPOSES} - {Deleted} == installed_steps()
