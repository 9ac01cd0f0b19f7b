"""Running sums from a few buffers (BLT) beside the square root: total error over the singular value bound.

    python benchmarks/buffers.py [--sizes 256 1024 65536 1048576] [--buffers 2 3 4 5 6] [--out benchmarks/results/buffers.md]

A strategy whose coefficients are a sum of d falling exponentials is drawn and read step by step in d numbers, whatever the length of
the series (buffered linear Toeplitz, McMahan, Xu, Zhang 2024). Its generating function is a rational one with interlaced poles and
zeros, prod (1 - nu_i x) / prod (1 - lambda_i x); what reads it is one, too, so that the total error is a closed form in 2 d numbers,
which are fitted. Gaussian noise; 'square root': two equal filters, as long as the series. CPU seconds of one thread, under whatever else
the machine did, for the fit of the most buffers.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy

Vector = np.ndarray


@dataclass(frozen=True)
class Buffers:
    """A fitted strategy for running sums.

    Attributes:
        rates: decay of each exponential of the coefficients, ``shares`` their sizes: c_k = sum of share exp(-rate k) for k >= 1.
        reading_rates, reading_shares: the same of what reads them, from k = 0 on.
        cost: total variance at noise multiplier 1.
    """

    rates: Vector
    shares: Vector
    reading_rates: Vector
    reading_shares: Vector
    cost: float


def buffers(steps: int, spacings: Vector) -> Buffers:
    """The strategy of logarithmic spacings of poles and zeros, in turn, the slowest first.

    With F(x) = prod (1 - nu x) / prod (1 - lambda x) the coefficients are those of F and the reading's of 1 / ((1 - x) F).
    """
    places = np.cumsum(np.exp(spacings))
    poles, zeros = places[0::2], places[1::2]
    reading = np.append(0.0, zeros)
    shares = np.array([_residue(zeros, poles, k) for k in range(poles.size)])
    reading_shares = np.array([_residue(poles, reading, k) for k in range(reading.size)])
    squares = 1.0 + shares @ (_sums(poles[:, None] + poles, steps)[0] - 1.0) @ shares
    errors = reading_shares @ _sums(reading[:, None] + reading, steps)[1] @ reading_shares
    return Buffers(poles, shares, reading, reading_shares, float(squares * errors))


def fitted(steps: int, count: int) -> Buffers:
    """The buffers of least total error over so many steps."""

    def objective(spacings: Vector) -> float:
        return math.log(buffers(steps, spacings).cost)

    first = np.log(np.diff(np.append(0.0, np.geomspace(0.5 / steps, 1.0, 2 * count))))
    within = [(-40.0, 3.0)] * first.size
    found = scipy.optimize.minimize(
        objective, first, method="L-BFGS-B", bounds=within, options={"maxiter": 2000, "maxfun": 10**5}
    )
    return buffers(steps, found.x)


def _residue(tops: Vector, bottoms: Vector, place: int) -> float:
    """Of prod (1 - e^-top x) / prod (1 - e^-bottom x) at one of its poles."""
    others = np.delete(bottoms, place)
    return float(np.prod(-np.expm1(bottoms[place] - tops)) / np.prod(-np.expm1(bottoms[place] - others)))


def _sums(decay: Vector, steps: int) -> tuple[Vector, Vector]:
    """Sums over k < steps of e^(-decay k), and of those times steps - k."""
    still = decay * steps < 1e-9
    moving = np.where(still, 1.0, decay)
    plain = np.where(still, steps, np.expm1(-moving * steps) / np.expm1(-moving))
    return plain, np.where(still, steps * (steps + 1) / 2, -(steps - np.exp(-decay) * plain) / np.expm1(-moving))


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
            found.append(fitted(steps, count).cost / least)
            spent = time.process_time() - started
        ratios = " | ".join(f"{ratio:.4f}" for ratio in (square_root(steps) / least, *found))
        lines.append(f"| {steps:,} | {ratios} | {spent:.1f} |")
        print(lines[-1], flush=True)
    about = __doc__.split("md]")[1].strip()
    if given.out is not None:
        given.out.write_text(
            f"# Running sums from a few buffers\n\n`python benchmarks/buffers.py`\n\n{about}\n\n" + "\n".join(lines) + "\n"
        )


if __name__ == "__main__":
    main()
