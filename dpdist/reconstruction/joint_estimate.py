"""One least-squares estimate of all cells from several measurements of the same records, whose rows are written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import Workspace
from dpdist.arrays.lazy_vector import Vector, to_array
from dpdist.operators import Matrix
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.least_squares import Estimate, LeastSquares
from dpdist.workloads import Workload, integer_basis

JOINT_CELLS = 4096
"""Up to here measurements are combined: every cell is written down."""


class MeasuredRows(Protocol):
    """What is measured, as rows over all cells where it is linear in the counts."""

    def row_blocks(self) -> Iterator[Matrix] | None:
        """The measured rows, (k, cells), block by block."""


@dataclass(frozen=True)
class NoisyMeasurement:
    """What was measured on some rows, and the noise in it."""

    measured_rows: MeasuredRows
    values: Vector
    noise: Noise


def joint_estimate(workload: Workload, measurements: Sequence[NoisyMeasurement], work: Workspace) -> Estimate:
    """One least-squares estimate from one or several measurements of the same records.

    Each measurement is divided by its noise's deviation; the first one must determine every answer. Cells are written down:
    see ``JOINT_CELLS``.

    Args:
        measurements: all with the same kind of noise, whose rows can be written down.
    """
    inputs = [(measurement.measured_rows, to_array(measurement.values), measurement.noise) for measurement in measurements]
    reader, values = work.largest(partial(_join_measurements, workload), inputs)
    return Estimate(reader, values, measurements[0].noise)


def _join_measurements(
    workload: Workload, measurements: Sequence[tuple[MeasuredRows, Matrix, Noise]]
) -> tuple[LeastSquares, Matrix]:
    rows = np.concatenate(
        [
            block.astype(np.float64) / noise.deviation
            for source, _, noise in measurements
            for block in source.row_blocks() or ()
        ]
    )
    values = np.concatenate([measured.astype(np.float64) / noise.deviation for _, measured, noise in measurements])
    squares, vectors = lapack.eigh(rows.T @ rows)
    nonzero = squares > rows.shape[0] * np.finfo(float).eps * squares[-1]
    inverse = (vectors[:, nonzero] / squares[nonzero]) @ (vectors[:, nonzero].T @ rows.T)
    basis = integer_basis(workload)
    if basis.operator is not None:
        inverse = basis.operator.matvec(inverse)
    return LeastSquares(workload, 1.0, basis=basis, inverse=inverse / measurements[0][2].deviation), inverse @ values
