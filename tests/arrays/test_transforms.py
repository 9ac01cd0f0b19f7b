"""Passes, transforms and products through the store against the same in memory, and both against plain NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdist import engine
from dpdist.arrays.array_workspace import MEMORY, Workspace
from dpdist.arrays.convolution import exact_convolution
from dpdist.arrays.fourier import fourier, inverse_fourier, roots, stored_shape
from dpdist.arrays.kronecker_transform import hadamard, kronecker_product
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, to_array
from dpdist.arrays.transpose_passes import Target, TransformPass, cut, slab_bytes
from dpdist.errors import InvalidInput, OutOfMemory, StoreError
from dpdist.operators import AllRanges, Dense, Hadamard, Identity, Kronecker, Prefix, Total
from dpdist.runtime.stored_vectors import KeepingWorkspace, StoreWorkspace
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store, StoredPart

ROWS, WIDTH, COLUMNS = 13, 6, 9
STATE = np.random.default_rng(0)
SOURCE = STATE.integers(-50, 50, (ROWS, WIDTH))
RIGHT = STATE.integers(-3, 4, (WIDTH, COLUMNS))
LEFT = STATE.integers(-3, 4, (4, ROWS))


def stored(folder: Path, memory: int = 2**30, **sizes: int) -> StoreWorkspace:
    some = engine.Engine(workers=2, memory_bytes=memory, threads=1, connect=None, local=True)
    return StoreWorkspace(Store(folder, Sizes(**sizes)), some)


def scratch_arrays(folder: Path) -> set[str]:
    """The arrays and tiles that are still in the store's scratch."""
    return {path.parent.name for path in Path(folder, "scratch").rglob("manifest.json")}


def transform_rows(start: int, slab: np.ndarray) -> np.ndarray:
    transformed = slab @ RIGHT + np.arange(start, start + slab.shape[0])[:, None]
    return transformed.T[:, :, None] * np.array([1, -1])


