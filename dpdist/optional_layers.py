"""Layers of an installation: mathematics comes with ``pip install dpdist``, the rest with extras (pyproject.toml)."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dpdist.errors import NotInstalled


@contextmanager
def optional_layer(extra: str, feature: str) -> Iterator[None]:
    """The imports of a layer, for the block. Raises: NotInstalled, naming the extra, where a package of another project is missing."""
    collects, imported = gc.isenabled(), len(sys.modules)
    gc.disable()  # what is imported stays: to look for garbage in it takes a sixth of the imports' time (benchmarks/command_start.py)
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in ("", "dpdist", "flows"):
            raise
        raise NotInstalled(feature, package, extra) from None
    finally:
        if collects:
            if len(sys.modules) > imported and not gc.get_freeze_count():  # which counts what is frozen, one by one
                gc.freeze()  # and out again: among what is old at once, not looked through in each generation
                gc.unfreeze()
            gc.enable()
