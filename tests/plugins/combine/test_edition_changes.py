"""A later release of the same records says which of the earlier one's numbers it changes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from dpdist.pipeline.release_run import Release
from dpdist.plugins.combine import edition_changes
from dpdist.publish import release_folder
from tests.support import small_release


def run(home: Path, name: str, of: list[list[str]], *earlier: str) -> tuple[Release, list[str]]:
    """A release of tables that is consistent with earlier ones, and what was warned of."""
    lines: list[str] = []
    path = small_release.write(
        home.parent / "data",
        release=name,
        workload=[{"marginals": {"of": of}}],
        mechanism="identity",
        budget={"rho": 0.02},
        postprocess={"non_negative": True, "consistent_with": [f"{each}.yaml" for each in earlier]},
    )
    path = path.rename(path.parent / f"{name}.yaml")
    return small_release.run(path, home, lambda stage, line: lines.append(line) if stage == "warning" else None), lines


def numbers(released: Release, group: str) -> list[float]:
    table, _ = release_folder.load_release(released.folder)
    return [row["answer"] for row in table.to_pylist() if row["group"] == group]


def test_an_edition_says_what_it_changes(home: Path) -> None:
    """A better estimate revises what was published; the certificate, the page and the files agree."""
    one, _ = run(home, "one", [["sex"], ["work"]])
    two, _ = run(home, "two", [["sex"], ["sex", "work"]], "one")
    facts = json.loads((Path(two.folder) / "release.json").read_text())
    (revised,) = facts["revises"]
    changes = np.abs(np.array(numbers(one, "sex")) - np.array(numbers(two, "sex")))
    # tables have as many decimals as noise leaves
    assert revised["largest_change"] == pytest.approx(changes.max(), abs=0.06)
    assert (revised["group"], revised["release"], revised["answers"], revised["changed"]) == ("sex", "one", 2, 2)
    assert revised["certificate"] == hashlib.sha256((Path(one.folder) / "release.json").read_bytes()).hexdigest()
    page = (Path(two.folder) / "index.html").read_text()
    assert "sex: this edition revises one; 2 of 2 answers differ" in page
    assert not [line for line in small_release.verified(home, "two") if "wrong" in line]


def test_releases_of_very_many_answers_are_not_compared(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "one", [["sex"]])
    monkeypatch.setattr(edition_changes, "MOST_READ", 1)
    two, _ = run(home, "two", [["sex"], ["sex", "work"]], "one")
    assert "revises" not in json.loads((Path(two.folder) / "release.json").read_text())


def test_files_that_were_moved_away_are_named(home: Path) -> None:
    one, _ = run(home, "one", [["sex"]])
    Path(one.folder).rename(home.parent / "away")
    two, lines = run(home, "two", [["sex"], ["sex", "work"]], "one")
    assert lines == [
        "the files of 'one' are not where the ledger says that they were published: put them back; what changed since then is not said"
    ]
    assert "revises" not in json.loads((Path(two.folder) / "release.json").read_text())
