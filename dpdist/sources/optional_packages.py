"""Packages that come with extras of dpdist."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dpdist.errors import InvalidSpec


def package(module: str, extra: str, requirement: str = "these records need") -> Any:
    """An installed module. Raises: InvalidSpec naming the extra that brings it."""
    try:
        return import_module(module)
    except ImportError:
        raise InvalidSpec(
            f"{requirement} the package {module.partition('.')[0]}, which is not installed; install it: pip install 'dpdist[{extra}]'"
        ) from None
