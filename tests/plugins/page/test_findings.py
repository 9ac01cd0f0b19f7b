"""Sentences on charts: what they say of known numbers, and that they are right as often as they claim."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dpdist.plugins.page import findings
from dpdist.plugins.page.charts import Axis, Figure
from dpdist.plugins.page.findings import finding_sentence
from dpdist.query.simultaneous_intervals import simultaneous_half_widths


def bars(values: list[float], half: float | list[float]) -> Figure:
    names = [f"v{i}" for i in range(len(values))]
    shape = (len(values), 1)
    return Figure(
        "bars",
        "x",
        Axis("x", names),
        ("",),
        np.reshape(values, shape),
        np.broadcast_to(np.reshape(half, (-1, 1)), shape),
        "Records",
    )


def steps(values: list[float], half: float, **changes: object) -> Figure:
    edges = np.arange(len(values) + 1.0)
    shape = (len(values), 1)
    axis = Axis("Age (years)", [str(i) for i in range(len(values))], edges)
    return Figure("steps", "age", axis, ("",), np.reshape(values, shape), np.full(shape, half), "People", **changes)


def test_a_total_is_no_group_beside_the_others() -> None:
    shown = replace(bars([50.0, 400.0, 100.0, 530.0], 20.0), totals=frozenset({"v3"}))
    assert finding_sentence(shown, "people") == "v1 is the largest group: 400 ± 20 people, before v2 with 100 ± 20."


def test_peaks_and_medians() -> None:
    peak = [10.0] * 20 + [500.0] + [10.0] * 20
    assert finding_sentence(steps(peak, 5.0), "people") == "The count is highest at Age 20: 500.0 ± 5.0 people."
    two = finding_sentence(steps([*peak[:21], 499.0, *peak[:20]], 5.0), "people")
    assert two == "The count is highest at Age 20 or Age 21: 500.0 ± 5.0 people at Age 20."
    three = finding_sentence(steps([*peak[:21], 10.0, 499.0, *peak[:20]], 5.0), "people")
    assert three == "The count is highest somewhere between Age 20 and 22: 500.0 ± 5.0 people at Age 20."
    ages = steps([300.0, 299.0, 298.0, *[1.0] * 20], 5.0)
    labels = tuple(f"{low:g} to under {high:g}" for low, high in pairwise(ages.axis.edges))
    binned = finding_sentence(replace(ages, axis=replace(ages.axis, labels=labels)), "people")
    assert binned == "The count is highest somewhere between Age 0 and 3: 300.0 ± 5.0 people at Age 0 to under 1."
    flat = [100.0 + i % 2 for i in range(40)]
    assert finding_sentence(steps(flat, 5.0), "people").startswith(
        "No single peak stands out of the noise; the highest value is 101.0 ± 5.0"
    )
    assert "the highest value is 101.0 ± 5.0 EUR" in finding_sentence(steps(flat, 5.0), "EUR", "sum")
    rising = list(np.cumsum([10.0] * 10))
    sure = finding_sentence(steps(rising, 0.5, cumulative="at or below"), "people")
    assert sure == "Half of the 100.0 ± 0.5 people lie at or below Age 4, with 95 % confidence between 4 and 5."
    # half widths of 12 become 16.4: 30 + 16.4 reaches (100 - 16.4) / 2 and 80 - 16.4 reaches (100 + 16.4) / 2
    noisy = finding_sentence(steps(rising, 12.0, cumulative="at or below"), "people")
    assert noisy == "Half of the 100 ± 12 people lie at or below Age 4, with 95 % confidence between 2 and 7."


@pytest.mark.parametrize("noise", ["normal", "laplace"])
def test_the_largest_is_named_wrongly_in_at_most_five_of_a_hundred_releases(noise: str) -> None:
    """Ten equal counts, one of them better by a record: 4,000 releases. Wrong names are seldom; with plain intervals they are not.

    A correct rule fails here with probability below 1e-9: 200 wrong ones are expected at the very most, 260 are allowed.
    """
    state = np.random.default_rng(11)
    repeats, count = 4000, 10
    half = 1.96 if noise == "normal" else np.log(20.0)
    drawn = state.normal(size=(repeats, count)) if noise == "normal" else state.laplace(size=(repeats, count))
    truth = np.zeros(count)
    truth[0] = 1e-3
    values = 100.0 + truth + drawn
    outside = {}
    for name, width in (("jointly", simultaneous_half_widths(np.full(count, half))), ("plain", np.full(count, half))):
        outside[name] = int((np.abs(drawn) > width).any(axis=1).sum())
    assert outside["jointly"] <= 260
    assert outside["plain"] > 1000
    wrong = 0
    for row in values[:800]:
        figure = bars(list(row), half)
        wrong += finding_sentence(figure, "people").partition(" is the largest")[0] in {f"v{i}" for i in range(1, count)}
    assert wrong <= 40


def test_a_number_of_a_second_attribute_is_said_with_its_name() -> None:
    """Of categories the name alone says what they are."""
    rows = Axis("Age (years)", ["0", "1"], np.arange(3.0))
    hours, sexes = Axis("Hours (a week)", ["7", "8"], np.arange(7.0, 10.0)), Axis("Sex", ["f", "m"])
    for other, said in ((hours, "Age 1 and Hours 7"), (sexes, "Age 1 and f")):
        figure = Figure("heat", "x", rows, tuple(other.labels), np.ones((2, 2)), np.ones((2, 2)), "People", other)
        assert findings._cell_name(figure, 1, 0) == said
