"""Compiled kernels, kept on disk beside Python's own compiled modules.

To compile the sampler takes 1.6 CPU s in every process that draws much (benchmarks/page_views.py); to read it back takes 0.1. What lies
in such a file is run, as what lies in a ``.pyc`` is, so it lies in the same folder, and is written where and when Python would write
those: whoever can put a file there can already put a module there. ``NUMBA_CACHE_DIR`` names another folder, which then must be
nobody else's.

A file counts only if it is whole and of these very sources, versions and processor: its first 32 bytes are a digest of all that. Whatever
else is there is compiled anew and written over, so that no release depends on the file.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps


class KernelFile(NullCache):
    """Where a kernel is kept: what Numba asks before it compiles, and tells after it.

    Attributes:
        name: of the kernel, one for each function that a module compiles.
        source: the module.
        constants: what Numba takes over from elsewhere when it compiles.
    """

    def __init__(self, name: str, source: Path, constants: tuple[Any, ...]) -> None:
        self._name, self._source, self._constants = name, source, constants

    def load_overload(self, signature: Any, target_context: Any) -> CompileResult | None:
        """The kernel for arguments of some types; None where no file holds it."""
        target_context.refresh()  # without it the code of a kernel lacks what Numba links to it
        with suppress(OSError):
            content = self._path(signature, target_context.codegen()).read_bytes()
            digest, payload = content[: hashlib.sha256().digest_size], content[hashlib.sha256().digest_size :]
            if digest == self._digest(signature, target_context.codegen(), payload):
                kernel: CompileResult = CompileResult._rebuild(target_context, *pickle.loads(payload))
                return kernel
        return None

    def save_overload(self, signature: Any, result: CompileResult) -> None:
        """Keep a kernel that was compiled, unless Python would keep no module, or may not write there."""
        if sys.dont_write_bytecode and not os.environ.get("NUMBA_CACHE_DIR"):
            return
        payload, path = dumps(result._reduce()), self._path(signature, result.codegen)
        draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_bytes(self._digest(signature, result.codegen, payload) + payload)
                draft.chmod(self._source.stat().st_mode & 0o666)  # as compiled modules have it, whatever the umask
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)

    def _path(self, signature: Any, code: Any) -> Path:
        """One file for each processor, so that machines that share a folder do not write over each other's."""
        named, beside = os.environ.get("NUMBA_CACHE_DIR"), Path(cache_from_source(str(self._source)))
        variant = hashlib.sha256(repr((signature, code.magic_tuple())).encode()).hexdigest()[:16]
        return Path(named or beside.parent) / f"{beside.stem}.{self._name}.{variant}.kernel"

    def _digest(self, signature: Any, code: Any, payload: bytes) -> bytes:
        """SHA-256 of a kernel and of all that decides what it computes."""
        versions = numba.__version__, llvmlite.__version__, sys.version
        facts = repr((self._name, self._constants, signature, code.magic_tuple(), versions)).encode()
        parts = (facts, self._source.read_bytes(), payload)
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def keep_kernel(kernel: Callable[..., Any], name: str, source: Path, constants: tuple[Any, ...]) -> None:
    """Have a kernel read from its file, where there is one, and written there once it was compiled. Arguments: as of ``KernelFile``."""
    kernel._cache = KernelFile(name, source, constants)  # type: ignore[attr-defined]


def compile_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays, compiled when it is first called, and kept. It names nothing outside of it but NumPy."""
    kernel: Callable[..., Any] = numba.njit(nogil=True)(function)
    keep_kernel(kernel, function.__name__, Path(function.__code__.co_filename), ())
    return kernel
