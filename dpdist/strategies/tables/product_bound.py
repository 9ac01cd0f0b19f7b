"""What no strategy can beat on a union of products, over domains of any size.

For a probability vector v_i on the values of every attribute, q_i = v_i^1/2 and S_bi = (D_i^1/2 V_bi D_i^1/2)^1/2,

    OPT >= ( sum over S of ( sum over blocks b containing S of w_b^2 prod_{i in S} a_bi^2 prod_{i in b, not in S} c_bi^2 )^1/2 )^2

with c_bi = q_i'S_bi q_i and a_bi = tr S_bi - c_bi. Proof (docs/mathematics.md, section 6): the nuclear norm of W D^1/2 is at least
<W D^1/2, Z> for every contraction Z, here one that is built on the residual spaces from the blocks' polar factors. The weights are
optimised by quasi-Newton steps with the exact gradient. At the weights that were found, the best contraction along one attribute k is then
taken in place of its two spaces, and the space beside q_i of every other attribute is divided into a few, P_ij: with
D_k^1/2 V_bk D_k^1/2 = S_bk^2,

    OPT >= ( sum over S without k and a part j_i for each i in S of tr ( sum over blocks b that contain S of
    w_b^2 prod_{i in S} (tr P_ij S_bi)^2 prod_{i in b} c_bi^2 S_bk^2 )^1/2 )^2,

where the last product leaves out S and k. It is never below the first bound.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput
from dpdist.operators import Identity, Matrix, Total
from dpdist.reconstruction.kronecker_terms import subsets
from dpdist.strategies.dense.trace_problem import EPSILON
from dpdist.strategies.strategy import check_workload
from dpdist.workloads import Workload
from dpdist.workloads.product_form import merge_blocks

STEPS = 60
WORK = 2.0**36
"""Multiplications that optimising the weights may take: seconds."""
EVALUATION = 30.0
"""Products of matrices that one evaluation of an attribute takes, about."""
SUBSPACES = 4
"""Spaces that the values of an attribute are divided into where another one is followed exactly: twice as many gain 0.2 % at most."""
COPIES = 9
"""Arrays over pairs of values that one evaluation holds beside the grams: the decomposition and its gradient."""

GramKey = tuple[int, str]
"""An attribute, and the fingerprint of what a block asks of it."""


def bound_steps(workload: Workload) -> int:
    """How many evaluations the work allows: the same on every machine. 0 when a single one takes too long."""
    work = EVALUATION * sum(float(size) ** 3 * count for size, count in _grams_held(workload))
    return int(min(STEPS, WORK // max(work, 1.0)))


def bound_bytes(workload: Workload) -> int:
    """What ``product_weights`` holds at once: every gram, and of one attribute two copies of each of its own beside ``COPIES`` more."""
    attribute_grams = _grams_held(workload)
    squares = sum(count * size**2 for size, count in attribute_grams) + max(
        (size**2 * (2 * count + COPIES) for size, count in attribute_grams), default=0
    )
    return 8 * squares if bound_steps(workload) else 0


def _grams_held(workload: Workload) -> list[tuple[int, int]]:
    """The size of every attribute that is asked otherwise than value by value, and in how many ways it is."""
    grams = {(axis, f.fingerprint): f for b in workload.blocks for axis, f in zip(b.axes, b.scaled(b.factors), strict=True)}
    free = {axis for (axis, _), factor in grams.items() if not isinstance(factor, Identity | Total)}
    return [
        (workload.domain.shape[axis], count) for axis, count in Counter(axis for axis, _ in grams).items() if axis in free
    ]


def product_bound(workload: Workload, *, steps: int | None = None) -> float:
    """A number that no strategy's cost under Gaussian noise is below, for a weighted union of products: see ``product_weights``."""
    return product_weights(workload, steps=steps)[0]


