"""Measurements that one least-squares estimate can join, and that estimate over several releases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import Workspace
from dpdist.arrays.lazy_vector import Vector, to_array
from dpdist.measurement.integer_measurement import (
    IntegerMeasurement,
    NoisyMeasurement,
)
from dpdist.operators import Matrix
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.least_squares import Estimate, LeastSquares
from dpdist.workloads import Workload, integer_basis

JOINT_CELLS = 4096
"""Up to here measurements are combined: every cell is written down."""


def joint_estimate(workload: Workload, measurements: Sequence[NoisyMeasurement], work: Workspace) -> Estimate:
    """One least-squares estimate from one or several measurements of the same records.

    Each measurement is divided by its noise's deviation; the first one must determine every answer. Cells are written down:
    see ``JOINT_CELLS``.

    Args:
        measurements: all with the same kind of noise, on grids whose rows can be written down.
    """
    inputs = [(measurement.grid, to_array(measurement.values), measurement.noise) for measurement in measurements]
    reader, values = work.largest(partial(_join_measurements, workload), inputs)
    return Estimate(reader, values, measurements[0].noise)


class JointMeasurement(IntegerMeasurement):
    """A grid whose rows are written down where the cells of a domain are few, and then joined with other measurements."""

    def allows_estimate(self, cells: int, *, jointly: bool) -> bool:
        return cells <= JOINT_CELLS

    def estimate(
        self,
        workload: Workload,
        measured: Vector,
        noise: Noise,
        other_measurements: Sequence[NoisyMeasurement],
        work: Workspace,
    ) -> Estimate:
        """Least squares over all rows, and over other measurements of the same records: the cells are written down."""
        return joint_estimate(workload, (NoisyMeasurement(self, measured, noise), *other_measurements), work)


def _join_measurements(
    workload: Workload, measurements: Sequence[tuple[IntegerMeasurement, Matrix, Noise]]
) -> tuple[LeastSquares, Matrix]:
    rows = np.concatenate(
        [block.astype(np.float64) / noise.deviation for grid, _, noise in measurements for block in grid.row_blocks() or ()]
    )
    values = np.concatenate([measured.astype(np.float64) / noise.deviation for _, measured, noise in measurements])
    squares, vectors = lapack.eigh(rows.T @ rows)
    nonzero = squares > rows.shape[0] * np.finfo(float).eps * squares[-1]
    inverse = (vectors[:, nonzero] / squares[nonzero]) @ (vectors[:, nonzero].T @ rows.T)
    basis = integer_basis(workload)
    if basis.operator is not None:
        inverse = basis.operator.matvec(inverse)
    return LeastSquares(workload, 1.0, basis=basis, inverse=inverse / measurements[0][2].deviation), inverse @ values
