"""DAWA as a strategy: which workloads it takes. What it measures is in ``dpdist.plugins.adaptive.dawa``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import Identity, IntegerMeasurement, Neighbours, Norm, Strategy, Workload, check_workload
from dpdist.plugins.adaptive.dawa import MOST_CELLS, dawa_measurement


@dataclass(frozen=True, repr=False)
class DawaStrategy(Strategy):
    """Cells that are measured together where their counts are similar: what is measured depends on the data."""

    biased: ClassVar[bool] = True

    @property
    def norm(self) -> Norm:
        return "l1"

    def worst(self, workload: Workload) -> float | None:
        return None

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        return dawa_measurement(workload, neighbours, most_records)


def dawa(workload: Workload) -> DawaStrategy:
    """DAWA as a strategy without a predicted cost: its error depends on the data.

    Args:
        workload: queries over one ordered attribute, (m, n).
    Raises: InvalidInput unless the domain is one ordered attribute of up to ``MOST_CELLS`` values.
    Source: Li, Hay, Miklau, Wang 2014.
    """
    check_workload(workload)
    attributes = workload.domain.attributes
    if len(attributes) != 1 or attributes[0].categories:
        raise InvalidInput(
            f"mechanism 'dawa' partitions one ordered attribute (edges or from/to), found {', '.join(workload.domain.names)}"
        )
    if attributes[0].size > MOST_CELLS:
        raise InvalidInput(f"mechanism 'dawa' takes up to {MOST_CELLS} values, found {attributes[0].size}; use wider bins")
    return DawaStrategy("dawa", Identity(attributes[0].size))
