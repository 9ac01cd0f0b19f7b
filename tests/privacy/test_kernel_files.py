"""Compiled kernels on disk: read when they are whole and of these sources, and of no influence on any number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.registry import cpu_target

from dpdist.privacy import kernel_files, sampler, sampler_kernels
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.process.durable_files import private_files

KEY, SCALE = bytes(range(32)), Fraction(10**6 + 1, 3)


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Any, Any]]:
    """Draws samples with a kernel of its own whose files lie in a folder of the test; gives them, and how the kernel was had."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a folder that is named is written nevertheless

    def samples() -> tuple[Any, Any]:
        made = sampler_kernels._kernel(GAUSSIAN, whole=False)
        monkeypatch.setitem(sampler_kernels._KERNEL, (GAUSSIAN, False), made)
        return sampler.samples(GAUSSIAN, KEY, SCALE, 0, 50_000, 1), made

    return samples


def kernel_file(folder: Path) -> Path:
    (only,) = folder.glob("*.kernel")
    return only


def types_of(made: Any) -> tuple[Any, ...]:
    """Of the arguments that a kernel was called with."""
    (signature,) = made.nopython_signatures
    return tuple(signature.args)


def loaded(made: Any) -> Any:
    """The kernel that is read from disk for the types that it was called with."""
    return made._cache.load_overload(types_of(made), cpu_target.target_context)


def test_a_kernel_is_read_back_and_gives_the_same_samples(draw: Callable[[], tuple[Any, Any]], tmp_path: Path) -> None:
    compiled, first = draw()
    read, second = draw()
    assert (sum(first.stats.cache_hits.values()), sum(second.stats.cache_hits.values())) == (0, 1)
    np.testing.assert_array_equal(compiled, read)
    exact = [sampler.samples(GAUSSIAN, KEY, SCALE, start, 1, 1)[0] for start in (0, 49_999)]
    assert exact == [compiled[0], compiled[-1]]


def test_a_file_that_is_not_whole_is_compiled_anew(draw: Callable[[], tuple[Any, Any]], tmp_path: Path) -> None:
    samples, made = draw()
    path = kernel_file(tmp_path)
    whole = path.read_bytes()
    assert loaded(made) is not None
    state = np.random.default_rng(3)
    broken = [b"", whole[:31], whole[:32], whole[:-1], whole + b"\0", b"\x80\x05" + whole, bytes(len(whole))]
    for place in (0, 31, 32, *state.integers(33, len(whole), 20)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(state.integers(8))
        broken.append(bytes(flipped))
    for content in broken:
        path.write_bytes(content)
        assert loaded(made) is None
    again, made = draw()
    assert sum(made.stats.cache_misses.values()) == 1
    np.testing.assert_array_equal(samples, again)
    assert loaded(made) is not None  # written over


def test_a_kernel_of_other_constants_sources_or_versions_is_not_read(
    draw: Callable[[], tuple[Any, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = draw()
    cache = made._cache
    assert loaded(made) is not None
    with monkeypatch.context() as changed:
        changed.setattr(cache, "_constants", (*cache._constants, 1))
        assert loaded(made) is None
    source = tmp_path / "sampler_kernels.py"  # of the same name, so that the file of the kernel is the same
    source.write_bytes(Path(sampler_kernels.__file__).read_bytes() + b"\n")
    with monkeypatch.context() as changed:
        changed.setattr(cache, "_source", source)
        assert loaded(made) is None
    with monkeypatch.context() as changed:
        changed.setattr(kernel_files.numba, "__version__", "0")
        assert loaded(made) is None
    with monkeypatch.context() as changed:
        changed.setattr(cache, "_name", "gaussian-whole")
        kernel_file(tmp_path).rename(cache._path(types_of(made), cpu_target.target_context.codegen()))
        assert loaded(made) is None


def test_kernels_lie_beside_compiled_modules_and_are_written_as_those_are(
    draw: Callable[[], tuple[Any, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = draw()
    signature, cache = types_of(made), made._cache
    result = made.overloads[signature]
    kernel_file(tmp_path).unlink()
    beside = Path(cache_from_source(sampler_kernels.__file__)).parent
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert cache._path(signature, result.codegen).parent == beside
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "prefix"))
    cache.save_overload(signature, result)
    assert not (tmp_path / "prefix").exists()  # no bytecode is written, so no kernel is
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    with private_files():
        cache.save_overload(signature, result)
    written = cache._path(signature, result.codegen)
    assert loaded(made) is not None
    assert [entry.name for entry in written.parent.iterdir()] == [written.name]
    assert written.stat().st_mode & 0o777 == Path(sampler_kernels.__file__).stat().st_mode & 0o666
    monkeypatch.setattr(
        sys, "pycache_prefix", str(written)
    )  # a file where the folder would be: nothing is kept, nothing raised
    cache.save_overload(signature, result)
    assert loaded(made) is None
