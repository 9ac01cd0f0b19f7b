"""Strategies over orbits on the integer grid: what is measured, its exact sensitivity, and the answers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.domain import Layout
from dpdist.errors import InvalidInput
from dpdist.measurement.dense_measurement import complete_rank
from dpdist.measurement.integer_measurement import (
    GRID_BITS,
    MEMORY_COPIES,
    Counts,
    IntegerMeasurement,
    StageBytes,
    answer_bytes,
    check_published_size,
)
from dpdist.measurement.sensitivity.column_norms import exact_norms, row_blocks
from dpdist.operators import Identity, Kronecker, Matrix, Operator
from dpdist.operators.orbit_sums import SUMMED
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.kronecker_terms import row_squares
from dpdist.reconstruction.least_squares import left_inverse
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.row_space import RowSpace
from dpdist.stability import Neighbours
from dpdist.workloads import Block, Workload
from dpdist.workloads.orbits import LOOKED_THROUGH
from dpdist.workloads.symmetry import Component, Symmetry

PAIRED_ORBITS = 8192
"""Orbits up to which all pairs are compared for the sensitivity under replace-one; beyond, the triangle inequality bounds it."""
PAIRS_AT_ONCE = 2**22


@dataclass(frozen=True)
class OrbitMeasurement(IntegerMeasurement):
    """Integer rows over orbits for every component.

    Attributes:
        mixings: M of each component, int64: rows over its integer basis.
        spacing: grid unit.
        sensitivity_squared: exact for add-remove; pairs of cells are compared in float64 with a proven error bound.
    """

    symmetry: Symmetry
    mixings: tuple[Matrix, ...] = field(repr=False)
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return sum(m.shape[0] * component.orbits.contrast_count for component, m in self._component_rows())

    @property
    def digest(self) -> str:
        """SHA-256 of all rows: the noise key is bound to it."""
        content = hashlib.sha256(repr(("symmetric", self.spacing, self.sensitivity_squared)).encode())
        for component, mixing in self._component_rows():
            content.update(repr((component.orbits.fingerprint, component.integer_rows.fingerprint, mixing.shape)).encode())
            content.update(np.ascontiguousarray(mixing).tobytes())
        return content.hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        """Copies of the counts and of z, the rows and their inverses."""
        rows = sum(int(mixing.nbytes) for mixing in self.mixings)
        return StageBytes(MEMORY_COPIES * 8 * (layout.size + self.rows) + 2 * rows, answer_bytes(workload) + 4 * rows)

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        return ArrayVector(self.measure(counts.cells()))

    def measure(self, x: Matrix) -> Matrix:
        """z for counts, (cells,) or (cells, k) int64: overflow on the way wraps and cancels, the result fits."""
        return np.concatenate([component.rows(mixing).matvec(x) for component, mixing in self._component_rows()])

    @cached_property
    def column_squared(self) -> int:
        return _sensitivity_squared(self.symmetry, self.mixings, "add-remove")

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        variances = block_variances(self.symmetry, work.largest(self.inverses))
        return sum(
            float(b.weights**2 @ block_variance.ravel())
            for b, block_variance in zip(workload.blocks, variances, strict=True)
        )

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Every block of queries as the sum of what the components say; their noise is independent, so variances add."""
        if workload.fingerprint != self.symmetry.workload.fingerprint:
            raise InvalidInput("a measurement over orbits answers only the queries that it was made for")
        values, inverses = to_array(z), answer_request.work.largest(self.inverses)
        blocks = workload.blocks
        block_answers = [np.zeros(tuple(f.shape[0] for f in block.factors)) for block in blocks]
        variances = [np.zeros_like(block_array) for block_array in block_answers]
        start, components = 0, self.symmetry.components
        for finished, (component, mixing, inverse) in enumerate(
            zip(components, self.mixings, inverses, strict=True), start=1
        ):
            stop = start + mixing.shape[0] * component.orbits.contrast_count
            basis_estimate = inverse @ values[start:stop].astype(np.float64).reshape(mixing.shape[0], -1)
            for position, number in enumerate(component.blocks):
                reading = _BlockReading.of(blocks[number], component, position)
                block_answers[number] += reading.answers(basis_estimate)
                variances[number] += reading.variances(inverse)
            start = stop
            answer_request.show_step(finished, len(components))
        answer = np.concatenate([block_array.ravel() for block_array in block_answers])
        error = noise.deviation * np.sqrt(np.concatenate([block_array.ravel() for block_array in variances]))
        return answer_request.write(answer, error, error * noise.half_width_95(0.0))

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """All rows over the cells, written down: for domains of few cells."""
        check_published_size(self.rows * (math.prod(shape) + 2), most_bytes)
        rows = np.concatenate([np.rint(block) for block in self.row_blocks()]).astype(np.int64)
        return RowSpace(np.ones(self.rows, dtype=np.int64), rows, shape, to_array(measured))

    def row_blocks(self) -> Iterator[Matrix]:
        """The measured rows over all cells, component by component: for domains that can be written down."""
        for component, mixing in self._component_rows():
            yield component.rows(mixing).dense()

    def inverses(self) -> tuple[Matrix, ...]:
        """The left inverse of every component's rows, from grid units to counts. Raises: InvalidInput where answers are not determined."""
        return tuple(left_inverse(mixing.astype(np.float64)) for mixing in self.mixings)

    def _component_rows(self) -> Iterator[tuple[Component, Matrix]]:
        return zip(self.symmetry.components, self.mixings, strict=True)


