"""The tests. What has to be settled before NumPy and Numba load, here and in every process that a test starts."""

from __future__ import annotations

import os
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # tests run in one process a core
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parent.parent / "build" / "numba"))  # compiled once

HANGS = 1800
"""Seconds after which something is taken to hang: no test depends on how fast the machine is."""
