"""Products that are measured beside each other and answered each by itself, open to further questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.operators import Matrix
from dpdist.reconstruction.measured_space import Functionals, NotMeasured
from dpdist.reconstruction.product_space import OpenTerm, ProductSpace, Sides, product_space_from


@dataclass(frozen=True)
class SeparateProducts(ProductSpace):
    """Products of which each is read by itself: what is asked comes from the one of the fewest attributes that holds all of it."""

    @property
    def _alone(self) -> bool:
        return True

    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        about, arrays = super().facts()
        return {**about, "separate": True}, arrays

    def spreads(self, asked: Functionals) -> Iterator[tuple[tuple[OpenTerm, Matrix, Sides], Matrix]]:
        axes = tuple(sorted(asked.vectors))
        missed = NotMeasured(axes)
        for term, values, _ in sorted(self._holding(axes), key=lambda each: len(each[0].axes)):
            try:
                sides = [self._side(asked, term, axis, factor) for axis, factor in zip(term.axes, term.factors, strict=True)]
            except NotMeasured as merged:
                missed = merged
                continue
            yield (term, np.ones(asked.coefficients.size), sides), values
            return
        raise missed


def separate_products_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Matrix], shape: tuple[int, ...], values: Matrix
) -> SeparateProducts:
    """The products that ``facts`` wrote down."""
    found = product_space_from(facts, arrays, shape, values)
    return SeparateProducts(found.terms, shape, values, found.directions)
