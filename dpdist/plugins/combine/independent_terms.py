"""What releases measured, term by term: rows over some attributes with independent noise, which generalised least squares joins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.joining import Matrix
from dpdist.api.queries import IdentityFactor, MeasuredSpace, ProductSpace, RowSpace, SubsetRows

Axes = tuple[int, ...]
Eigenvalues = tuple[float, float]
MOST_DENSE_VALUES = 4096
"""Values of the attributes that are put together: beyond, their normal equations are not written down."""
ISOTROPIC = 1e-6
"""How far M'M may be from a I + b 11', relative to its largest entry: integer rows are rounded."""


@dataclass(frozen=True)
class IndependentTerm:
    """Measured rows with independent noise of one standard deviation.

    Attributes:
        axes: the attributes that the rows vary with, ascending.
        factors: for each of them the rows, None for every value by itself; or one matrix over all of them together.
        values: what was measured, flat.
        known_eigenvalues: what ``eigenvalues`` computes, where it was computed before.
    """

    axes: Axes
    factors: tuple[Matrix | None, ...] = field(repr=False)
    values: Matrix = field(repr=False)
    deviation: float
    known_eigenvalues: tuple[Eigenvalues | None, ...] = ()

    @cached_property
    def eigenvalues(self) -> tuple[Eigenvalues | None, ...]:
        """Those of M'M along each attribute, on what sums to zero and on constants; None where there are others."""
        return self.known_eigenvalues or tuple(map(isotropic_eigenvalues, self.factors))

    @property
    def is_joint(self) -> bool:
        """Whether the rows are written down over all attributes together."""
        return len(self.factors) != len(self.axes)


def independent_terms(space: MeasuredSpace, axes: Axes, deviation: float) -> list[IndependentTerm]:
    """What was measured, term by term.

    Args:
        axes: which attribute of the pooled domain each attribute of the space is.
        deviation: of the noise of each measured integer.
    Raises: InvalidInput for a measurement whose rows depend on the noise, or are too many to be written down.
    """
    joinable = not space.rows_depend_on_noise and space.reason_withheld is None
    if joinable and isinstance(space, ProductSpace):
        return [
            IndependentTerm(
                tuple(axes[axis] for axis in term.axes),
                tuple(
                    None if isinstance(factor, IdentityFactor) else factor.product(np.eye(factor.shape[0]))
                    for factor in term.factors
                ),
                values.astype(np.float64).ravel() * term.unit,
                deviation * term.unit,
            )
            for term, values in space.measured
        ]
    if not joinable or not isinstance(space, RowSpace):
        raise InvalidInput(
            "its tables were chosen in rounds, or its series is too long, so that it cannot be joined with another measurement"
        )
    cells = math.prod(space.shape)
    if cells > MOST_DENSE_VALUES:
        raise InvalidInput(f"its rows are over {cells:,} cells; at most {MOST_DENSE_VALUES:,} are written down")
    rows = space.measured_rows
    if isinstance(space.base, SubsetRows):
        rows = rows @ _subset_rows(space.base, space.shape)
    elif rows.ndim == 1:
        rows = np.diag(rows)
    return [IndependentTerm(axes, (rows,), space.values.astype(np.float64), deviation)]


def _subset_rows(base: SubsetRows, shape: tuple[int, ...]) -> Matrix:
    """The rows of tables without their first values, over the cells."""
    blocks = []
    for subset in base.family:
        rows = np.ones((1, 1))
        for axis, size in enumerate(shape):
            codes = base.codes[axis]
            factor = (codes == np.arange(1, codes.max() + 1)[:, None]) if axis in subset else np.ones((1, size))
            rows = np.kron(rows, factor)
        blocks.append(rows)
    return np.concatenate(blocks)


def isotropic_eigenvalues(rows: Matrix | None) -> Eigenvalues | None:
    """The eigenvalues of M'M on what sums to zero and on constants, where there are only these two.

    Args:
        rows: M, (measured rows, values); None for every value by itself.
    """
    if rows is None:
        return 1.0, 1.0
    size = rows.shape[1]
    gram = rows.T @ rows
    off = float((gram.sum() - np.trace(gram)) / (size * (size - 1))) if size > 1 else 0.0
    own = float(np.trace(gram)) / size - off
    largest = float(np.abs(gram).max())
    if float(np.abs(gram - own * np.eye(size) - off).max()) > ISOTROPIC * largest:
        return None
    both = own, own + size * off
    return cast("Eigenvalues", tuple(value if value > ISOTROPIC * largest else 0.0 for value in both))
