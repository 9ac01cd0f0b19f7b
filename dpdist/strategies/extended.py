"""A filter for a stream whose horizon was extended: its first coefficients are those that were measured with before.

A filter of the past measures a step from itself and earlier ones, whatever comes later. So the coefficients of a longer filter of the
same kind, brought to the scale of the former one, can follow after those of the former one: what was measured stays a part of what is
measured. Only the sensitivity grows (docs/decisions/0019-horizon.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpdist.arrays.past import reading_of
from dpdist.arrays.vector import Held, held
from dpdist.arrays.workspace import MEMORY, Workspace
from dpdist.strategies.base import CLOSED_FORM
from dpdist.strategies.filters import coefficients_of, over_cells
from dpdist.strategies.representations import FilterStrategy
from dpdist.workloads import Workload
from dpdist.workloads.kinds import line_of

Made = Callable[[Workload], FilterStrategy]
"""Makes the strategy of one kind for a workload by itself."""
Named = Callable[[Workload, str], str]
"""Names what is kept of a workload's strategy."""


def through_horizons(workloads: Sequence[Workload], made: Made, work: Workspace, named: Named) -> FilterStrategy:
    """The strategy of a stream after all its extensions.

    Args:
        workloads: the same queries over the first, the second, ... and the present horizon.
        work: where it is kept; ``named``: under which name, of which the first one stays.
    """
    found, steps = made(workloads[0]), ""
    for workload in workloads[1:]:
        steps += f"-{found.coefficients.steps}"
        own = made(workload)
        found = _continued(workload, found, own, work, named(workload, f"{own.name}-after{steps}"))
    return found


def _continued(
    workload: Workload, former: FilterStrategy, own: FilterStrategy, work: Workspace, name: str
) -> FilterStrategy:
    """The former coefficients, and after them the later ones of the longer filter in their scale."""
    (each,) = line_of(workload)[2]
    values, facts = work.kept(name) or (None, {})
    if values is None:
        before, after = former.coefficients.real, own.coefficients.real
        listed = np.concatenate([before, after[before.size :] * (before[0] / after[0])])
        spread = np.cumsum(held(reading_of(MEMORY, each, Held(listed))) ** 2)
        facts = {"cost": float(listed @ listed) * float(spread.sum()), "deviations": [math.sqrt(float(spread[-1]))]}
        values = work.write(Held(listed), name, facts)
    first = former.coefficients.first_steps or former.coefficients.steps
    given = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=False)
    given = replace(given, first_steps=first)
    cost = workload.blocks[0].weight ** 2 * given.series * facts["cost"]
    return FilterStrategy(own.name, over_cells(given, workload), cost, own.lower_bound, CLOSED_FORM, coefficients=given)
