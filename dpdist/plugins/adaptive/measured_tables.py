"""What rounds measured: whole tables, one after the other, open to further questions, and the model of all of them.

A question is read from the first table that holds all its attributes, and from no other. Which table that is was settled before its noise
was drawn, so that its error is that of fresh noise: errors and intervals are exact, whatever was chosen before and after. What tables
say together, weighted by how precise they are, is biased: which ones there are depends on the noise of those before. The model of all of
them, which has no such errors, starts from it: from what is expected of the tables (``posterior_tables``), given all that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpdist.api.mechanisms import (
    Axes,
    AxisWeights,
    Functionals,
    Matrix,
    Noise,
    NotMeasured,
    ProductSpace,
    SpaceTerm,
    TableEstimates,
    largest_sets,
    product_space_from,
)
from dpdist.plugins.adaptive.junction_tree import TableModel, first_holding, fit_model
from dpdist.plugins.nonnegative_answers.nonnegative_tables import TableFamily
from dpdist.plugins.nonnegative_answers.posterior_tables import margin, posterior_tables

STRETCH = 0.25
"""How far from once the stretch of paths is thought to be, before data are looked at: a standard deviation."""


@dataclass(frozen=True)
class AgreedTables(TableEstimates):
    """What tables say together, if which ones there are did not depend on noise: the closest that agree.

    Attributes:
        family: with inverse variances as weights.
    """

    family: TableFamily
    tables: Mapping[Axes, Matrix] = field(repr=False)

    @cached_property
    def total(self) -> tuple[float, float]:
        value = next(float(table.sum()) for table in self.tables.values())
        return max(value, 1.0), math.sqrt(self.family.variance(()))

    def table(self, axes: Axes) -> tuple[Matrix, Matrix]:
        values = _margin_from(self.tables, axes)
        return values, np.full(values.shape, np.sqrt(self.family.variance(axes)))

    def sums(self, axis: int, vectors: Matrix) -> tuple[Matrix, Matrix]:
        return vectors @ self.table((axis,))[0], np.sqrt(self.family.variance((axis,), vectors.sum(axis=1)))


@dataclass(frozen=True)
class MeasuredTables(ProductSpace):
    """Whole tables, in the order in which they were measured.

    Attributes:
        rate: of choosing, for one change of the most important table.
        rounds: how many tables were chosen.
    """

    rows_depend_on_noise: ClassVar[bool] = True
    rate: Fraction = field(kw_only=True)
    rounds: int = field(kw_only=True)

    @property
    def weights(self) -> dict[Axes, int]:
        """What each table was multiplied with before noise was added."""
        return {term.axes: term.multiplier for term in self.terms}

    @cached_property
    def unbiased(self) -> dict[Axes, Matrix]:
        """The tables, in records."""
        return {term.axes: values.reshape(term.shape) / term.multiplier for term, values in self.measured}

    def selection_model(self, noise: Noise) -> TableModel:
        """The model of all of them that rounds go by: of the nearest tables that agree."""
        return model_unbiased_tables(self.shape, self.unbiased, self.weights, noise)

    def model(self, noise: Noise) -> TableModel:
        """The model of all of them that is published: of what is expected of the tables."""
        agreed, largest_axes = self.agreed_tables(noise), largest_sets(self.weights)
        posteriors = posterior_tables(largest_axes, self.shape, agreed.total[0], agreed.table, agreed.sums)
        tables = dict(zip(largest_axes, posteriors, strict=True))
        model = TableModel({axes: _margin_from(tables, axes) for axes in self.weights}, agreed.total[0])
        return replace(model, stretch=self._stretch(model, noise))

    def _stretch(self, model: TableModel, noise: Noise) -> float:
        """How many times the dependence that paths have is in the data, as measured pairs say that are no edge of the tree.

        By least squares, weighed against a prior of once with a deviation of ``STRETCH``; at least once and at most twice.
        """
        gain = squares = 0.0
        for pair, along in model.off_tree_pairs():
            table_axes = first_holding(self.weights, pair)
            assert table_axes is not None
            measured_pair = margin(self.unbiased[table_axes], table_axes, pair)
            precision = (
                (self.weights[table_axes] / noise.deviation) ** 2 * measured_pair.size / self.unbiased[table_axes].size
            )
            gain += precision * float((along * (measured_pair - model.independent(pair))).sum())
            squares += precision * float((along**2).sum())
        return min(max(1.0 + (gain - squares) / (squares + STRETCH**-2), 1.0), 2.0)

    def agreed_tables(self, noise: Noise) -> AgreedTables:
        axes = tuple(self.weights)
        family = TableFamily(
            axes, self.shape, tuple((self.weights[table_axes] / noise.deviation) ** 2 for table_axes in axes)
        )
        return AgreedTables(family, dict(zip(axes, family.consistent(list(self.unbiased.values())), strict=True)))

    def weighted_terms(self, functionals: Functionals) -> Iterator[tuple[tuple[SpaceTerm, Matrix, AxisWeights], Matrix]]:
        table_axes = first_holding(self.weights, tuple(functionals.vectors))
        if table_axes is None:
            raise NotMeasured(tuple(sorted(functionals.vectors)))
        term, values = next(measured_term for measured_term in self.measured if measured_term[0].axes == table_axes)
        sides = [
            functionals.vectors.get(axis, np.ones((1, size))) for axis, size in zip(table_axes, term.shape, strict=True)
        ]
        yield (term, np.ones(functionals.coefficients.size), sides), values

    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        about, arrays = super().facts()
        return {**about, "choosing": {"rate": str(self.rate), "rounds": self.rounds}}, arrays


def model_unbiased_tables(
    shape: tuple[int, ...], tables: Mapping[Axes, Matrix], weights: Mapping[Axes, int], noise: Noise
) -> TableModel:
    """The model of unbiased tables, of which each was multiplied with a weight before noise was added."""
    return fit_model(shape, tables, {axes: (weight / noise.deviation) ** 2 for axes, weight in weights.items()})


def _margin_from(tables: Mapping[Axes, Matrix], axes: Axes) -> Matrix:
    """A table from the first that holds it."""
    table_axes = first_holding(tables, axes)
    assert table_axes is not None
    return margin(tables[table_axes], table_axes, axes)


def measured_tables_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Matrix], shape: tuple[int, ...], values: Matrix
) -> MeasuredTables:
    """The tables that ``facts`` wrote down."""
    product_space, choosing = product_space_from(facts, arrays, shape, values), facts["choosing"]
    return MeasuredTables(
        product_space.terms, shape, values, rate=Fraction(choosing["rate"]), rounds=int(choosing["rounds"])
    )
