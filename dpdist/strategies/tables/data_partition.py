"""DAWA as a strategy: which workloads it takes. What it measures is in ``dpdist.measurement.adaptive.dawa``."""

from __future__ import annotations

from dpdist.errors import InvalidInput
from dpdist.measurement.adaptive.dawa import MOST_CELLS
from dpdist.operators import Identity
from dpdist.strategies.representations import DawaStrategy
from dpdist.strategies.strategy import check_workload
from dpdist.workloads import Workload


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
