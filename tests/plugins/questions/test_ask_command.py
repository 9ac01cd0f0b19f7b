"""What ``dpdist ask`` prints."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from dpdist.plugins.questions import ask_command
from dpdist.query.published_release import Answer


def test_of_several_questions_each_stands_above_its_groups(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a narrow terminal, too, where names are folded."""
    monkeypatch.setattr(ask_command, "console", Console(width=50))
    groups, questions = ({"branch": "North"}, {"branch": "Harbourside"}), ("count by branch", "mean of fee by branch")
    ask_command.print_query_results(
        [Answer(question, 5.0, 1.0, 3.0, 7.0, group) for question in questions for group in groups], None
    )
    lines = " ".join(capsys.readouterr().out.split())
    assert re.findall(r"count by branch|mean of fee by|North|Harb", lines) == [
        "count by branch",
        "North",
        "Harb",
        "mean of fee by",
        "North",
        "Harb",
    ]
