from __future__ import annotations

import doctest

import numpy as np
import pytest

import dpdist.domain
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput


def test_doctests() -> None:
    assert doctest.testmod(dpdist.domain).failed == 0


@pytest.mark.parametrize(
    ("outside", "codes", "clipped"),
    [("clip", [0, 0, 1, 2, 2, -1], 2), ("drop", [-1, 0, 1, 2, -1, -1], 0), ("error", [-1, 0, 1, 2, -1, -1], 0)],
)
def test_bins(outside: str, codes: list[int], clipped: int) -> None:
    attribute = Attribute("age", edges=(0, 10, 20, 30), outside=outside)  # type: ignore[arg-type]
    found, moved = attribute.encode(np.array([-5.0, 0.0, 19.9, 20.0, 30.0, np.nan]))
    assert found.tolist() == codes
    assert moved == clipped


def test_project() -> None:
    domain = Domain((Attribute("a", categories=("x", "y")), Attribute("b", edges=(0, 1, 2, 3))))
    assert domain.project(("b",)).shape == (3,)


def test_categories() -> None:
    attribute = Attribute("c", categories=("b", "a", "longer"), outside="drop")
    assert attribute.encode(np.array(["a", "b", "longer", "longest", ""]))[0].tolist() == [1, 0, 2, -1, -1]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Attribute("x"),
        lambda: Attribute("x", categories=("a",), edges=(0, 1)),
        lambda: Attribute("x", categories=("a", "a")),
        lambda: Attribute("x", categories=("a",), outside="clip"),
        lambda: Attribute("x", edges=(1, 1)),
        lambda: Attribute("x", edges=(0, float("inf"))),
        lambda: Attribute("x", edges=(0, 1), labels=("a", "b")),
        lambda: Domain(()),
        lambda: Domain((Attribute("x", edges=(0, 1)), Attribute("x", edges=(0, 1)))),
        lambda: Domain.of_shape((0,)),
        lambda: Domain.of_shape((2,)).axis("y"),
    ],
)
def test_refusals(build: object) -> None:
    with pytest.raises(InvalidInput):
        build()  # type: ignore[operator]
