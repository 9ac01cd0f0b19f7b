"""What was published for marginals before their optimum was known: Fourier coefficients, and a few marginals of a data cube."""

from __future__ import annotations

import math

from dpdist.api.mechanisms import (
    ResidualStrategy,
    Subset,
    Workload,
    check_workload,
    marginal_weights,
    residual_strategy,
    subsets,
)


def fourier(workload: Workload) -> ResidualStrategy:
    """The strategy that measures every coefficient that the marginals need with equal precision.

    Args:
        workload: a union of marginals, (m, n).
    Raises: InvalidInput for other workloads.
    Source: Barak et al. 2007; unneeded coefficients are left out as in Li & Miklau 2012, section 5. The coefficients of an
    attribute set span the same space in any orthonormal product basis whose first vector is constant, so the contrasts
    measured here give the same errors as the Fourier (for binary attributes: Hadamard) basis.
    """
    return residual_strategy("fourier", workload, dict.fromkeys(marginal_weights(workload), 1.0))


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
    check_workload(workload)
    sizes = workload.domain.shape
    precision: dict[Subset, float] = {}
    for measured in bmax(workload):
        outside = math.prod(size for axis, size in enumerate(sizes) if axis not in measured)
        for subset in subsets(measured):
            precision[subset] = precision.get(subset, 0.0) + outside
    return residual_strategy("datacube", workload, precision)


def bmax(workload: Workload) -> tuple[Subset, ...]:
    """The marginals to measure.

    Under L2 sensitivity as in Li & Miklau 2012, section 5: k measured marginals cost a factor k, a cell of a coarser marginal
    sums the cells of a measured one. For every bound on those sums a greedy cover finds few marginals that keep it.
    """
    sizes = workload.domain.shape
    marginal_weights(workload)  # refuses anything but marginals
    asked_sets = sorted({block.asked_axes for block in workload.blocks})
    candidates = _candidates(asked_sets, len(sizes))
    sums = {(m, q): _summed_cells(sizes, m, q) for m in candidates for q in asked_sets if set(q) <= set(m)}
    best: tuple[float, tuple[Subset, ...]] | None = None
    for limit in sorted(set(sums.values())):
        cover = _cover(asked_sets, candidates, {pair for pair, cells in sums.items() if cells <= limit})
        if best is None or len(cover) * limit < best[0]:
            best = (len(cover) * limit, cover)
    assert best is not None
    return best[1]


def _candidates(asked_sets: list[Subset], attributes: int) -> list[Subset]:
    if attributes <= ALL_SUBSETS:
        return [s for s in subsets(tuple(range(attributes))) if any(set(q) <= set(s) for q in asked_sets)]
    unions = {tuple(sorted({*first_set, *second_set})) for first_set in asked_sets for second_set in asked_sets}
    return sorted(unions)


def _summed_cells(sizes: tuple[int, ...], measured: Subset, asked_set: Subset) -> float:
    """Measured cells that one cell of the asked marginal sums."""
    return float(math.prod(sizes[axis] for axis in measured if axis not in asked_set))


def _cover(asked_sets: list[Subset], candidates: list[Subset], allowed: set[tuple[Subset, Subset]]) -> tuple[Subset, ...]:
    """Greedy set cover of the asked marginals by measured ones."""
    reach = {m: {q for q in asked_sets if (m, q) in allowed} for m in candidates}
    open_queries, cover = set(asked_sets), []
    while open_queries:
        pick = max(candidates, key=lambda m: (len(reach[m] & open_queries), [-axis for axis in m]))
        cover.append(pick)
        open_queries -= reach[pick]
    return tuple(cover)