@dataclass(frozen=True)
class _BlockReading:
    """What a component says of a block's unweighted queries.

    Attributes:
        local: rows over the component's basis, for the attributes that are summed over orbits.
        basis_rows: the rows of the basis that they refer to.
        contrasts: for every attribute of which one orbit is chosen, the queries less their mean over it, divided by its size.
        shape, order: of the queries: the factors that are summed first, then the others, and back.
    """

    local: Operator
    basis_rows: Matrix
    contrasts: tuple[_OrbitContrasts, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...]

    @staticmethod
    def of(block: Block, component: Component, number: int) -> _BlockReading:
        basis = component.basis
        if basis.operator is None:
            local = component.quotient.blocks[number].operator(component.quotient.domain.shape)
            basis_rows = np.arange(basis.cells)
        else:
            factors, basis_rows = basis.blocks[number]
            local = factors[0] if len(factors) == 1 else Kronecker(factors)
        summed = [k for k, axis in enumerate(block.axes) if component.orbit_choice[axis] == SUMMED]
        contrast_factors = [k for k, axis in enumerate(block.axes) if component.orbit_choice[axis] != SUMMED]
        contrasts = []
        for k in contrast_factors:
            values = np.flatnonzero(component.orbits.codes[block.axes[k]] == component.orbit_choice[block.axes[k]])
            contrasts.append(_OrbitContrasts.of(block.factors[k], values))
        sizes = tuple(block.factors[k].shape[0] for k in summed)
        return _BlockReading(
            local, basis_rows, tuple(contrasts), sizes, tuple(int(k) for k in np.argsort([*summed, *contrast_factors]))
        )

    def answers(self, basis_estimate: Matrix) -> Matrix:
        """Answers from the estimate of the basis, one axis a factor."""
        tensor = self.local.matvec(basis_estimate[self.basis_rows]).reshape(
            *self.shape, *(contrast.values.size for contrast in self.contrasts)
        )
        for axis, contrast in enumerate(self.contrasts, start=len(self.shape)):
            tensor = contrast.answers(tensor, axis)
        return np.transpose(tensor, self.order)

    def variances(self, inverse: Matrix) -> Matrix:
        """Variances at noise of deviation 1, one axis a factor."""
        variances = row_squares(self.local, inverse[self.basis_rows]).reshape(self.shape)
        for contrast in self.contrasts:
            variances = np.multiply.outer(variances, contrast.squares())
        return np.transpose(variances, self.order)


@dataclass(frozen=True)
class _OrbitContrasts:
    """Queries of an attribute less their mean over an orbit, divided by its size.

    Attributes:
        values: of the orbit.
        queries: how many there are.
        rows: over the orbit, (queries, values); None where the queries are very many values themselves, whose rows are not written down.
    """

    values: Matrix
    queries: int
    rows: Matrix | None

    @staticmethod
    def of(factor: Operator, values: Matrix) -> _OrbitContrasts:
        if isinstance(factor, Identity) and factor.shape[0] > LOOKED_THROUGH:
            return _OrbitContrasts(values, factor.shape[0], None)
        rows = factor.dense()[:, values]
        return _OrbitContrasts(values, factor.shape[0], (rows - rows.mean(axis=1, keepdims=True)) / values.size)

    def answers(self, tensor: Matrix, axis: int) -> Matrix:
        """The queries' answers from those of the orbit's values along an axis."""
        if self.rows is not None:
            return np.moveaxis(np.tensordot(self.rows, tensor, axes=(1, axis)), 0, axis)
        expanded = np.zeros((*tensor.shape[:axis], self.queries, *tensor.shape[axis + 1 :]))
        expanded[(slice(None),) * axis + (self.values,)] = (
            tensor - tensor.mean(axis=axis, keepdims=True)
        ) / self.values.size
        return expanded

    def squares(self) -> Matrix:
        """The squared length of every row, (queries,) float64."""
        if self.rows is not None:
            return np.asarray(np.einsum("ij,ij->i", self.rows, self.rows))
        lengths = np.zeros(self.queries)
        lengths[self.values] = (1.0 - 1.0 / self.values.size) / self.values.size**2
        return lengths


