"""What is protected, as certificate, page and terminal say it: by unit, relation, bound and epsilon of real releases."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.commands.cli import app
from tests.case_selection import slow_after_first
from tests.support import small_release

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "a record": (
        {"budget": {"epsilon": 0.5}},
        {
            "unit": "records",
            "neighbours": "add-remove",
            "one_change": "One record is added or removed.",
            "most_records_of_one_person": 1,
            "bound_enforced_while_counting": False,
            "bound": "Nobody checked that a person has at most 1 record: whoever has more has less protection.",
        },
        ("tells hardly anything about whether any one record is in the data.", "at most 8.3 of 100 cases"),
    ),
    "records, replaced": (
        {
            "budget": {"epsilon": 12},
            "neighbours": "replace-one",
            "records": {"path": "records.parquet", "person": {"most_records": 3}},
        },
        {
            "unit": "records",
            "neighbours": "replace-one",
            "one_change": "Up to 3 records are replaced by any others, added or removed.",
            "most_records_of_one_person": 3,
            "bound_enforced_while_counting": False,
            "bound": "Nobody checked that a person has at most 3 records: whoever has more has less protection.",
        },
        ("may be almost sure whether any 3 records are in the data, or what they say.", "at most 100 of 100 cases"),
    ),
    "a person": (
        {"budget": {"rho": 0.1}, "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}},
        {
            "unit": "persons by column 'person'",
            "neighbours": "add-remove",
            "one_change": "All records of one person, those with one value of column 'person', are added or removed together.",
            "most_records_of_one_person": 2,
            "bound_enforced_while_counting": True,
            "bound": "Enforced while counting: of each person at most 2 records count, the first in the order in which they are read.",
        },
        (
            "no more than a hint of whether any one person is in the data.",
            "Answers and intervals are about the records that count.",
        ),
    ),
    "a person, replaced": (
        {
            "budget": {"epsilon": 1, "delta": 1e-6},
            "neighbours": "replace-one",
            "records": {"path": "records.parquet", "person": {"column": "person"}},
        },
        {
            "unit": "persons by column 'person'",
            "neighbours": "replace-one",
            "one_change": "All records of one person, those with one value of column 'person', are replaced by any "
            "other records with one value that no other person has, added or removed together.",
            "most_records_of_one_person": 1,
            "bound_enforced_while_counting": True,
            "bound": "Enforced while counting: of each person at most 1 record counts, the first in the order in which they are read.",
        },
        ("whether any one person is in the data, or what their records say.",),
    ),
}


@pytest.mark.parametrize("name", slow_after_first(2, CASES))
def test_certificate_page_and_terminal_say_what_is_protected(name: str, home: Path) -> None:
    changes, said, told = CASES[name]
    path = small_release.write(
        home.parent / "data",
        **changes,
        workload=[{"marginals": {"of": [["age"]]}}],
        mechanism="identity",
        ledger={"dataset": "small", "cap": {**changes["budget"], **({"rho": 1} if "rho" in changes["budget"] else {})}},
    )
    folder = Path(small_release.run(path, home).folder)
    privacy = json.loads((folder / "release.json").read_text())["privacy"]
    assert {key: privacy[key] for key in said} == said
    page = " ".join(html.unescape((folder / "index.html").read_text()).split())
    shown = CliRunner().invoke(app, ["show", "small-1", "--about"])
    assert shown.exit_code == 0, shown.output
    terminal = " ".join(shown.output.split())
    for where in (page, terminal):
        for text in (said["unit"][1:], said["bound"], privacy["meaning"]["headline"], privacy["meaning"]["guess"]):
            assert text in where
        assert said["one_change"][1:] in where  # the first letter may begin a sentence
        assert "nobody can tell" not in where
    for text in told:
        assert text in page
