"""A mechanism with a formula is one class and one line: a toy one is planned, compared, released, shown, documented and refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.mechanisms.baseline_mechanisms import FormulaMechanism
from dpdist.mechanisms.comparison import compared_mechanisms, exclusion_reasons
from dpdist.mechanisms.mechanism import GAUSSIAN, AutoComparison
from dpdist.mechanisms.mechanism_registry import REGISTRY, markdown_table
from dpdist.operators import Matrix
from dpdist.spec import load
from dpdist.spec.release_spec import json_schema
from dpdist.workloads import Workload
from tests.support import small_release
from tests.support.complete_tree import needs_every_plugin

MOST_CELLS = 100
CDF = [{"cdf": {"of": "age"}}]
AGES = {"age": {"from": 0, "to": 11}}


class Rotation(FormulaMechanism):
    """Measures the cells in a random orthonormal basis."""

    name = "rotation"
    summary = "the cells in a random orthonormal basis"
    answers = f"queries over up to {MOST_CELLS} cells"
    noises = GAUSSIAN

    def reason_refused(self, workload: Workload) -> str | None:
        cells = workload.shape[1]
        return None if cells <= MOST_CELLS else f"a rotation takes up to {MOST_CELLS} cells, found {cells}"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return None

    def rows(self, workload: Workload) -> Matrix:
        cells = workload.shape[1]
        rows, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((cells, cells)))
        return rows


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, Rotation.name, Rotation())  # the one line


def test_it_is_planned_compared_and_certified(home: Path) -> None:
    path = small_release.write(home.parent / "data", domain=AGES, workload=CDF)
    done = small_release.run(path, home)
    rows = {row["mechanism"]: row for row in done.certificate["mechanism"]["compared"]}
    assert set(rows) == {"coa", "identity", "gaussian", "rotation"}
    assert rows["coa"]["cost"] <= rows["rotation"]["cost"]
    assert rows["rotation"]["gap"] >= 0  # against coa's lower bound


def test_it_is_released_and_shown(home: Path) -> None:
    """Answers are the records' but for noise of the predicted size, and each has its interval."""
    from flows.commands.cli import app

    path = small_release.write(home.parent / "data", domain=AGES, workload=CDF, mechanism="rotation", budget={"rho": 0.2})
    done = small_release.run(path, home)
    assert done.charged
    facts = done.certificate["mechanism"]
    assert (facts["name"], facts["consistent"], facts["biased"]) == ("rotation", True, False)
    found = done.answers.arrow
    truth = np.cumsum(np.bincount(small_release.records()["age"].to_numpy(), minlength=12))
    off = (found["answer"].to_numpy() - truth) / found["standard_error"].to_numpy()
    assert np.abs(off).max() < 5  # fails once in 10^5 seeds
    assert np.abs(off).max() > 0.01
    told = [line for line in small_release.verified(home, done.certificate["release"]) if "wrong" in line]
    assert told == []  # what the verifier does not know of a mechanism of somebody else is not checked, and not wrong
    result = CliRunner().invoke(app, ["show", str(done.folder), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.output)["certificate"]["mechanism"]["name"] == "rotation"


def test_it_is_documented() -> None:
    assert (
        "| `rotation` | queries over up to 100 cells | Gaussian | the cells in a random orthonormal basis |"
        in markdown_table()
    )


def test_it_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    """For workloads that it does not answer, for the other noise, for another objective; and names that nobody registered."""
    pure = {"budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 2}}}
    wide = {"domain": {"age": {"from": 0, "to": 200}}, "workload": CDF}
    cases: list[tuple[dict[str, Any], str]] = [
        (wide, "line 1[0-9].*mechanism 'rotation' cannot answer this workload: a rotation takes up to 100 cells, found 201"),
        (pure, "mechanism 'rotation' uses Gaussian noise"),
        ({"objective": "worst"}, "objective: worst"),
        ({"mechanism": "turn"}, "must be 'auto', .* or 'rotation'"),
    ]
    for number, (changes, message) in enumerate(cases):
        path = small_release.write(tmp_path / str(number), **{"mechanism": "rotation", **changes})
        with pytest.raises(InvalidSpec, match=message):
            load(path)
    queries = load(small_release.write(tmp_path / "wide", **wide)).workload.queries
    assert "rotation" not in compared_mechanisms("auto", "l2", queries)
    assert "201" in exclusion_reasons("l2", queries)["rotation"]
    with pytest.raises(InvalidInput, match="found 201"):
        REGISTRY["rotation"].check(queries)


def test_without_its_line_nobody_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REGISTRY, "rotation")
    with pytest.raises(InvalidSpec, match="must be 'auto'"):
        load(small_release.write(tmp_path, mechanism="rotation"))


@needs_every_plugin
def test_the_documents_are_those_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of mechanisms, the reference of spec keys and the schema's names."""
    monkeypatch.delitem(REGISTRY, "rotation")
    root = Path(__file__).parents[2]
    assert markdown_table() in (root / "docs/mechanisms.md").read_text()
    (listed,) = re.findall(r"^### `mechanism`.*\n\n(.*)$", (root / "docs/reference/spec.md").read_text(), re.MULTILINE)
    assert all(f"`{name}`" in listed for name in REGISTRY)
    assert json_schema()["properties"]["mechanism"]["enum"] == ["auto", *REGISTRY]
