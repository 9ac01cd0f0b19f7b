"""The certified optimum on a GPU beside the CPU: the same optimiser, in double precision, on arrays of PyTorch or CuPy.

    python benchmarks/gpu.py [--sizes 4096 8192 16384 32768] [--cpu-up-to 8192] [--out benchmarks/results/gpu.md]

Refused in one line where there is no GPU. Seconds of wall time from the gram to the strategy on the host, after a solve of 256 cells
that loads the libraries; the CPU has all its threads and stops at ``--cpu-up-to`` cells, above which a solve takes hours. The gap is
proven from the eigenvalues that the GPU's library computed. ``--on-cpu`` tries the script with PyTorch's arrays on the CPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.strategies import Strategy, coa
from dpdist.workloads import Gram, all_ranges, discrete, prefix, related

WORKLOADS = {
    "prefix": prefix,
    "all ranges": all_ranges,
    "WDiscrete": lambda n: discrete(n, 2 * n),
    "WRelated": lambda n: related(n, 1024, int(0.4 * min(1024, n))),
}


def gpu() -> tuple[str, Callable[[np.ndarray], Any]] | None:
    """The name of this machine's GPU and what moves NumPy's arrays there."""
    try:
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name(), lambda values: torch.from_numpy(values).to("cuda")
    except ImportError:
        pass
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount():
            return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), cupy.asarray
    except ImportError:
        pass
    except cupy.cuda.runtime.CUDARuntimeError:  # without a driver
        pass
    return None


def on_cpu() -> tuple[str, Callable[[np.ndarray], Any]]:
    """PyTorch's arrays on the CPU."""
    import torch

    return "PyTorch on the CPU", torch.from_numpy


def timed(gram: Any) -> tuple[float, Strategy]:
    """Seconds of a solve; its strategy lies on the host, so that the device is done."""
    started = time.perf_counter()
    found = coa(Gram(gram))
    return time.perf_counter() - started, found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192, 16384, 32768])
    asked.add_argument("--cpu-up-to", type=int, default=8192)
    asked.add_argument("--on-cpu", action="store_true")
    asked.add_argument("--out", type=Path)
    options = asked.parse_args()
    found = on_cpu() if options.on_cpu else gpu()
    if found is None:
        sys.exit("this benchmark needs a GPU with PyTorch or CuPy, and found none; run it where there is one")
    device, moved = found
    coa(Gram(moved(prefix(256).gram())))
    lines = [
        "# The certified optimum on a GPU",
        "",
        f"{device} beside {platform.processor() or platform.machine()}, {os.cpu_count()} cores; NumPy {np.__version__}, "
        "double precision, seconds of wall time.",
        "",
        "| workload | n | GPU, s | gap | CPU, s | times faster |",
        "|---|---|---|---|---|---|",
    ]
    for n in options.sizes:
        for name, made in WORKLOADS.items():
            gram = made(n).gram()
            seconds, solved = timed(moved(gram))
            beside = "- | -"
            if n <= options.cpu_up_to:
                on_host, other = timed(gram)
                assert solved.workload_cost <= other.workload_cost * (1 + 2e-6), "the GPU's strategy costs more"
                beside = f"{on_host:.1f} | {on_host / seconds:.1f}"
            lines.append(f"| {name} | {n} | {seconds:.1f} | {solved.gap:.1e} | {beside} |")
            print(lines[-1], flush=True)
            if options.out:
                options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
