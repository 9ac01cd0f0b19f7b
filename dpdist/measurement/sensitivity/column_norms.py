"""How far one record moves the measurements of a strategy M B: the longest of its columns, and the greatest distance of two."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.operators import Identity, Kronecker, Matrix, Operator, Stack, Total
from dpdist.operators.linear_operator import ROW_BLOCK_BYTES
from dpdist.size_limits import SIZES, Sizes
from dpdist.stability import Neighbours


def exact_norms(rows: Matrix) -> Matrix:
    """Squared norms of the columns of a block as Python integers, from 16-bit halves whose sums stay below 2^63."""
    top = int(np.abs(rows).max(initial=0))
    if (top >> 16) ** 2 * rows.shape[0] >= 2**62:
        raise InvalidInput(
            f"grid entries of up to {top} are too large, because the strategy's entries exceed its sensitivity "
            "by far; choose another mechanism"
        )
    high, low = rows >> 16, rows & 0xFFFF
    half_products = [
        np.einsum("ij,ij->j", first_half, second_half).astype(object)
        for first_half, second_half in ((high, high), (high, low), (low, low))
    ]
    return np.asarray(half_products[0] * 2**32 + half_products[1] * 2**17 + half_products[2])


def sensitivity_squared(mixing: Matrix, base: Operator, neighbours: Neighbours, sizes: Sizes = SIZES) -> int:
    """A Python integer that no neighbour's squared distance in z = M B x exceeds; exact for add-remove.

    Replacing a record moves z by the difference of two columns, or by one column when it enters or leaves the domain.
    Differences are compared in float64 with a proven error bound and rounded up; beyond ``sizes.pair_cells`` cells the
    triangle inequality is used instead.
    """
    if mixing.ndim == 1 and isinstance(base, Identity):
        return sum(value**2 for value in _largest_entries(mixing, neighbours))
    cells = base.shape[1]
    pairs = neighbours == "replace-one" and cells <= sizes.pair_cells
    tables = None if pairs else _table_entries(mixing, base)
    if tables is not None:
        return sum(value**2 for value in tables) * (1 if neighbours == "add-remove" else 4)
    products = np.zeros((cells, cells)) if pairs else None
    norms = np.zeros(cells, dtype=object)
    # sums of norms are exact: blocks that fit into a processor's cache take a third of the time
    for block in row_blocks(mixing, base, ROW_BLOCK_BYTES if pairs else ROW_BLOCK_BYTES // 8):
        norms += exact_norms(block)
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
        return sum(_largest_entries(mixing, neighbours))
    cells = base.shape[1]
    pairs = neighbours == "replace-one" and cells**2 * mixing.shape[0] <= sizes.pair_work
    tables = None if pairs else _table_entries(mixing, base)
    if tables is not None:
        return sum(tables) * (1 if neighbours == "add-remove" else 2)
    columns = np.zeros(cells, dtype=np.int64)
    distances = np.zeros((cells, cells), dtype=np.int64) if pairs else None
    for block in row_blocks(mixing, base):
        if int(np.abs(block).max(initial=0)) * mixing.shape[0] >= 2**61:
            raise InvalidInput(
                "grid entries are too large, because the strategy's entries exceed its sensitivity by far; choose another mechanism"
            )
        columns += np.abs(block).sum(axis=0)
        if distances is not None:
            for cell in range(cells):
                distances[cell] += np.abs(block - block[:, cell : cell + 1]).sum(axis=0)
    largest = int(columns.max())
    if neighbours == "add-remove":
        return largest
    return 2 * largest if distances is None else max(largest, int(distances.max()))


def _table_entries(mixing: Matrix, base: Operator) -> list[int] | None:
    """The entry of every cell in each table, without sign, where B holds whole tables whose rows M weighs alike; None elsewhere.

    Every cell is in one row of each table, so that all columns of M B are alike.
    """
    operators = base.operators if isinstance(base, Stack) else (base,)
    if mixing.ndim != 1 or not all(_is_table(operator) for operator in operators):
        return None
    entries, start = [], 0
    for operator in operators:
        rows = mixing[start : start + operator.shape[0]]
        if rows.min() != rows.max():
            return None
        entries.append(abs(int(rows[0])))
        start += operator.shape[0]
    return entries


def _is_table(operator: Operator) -> bool:
    factors = operator.factors if isinstance(operator, Kronecker) else (operator,)
    return all(isinstance(factor, Identity | Total) for factor in factors)


def _largest_entries(diagonal: Matrix, neighbours: Neighbours) -> list[int]:
    """The largest entry of a diagonal, or with ``replace-one`` the two largest ones (of two cells, which may be equal), without signs."""
    distinct_entries = diagonal[:2] if diagonal.strides == (0,) else diagonal
    return sorted((abs(int(v)) for v in np.sort(np.abs(distinct_entries))[-2:]), reverse=True)[
        : 1 if neighbours == "add-remove" else 2
    ]


def row_blocks(mixing: Matrix, base: Operator, block_bytes: int = ROW_BLOCK_BYTES) -> Iterator[Matrix]:
    """Rows of M B over all cells, (k, n) int64, block by block of so many bytes."""
    step = max(1, block_bytes // (8 * base.shape[1]))
    for start in range(0, mixing.shape[0], step):
        mixing_rows = mixing[start : start + step]
        if mixing.ndim == 1:
            yield mixing_rows[:, None] * base.rows(start, start + mixing_rows.shape[0]).astype(np.int64)
        else:
            yield np.ascontiguousarray(base.rmatvec(np.ascontiguousarray(mixing_rows.T)).T)
