"""Tables that are chosen while they are measured, as a strategy: what can be asked of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import IntegerMeasurement, Kronecker, Neighbours, Strategy, Total, Workload
from dpdist.plugins.adaptive.aim import aim_measurement, importances

MOST_CANDIDATES, MOST_CELLS = 4096, 2**25
"""Tables from which the rounds choose, and cells of all of them together."""


@dataclass(frozen=True, repr=False)
class AimStrategy(Strategy):
    """Tables that are chosen in rounds: what is measured depends on the data."""

    biased: ClassVar[bool] = True

    def worst(self, workload: Workload) -> float | None:
        return None

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        return aim_measurement(workload, neighbours, most_records)


def adaptive(workload: Workload) -> AimStrategy:
    """Tables in rounds, as a strategy without a predicted cost: its error depends on the data.

    Args:
        workload: tables of whole attributes, (m, n).
    Returns: the strategy; what it measures is known after its release.
    Raises: InvalidInput where it cannot answer the workload.
    Source: McKenna, Mullins, Sheldon, Miklau 2022 (AIM); docs/decisions/0018-adaptive-rounds.md says what differs.
    """
    reason = reason_no_rounds(workload)
    if reason is not None:
        raise InvalidInput(f"mechanism 'adaptive' cannot answer this workload: {reason}")
    return AimStrategy("adaptive", Kronecker([Total(size) for size in workload.domain.shape]))


def reason_no_rounds(workload: Workload) -> str | None:
    """Why rounds cannot answer a workload; None where they can."""
    shape = workload.domain.shape
    if workload.domain.dependent:
        return "it counts persons in several groups, and tables of fewer attributes do not follow from such tables"
    if not workload.has_only_tables:
        return "the workload asks for more than tables of whole attributes"
    if max(len(block.asked_axes) for block in workload.blocks) < 2:
        return "it chooses among tables of two or more attributes, and none is asked for"
    asked_sets = {block.asked_axes for block in workload.blocks}
    if sum(2 ** len(axes) for axes in asked_sets) > 16 * MOST_CANDIDATES or len(importances(workload)) > MOST_CANDIDATES:
        return f"it chooses among up to {MOST_CANDIDATES:,} tables within those that are asked for; ask for fewer or smaller ones"
    cells = sum(math.prod(shape[axis] for axis in axes) for axes in importances(workload))
    return None if cells <= MOST_CELLS else f"its tables have {cells:,} cells together, and it takes up to {MOST_CELLS:,}"
