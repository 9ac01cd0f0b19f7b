"""Every number that is published was given noise of its own: which addresses of which key a release draws from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.arrays.vector import Held, Vector
from dpdist.grids.base import Noisy
from dpdist.machine import engine
from dpdist.machine.store import Store
from dpdist.privacy.distributions import Kind
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.release import story
from dpdist.release.context import Context, silent
from dpdist.release.measure import draw
from dpdist.release.story import Release
from dpdist.release.workspace import StoredVector
from dpdist.spec import load
from tests import small
from tests.often import always
from tests.properties.asked import AGES, FORMULAS, PURE, SERIES
from tests.readers import measured as exact_values

SHARDS = 4
"""Of every measurement here, the last one shorter where rows do not divide."""
Draw = tuple[bytes, int, int]
"""A key, and the addresses from and up to which it was drawn."""


def shard_rows(rows: int) -> int:
    """Of so many rows that make a few shards."""
    return max(1, -(-rows // SHARDS))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Draw]]:
    """Every draw that is made, and shards so small that every measurement has several."""
    found: list[Draw] = []
    plan, whole = Store.plan, Noise.draw

    def in_small_shards(self: Store, name: str, shape: Any, dtype: Any, **options: Any) -> Any:
        return plan(self, name, shape, dtype, **{"shard_rows": shard_rows(shape[0]), **options})

    def recorded(self: Noise, key: bytes, *, start: int = 0, count: int) -> Any:
        found.append((bytes(key), start, start + count))
        return whole(self, key, start=start, count=count)

    monkeypatch.setattr(Store, "plan", in_small_shards)
    monkeypatch.setattr(Noise, "draw", recorded)
    yield found
    monkeypatch.undo()


def run(path: Path, home: Path) -> tuple[Release, dict[str, Any]]:
    """The release, and what its stages handed on."""
    handed: dict[str, Any] = {}

    def step(name: str, work: Any) -> Any:
        handed[name] = work()
        return handed[name]

    context = Context(home, Store(home / "store"), engine.inline(), silent)
    return story.release(context, load(path), step=step), handed


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
    table, state = small.records(400), np.random.default_rng(4)
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
def test_a_release_draws_every_address_once(case: str, home: Path, drawn: list[Draw]) -> None:
    """One key; addresses that never meet; together one whole draw; and nothing else is in the measurement but exact integers."""
    mechanism = case.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    path = small.write(home.parent / "data", table=records(), mechanism=mechanism, **CASES[case])
    done, handed = run(path, home)
    assert done.plan.strategy.name == mechanism
    (key,) = {key for key, _, _ in drawn}
    ranges = sorted((start, stop) for _, start, stop in drawn)
    assert all(stop <= start for (_, stop), (start, _) in zip(ranges, ranges[1:], strict=False))
    if mechanism == "dawa":
        assert len(ranges) == 2  # one for what chooses the partition, one for its totals
        return
    rows = done.plan.grid.rows
    assert len(ranges) == -(-rows // shard_rows(rows)) > 1
    assert (ranges[0][0], ranges[-1][1]) == (0, rows)
    assert all(stop == start for (_, stop), (start, _) in zip(ranges, ranges[1:], strict=False))
    store, counts = Store(home / "store"), handed["count"][0]
    measured = store.read(handed["measure"][0])
    exact = exact_values(store, engine.inline(), done.plan.grid, counts, done.plan.layout)
    np.testing.assert_array_equal(measured - exact, done.plan.noise.draw(key, start=0, count=rows))


def test_every_release_of_a_stream_has_a_key_of_its_own(home: Path, drawn: list[Draw]) -> None:
    """Steps that were released are not drawn again; what is drawn for the next ones is not what was drawn for the first."""
    keys = []
    for number, through in enumerate((4, 8, 11)):
        changes = {**SERIES, "stream": {"name": "ages", "through": through}, "release": f"part-{number}"}
        table = small.records(400)
        kept = table.filter(pa.compute.less_equal(table["age"], through))
        drawn.clear()
        _, handed = run(small.write(home.parent / f"data-{number}", table=kept, **changes), home)
        size = Store(home / "store").read(handed["measure"][0]).size
        (key,) = {key for key, _, _ in drawn}
        ranges = sorted((start, stop) for _, start, stop in drawn)
        assert np.concatenate([np.arange(*part) for part in ranges]).tolist() == list(range(size))
        keys.append(key)
    assert len(set(keys)) == 3


@pytest.mark.parametrize("form", ["in memory", "stored"])
@pytest.mark.parametrize("kind", list(Kind))
def test_shards_of_any_size_are_parts_of_one_draw(tmp_path: Path, form: str, kind: Any, drawn: list[Draw]) -> None:
    store, noise, key = Store(tmp_path), Noise(kind, 1000), Secret(b"k" * 32)
    values = np.random.default_rng(0).integers(-50, 50, 11)
    kept = store.put("exact", values)
    exact: Vector = Held(values) if form == "in memory" else StoredVector(store, kept)
    measured = store.read(draw(store, "measured", Noisy(exact, key, noise), {}))
    whole = noise.draw(key.reveal(), start=0, count=values.size)
    np.testing.assert_array_equal(measured - values, whole)
    assert np.unique(whole).size > values.size - 3
    assert len(drawn) == 4 + 1  # the shards, and this test's own