def product_weights(workload: Workload, *, steps: int | None = None) -> tuple[float, dict[int, Matrix]]:
    """A number that no strategy's cost under Gaussian noise is below, for a weighted union of products, and the weights that prove it.

    Args:
        steps: evaluations of the bound; default ``bound_steps``. 1 takes equal weights.
    Returns: the best bound met (0 where not even one evaluation is allowed), sharpened along one attribute, and the weights of the values
        of each attribute, which add up to one; those of a missing attribute are equal.
    Raises: InvalidInput for queries that are not products over attributes.
    """
    check_workload(workload)
    strange = [block.name for block in workload.blocks if not block.separable]
    if strange:
        raise InvalidInput(f"queries {strange[0]!r} are no product over attributes; their bound is that of 'coa'")
    product = merge_blocks(workload.blocks)
    if product is not None and len(workload.blocks) > 1:  # the bound of one product is its optimum
        return product_weights(Workload(workload.domain, (product,)), steps=steps)
    allowed = bound_steps(workload) if steps is None else steps
    if allowed < 1:
        return 0.0, {}
    block_grams = BlockGrams.of(workload)
    free = [axis for axis, alike in block_grams.alike.items() if not alike]
    cuts = np.cumsum([0, *(block_grams.sizes[axis] for axis in free)])
    best, weights = 0.0, dict[int, Matrix]()

    def negative(flat: Matrix) -> tuple[float, Matrix]:
        nonlocal best, weights
        logs = {axis: flat[low:high] for axis, low, high in zip(free, cuts[:-1], cuts[1:], strict=True)}
        value, gradients = block_grams.bound(logs)
        if value > best:
            best, weights = value, {axis: _normalise_weights(log) for axis, log in logs.items()}
        return -math.log(value), -np.concatenate([gradients[axis] for axis in free])

    start = np.zeros(int(cuts[-1]))
    if not free:
        return block_grams.bound({})[0], {}
    if allowed == 1:
        negative(start)
    else:
        options = {"maxfun": allowed, "maxiter": allowed, "maxcor": 20}
        scipy.optimize.minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    return max(best, *(block_grams.bound_along(axis, weights) for axis in free)), weights


def _normalise_weights(logs: Matrix) -> Matrix:
    """Weights that add up to one, from their logarithms."""
    raised = np.exp(logs - logs.max())
    return np.asarray(raised / raised.sum())


