"""Generalised least squares over several published measurements of the same records.

Along an attribute whose measured rows M have M'M = a I + b 11' in every measurement, a function of the cells splits into its mean and what
varies, and the parts that vary with different attributes are independent: each is a weighted mean over the measurements, and cells are
never enumerated together. All other attributes are put together as one, of whose values the normal equations are written down: the levels
of a geography, the steps of a series, or a whole domain that is small. So the estimates are the best linear unbiased ones, and their
covariances are exact (docs/mathematics.md, section 13).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.joining import Matrix, Operator, OutOfMemory
from dpdist.api.queries import Block, NotMeasured
from dpdist.plugins.combine.independent_terms import ISOTROPIC, MOST_DENSE_VALUES, Axes, Eigenvalues, IndependentTerm

RANK = 1e-10
"""Eigenvalues of normal equations below this share of the largest are rounding error."""
DISAGREEMENT = 1e-6
"""Measurements of the same records disagree as much as is refused once in a million times."""
MEASURED_COPIES, ANSWER_COPIES, DENSE_COPIES = 4, 4, 6
"""Copies of what was measured, of the answers, and of each part's matrix of dense values that are there at once (tests measure them)."""
MOST_COVARIANCES = 4096
"""Queries whose covariance matrix is written down."""


@dataclass(frozen=True)
class PooledPart:
    """What varies with exactly some attributes.

    Attributes:
        estimate: for each of their values, and for the values of the dense attributes, (values of each, dense values); it sums to zero
            along each of the first.
        covariance: of the dense values, (dense values, dense values).
        determined: the projection on what was measured of the dense values; None where that is all.
    """

    estimate: Matrix = field(repr=False)
    covariance: Matrix = field(repr=False)
    determined: Matrix | None = field(repr=False)


@dataclass(frozen=True)
class PooledMeasurement:
    """Several measurements of the same records as one.

    Attributes:
        shape: sizes of the attributes.
        dense: the attributes that are put together, ascending.
        parts: by the attributes with which they vary, none of which is dense.
        disagreement: the squared distance of what was measured from the estimates, in standard deviations.
        freedom: how large that is on average.
    """

    shape: tuple[int, ...]
    dense: Axes
    parts: Mapping[Axes, PooledPart] = field(repr=False)
    disagreement: float
    freedom: int

    def check_agreement(self) -> None:
        """Accept measurements that may be of the same records. Raises: InvalidInput."""
        check_disagreement(self.disagreement, self.freedom)

    def check_measured(self, blocks: Sequence[Block]) -> None:
        """Accept groups of queries of which everything was measured. Raises: NotMeasured."""
        for rows in (_BlockRows.for_block(block, self) for block in blocks):
            for axes in rows.varying_axes():
                self._measured_part(axes, rows)

    def estimate(self, block: Block) -> tuple[Matrix, Matrix]:
        """The best linear unbiased estimates of a group of queries, and their variances, (queries,). Raises: NotMeasured."""
        rows = _BlockRows.for_block(block, self)
        answers: Matrix | float = 0.0
        variances: Matrix | float = 0.0
        for axes in rows.varying_axes():
            part = self._measured_part(axes, rows)
            tensor = part.estimate
            for position, axis in enumerate(axes):
                tensor = _apply(rows.factors[axis], tensor, position)
            tensor = tensor @ rows.dense_rows.T
            scale = np.ones((1,) * len(rows.factors))
            squares = np.ones((1,) * len(rows.factors))
            for position, axis in enumerate(rows.factors):
                outer = [1] * len(rows.factors)
                outer[position] = -1
                mean, rest = rows.means[axis].reshape(outer), rows.rests[axis].reshape(outer)
                squares = squares * (rest if axis in axes else mean**2)
                if axis not in axes:
                    tensor, scale = np.expand_dims(tensor, position), scale * mean
            dense = np.einsum("ij,jk,ik->i", rows.dense_rows, part.covariance, rows.dense_rows)
            answers = answers + tensor * scale[..., None]
            variances = variances + squares[..., None] * dense
        return rows.in_order(answers), rows.in_order(variances)

    def covariance(self, blocks: Sequence[Block]) -> Matrix:
        """The covariance matrix of the estimates of some groups of queries. Raises: NotMeasured; InvalidInput for too many queries."""
        queries = sum(block.queries for block in blocks)
        if queries > MOST_COVARIANCES:
            raise InvalidInput(f"covariances of {queries:,} queries; at most {MOST_COVARIANCES:,} are written down")
        all_rows = [_BlockRows.for_block(block, self) for block in blocks]
        total = np.zeros((queries, queries))
        for axes in dict.fromkeys(axes for rows in all_rows for axes in rows.varying_axes()):
            weighted = [rows.written_down(axes, self) for rows in all_rows]
            part = self._measured_part(axes, *all_rows)
            product = np.concatenate([dense for _, dense in weighted])
            term = product @ part.covariance @ product.T
            for axis in range(len(self.shape)):
                if axis not in self.dense:
                    side = np.concatenate([sides[axis] for sides, _ in weighted])
                    term = term * (side @ side.T)
            total += term
        return total

    def _measured_part(self, axes: Axes, *asked: _BlockRows) -> PooledPart:
        """The part that varies with some attributes. Raises: NotMeasured where it was not measured, or not as finely."""
        part = self.parts.get(axes)
        if part is None:
            raise NotMeasured(axes)
        for rows in asked:
            if part.determined is None or axes not in rows.varying_axes():
                continue
            lost = rows.dense_rows - rows.dense_rows @ part.determined
            if float(np.abs(lost).max()) > ISOTROPIC * float(np.abs(rows.dense_rows).max()):
                raise NotMeasured((*axes, *self.dense), finer=True)
        return part