def orbit_measurement(
    symmetry: Symmetry, mixings: Sequence[Matrix], *, neighbours: Neighbours, most_records: int
) -> OrbitMeasurement:
    """Round rows to integers so that the whole has a sensitivity of about 2^30 grid units."""
    real = [complete_rank(mixing) for mixing in mixings]
    spacing = math.sqrt(float(column_squares(symmetry, real).max())) * 2.0**-GRID_BITS
    whole = tuple(np.rint(mixing / spacing).astype(np.int64) for mixing in real)
    exact = _sensitivity_squared(symmetry, whole, neighbours)
    return OrbitMeasurement(symmetry, whole, spacing, exact * most_records**2)


def column_squares(symmetry: Symmetry, mixings: Sequence[Matrix]) -> Matrix:
    """Squared length of a cell's column in each orbit of cells, float64."""
    squares = np.zeros(symmetry.sizes.size)
    for component, mixing in zip(symmetry.components, mixings, strict=True):
        columns = component.integer_rows.rmatvec(np.ascontiguousarray(mixing.T))
        squares[component.orbit_cells] += math.prod(component.lengths) * np.einsum("ij,ij->i", columns, columns)
    return squares


def largest_variance(symmetry: Symmetry, mixings: Sequence[Matrix]) -> float:
    """Largest variance of an unweighted query at noise of deviation 1."""
    variances = block_variances(symmetry, [np.linalg.pinv(mixing) for mixing in mixings])
    return max(float(variance.max()) for variance in variances)


def block_variances(symmetry: Symmetry, inverses: Sequence[Matrix]) -> list[Matrix]:
    """Variances of every block's unweighted queries at noise of deviation 1, one axis a factor."""
    blocks = symmetry.workload.blocks
    variances = [np.zeros(tuple(f.shape[0] for f in block.factors)) for block in blocks]
    for component, inverse in zip(symmetry.components, inverses, strict=True):
        for position, number in enumerate(component.blocks):
            variances[number] += _BlockReading.of(blocks[number], component, position).variances(inverse)
    return variances


def _sensitivity_squared(symmetry: Symmetry, mixings: Sequence[Matrix], neighbours: Neighbours) -> int:
    """A Python integer that no neighbour's squared distance in z exceeds; exact for add-remove.

    Replacing a record moves z by the difference of two columns. Their inner product depends on the two orbits and on the attributes in
    which the cells differ within the same orbit: rows c I - 1 1' give c (c - 1) where they agree and -c where they do not.
    """
    norms = np.zeros(symmetry.sizes.size, dtype=object)
    for component, mixing in zip(symmetry.components, mixings, strict=True):
        for block in row_blocks(mixing, component.integer_rows):
            norms[component.orbit_cells] += math.prod(component.lengths) * exact_norms(block)
    largest: int = int(norms.max())
    if neighbours == "add-remove":
        return largest
    if norms.size > PAIRED_ORBITS:
        return 4 * largest
    farthest = _farthest_distance(symmetry, mixings, norms.astype(np.float64))
    steps = max(mixing.shape[0] for mixing in mixings) + len(symmetry.components) + 8
    reach: int = math.ceil(farthest + 4.0 * steps * 2.0**-53 * largest)
    return max(largest, reach)


def _farthest_distance(symmetry: Symmetry, mixings: Sequence[Matrix], norms: Matrix) -> float:
    """The largest squared distance between two columns, in floating point."""
    columns = [  # one a row
        component.integer_rows.rmatvec(np.ascontiguousarray(mixing.T)).astype(np.float64)
        for component, mixing in zip(symmetry.components, mixings, strict=True)
    ]
    contrast_axes = sorted({axis for component in symmetry.components for axis in component.orbits.contrast_axes})
    worst, step = 0.0, max(1, PAIRS_AT_ONCE // (2 ** len(contrast_axes) * norms.size))
    for start in range(0, norms.size, step):
        products = np.zeros((2 ** len(contrast_axes), min(step, norms.size - start), norms.size))
        for component, values in zip(symmetry.components, columns, strict=True):
            low, high = np.searchsorted(component.orbit_cells, [start, start + step])
            if low == high:
                continue
            inner = values[low:high] @ values.T
            whole = component.orbit_cells.size == norms.size
            target = slice(None) if whole else np.ix_(component.orbit_cells[low:high] - start, component.orbit_cells)
            sizes = dict(zip(component.orbits.contrast_axes, component.orbits.contrast_sizes(), strict=True))
            for pattern, differs in enumerate(product((False, True), repeat=len(contrast_axes))):
                agreed = ((sizes.get(axis), differ) for axis, differ in zip(contrast_axes, differs, strict=True))
                products[pattern][target] += math.prod((-c if d else c * (c - 1)) for c, d in agreed if c) * inner
        distances = norms[start : start + step, None] + norms - 2.0 * products.min(axis=0)
        worst = max(worst, float(distances.max()))
    return worst
