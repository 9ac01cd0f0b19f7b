"""Conditions as readers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.content import measurement_file
from dpdist.content.measurement_file import Evidence, Measurement
from dpdist.domain import Attribute, Domain, Level, even_edges
from dpdist.errors import InvalidInput
from dpdist.plugins.questions.attribute_conditions import parse_condition
from dpdist.plugins.questions.question_text import parse_question
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.query.published_release import PublishedRelease
from dpdist.reconstruction.axis_factors import IdentityFactor
from dpdist.reconstruction.product_space import ProductSpace, SpaceTerm
from dpdist.workloads import marginals

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
    ((coefficient, vectors),) = parse_condition(DOMAIN, text).products
    np.testing.assert_array_equal(coefficient * vectors[0], mask)


@pytest.mark.parametrize("values", [("yes", "no"), ("no", "yes"), ("False", "True")])
def test_an_attribute_of_yes_and_no_is_a_condition_by_itself(values: tuple[str, ...]) -> None:
    domain = Domain((Attribute("borrowed", categories=values), DOMAIN.attributes[0]))
    for text in ("borrowed", "'borrowed'"):
        ((_, vectors),) = parse_condition(domain, text).products
        np.testing.assert_array_equal(vectors[0], [value in ("yes", "True") for value in values])
    for more in (("yes",), ("yes", "no", "never"), ("on", "off")):
        with pytest.raises(InvalidInput, match="'borrowed' alone is no condition"):
            parse_condition(Domain((Attribute("borrowed", categories=more),)), "borrowed")


def test_a_group_that_a_level_lacks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'East' is no group of level 'land'; there are North, South"):
        parse_condition(DOMAIN, "land=East")
    with pytest.raises(
        InvalidInput, match=r"'north' is no group of level 'land' \(did you mean 'North'\?\); there are North"
    ):
        parse_condition(DOMAIN, "land=north")


def test_the_file_of_a_measurement_keeps_levels(tmp_path: Path) -> None:
    space = ProductSpace((SpaceTerm((0,), (IdentityFactor(4),)),), (4,), np.arange(4))
    with (tmp_path / "measurement.npz").open("wb") as file:
        measurement_file.write_measurement(
            Measurement(space, DOMAIN, Noise(GAUSSIAN, 5)), Evidence(marginals(DOMAIN, 1)), "levels", file
        )
    assert measurement_file.read_measurement(tmp_path / "measurement.npz").domain == DOMAIN


def test_levels_group_with_bins_of_their_own_for_missing_values() -> None:
    """The groups of 'top 3 of land' are North, South and those without a city; 'city, land' leaves out cities of other lands."""
    (by,) = parse_question(DOMAIN, "top 3 of land").groupings
    assert list(by.labels) == ["North", "South", "unknown"]
    np.testing.assert_array_equal(by.rows.dense(), [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    space = ProductSpace((SpaceTerm((0,), (IdentityFactor(4),)),), (4,), np.array([5.0, 3.0, 9.0, 1.0]))
    claimed: Any = {"post_processing": [], "mechanism": {"consistent": True}}
    asked = PublishedRelease(claimed, Measurement(space, DOMAIN, Noise(GAUSSIAN, 1)))
    assert {each.group["land"]: each.value for each in asked.ask("top 3 of land")} == {
        "North": 8.0,
        "South": 9.0,
        "unknown": 1.0,
    }
    pairs = {(each.group["land"], each.group["city"]) for each in asked.ask("top 9 of land, city")}
    assert pairs == {("North", "Kiel"), ("North", "Hamburg"), ("South", "Ulm"), ("unknown", "unknown")}
    with pytest.raises(InvalidInput, match="'land' holds more than one value, so it has no mean; ask for that of city"):
        parse_question(DOMAIN, "mean of land by city")
    with pytest.raises(InvalidInput, match="no order"):
        parse_question(DOMAIN, "median of land")


def test_numbers_within_bins_are_not_guessed() -> None:
    """Counts of bins determine no mean; a median they determine to its bin."""
    domain = Domain((Attribute("age", edges=(0, 3, 7, 12)), Attribute("born", edges=(0, 1, 2, 3))))
    with pytest.raises(InvalidInput, match=r"bins of 'age' hold more than one number.*median of age"):
        parse_question(domain, "mean of age")
    parse_question(domain, "median of age")
    parse_question(domain, "mean of born")


def test_a_domain_of_even_bins_comes_back_as_it_was(tmp_path: Path) -> None:
    many = 2**21
    domain = Domain(
        (Attribute("hour", edges=even_edges(-3, 2, many), missing="unknown"), Attribute("born", edges=(0, 1, 3)))
    )
    space = ProductSpace((SpaceTerm((1,), (IdentityFactor(2),)),), domain.shape, np.arange(2.0))
    with (tmp_path / "measurement.npz").open("wb") as file:
        asked = Evidence(marginals(domain, 1, among=("born",)))
        measurement_file.write_measurement(Measurement(space, domain, Noise(GAUSSIAN, 5)), asked, "even", file)
    found = measurement_file.read_measurement(tmp_path / "measurement.npz").domain
    assert found == domain
    edges = found.attributes[0].edges
    assert (edges[0], edges[1], edges[many]) == (-3, -1, -3 + 2 * many)
