"""Suppressed answers are nowhere in the published tables and charts, and the shares of wrong decisions are those predicted."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import zarr
from pydantic import ValidationError

from dpdist.content.suppression import Suppression
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.pipeline.release_run import Release
from dpdist.privacy import keys
from dpdist.privacy.noise_distributions import LAPLACE, Kind
from dpdist.publish import release_folder
from dpdist.spec import load
from dpdist.spec.sections.output import SuppressSpec
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.command_line import CommandLine

RULE = {"below": 150, "at": "2 standard errors"}
ASKED: dict[str, Any] = {"workload": [{"marginals": {"ways": [1, 2]}}]}


def test_what_is_left_out_of_a_rule_is_what_the_spec_says() -> None:
    assert SuppressSpec.model_validate({"below": 150}).at == Suppression(150.0).at


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1.0])
def test_a_rule_has_numbers_only(number: float) -> None:
    for rule in ({"below": number}, {"below": 1, "at": number}):
        with pytest.raises(ValidationError):
            SuppressSpec.model_validate(rule)


@pytest.fixture(scope="module")
def release_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    """One measurement, published with and without suppression."""
    home = tmp_path_factory.mktemp("suppression") / "home"
    keys.initialise(home)
    (home / "root.key").write_text("5c" * 32 + "\n")
    releases = []
    with pytest.MonkeyPatch.context() as patch:  # always the same noise: a short answer may be like a coordinate of a chart
        patch.setattr("dpdist.privacy.ledger.budget_ledger._new_salt", lambda: bytes(range(32)))
        for name, options in (("all", {}), ("shown", {"suppress": RULE})):
            output = {"folder": str(home.parent / name / "out"), "formats": small_release.EVERY_FORMAT}
            path = small_release.write(home.parent / name, **ASKED, postprocess=options, output=output)
            releases.append(small_release.run(path, home))
    return releases[0], releases[1]


@pytest.mark.parametrize("mechanism", [name for name, each in REGISTRY.items() if each.is_data_dependent])
def test_no_rates_are_predicted_for_answers_with_a_bias(tmp_path: Path, mechanism: str) -> None:
    """Neither where cells are fitted, nor of a mechanism that chooses from the records what it measures together."""
    changes: dict[str, Any] = {
        "domain": {"age": {"from": 0, "to": 11}},
        "workload": [{"cdf": {"of": "age"}}],
        "budget": {"epsilon": 0.5},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1}},
    }
    biased = {"non_negative": {"mechanism": "identity", "postprocess": {"suppress": RULE, "non_negative": True}}}
    biased["adaptive"] = {"mechanism": mechanism, "postprocess": {"suppress": RULE}}
    for name, options in biased.items():
        small_release.refused_in_one_line(small_release.write(tmp_path / name, **changes, **options), "do not tell the bias")
    load(small_release.write(tmp_path / "unbiased", **changes, mechanism="identity", postprocess={"suppress": RULE}))


def test_shown_are_the_answers_clearly_above_the_number(release_pair: tuple[Release, Release]) -> None:
    every, shown = (release_folder.load_release(Path(done.folder))[0].to_pylist() for done in release_pair)
    above = [row for row in every if row["answer"] >= 150 + 2 * row["standard_error"]]
    assert [{**row, "low_95": 0, "high_95": 0} for row in shown] == [{**row, "low_95": 0, "high_95": 0} for row in above]
    assert all(row["low_95"] <= other["low_95"] for row, other in zip(shown, above, strict=True))  # given that it is shown
    assert 0 < len(shown) < len(every)
    assert len((Path(release_pair[1].folder) / "answers.csv").read_text().splitlines()) == len(shown) + 1


def test_arrays_keep_their_places(release_pair: tuple[Release, Release]) -> None:
    every, shown = (zarr.open_group(Path(done.folder) / "answers.zarr", mode="r")["answer"][:] for done in release_pair)
    hidden = np.isnan(shown)
    np.testing.assert_array_equal(shown[~hidden], every[~hidden])
    assert hidden.sum() == len(every) - release_pair[1].answers.arrow.num_rows
    whole, holes = (done.answers.xarray()["age x work"]["answer"] for done in release_pair)
    assert holes.shape == whole.shape
    assert 0 < int(holes.isnull().sum()) < holes.size
    np.testing.assert_array_equal(holes.values[~np.isnan(holes)], whole.values[~np.isnan(holes)])


def test_the_page_holds_no_suppressed_answer(release_pair: tuple[Release, Release]) -> None:
    page = (Path(release_pair[1].folder) / "index.html").read_text(encoding="utf-8")
    shown = {row["answer"] for row in release_pair[1].answers.arrow.to_pylist()}
    hidden = [row["answer"] for row in release_pair[0].answers.arrow.to_pylist() if row["answer"] not in shown]
    assert hidden
    for answer in hidden:
        assert not re.search(rf"(?<![\d.,]){re.escape(str(answer))}(?!\d)", page)
    numbers = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert len(numbers) > 2
    assert not any("NaN" in each or "nan" in each for each in numbers)
    facts = json.loads((Path(release_pair[1].folder) / "release.json").read_text())["suppression"]
    assert f"{facts['answers'] - facts['shown']:,} of {facts['answers']:,} answers are suppressed" in page


def test_the_certificate_predicts_how_often_it_errs(release_pair: tuple[Release, Release]) -> None:
    certificate = json.loads((Path(release_pair[1].folder) / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    facts = certificate["suppression"]
    found = release_pair[0].answers.suppressed(below=150, at=2)
    expected = {**found.facts, "shown": found.table.num_rows, "answers": found.all_rows}
    seen = {row["group"] for row in release_pair[1].answers.arrow.to_pylist() if not np.isnan(row["answer"])}
    hidden = [block.name for block in release_pair[1].plan.workload.blocks if block.name not in seen]
    assert facts == {**{name: value for name, value in expected.items() if name != "all_rows"}, "hidden_groups": hidden}
    assert certificate["post_processing"][0].startswith("answers that do not lie at least 2 standard errors above 150")
    assert release_pair[0].certificate["spec_digest"] == release_pair[1].certificate["spec_digest"]


@pytest.mark.parametrize("rows", [None, 3])
def test_a_group_of_which_nothing_is_shown_is_said_to_be_suppressed(
    rows: int | None, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the table is short and read from CSV, or long and read from Parquet; a group that there is not is told as before."""
    asked = [{"marginals": {"of": [[]]}}, {"marginals": {"of": [["age", "work"]]}}]
    path = small_release.write(home.parent / "data", workload=asked, postprocess={"suppress": {"below": 2000}})
    folder = str(small_release.run(path, home).folder)
    certificate = json.loads((Path(folder) / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    assert certificate["suppression"]["hidden_groups"] == ["age x work"]
    if rows is not None:
        monkeypatch.setattr("dpdist.publish.release_folder.short_rows", lambda folder: None)
    show = CommandLine(monkeypatch, capsys)
    with pytest.raises(InvalidInput, match="all answers of group 'age x work' are suppressed"):
        release_folder.first_rows(Path(folder), group="age x work", limit=5)
    with pytest.raises(InvalidInput, match="no group 'age'; there are total"):
        release_folder.first_rows(Path(folder), group="age", limit=5)
    found = show("show", folder, "--group", "age x work")
    assert (found.code, found.err_lines) == (1, 1)
    assert "all answers of group 'age x work' are suppressed" in found.err


def test_a_series_of_windows_of_which_nothing_is_shown_is_not_drawn(home: Path) -> None:
    """The steps at its ends have no answer in any case, and charts leave them out."""
    asked = [{"marginals": {"of": [[]]}}, {"filters": {"of": "age", "apply": [{"mean": 3}]}}]
    done = small_release.run(
        small_release.write(home.parent / "data", workload=asked, postprocess={"suppress": {"below": 2000}}), home
    )
    certificate = json.loads((Path(done.folder) / "release.json").read_text())
    assert certificate["suppression"]["hidden_groups"][-1] == "mean of 3 steps"


def test_an_answer_just_above_the_number_is_drawn(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given that it is shown, Laplace noise may have made all of it: its interval begins at 0, and is as wide as the answer."""
    (home / "root.key").write_text("5c" * 32 + "\n")
    monkeypatch.setattr(
        "dpdist.privacy.ledger.budget_ledger._new_salt", lambda: bytes(range(32))
    )  # the same noise once more
    asked = {
        "workload": [{"cdf": {"of": "age"}}],
        "budget": {"epsilon": 1},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1}},
        "mechanism": "identity",
    }

    def rows(name: str, **options: Any) -> list[dict[str, str]]:
        output = {"folder": str(home.parent / name / "out"), "formats": small_release.EVERY_FORMAT}
        done = small_release.run(
            small_release.write(home.parent / name, **asked, output=output, **options), home.parent / f"home-{name}"
        )
        with (Path(done.folder) / "answers.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    for name in ("all", "shown"):
        shutil.copytree(home, home.parent / f"home-{name}")
    least = rows("all")[0]
    below = float(least["answer"]) - 2 * float(least["standard_error"]) - 0.1
    found = rows("shown", postprocess={"suppress": {"below": below}})
    assert (found[0]["answer"], float(found[0]["low_95"])) == (least["answer"], 0)
    half = zarr.open_group(home.parent / "shown/out/answers.zarr", mode="r")["half_width_95"][0]
    assert half == pytest.approx(float(found[0]["answer"]), abs=0.01)


@pytest.mark.parametrize("draws", [1, 3, 40])
@pytest.mark.parametrize("noise", ["Gaussian", "Laplace"])
def test_predicted_shares_hold_for_sums_of_draws(noise: str, draws: int) -> None:
    """400,000 simulated answers: with one draw the tail is Laplace's, with forty nearly normal. Predicted is at least what happens,
    but for three standard errors of the simulation, and at most twice it for single draws."""
    state = np.random.default_rng(draws)
    drawn = (state.normal if noise == "Gaussian" else state.laplace)(0, 1, (400_000, draws)).sum(axis=1)
    drawn *= 15 / (np.sqrt(draws) * (1 if noise == "Gaussian" else np.sqrt(2)))
    rule, error = Suppression(50, 2, noise=Kind(noise.lower())), np.full(1, 15.0)
    predicted = rule.predict_rates([error])
    for truth, share in (
        (0, predicted.shown_at_zero),
        (50, predicted.shown_at_limit),
        (100, 1 - predicted.dropped_at_double),
    ):
        shown = float(rule.is_shown(truth + drawn, error).mean())
        spread = 3 * np.sqrt(shown * (1 - shown) / drawn.size) + 1e-6
        if truth == 100:
            assert shown >= share - spread
        else:
            assert shown <= share + spread
        if draws == 1 and truth == 50:
            assert shown >= share - spread
    sure = float(rule.is_shown(predicted.sure_from + drawn, error).mean())
    assert 0.975 - 0.001 <= sure <= 0.99


def test_an_answer_without_noise_never_strays() -> None:
    predicted = Suppression(50, 2, noise=LAPLACE).predict_rates([np.zeros(3)])
    assert (predicted.shown_at_zero, predicted.dropped_at_double) == (0.0, 0.0)
    with pytest.raises(InvalidInput, match="below >= 0"):
        Suppression(-1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"postprocess": {"suppress": {"below": 50, "at": "2 percent"}}}, "postprocess.suppress.at"),
        ({"postprocess": {"suppress": {"below": -1}}}, "postprocess.suppress.below"),
        ({"postprocess": {"suppress": RULE, "non_negative": True}}, "do not tell the bias"),
        (
            {"postprocess": {"suppress": RULE}, "workload": [{"filters": {"of": "age", "apply": [{"cycle": 2}]}}]},
            "no group of the workload has any",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, **changes))


@pytest.mark.parametrize("more", slow_after_first(1, [0, 1]))
def test_single_answers_are_drawn_side_by_side_without_suppressed_ones(more: int, tmp_path: Path) -> None:
    """Of three groups of one answer two are shown; of two with one that is suppressed, none is drawn."""
    asked = [
        {"predicates": [each]} for each in [*(f"age >= {number}" for number in range(1 + more)), "age < 1 and sex == 'f'"]
    ]
    options, output = {"suppress": {"below": 1000}}, {"folder": str(tmp_path / "out")}
    keys.initialise(tmp_path / "home")
    done = small_release.run(
        small_release.write(tmp_path / "data", workload=asked, postprocess=options, output=output), tmp_path / "home"
    )
    page = (Path(done.folder) / "index.html").read_text(encoding="utf-8")
    assert ("Groups of one answer each, side by side." in page) == bool(more)
