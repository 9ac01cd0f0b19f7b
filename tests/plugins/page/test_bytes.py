"""What pages write in few bytes is what they would write in many: paths of curves, half widths, answers."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from dpdist.plugins.page import charts
from dpdist.plugins.page.answer_list import _encode_answers
from dpdist.plugins.page.chart_embedding import embed_chart
from dpdist.plugins.page.charts import NARROW, WIDE, Axis, Figure

NUMBER = r"-?(?:\d+(?:\.\d+)?|\.\d+)"


def curve(half: list[float]) -> Figure:
    state = np.random.default_rng(2)
    values = np.repeat(state.normal(50, 30, size=12), 2)[:, None]  # some steps lead nowhere up or down
    axis = Axis("Time", [str(place) for place in range(24)], np.arange(25.0))
    return Figure("curve", "x", axis, ("",), values, np.resize(half, (24, 1)), "People")


@pytest.mark.parametrize("screen", [WIDE, NARROW])
def test_the_path_of_a_curve_leads_through_its_points(screen: int) -> None:
    figure = curve([2.0])
    drawn = charts.draw(figure, screen)
    steps = re.search(r'<path class="outline s0" d="M([^"]*)"', drawn.svg)[1]
    x, y = np.cumsum(np.reshape([float(text) for text in re.findall(NUMBER, steps)], (-1, 2)), axis=0).T
    (left, right), (top, bottom), (low, high) = (drawn.positions[name] for name in ("x", "y", "scale"))
    np.testing.assert_allclose(x, left + np.arange(24) / 23 * (right - left), atol=0.051)
    np.testing.assert_allclose(y, bottom - (figure.values[:, 0] - low) / (high - low) * (bottom - top), atol=0.051)
    assert not re.search(r"[^\d. l-]|l.*l|  ", steps)


@pytest.mark.parametrize(("half", "written"), [([2.0], [2.0]), ([2.0, 3.0], 12 * [2.0, 3.0])])
def test_half_widths_that_are_all_alike_are_written_once(half: list[float], written: list[float]) -> None:
    assert json.loads(embed_chart(curve(half), "", "r", "x", "people")["data"])["h"] == [written]


@pytest.mark.parametrize("answers", [[3.0, -4.5, 1e6, 0.1 + 0.2, -0.0001], [0.0], [], [7.0, 7.0]])
def test_answers_are_read_from_steps_to_the_last_digit(answers: list[float]) -> None:
    answers = [round(each, 4) for each in answers]
    short = _encode_answers(np.array(answers))
    steps = [int(step, 36) for step in short["steps"].split()]
    assert [float(each) / short["unit"] for each in np.cumsum(steps)] == answers


def test_answers_of_more_digits_stay_as_they_are() -> None:
    assert _encode_answers(np.array([1.0, 1 / 3])) == {"answer": [1.0, 1 / 3]}
