"""The functions of ``scipy.linalg``, which do not look for NaN and infinite entries here: what they are given has none."""

from __future__ import annotations

from functools import partial
from typing import Any

import scipy


def __getattr__(name: str) -> Any:
    return partial(getattr(scipy.linalg, name), check_finite=False)
