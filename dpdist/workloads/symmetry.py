"""Symmetry: the small workloads that a workload splits into by the values that no query treats differently.

The values of an attribute fall into orbits (``dpdist.workloads.orbits``), and the space over an attribute into the sums over orbits and,
for every orbit of c > 1 values, the c - 1 dimensions that tell them apart. A workload's gram is block diagonal over the products of
these: one small workload over orbits each, with as many copies as there are dimensions (docs/mathematics.md, section 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from dpdist.domain import Domain
from dpdist.operators import Dense, Identity, Kronecker, Matrix, Operator, Product, Total
from dpdist.operators.orbit_sums import SUMMED, OrbitSums
from dpdist.workloads.block import Block
from dpdist.workloads.integer_basis import Basis, integer_basis
from dpdist.workloads.orbits import GRAM_TOLERANCE
from dpdist.workloads.workload import Workload

MOST_COMPONENTS = 4096


@dataclass(frozen=True)
class Component:
    """The part of a workload that sums some attributes over orbits and tells the values of one orbit of each other one apart.

    Attributes:
        orbit_choice: for every attribute ``SUMMED``, or the orbit whose values are distinguished.
        orbits: what takes counts to this part, in whole numbers.
        quotient: the queries over orbits, weighted so that its gram is that of the part.
        blocks: of the whole workload, those that say something here, in the order of the quotient's.
        copies: dimensions with this gram.
        orbit_cells: for every cell of the quotient, the orbit of cells that it stands for.
    """

    orbit_choice: tuple[int, ...]
    orbits: OrbitSums
    quotient: Workload
    blocks: tuple[int, ...]
    copies: int
    orbit_cells: Matrix

    @cached_property
    def basis(self) -> Basis:
        """The integer basis of what is asked over orbits."""
        return integer_basis(self.quotient)

    @property
    def integer_rows(self) -> Operator:
        """B of the basis."""
        return Identity(self.basis.cells) if self.basis.operator is None else self.basis.operator

    def rows(self, mixing: Matrix) -> Operator:
        """Rows mixing B of this part over all cells of the domain."""
        left_factor = Product(Dense(mixing), self.integer_rows)
        return Product(Kronecker([left_factor, Identity(self.orbits.contrast_count)]), self.orbits)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Squared length of a column of c I - 1 1', c (c - 1), for each chosen orbit."""
        return tuple(c * (c - 1) for c in self.orbits.contrast_sizes())


@dataclass(frozen=True)
class Symmetry:
    """A workload's orbits and the components that it splits into.

    Attributes:
        codes: the orbit of every value of each attribute.
    """

    workload: Workload
    codes: tuple[Matrix, ...]
    components: tuple[Component, ...]

    @property
    def orbits(self) -> tuple[int, ...]:
        """Number of orbits of each attribute."""
        return tuple(int(code.max()) + 1 for code in self.codes)

    @property
    def sizes(self) -> Matrix:
        """Cells in every orbit of cells, float64."""
        cell_counts = np.ones(1)
        for code in self.codes:
            cell_counts = np.multiply.outer(cell_counts, np.bincount(code)).ravel()
        return cell_counts

    def over_cells(self, weights: Matrix) -> Matrix:
        """Weights of orbits of cells as weights of all cells: those of an orbit share its weight."""
        orbits = np.zeros(1, dtype=np.int64)
        for code in self.codes:
            orbits = (orbits[:, None] * (int(code.max()) + 1) + code).ravel()
        return np.asarray((weights / self.sizes)[orbits])


def symmetry_of(workload: Workload, codes: tuple[Matrix, ...]) -> Symmetry:
    """The components of a workload that has an answer in them."""
    strengths = [_strengths(workload, block, codes) for block in workload.blocks]
    options = []
    for axis, code in enumerate(codes):
        several = np.flatnonzero(np.bincount(code) > 1)
        asked_orbits = [
            o
            for o in several
            if any(block_strengths[axis][o] > 0 for block_strengths in strengths if axis in block_strengths)
        ]
        options.append([SUMMED, *(int(o) for o in asked_orbits)])
    components = (_component(workload, codes, orbit_choice, strengths) for orbit_choice in product(*options))
    return Symmetry(workload, codes, tuple(component for component in components if component is not None))


def most_components(codes: tuple[Matrix, ...]) -> int:
    """A bound of the number of components."""
    return math.prod(1 + int((np.bincount(code) > 1).sum()) for code in codes)


