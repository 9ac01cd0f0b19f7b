"""Running sums by banded strategies beside a few buffers and the square root: total error over the singular value bound.

    python benchmarks/banded_streams.py [--sizes 4096 65536 1048576] [--bands 64 1024] [--steps 25]
        [--out benchmarks/results/banded_streams.md]

A banded strategy measures each step from itself and the b - 1 before it: its noise is kept for b steps, and two records of one person
that are b or more steps apart never meet in a measured value. 'root' takes the first b coefficients of the square root, 'fitted' the b
coefficients of least total error that L-BFGS finds from there and from falling exponentials in --steps steps. 'buffered' keeps six numbers.
Gaussian noise, every record in one step. What reads running sums is 1 / ((1 - x) c(x)), a power series that is exact to rounding; up to
256 steps the total error is compared with dense algebra. CPU seconds of one thread, under whatever else the machine did, for the row.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import scipy
from buffered_streams import bound, square_root

from dpdist.plugins.streams.buffered_toeplitz import BUFFER_COUNT, fit_buffers

DENSE_STEPS = 256


def root(size: int) -> np.ndarray:
    """Coefficients of 1 / sqrt(1 - x)."""
    k = np.arange(1, size)
    return np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * k))])


def inverse(c: np.ndarray, steps: int) -> np.ndarray:
    """The first coefficients of 1 / c(x), by Newton's iteration: twice as many right ones each time."""
    out = np.array([1.0 / c[0]])
    while out.size < steps:
        size = min(2 * out.size, steps)
        product = scipy.signal.fftconvolve(out, c[:size])[:size]
        product[0] -= 2.0
        out = -scipy.signal.fftconvolve(out, product)[:size]
    return out


def log_cost(c: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """log of the total variance of all running sums, and its gradient in the coefficients."""
    reciprocal = inverse(c, steps)
    reading = np.cumsum(reciprocal)
    weighed = (steps - np.arange(steps)) * reading
    squares, errors = float(c @ c), float(weighed @ reading)
    moved = scipy.signal.fftconvolve(reading, reciprocal)[:steps]
    slope = scipy.signal.fftconvolve(weighed, moved[::-1])[steps - 1 : steps - 1 + c.size]
    return math.log(squares) + math.log(errors), 2.0 * c / squares - 2.0 * slope / errors


def dense_cost(c: np.ndarray, steps: int) -> float:
    """The same by dense algebra."""
    strategy = scipy.linalg.toeplitz(np.pad(c, (0, steps - c.size)), np.zeros(steps))
    reading = np.tril(np.ones((steps, steps))) @ np.linalg.inv(strategy)
    return float((strategy**2).sum(axis=0).max() * (reading**2).sum())


def fitted_bands(bands: int, steps: int, most: int) -> float:
    """The least total error found."""
    starts = (root(bands), np.exp(-np.arange(bands) / bands))
    found = []
    for start in starts:
        done = scipy.optimize.minimize(log_cost, start, (steps,), jac=True, method="L-BFGS-B", options={"maxiter": most})
        assert done.fun <= log_cost(start, steps)[0]
        if steps <= DENSE_STEPS:
            assert math.isclose(dense_cost(done.x, steps), math.exp(done.fun), rel_tol=1e-8)
        found.append(math.exp(done.fun))
    return min(found)


def main() -> None:
    """Print the table, and write it."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[4096, 2**16, 2**20])
    asked.add_argument("--bands", type=int, nargs="+", default=[64, 1024])
    asked.add_argument("--steps", type=int, default=25)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    columns = ["steps", "square root", "buffered"]
    columns += [f"{name}, {bands} bands" for bands in given.bands for name in ("root", "fitted")]
    lines = [f"| {' | '.join((*columns, 'CPU s'))} |", "|" + "---|" * (len(columns) + 1)]
    print("\n".join(lines))
    for steps in given.sizes:
        started, least = time.process_time(), bound(steps)
        ratios = [square_root(steps) / least, fit_buffers(steps, BUFFER_COUNT).cost / least]
        for bands in given.bands:
            ratios += [math.exp(log_cost(root(bands), steps)[0]) / least, fitted_bands(bands, steps, given.steps) / least]
        shown = " | ".join(f"{ratio:,.3f}" for ratio in ratios)
        lines.append(f"| {steps:,} | {shown} | {time.process_time() - started:.0f} |")
        print(lines[-1], flush=True)
    about = (__doc__ or "").split("banded_streams.md]")[1].strip()
    text = f"# Running sums by banded strategies\n\n`python benchmarks/banded_streams.py`, {given.steps} steps of L-BFGS.\n\n{about}\n\n"
    if given.out is not None:
        given.out.write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
