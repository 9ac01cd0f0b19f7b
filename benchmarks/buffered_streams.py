"""Running sums from a few buffers (BLT) beside the square root: total error over the singular value bound.

    python benchmarks/buffered_streams.py [--sizes 256 1024 65536 1048576] [--buffers 2 3 4 5 6]
        [--out benchmarks/results/buffered_streams.md]

A strategy whose coefficients are a sum of d falling exponentials is drawn and read step by step in d numbers, whatever the length of
the series (buffered linear Toeplitz, McMahan, Xu, Zhang 2024). Its generating function is a rational one with interlaced poles and
zeros, prod (1 - nu_i x) / prod (1 - lambda_i x); what reads it is one, too, so that the total error is a closed form in 2 d numbers,
which are fitted. Gaussian noise; 'square root': two equal filters, as long as the series. CPU seconds of one thread, under whatever else
the machine did, for the fit of the most buffers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from dpdist.plugins.streams.buffered_toeplitz import fit_buffers


def square_root(steps: int) -> float:
    """Total variance of the square root."""
    k = np.arange(1, steps)
    squares = np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * k))]) ** 2
    return float(squares.sum() * (squares @ (steps - np.arange(steps))))


def bound(steps: int) -> float:
    """No strategy has less: (sum of singular values)^2 / n."""
    odd = 2.0 * np.arange(1, steps + 1) - 1.0
    return float((0.5 / np.sin(odd * np.pi / (4 * steps + 2))).sum() ** 2 / steps)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[256, 1024, 2**16, 2**20])
    asked.add_argument("--buffers", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    head = ["steps", "square root", *(f"{count} buffers" for count in given.buffers), "CPU s"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    print("\n".join(lines))
    for steps in given.sizes:
        least = bound(steps)
        found = []
        for count in given.buffers:
            started = time.process_time()
            found.append(fit_buffers(steps, count).cost / least)
            spent = time.process_time() - started
        ratios = " | ".join(f"{ratio:.4f}" for ratio in (square_root(steps) / least, *found))
        lines.append(f"| {steps:,} | {ratios} | {spent:.1f} |")
        print(lines[-1], flush=True)
    about = __doc__.split("md]")[1].strip()
    if given.out is not None:
        given.out.write_text(
            f"# Running sums from a few buffers\n\n`python benchmarks/buffered_streams.py`\n\n{about}\n\n"
            + "\n".join(lines)
            + "\n"
        )


if __name__ == "__main__":
    main()
