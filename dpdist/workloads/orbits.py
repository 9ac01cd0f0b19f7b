"""Orbits: the values of an attribute that no query treats differently.

Two values are exchangeable when swapping them leaves the gram of every factor as it is (docs/mathematics.md, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpdist.operators import Identity, Matrix, Operator, Prefix, TallMatrix, Total
from dpdist.workloads.block import Block

LOOKED_THROUGH = 1024
"""Values of an attribute up to which grams are looked through for exchangeable ones; beyond, only plain tables are."""
GRAM_TOLERANCE = 1e-13
"""Relative difference of gram entries that is rounding."""


def find_orbits(blocks: Sequence[Block], shape: Sequence[int]) -> tuple[Matrix, ...] | None:
    """The orbit of every value of each attribute; None where the queries are no products over attributes."""
    if any(not block.separable or isinstance(f, TallMatrix) for block in blocks for f in block.factors):
        return None
    return tuple(_exchangeable(blocks, axis, size) for axis, size in enumerate(shape))


def is_tabled(blocks: Sequence[Block], axis: int) -> bool:
    """Whether only the values of an attribute and their total are asked for, so that all of them are exchangeable."""
    return all(isinstance(factor, Identity | Total) for factor in _factors(blocks, axis))


def _factors(blocks: Sequence[Block], axis: int) -> Iterator[Operator]:
    """An attribute's factors in all blocks, with their rows scaled."""
    for block in blocks:
        for block_axis, factor in zip(block.axes, block.scaled(block.factors), strict=True):
            if block_axis == axis:
                yield factor


def _exchangeable(blocks: Sequence[Block], axis: int, size: int) -> Matrix:
    """The orbit of every value of an attribute, numbered by first appearance."""
    if is_tabled(blocks, axis):
        return np.zeros(size, dtype=np.int64)
    factors: dict[str, Operator] = {}
    for factor in _factors(blocks, axis):
        if not isinstance(factor, Identity | Total):
            factors.setdefault(factor.fingerprint, factor)
    if size > LOOKED_THROUGH or any(isinstance(factor, Prefix) for factor in factors.values()):
        return np.arange(size)
    grams = [gram / float(np.diag(gram).max()) for gram in (factor.gram() for factor in factors.values())]
    keys = np.round(np.array([[np.diag(g), g.sum(axis=0), (g * g).sum(axis=0)] for g in grams]).reshape(-1, size).T, 9)
    candidates = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
    codes = np.full(size, -1, dtype=np.int64)
    representatives: list[int] = []
    for value in range(size):
        candidate_orbits = (
            k for k, representative in enumerate(representatives) if candidates[representative] == candidates[value]
        )
        codes[value] = next(
            (k for k in candidate_orbits if _can_swap(grams, representatives[k], value)), len(representatives)
        )
        if codes[value] == len(representatives):
            representatives.append(value)
    return codes


def _can_swap(grams: list[Matrix], first_value: int, second_value: int) -> bool:
    """Whether all grams stay as they are when two values are swapped."""
    for gram in grams:
        if abs(gram[first_value, first_value] - gram[second_value, second_value]) > GRAM_TOLERANCE * gram.shape[0]:
            return False
        difference = np.abs(gram[first_value] - gram[second_value])
        difference[[first_value, second_value]] = 0.0
        if difference.max() > GRAM_TOLERANCE * gram.shape[0]:
            return False
    return True
