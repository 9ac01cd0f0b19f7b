"""Formulas over binary attributes: the characters that are measured, each times its scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy

from dpdist.arrays.circle import NEGLIGIBLE
from dpdist.arrays.vector import LazyVector
from dpdist.arrays.workspace import OnDone, Workspace
from dpdist.grids.characters import spectra_of
from dpdist.grids.coefficients import Coefficients, Form, StoredRows, as_kept
from dpdist.operators import Hadamard, Marginal, Matrix, Operator, Product, Sparse
from dpdist.strategies.base import CLOSED_FORM
from dpdist.strategies.representations import CharacterStrategy
from dpdist.workloads import Workload


def over_characters(workload: Workload, work: Workspace, name: str, on_done: OnDone | None) -> CharacterStrategy:
    """The optimum over Z_2^d: a precision of eigenvalues ~ v_i^(1/2) attains the singular value bound."""
    axes = workload.blocks[0].axes
    cells, form = 2 ** len(axes), Form.HELD if work.in_memory else Form.STORED
    values, facts = work.kept(name) or (None, {}) if name else (None, {})
    if not facts:
        with work.scratch() as inner:
            spectra, factors = list(spectra_of(inner, workload, on_done)), [block.weight for block in workload.blocks]
            least = NEGLIGIBLE * max(inner.fold(partial(_largest, factors), *spectra))
            sums = inner.fold(partial(_root_sums, factors, least), *spectra)
            total = math.fsum(part[0] for part in sums)
            squares = (math.fsum(part[1 + i] for part in sums) for i in range(len(spectra)))
            facts = {"cost": total**2 / cells, "deviations": [math.sqrt(each * total) / cells for each in squares]}
            if values is None:
                make = partial(_scales, factors, least, total)
                scales = LazyVector(cells, tuple(spectra), make, 8 * (len(spectra) + 4), "scales")
                values = work.write(as_kept(scales, work), name or None, facts)
    assert values is not None
    given = Coefficients(values, axes, (2,) * len(axes), form, tuple(facts["deviations"]), name, work)
    cost = facts["cost"]
    return CharacterStrategy(
        "convolution", _rows(given, workload), cost, cost * (1 - 1e-12), CLOSED_FORM, coefficients=given
    )


def _roots(factors: Sequence[float], least: float, spectra: Sequence[Matrix]) -> Matrix:
    values = np.zeros(spectra[0].size)
    for factor, part in zip(factors, spectra, strict=True):
        values += (factor * part) ** 2
    values[values < least] = 0.0
    return np.sqrt(values)


def _largest(factors: Sequence[float], start: int, *spectra: Matrix) -> float:
    del start
    return float(_roots(factors, 0.0, spectra).max() ** 2)


def _root_sums(factors: Sequence[float], least: float, start: int, *spectra: Matrix) -> list[float]:
    """The sum of the roots, and of each formula's squared eigenvalues over the roots."""
    del start
    roots = _roots(factors, least, spectra)
    asked = roots > 0
    below = np.where(asked, roots, 1.0)
    return [float(roots.sum()), *(float(np.where(asked, part.astype(float) ** 2 / below, 0.0).sum()) for part in spectra)]


def _scales(factors: Sequence[float], least: float, total: float, start: int, count: int, *spectra: Matrix) -> Matrix:
    del start, count
    return np.sqrt(_roots(factors, least, spectra) / total)


def _rows(given: Coefficients, workload: Workload) -> Operator:
    if given.form is Form.STORED:
        return StoredRows(given, given.values.size)
    scales = given.real
    kept = np.flatnonzero(scales)
    picked = Sparse(scipy.sparse.csr_array((scales[kept], (np.arange(kept.size), kept)), shape=(kept.size, scales.size)))
    return Product(Product(picked, Hadamard(len(given.axes))), Marginal(workload.domain.shape, given.axes))
