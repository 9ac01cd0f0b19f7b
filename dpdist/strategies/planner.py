"""Which mechanism answers a workload best, decided before any budget is spent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dpdist.grids.base import Norm
from dpdist.operators import Identity, Matrix, Total
from dpdist.strategies.base import Strategy
from dpdist.strategies.filters import has_square_root, is_convolution
from dpdist.strategies.marginals import marginal_weights
from dpdist.workloads import Workload, integer_basis
from dpdist.workloads.kinds import filters_of, is_dyadic, is_filters, is_long, is_marginals, is_product, is_separable

Optimiser = Literal["coa", "newton", "eigen", "low_rank", "smoothing", "kronecker", "marginals"]

OPTIMISERS: dict[str, Optimiser] = {
    "coa": "coa",
    "kronecker": "kronecker",
    "marginals": "marginals",
    "low-rank": "low_rank",
    "eigen": "eigen",
}
"""What a mechanism has to solve; others have closed forms."""
EIGENDECOMPOSITION_PRODUCTS = 5.0
TYPICAL_STEPS = 12
"""Iterations to a certified 1e-6 on most workloads (benchmarks/optimisers.py)."""


@dataclass(frozen=True)
class Candidate:
    """A mechanism with what it would cost.

    Attributes:
        cost: J of the mechanism, None while it is not known.
        gap: certified distance from the optimum, None when not certified.
        worst: largest standard error of an (unweighted) query at noise multiplier 1, None where it was not computed.
    """

    mechanism: str
    cost: float | None
    gap: float | None
    worst: float | None = None

    def rmse(self, queries: int, noise_multiplier: float) -> float | None:
        """Root mean squared error of a (weighted) query: sigma sqrt(J / m)."""
        return None if self.cost is None else noise_multiplier * float(np.sqrt(self.cost / queries))


@dataclass(frozen=True)
class Effort:
    """What optimising a workload will take, stated before it runs."""

    cells: int
    rank: int
    memory_bytes: int
    products: float

    def seconds(self) -> float:
        """Estimated wall time, from a matrix product timed on this machine."""
        size = 512
        block = np.ones((size, size))
        block @ block
        started = time.perf_counter()
        for _ in range(4):
            block @ block
        rate = 4 * 2.0 * size**3 / (time.perf_counter() - started)
        return self.products * 2.0 * self.rank**2 * self.cells / rate


def effort(workload: Workload | Matrix, mechanism: Optimiser = "coa") -> Effort:
    """Bytes and matrix products that an optimiser needs, stated before it runs.

    Memory is an upper bound (tests compare it with the measured peak); products are those of a typical solve to 1e-6.
    """
    if isinstance(workload, Workload) and mechanism == "marginals":
        rows = sum(math.prod(workload.domain.shape[axis] - 1 for axis in s) for s in marginal_weights(workload))
        squares = sum(size**2 for size in workload.domain.shape)
        return Effort(workload.domain.cells, rows, 8 * (2 * squares + 4 * rows) + 2**20, 0.0)
    if isinstance(workload, Workload) and mechanism == "kronecker":
        grams = [f.gram() for f in workload.blocks[0].factors if not isinstance(f, Identity | Total)]
        parts = [effort(gram) for gram in grams]
        memory = max((part.memory_bytes for part in parts), default=2**20)
        return Effort(workload.domain.cells, workload.domain.cells, memory, sum(p.products for p in parts))
    if isinstance(workload, Workload):
        basis = integer_basis(workload)
        rank, cells = basis.rank, basis.cells
        factored = basis.operator is not None
    else:
        rank = cells = int(np.asarray(workload).shape[0])
        factored = False
    square = cells**2
    if mechanism == "coa":
        # thin factor, its rotation and the work of both; or V, the scaled V, its eigenvectors twice and LAPACK's work
        doubles = 6 * rank**2 + 5 * rank * cells if factored else 6 * square
        products = TYPICAL_STEPS * (2.0 + EIGENDECOMPOSITION_PRODUCTS * rank / cells) + 3 * TYPICAL_STEPS * 2.0
    else:
        arrays = {"newton": 14, "eigen": 11, "low_rank": 22, "smoothing": 15}[mechanism]
        doubles = arrays * square
        products = {
            "newton": 100 * (2 * 5 + 3.0),
            "eigen": 2 * EIGENDECOMPOSITION_PRODUCTS + 2,
            "low_rank": 100 * 22.0,
            "smoothing": 200 * (EIGENDECOMPOSITION_PRODUCTS + 3),
        }[mechanism]
    return Effort(cells, rank if factored else cells, 8 * doubles + 2**20, products)


def planned_effort(workload: Workload, names: tuple[str, ...]) -> Effort:
    """What the optimisers among the named mechanisms will take; nothing for those that need none."""
    for name in names:
        if name in OPTIMISERS:
            return effort(workload, OPTIMISERS[name])
    return Effort(workload.shape[1], 0, 0, 0.0)


LOW_RANK_CELLS = 256
"""Up to here ``auto`` also optimises LRM for pure epsilon, which takes seconds; beyond, it must be asked for."""
MechanismName = Literal[
    "coa",
    "eigen",
    "kronecker",
    "marginals",
    "residual",
    "fourier",
    "datacube",
    "identity",
    "gaussian",
    "laplace",
    "hierarchical",
    "wavelet",
    "low-rank",
    "dawa",
    "convolution",
    "square-root",
]
MECHANISMS: tuple[MechanismName, ...] = get_args(MechanismName)
DENSE_CELLS = 4096
"""Up to here ``auto`` compares strategies whose cost needs dense algebra over the cells."""


@dataclass(frozen=True)
class Limits:
    """What optimising may take. Time is counted on a nominal processor, so that every machine decides alike.

    Attributes:
        memory_bytes, seconds: None for no limit.
    """

    memory_bytes: int | None = None
    seconds: float | None = None

    def exceeded_by(self, needs: Effort) -> str | None:
        """Why an optimisation does not fit, None if it does."""
        if self.memory_bytes is not None and needs.memory_bytes > self.memory_bytes:
            return f"needs {needs.memory_bytes / 2**30:.2f} GiB, the spec allows {self.memory_bytes / 2**30:.2f}"
        seconds = needs.products * 2.0 * needs.rank**2 * needs.cells / NOMINAL_RATE
        if self.seconds is not None and seconds > self.seconds:
            return f"needs about {seconds / 60:.1f} nominal minutes, the spec allows {self.seconds / 60:.1f}"
        return None


NO_LIMITS = Limits()
NOMINAL_RATE = 2e10
"""Floating-point operations a second of the processor that limits are counted on: two cores of 2020."""


def considered(mechanism: str, norm: Norm, workload: Workload, limits: Limits = NO_LIMITS) -> tuple[str, ...]:
    """The mechanisms that are compared, a certified optimum first. A function of the workload alone: every machine chooses
    the same. Where a closed form or a product is optimal, the general optimiser cannot win and is not run."""
    if mechanism != "auto":
        return (mechanism,)
    return _for_gaussian(workload, limits) if norm == "l2" else _for_laplace(workload)


def _for_gaussian(workload: Workload, limits: Limits) -> tuple[str, ...]:
    cells = workload.shape[1]
    if is_dyadic(workload):
        return ("convolution",) if is_long(workload) else ("convolution", "identity", "gaussian")
    if is_filters(workload):
        return _for_filters(workload, limits)
    if is_marginals(workload):
        return ("marginals", "fourier", "datacube", "identity", "gaussian")
    if is_product(workload) and len(workload.blocks[0].axes) > 1:
        return ("kronecker", "identity", "gaussian")
    if limits.exceeded_by(effort(workload)) is None:
        return ("coa", "identity", "gaussian")
    residual = ("residual",) if is_separable(workload) and len(workload.domain.shape) > 1 else ()
    separated = ("eigen",) if limits.exceeded_by(effort(workload, "eigen")) is None else ()
    return (*separated, *residual, "identity", "gaussian", *(("wavelet", "hierarchical") if cells <= DENSE_CELLS else ()))


def _for_filters(workload: Workload, limits: Limits) -> tuple[str, ...]:
    if is_long(workload):
        return ("convolution", *(("square-root",) if has_square_root(workload) else ()))
    product = is_product(workload) and len(workload.blocks[0].axes) > 1
    small = workload.shape[1] <= DENSE_CELLS and limits.exceeded_by(effort(workload)) is None
    within = product and filters_of(workload)[0].n <= DENSE_CELLS
    certified = ("kronecker",) if within else ("coa",) if small else ()
    return (*certified, "convolution", *(("square-root",) if has_square_root(workload) else ()), "identity", "gaussian")


def default_group(workload: Workload) -> int | None:
    """Eigen-queries a group of mechanism 'eigen' when the spec does not say: none up to ``DENSE_CELLS`` cells."""
    cells = workload.shape[1]
    return None if cells <= DENSE_CELLS else round(cells ** (1 / 3))


def alternatives(workload: Workload, memory_bytes: int) -> str:
    """What answers a workload whose optimum does not fit, with what each needs or how far it is from the optimum."""
    out = []
    if is_product(workload) and len(workload.blocks[0].axes) > 1:
        needed = effort(workload, "kronecker").memory_bytes
        if needed <= memory_bytes:
            out.append(f"'kronecker' (the same optimum in {needed / 2**30:.2f} GiB)")
    if is_marginals(workload):
        out.append("'marginals' (the same optimum in closed form)")
    if is_separable(workload) and len(workload.domain.shape) > 1:
        out.append("'residual' (seconds; certified by 'dpdist plan')")
    if (needed := effort(workload, "eigen").memory_bytes) <= memory_bytes:
        out.append(
            f"'eigen' with eigen.group_size (a tenth of the time, {needed / 2**30:.2f} GiB, 0 to 12 % more squared error)"
        )
    for name, cost in (("identity", _identity_cost(workload)), ("gaussian", _gaussian_cost(workload))):
        out.append(f"'{name}' (RMSE {math.sqrt(cost / workload.shape[0]):.4g} at noise multiplier 1)")
    return ", ".join(out)


def _identity_cost(workload: Workload) -> float:
    return workload.operator.frobenius_squared


def _gaussian_cost(workload: Workload) -> float:
    return workload.shape[0] * workload.operator.l2_sensitivity**2


def _for_laplace(workload: Workload) -> tuple[str, ...]:
    cells = workload.shape[1]
    optimised = ("low-rank",) if cells <= LOW_RANK_CELLS else ()
    return (*optimised, "identity", "laplace", *(("wavelet", "hierarchical") if cells <= DENSE_CELLS else ()))


GAUSSIAN_ONLY = (
    "coa",
    "eigen",
    "kronecker",
    "marginals",
    "residual",
    "fourier",
    "datacube",
    "gaussian",
    "convolution",
    "square-root",
)
"""Mechanisms whose noise is Gaussian."""
LAPLACE_ONLY = ("laplace", "dawa")
"""Mechanisms whose noise is Laplace's."""
TIE = 1e-9
"""Costs this close are equal: which of them is lower is rounding, and differs from machine to machine."""


