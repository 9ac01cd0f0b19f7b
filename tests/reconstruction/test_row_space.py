"""How near one draw the noise of an answer is: what decides how wide its interval is under Laplace noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.reconstruction.measured_space import Functionals
from dpdist.reconstruction.row_space import RowSpace


@pytest.mark.parametrize("cells", [1, 4, 9])
def test_a_sum_of_equal_draws_is_less_near_one_draw(cells: int) -> None:
    """The fourth powers of n equal weights over the square of the sum of their squares: n / n^2."""
    space = RowSpace(np.ones(cells, dtype=np.int64), None, (cells,), np.arange(cells))
    found = space.estimate(Functionals(np.ones(1), np.zeros(1, dtype=np.int64), {}, 1))
    np.testing.assert_allclose(found.concentrations, [1 / cells])
    np.testing.assert_allclose(found.squares, [cells])


def test_one_large_weight_makes_it_nearly_one_draw() -> None:
    space = RowSpace(np.ones(3, dtype=np.int64), None, (3,), np.arange(3))
    weights = np.array([[10.0, 1.0, 1.0]])
    found = space.estimate(Functionals(np.ones(1), np.zeros(1, dtype=np.int64), {0: weights}, 1))
    np.testing.assert_allclose(found.concentrations, [10002 / 102**2])