@dataclass(frozen=True)
class _BlockRows:
    """The rows of a group of queries, along each attribute.

    Attributes:
        factors: of its attributes that are not dense, ascending.
        means, rests: of each row of these the mean, and the sum of the squares of what varies.
        dense_rows: over the values of all dense attributes together.
        sizes, order: rows of each factor as they are computed, and where each stands among the queries, which have the order of the
            domain's attributes.
    """

    factors: Mapping[int, Operator]
    means: Mapping[int, Matrix]
    rests: Mapping[int, Matrix]
    dense_rows: Matrix
    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def for_block(cls, block: Block, pooled: PooledMeasurement) -> _BlockRows:
        """The rows. Raises: InvalidInput for a condition over several attributes that are not put together."""
        if not block.separable:
            if set(block.axes) - set(pooled.dense):
                raise InvalidInput(f"group {block.name!r} has conditions over several attributes at once")
            matrix = block.factors[0].dense().astype(np.float64)
            wide = _over_dense(matrix, block.axes, pooled.dense, pooled.shape)
            return cls({}, {}, {}, wide, (len(matrix),), (0,))
        by_axis = dict(zip(block.axes, block.factors, strict=True))
        factors = {axis: by_axis[axis] for axis in sorted(by_axis) if axis not in pooled.dense}
        means, rests = {}, {}
        for axis, factor in factors.items():
            size = pooled.shape[axis]
            mean = factor.matvec(np.ones(size)) / size
            rest = factor.row_norms_squared() - size * mean**2
            means[axis], rests[axis] = mean, np.where(rest > 1e-12 * size * mean**2, rest, 0.0)
        dense_rows, dense_axes = np.ones((1, 1)), [axis for axis in pooled.dense if axis in by_axis]
        for axis in pooled.dense:
            dense_rows = np.kron(
                dense_rows, by_axis[axis].dense() if axis in by_axis else np.ones((1, pooled.shape[axis]))
            ).astype(np.float64)
        computed = [*factors, *dense_axes]
        sizes = tuple(by_axis[axis].shape[0] for axis in computed)
        return cls(factors, means, rests, dense_rows, sizes, tuple(computed.index(axis) for axis in sorted(by_axis)))

    def varying_axes(self) -> list[Axes]:
        """The attributes with which each of its parts varies."""
        varying = [axis for axis in self.factors if self.rests[axis].any()]
        constant = [axis for axis in self.factors if not self.means[axis].any()]
        return [
            axes for size in range(len(varying) + 1) for axes in combinations(varying, size) if set(constant) <= set(axes)
        ]

    def in_order(self, values: Matrix | float) -> Matrix:
        """Numbers of all queries in the order of the answers."""
        full = np.broadcast_to(
            np.asarray(values, dtype=np.float64), (*(len(mean) for mean in self.means.values()), len(self.dense_rows))
        )
        return np.ascontiguousarray(full.reshape(self.sizes).transpose(self.order)).ravel()

    def written_down(self, axes: Axes, pooled: PooledMeasurement) -> tuple[dict[int, Matrix], Matrix]:
        """Of every query the part that varies with some attributes: along each attribute that is not dense, and over the dense ones."""
        count = math.prod(self.sizes)
        index = np.arange(count).reshape([self.sizes[position] for position in self.order])
        index = np.transpose(index, np.argsort(self.order)).ravel()  # index[k]: the query of the k-th computed row
        rows = np.unravel_index(np.arange(count), (*(len(mean) for mean in self.means.values()), len(self.dense_rows)))
        sides = {}
        for axis, size in enumerate(pooled.shape):
            if axis in pooled.dense:
                continue
            if axis not in self.factors:
                sides[axis] = np.zeros((count, size)) if axis in axes else np.ones((count, 1))
                continue
            matrix = self.factors[axis].dense()[rows[list(self.factors).index(axis)]].astype(np.float64)
            mean = matrix.mean(axis=1, keepdims=True)
            sides[axis] = _placed(matrix - mean if axis in axes else mean, index)
        return sides, _placed(self.dense_rows[rows[-1]], index)


