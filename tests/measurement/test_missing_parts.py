"""What a measurement lacks of a function must cancel, but for rounding error relative to the function's size."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.reconstruction.measured_space import TOLERANCE, Functionals, NotMeasured, Variation, check_cancels


def lacking(size: float, rest: float) -> tuple[Functionals, list[Variation]]:
    """A function of two products of a size whose missing parts cancel, but for a rest."""
    asked = Functionals(np.array([size, -size]), np.array([0, 0]), {0: np.ones((2, 3))}, 1)
    vector = np.array([1.0, -1.0, 0.0])
    return asked, [Variation(0, (0,), size, (vector,)), Variation(1, (0,), rest - size, (vector,))]


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_rests_are_compared_with_the_size_of_the_function(size: float) -> None:
    check_cancels(*lacking(size, 0.0))
    check_cancels(*lacking(size, size * TOLERANCE / 2))
    with pytest.raises(NotMeasured):
        check_cancels(*lacking(size, size * TOLERANCE * 2))


def test_every_function_is_looked_at_for_itself() -> None:
    asked, missing = lacking(1.0, 0.0)
    apart = Functionals(asked.coefficients, np.array([0, 1]), asked.vectors, 2)
    with pytest.raises(NotMeasured):
        check_cancels(apart, missing)


@pytest.mark.parametrize("more", [0, 1])
def test_parts_that_cancel_are_looked_at_up_to_the_limit(more: int) -> None:
    """Two attributes of 1,024 values each: beyond it nobody adds them up, and the function is not answered."""
    asked, _ = lacking(1.0, 0.0)
    vectors = np.ones(2**10), np.ones(2**10 + more)
    missing = [Variation(product, (0, 1), scale, vectors) for product, scale in ((0, 1.0), (1, -1.0))]
    if not more:
        check_cancels(asked, missing)
        return
    with pytest.raises(NotMeasured):
        check_cancels(asked, missing)
