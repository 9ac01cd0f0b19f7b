"""Intervals of answers that are shown because they are large hold the true counts as often as they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dpdist.content.truncated_intervals import laplace_tail, normal_tail, truncated_end, truncated_intervals
from dpdist.privacy.noise_distributions import Kind
from dpdist.publish import release_folder
from tests.support import small_release
from tests.support.command_line import CommandLine

DRAWS = 10_000
SPREAD = 4.5 * np.sqrt(0.05 * 0.95 / 2000)
"""Of shares of at least 2,000 shown answers."""


def drawn(noise: str, draws: int, state: np.random.Generator) -> np.ndarray:
    """Sums of some draws, of deviation 1."""
    each = (state.normal if noise == "Gaussian" else state.laplace)(0, 1, (DRAWS, draws)).sum(axis=1)
    return np.asarray(each / np.sqrt(draws * (1 if noise == "Gaussian" else 2)))


ALWAYS = (("Gaussian", 1, 0.0, 0.0), ("Laplace", 1, 10.0, 0.0), ("Laplace", 9, 0.0, 2.0))
"""One of each noise and of each rule."""


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("noise", "draws", "below", "at"),
    [
        pytest.param(*noise, *rule, marks=[] if (*noise, *rule) in ALWAYS else pytest.mark.slow)
        for noise in (("Gaussian", 1), ("Laplace", 1), ("Laplace", 9))
        for rule in ((0.0, 2.0), (10.0, 0.0), (0.0, 0.0))
    ],
)
def test_shown_answers_are_covered_at_every_size_of_count(noise: str, draws: int, below: float, at: float) -> None:
    state, error, limit = np.random.default_rng(3), 5.0, below + at * 5.0
    for truth in (0.0, 1.0, 3.0, 8.0, 20.0, 60.0):
        answers = truth + error * drawn(noise, draws, state)
        shown = answers[answers >= limit]
        if shown.size < 400:
            continue
        low, high = truncated_intervals(shown, np.full(shown.size, error), np.full(shown.size, limit), Kind(noise.lower()))
        covered = np.mean((np.maximum(low, 0) <= truth) & (truth <= high))
        spread = SPREAD * np.sqrt(2000 / shown.size)
        assert covered >= 0.95 - spread
        if truth > 0 and noise == "Gaussian":
            assert covered <= 0.95 + spread + (1 - stats.norm.cdf((truth - limit) / error)) * 0.03
        usual = np.mean(np.abs(shown - truth) <= 1.96 * error)
        assert truth > 3 or limit == 0 or usual < 0.75  # what they covered before


def test_ends_by_hand() -> None:
    """Laplace noise forgets how far it came: just above the limit nothing bounds the count from below. Far above selection is nothing."""
    assert truncated_end(np.array([1.0]), 0.025, laplace_tail)[0] < -39
    np.testing.assert_allclose(truncated_end(np.full(2, 9.0), 0.025, normal_tail), 9 - stats.norm.isf(0.025), atol=1e-6)
    (found,) = truncated_end(np.array([0.5]), 0.975, normal_tail)
    assert stats.norm.sf(0.5 - found) / stats.norm.sf(-found) == pytest.approx(0.975)


def test_releases_and_readers_get_adjusted_intervals(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the publisher suppresses, and what readers leave out of a whole table, have the same intervals."""
    asked = {"workload": [{"marginals": {"ways": [2]}}], "budget": {"rho": 0.01}}
    whole = small_release.run(
        small_release.write(home.parent / "all", **asked, output={"folder": str(home.parent / "out")}), home
    )
    rule = {"postprocess": {"suppress": {"below": 30, "at": 1}}}
    shown = small_release.run(small_release.write(home.parent / "some", **asked, **rule), home)
    rows, certificate = release_folder.load_release(Path(shown.folder))
    (sentence,) = certificate["post_processing"]
    assert "truncated" in sentence
    found = json.loads(
        CommandLine(monkeypatch, capsys)("show", str(whole.folder), "--below", "30", "--at", "1", "--json").out
    )
    assert [row["low_95"] for row in found["answers"]] == rows["low_95"].to_pylist()
    assert [row["high_95"] for row in found["answers"]] == rows["high_95"].to_pylist()
    answers, errors, low = (rows[name].to_numpy() for name in ("answer", "standard_error", "low_95"))
    near = answers < 30 + 2 * errors
    assert near.any()
    assert (low[near] < np.maximum(answers - 1.96 * errors, 0)[near] - 0.01).any()
    again = json.loads(
        CommandLine(monkeypatch, capsys)("show", str(shown.folder), "--below", "0", "--at", "0", "--json").out
    )
    assert [row["low_95"] for row in again["answers"]] == rows["low_95"].to_pylist()  # the higher limit decided


def test_an_interval_without_a_lower_end_is_null_in_json(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a person's total is bounded cells may be negative, and nothing cuts what Laplace noise leaves open; JSON has no infinity."""
    path = small_release.write(
        home.parent / "bounded",
        table=small_release.records().append_column("cost", pa.array(np.arange(3000.0) % 100)),
        records={"path": "records.parquet", "person": {"column": "person", "most_records": 2}},
        sums={"cost": {"from": 0, "to": 100, "most_per_person": 100}},
        workload=[{"marginals": {"of": [["age", "sex"]]}, "sum": "cost"}, {"marginals": {"of": [["age", "sex"]]}}],
        budget={"epsilon": 0.3},
        ledger={"dataset": "small", "cap": {"epsilon": 1}},
    )
    done, command = small_release.run(path, home), CommandLine(monkeypatch, capsys)
    near = float(np.sort(done.answers["age x sex"].arrow["answer"].to_numpy())[12])
    printed = command(
        "show", str(done.folder), "--below", f"{near - 0.5}", "--at", "0", "--group", "age x sex", "--json"
    ).out
    assert "Infinity" not in printed
    assert None in [row["low_95"] for row in json.loads(printed)["answers"]]
