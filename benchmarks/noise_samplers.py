"""Exact noise beside its peers, in one process: samples a CPU-second and ratios. OpenDP joins in when it is installed.

    python benchmarks/noise_samplers.py [--samples 20000000] [--peer-samples 20000] [--repeats 5] [--out table.md]

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
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dpdist.privacy.noise import discrete_gaussian, discrete_laplace

KEY = hashlib.sha256(b"benchmark").digest()
SCALES = (10, 10**3, 10**6, 2**40)
FIRST_CALL = """
import sys, time
imported = time.perf_counter()
from dpdist.privacy import noise, sampler, sampler_kernels
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
    """Seconds to import the kernels, and from there to the first sample, in a fresh process that finds no compiled kernel on disk."""
    command = [sys.executable, "-c", FIRST_CALL, f"discrete_{kind}", str(scale)]
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {"NUMBA_CACHE_DIR": empty}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    imported, called = done.stdout.split()
    return float(imported), float(called)


BLOCK = 1_000_000
KINDS: dict[str, Callable[..., object]] = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}


def contestants(kind: str, scale: int, samples: int, peer_samples: int) -> dict[str, tuple[Callable[[int], object], int]]:
    """Who draws samples of a kind and scale, and how many each is asked for."""
    state = np.random.default_rng(0)
    peer = state.standard_normal if kind == "gaussian" else state.standard_exponential

    def ours(count: int) -> None:
        for start in range(0, count, BLOCK):
            KINDS[kind](KEY, scale, start=start, count=min(BLOCK, count - start))

    def floats(count: int) -> None:
        for start in range(0, count, BLOCK):
            peer(min(BLOCK, count - start))

    found: dict[str, tuple[Callable[[int], object], int]] = {"dpdist": (ours, samples), "numpy": (floats, samples)}
    opendp = opendp_sampler(kind, scale)
    return found if opendp is None else {**found, "opendp": (opendp, peer_samples)}


def speeds(samples: int, peer_samples: int, repeats: int) -> Iterator[str]:
    """Lines of the table of samples a second."""
    yield "| noise | scale | dpdist, M/s | numpy float, M/s | ratio | OpenDP, M/s | ratio |"
    yield "|---|---|---|---|---|---|---|"
    for kind in KINDS:
        for scale in SCALES:
            found = rates(contestants(kind, scale, samples, peer_samples), repeats)
            row = [kind, f"{scale:,}", f"{found['dpdist'] / 1e6:.1f}", f"{found['numpy'] / 1e6:.1f}"]
            row.append(f"{found['dpdist'] / found['numpy']:.2f}")
            peer_rate = found.get("opendp")
            row += [f"{peer_rate / 1e6:.3f}", f"{found['dpdist'] / peer_rate:.0f}"] if peer_rate else ["not installed", ""]
            yield "| " + " | ".join(row) + " |"


def first_calls() -> Iterator[str]:
    """Lines of the table of first calls."""
    yield "| noise | scale | import, s | first sample, s |"
    yield "|---|---|---|---|"
    for kind in KINDS:
        for scale in (10**6, 2**40):
            imported, called = first_call(kind, scale)
            yield f"| {kind} | {scale:,} | {imported:.2f} | {called:.2f} |"


def report_lines(options: argparse.Namespace) -> Iterator[str]:
    """All lines of the report, each when it is measured."""
    installed = {d.name for d in importlib.metadata.distributions()}
    packages = [name for name in ("numpy", "numba", "opendp") if name in installed]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    yield "# Exact noise: samples a CPU-second\n"
    yield f"`python benchmarks/noise_samplers.py --samples {options.samples}`, {os.cpu_count()} cores, one thread; {versions}.\n"
    yield from speeds(options.samples, options.peer_samples, options.repeats)
    yield "\nnumpy's column is `standard_normal` (gaussian) and `standard_exponential` (laplace): floats, not private.\n"
    yield "## First call in a fresh process, nothing compiled on disk\n"
    yield from first_calls()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000_000)
    parser.add_argument("--peer-samples", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = []
    for line in report_lines(options):
        print(line, flush=True)
        report.append(line)
    if options.out:
        options.out.write_text("\n".join(report) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