@dataclass(frozen=True)
class BlockGrams:
    """The grams of every block's factors.

    Attributes:
        sizes: of all attributes.
        grams: for an attribute and the fingerprint of a factor, but for ``identities``.
        identities: of the factors that ask for every value by itself.
        blocks: squared weight, and the fingerprint for each asked attribute.
        alike: whether all values of an attribute are asked alike, so that equal weights are best.
    """

    sizes: tuple[int, ...]
    grams: Mapping[GramKey, Matrix]
    identities: frozenset[GramKey]
    blocks: tuple[tuple[float, Mapping[int, str]], ...]
    alike: Mapping[int, bool]

    @staticmethod
    def of(workload: Workload) -> BlockGrams:
        grams: dict[GramKey, Matrix] = {}
        identities: set[GramKey] = set()
        alike: dict[int, bool] = {}
        blocks = []
        for block in workload.blocks:
            gram_names = {}
            for axis, unscaled, factor in zip(block.axes, block.factors, block.scaled(block.factors), strict=True):
                if isinstance(unscaled, Total) and factor is unscaled:
                    continue
                gram_names[axis] = factor.fingerprint
                alike[axis] = alike.get(axis, True) and isinstance(factor, Identity)
                if isinstance(factor, Identity):
                    identities.add((axis, factor.fingerprint))
                elif (axis, factor.fingerprint) not in grams:
                    grams[axis, factor.fingerprint] = factor.gram()
            blocks.append((block.weight**2, gram_names))
        return BlockGrams(workload.domain.shape, grams, frozenset(identities), tuple(blocks), alike)

    def whole_grams(self, axis: int) -> dict[GramKey, Matrix]:
        """All grams of an attribute, those of its values, too."""
        identities = {gram_key: np.eye(self.sizes[axis]) for gram_key in self.identities if gram_key[0] == axis}
        return identities | {gram_key: gram for gram_key, gram in self.grams.items() if gram_key[0] == axis}

    def bound(self, logs: Mapping[int, Matrix]) -> tuple[float, dict[int, Matrix]]:
        """The bound at weights given by their logarithms (missing: equal), and the gradient of its logarithm."""
        weights = {axis: _normalise_weights(logs.get(axis, np.zeros(self.sizes[axis]))) for axis in self.alike}
        traces = {gram_key: _gram_traces(gram, weights[gram_key[0]]) for gram_key, gram in self.grams.items()}
        traces |= {gram_key: _identity_traces(weights[gram_key[0]]) for gram_key in self.identities}
        means = {gram_key: trace.mean**2 for gram_key, trace in traces.items()}
        contrasts = {gram_key: trace.contrast**2 for gram_key, trace in traces.items()}
        total, slopes = sum_of_roots(self.blocks, means, contrasts)
        gradients = {axis: np.zeros(self.sizes[axis]) for axis in weights}
        for (axis, name), trace in traces.items():
            if trace.mean > 0:
                gradients[axis] += 4.0 * slopes.means[axis, name] * trace.mean_gradient / trace.mean
            if trace.contrast > 0:
                gradients[axis] += 4.0 * slopes.contrasts[axis, name] * trace.contrast_gradient / trace.contrast
        projected = {axis: gradients[axis] - weights[axis] * gradients[axis].sum() for axis in logs}
        return total**2 * (1 - 1e-12), projected

    def bound_along(self, axis: int, weights: Mapping[int, Matrix]) -> float:
        """The bound with the best contraction along an attribute; 0 where that takes too long."""
        axis_weights = {
            attribute: weights.get(attribute, np.full(self.sizes[attribute], 1.0 / self.sizes[attribute]))
            for attribute in self.alike
        }
        spaces = sum(SUBSPACES ** len(gram_names.keys() - {axis}) for _, gram_names in self.blocks)
        subspace_count = SUBSPACES if EVALUATION * spaces * self.sizes[axis] ** 3 <= WORK else 2
        traces: dict[GramKey, Matrix] = {}
        for attribute in self.alike.keys() - {axis}:
            if self.alike[attribute]:
                alike = _identity_traces(axis_weights[attribute])
                parts = np.array([alike.mean, alike.contrast])
                traces |= {gram_key: parts for gram_key in self.identities if gram_key[0] == attribute}
                continue
            subspace_traces = self._traces(attribute, np.sqrt(axis_weights[attribute]), subspace_count)
            traces |= {(attribute, name): value for name, value in subspace_traces.items()}
        sums: dict[tuple[tuple[int, int], ...], dict[str | None, float]] = {}
        for square, gram_names in self.blocks:
            other_axes = sorted(gram_names.keys() - {axis})
            for indices in itertools.product(
                *(range(traces[attribute, gram_names[attribute]].size) for attribute in other_axes)
            ):
                axis_indices = list(zip(other_axes, indices, strict=True))
                gram_weights = sums.setdefault(tuple((attribute, index) for attribute, index in axis_indices if index), {})
                weight = math.prod(
                    float(traces[attribute, gram_names[attribute]][index]) for attribute, index in axis_indices
                )
                gram_weights[gram_names.get(axis)] = gram_weights.get(gram_names.get(axis), 0.0) + square * weight**2
        if EVALUATION * len(sums) * self.sizes[axis] ** 3 > WORK:
            return 0.0
        q = np.sqrt(axis_weights[axis])
        squares: dict[str | None, Matrix] = {None: np.outer(q, q)}
        squares |= {name: q[:, None] * gram * q for (_, name), gram in self.whole_grams(axis).items()}
        total = 0.0
        for gram_weights in sums.values():
            alone = gram_weights.keys() == {None}
            gram = (
                squares[None] if alone else np.sum([value * squares[name] for name, value in gram_weights.items()], axis=0)
            )
            total += math.sqrt(gram_weights[None]) if alone else float(_roots(lapack.eigvalsh(gram)).sum())
        return total**2 * (1 - 1e-12)

    def _traces(self, axis: int, q: Matrix, subspace_count: int) -> dict[str, Matrix]:
        """tr P_j S of every gram of an attribute, rounded down, for P_0 = qq' and a few spaces beside it, in which the grams are about
        alike: of eigenvectors of their sum, each space with more of them than the one before."""
        roots = {name: _root(q[:, None] * gram * q) for (_, name), gram in self.whole_grams(axis).items()}
        together = np.sum([(u * s) @ u.T / max(float(s.sum()), EPSILON) for s, u in roots.values()], axis=0)
        remainder = together - np.outer(q, q @ together)
        remainder -= np.outer(remainder @ q, q)
        _, vectors = lapack.eigh(remainder + 2.0 * len(roots) * np.outer(q, q))  # q comes last
        starts = np.unique(np.rint(np.geomspace(1, q.size, subspace_count)).astype(int))[:-1]
        energies = {name: s @ (u.T @ vectors[:, ::-1]) ** 2 for name, (s, u) in roots.items()}
        return {name: np.add.reduceat(energy, [0, *starts]) for name, energy in energies.items()}


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the logarithm of ``sum_of_roots`` in the logarithms of the parts."""

    means: dict[GramKey, float]
    contrasts: dict[GramKey, float]


def sum_of_roots(
    blocks: Sequence[tuple[float, Mapping[int, str]]], means: Mapping[GramKey, float], contrasts: Mapping[GramKey, float]
) -> tuple[float, Slopes]:
    """sum over S of (sum over blocks b containing S of w_b^2 prod_{i in S} apart_bi prod_{i in b, not in S} along_bi)^1/2."""
    inner: dict[tuple[int, ...], list[tuple[float, Mapping[int, str]]]] = {}
    for square, gram_names in blocks:
        for subset in subsets(tuple(sorted(gram_names))):
            factors = (contrasts[gram_key] if gram_key[0] in subset else means[gram_key] for gram_key in gram_names.items())
            inner.setdefault(subset, []).append((square * math.prod(factors), gram_names))
    roots = {subset: math.sqrt(sum(product for product, _ in products)) for subset, products in inner.items()}
    total = sum(roots.values())
    slopes = Slopes(dict.fromkeys(means, 0.0), dict.fromkeys(contrasts, 0.0))
    for subset, products in inner.items():
        for product, gram_names in products:
            if product > 0.0:
                slope = product / (2.0 * roots[subset] * total)
                for gram_key in gram_names.items():
                    (slopes.contrasts if gram_key[0] in subset else slopes.means)[gram_key] += slope
    return total, slopes


@dataclass(frozen=True)
class _GramTraces:
    """c = q'S q and a = tr S - c of one gram at some weights, rounded down, with their gradients in the logarithms of the weights."""

    mean: float
    contrast: float
    mean_gradient: Matrix
    contrast_gradient: Matrix


