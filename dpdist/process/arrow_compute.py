"""The functions of ``pyarrow.compute``, imported when the first one is called: making them takes as long as the rest of Arrow."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    return getattr(pyarrow.compute, name)
