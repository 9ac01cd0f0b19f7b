"""The noise of a release on one machine, from the exact counts to a measurement that may be committed: CPU time a cell, part by part.

    python benchmarks/drawing.py [--cells 16777216] [--repeats 5] [--out table.md]

What version 0.2.0 did and what is done now, alternately in one process. Each figure is the median of ``--repeats`` runs, in CPU time of all
threads, so that other work on the machine blurs it as little as possible.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import zarr
import zarr.codecs

from dpdist.grids.base import GRID_BITS, Noisy
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.release.exact import draw
from dpdist.release.measure import make_safe
from dpdist.release.workspace import StoredVector
from dpdist.store import Store, StoredArray

KEY = Secret(hashlib.sha256(b"benchmark").digest())
NOISES = (Noise("gaussian", 5 << GRID_BITS), Noise("laplace", 3 << GRID_BITS))
PARTS = ("noise alone", "counts read and checked", "drawn, hashed, compressed and written", "read back and checked")


def byte_shuffle(dtype: str) -> Any:
    """How whole numbers were compressed before."""
    del dtype
    return zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")


def timed(work: Callable[[], Any], cells: int) -> tuple[Any, float]:
    """What it returns, and its nanoseconds of CPU time a cell."""
    started = time.process_time()
    found = work()
    return found, (time.process_time() - started) * 1e9 / cells


def once(store: Store, exact: np.ndarray[Any, Any], noise: Noise) -> dict[str, float]:
    """Nanoseconds of each part, and the stored bytes a cell, of one release's noise."""
    cells, step = exact.size, store.sizes.shard_bytes // 8
    counts = store.put(f"counts/{uuid.uuid4().hex}", exact)
    noisy = Noisy(StoredVector(store, counts), KEY, noise)

    def alone() -> None:
        for start in range(0, cells, step):
            noise.draw(KEY.reveal(), start=start, count=min(step, cells - start))

    def made() -> StoredArray:
        return draw(store, f"measurements/{uuid.uuid4().hex}", noisy, {})

    out = {PARTS[0]: timed(alone, cells)[1], PARTS[1]: timed(lambda: store.check(counts), cells)[1]}
    stored, out[PARTS[2]] = timed(made, cells)
    out[PARTS[3]] = timed(lambda: make_safe(store, stored), cells)[1]
    written = sum(size for name, size, _ in store.listed(stored.name) if "/c/" in name)
    out["bytes"] = written / cells
    store.delete(counts.name)
    store.delete(stored.name)
    return out
