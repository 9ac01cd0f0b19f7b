"""Passes over a stored matrix, and the products and transforms made of them, against the same in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.fft

from dpdist import engine
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import AllRanges, Dense, Hadamard, Identity, Kronecker, Prefix, Total
from dpdist.passes import Side, Target, passes
from dpdist.sizes import Sizes
from dpdist.store import Store
from dpdist.stream import fourier, fourier_error, inverse_fourier, kronecker_matvec, roots, spectrum_shape

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
def test_slabs_do_not_change_what_comes_out(tmp_path: Path, slabs: int) -> None:
    store = Store(tmp_path, Sizes(shard_bytes=8 * 20))  # slabs cut across the shards of the source
    source = store.put("source", SOURCE.ravel())
    told: list[tuple[int, int]] = []
    out = passes(
        store,
        some_engine(slabs * 3 * 100),
        source,
        [Side(ROWS, first, 100), Side(COLUMNS, second, 90)],
        [Target("left", 4, np.int64, {"kept": 1}), Target("sums", 1, np.float64)],
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
    sides = [Side(ROWS, first, 90), Side(COLUMNS, second, 100)]
    with pytest.raises(OutOfMemory, match="one line of a product needs"):
        passes(store, some_engine(3 * 99), source, sides, [Target("left", 4, np.int64)])
    assert not store.exists("left")


@pytest.mark.parametrize("memory", [3 * 4000, 4 * 10**6])
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
def test_streamed_products(tmp_path: Path, operator: Kronecker, memory: int) -> None:
    store = Store(tmp_path, Sizes(shard_bytes=8 * 7))
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


def test_a_stored_hadamard_transform_is_the_whole_one() -> None:
    x = STATE.integers(0, 2**40, 2**7)
    np.testing.assert_array_equal(Kronecker([Hadamard(3), Hadamard(4)]).matvec(x), Hadamard(7).matvec(x))


def exact_spectrum(x: np.ndarray) -> np.ndarray:
    """The transform in extended precision, in the order of ``spectrum_shape``."""
    n1, n2 = spectrum_shape(x.size)
    half = scipy.fft.rfft(x.astype(np.longdouble))
    whole = np.concatenate([half, half[1 : (x.size + 1) // 2][::-1].conj()])
    k = np.arange(n1 // 2 + 1)[:, None] + n1 * np.arange(n2)
    return whole[k].ravel()


@pytest.mark.parametrize("n", [4, 16, 2**12, 3 * 2**10, 2 * 5**3 * 7, 2 * 31 * 37])
def test_stored_fourier_transforms(tmp_path: Path, n: int) -> None:
    """Every cut into slabs gives the same bytes, within the stated bound of the transform in extended precision, there and back."""
    x = STATE.integers(0, 1000, n)
    exact = exact_spectrum(x)
    found = []
    for memory in (3 * 16 * 3 * 4 * max(spectrum_shape(n)), 2**30):
        store = Store(tmp_path / str(memory))
        some = some_engine(memory)
        spectrum = fourier(store, some, store.put("x", x), "spectrum")
        back = inverse_fourier(store, some, spectrum, "back")
        found.append((store.read(spectrum), store.read(back)))
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()
    spectrum_found, back_found = found[0]
    bound = fourier_error(n)
    off = float(np.linalg.norm(spectrum_found - exact)) / float(np.linalg.norm(exact))
    assert off < bound
    assert off > 1e-4 * bound or n == 4
    assert float(np.linalg.norm(back_found - x)) < 3 * bound * float(np.linalg.norm(x))


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


def test_an_interrupted_transform_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    x = STATE.integers(0, 99, 2**10)
    source = store.put("x", x)
    some = some_engine(3 * 16 * 3 * 32 * 4)
    whole = store.read(fourier(store, some, source, "undisturbed"))
    written: list[str] = []
    original = Store.put_block

    def counting(self: Store, name: str, block: np.ndarray) -> str:
        written.append(name)
        if len(written) == stop_at:
            raise KeyboardInterrupt
        return original(self, name, block)

    monkeypatch.setattr(Store, "put_block", counting)
    stop_at = 0
    fourier(store, some, source, "counted", resume=True)
    every, written = len(written), []
    stop_at = every * 2 // 3
    with pytest.raises(KeyboardInterrupt):
        fourier(store, some, source, "resumed", resume=True)
    stop_at, written = 0, []
    np.testing.assert_array_equal(store.read(fourier(store, some, source, "resumed", resume=True)), whole)
    assert len(written) < every * 2 // 3
    assert not list(Path(tmp_path, "scratch").rglob("*.json"))


def test_series_without_a_divisor_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="pad it to a power of two"):
        spectrum_shape(2 * 999_983)
