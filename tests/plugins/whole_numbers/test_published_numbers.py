"""A later release of the same records keeps the whole numbers that were published, or says before its charge why it cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.errors import InvalidInput
from dpdist.pipeline.release_run import Release
from dpdist.plugins.whole_numbers.answer_rounding import _whole_columns
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import Answers
from tests.support import small_release
from tests.support.complete_tree import needs_plugin

WHOLE: dict[str, Any] = {"integer": True, "non_negative": True}


def run(home: Path, name: str, of: list[list[str]], *earlier: str, **changes: Any) -> tuple[Release, list[str]]:
    """A release of tables, and what was warned of."""
    lines: list[str] = []
    after = {**WHOLE, **({"consistent_with": [f"{each}.yaml" for each in earlier]} if earlier else {}), **changes}
    given = {"workload": [{"marginals": {"of": of}}], "mechanism": "identity", "budget": {"rho": 0.02}}
    path = small_release.write(home.parent / "data", release=name, postprocess=after, **given)
    path = path.rename(path.parent / f"{name}.yaml")
    return small_release.run(path, home, lambda stage, line: lines.append(line) if stage == "warning" else None), lines


def numbers(released: Release, group: str) -> list[float]:
    table, _ = release_folder.load_release(released.folder)
    return [row["answer"] for row in table.to_pylist() if row["group"] == group]


def test_errors_and_intervals_hold_what_moved_an_answer() -> None:
    """By hand: moved by 4 with an error of 3, an answer has one of 5; one that was not moved keeps its own."""
    columns = (ArrayVector(np.array(values)) for values in ([10.2, 7.0], [3.0, 3.0], [6.0, 6.0]))
    whole, moves = ArrayVector(np.array([14.0, 7.0])), ArrayVector(np.array([4.0, 0.0]))
    values, errors, half = _whole_columns(whole, moves, Answers(*columns), 0.5, 0, 2)
    assert (values.tolist(), errors.tolist(), half.tolist()) == ([14, 7], [5, 3], [10.5, 6.5])


@needs_plugin("postprocess.consistent_with")
def test_the_same_number_stands_in_every_table(home: Path) -> None:
    one, _ = run(home, "one", [["sex"], ["sex", "work"]])
    two, lines = run(home, "two", [["sex"], ["age", "sex"]], "one")
    assert lines == []
    assert numbers(two, "sex") == numbers(one, "sex")
    facts = json.loads((Path(two.folder) / "release.json").read_text())
    assert facts["rounding"]["held"] == ["sex of one", "sex x work of one"]
    assert sum("were published as" in sentence for sentence in facts["post_processing"]) == 2
    assert np.array(numbers(two, "age x sex")).reshape(-1, 2).sum(axis=0).tolist() == numbers(two, "sex")
    assert not [line for line in small_release.verified(home, "two") if "wrong" in line]
    again, _ = run(home, "two", [["sex"], ["age", "sex"]], "one")
    assert (again.charged, small_release.tree(Path(again.folder))) == (False, small_release.tree(Path(two.folder)))


@needs_plugin("postprocess.consistent_with")
def test_what_cannot_be_held_is_said_before_the_charge(home: Path) -> None:
    run(home, "one", [["sex"]])
    run(home, "two", [["sex"]])  # of the same records, with noise of its own
    released, lines = run(home, "three", [["sex", "work"]], "one", "two")
    (line,) = lines
    assert line.startswith(
        "the numbers that were published as sex of two are not held, so that this release's may differ: they contr"
    )
    shutil.move(Path(released.folder).parent / "one", home.parent / "away")
    with pytest.raises(InvalidInput, match="the files of 'one' are not where the ledger says"):
        run(home, "four", [["sex", "work"]], "one")
    with open_ledger(home) as ledger:
        assert ledger.receipt("four") is None


@needs_plugin("postprocess.consistent_with")
@pytest.mark.parametrize("held", [True, False])
def test_a_rounding_that_fails_after_the_charge_loses_nothing(home: Path, held: bool) -> None:
    """The charge is made: the release is published with a rounding that its certificate names."""
    run(home, "one", [["sex"]])

    def fail(*arguments: Any) -> Any:
        raise ArithmeticError("no vertex")

    with mock.patch("dpdist.plugins.whole_numbers.answer_rounding.round_answers", fail):
        released, lines = run(home, "two", [["sex"], ["sex", "work"]], *(["one"] if held else []))
    assert any("the release goes on" in line for line in lines)
    facts = json.loads((Path(released.folder) / "release.json").read_text())
    assert facts["rounding"] == {"rule": "nearest", "deviation": 0.5, "adds_up": False, "apart": []}
    assert all(value.is_integer() for value in numbers(released, "sex"))
    assert not [line for line in small_release.verified(home, "two") if "wrong" in line]


@needs_plugin("postprocess.consistent_with")
def test_an_edition_says_that_it_keeps_whole_numbers(home: Path) -> None:
    whole, _ = run(home, "three", [["sex"]])
    kept, _ = run(home, "four", [["sex"], ["age"]], "three")
    assert "sex: the same numbers as in the earlier edition three" in (Path(kept.folder) / "index.html").read_text()
    assert numbers(whole, "sex") == numbers(kept, "sex")


@needs_plugin("postprocess.consistent_with")
def test_releases_of_too_many_answers_are_not_held(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "one", [["sex"]])
    monkeypatch.setattr("dpdist.plugins.whole_numbers.published_numbers.MOST_READ", 1)
    two, lines = run(home, "two", [["sex"], ["sex", "work"]], "one")
    assert lines == ["the numbers of one are not held: it has more than 1 answers"]
    facts = json.loads((Path(two.folder) / "release.json").read_text())
    assert "held" not in facts["rounding"]
