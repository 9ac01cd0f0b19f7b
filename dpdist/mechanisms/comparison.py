"""Which mechanism answers a workload best, decided before any budget is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.mechanism import ALONE, AutoComparison, Mechanism, Setting, beyond_long, not_long
from dpdist.mechanisms.mechanism_registry import AUTO, REGISTRY, mechanism_of
from dpdist.strategies.solver_resources import NO_LIMITS, Effort, Limits
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Workload


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


def considered(
    mechanism: str, norm: Norm, workload: Workload, limits: Limits = NO_LIMITS, setting: Setting = ALONE
) -> tuple[str, ...]:
    """The mechanisms that are compared, a certified optimum first. A function of what is asked alone: every machine chooses
    the same. Others are dropped only where the optimum is certified for the very queries, neighbours and noise."""
    if mechanism != AUTO:
        return (mechanism,)
    question = _question(norm, workload, limits, setting)
    return tuple(name for name, each in REGISTRY.items() if _reason(each, question) is None)


def considered_with(
    mechanism: str, norms: Sequence[Norm], workload: Workload, limits: Limits = NO_LIMITS, setting: Setting = ALONE
) -> tuple[str, ...]:
    """The mechanisms that are compared for several kinds of noise, each once."""
    return tuple(dict.fromkeys(name for norm in norms for name in considered(mechanism, norm, workload, limits, setting)))


def why_not(norm: Norm, workload: Workload, limits: Limits = NO_LIMITS, setting: Setting = ALONE) -> dict[str, str]:
    """Mechanisms that ``auto`` does not compare for a workload, with the reason."""
    question = _question(norm, workload, limits, setting)
    reasons = {name: _reason(each, question) for name, each in REGISTRY.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def is_able(name: str, norm: Norm, workload: Workload, limits: Limits = NO_LIMITS, setting: Setting = ALONE) -> bool:
    """Whether a mechanism, asked for by its name, can answer a workload under a kind of noise."""
    return _cannot(mechanism_of(name), _question(norm, workload, limits, setting)) is None


def _question(norm: Norm, workload: Workload, limits: Limits, setting: Setting) -> AutoComparison:
    asked = AutoComparison(workload, norm, limits, setting)
    able = (each for each in REGISTRY.values() if _cannot(each, asked) is None)
    return replace(asked, best=next((each for each in able if each.proves(asked) == asked.optimality), None))


def _cannot(mechanism: Mechanism, question: AutoComparison) -> str | None:
    """Why a mechanism cannot answer."""
    if question.norm not in mechanism.noises:
        pure = "uses Gaussian noise; the budget is pure"
        return pure if "l2" in mechanism.noises else "uses Laplace noise; the budget has a delta"
    if not_long(mechanism, question.workload):
        return beyond_long(question.workload)
    if question.setting.stream and not mechanism.streams:
        return "measures all steps at once, and a stream measures them as they become known"
    if question.setting.extended and not mechanism.extends:
        return "measures for one horizon only, and the stream's was extended"
    return mechanism.cannot(question.workload)


def _reason(mechanism: Mechanism, question: AutoComparison) -> str | None:
    """Why ``auto`` does not compare a mechanism."""
    cannot = _cannot(mechanism, question)
    return mechanism.passed_over(question) if cannot is None else cannot


def of_worst(names: Sequence[str]) -> str:
    """The first mechanism that can make the largest error least. Raises: InvalidInput when none can."""
    found = next((name for name in names if mechanism_of(name).worst), None)
    if found is None:
        able = ", ".join(repr(name) for name, each in REGISTRY.items() if each.worst)
        raise InvalidInput(
            f"'objective: worst' is for one of {able}, found {', '.join(map(repr, names)) or 'no mechanism'}; set "
            "'mechanism: auto', raise 'limits', or ask for fewer cells"
        )
    return found


def planned_effort(workload: Workload, names: tuple[str, ...]) -> Effort:
    """What planning takes: the products of the first optimiser among the named mechanisms, and the memory of the largest."""
    able = [each for each in map(mechanism_of, names) if each.cannot(workload) is None]
    needs = (each.effort(workload) for each in able if each.optimiser is not None)
    first = next(needs, Effort(workload.shape[1], 0, 0, 0.0))
    return replace(first, memory_bytes=max((each.planning_bytes(workload) for each in able), default=0))


def alternatives(workload: Workload, memory_bytes: int) -> str:
    """What answers a workload whose optimum does not fit, with what each needs or how far it is from the optimum: what fits itself, in
    memory and in time."""
    able = (each for each in REGISTRY.values() if each.cannot(workload) is None)
    told = (each.instead(workload, memory_bytes) for each in able if each.fits(workload, memory_bytes))
    return ", ".join(text for text in told if text is not None)


TIE = 1e-9
"""Costs this close are equal: which of them is lower is rounding, and differs from machine to machine."""


def best(strategies: list[Strategy]) -> Strategy:
    """The strategy of least cost; of several that tie, the first."""
    least = min(np.inf if s.workload_cost is None else s.workload_cost for s in strategies)
    return next(s for s in strategies if np.isinf(least) or (s.workload_cost or np.inf) <= least * (1 + TIE))


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
