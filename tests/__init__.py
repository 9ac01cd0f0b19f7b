"""The tests. What has to be settled before NumPy and Numba load, here and in every process that a test starts."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # tests run in one process a core
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parent.parent / "build" / "numba"))  # compiled once

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # a shell starts what runs in its background so, and commands that the tests start and interrupt would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

HANGS = 1800
"""Seconds after which something is taken to hang: no test depends on how fast the machine is."""
