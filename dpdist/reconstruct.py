"""From a noisy measurement to answers: one estimate for all queries, and the exact variance of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.linalg

from dpdist.errors import InvalidInput
from dpdist.operators import Identity, Matrix
from dpdist.operators.base import ROW_BLOCK_BYTES
from dpdist.strategies.grid import Grid
from dpdist.workloads import Basis, Workload, integer_basis


@dataclass(frozen=True)
class Reader:
    """How answers derive from measured grid values.

    Attributes:
        spacing: grid unit of the measurement.
        units: for a direct strategy, spacing * M of each query: its answer is measured * spacing / unit.
        basis, inverse: for a strategy M B, the basis and (spacing M)^+ spacing, (r, p); large, so it may be left out
            (None) and put in by ``with_inverse`` where it is used.
    """

    workload: Workload
    spacing: float
    units: Matrix | None = field(default=None, repr=False)
    basis: Basis | None = None
    inverse: Matrix | None = field(default=None, repr=False)

    def with_inverse(self, inverse: Matrix | None) -> Reader:
        """The same reader with the inverse put in, or taken out."""
        return replace(self, inverse=inverse)

    def estimate(self, measured: Matrix) -> Matrix:
        """What answers are computed from: the basis estimate, the noisy cells, or the measurements themselves."""
        if self.inverse is not None:
            return np.asarray(self.inverse @ measured.astype(np.float64))
        return np.asarray(measured * self.spacing)

    def answers(self, start: int, stop: int, estimate: Matrix, noise_scale: float) -> tuple[Matrix, Matrix]:
        """Answers of the unweighted queries start..stop and their standard errors, both (stop - start,) float64.

        Args:
            noise_scale: scale of the discrete Gaussian on the grid.
        Source: Li & Miklau 2012, Prop. 4: Var(w xhat) = sigma^2 ||w A^+||^2.
        """
        if self.units is not None:
            units = self.units[start:stop]
            return estimate[start:stop] / units, noise_scale * self.spacing / units
        if self.basis is None:
            rows = self.workload.unweighted.rows(start, stop)
            errors = np.sqrt(np.einsum("ij,ij->i", rows, rows)) * noise_scale * self.spacing
            return rows @ estimate, errors
        assert self.inverse is not None
        rows = self.basis.coordinates(start, stop, weighted=False)
        spread = rows @ self.inverse
        return rows @ estimate, np.sqrt(np.einsum("ij,ij->i", spread, spread)) * noise_scale

    def rows_a_block(self, block_bytes: int = ROW_BLOCK_BYTES) -> int:
        """Queries whose dense rows fit in a block."""
        width = self.basis.rank if self.basis is not None else self.workload.shape[1]
        return max(1, block_bytes // (16 * width))


def reader_of(workload: Workload, grid: Grid, *, direct: bool) -> Reader:
    """The reader of a grid. Raises: InvalidInput when the strategy does not determine every answer."""
    if direct:
        units = grid.mixing * grid.spacing if grid.mixing.ndim == 1 else workload.weights
        return Reader(workload, grid.spacing, units=units)
    if grid.mixing.ndim == 1:
        if not isinstance(grid.base, Identity):
            raise InvalidInput("a strategy of integer rows needs a mixing over a basis to be read")
        return Reader(workload, grid.spacing)
    basis = integer_basis(workload)
    if grid.mixing.shape[1] != basis.rank:
        raise InvalidInput(f"a mixing of {grid.mixing.shape[1]} columns does not fit a basis of {basis.rank} rows")
    mixing = grid.mixing.astype(np.float64) * grid.spacing
    square = mixing.shape[0] == mixing.shape[1]
    inverse = scipy.linalg.inv(mixing, check_finite=False) if square else scipy.linalg.pinv(mixing, check_finite=False)
    return Reader(workload, grid.spacing, basis=basis, inverse=np.asarray(inverse * grid.spacing))
