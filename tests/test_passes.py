"""Two passes over a stored matrix, and the products made of them, against the same in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpdist import engine
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import AllRanges, Dense, Identity, Kronecker, Prefix, Total
from dpdist.passes import Side, Target, two_passes
from dpdist.store import Store
from dpdist.stream import kronecker_matvec

ROWS, WIDTH, COLUMNS = 13, 6, 9
STATE = np.random.default_rng(0)
SOURCE = STATE.integers(-50, 50, (ROWS, WIDTH))
RIGHT = STATE.integers(-3, 4, (WIDTH, COLUMNS))
LEFT = STATE.integers(-3, 4, (4, ROWS))


def first(start: int, slab: np.ndarray) -> np.ndarray:
    made = slab @ RIGHT + np.arange(start, start + slab.shape[0])[:, None]
    return made.T[:, :, None] * np.array([1, -1])


def second(start: int, gathered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    assert (gathered[:, :, 0] == -gathered[:, :, 1]).all()
    numbered = gathered[:, :, 0] @ LEFT.T + 1000 * np.arange(start, start + gathered.shape[0])[:, None]
    return numbered, gathered[:, :, 0].sum(axis=1).astype(np.float64)


def some_engine(memory: int) -> engine.Engine:
    return engine.Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True)


@pytest.mark.parametrize("slabs", [1, 2, 5, 100])
def test_slabs_do_not_change_what_comes_out(tmp_path: Path, slabs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.store.SHARD_BYTES", 8 * 20)  # slabs cut across the shards of the source
    store = Store(tmp_path)
    source = store.put("source", SOURCE.ravel())
    told: list[tuple[int, int]] = []
    out = two_passes(
        store,
        some_engine(slabs * 4 * 100),
        source,
        rows=ROWS,
        columns=COLUMNS,
        first=Side(first, 100),
        second=Side(second, 90),
        targets=[Target("left", 4, np.int64, {"kept": 1}), Target("sums", 1, np.float64, {})],
        on_done=lambda done, total: told.append((done, total)),
    )
    both = SOURCE @ RIGHT + np.arange(ROWS)[:, None]
    np.testing.assert_array_equal(store.read(out[0]), (both.T @ LEFT.T + 1000 * np.arange(COLUMNS)[:, None]).ravel())
    np.testing.assert_array_equal(store.read(out[1]), both.sum(axis=0))
    assert store.open("left").facts == {"kept": 1}
    assert told[-1][0] == told[-1][1]
    assert not list(Path(tmp_path, "scratch").rglob("*.json"))


def test_a_row_that_does_not_fit_is_refused_with_numbers(tmp_path: Path) -> None:
    store = Store(tmp_path)
    source = store.put("source", SOURCE.ravel())
    with pytest.raises(OutOfMemory, match="one column of a product needs"):
        two_passes(
            store,
            some_engine(4 * 99),
            source,
            rows=ROWS,
            columns=COLUMNS,
            first=Side(first, 90),
            second=Side(second, 100),
            targets=[Target("left", 4, np.int64, {})],
        )
    assert not store.exists("left")


@pytest.mark.parametrize("memory", [4 * 4000, 4 * 10**6])
@pytest.mark.parametrize(
    "operator",
    [
        Kronecker([Prefix(5), AllRanges(4), Identity(3)]),
        Kronecker([Dense(STATE.standard_normal((3, 7))), Total(4), Prefix(5)]),
        Kronecker([Prefix(11)]),
        Kronecker([Total(6), Identity(5)]),
    ],
    ids=lambda operator: str(operator.shape),
)
def test_streamed_products(tmp_path: Path, operator: Kronecker, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.store.SHARD_BYTES", 8 * 7)
    store = Store(tmp_path)
    x = STATE.integers(0, 2**45, operator.shape[1])
    found = store.read(kronecker_matvec(store, some_engine(memory), operator, store.put("x", x), "wx"))
    expected = operator.matvec(x)
    if operator.integral:
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(InvalidInput, match="cannot be applied"):
        kronecker_matvec(store, some_engine(memory), operator, store.put("y", x[1:]), "wy")