def check_disagreement(disagreement: float, freedom: int) -> None:
    """Accept a squared distance of measurements of which so many independent ones are expected. Raises: InvalidInput."""
    from scipy.special import chdtri  # its import takes longer than most releases need

    if freedom > 0 and disagreement > float(chdtri(freedom, DISAGREEMENT)):
        raise InvalidInput(
            f"their measurements contradict each other: a squared distance of {disagreement:,.0f} where {freedom:,} are "
            "expected, so that they are of different records; combine releases of the same records, or of different periods"
        )


def _placed(rows: Matrix, index: Matrix) -> Matrix:
    placed = np.empty_like(rows)
    placed[index] = rows
    return placed


def _apply(factor: Operator, tensor: Matrix, position: int) -> Matrix:
    """A tensor with rows applied along one of its axes."""
    moved = np.moveaxis(tensor, position, 0)
    flat = factor.matvec(np.ascontiguousarray(moved.reshape(moved.shape[0], -1)))
    return np.moveaxis(flat.reshape(-1, *moved.shape[1:]), 0, position)


def pooled_bytes(measured_values: int, answers: int, *, parts: int = 1, dense_values: int = 1) -> int:
    """What it takes to join measurements of so many values and to answer so many queries from them."""
    return 8 * (MEASURED_COPIES * measured_values + ANSWER_COPIES * answers + DENSE_COPIES * parts * dense_values**2)


Grams = Mapping[tuple[int, int], Eigenvalues]
"""Of a term's rows along an attribute the eigenvalues of M'M, on what sums to zero and on constants, by the numbers of both."""


