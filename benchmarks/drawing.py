"""The noise of a release on one machine, from the exact counts to a measurement that may be committed: CPU time a cell, part by part.

    python benchmarks/drawing.py [--cells 16777216] [--repeats 5] [--out table.md]

What version 0.2.0 did and what is done now, alternately in one process. Each figure is the median of ``--repeats`` runs, in CPU time of all
threads, so that other work on the machine blurs it as little as possible.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import zarr.codecs

from dpdist import store as stores
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


def rows(cells: int, repeats: int) -> list[str]:
    """Lines of the table of one run after the other, both ways of compression in turn."""
    state = np.random.default_rng(0)
    exact = state.poisson(3, cells).astype(np.int64) << GRID_BITS
    ways: dict[str, Any] = {"0.2.0": byte_shuffle, "now": stores.codec}
    out = ["| noise | part | 0.2.0, ns a cell | now, ns a cell |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        for noise in NOISES:
            noise.draw(KEY.reveal(), count=10_000)  # more than a process draws without its kernels
            found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for _ in range(repeats):
                for name, codec in ways.items():
                    with mock.patch.object(stores, "codec", codec):
                        found[name].append(once(store, exact, noise))
            middle = {
                name: {part: statistics.median(run[part] for run in runs) for part in runs[0]}
                for name, runs in found.items()
            }
            out += [f"| {noise.kind} | {part} | {middle['0.2.0'][part]:.1f} | {middle['now'][part]:.1f} |" for part in PARTS]
            whole = [sum(middle[name][part] for part in PARTS[2:]) for name in ways]
            out.append(f"| {noise.kind} | **the last two: all of it** | {whole[0]:.1f} | {whole[1]:.1f} |")
            out.append(f"| {noise.kind} | million cells a CPU-second | {1e3 / whole[0]:.1f} | {1e3 / whole[1]:.1f} |")
            out.append(
                f"| {noise.kind} | bytes a cell in the store | {middle['0.2.0']['bytes']:.2f} | {middle['now']['bytes']:.2f} |"
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=2**24)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = [
        "# The noise of a release end to end: CPU time a cell",
        "",
        f"`python benchmarks/drawing.py --cells {options.cells} --repeats {options.repeats}`, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.0f} "
        "(a busy machine makes all figures larger: compare columns).",
        "",
        *rows(options.cells, options.repeats),
        "",
        "The third part holds the first two: the counts are read and the noise is drawn where it is written.",
    ]
    print("\n".join(report))
    if options.out:
        options.out.write_text("\n".join(report) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