def _identity_traces(weights: Matrix) -> _GramTraces:
    """The same where every value is asked by itself: S = D^1/2, so that c = sum v^3/2 and tr S = sum v^1/2."""
    q = np.sqrt(weights)
    mean, trace = float(weights @ q) * (1.0 - EPSILON * q.size), float(q.sum()) * (1.0 - EPSILON * q.size)
    mean_gradient = 1.5 * weights * q
    return _GramTraces(mean, max(trace - mean, 0.0), mean_gradient, 0.5 * q - mean_gradient)


def _gram_traces(gram: Matrix, weights: Matrix) -> _GramTraces:
    """Roots are taken of eigenvalues that are surely below the true ones: the root is operator monotone, so both parts are, too."""
    q = np.sqrt(weights)
    roots, vectors = _root(q[:, None] * gram * q)
    coordinates = vectors.T @ q
    mean = float(roots @ coordinates**2)
    contrast = float(roots @ (1.0 - np.minimum(coordinates**2, 1.0)))
    # d tr S = diag(S) / 2 and d q'S q = diag(Y K) + q o (S q), Y solving S Y + Y S = q q', in the logarithms of the weights
    sums = roots[:, None] + roots
    inner = np.divide(np.multiply.outer(coordinates, coordinates), sums, out=np.zeros_like(sums), where=sums > 0)
    rows = vectors @ inner
    mean_gradient = np.einsum("ia,ia,a->i", rows, vectors, roots**2) + q * (vectors @ (roots * coordinates))
    trace_gradient = 0.5 * np.einsum("ia,ia,a->i", vectors, vectors, roots)
    return _GramTraces(mean, contrast, mean_gradient, trace_gradient - mean_gradient)


def _root(square: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues, rounded down, and eigenvectors of a square's root."""
    values, vectors = lapack.eigh(square)
    return _roots(values), vectors


def _roots(values: Matrix) -> Matrix:
    """Roots of ascending eigenvalues that are rounded down."""
    rounding = EPSILON * max(float(values[-1]), 0.0)
    return np.asarray(np.sqrt(np.where(values > values.size * rounding, np.maximum(values - rounding, 0.0), 0.0)))
