"""Private convolution: stored transforms beside scipy, exact convolutions and noise, and errors over filters.

    python benchmarks/convolution.py [--memory 20 22 24] [--stored 24 26] [--cap 0.25] [--steps 512] [--out table.md]

Times are single runs in one process on one thread, side by side; peak memory is that of a process of its own. Errors are closed
forms; the certified optimum is COA's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.fft

from dpdist import engine
from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.convolution import exact_convolution
from dpdist.arrays.fourier import fourier
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.measurement.filter_measurement import filter_measurement
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.operators import Fourier
from dpdist.pipeline.measure import draw
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.runtime.stored_vectors import StoredVector, StoreWorkspace
from dpdist.storage.array_store import Store
from dpdist.strategies import coa, convolution, singular_value_bound, square_root
from dpdist.strategies.filter_strategies import has_square_root
from dpdist.workloads import filtered
from dpdist.workloads.time_filters import Filter, baxter_king, exponential, hodrick_prescott, polynomial, running_sum, window


def filters(n: int) -> list[Filter]:
    return [
        running_sum(n),
        window(24),
        exponential(0.9, n),
        polynomial(1.0, n),
        hodrick_prescott(1600.0, n),
        hodrick_prescott(1600.0, n, component="cycle"),
        baxter_king(6, 32, 12),
    ]


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_memory(exponents: list[int]) -> list[str]:
    lines = [
        "| steps | scipy.fft.rfft, s | Fourier operator / scipy | exact convolution / scipy | with noise / scipy | noise alone, s |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for exponent in exponents:
        n = 2**exponent
        x = np.random.default_rng(0).integers(0, 1000, n)
        scipy.fft.rfft(x[: 2**16])
        plain = timed(lambda x=x: scipy.fft.rfft(x))
        operator = timed(lambda x=x, n=n: Fourier(n).matvec(x))
        workload = filtered(n, "x0", [window(24)], circular=True)
        grid = filter_measurement(convolution(workload).coefficients, neighbours="add-remove", most_records=1)
        exact = timed(lambda x=x, n=n, grid=grid: exact_convolution(MEMORY, grid.coefficients, ArrayVector(x), n))
        Noise(GAUSSIAN, 10**9).draw(bytes(32), count=1)
        noise = timed(lambda n=n: Noise(GAUSSIAN, 10**9).draw(bytes(32), count=n))
        lines.append(
            f"| 2^{exponent} | {plain:.3f} | {operator / plain:.2f} | {exact / plain:.2f} | {(exact + noise) / plain:.2f} | {noise:.3f} |"
        )
    return lines


def stored(exponents: list[int], cap: float) -> list[str]:
    lines = [
        "| steps | data, GiB | cap, GiB | grown to, GiB | scipy, s | stored, s | ratio | s / (N log2 N) x 1e9 "
        "| noise drawn and stored, s | ratio with noise |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for exponent in exponents:
        command = [sys.executable, __file__, "--one", str(exponent), "--cap", str(cap)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        plain, took, grown, noisy = (float(value) for value in run.stdout.split()[-4:])
        data = 8 * 2**exponent / 2**30
        per = took / (2**exponent * exponent) * 1e9
        lines.append(
            f"| 2^{exponent} | {data:.3f} | {cap * data:.3f} | {grown:.3f} | {plain:.2f} | {took:.2f} | {took / plain:.2f} | {per:.1f} "
            f"| {noisy:.2f} | {(took + noisy) / plain:.2f} |"
        )
    return lines


def measure_size(exponent: int, cap: float) -> None:
    """In a process of its own: seconds of scipy and of the stored transform, and by how much memory grew while it ran."""
    n = 2**exponent
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        x = np.random.default_rng(0).integers(0, 1000, n)
        source = StoredVector(store, store.put("x", x))
        limited = engine.Engine(workers=1, memory_bytes=int(cap * 8 * n), threads=1, connect=None, local=True)
        work = StoreWorkspace(store, limited)
        fourier(work, work.write(ArrayVector(x[: 2**12])))
        del x
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        took = timed(lambda: fourier(work, source))
        grown = memory("VmHWM") - before
        noise = Noise(GAUSSIAN, 10**6)
        noise.draw(bytes(32), count=1)  # compiled
        noisy = timed(lambda: draw(store, "noisy", NoisyVector(source, Secret(bytes(32)), noise), {}))
        x = to_array(source)
        plain = timed(lambda: scipy.fft.rfft(x))
    print(plain, took, grown, noisy)


def memory(field: str) -> float:
    """GiB of this process, from the kernel."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 2**20


def gaps(sizes: list[int]) -> list[str]:
    lines = [
        "| filter | steps | around a circle, over its bound | series that ends: circle | square root | svdb |",
        "|---|---|---|---|---|---|",
    ]
    for n in sizes:
        for each in filters(n):
            circle = filtered(n, "x0", [each], circular=True)
            over = float(convolution(circle).workload_cost or 0) / float(coa(circle, tolerance=1e-10).lower_bound or 1) - 1
            ends = filtered(n, "x0", [each])
            best = float(coa(ends).workload_cost or 1)
            root = f"{float(square_root(ends).workload_cost or 0) / best:.4f}" if has_square_root(ends) else "none"
            padded = float(convolution(ends).workload_cost or 0) / best
            lines.append(
                f"| {each.name} | {n} | 1 + {over:.1e} | {padded:.4f} | {root} | {singular_value_bound(ends) / best:.4f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, nargs="*", default=[20, 22, 24])
    parser.add_argument("--stored", type=int, nargs="*", default=[24, 26])
    parser.add_argument("--cap", type=float, default=0.25)
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--one", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.one is not None:
        measure_size(options.one, options.cap)
        return
    parts = [
        "## In memory: a filter measured exactly, beside one real FFT of the same data",
        "",
        *in_memory(options.memory),
        "",
        f"## Stored: four-step transform with {options.cap:g} of the data's memory",
        "",
        *stored(options.stored, options.cap),
        "",
        "## Total squared error over the certified optimum",
        "",
        *gaps([n for n in (64, 512, 2048) if n <= 4 * options.steps]),
    ]
    table = "\n".join(parts) + "\n"
    print(table)
    if options.out:
        options.out.write_text(table)


if __name__ == "__main__":
    main()
