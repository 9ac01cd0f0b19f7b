"""Layers of an installation: mathematics comes with ``pip install dpdist``, the rest with extras (pyproject.toml)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpdist.errors import NotInstalled


@contextmanager
def layer(extra: str, what: str) -> Iterator[None]:
    """The imports of a layer, for the block. Raises: NotInstalled, naming the extra, where a package of another project is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in ("", "dpdist", "flows"):
            raise
        raise NotInstalled(what, package, extra) from None
