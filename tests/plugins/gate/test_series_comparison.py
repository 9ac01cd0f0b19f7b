"""Shares of groups, and what a gate says: the noise of shares, their false alarms, and sentences with both numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from benchmarks.gate import shares_caught
from dpdist.plugins.gate import group_shares as group_shares_module
from dpdist.plugins.gate.group_shares import DividedGroup, divided_groups, group_shares, noise_correlations
from dpdist.plugins.gate.series_comparison import Series, find_unlikely, unlikely_sentences
from tests.support import small_release

ROWS = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]], dtype=float)
"""Two tables of two values each over four cells."""


def noise_of_answers() -> np.ndarray:
    """The covariance of the answers to the first table, where both were measured with noise of deviations 1 and 2."""
    precision = np.diag([1, 1, 1 / 4, 1 / 4])
    return ROWS[:2] @ np.linalg.pinv(ROWS.T @ precision @ ROWS) @ ROWS[:2].T


@pytest.mark.statistical
def test_the_noise_of_shares_is_that_of_its_covariance() -> None:
    """Of 200,000 draws the deviation of a share is known to 0.2 %: a wrong one by more than 1 % fails, a right one once in 10^6 times."""
    covariance = noise_of_answers()
    errors, truth = np.sqrt(np.diag(covariance)), np.array([300.0, 100.0])
    group = DividedGroup(0, 2, covariance / np.outer(errors, errors))
    _, deviations = group_shares(truth[None], errors[None], group)
    noisy = truth + np.random.default_rng(1).multivariate_normal([0, 0], covariance, 200_000)
    assert deviations[0, 0] == pytest.approx((noisy[:, 0] / noisy.sum(axis=1)).std(), rel=0.01)
    _, bounds = group_shares(truth[None], errors[None], replace(group, correlations=None))
    assert bounds[0, 0] > deviations[0, 0]


def test_shares_of_independent_answers() -> None:
    """By hand: the variance of a share s of three is (1 - 2 s + 3 s^2) / T^2 for noise of deviation 1."""
    shares, deviations = group_shares(np.array([[1.0, 20, 30, 50]]), np.ones((1, 4)), DividedGroup(1, 4, np.eye(3)))
    np.testing.assert_allclose(shares, [[0.2, 0.3, 0.5]])
    np.testing.assert_allclose(deviations, np.sqrt([[0.72, 0.67, 0.75]]) / 100)
    assert DividedGroup(0, 2, None).share_count == 1
    empty, _ = group_shares(np.zeros((1, 2)), np.ones((1, 2)), DividedGroup(0, 2, None))
    assert empty == 0.0


@pytest.mark.statistical
def test_false_alarms_are_as_rare_as_stated_and_shares_see_what_totals_hide() -> None:
    """Of two years in three histories every third week is compared, so that at most two alarms are expected. Alarms of a week come
    together, as its counts do, so that eight are let pass; a gate with ten a year would have twenty.
    """
    histories = [shares_caught(stride=3, seed=seed) for seed in range(3)]
    assert sum(history["false_alarms_a_year"] for history in histories) <= 8 * 52 / 35
    assert np.mean([history["with shares"] - history["answers alone"] for history in histories]) >= 0.1


def test_a_share_that_moves_while_the_total_stays_is_named_with_both_intervals() -> None:
    state = np.random.default_rng(2)
    factors = 1 + state.normal(0, 0.2, (31, 1))
    answers = factors * np.array([3000.0, 2000, 1000]) + state.normal(0, 1, (31, 3))
    moved = answers.copy()
    moved[-1] += np.array([0, -150, 150]) * factors[-1]
    names = ["north (region)", "south (region)", "west (region)"]
    series = Series([7.0 * week for week in range(31)], moved, np.ones((31, 3)), names, [DividedGroup(0, 3, np.eye(3))])
    sentences = [text for found in find_unlikely([series], 1.0) for text in unlikely_sentences(found, 1.96)]
    assert [text.split(" is ")[0] for text in sentences] == [
        "the share of south (region)",
        "the share of west (region)",
    ]
    assert "is 30.8" in sentences[0]
    assert ", where 30 earlier periods make 33.3" in sentences[0]
    assert sentences[0].count("±") == 2
    assert find_unlikely([replace(series, answers=answers)], 1.0)[1].outliers == []


def test_shares_of_a_group_that_lost_an_answer_are_not_named_beside_it() -> None:
    state = np.random.default_rng(4)
    answers = np.array([3000.0, 2000, 1000]) * (1 + state.normal(0, 0.01, (31, 3)))
    answers[-1, 2] = 0
    series = Series(
        [float(day) for day in range(31)], answers, np.ones((31, 3)), ["a", "b", "c"], [DividedGroup(0, 3, np.eye(3))]
    )
    (found,) = find_unlikely([series], 1.0)
    assert [outlier.index for outlier in found.outliers] == [2]


def test_a_period_that_is_an_earlier_one_again_is_named_with_its_day() -> None:
    state = np.random.default_rng(6)
    answers = np.array([3000.0, 2000, 1000]) * (1 + state.normal(0, 0.05, (31, 3)))
    answers[-1] = answers[-3] + state.normal(0, 2**0.5, 3)
    series = Series([730_000.0 + 7 * week for week in range(31)], answers, np.ones((31, 3)), ["a", "b", "c"])
    (found,) = find_unlikely([series], 1.0)
    (sentence,) = unlikely_sentences(found, 1.96)
    assert sentence.startswith("its records seem to be those of 2000-03-17 again: 3 answers differ")
    assert "where the same records make 0.27 to 1.77 likely and neighbouring periods differ by" in sentence


def test_correlations_of_noise_are_those_of_the_normal_equations(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tables by sex and by age that were measured beside that of both."""
    path = small_release.write(tmp_path, workload=[{"marginals": {"ways": [1, 2]}}], mechanism="marginals")
    plan = small_release.run(path, home).plan
    blocks = plan.workload.blocks
    shape = plan.workload.domain.shape
    rows = np.concatenate([np.rint(block) for block in plan.measurement.row_blocks() or ()])
    inverse = np.linalg.pinv(rows.T @ rows)
    groups = divided_groups(plan, blocks, np.cumsum([0, *(block.queries for block in blocks)]).tolist()[:-1])
    assert len(groups) == len(blocks) > 1
    for block, group in zip(blocks, groups, strict=True):
        queries = block.operator(shape).dense()
        covariance = queries @ inverse @ queries.T
        deviations = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(group.correlations, covariance / np.outer(deviations, deviations), atol=1e-9)
    needed = 8 * blocks[0].queries * sum(shape[axis] for axis in blocks[0].axes)
    with mock.patch.object(
        type(plan.measurement), "measured_space", side_effect=AssertionError("rows were not limited before")
    ):
        monkeypatch.setattr(group_shares_module, "MOST_ROW_BYTES", needed - 1)
        assert noise_correlations(plan, blocks[0]) is None
        monkeypatch.setattr(group_shares_module, "MOST_ROW_BYTES", needed)
        with pytest.raises(AssertionError, match="rows were not limited before"):
            noise_correlations(plan, blocks[0])
