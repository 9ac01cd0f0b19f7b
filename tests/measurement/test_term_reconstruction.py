"""Answers of a product that is measured in passes, one axis after another."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.measurement.term_reconstruction import _answer_first_axis
from dpdist.operators import Prefix


@pytest.mark.parametrize("unit", [0.25, 1.0, 3.5])
def test_the_first_axis_is_answered_in_records(unit: float) -> None:
    """Measured whole numbers stand for so many records each: of the mechanisms that tests measure in passes one stands for one record."""
    state = np.random.default_rng(4)
    inverse, slab = state.normal(size=(5, 7)), state.integers(-9, 10, (3, 7))
    expected = np.tril(np.ones((5, 5))) @ inverse @ (unit * slab.T)
    np.testing.assert_allclose(_answer_first_axis((Prefix(5), inverse), unit, 0, slab), expected, rtol=1e-12)