def transform_columns(start: int, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    assert (columns[:, :, 0] == -columns[:, :, 1]).all()
    numbered = columns[:, :, 0] @ LEFT.T + 1000 * np.arange(start, start + columns.shape[0])[:, None]
    return numbered, columns[:, :, 0].sum(axis=1).astype(np.float64)


@pytest.mark.parametrize(("slabs", "tiles"), [(0, 1), (1, 1), (1, 1000), (2, 1), (5, 1), (100, 1)])
def test_slabs_do_not_change_what_comes_out(tmp_path: Path, slabs: int, tiles: int) -> None:
    """Slabs cut across the shards of the source, and their tiles are put together between passes or not; 0: in memory."""
    work: Workspace = stored(tmp_path, slabs * 3 * 100, shard_bytes=8 * 20, tiles=tiles) if slabs else MEMORY
    told: list[tuple[int, int]] = []
    out = work.run_passes(
        work.write(ArrayVector(SOURCE.ravel())),
        [TransformPass(ROWS, transform_rows, 100), TransformPass(COLUMNS, transform_columns, 90)],
        [Target(4, np.int64, "left", {"kept": 1}), Target(1, np.float64)],
        lambda done, total: told.append((done, total)),
    )
    both = SOURCE @ RIGHT + np.arange(ROWS)[:, None]
    np.testing.assert_array_equal(to_array(out[0]), (both.T @ LEFT.T + 1000 * np.arange(COLUMNS)[:, None]).ravel())
    np.testing.assert_array_equal(to_array(out[1]), both.sum(axis=0))
    assert told[-1][0] == told[-1][1]
    if isinstance(work, StoreWorkspace):
        assert work.store.open("left").facts == {"kept": 1}
        work.delete(*out)
        assert work.store.exists("left")
        assert len(scratch_arrays(tmp_path)) == 1  # the source


def test_what_passes_leave_behind_grows_with_their_tasks(tmp_path: Path) -> None:
    """One object and a record a task, however many tiles; slabs of the last pass are several shards of one line each."""
    work = stored(tmp_path, 3 * 400, shard_bytes=16)
    sides = [TransformPass(ROWS, transform_rows, 100), TransformPass(COLUMNS, transform_columns, 90)]
    targets = [Target(4, np.int64, "left"), Target(1, np.float64)]
    source = work.write(ArrayVector(SOURCE.ravel()))
    divided = cut(source, sides, targets, work.memory_bytes, work.store.sizes)
    tasks = [len(slabs) for slabs in divided.slabs]
    assert (divided.shard_lines, divided.slabs[1][0]) == (1, (0, 2))
    before, most = files(tmp_path), [0]
    work.run_passes(
        source, sides, targets, lambda done, total: most.append(files(tmp_path) - before) if done <= tasks[0] else None
    )
    assert max(most) == 2 * tasks[0] < tasks[0] * tasks[1]
    both = SOURCE @ RIGHT + np.arange(ROWS)[:, None]
    np.testing.assert_array_equal(work.store.read_array(work.store.open("left"))[:4], (both.T @ LEFT.T)[0])
    assert work.store.open("left").plan.shards == COLUMNS


@pytest.mark.parametrize("tiles", [1, ROWS * COLUMNS])
def test_tiles_are_put_together_where_they_are_many(tmp_path: Path, tiles: int) -> None:
    """13 tasks and 9 slabs: 117 tiles are read one by one, or 3 slabs' tiles of each task at once and then 5 objects a slab.

    Each merged object holds no more values than a slab of the two passes does on average, and nothing of it is left.
    """
    work = stored(tmp_path, 3 * 100, shard_bytes=16, tiles=tiles)
    source, read, wrote = work.write(ArrayVector(SOURCE.ravel())), list[int](), dict[str, int]()
    plain_get, plain_put = Store.get_blocks, Store.put_values

    def record_blocks_read(self: Store, parts: Iterable[StoredPart]) -> Iterator[np.ndarray]:
        some = list(parts)
        read.append(len(some))
        return plain_get(self, some)

    def record_block_written(self: Store, name: str, block: np.ndarray) -> None:
        wrote[name] = block.size
        plain_put(self, name, block)

    with (
        mock.patch.object(Store, "get_blocks", record_blocks_read),
        mock.patch.object(Store, "put_values", record_block_written),
    ):
        sides = [TransformPass(ROWS, transform_rows, 100), TransformPass(COLUMNS, transform_columns, 90)]
        work.run_passes(source, sides, [Target(4, np.int64, "left"), Target(1, np.float64)])
    merged = [size for name, size in wrote.items() if "-merged/" in name and name.endswith("/values")]
    if tiles == 1:
        assert (len(merged), sum(read)) == (15, 3 * ROWS + 5 * COLUMNS)
        assert max(merged) <= math.sqrt((2 * COLUMNS) * (2 * ROWS))
    else:
        assert (merged, sum(read)) == ([], ROWS * COLUMNS)
    assert len(scratch_arrays(tmp_path)) == 2  # the source and the unnamed target


def test_a_tile_that_was_altered_before_it_was_put_together_is_found(tmp_path: Path) -> None:
    work, plain = stored(tmp_path, 3 * 100, tiles=1), Store.put_values

    def altered(self: Store, name: str, block: np.ndarray) -> None:
        plain(self, name, block + (name.endswith("/0/7/values")))

    sides, source = (
        [TransformPass(ROWS, transform_rows, 100), TransformPass(COLUMNS, transform_columns, 90)],
        work.write(ArrayVector(SOURCE.ravel())),
    )
    with mock.patch.object(Store, "put_values", altered), pytest.raises(StoreError, match="was truncated or altered"):
        work.run_passes(source, sides, [Target(4, np.int64, "left"), Target(1, np.float64)])
    assert not work.store.exists("left")


def files(folder: Path) -> int:
    """Objects in a store."""
    return sum(path.is_file() for path in folder.rglob("*"))


def test_slabs_grow_with_the_vector_as_far_as_memory_allows() -> None:
    """10^11 cells on workers of 16 GiB: tiles stay above 1 MiB; 512 MiB is enough for what fits on a machine."""
    assert slab_bytes(16 * 2**30, 2**30) == slab_bytes(16 * 2**30, 2**31) == 2**29
    assert slab_bytes(16 * 2**30, 10**11) == math.isqrt(64 * 10**11 * 2**20) > 2**31
    assert slab_bytes(3 * 2**30, 10**11) == 2**30


def test_a_row_that_does_not_fit_is_refused_with_numbers(tmp_path: Path) -> None:
    work = stored(tmp_path, 3 * 99)
    sides = [TransformPass(ROWS, transform_rows, 90), TransformPass(COLUMNS, transform_columns, 100)]
    with pytest.raises(OutOfMemory, match="one line of a product needs"):
        work.run_passes(work.write(ArrayVector(SOURCE.ravel())), sides, [Target(4, np.int64, "left")])
    assert not work.store.exists("left")


def test_unnamed_vectors_are_gone_at_the_end_of_their_scratch(tmp_path: Path) -> None:
    work = stored(tmp_path)
    with work.scratch() as inner:
        kept = work.write(inner.write(ArrayVector(SOURCE.ravel())))
        inner.write(ArrayVector(SOURCE.ravel()), "named", {"of": "source"})
        inner.delete(kept)  # another workspace's
    np.testing.assert_array_equal(to_array(kept), SOURCE.ravel())
    named, facts = work.find_vector("named") or (None, {})
    assert named is not None
    assert facts == {"of": "source"}
    assert len(scratch_arrays(tmp_path)) == 1
    assert work.find_vector("another") is None


def test_of_vectors_computed_at_once_the_first_is_kept(tmp_path: Path) -> None:
    work = stored(tmp_path)

    def slow(start: int, count: int) -> np.ndarray:
        if not work.store.exists("kept"):
            work.store.put("kept", np.arange(5))  # another process was faster
        return np.arange(start, start + count) + 1

    late = LazyVector(5, (), slow, 8, "late", np.dtype(np.int64))
    np.testing.assert_array_equal(to_array(work.write(late, "kept")), np.arange(5))
    np.testing.assert_array_equal(
        to_array(KeepingWorkspace(work.store).write(ArrayVector(np.arange(5.0)), "kept")), np.arange(5)
    )
    with (
        mock.patch.object(Store, "begin", side_effect=StoreError("the disk is full")),
        pytest.raises(StoreError, match="disk"),
    ):
        work.write(late, "others")


@pytest.mark.parametrize("memory", [0, 3 * 4000, 4 * 10**6])
@pytest.mark.parametrize(
    "operator",
    [
        Kronecker([Prefix(5), AllRanges(4), Identity(3)]),
        Kronecker([Dense(STATE.standard_normal((3, 7))), Total(4), Prefix(5)]),
        Kronecker([Prefix(11)]),
        Kronecker([Total(6), Identity(5)]),
        Kronecker([Hadamard(3), Hadamard(4)]),
    ],
    ids=lambda operator: str(operator.shape),
)
def test_kronecker_products(tmp_path: Path, operator: Kronecker, memory: int) -> None:
    work: Workspace = stored(tmp_path, memory, shard_bytes=8 * 7) if memory else MEMORY
    x = STATE.integers(0, 2**45, operator.shape[1])
    found = to_array(kronecker_product(work, operator, work.write(ArrayVector(x))))
    expected = operator.matvec(x)
    if operator.integral:
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(InvalidInput, match="cannot be applied"):
        kronecker_product(work, operator, ArrayVector(x[1:]))


@pytest.mark.parametrize("bits", [0, 1, 7])
def test_hadamard_transforms(tmp_path: Path, bits: int) -> None:
    x = STATE.integers(0, 2**40, 2**bits)
    for work in (MEMORY, stored(tmp_path)):
        np.testing.assert_array_equal(to_array(hadamard(work, ArrayVector(x))), Hadamard(bits).matvec(x))


def exact_spectrum(x: np.ndarray) -> np.ndarray:
    """The transform in extended precision, in the order of ``stored_shape``."""
    n1, n2 = stored_shape(x.size)
    half = scipy.fft.rfft(x.astype(np.longdouble))
    whole = np.concatenate([half, half[1 : (x.size + 1) // 2][::-1].conj()])
    k = np.arange(n1 // 2 + 1)[:, None] + n1 * np.arange(n2)
    return whole[k].ravel()


def fourier_error(n: int) -> float:
    """Bound of ||computed - exact|| / ||exact||: log2 N levels of at most 6.7 u each (Higham 2002, Theorem 24.2) and a twiddle.

    Radices beyond 2 do no more work a level; primes take Bluestein's three transforms of twice the length.
    """
    return float(2.0**-53 * (6.7 * 3 * np.log2(4 * n) + 4.0))


@pytest.mark.parametrize("n", [4, 16, 2**12, 3 * 2**10, 2 * 5**3 * 7, 2 * 31 * 37])
def test_stored_fourier_transforms(tmp_path: Path, n: int) -> None:
    """Every cut into slabs gives the same bytes, within the stated bound of the transform in extended precision, there and back."""
    x = STATE.integers(0, 1000, n)
    exact = exact_spectrum(x)
    found = []
    for memory in (3 * 16 * 3 * 4 * max(stored_shape(n)), 2**30):
        work = stored(tmp_path / str(memory), memory)
        spectrum = fourier(work, work.write(ArrayVector(x)))
        found.append((to_array(spectrum.values), to_array(inverse_fourier(work, spectrum))))
        weights = spectrum.times(0, spectrum.values.size)
        energy = float(weights @ np.abs(found[-1][0]) ** 2)
        assert energy == pytest.approx(n * float(x @ x), rel=1e-12)  # Parseval
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()
    spectrum_found, back_found = found[0]
    bound = fourier_error(n)
    off = float(np.linalg.norm(spectrum_found - exact)) / float(np.linalg.norm(exact))
    assert off < bound
    assert off > 1e-4 * bound or n == 4
    assert float(np.linalg.norm(back_found - x)) < 3 * bound * float(np.linalg.norm(x))


@pytest.mark.parametrize("n", [1, 2, 9, 12, 997])
def test_fourier_transforms_in_memory(n: int) -> None:
    x = STATE.integers(0, 1000, (2, n))
    spectrum = fourier(MEMORY, ArrayVector(x))
    weights = spectrum.times(0, spectrum.values.size)
    np.testing.assert_allclose(np.abs(to_array(spectrum.values)) ** 2 @ weights, n * (x**2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(to_array(inverse_fourier(MEMORY, spectrum)), x, atol=1e-9)


def test_roots_of_unity_are_within_an_ulp() -> None:
    for n in (1, 2, 3, 8, 12, 1000, 2**20):
        powers = np.concatenate([np.arange(-3, 5), STATE.integers(0, n**2, 50)])
        angle = 2 * np.longdouble(np.pi) * (powers % n).astype(np.longdouble) / n
        correction = (
            (2 * np.longdouble("3.14159265358979323846264338327950288") - 2 * np.longdouble(np.pi)) * (powers % n) / n
        )
        exact = np.cos(angle + correction) + 1j * np.sin(angle + correction)
        assert float(np.abs(roots(powers, n) - exact).max()) < 2.3e-16
    np.testing.assert_array_equal(roots(np.arange(4), 4), [1, 1j, -1, -1j])


def test_series_without_a_divisor_are_refused() -> None:
    with pytest.raises(InvalidInput, match="pad it to a power of two"):
        stored_shape(2 * 999_983)


def folded(a: np.ndarray, b: np.ndarray, length: int) -> np.ndarray:
    """The convolution around a circle in Python integers."""
    out = np.zeros(length, dtype=object)
    for i, tap in enumerate(a.tolist()):
        np.add.at(out, (i + np.arange(b.size)) % length, tap * b.astype(object))
    return out


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_convolutions_are_exact(data: st.DataObject) -> None:
    """Around circles of any length; two vectors held together are convolved one by one."""
    seed, n, k = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90))
    bits, counts = data.draw(st.integers(1, 31)), data.draw(st.integers(1, 24))
    length = data.draw(st.integers(max(n, k), n + k + 3))
    state = np.random.default_rng(seed)
    a, b = state.integers(-(2**bits), 2**bits, k), state.integers(0, 2**counts, (2, n))
    found = to_array(exact_convolution(MEMORY, ArrayVector(a), ArrayVector(b), length))
    assert (found.astype(object) == np.stack([folded(a, row, length) for row in b])).all()


@pytest.mark.parametrize(
    ("bits", "length"),
    [
        pytest.param(bits, length, marks=() if (length == 64) == bool(bits % 2) else pytest.mark.slow)
        for bits in (2, 3, 9, 10, 11, 19, 20, 21, 30)
        for length in (64, 100)
    ],
)
def test_convolutions_through_the_store_are_those_in_memory(bits: int, length: int, tmp_path: Path) -> None:
    """Also where the largest values need one limb more than their bits say."""
    work, state, largest = (
        stored(tmp_path, shard_bytes=8 * 9, part_values=7),
        np.random.default_rng(bits),
        2 ** (bits - 1) - 1,
    )
    left, right = (state.integers(-largest, largest + 1, 64) for _ in range(2))
    left[:4], right[:3] = (largest, -largest, largest, largest), (largest, -largest, largest)
    one, other = (work.write(ArrayVector(values)) for values in (left, right))
    found = exact_convolution(work, one, other, length)
    np.testing.assert_array_equal(to_array(found), folded(left, right, length).astype(np.int64))
    np.testing.assert_array_equal(to_array(found), to_array(exact_convolution(MEMORY, one, other, length)))
    work.delete(one, other, found)
    assert not scratch_arrays(tmp_path)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_wrong_convolution_is_found(in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limbs that are too wide for the transform's precision: a convolution is refused or happens to be right, and it is mostly refused."""
    work: Workspace = MEMORY if in_memory else stored(tmp_path)
    state, refused, ones = np.random.default_rng(0), 0, np.full(4096, 2**20 + 1)
    drawn = [np.rint(2.0**29 * state.standard_normal(4096)).astype(np.int64) for _ in range(6)]
    exact = [exact_convolution(work, ArrayVector(taps), ArrayVector(ones), 4096) for taps in drawn]
    monkeypatch.setattr("dpdist.arrays.convolution.limb_width", lambda widest, length, lengths: lengths(31) and 31)
    for taps, right in zip(drawn, exact, strict=True):
        with suppress(FloatingPointError):
            convolved = exact_convolution(work, ArrayVector(taps), ArrayVector(ones), 4096)
            np.testing.assert_array_equal(to_array(convolved), to_array(right))
            continue
        refused += 1
    assert refused >= 3


@pytest.mark.parametrize(("memory", "together"), [(2**30, 4), (8 * 2 * 8 * 16, 2), (1, 1)])
def test_a_scan_reads_about_a_shard_at_once(tmp_path: Path, memory: int, together: int) -> None:
    """Every byte of shards that passes wrote is read twice at most, where memory allows; what comes out is the same."""
    work = stored(tmp_path, memory, part_values=16, shard_bytes=8 * 32)
    values, store = STATE.normal(size=1999), work.store
    plan = store.plan("scanned", values.shape, np.float64, shard_rows=60)
    store.begin(plan)
    digests = [store.write_shard(plan, shard, values[slice(*plan.bounds(shard))]) for shard in range(plan.shards)]
    vector = work.vector(store.finish(plan, digests))
    with mock.patch.object(Store, "read_shard", autospec=True, side_effect=Store.read_shard) as reads:
        found = work.fold(lambda start, part: (start, part.tolist()), vector)
    assert found == [(start, values[start : start + 16].tolist()) for start in range(0, values.size, 16)]
    for ranges in ([(10, 20), (20, 90), (300, 301), (500, 700)], [(900, 1000), (950, 960), (0, 5), (5, 9)]):
        found = work.fold(lambda start, part: (start, part.tolist()), vector, ranges=ranges)
        assert found == [(start, values[start:stop].tolist()) for start, stop in ranges]
    assert reads.call_count * 60 <= values.size * (1 + 60 / (16 * together)) + 60
