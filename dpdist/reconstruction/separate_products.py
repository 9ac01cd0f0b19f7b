"""Products that are measured beside each other and answered each by itself, open to further questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.operators import Matrix
from dpdist.reconstruction.measured_space import Functionals, NotMeasured
from dpdist.reconstruction.product_space import AxisWeights, ProductSpace, SpaceTerm, product_space_from


@dataclass(frozen=True)
class SeparateProducts(ProductSpace):
    """Products of which each is read by itself: what is asked comes from the one of the fewest attributes that holds all of it."""

    @property
    def _has_one_term(self) -> bool:
        return True

    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        about, arrays = super().facts()
        return {**about, "separate": True}, arrays

    def weighted_terms(self, functionals: Functionals) -> Iterator[tuple[tuple[SpaceTerm, Matrix, AxisWeights], Matrix]]:
        axes = tuple(sorted(functionals.vectors))
        missed = NotMeasured(axes)
        for term, values, _ in sorted(self._holding_terms(axes), key=lambda holding: len(holding[0].axes)):
            try:
                sides = [
                    self._axis_weights(functionals, term, axis, factor)
                    for axis, factor in zip(term.axes, term.factors, strict=True)
                ]
            except NotMeasured as merged:
                missed = merged
                continue
            yield (term, np.ones(functionals.coefficients.size), sides), values
            return
        raise missed


def separate_products_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Matrix], shape: tuple[int, ...], values: Matrix
) -> SeparateProducts:
    """The products that ``facts`` wrote down."""
    product_space = product_space_from(facts, arrays, shape, values)
    return SeparateProducts(product_space.terms, shape, values, product_space.directions)