def pool(
    shape: tuple[int, ...],
    terms: Sequence[IndependentTerm],
    blocks: Sequence[Block] = (),
    *,
    dense: Axes = (),
    memory_bytes: int | None = None,
) -> PooledMeasurement:
    """Measurements of the same records as one.

    Args:
        shape: sizes of the attributes.
        blocks: queries that will be asked: attributes that have conditions together are put together.
        dense: attributes that are put together in any case.
        memory_bytes: how much may be taken, with the answers to them; None: as much as there is.
    Raises: InvalidInput where the attributes that must be put together have too many values; OutOfMemory.
    """
    if memory_bytes is not None:
        check_pooled_memory(shape, terms, blocks, memory_bytes, dense)
    dense, grams = _together(shape, terms, blocks, dense)
    scores: dict[Axes, Matrix] = {}
    squares, measured = 0.0, 0
    for number, term in enumerate(terms):
        squares += float(term.values @ term.values) / term.deviation**2
        measured += term.values.size
        for axes, score in _term_scores(term, number, grams, dense, shape):
            scores[axes] = scores[axes] + score if axes in scores else score
    parts: dict[Axes, PooledPart] = {}
    for axes, covariance, determined, rank in _covariances(shape, terms, grams, dense):
        estimate = scores[axes] @ covariance
        squares -= float((estimate * scores[axes]).sum())
        measured -= rank * math.prod(shape[axis] - 1 for axis in axes)
        parts[axes] = PooledPart(estimate, covariance, determined)
    return PooledMeasurement(shape, dense, parts, max(squares, 0.0), measured)


def check_pooled_memory(
    shape: tuple[int, ...], terms: Sequence[IndependentTerm], blocks: Sequence[Block], memory_bytes: int, dense: Axes = ()
) -> None:
    """Raises: OutOfMemory where ``pool`` would take more than so many bytes with the answers; InvalidInput as ``pool``."""
    dense, _ = _together(shape, terms, blocks, dense)
    needed_bytes = pooled_bytes(
        sum(term.values.size for term in terms),
        sum(block.queries for block in blocks),
        parts=len({axes for term in terms for axes in _part_axes(term, dense)}),
        dense_values=math.prod(shape[axis] for axis in dense),
    )
    if needed_bytes > memory_bytes:
        cure = "give this process more memory, ask for fewer tables, or join fewer releases"
        raise OutOfMemory("joining measurements", needed_bytes, memory_bytes, cure)


def measured_parts(
    shape: tuple[int, ...], terms: Sequence[IndependentTerm], blocks: Sequence[Block] = ()
) -> PooledMeasurement:
    """What ``pool`` would determine, without looking at what was measured; no estimates. Raises: InvalidInput as ``pool``."""
    dense, grams = _together(shape, terms, blocks, ())
    parts = {
        axes: PooledPart(np.zeros(0), covariance, determined)
        for axes, covariance, determined, _ in _covariances(shape, terms, grams, dense)
    }
    return PooledMeasurement(shape, dense, parts, 0.0, 0)


def _together(
    shape: tuple[int, ...], terms: Sequence[IndependentTerm], blocks: Sequence[Block], dense: Axes
) -> tuple[Axes, Grams]:
    """The attributes that must be put together, and the eigenvalues along all others. Raises: InvalidInput."""
    together = {*dense, *(axis for term in terms if term.is_joint for axis in term.axes)}
    together |= {axis for block in blocks if not block.separable for axis in block.axes}
    grams: dict[tuple[int, int], Eigenvalues] = {}
    for number, term in enumerate(terms):
        for axis, eigenvalues in () if term.is_joint else zip(term.axes, term.eigenvalues, strict=True):
            if eigenvalues is None:
                together.add(axis)
            else:
                grams[number, axis] = eigenvalues
    dense_values = math.prod(shape[axis] for axis in together)
    if dense_values > MOST_DENSE_VALUES:
        raise InvalidInput(
            f"the measured rows of {len(together)} attributes are no tables of them, and these attributes have {dense_values:,} values "
            f"together; at most {MOST_DENSE_VALUES:,} are written down"
        )
    return tuple(sorted(together)), grams


def _covariances(
    shape: tuple[int, ...], terms: Sequence[IndependentTerm], grams: Grams, dense: Axes
) -> Iterator[tuple[Axes, Matrix, Matrix | None, int]]:
    """Of each part the covariance of the dense values, the projection on what is determined of them (None: all), and its rank."""
    information: dict[Axes, Matrix] = {}
    for number, term in enumerate(terms):
        rows = _dense_rows(term, dense, shape)
        gram = rows.T @ rows / term.deviation**2
        for axes, scale in _part_scales(term, number, grams, dense, shape):
            information[axes] = information[axes] + scale * gram if axes in information else scale * gram
    for axes, matrix in information.items():
        values, vectors = np.linalg.eigh(matrix)
        nonzero = values > RANK * values[-1]
        inside = vectors[:, nonzero]
        determined = None if nonzero.all() else inside @ inside.T
        yield axes, (inside / values[nonzero]) @ inside.T, determined, int(nonzero.sum())


