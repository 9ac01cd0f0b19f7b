"""Differences of two releases: their intervals cover as often as they say, and noise that both hold is not taken for independent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpdist.plugins.page.assets import embed_json
from dpdist.plugins.site.editions import Edition
from dpdist.plugins.site.release_comparison import _comparison_data, differences, may_share_noise
from dpdist.plugins.site.trends import Answers, ReaderNames, period_axis, read_answers, trend_charts


def answers(values: list[float], half: float, group: str = "g") -> Answers:
    return {group: {f"q{i}": (value, half) for i, value in enumerate(values)}}


def test_differences_by_hand() -> None:
    found = differences(answers([100.0, 50.0, 7.0], 3.0), answers([90.0, 51.0, 107.0], 4.0), shares_draws=False)
    assert [(one.query, one.change, one.half, one.sure) for one in found] == [
        ("q2", 100.0, 5.0, True),
        ("q0", -10.0, 5.0, True),  # 5 times 1 + ln 3 / ln 20 is 6.8
        ("q1", 1.0, 5.0, False),
    ]
    assert [one.half for one in differences(answers([1.0], 3.0), answers([2.0], 4.0), shares_draws=True)] == [7.0]
    assert differences(answers([1.0], 3.0, "a"), answers([2.0], 4.0, "b"), shares_draws=False) == []
    (unknown,) = differences(answers([1.0], float("nan")), answers([900.0], 4.0), shares_draws=False)
    assert not unknown.sure


@pytest.mark.parametrize("noise", ["normal", "laplace"])
def test_intervals_of_differences_cover(noise: str) -> None:
    """8,000 differences of independent noise: 95 of 100 are covered, by Laplace noise a little more.

    The bounds are five standard deviations away; half widths a tenth wider or narrower would fail.
    """
    state = np.random.default_rng(4)
    size, half = 8000, 1.96 if noise == "normal" else float(np.log(20.0))
    drawn = [state.normal(size=size) if noise == "normal" else state.laplace(size=size) for _ in range(2)]
    found = differences(*(answers(list(part), half) for part in drawn), shares_draws=False)
    covered = float(np.mean([abs(one.change) <= one.half for one in found]))
    low, high = (0.938, 0.962) if noise == "normal" else (0.944, 0.968)
    assert low < covered < high
    tenth = 0.1 * found[0].half
    for wrong in (-tenth, tenth):
        share = float(np.mean([abs(one.change) <= one.half + wrong for one in found]))
        assert not low < share < high


def certificate(release: str, **facts: object) -> Edition:
    known = {
        "release": release,
        "period": None,
        "stream": None,
        "measurements": {release: f"digest of {release}"},
        "dataset": "people",
        "privacy": {"unit": "records"},
        "method": {"counted": "records", "meaning": "the same", "attributes": {}},
    }
    return Edition(Path(release), {**known, **facts})


def test_common_noise_is_seen() -> None:
    """Parts of one stream, and estimates from common measurements."""
    assert not may_share_noise(certificate("a"), certificate("b"))
    joint = certificate("b", measurements={"a": "digest of a", "b": "digest of b"})
    assert may_share_noise(certificate("a"), joint)
    streams = [certificate(name, stream={"name": "clicks"}) for name in ("c", "d")]
    assert may_share_noise(*streams)
    assert not may_share_noise(streams[0], certificate("e", stream={"name": "views"}))


def test_intervals_without_a_lower_end_have_no_half_width(tmp_path: Path) -> None:
    """As beside suppressed answers whose cells may be negative: a page holds no infinite number, which JSON does not have."""
    (tmp_path / "answers.csv").write_text(
        "group,query,age,answer,standard_error,low_95,high_95\nage,age 1,1,30.0,12.0,-inf,60.0\nage,age 2,2,90.0,12.0,66.0,114.0\n"
    )
    edition = replace(certificate("a", queries=2, files={}), folder=tmp_path)
    found = read_answers(edition, ReaderNames({}, {}))
    (_, unknown), (_, known) = found["age"].values()
    assert np.isnan(unknown)
    assert known == 24.0
    data = json.loads(embed_json(_comparison_data([edition], {"a": found})))
    assert data["releases"]["a"] == [[30.0, 90.0], [None, 24.0]]


def test_periods_are_as_far_apart_as_their_days() -> None:
    axis = period_axis(["2026-01-01", "2026-01-08", "2026-02-01"])
    np.testing.assert_array_equal(axis.edges[:-1], [0, 7, 31])
    assert axis.clock.text(31.0) == "1 Feb 2026"
    named = period_axis(["first", "second"])
    assert named.named
    np.testing.assert_array_equal(named.edges, [0, 1, 2])


def test_series_say_what_changed_beyond_the_noise() -> None:
    found = [certificate(f"r{k}", period=f"2026-01-0{k}") for k in (1, 2)]
    values = {"r1": answers([100.0, 20.0, 5.0, 5.0, 5.0, 5.0], 3.0), "r2": answers([100.0, 60.0, 5.0, 6.0, 5.0, 5.0], 4.0)}
    ((figure, text),) = trend_charts(found, values)
    assert text == "Q1: 40.0 ± 5.0 more records than in the period of 1 January 2026."
    assert "q1" in figure.series
    assert len(figure.series) == 4
    assert "of 6 answers, the largest one and the 3 others that moved most" in figure.note
    stream = [certificate(f"r{k}", period=f"2026-01-0{k}", stream={"name": "clicks"}) for k in (1, 2)]
    ((_, text),) = trend_charts(stream, values)
    assert text.startswith("Q1: 40.0 ± 7.0 more")  # they may hold the same noise: half widths add
    still = {"r1": answers([100.0, 20.0], 3.0), "r2": answers([101.0, 21.0], 4.0)}
    ((_, text),) = trend_charts(found, still)
    assert text == ""
