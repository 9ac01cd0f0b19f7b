"""Conditions as readers write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpdist.asking.conditions import condition
from dpdist.domain import Attribute, Domain, Level
from dpdist.errors import InvalidInput
from dpdist.grids.product_space import Cells, OpenTerm, ProductSpace
from dpdist.page import measurement
from dpdist.page.measurement import Measurement
from dpdist.privacy.noise import Noise

LAND = Level("land", ("North", "South"), (0, 0, 1))
DOMAIN = Domain((Attribute("city", categories=("Kiel", "Hamburg", "Ulm"), missing="unknown", levels=(LAND,)),))


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("land=North", [1, 1, 0, 0]),
        ("land != 'North'", [0, 0, 1, 0]),
        ("city=unknown", [0, 0, 0, 1]),
        ('"city" = "Ulm"', [0, 0, 1, 0]),
        ("city in ['Kiel', 'Ulm']", [1, 0, 1, 0]),
        ("land=North, city!=Kiel", [0, 1, 0, 0]),
    ],
)
def test_conditions_name_values_bins_and_groups_of_levels(text: str, mask: list[int]) -> None:
    ((coefficient, vectors),) = condition(DOMAIN, text).products
    np.testing.assert_array_equal(coefficient * vectors[0], mask)


def test_a_group_that_a_level_lacks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'East' is no group of level 'land'; there are North, South"):
        condition(DOMAIN, "land=East")


def test_the_file_of_a_measurement_keeps_levels(tmp_path: Path) -> None:
    space = ProductSpace((OpenTerm((0,), (Cells(4),)),), (4,), np.arange(4))
    measurement.write(Measurement(space, DOMAIN, Noise("gaussian", 5)), "levels", tmp_path / "measurement.npz")
    assert measurement.read(tmp_path / "measurement.npz").domain == DOMAIN
