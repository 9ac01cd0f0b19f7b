"""Whole answers of a release add up in every file that readers get, and nothing but noisy numbers decides them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import DpdistError
from dpdist.plugins.verifier import verify
from dpdist.publish import release_folder
from tests.support import small_release

GEOGRAPHY: dict[str, Any] = {
    "domain": {
        "age": {"from": 0, "to": 11, "levels": {"decade": [0, 3, 6, 12]}},
        "sex": {"categories": ["f", "m"]},
    },
    "workload": [{"marginals": {"of": [[], ["decade"], ["decade", "sex"], ["age"], ["age", "sex"]]}}],
}


def published(home: Path, folder: str, **changes: Any) -> tuple[dict[str, np.ndarray], dict[str, Any], Path]:
    """The answers of every group, the certificate, and the folder."""
    done = small_release.run(small_release.write(home.parent / folder, **{**GEOGRAPHY, **changes}), home)
    table, certificate = release_folder.load_release(done.folder)
    answers, groups = table["answer"].to_numpy(), np.array(table["group"].to_pylist())
    return {name: answers[groups == name] for name in dict.fromkeys(groups.tolist())}, certificate, Path(done.folder)


@pytest.mark.parametrize(
    "options", [{"integer": True}, {"integer": "unbiased", "known": [{"count": 3000}], "non_negative": True}]
)
def test_totals_are_the_sums_of_their_parts(options: dict[str, Any], home: Path) -> None:
    answers, certificate, folder = published(home, "data", postprocess=options)
    total, decades, decades_by_sex, ages, ages_by_sex = answers.values()
    assert all((values == np.rint(values)).all() for values in answers.values())
    np.testing.assert_array_equal(ages_by_sex.reshape(12, 2).sum(axis=1), ages)
    np.testing.assert_array_equal(np.add.reduceat(ages, [0, 3, 6]), decades)
    np.testing.assert_array_equal(decades_by_sex.reshape(3, 2).sum(axis=1), decades)
    np.testing.assert_array_equal(np.add.reduceat(ages_by_sex.reshape(12, 2), [0, 3, 6]), decades_by_sex.reshape(3, 2))
    assert ages.sum() == total[0]
    assert "known" not in options or total[0] == 3000
    rule = "unbiased" if options["integer"] == "unbiased" else "nearest"
    assert certificate["rounding"] == {"rule": rule, "deviation": 1.0, "adds_up": True, "apart": []}
    lines = verify.verify(folder)
    assert {claim: line for claim, line in lines.items() if line.startswith("wrong")} == {}
    assert lines["whole numbers"].startswith("right")
    assert "totals are the sums of their parts" in certificate["post_processing"][-1]
    assert "so that totals and their parts agree." in (folder / "index.html").read_text()


def test_an_answer_that_does_not_add_up_is_found(home: Path) -> None:
    _, _, folder = published(home, "data", postprocess={"integer": True})
    with (folder / "answers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rows[-1]["answer"] = f"{float(rows[-1]['answer']) + 1:g}"
    with (folder / "answers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert "add up to" in verify.verify(folder)["whole numbers"]


def test_other_files_and_a_second_run_have_the_same_numbers(home: Path, tmp_path: Path) -> None:
    path = small_release.write(home.parent / "data", **GEOGRAPHY, postprocess={"integer": "unbiased"})
    first = Path(small_release.run(path, home).folder)
    before = (first / "answers.csv").read_bytes()
    for name in ("answers.csv", "release.json", "release.json.sig"):
        (first / name).unlink(missing_ok=True)
    first.rename(tmp_path / "old")
    again = Path(small_release.run(path, home).folder)
    assert (again / "answers.csv").read_bytes() == before
    rounding = json.loads((again / "release.json").read_text())["rounding"]
    assert rounding["rule"] == "unbiased"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"integer": True, "known": [{"count": 2.5}]}, "2.5 of all records is no whole number"),
        ({"integer": True, "zeros": "kept"}, "whoever knows all others sees whether one person is there"),
        ({"integer": "up"}, "nearest"),
        ({"integer": True, "known": [{"where": "age < 2 or sex == 'f'", "count": 7}]}, "cannot be held"),
    ],
)
def test_what_cannot_be_rounded_is_refused_before_the_charge(options: dict[str, Any], message: str, home: Path) -> None:
    path = small_release.write(home.parent / "data", **GEOGRAPHY, mechanism="coa", postprocess=options)
    with pytest.raises(DpdistError, match=message):
        small_release.run(path, home)
    assert not list((home / "store").rglob("measurements"))
