"""The integer grid on which a strategy is measured, and its exact sensitivity.

A strategy A is rounded once, to integers: A_grid = M B with M integer and B the integer rows of a basis (or of the
strategy itself). z = M (B x) is exact in int64, so is its sensitivity; z + discrete Gaussian noise is all that is ever
derived from the records. Rounding M bends the strategy by less than 2^-29 of its sensitivity, and M stays invertible, so
answers stay exactly unbiased.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Identity, Matrix, Operator, Product
from dpdist.operators.base import ROW_BLOCK_BYTES
from dpdist.sizes import SIZES, Sizes
from dpdist.stability import Neighbours
from dpdist.strategies.base import Norm, Strategy
from dpdist.strategies.filter_grid import LongGrid, filter_grid, long_grid
from dpdist.strategies.grid import GRID_BITS, Grid, TableGrid
from dpdist.strategies.hadamard_grid import hadamard_grid
from dpdist.strategies.term_grid import TermGrid, term_grid
from dpdist.workloads import Workload, integer_basis

COMPLETION = 2.0**-15
"""Weight of the directions nobody asks for, added so that the rounded strategy stays invertible; costs below 1e-8."""
COMPLETION_L1 = 2.0**-20
"""The same for Laplace noise, where it costs about 2e-6 of the error; full-rank strategies need none."""
DIGEST_BYTES = 2**29
"""Grids that measure more cells alike are named by their number and not by all of them."""


@dataclass(frozen=True)
class DenseGrid(Grid):
    """An integer strategy M B and how to read its measurements.

    Attributes:
        mixing: M, int64: (p, r), or (p,) for a diagonal.
        base: B, integer rows over the cells.
        spacing: grid unit: the strategy is spacing * M B.
        sensitivity_squared: exact bound of the squared distance (L2, or L1 for Laplace noise) between z of neighbouring
            histograms, grid units.
        norm: "l2" or "l1", the distance that the noise has to hide.
    """

    mixing: Matrix = field(repr=False)
    base: Operator
    spacing: float
    sensitivity_squared: int
    norm: Norm = "l2"

    @property
    def rows(self) -> int:
        """p, the number of measured values."""
        return int(self.mixing.shape[0])

    @property
    def digest(self) -> str:
        """SHA-256 of M and B: the noise key is bound to it, so that no other strategy can meet the same noise."""
        content = hashlib.sha256()
        if self.mixing.size * 8 <= DIGEST_BYTES or self.multiple is None:
            content.update(np.ascontiguousarray(self.mixing).tobytes())
        else:
            content.update(f"all {self.multiple}".encode())
        facts = (self.mixing.shape, self.base.fingerprint, self.spacing, self.sensitivity_squared, self.norm)
        content.update(repr(facts).encode())
        return content.hexdigest()

    @property
    def multiple(self) -> int | None:
        """k when z = k x: every cell is measured alike."""
        alike = self.mixing.ndim == 1 and self.mixing.strides == (0,)
        return int(self.mixing[0]) if alike and isinstance(self.base, Identity) else None

    def row_blocks(self) -> Iterator[Matrix]:
        """Rows of M B over all cells, (k, cells) int64, block by block."""
        return _row_blocks(self.mixing, self.base)

    def apply(self, statistics: Matrix) -> Matrix:
        """z = M t for t = B x, exact in int64 (intermediate overflow wraps and cancels, the result fits)."""
        if self.mixing.ndim == 1:
            return np.asarray(self.mixing * statistics)
        return np.asarray(self.mixing @ statistics)


def grid_of(
    strategy: Strategy, workload: Workload, *, neighbours: Neighbours, most_records: int
) -> DenseGrid | TermGrid | TableGrid | LongGrid:
    """The integer grid of a strategy.

    Args:
        neighbours: one record more or less, or one record replaced (which may also enter or leave the domain).
        most_records: k, the most records of one person: multiplies the sensitivity.
    """
    if most_records < 1:
        raise InvalidInput(f"a person has at least one record, found most_records={most_records}")
    if strategy.long is not None:
        return long_grid(strategy.long, neighbours=neighbours, most_records=most_records)
    if strategy.coefficients is not None:
        return filter_grid(strategy, workload.domain.shape, neighbours=neighbours, most_records=most_records)
    if strategy.characters is not None:
        return hadamard_grid(strategy, neighbours=neighbours, most_records=most_records)
    if strategy.terms:
        domain = workload.domain
        return term_grid(strategy.terms, domain.shape, neighbours=neighbours, most_records=most_records, sizes=domain.sizes)
    base, real = _integer_base(strategy, workload)
    unit = strategy.sensitivity
    spacing = unit * 2.0**-GRID_BITS
    if real is None:
        mixing = np.broadcast_to(np.int64(round(2.0**GRID_BITS / unit)), base.shape[:1])  # takes no memory
        spacing = 1.0 / float(mixing[0])
    else:
        mixing = np.rint(real / spacing).astype(np.int64)
    exact = (
        sensitivity_squared(mixing, base, neighbours, workload.domain.sizes)
        if strategy.norm == "l2"
        else l1_sensitivity(mixing, base, neighbours, workload.domain.sizes) ** 2
    )
    return DenseGrid(mixing, base, spacing, exact * most_records**2, strategy.norm)


def _integer_base(strategy: Strategy, workload: Workload) -> tuple[Operator, Matrix | None]:
    """Integer rows B and real mixing M (None: the identity) with A = M B, M invertible unless the strategy is direct."""
    operator = strategy.operator
    if strategy.direct:
        if workload.unweighted.integral:
            return workload.unweighted, workload.weights
        return Identity(workload.shape[1]), operator.dense()
    if isinstance(operator, Product) and isinstance(operator.left, Dense):
        return operator.right, completed(operator.left.array, strategy.norm)
    if operator.integral:
        return operator, None
    rows = operator.dense()
    basis = integer_basis(workload)
    if basis.operator is not None:
        whole = basis.columns(np.arange(operator.shape[1]))
        mixing = scipy.linalg.lstsq(whole.T, rows.T, check_finite=False)[0].T
        if float(np.abs(mixing @ whole - rows).max()) <= 1e-10 * float(np.abs(rows).max()):
            return basis.operator, completed(mixing, strategy.norm)
    return Identity(operator.shape[1]), completed(rows, strategy.norm)


def completed(mixing: Matrix, norm: Norm = "l2") -> Matrix:
    """M with small rows added, so that it has full column rank: directions nobody asks for, which noise must not meet.

    "l2": the null space, whose squares add up to nothing. "l1": single columns outside a pivot set, since L1 lengths add.
    """
    rows, columns = mixing.shape
    if rows == columns:
        return mixing
    _, singular, right = scipy.linalg.svd(mixing, full_matrices=True, check_finite=False)
    rank = int((singular > max(rows, columns) * np.finfo(float).eps * singular[0]).sum())
    if rank == columns:
        return mixing
    if norm == "l1":
        *_, order = scipy.linalg.qr(mixing, mode="economic", pivoting=True, check_finite=False)
        largest = float(np.abs(mixing).sum(axis=0).max())
        return np.vstack([mixing, COMPLETION_L1 * largest * np.eye(columns)[order[rank:]]])
    largest = float(np.sqrt(np.einsum("ij,ij->j", mixing, mixing).max()))
    return np.vstack([mixing, COMPLETION * largest * right[rank:]])


def sensitivity_squared(mixing: Matrix, base: Operator, neighbours: Neighbours, sizes: Sizes = SIZES) -> int:
    """A Python integer that no neighbour's squared distance in z = M B x exceeds; exact for add-remove.

    Replacing a record moves z by the difference of two columns, or by one column when it enters or leaves the domain.
    Differences are compared in float64 with a proven error bound and rounded up; beyond ``sizes.pair_cells`` cells the
    triangle inequality is used instead.
    """
    if mixing.ndim == 1 and isinstance(base, Identity):
        return sum(value**2 for value in _largest(mixing, neighbours))
    cells = base.shape[1]
    pairs = neighbours == "replace-one" and cells <= sizes.pair_cells
    products = np.zeros((cells, cells)) if pairs else None
    norms = np.zeros(cells, dtype=object)
    for block in _row_blocks(mixing, base):
        norms += _exact_norms(block)
        if products is not None:
            values = block.astype(np.float64)
            products += values.T @ values
    largest = int(norms.max())
    if neighbours == "add-remove":
        return largest
    if products is None:
        return 4 * largest
    rounded = norms.astype(np.float64)
    farthest = float((rounded[:, None] + rounded[None, :] - 2.0 * products).max())
    slack = 4.0 * (mixing.shape[0] + 4) * 2.0**-53 * largest
    return max(largest, int(np.ceil(farthest + slack)))


def l1_sensitivity(mixing: Matrix, base: Operator, neighbours: Neighbours, sizes: Sizes = SIZES) -> int:
    """The largest L1 distance in z = M B x between neighbours, in exact integers.

    With ``replace-one`` every pair of columns is compared while that takes up to ``sizes.pair_work`` operations; beyond, the
    triangle inequality bounds the distance by twice the largest column.
    """
    if mixing.ndim == 1 and isinstance(base, Identity):
        return sum(_largest(mixing, neighbours))
    cells = base.shape[1]
    pairs = neighbours == "replace-one" and cells**2 * mixing.shape[0] <= sizes.pair_work
    columns = np.zeros(cells, dtype=np.int64)
    distances = np.zeros((cells, cells), dtype=np.int64) if pairs else None
    for block in _row_blocks(mixing, base):
        if int(np.abs(block).max(initial=0)) * mixing.shape[0] >= 2**61:
            raise InvalidInput("grid entries are too large: the strategy's entries exceed its sensitivity by far")
        columns += np.abs(block).sum(axis=0)
        if distances is not None:
            for cell in range(cells):
                distances[cell] += np.abs(block - block[:, cell : cell + 1]).sum(axis=0)
    largest = int(columns.max())
    if neighbours == "add-remove":
        return largest
    return 2 * largest if distances is None else max(largest, int(distances.max()))


def _largest(diagonal: Matrix, neighbours: Neighbours) -> list[int]:
    """The largest entry of a diagonal, or with ``replace-one`` the two largest ones (of two cells, which may be equal), without signs."""
    some = diagonal[:2] if diagonal.strides == (0,) else diagonal
    return sorted((abs(int(v)) for v in np.sort(np.abs(some))[-2:]), reverse=True)[: 1 if neighbours == "add-remove" else 2]


def _row_blocks(mixing: Matrix, base: Operator) -> Iterator[Matrix]:
    """Rows of M B over all cells, (k, n) int64, block by block."""
    step = max(1, ROW_BLOCK_BYTES // (8 * base.shape[1]))
    for start in range(0, mixing.shape[0], step):
        part = mixing[start : start + step]
        if mixing.ndim == 1:
            yield part[:, None] * base.rows(start, start + part.shape[0]).astype(np.int64)
        else:
            yield np.ascontiguousarray(base.rmatvec(np.ascontiguousarray(part.T)).T)


def _exact_norms(rows: Matrix) -> Matrix:
    """Squared norms of the columns of a block as Python integers, from 16-bit halves whose sums stay below 2^63."""
    top = int(np.abs(rows).max(initial=0))
    if (top >> 16) ** 2 * rows.shape[0] >= 2**62:
        raise InvalidInput(
            f"grid entries of up to {top} are too large: the strategy's entries exceed its sensitivity by far"
        )
    high, low = rows >> 16, rows & 0xFFFF
    parts = [np.einsum("ij,ij->j", a, b).astype(object) for a, b in ((high, high), (high, low), (low, low))]
    return np.asarray(parts[0] * 2**32 + parts[1] * 2**17 + parts[2])