def _component(
    workload: Workload, codes: tuple[Matrix, ...], orbit_choice: tuple[int, ...], strengths: list[dict[int, Matrix]]
) -> Component | None:
    """The queries that tell the chosen orbits apart, over the orbits of the other attributes."""
    sizes = tuple(int(code.max()) + 1 if orbit == SUMMED else 1 for code, orbit in zip(codes, orbit_choice, strict=True))
    distinguished_axes = tuple(axis for axis, orbit in enumerate(orbit_choice) if orbit != SUMMED)
    quotient_blocks, block_numbers = [], []
    for number, (block, block_strengths) in enumerate(zip(workload.blocks, strengths, strict=True)):
        power = math.prod(
            block_strengths[axis][orbit_choice[axis]] if axis in block_strengths else 0.0 for axis in distinguished_axes
        )
        if power > 0:
            quotient_blocks.append(_over_orbits(block, codes, orbit_choice, sizes, math.sqrt(power)))
            block_numbers.append(number)
    if not quotient_blocks:
        return None
    orbits = OrbitSums(codes, orbit_choice)
    whole = tuple(int(code.max()) + 1 for code in codes)
    index = np.indices(sizes).reshape(len(sizes), -1)
    fixed = [row if orbit == SUMMED else np.full(row.size, orbit) for row, orbit in zip(index, orbit_choice, strict=True)]
    weight = 1.0 / math.sqrt(orbits.contrast_count)
    quotient = Workload(
        Domain.of_shape(sizes), tuple(replace(block, weight=block.weight * weight) for block in quotient_blocks)
    )
    copies = math.prod(c - 1 for c in orbits.contrast_sizes())
    return Component(orbit_choice, orbits, quotient, tuple(block_numbers), copies, np.ravel_multi_index(fixed, whole))


def _over_orbits(
    block: Block, codes: tuple[Matrix, ...], orbit_choice: tuple[int, ...], sizes: tuple[int, ...], power: float
) -> Block:
    """A block's queries as means over orbits, without the attributes whose values are distinguished."""
    scales = block.scales or (None,) * len(block.factors)
    summed_factors = [
        (axis, _means(factor, codes[axis]), scale)
        for axis, factor, scale in zip(block.axes, block.factors, scales, strict=True)
        if orbit_choice[axis] == SUMMED
    ] or [(0, Total(sizes[0]), None)]
    axes, factors = tuple(axis for axis, _, _ in summed_factors), tuple(factor for _, factor, _ in summed_factors)
    factor_scales = tuple(scale for _, _, scale in summed_factors)
    nameless = ((),) * len(factors)
    return Block(
        block.name,
        axes,
        factors,
        nameless,
        block.weight * power,
        factor_scales if any(s is not None for s in factor_scales) else (),
    )


def _means(factor: Operator, codes: Matrix) -> Operator:
    """A factor's queries over orbits: the mean of its entries in each."""
    orbits = int(codes.max()) + 1
    if orbits == codes.size and (codes == np.arange(codes.size)).all():
        return factor
    if isinstance(factor, Total):
        return Total(orbits)
    counts = np.bincount(codes)
    if isinstance(factor, Identity):
        means = np.zeros((orbits, codes.size))
        means[codes, np.arange(codes.size)] = 1.0 / counts[codes]
        return Dense(means.T)
    sums = np.zeros((orbits, factor.shape[0]))
    np.add.at(sums, codes, factor.dense().T)
    return Dense((sums / counts[:, None]).T)


def _strengths(workload: Workload, block: Block, codes: tuple[Matrix, ...]) -> dict[int, Matrix]:
    """For each attribute of a block, how strongly it tells the values of every orbit apart: V_aa - V_ab."""
    strengths = {}
    for axis, factor in zip(block.axes, block.scaled(block.factors), strict=True):
        counts = np.bincount(codes[axis])
        orbit_strengths = np.zeros(counts.size)
        several = np.flatnonzero(counts > 1)
        if isinstance(factor, Identity):
            orbit_strengths[several] = 1.0
        elif several.size and not isinstance(factor, Total):
            gram = factor.gram()
            for orbit in several:
                first_value, second_value = np.flatnonzero(codes[axis] == orbit)[:2]
                strength = float(gram[first_value, first_value] - gram[first_value, second_value])
                orbit_strengths[orbit] = (
                    strength if strength > 4 * GRAM_TOLERANCE * float(gram[first_value, first_value]) else 0.0
                )
        strengths[axis] = orbit_strengths
    return strengths
