"""Mechanisms of the papers that ``auto`` compares or leaves out as approximations: low rank, smoothing, Fourier and DataCube."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from dpdist.api.mechanisms import (
    ANY_NOISE,
    REPLACED,
    AutoComparison,
    Effort,
    Gram,
    GramMechanism,
    MarginalMechanism,
    PlanWorkspace,
    Request,
    Strategy,
    Workload,
    array_effort,
    marginal_weights,
    reason_beaten,
    reason_slow,
    residual_bytes,
    subsets,
)
from dpdist.plugins.published_baselines.exponential_smoothing import smoothing
from dpdist.plugins.published_baselines.low_rank_factorisation import low_rank
from dpdist.plugins.published_baselines.marginal_baselines import bmax, datacube, fourier

LOW_RANK_CELLS = 256
"""Up to here ``auto`` also optimises LRM for pure epsilon, where the rank is low; else it must be asked for."""
APPROXIMATES = "approximates the program that 'coa' solves; ask for it by name to compare"
SMOOTHING_PRODUCTS = 12_000.0
"""Of 200 steps with a few eigen-decompositions each."""
REASON_FULL_RANK = (
    "takes long, and 'p-identity' is as good for workloads of a rank above half the cells; ask for it by name to compare"
)


class LowRank(GramMechanism):
    """LRM: W = B L, every column of L in the unit ball."""

    name = "low-rank"
    follows = "square-root"
    summary = "the workload as a product of low rank, for Gaussian or Laplace noise"
    noises = ANY_NOISE
    optimiser = "low_rank"
    progress_message = "optimising a low-rank strategy"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        if question.norm == "l2":
            return reason_beaten(self, question) or APPROXIMATES
        if question.cells > LOW_RANK_CELLS:
            return reason_slow(LOW_RANK_CELLS)
        return reason_beaten(self, question) or (None if _has_low_rank(question.workload) else REASON_FULL_RANK)

    def solver(self, request: Request) -> Callable[[Gram], Strategy]:
        return partial(low_rank, norm=request.norm)

    def strategy_method(self, request: Request) -> str:
        return f"low-rank-{request.norm}"


def _has_low_rank(workload: Workload) -> bool:
    """Whether W has at most half as many independent rows as there are cells: there LRM has down to half of p-Identity's error."""
    cells = workload.shape[1]
    return workload.shape[0] <= cells // 2 or 2 * int(np.linalg.matrix_rank(workload.gram(), hermitian=True)) <= cells


class Smoothing(GramMechanism):
    """ESM: the low-rank paper's appendix B, for comparison: 'coa' solves the same program to its certified optimum."""

    name = "smoothing"
    follows = "low-rank"
    summary = "exponential smoothing (ESM) of the optimum's program, for comparison with the papers"
    optimiser = "smoothing"
    progress_message = "smoothing the optimum's program"
    supports_fractional_records = False

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        if question.optimality.moved.replaced:  # of replaced records 'coa' is not the optimum, and may have more error
            return super().reason_not_compared(question) or question.reason_out_of_reach(
                self.effort(question.workload), REPLACED
            )
        return reason_beaten(self, question) or APPROXIMATES

    def solver(self, request: Request) -> Callable[[Gram], Strategy]:
        return smoothing


class FourierMechanism(MarginalMechanism):
    """Fourier over marginals."""

    name = "fourier"
    follows = "p-identity"
    summary = "equal noise on every needed coefficient of an orthonormal product basis"

    def planning_bytes(self, workload: Workload) -> int:
        return residual_bytes(workload, marginal_weights(workload))

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        return fourier(request.workload)


class DataCube(MarginalMechanism):
    """DataCube over marginals."""

    name = "datacube"
    follows = "fourier"
    summary = "a few marginals with equal noise, from which the asked ones are derived"

    def planning_bytes(self, workload: Workload) -> int:
        return residual_bytes(workload, {space for measured in bmax(workload) for space in subsets(measured)})

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        return datacube(request.workload)


def low_rank_effort(workload: Workload | Gram) -> Effort:
    """Arrays over pairs of cells, and a hundred outer steps."""
    return array_effort(22, 100 * 22.0, workload)


def smoothing_effort(workload: Workload | Gram) -> Effort:
    """Arrays over pairs of cells, and the steps of the gradient."""
    return array_effort(15, SMOOTHING_PRODUCTS, workload)


LOW_RANK, SMOOTHING, FOURIER, DATACUBE = LowRank(), Smoothing(), FourierMechanism(), DataCube()