def best(strategies: list[Strategy]) -> Strategy:
    """The strategy of least cost; of several that tie, the first."""
    least = min(np.inf if s.workload_cost is None else s.workload_cost for s in strategies)
    return next(s for s in strategies if np.isinf(least) or (s.workload_cost or np.inf) <= least * (1 + TIE))


def why_not(norm: Norm, workload: Workload, limits: Limits = NO_LIMITS) -> dict[str, str]:
    """Mechanisms that ``auto`` does not compare for a workload, with the reason."""
    names = considered("auto", norm, workload, limits)
    if is_long(workload) and norm == "l2":
        beyond = f"does not run out of core (more than {workload.domain.sizes.long_steps:,} steps or cells)"
        return {name: beyond for name in MECHANISMS if name not in (*names, *LAPLACE_ONLY)}
    return {name: _reason(name, names[0], norm, workload, limits) for name in MECHANISMS if name not in names}


_ANSWERS: dict[str, tuple[Callable[[Workload], bool], str]] = {
    "marginals": (is_marginals, "the workload asks for more than marginals"),
    "fourier": (is_marginals, "the workload asks for more than marginals"),
    "datacube": (is_marginals, "the workload asks for more than marginals"),
    "convolution": (is_convolution, "the workload asks for more than filters along one attribute"),
    "square-root": (has_square_root, "the workload is not one filter of the past"),
    "kronecker": (is_product, "the workload is not one product of queries of single attributes"),
    "residual": (is_separable, "the workload holds queries that are no product over attributes"),
    "dawa": (lambda _: False, "its error depends on the data and is not in the error bars; ask for it by name"),
}
"""What a mechanism answers, and what to say where it does not."""


