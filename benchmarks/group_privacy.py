"""What a guarantee for one change means for a person whose records are several changes, printed as a table: group privacy.

    python -m benchmarks.group_privacy [--epsilon 1] [--delta 1e-6] [--changes 1 2 5 10 50]

A change is one record, or 'most_records' records of a person without a 'column' together: somebody with m records is m / 'most_records'
changes, rounded up. 'pure epsilon' is that of Laplace noise with the given epsilon; 'rho' that of Gaussian noise with the given epsilon
and delta, and 'epsilon' what this rho is worth at the same delta. The last two columns are all that follows from the pair (epsilon,
delta) alone, whatever the noise: k epsilon, and delta (e^(k epsilon) - 1) / (e^epsilon - 1), which promises nothing from 1 on (Vadhan
2017, "The Complexity of Differential Privacy", Lemma 2.2).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dpdist.privacy.accounting import Loss, rho_for

HEAD = ("changes", "pure epsilon", "rho", "epsilon at the same delta", "epsilon of any noise", "delta of any noise")


def rows(epsilon: float, delta: float, changes: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """The cells of each row of the table.

    Args:
        epsilon: of one change.
        delta: of one change.
        changes: how many a person's records are.
    """
    pure, gaussian = Loss.laplace(Fraction(str(epsilon))), Loss.gaussian(rho_for(epsilon, delta, "analytic"))
    for number in changes:
        several = gaussian.for_group(number)
        spread = math.log(delta) + math.log(math.expm1(number * epsilon)) - math.log(math.expm1(epsilon))
        yield (
            f"{number:,}",
            f"{float(pure.for_group(number).pure):,.6g}",
            f"{float(several.rho):,.4g}",
            f"{several.epsilon(delta):,.2f}",
            f"{number * epsilon:,.6g}",
            f"{math.exp(spread):.2g}" if spread < 0 else "nothing",
        )


def table(epsilon: float, delta: float, changes: Sequence[int]) -> str:
    """The table as Markdown.

    Args:
        epsilon: as for ``rows``.
        delta: as for ``rows``.
        changes: as for ``rows``.
    """
    lines = [HEAD, ("---",) * len(HEAD), *rows(epsilon, delta, changes)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--changes", type=int, nargs="+", default=[1, 2, 5, 10, 50])
    return parser


if __name__ == "__main__":
    given = arguments().parse_args()
    print(table(given.epsilon, given.delta, given.changes), end="")