def _part_axes(term: IndependentTerm, dense: Axes) -> Iterator[Axes]:
    """The attributes with which parts of a term vary."""
    free = [] if term.is_joint else [axis for axis in term.axes if axis not in dense]
    return (axes for size in range(len(free) + 1) for axes in combinations(free, size))


def _free_axes(term: IndependentTerm, dense: Axes) -> list[int]:
    """The attributes of a term that are not put together."""
    return [] if term.is_joint else [axis for axis in term.axes if axis not in dense]


def _part_scales(
    term: IndependentTerm, number: int, grams: Grams, dense: Axes, shape: tuple[int, ...]
) -> Iterator[tuple[Axes, float]]:
    """How much a term says of each part, beside its rows over the dense values."""
    free = _free_axes(term, dense)
    for axes in _part_axes(term, dense):
        scale = 1.0
        for axis in free:
            varying, constant = grams[number, axis]
            scale *= varying if axis in axes else constant / shape[axis]
        if scale > 0.0 and all(shape[axis] > 1 for axis in axes):
            yield axes, scale


def _dense_rows(term: IndependentTerm, dense: Axes, shape: tuple[int, ...]) -> Matrix:
    """The rows of a term over the dense values."""
    if term.is_joint:
        return _over_dense(term.factors[0], term.axes, dense, shape)
    rows: Matrix = np.ones((1, 1))
    for axis in dense:
        factor = term.factors[term.axes.index(axis)] if axis in term.axes else np.ones((1, shape[axis]))
        rows = np.kron(rows, np.eye(shape[axis]) if factor is None else factor)
    return rows


def _term_scores(
    term: IndependentTerm, number: int, grams: Grams, dense: Axes, shape: tuple[int, ...]
) -> Iterator[tuple[Axes, Matrix]]:
    """What a term measured of each part, (values of each attribute, dense values)."""
    free = _free_axes(term, dense)
    tensor: Matrix = term.values[None, :]
    if not term.is_joint:
        row_counts = [
            shape[axis] if factor is None else len(factor) for axis, factor in zip(term.axes, term.factors, strict=True)
        ]
        tensor = term.values.reshape(row_counts)
        for position, (axis, factor) in enumerate(zip(term.axes, term.factors, strict=True)):
            if axis in free and factor is not None:
                tensor = np.moveaxis(np.tensordot(factor.T, tensor, axes=(1, position)), 0, position)
        positions = [term.axes.index(axis) for axis in (*free, *(axis for axis in dense if axis in term.axes))]
        tensor = tensor.transpose(positions)
    rows = _dense_rows(term, dense, shape)
    score = (tensor.reshape(*(shape[axis] for axis in free), -1) @ rows) / term.deviation**2
    for axes, _ in _part_scales(term, number, grams, dense, shape):
        part = score
        for position in reversed(range(len(free))):
            mean = part.mean(axis=position, keepdims=True)
            part = part - mean if free[position] in axes else np.squeeze(mean, axis=position)
        yield axes, part


def _over_dense(rows: Matrix | None, axes: Axes, dense: Axes, shape: tuple[int, ...]) -> Matrix:
    """Rows over some of the dense attributes together as rows over all of them."""
    assert rows is not None
    order = np.argsort(axes)
    tensor = rows.reshape(-1, *(shape[axis] for axis in axes)).transpose(0, *(1 + order))
    for position, axis in enumerate(dense):
        if axis not in axes:
            tensor = np.repeat(np.expand_dims(tensor, position + 1), shape[axis], axis=position + 1)
    return tensor.reshape(len(rows), -1)
