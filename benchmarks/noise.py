"""Exact noise beside its peers, in one process: samples a CPU-second and ratios. OpenDP joins in when it is installed.

    python benchmarks/noise.py [--samples 20000000] [--peer-samples 20000] [--repeats 5] [--out table.md]

Every figure is the median of ``--repeats`` alternating runs on one thread. The first call is timed in processes of its own,
with no compiled code on disk.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpdist.privacy.noise import discrete_gaussian, discrete_laplace

KEY = hashlib.sha256(b"benchmark").digest()
SCALES = (10, 10**3, 10**6, 2**40)
FIRST_CALL = """
import sys, time
imported = time.perf_counter()
from dpdist.privacy import kernels, noise, sampler
sampler.EXACT_SAMPLES = 0
loaded = time.perf_counter()
getattr(noise, sys.argv[1])(bytes(32), int(sys.argv[2]), count=1)
print(loaded - imported, time.perf_counter() - loaded)
"""


def opendp_sampler(kind: str, scale: int) -> Callable[[int], object] | None:
    """OpenDP's exact sampler of the same distribution over a vector of zeros, None when it is not installed."""
    try:
        import opendp.prelude as opendp
    except ImportError:
        return None
    opendp.enable_features("contrib")
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    if kind == "gaussian":
        measurement = opendp.m.make_gaussian(domain, opendp.l2_distance(T="f64"), scale=float(scale))
    else:
        measurement = opendp.m.make_laplace(domain, opendp.l1_distance(T="i64"), scale=float(scale))
    return lambda count: measurement([0] * count)


def rates(contestants: dict[str, tuple[Callable[[int], object], int]], repeats: int) -> dict[str, float]:
    """Samples a CPU-second of each contestant, run alternately."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for sample, _ in contestants.values():
        sample(10_000)  # more than a process draws without its kernels
    for _ in range(repeats):
        for name, (sample, count) in contestants.items():
            started = time.process_time()
            sample(count)
            seconds[name].append(time.process_time() - started)
    return {name: contestants[name][1] / statistics.median(seconds[name]) for name in contestants}


def first_call(kind: str, scale: int) -> tuple[float, float]:
    """Seconds to import the kernels, and from there to the first sample, in a fresh process."""
    command = [sys.executable, "-c", FIRST_CALL, f"discrete_{kind}", str(scale)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported, called = done.stdout.split()
    return float(imported), float(called)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000_000)
    parser.add_argument("--peer-samples", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    lines = ["# Exact noise: samples a CPU-second", ""]
    installed = {d.name for d in importlib.metadata.distributions()}
    packages = [name for name in ("numpy", "numba", "opendp") if name in installed]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    lines += [
        f"`python benchmarks/noise.py --samples {options.samples}`, {os.cpu_count()} cores, one thread; {versions}.",
        "",
    ]
    lines += [
        "| noise | scale | dpdist, M/s | numpy float, M/s | ratio | OpenDP, M/s | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    state = np.random.default_rng(0)
    block = 1_000_000

    def floats(draw: Callable[[int], object]) -> Callable[[int], object]:
        def sample(count: int) -> None:
            for start in range(0, count, block):
                draw(min(block, count - start))

        return sample

    for kind, exact in (("gaussian", discrete_gaussian), ("laplace", discrete_laplace)):
        for scale in SCALES:

            def ours(count: int, exact: Callable[..., object] = exact, scale: int = scale) -> None:
                for start in range(0, count, block):
                    exact(KEY, scale, start=start, count=min(block, count - start))

            peer = state.standard_normal if kind == "gaussian" else state.standard_exponential
            contestants: dict[str, tuple[Callable[[int], object], int]] = {
                "dpdist": (ours, options.samples),
                "numpy": (floats(peer), options.samples),
            }
            opendp = opendp_sampler(kind, scale)
            if opendp is not None:
                contestants["opendp"] = (opendp, options.peer_samples)
            found = rates(contestants, options.repeats)
            row = [kind, f"{scale:,}", f"{found['dpdist'] / 1e6:.1f}", f"{found['numpy'] / 1e6:.1f}"]
            row.append(f"{found['dpdist'] / found['numpy']:.2f}")
            peer_rate = found.get("opendp")
            row += [f"{peer_rate / 1e6:.3f}", f"{found['dpdist'] / peer_rate:.0f}"] if peer_rate else ["not installed", ""]
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
    lines += [
        "",
        "numpy's column is `standard_normal` (gaussian) and `standard_exponential` (laplace): floats, not private.",
        "",
    ]
    lines += ["## First call in a fresh process, nothing compiled on disk", ""]
    lines += ["| noise | scale | import, s | first sample, s |", "|---|---|---|---|"]
    for kind in ("gaussian", "laplace"):
        for scale in (10**6, 2**40):
            imported, called = first_call(kind, scale)
            lines.append(f"| {kind} | {scale:,} | {imported:.2f} | {called:.2f} |")
            print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
