"""The noise of a release on one machine, from the exact counts to a measurement that may be committed: CPU time a cell, part by part.

    python benchmarks/noise_stages.py [--cells 4194304] [--repeats 5] [--before FOLDER] [--out table.md]

``--before`` is a checkout of an earlier version: it and this one are measured in turn. Each figure is the least of all runs,
in CPU time of all threads, as other work on the machine makes every figure larger.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
from blake3 import blake3

from dpdist.measurement.integer_measurement import GRID_BITS, NoisyVector
from dpdist.pipeline.measure import draw, make_durable
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.storage.array_store import Store, StoredArray

KEY = Secret(hashlib.sha256(b"benchmark").digest())
NOISES = (Noise(GAUSSIAN, 5 << GRID_BITS), Noise(LAPLACE, 3 << GRID_BITS))
PARTS = ("noise alone", "counts read and checked", "drawn, hashed, compressed and written", "read back and checked")
STEPS = (
    "counts added",
    "SHA-256",
    "BLAKE3",
    "compressed",
    "written",
    "fsync",
    "object read",
    "decoded",
    "compared, not hashed",
)
ROOT = Path(__file__).resolve().parents[1]


def timed(work: Callable[[], Any], cells: int) -> tuple[Any, float]:
    """What it returns, and its nanoseconds of CPU time a cell."""
    started = time.process_time()
    found = work()
    return found, (time.process_time() - started) * 1e9 / cells


def once(store: Store, exact: np.ndarray[Any, Any], noise: Noise) -> dict[str, float]:
    """Nanoseconds of each part, and the stored bytes a cell, of one release's noise."""
    cells, step = exact.size, store.sizes.shard_bytes // 8
    counts = store.put(f"counts/{uuid.uuid4().hex}", exact)
    noisy = NoisyVector(StoredVector(store, counts), KEY, noise)

    def alone() -> None:
        for start in range(0, cells, step):
            noise.draw(KEY.reveal(), start=start, count=min(step, cells - start))

    def draw_noise() -> StoredArray:
        return draw(store, f"measurements/{uuid.uuid4().hex}", noisy, {})

    out = {PARTS[0]: timed(alone, cells)[1], PARTS[1]: timed(lambda: store.check(counts), cells)[1]}
    stored, out[PARTS[2]] = timed(draw_noise, cells)
    out[PARTS[3]] = timed(lambda: make_durable(store, stored), cells)[1]
    written = sum(each.size for each in store.storage.entries(stored.name) if "/c/" in each.name)
    out["bytes"] = written / cells
    store.delete(counts.name)
    store.delete(stored.name)
    return out


def steps(folder: Path, noise: Noise, cells: int) -> dict[str, float]:
    """Nanoseconds a cell of what is done to one shard, each step by itself."""
    values, exact = noise.draw(KEY.reveal(), count=cells), np.ones(cells, dtype=np.int64)
    codec, file = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.BITSHUFFLE), folder / "shard"
    numcodecs.blosc.use_threads = False
    out, again = {}, np.empty_like(values)
    out["counts added"] = timed(lambda: np.add(values, exact, out=values), cells)[1]
    out["SHA-256"] = timed(lambda: hashlib.sha256(values.data).digest(), cells)[1]
    out["BLAKE3"] = timed(lambda: blake3(values.view(np.uint8).data).digest(), cells)[1]
    frame, out["compressed"] = timed(lambda: codec.encode(values), cells)
    out["written"] = timed(lambda: file.write_bytes(frame), cells)[1]
    with file.open("rb") as opened:
        out["fsync"] = timed(lambda: os.fsync(opened.fileno()), cells)[1]
    out["object read"] = timed(file.read_bytes, cells)[1]
    out["decoded"] = timed(lambda: codec.decode(frame, again), cells)[1]
    out["compared, not hashed"] = timed(lambda: np.array_equal(values, again), cells)[1]
    return out


def least_figures(runs: list[dict[str, float]]) -> dict[str, float]:
    """The least of each figure."""
    return {part: min(run[part] for run in runs) for part in runs[0]}


def measured(cells: int) -> dict[str, dict[str, float]]:
    """Figures of each noise by the version of dpdist that this process imports."""
    exact = np.random.default_rng(0).poisson(3, cells).astype(np.int64) << GRID_BITS
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        for noise in NOISES:
            noise.draw(KEY.reveal(), count=10_000)  # more than a process draws without its kernels
            found[noise.kind] = least_figures([once(store, exact, noise) for _ in range(3)])
        found["steps"] = least_figures([steps(Path(folder), NOISES[0], min(cells, 2**22)) for _ in range(5)])
    return found


def measured_by(checkout: Path, cells: int) -> dict[str, dict[str, float]]:
    """The same by the version in a folder, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__).resolve()), "--one", "--cells", str(cells)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def rows(cells: int, repeats: int, before: Path | None) -> list[str]:
    """Lines of both tables."""
    versions = {"before": before, "now": ROOT} if before is not None else {"now": ROOT}
    runs: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in versions}
    for _ in range(repeats):
        for name, checkout in versions.items():
            runs[name].append(measured_by(checkout, cells))
    best = {name: {what: least_figures([run[what] for run in found]) for what in found[0]} for name, found in runs.items()}
    out = [f"| noise | part | {' | '.join(f'{name}, ns a cell' for name in best)} |", "|---|---|" + "---|" * len(best)]

    def row(kind: str, part: str, digits: int, figure: Callable[[dict[str, float]], float]) -> str:
        return f"| {kind} | {part} | {' | '.join(f'{figure(found[kind]):.{digits}f}' for found in best.values())} |"

    for noise in NOISES:
        out += [row(noise.kind, part, 1, lambda found, part=part: found[part]) for part in PARTS]
        out.append(row(noise.kind, "**the last two: all of it**", 1, lambda found: found[PARTS[2]] + found[PARTS[3]]))
        out.append(row(noise.kind, "million cells a CPU-second", 1, lambda found: 1e3 / (found[PARTS[2]] + found[PARTS[3]])))
        out.append(row(noise.kind, "bytes a cell in the store", 2, lambda found: found["bytes"]))
    alone = least_figures([run["steps"] for found in runs.values() for run in found])
    out += ["", "The third part holds the first two: the counts are read and the noise is drawn where it is written.", ""]
    out += ["| one step alone, for a shard of Gaussian noise | ns a cell |", "|---|---|"]
    return out + [f"| {step} | {alone[step]:.1f} |" for step in STEPS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=2**22)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.cells)))
        return
    compared = " --before FOLDER" if options.before else ""
    report = [
        "# The noise of a release end to end: CPU time a cell",
        "",
        f"`python benchmarks/noise_stages.py --cells {options.cells} --repeats {options.repeats}{compared}`, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.0f} (a busy machine makes all figures larger: compare columns).",
        "",
        *rows(options.cells, options.repeats, options.before),
    ]
    print("\n".join(report))
    if options.out:
        options.out.write_text("\n".join(report) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
