"""Questions to measured products that cancel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpdist.arrays.vector import Held
from dpdist.grids.product_space import ProductSpace
from dpdist.grids.space import Functionals
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline


def test_no_variance_is_negative_where_products_cancel(tmp_path: Path) -> None:
    """0.1 x + 0.2 x - 0.3 x is nothing, up to what rounding leaves on either side of it."""
    planned = Pipeline(CASES["kronecker"], tmp_path, 3).plan("add-remove")
    shape = planned.workload.domain.shape
    space = planned.grid.space(Held(np.zeros(planned.grid.rows, dtype=np.int64)), shape, 2**20)
    assert isinstance(space, ProductSpace)
    state = np.random.default_rng(0)
    shares = state.random((50, 2))
    coefficients = np.column_stack([shares, -shares.sum(axis=1)]).ravel()
    vectors = {axis: np.repeat(state.random((50, size)), 3, axis=0) for axis, size in enumerate(shape)}
    squares = space.read(Functionals(coefficients, np.repeat(np.arange(50), 3), vectors, 50)).squares
    alone = space.read(Functionals(np.ones(150), np.arange(150), vectors, 150)).squares
    assert (squares >= 0).all()
    assert squares.max() < 1e-12 * alone.min()


@pytest.mark.parametrize("times", [1e-3, 7.0])
def test_how_near_noise_is_to_one_draw_hangs_on_no_unit(times: float, tmp_path: Path) -> None:
    """An answer and many times the answer add the same draws."""
    planned = Pipeline(CASES["kronecker"], tmp_path, 3).plan("add-remove")
    shape = planned.workload.domain.shape
    space = planned.grid.space(Held(np.zeros(planned.grid.rows, dtype=np.int64)), shape, 2**20)
    state = np.random.default_rng(0)
    vectors = {axis: state.random((20, size)) for axis, size in enumerate(shape)}
    once, often = (space.read(Functionals(np.full(20, each), np.arange(20), vectors, 20)) for each in (1.0, times))
    np.testing.assert_allclose(often.squares, times**2 * once.squares, rtol=1e-9)
    np.testing.assert_allclose(often.concentrations, once.concentrations, rtol=1e-9)
    assert (once.concentrations < 1).all()
