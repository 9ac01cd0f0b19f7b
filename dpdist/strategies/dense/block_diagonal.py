"""A full-rank gram as independent parts that share the dual variables: two of half the size where it equals its reversal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpdist.operators import Matrix
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.chain import Chain

Spectrum = tuple[Matrix, Matrix]
"""s and U with D^1/2 V D^1/2 = U diag(s^2) U'."""


@dataclass(frozen=True)
class DiagonalBlock:
    """One diagonal block of V after an orthogonal change of cells: V restricted to ``cells`` dual variables."""

    gram: Matrix
    cells: Matrix


@dataclass(frozen=True)
class BlockDiagonal:
    """V as independent parts that share the dual variables; ``multiplicity`` cells stand behind each variable."""

    blocks: tuple[DiagonalBlock, ...]
    multiplicity: Matrix
    reversal: bool
    chain: Chain | None = None

    def root(self, spectra: tuple[tuple[Matrix, Matrix], ...], weight: Matrix, scaling: Matrix) -> Matrix:
        """A with A'A = S D^-1/2 M D^-1/2 S over all cells, stacked by part."""
        column = scaling / np.sqrt(weight)
        row_blocks = []
        for block, (s, u) in zip(self.blocks, spectra, strict=True):
            row_blocks.append(
                linear_algebra.like(u, np.sqrt(s))[:, None] * u.T * linear_algebra.like(u, column[block.cells])
            )
        if not self.reversal:
            return row_blocks[0]
        even, odd = row_blocks
        half = odd.shape[1]
        half_weight = math.sqrt(0.5)
        left_columns = linear_algebra.concat([even[:, :half], odd], axis=0) * half_weight
        right_columns = linear_algebra.concat([even[:, :half], -odd], axis=0) * half_weight
        middle = linear_algebra.concat(
            [even[:, half:], linear_algebra.zeros(odd, (odd.shape[0], even.shape[1] - half))], axis=0
        )
        return linear_algebra.concat([left_columns, middle, linear_algebra.reversed_columns(right_columns)], axis=1)


def block_diagonalise(gram: Matrix, chain: Chain | None = None) -> BlockDiagonal:
    """Two half-size parts for a gram equal to its reversal, else one: all of it for a chain."""
    n = int(gram.shape[0])
    if chain is not None or n < 2 or not linear_algebra.symmetric_under_reversal(gram, tolerance=1e-14):
        return BlockDiagonal((DiagonalBlock(gram, np.arange(n)),), np.ones(n), reversal=False, chain=chain)
    half = n // 2
    near, far = gram[:half, :half], linear_algebra.reversed_columns(gram[:half, n - half :])
    even = linear_algebra.empty(gram, (n - half, n - half))
    even[:half, :half] = near + far
    if n % 2:
        even[:half, half] = even[half, :half] = math.sqrt(2.0) * gram[:half, half]
        even[half, half] = gram[half, half]
    multiplicity = np.full(n - half, 2.0)
    if n % 2:
        multiplicity[half] = 1.0
    return BlockDiagonal(
        (DiagonalBlock(even, np.arange(n - half)), DiagonalBlock(near - far, np.arange(half))), multiplicity, reversal=True
    )


def decompose_scaled(gram: Matrix, scale: Matrix) -> Spectrum:
    """Eigenvalues and eigenvectors of the gram with rows and columns scaled, in the gram's precision."""
    d = linear_algebra.like(gram, scale)
    scaled = gram * d
    scaled *= d[:, None]
    # symmetric: the transpose is Fortran-contiguous and LAPACK works in place, one n^2 array less
    return linear_algebra.eigh(scaled.T, overwrite=True)


def mean_square(block_form: BlockDiagonal, weight: Matrix, residual: Matrix) -> float:
    """Of the residual, each cell counted by its weight."""
    return float(block_form.multiplicity * weight @ residual**2 / (block_form.multiplicity @ weight))
