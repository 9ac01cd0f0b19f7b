"""What certified optimality is a statement about: a workload, how far neighbours are apart, and a kind of noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpdist.measurement.integer_measurement import Norm
from dpdist.measurement.sensitivity.participation import fitting_participations
from dpdist.stability import ONE_RECORD, Distance
from dpdist.workloads import Workload


@dataclass(frozen=True, eq=False)
class Optimality:
    """That no strategy has less total error for these queries, these neighbours and this noise; a proof says nothing about any others.

    Two are equal where every strategy has the same error for both, up to one factor for all: k records of one cell are k times one.

    Attributes:
        workload: the queries.
        moved: how far one change moves the counts.
        norm: of the sensitivity that the noise is scaled by.
    """

    workload: Workload
    moved: Distance = ONE_RECORD
    norm: Norm = "l2"

    @property
    def of_one_cell(self) -> bool:
        """Whether one change moves one count, so that what is proven for one record counts."""
        return self._key == Optimality(self.workload, norm=self.norm)._key

    @property
    def cells_and_steps(self) -> tuple[int, int]:
        """In how many cells, and in how many steps of a series, one person may be: as many as there are."""
        moved = self.moved
        steps = moved.participations or 1
        if steps > 1 and self.workload.kind.is_filters:
            axis, _, _ = self.workload.kind.filters_along_axis
            steps = fitting_participations(steps, moved.separation, self.workload.domain.shape[axis])
        return min(moved.groups, self.workload.domain.cells), steps

    @property
    def _key(self) -> tuple[str, Norm, Distance]:
        groups, steps = self.cells_and_steps
        several = groups > 1 or steps > 1
        reached = replace(
            self.moved,
            records=1,
            groups=groups,
            participations=steps if steps > 1 else None,
            separation=self.moved.separation if steps > 1 else 1,
            signed=self.moved.signed
            and (several or self.moved.replaced),  # one count that falls is as far as one that rises
        )
        return self.workload.fingerprint, self.norm, reached

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimality) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)