def _reason(name: str, first: str, norm: Norm, workload: Workload, limits: Limits) -> str:
    """Why a mechanism is not compared, when ``first`` heads those that are."""
    if norm == "l1" and name in GAUSSIAN_ONLY:
        return "uses Gaussian noise; the budget is pure"
    if norm == "l2" and name in LAPLACE_ONLY:
        return "uses Laplace noise; the budget has a delta"
    answers, otherwise = _ANSWERS.get(name, (None, ""))
    if answers is not None and not answers(workload):
        return otherwise
    if name == "coa" and first != "convolution" and (beyond := limits.exceeded_by(effort(workload))) is not None:
        return beyond
    if norm == "l2" and (first in ("coa", "kronecker", "marginals") or is_dyadic(workload)):
        return f"cannot beat {first!r}, which is certified; ask for it by name to compare"
    return f"takes long beyond {LOW_RANK_CELLS if name == 'low-rank' else DENSE_CELLS} cells; ask for it by name"


def candidates(strategies: list[Strategy], workload: Workload, lower: float | None = None) -> list[Candidate]:
    """The table of what was compared; every gap is against the best lower bound known (``lower``: one from elsewhere)."""
    known = [s.lower_bound for s in strategies if s.lower_bound is not None]
    lower = max(known if lower is None else [*known, lower], default=None)
    out = []
    for strategy in strategies:
        cost = strategy.workload_cost
        gap = cost / lower - 1.0 if cost is not None and lower is not None and lower > 0 else None
        out.append(Candidate(strategy.name, cost, gap, None if cost is None else strategy.worst(workload)))
    return out
