"""Intervals that are published as 95 % intervals are those of the noise, for every mechanism and every option."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from dpdist import engine
from dpdist.content.release_content import decimals_of
from dpdist.pipeline import release_run
from dpdist.pipeline.query_answers import answer as answers_of
from dpdist.planner.answer_rounding import answer_rounding
from dpdist.plugin_registry import missing_plugin
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import Sizes
from dpdist.spec import load
from dpdist.spec.sections.output import PostprocessSpec
from dpdist.storage.array_store import Store
from tests.case_selection import always
from tests.properties.spec_parts import AGES, FORMULAS, PURE, SERIES
from tests.support import small_release

NORMAL = float(norm.ppf(0.975))
LAPLACE = math.log(20) / math.sqrt(2)
"""Half widths of 95 % intervals in standard errors: of a normal, and of one Laplace draw."""

WAYS: dict[str, Any] = {"workload": [{"marginals": {"ways": [1, 2]}}]}
CASES: dict[str, dict[str, Any]] = {
    "coa": {},
    "identity": {},
    "identity of all cells": {"workload": [{"marginals": {"ways": [3]}}]},
    "gaussian": {},
    "eigen": AGES,
    "wavelet": AGES,
    "marginals": WAYS,
    "residual": WAYS,
    "kronecker": {"workload": [{"cdf": {"of": "age", "by": ["sex"]}}]},
    "convolution": SERIES,
    "square-root": SERIES,
    "convolution of formulas": FORMULAS,
    "laplace": {**PURE, **AGES},
    "identity, Laplace noise": PURE,
    "identity of all cells, Laplace noise": {**PURE, "workload": [{"marginals": {"ways": [3]}}]},
    "hierarchical, Laplace noise": {**PURE, **AGES},
    "dawa": {**PURE, **AGES},
}
ONE_DRAW = {"laplace", "identity of all cells, Laplace noise"}
"""Releases whose every answer has one Laplace draw in it."""
FITTED = {"coa", "identity", "eigen", "wavelet", "marginals", "residual", "kronecker", "identity, Laplace noise"}
"""Releases with an estimate of the cells that can be fitted."""


def records() -> pa.Table:
    table, state = (
        small_release.records(60),
        np.random.default_rng(4),
    )  # so few that non-negative cells are far from unbiased ones
    for name in ("p", "q", "r"):
        table = table.append_column(name, pa.array(state.choice(["no", "yes"], 60)))
    return table


def columns(answers: Answers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    every = (answers.answer, answers.error, answers.half_width)
    return tuple(column.read(0, column.size) for column in every)


def in_standard_errors(half: np.ndarray, error: np.ndarray, case: str) -> None:
    """Half widths are those of the noise: exact for normal sums and single draws, between both for sums of Laplace draws."""
    ratio = half / error
    if "Laplace" not in case and case != "laplace":
        np.testing.assert_allclose(ratio, NORMAL, rtol=1e-9)
    elif case in ONE_DRAW:
        np.testing.assert_allclose(ratio, LAPLACE, rtol=1e-9)
    else:
        assert (ratio > NORMAL - 1e-9).all()
        assert (ratio < LAPLACE + 1e-9).all()
        assert ratio.max() > NORMAL + 1e-4


@pytest.mark.parametrize(
    "case",
    always(
        [
            "coa",
            "kronecker",
            "laplace",
            "identity, Laplace noise",
            "dawa",
        ],
        CASES,
    ),
)
def test_half_widths_are_those_of_the_noise(case: str, home: Path) -> None:
    mechanism = case.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    path = small_release.write(home.parent / "data", table=records(), mechanism=mechanism, **CASES[case])
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    handed: dict[str, Any] = {}

    def step(name: str, work: Any) -> Any:
        handed[name] = work()
        return handed[name]

    done = release_run.release(context, load(path), step=step)
    answer, error, half = columns(done.columns)
    table = release_folder.load_release(done.folder)[0]
    low, high = (table[name].to_numpy(zero_copy_only=False) for name in ("low_95", "high_95"))
    digit = 10.0 ** -decimals_of(done.columns.error)
    if mechanism == "dawa":
        assert np.isnan(half).all()
        assert np.isnan(low.astype(float)).all()
        return
    in_standard_errors(half, error, case)
    np.testing.assert_allclose(table["standard_error"].to_numpy(), error, atol=digit / 100)
    for end, uncut in ((low, table["answer"].to_numpy() - half), (high, table["answer"].to_numpy() + half)):
        cut = end == 0  # what is below 0, as far as no record lowers an answer
        np.testing.assert_allclose(end[~cut], uncut[~cut], atol=digit / 100)
        assert (uncut[cut] < digit).all()

    def processed(**options: Any) -> Answers:
        """The same measurement, processed in another way."""
        outputs = replace(done.job.outputs, postprocess=PostprocessSpec.model_validate(options))
        planned = replace(done.plan, job=replace(done.job, outputs=outputs))
        rounding = answer_rounding(planned.job)
        round_answers = None if rounding is None else rounding.prepare(context, planned, ())
        return answers_of(context, planned, handed["measure"][0], (), round_answers)

    def answered(**options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return columns(processed(**options))

    def check_whole(rounded: Answers, before: np.ndarray, width: np.ndarray) -> None:
        """Whole numbers whose intervals hold those of the answers before."""
        values, _, wider = columns(rounded)
        assert rounded.rounding is not None
        assert (values == np.rint(values)).all()
        assert np.abs(values - before).max() <= rounded.rounding.deviation + 1e-9
        np.testing.assert_allclose(wider, width + rounded.rounding.deviation, rtol=1e-6, atol=1e-6)

    if not missing_plugin("postprocess.integer"):
        whole = processed(integer=True)
        np.testing.assert_allclose(columns(whole)[1], error, rtol=1e-12)
        check_whole(whole, answer, half)
        check_whole(processed(integer="unbiased"), answer, half)
    if case not in FITTED:
        return
    if not missing_plugin("postprocess.non_negative"):
        fitted, same, wider = answered(non_negative=True)
        moved, (least, most) = np.abs(fitted - answer), (np.maximum(answer + side * half, 0) for side in (-1, 1))
        assert moved.max() > 0.5 or mechanism == "eigen"  # whose noise depends on the last bits of a solve
        np.testing.assert_allclose(same, error, rtol=1e-6)
        around = np.maximum(most - fitted, fitted - least)  # holds what the interval of the unbiased answer holds above 0
        np.testing.assert_allclose(wider, around, rtol=1e-6, atol=1e-6)
        if not missing_plugin("postprocess.integer"):
            both = processed(non_negative=True, integer=True)
            check_whole(both, fitted, around)
            assert columns(both)[0].min() >= 0
    _, less, narrower = answered(known=[{"count": 60}])
    assert (less <= error * (1 + 1e-6)).all()
    if case in FITTED - {"identity, Laplace noise"}:
        np.testing.assert_allclose(narrower, NORMAL * less, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rounded", [False, True])
def test_half_widths_of_what_is_read_slab_by_slab(rounded: bool, home: Path) -> None:
    """Tables that are never held whole: the same intervals."""
    changes = {"workload": [{"cdf": {"of": "age", "by": ["sex"]}}], "postprocess": {"integer": rounded}}
    path = small_release.write(home.parent / "data", mechanism="kronecker", **changes)
    done = small_release.run(path, home, sizes=Sizes(streamed_cells=10))
    _, error, half = columns(done.columns)
    np.testing.assert_allclose(
        half, NORMAL * error + (done.columns.rounding.deviation if done.columns.rounding else 0.0), rtol=1e-9
    )


@pytest.mark.parametrize("rounded", always([True], [False, True]))
@pytest.mark.parametrize("kind", ["running_sum", "window", "formulas"])
def test_half_widths_of_long_series_and_formulas(
    kind: str, rounded: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = dict(FORMULAS)
    if kind != "formulas":
        entry = {"running_sum": True} if kind == "running_sum" else {"window": 3}
        changes = {"workload": [{"filters": {"of": "age", "apply": [entry]}}]}
    mechanism = "square-root" if kind == "running_sum" else "convolution"
    path = small_release.write(
        home.parent / "data", table=records(), mechanism=mechanism, postprocess={"integer": rounded}, **changes
    )
    done = small_release.run(path, home, sizes=Sizes(long_steps=5))
    answer, error, half = columns(done.columns)
    np.testing.assert_allclose(
        half, NORMAL * error + (done.columns.rounding.deviation if done.columns.rounding else 0.0), rtol=1e-9
    )
    if rounded:
        np.testing.assert_array_equal(answer, np.rint(answer))
