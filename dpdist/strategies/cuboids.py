"""DataCube: measure a few marginals, chosen so that the largest error of the asked ones is least (Ding et al. 2011, BMAX)."""

from __future__ import annotations

import math

from dpdist.grids.terms import subsets
from dpdist.strategies.base import queries_of
from dpdist.strategies.marginal_optima import Subset, marginal_weights, over_residuals
from dpdist.strategies.representations import ResidualStrategy
from dpdist.workloads import Workload

ALL_SUBSETS = 10
"""Up to so many attributes every marginal may be measured; beyond, the asked ones and unions of two of them."""


def datacube(workload: Workload) -> ResidualStrategy:
    """The chosen marginals, measured with equal noise; answers are least-squares estimates.

    Least squares makes it better than the published algorithm: measuring only the asked marginals is then as good as ``fourier``.

    Args:
        workload: a union of marginals, (m, n).
    Raises: InvalidInput for other workloads.
    Source: Ding, Winslett, Han, Li 2011 (BMAX).
    """
    queries_of(workload)
    sizes = workload.domain.shape
    precision: dict[Subset, float] = {}
    for measured in bmax(workload):
        outside = math.prod(size for axis, size in enumerate(sizes) if axis not in measured)
        for subset in subsets(measured):
            precision[subset] = precision.get(subset, 0.0) + outside
    return over_residuals("datacube", workload, precision)


def bmax(workload: Workload) -> tuple[Subset, ...]:
    """The marginals to measure.

    Under L2 sensitivity as in Li & Miklau 2012, section 5: k measured marginals cost a factor k, a cell of a coarser marginal
    sums the cells of a measured one. For every bound on those sums a greedy cover finds few marginals that keep it.
    """
    sizes = workload.domain.shape
    marginal_weights(workload)  # refuses anything but marginals
    asked = sorted({block.asked_axes for block in workload.blocks})
    candidates = _candidates(asked, len(sizes))
    sums = {(m, q): _summed(sizes, m, q) for m in candidates for q in asked if set(q) <= set(m)}
    best: tuple[float, tuple[Subset, ...]] | None = None
    for limit in sorted(set(sums.values())):
        chosen = _cover(asked, candidates, {pair for pair, cells in sums.items() if cells <= limit})
        if best is None or len(chosen) * limit < best[0]:
            best = (len(chosen) * limit, chosen)
    assert best is not None
    return best[1]


def _candidates(asked: list[Subset], attributes: int) -> list[Subset]:
    if attributes <= ALL_SUBSETS:
        return [s for s in subsets(tuple(range(attributes))) if any(set(q) <= set(s) for q in asked)]
    unions = {tuple(sorted({*a, *b})) for a in asked for b in asked}
    return sorted(unions)


def _summed(sizes: tuple[int, ...], measured: Subset, asked: Subset) -> float:
    """Measured cells that one cell of the asked marginal sums."""
    return float(math.prod(sizes[axis] for axis in measured if axis not in asked))


def _cover(asked: list[Subset], candidates: list[Subset], allowed: set[tuple[Subset, Subset]]) -> tuple[Subset, ...]:
    """Greedy set cover of the asked marginals by measured ones."""
    reach = {m: {q for q in asked if (m, q) in allowed} for m in candidates}
    open_queries, chosen = set(asked), []
    while open_queries:
        pick = max(candidates, key=lambda m: (len(reach[m] & open_queries), [-a for a in m]))
        chosen.append(pick)
        open_queries -= reach[pick]
    return tuple(chosen)
