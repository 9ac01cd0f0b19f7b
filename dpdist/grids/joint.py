"""Measurements of the same records combined: one least-squares estimate of the cells from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy

from dpdist.arrays.vector import Vector, held
from dpdist.arrays.workspace import Workspace
from dpdist.grids.base import Grid, Measured
from dpdist.grids.estimate import Estimate, LeastSquares
from dpdist.operators import Matrix
from dpdist.privacy.noise import Noise
from dpdist.workloads import Workload, integer_basis

JOINT_CELLS = 4096
"""Up to here measurements are combined: every cell is written down."""


def joint_estimate(workload: Workload, parts: Sequence[Measured], work: Workspace) -> Estimate:
    """One least-squares estimate from one or several measurements of the same records.

    Each measurement is divided by its noise's deviation; the first one must determine every answer. Cells are written down:
    see ``JOINT_CELLS``.

    Args:
        parts: all with the same kind of noise, on grids whose rows can be written down.
    """
    given = [(part.grid, held(part.values), part.noise) for part in parts]
    reader, values = work.largest(partial(_joined, workload), given)
    return Estimate(reader, values, parts[0].noise)


class OverCells(Grid):
    """A grid whose rows are written down where the cells of a domain are few, and then joined with other measurements."""

    def estimates(self, cells: int, *, jointly: bool) -> bool:
        return cells <= JOINT_CELLS

    def estimate(
        self, workload: Workload, measured: Vector, noise: Noise, others: Sequence[Measured], work: Workspace
    ) -> Estimate:
        """Least squares over all rows, and over other measurements of the same records: the cells are written down."""
        return joint_estimate(workload, (Measured(self, measured, noise), *others), work)


def _joined(workload: Workload, parts: Sequence[tuple[Grid, Matrix, Noise]]) -> tuple[LeastSquares, Matrix]:
    rows = np.concatenate(
        [block.astype(np.float64) / noise.deviation for grid, _, noise in parts for block in grid.row_blocks() or ()]
    )
    values = np.concatenate([measured.astype(np.float64) / noise.deviation for _, measured, noise in parts])
    squares, vectors = scipy.linalg.eigh(rows.T @ rows, check_finite=False)
    kept = squares > rows.shape[0] * np.finfo(float).eps * squares[-1]
    inverse = (vectors[:, kept] / squares[kept]) @ (vectors[:, kept].T @ rows.T)
    basis = integer_basis(workload)
    if basis.operator is not None:
        inverse = basis.operator.matvec(inverse)
    return LeastSquares(workload, 1.0, basis=basis, inverse=inverse / parts[0][2].deviation), inverse @ values
