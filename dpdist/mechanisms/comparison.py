"""Which mechanism answers a workload best, decided before any budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.mechanism import (
    SINGLE_RECORD,
    AutoComparison,
    Mechanism,
    PlanSetting,
    lacks_out_of_core,
    reason_in_memory_only,
)
from dpdist.mechanisms.mechanism_registry import AUTO, REGISTRY, mechanism_of
from dpdist.strategies.solver_resources import NO_LIMITS, Effort, Limits
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Workload

REACHED_BEFORE = "cannot be better than one that reaches a lower bound and takes less memory; ask for it by name to compare"


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


def compared_mechanisms(
    mechanism: str, norm: Norm, workload: Workload, limits: Limits = NO_LIMITS, setting: PlanSetting = SINGLE_RECORD
) -> tuple[str, ...]:
    """The mechanisms that are compared, a certified optimum first. A function of what is asked alone: every machine chooses
    the same. Others are dropped only where the optimum is certified for the very queries, neighbours and noise."""
    if mechanism != AUTO:
        return (mechanism,)
    question = _auto_comparison(norm, workload, limits, setting)
    return tuple(name for name, registered in REGISTRY.items() if _reason_not_compared(registered, question) is None)


def compared_for_norms(
    mechanism: str,
    norms: Sequence[Norm],
    workload: Workload,
    limits: Limits = NO_LIMITS,
    setting: PlanSetting = SINGLE_RECORD,
) -> tuple[str, ...]:
    """The mechanisms that are compared for several kinds of noise, each once."""
    return tuple(
        dict.fromkeys(name for norm in norms for name in compared_mechanisms(mechanism, norm, workload, limits, setting))
    )


def exclusion_reasons(
    norm: Norm,
    workload: Workload,
    limits: Limits = NO_LIMITS,
    setting: PlanSetting = SINGLE_RECORD,
    *,
    spared: Callable[[str], bool] = lambda _: False,
) -> dict[str, str]:
    """Mechanisms that ``auto`` does not compare for a workload, with the reason.

    Args:
        spared: whether a mechanism was left out when one before it had reached a lower bound.
    """
    question = _auto_comparison(norm, workload, limits, setting)
    reasons = {
        name: _reason_not_compared(mechanism, question) or (REACHED_BEFORE if spared(name) else None)
        for name, mechanism in REGISTRY.items()
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def can_answer(
    name: str, norm: Norm, workload: Workload, limits: Limits = NO_LIMITS, setting: PlanSetting = SINGLE_RECORD
) -> bool:
    """Whether a mechanism is there that, asked for by its name, can answer a workload under a kind of noise."""
    return name in REGISTRY and _reason_unable(mechanism_of(name), _auto_comparison(norm, workload, limits, setting)) is None


def _auto_comparison(norm: Norm, workload: Workload, limits: Limits, setting: PlanSetting) -> AutoComparison:
    comparison = AutoComparison(workload, norm, limits, setting)
    able = (mechanism for mechanism in REGISTRY.values() if _reason_unable(mechanism, comparison) is None)
    return replace(
        comparison,
        best=next((mechanism for mechanism in able if mechanism.proves(comparison) == comparison.optimality), None),
    )


def _reason_unable(mechanism: Mechanism, question: AutoComparison) -> str | None:
    """Why a mechanism cannot answer."""
    if question.norm not in mechanism.noises:
        pure = "uses Gaussian noise; the budget is pure"
        return pure if "l2" in mechanism.noises else "uses Laplace noise; the budget has a delta"
    if lacks_out_of_core(mechanism, question.workload):
        return reason_in_memory_only(question.workload)
    if question.setting.stream and not mechanism.supports_streams:
        return "measures all steps at once, and a stream measures them as they become known"
    if question.setting.extended and not mechanism.supports_extension:
        return "measures for one horizon only, and the stream's was extended"
    return mechanism.reason_unable(question.workload)


def _reason_not_compared(mechanism: Mechanism, question: AutoComparison) -> str | None:
    """Why ``auto`` does not compare a mechanism."""
    reason = _reason_unable(mechanism, question)
    return mechanism.reason_not_compared(question) if reason is None else reason


def minimax_mechanism(names: Sequence[str]) -> str:
    """The first mechanism that can make the largest error least. Raises: InvalidInput when none can."""
    minimax_name = next((name for name in names if mechanism_of(name).worst), None)
    if minimax_name is None:
        able = ", ".join(repr(name) for name, mechanism in REGISTRY.items() if mechanism.worst)
        raise InvalidInput(
            f"'objective: worst' is for one of {able}, found {', '.join(map(repr, names)) or 'no mechanism'}; set "
            "'mechanism: auto', raise 'limits', or ask for fewer cells"
        )
    return minimax_name


def planned_effort(workload: Workload, names: tuple[str, ...]) -> Effort:
    """What planning takes: the products of the first optimiser among the named mechanisms, and the memory of the largest."""
    able = [mechanism for mechanism in map(mechanism_of, names) if mechanism.reason_unable(workload) is None]
    efforts = (mechanism.effort(workload) for mechanism in able if mechanism.optimiser is not None)
    first_effort = next(efforts, Effort(workload.shape[1], 0, 0, 0.0))
    return replace(first_effort, memory_bytes=max((mechanism.planning_bytes(workload) for mechanism in able), default=0))


def alternatives(workload: Workload, memory_bytes: int) -> str:
    """What answers a workload whose optimum does not fit, with what each needs or how far it is from the optimum: what fits itself, in
    memory and in time."""
    able = (mechanism for mechanism in REGISTRY.values() if mechanism.reason_unable(workload) is None)
    recommendations = (
        mechanism.recommendation(workload, memory_bytes) for mechanism in able if mechanism.fits(workload, memory_bytes)
    )
    return ", ".join(text for text in recommendations if text is not None)


TIE = 1e-9
"""Costs this close are equal: which of them is lower is rounding, and differs from machine to machine."""


def best_strategy(strategies: list[Strategy]) -> Strategy:
    """The strategy of least cost; of several that tie, the first."""
    lowest_cost = min(np.inf if s.workload_cost is None else s.workload_cost for s in strategies)
    return next(s for s in strategies if np.isinf(lowest_cost) or (s.workload_cost or np.inf) <= lowest_cost * (1 + TIE))


def candidates(strategies: list[Strategy], workload: Workload, lower: float | None = None) -> list[Candidate]:
    """The table of what was compared; every gap is against the best lower bound known (``lower``: one from elsewhere)."""
    lower_bounds = [s.lower_bound for s in strategies if s.lower_bound is not None]
    lower = max(lower_bounds if lower is None else [*lower_bounds, lower], default=None)
    table = []
    for strategy in strategies:
        cost = strategy.workload_cost
        gap = cost / lower - 1.0 if cost is not None and lower is not None and lower > 0 else None
        table.append(Candidate(strategy.name, cost, gap, None if cost is None else strategy.worst(workload)))
    return table
