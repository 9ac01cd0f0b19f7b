"""W'W of rows that are read or made block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr

from dpdist import engine, workloads
from dpdist.domain import Domain
from dpdist.errors import InvalidInput, OutOfMemory, StoreError
from dpdist.operators import Generated, TallMatrix
from dpdist.operators.out_of_core import mirror_upper, row_gram
from dpdist.planner import strategy_search
from dpdist.runtime.context import Context
from dpdist.runtime.gram_computation import ENTRY_BYTES, WORKER_SHARE, block_columns, gram, stored_gram, task_bytes
from dpdist.size_limits import SIZES, Sizes
from dpdist.storage.array_store import Store
from dpdist.storage.zarr_matrices import zarr_rows
from tests.case_selection import always

STATE = np.random.default_rng(11)
KINDS: dict[str, Any] = {
    "signs": STATE.integers(-1, 2, (3000, 60)).astype(np.int8),
    "all of int8": STATE.integers(-128, 128, (3000, 60)).astype(np.int8),
    "flags": STATE.random((500, 33)) < 0.2,
    "wide integers": STATE.integers(0, 60_000, (500, 20)).astype(np.uint16),
    "beyond single precision": STATE.integers(-(2**20), 2**20, (400, 20)),
    "whole float32": STATE.integers(-3, 4, (900, 25)).astype(np.float32),
    "float64": STATE.standard_normal((700, 25)),
    "sparse": scipy.sparse.random_array((800, 40), density=0.1, rng=STATE, format="csr"),
    "zeros": np.zeros((300, 7), dtype=np.int8),
}


@dataclass(frozen=True)
class ArrayRows:
    """A row source over an array in memory."""

    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape

    def read(self, start: int, stop: int) -> Any:
        return self.array[start:stop]


def truth(array: Any) -> np.ndarray:
    dense = array.toarray() if scipy.sparse.issparse(array) else np.asarray(array)
    exact = dense.astype(np.float64 if dense.dtype.kind == "f" else np.int64)
    return exact.T @ exact


MANY_BLOCKS = Sizes(row_block_bytes=8 * 40 * 97, single_rows=8)


@pytest.mark.parametrize("sizes", [SIZES, MANY_BLOCKS], ids=["one block", "many blocks"])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_whole_numbers_are_exact(kind: str, sizes: Sizes) -> None:
    array = KINDS[kind]
    expected = truth(array)
    upper = row_gram(ArrayRows(array), 0, array.shape[0], sizes=sizes)
    assert not np.tril(upper, -1).any()
    found = mirror_upper(upper)
    if kind in ("float64", "sparse"):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    else:
        np.testing.assert_array_equal(found, expected)
    n = array.shape[1]
    left, right = slice(n // 2, n), slice(0, n // 3)
    part = row_gram(ArrayRows(array), 0, array.shape[0], left, right, sizes)
    np.testing.assert_allclose(part, expected[left, right], rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    some = mirror_upper(row_gram(ArrayRows(array), 7, 200, sizes=sizes))
    np.testing.assert_allclose(some, truth(array[7:200]), rtol=1e-12, atol=1e-9)


def test_single_precision_alone_would_be_wrong() -> None:
    """The bound is needed: the same sum in float32 loses the odd counts above 2^24."""
    ones = np.broadcast_to(np.int8(1), (2**24 + 3, 1))
    assert row_gram(ArrayRows(ones), 0, ones.shape[0])[0, 0] == 2**24 + 3
    assert np.float32(2**24) + np.float32(1) == np.float32(2**24)


def generate_rows(kind: str, start: int, stop: int) -> Any:
    return KINDS[kind][start:stop]


@pytest.fixture(scope="module")
def cluster() -> Iterator[engine.Engine]:
    with engine.open_engine(workers=2) as started:
        yield started


@pytest.mark.parametrize("memory", always([2 * (28 * 16**2 + 3)], [2**33, 2 * (28 * 16**2 + 3)]))
@pytest.mark.parametrize("kind", always(["sparse"], ["signs", "float64", "sparse"]))
def test_stored_grams_are_the_same_for_every_cut(tmp_path: Path, kind: str, memory: int) -> None:
    """Several blocks of V and several ranges of rows, however the memory of a worker cuts them."""
    sizes = Sizes(gram_entries=5000, row_block_bytes=1, gram_columns=16)
    assert block_columns(60, memory, sizes) == (16 if memory < 2**30 else 60)
    some = engine.Engine(workers=3, memory_bytes=memory, threads=1, connect=None, local=True)
    source = Generated(KINDS[kind].shape, partial(generate_rows, kind))
    stored = stored_gram(Store(tmp_path, sizes), some, source, "gram")
    expected = truth(KINDS[kind])
    tolerance = 0 if kind == "signs" else 1e-12
    np.testing.assert_allclose(Store(tmp_path).read_array(stored), expected, rtol=tolerance, atol=tolerance)
    assert task_bytes(60, memory, sizes) <= memory // 2
    assert task_bytes(60, 2**33, Sizes(row_block_bytes=1000)) == 28 * 60**2 + 3 * 1000


def test_on_workers_and_resumed(tmp_path: Path, cluster: engine.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in Zarr, tasks on processes; parts that a killed sum wrote are not summed again."""
    zarr.save_array(tmp_path / "w.zarr", KINDS["signs"])
    source = zarr_rows(str(tmp_path / "w.zarr"))
    store = Store(tmp_path / "store", Sizes(gram_entries=5000))
    inline = engine.Engine(workers=2, memory_bytes=2**30, threads=1, connect=None, local=True)
    calls: list[int] = []

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return row_gram(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("dpdist.runtime.gram_computation.row_gram", failing)
        with pytest.raises(KeyboardInterrupt):
            stored_gram(store, inline, source, "gram")
    calls.clear()
    with monkeypatch.context() as patched:
        patched.setattr("dpdist.runtime.gram_computation.row_gram", lambda *a: calls.append(1) or row_gram(*a))
        found = stored_gram(store, inline, source, "gram")
    assert len(calls) == 8 - 2
    np.testing.assert_array_equal(store.read_array(found), truth(KINDS["signs"]))
    cluster.exchange = Store(tmp_path / "other")
    again = stored_gram(Store(tmp_path / "other"), cluster, source, "gram")
    assert again.digest == found.digest


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    small = engine.Engine(workers=1, memory_bytes=2**20, threads=1, connect=None, local=True)
    with pytest.raises(
        OutOfMemory, match="a block of the gram W'W needs 0.38 GiB, 0.00 GiB allowed: give the workers more memory"
    ):
        stored_gram(Store(tmp_path), small, ArrayRows(KINDS["signs"]), "gram")
    with pytest.raises(OutOfMemory, match="the gram W'W needs"):
        gram(Store(tmp_path), small, workloads.prefix(600))


def test_a_worker_that_holds_columns_but_no_block_is_refused() -> None:
    """A block is as high as it is wide: what holds a row of it, and even half of it, does not hold it."""
    block = ENTRY_BYTES * SIZES.gram_columns**2
    beside = 3 * SIZES.row_block_bytes
    assert block_columns(10**6, WORKER_SHARE * (block + beside)) == SIZES.gram_columns
    for held in (ENTRY_BYTES * SIZES.gram_columns, block // 2, block - 1):
        with pytest.raises(OutOfMemory, match="a block of the gram"):
            block_columns(10**6, WORKER_SHARE * (held + beside))


def test_sparse_and_dense_rows_in_zarr(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_array(KINDS["sparse"])
    group = zarr.create_group(tmp_path / "sparse.zarr", attributes={"shape": list(matrix.shape)})
    for name in ("indptr", "indices", "data"):
        group.create_array(name, data=getattr(matrix, name), chunks=(100,))
    source = zarr_rows(str(tmp_path / "sparse.zarr"))
    assert source.shape == matrix.shape
    np.testing.assert_array_equal(source.read(17, 300).toarray(), matrix[17:300].toarray())
    zarr.save_array(tmp_path / "cube.zarr", np.zeros((2, 2, 2)))
    zarr.create_group(tmp_path / "empty.zarr")
    for name, message in (("cube", "has 3 dimensions"), ("empty", "is not a Zarr array"), ("none", "is not a Zarr array")):
        with pytest.raises(StoreError, match=message):
            zarr_rows(str(tmp_path / f"{name}.zarr"))


def test_every_part_of_a_stored_gram_is_told_as_progress(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    context = Context(tmp_path, Store(tmp_path / "store"), engine.inline(), lambda *line: told.append(line))
    strategy_search.Planning(context).gram(workloads.tall(ArrayRows(KINDS["signs"])))
    parts = len(told)
    assert told == [("plan", f"{done} of {parts} parts of W'W") for done in range(1, parts + 1)] != []


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1j, "a"])
def test_bad_entries_are_refused(bad: Any) -> None:
    array = np.zeros((50, 4), dtype=type(bad) if isinstance(bad, str) else np.asarray(bad).dtype)
    array[40, 2] = bad
    with pytest.raises(InvalidInput, match="NaN or infinite|real numbers"):
        workloads.tall(ArrayRows(array))


def test_a_source_that_lies_about_its_shape() -> None:
    with pytest.raises(InvalidInput, match="rows 0 to 9 of 3 columns were asked for, found shape"):
        workloads.tall(Generated((9, 3), lambda start, stop: np.zeros((stop - start, 4))))
    with pytest.raises(InvalidInput, match="zero everywhere"):
        workloads.tall(ArrayRows(KINDS["zeros"]))


@pytest.mark.parametrize("weight", [lambda w: w, workloads.relative])
def test_tall_workloads_are_explicit_ones(tmp_path: Path, weight: Callable[..., Any]) -> None:
    """The same gram, answers, norms and names as rows in memory; relative errors, too."""
    array = KINDS["float64"]
    domain = Domain.of_shape((5, 5))
    tall, held = (weight(make) for make in (workloads.tall(ArrayRows(array), domain), workloads.explicit(array, domain)))
    np.testing.assert_allclose(tall.gram(), held.gram(), rtol=1e-12, atol=1e-9)
    here, few_entries = engine.inline(), Store(tmp_path, Sizes(gram_entries=array.size - 1))
    for workload in (tall, held):  # rows in memory go through the store, too, where there are many
        np.testing.assert_allclose(gram(few_entries, here, workload), held.gram(), rtol=1e-12, atol=1e-9)
    assert len(few_entries.names("grams")) == 2 * len(few_entries.names("rows")) > 0
    np.testing.assert_allclose(tall.operator.column_norms_l1(), held.operator.column_norms_l1(), rtol=1e-12)
    assert tall.operator.frobenius_squared == pytest.approx(held.operator.frobenius_squared)
    assert tall.operator.longest_row_squared == pytest.approx(held.operator.longest_row_squared)
    (first,), (second,) = tall.blocks, held.blocks
    assert first.row_labels(3, 6) == second.row_labels(3, 6)
    np.testing.assert_allclose(tall.rows(slice(10, 20)), held.rows(slice(10, 20)), rtol=1e-15)


def test_fingerprints_follow_the_content() -> None:
    array = KINDS["signs"]
    changed = array.copy()
    changed[2999, 59] += 1
    assert (
        TallMatrix(ArrayRows(array)).fingerprint
        == TallMatrix(Generated(array.shape, partial(generate_rows, "signs"))).fingerprint
    )
    assert TallMatrix(ArrayRows(array)).fingerprint != TallMatrix(ArrayRows(changed)).fingerprint
