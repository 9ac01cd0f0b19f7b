"""What people read of releases is what somebody has approved; the texts are in the folder beside this file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from string import Formatter
from typing import get_args

import pytest

from dpdist.plugins.page.charts.chart_data import Kind
from dpdist.statistics.statistic_registry import statistics_by_name
from flows.commands import cli
from tests.approved.approved_text import FOLDER, check, difference, normalised, same
from tests.approved.page_lines import page_lines
from tests.approved.publisher import Publisher
from tests.approved.releases import RELEASES
from tests.language import page_sentences
from tests.support.command_line import CommandLine
from tests.support.complete_tree import needs_every_plugin

pytestmark = needs_every_plugin


@pytest.mark.parametrize("name", RELEASES)
def test_what_is_read_of_a_release_is_approved(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(name, RELEASES[name](Publisher(home, CommandLine(monkeypatch, capsys))))


def test_every_text_is_made_by_a_release() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*RELEASES}


@cache
def approved() -> tuple[str, ...]:
    """The lines of all approved texts, in small letters."""
    texts = (path.read_text("utf-8").replace("\u2060", "").casefold() for path in sorted(FOLDER.iterdir()))
    return tuple(dict.fromkeys(line for text in texts for line in text.splitlines()))


def is_approved(sentence: str) -> bool:
    """Whether a line of an approved text holds a sentence, whatever stands in its places."""
    literals = [" ".join(text.casefold().split()) for text, _, _, _ in Formatter().parse(sentence) if text.strip()]
    longest, pattern = max(literals, key=len), re.compile(".*".join(map(re.escape, literals)))
    return any(longest in line and pattern.search(line) for line in approved())


def test_every_sentence_is_in_an_approved_text_or_listed() -> None:
    sentences = page_sentences.in_words(page_sentences.of_python() | page_sentences.of_templates())
    listed = [sentence for sentences in UNAPPROVED.values() for sentence in sentences]
    assert {sentence for sentence in sentences if not is_approved(sentence)} == {*listed}


UNAPPROVED: dict[str, tuple[str, ...]] = {
    "more rows, releases or periods than fit: tests/plugins/page/test_charts.py, test_print.py, tests/plugins/site": (
        "Broken bars are longer than they are drawn.",
        "Drawn are the highest and the lowest of every {every:,} steps; the files have all.",
        "Drawn are the highest and the lowest of every {every:,} values; the table has all.",
        "Drawn are the {most} largest of {all:,}, in the order of their answers; the table has all.",
        "Drawn are, of {all:,} answers, the largest one and the {others} others that moved most compared with their noise.",
        "The answers of {count} table are too many to be searched here: its release's page does it.",
        "The answers of {count} tables are too many to be searched here: their releases' pages do it.",
        "Shown are the {shown:,} with the largest newest counts.",
        "and more on the page",
        "its attributes have more than the {most:,} values that a page lists",
        "{count:,} answer: see",
        "{count:,} answers: see",
        "{count} earlier period is not shown.",
        "{count} earlier periods are not shown.",
    ),
    "a single release, period or answer: tests/plugins/site/test_site_pages.py, tests/plugins/page": (
        "Show {count:,} answer in the table",
        "{count:,} answer about {counted}, with the size of its noise",
        "{count} differentially private release of {dataset}",
        "{count} differentially private release, the latest for {period}: {release}.",
        "{count} earlier releases",
        "{count} release is on this site.",
        "Groups of one answer each, side by side.",
        "single answers",
    ),
    "sites of releases of other kinds: tests/plugins/site": (
        " ({counted}, as in {release})",
        "A row that a release does not have may lie below its threshold, and is not empty for that.",
        "All answers carry their own noise, so that totals and their parts need not agree.",
        "All answers were then computed from one estimate, so that totals and their parts agree up to rounding.",
        "All answers were then computed from one estimate, so that totals and their parts agree up to the accuracy of its fit.",
        "All releases together may spend {cap}.",
        "Answers of tables that were not measured come from a model and have no standard error: their intervals are made of "
        "simulated noise and of bounds that the certificate lists, and are not proven.",
        "Counts that looked alike were measured together; no interval is given.",
        "Each answer carries its own noise.",
        "Each table cell stands for a combination of values that was declared before any record was read, except for {found}: "
        "those were found in the records by a part of the budget.",
        "No change stands out of the noise: {unchanged}.",
        "Rows of several releases",
        "Rows of thresholded histograms that several releases of {dataset} publish",
        "The interval of an answer holds the true count of the records that count in 95 of 100 releases.",
        "The mechanism {mechanism} chose these sums from the questions alone.",
        "The mechanism {mechanism} first spends a part of the budget to group counts that look alike.",
        "The mechanism {mechanism} measured all tables of one attribute first, and then chose table after table by what was "
        "measured before, under a part of the budget:",
        "This period was published as {releases}.",
        "not said",
        "the bins of {attribute}",
        "void and never published, because {reason}",
        "{dataset}: rows of several releases",
        "{total:,} rows of thresholded histograms are in several releases, each with its 95 % interval.",
    ),
    "specs that no release here has: tests/pipeline, tests/plugins/page": (
        " in each of {steps:,} steps",
        "All answers come from one estimate and were rounded to whole numbers, so that totals and their parts may differ by a few.",
        "Not answered: {beyond:,} at the ends of the series, where the filter reaches beyond it.",
        "Not drawn: {names}.",
        "Not drawn: {names}; the table has them.",
        "Verifier",
        "the release measured sums of amounts alone, and no numbers of records",
        "this page shows no answers below a limit, and does not compute them either",
        "what the publisher counted as “{counted}”",
        "{high} or earlier",
        "{low} or later",
    ),
}
"""Sentences that no approved text holds: why, and which tests read them."""


@pytest.mark.parametrize("name", [*statistics_by_name(), *get_args(Kind)])
def test_every_statistic_and_kind_of_chart_is_in_an_approved_text(name: str) -> None:
    assert any(f"{name} of " in line or line == f'kind: "{name}"' for line in approved())


def commands() -> set[str]:
    """All that a terminal takes."""
    groups = {f"{group.name} ": group.typer_instance for group in cli.app.registered_groups}
    named = [
        (prefix, command)
        for prefix, app in {"": cli.app, **groups}.items()
        for command in app.registered_commands
        if app is not None
    ]
    return {prefix + (command.name or command.callback.__name__) for prefix, command in named if command.callback}


def test_every_command_is_in_an_approved_text_or_listed() -> None:
    missing = {name for name in commands() if not any(line.startswith(f"$ dpdist {name}") for line in approved())}
    assert missing == {*UNAPPROVED_COMMANDS}


UNAPPROVED_COMMANDS: dict[str, str] = {
    **dict.fromkeys(
        ("approve", "keys approver", "keys public"), "keys that are made at random: tests/test_budget_commands.py"
    ),
    **dict.fromkeys(("doctor", "sizes"), "numbers of the machine: tests/plugins/deployment"),
    "backfill": "prints what 'run' prints: tests/test_periods.py",
    "export": "makes a picture by a browser: tests/plugins/page/test_print.py",
    "ledger roles": "SQL: tests/privacy/test_roles.py",
    "ledger new-store": "prints a place: tests/test_budget_commands.py",
    "metrics": "counts and times of this installation: tests/plugins/observability",
    "schema": "docs/release.schema.json is compared with it: tests/test_docs.py",
    **dict.fromkeys(("serve", "studio"), "services, which print their address: tests/plugins/service, tests/plugins/studio"),
}
"""Commands of which no approved text has what they print: why, and which tests read it."""


@pytest.mark.parametrize(
    ("approved_line", "line", "alike"),
    [
        ("12 of 1,000.5 rows", "12 of 1,000.5 rows", True),
        ("error: 4.338453655970063", "error: 4.338453655970071", True),
        ("error: 4.338453", "error: 4.338463", False),
        ("about half: 0.5", "about a half: 0.5", False),
        ("zero 1e-17", "zero 3e-16", True),
        ("-1.5", "1.5", False),
    ],
)
def test_words_are_equal_and_numbers_nearly_so(approved_line: str, line: str, alike: bool) -> None:
    assert same(approved_line, line) == alike
    assert bool(difference([approved_line, "end"], [line, "end"])) != alike


def test_what_hangs_on_time_place_and_version_is_left_out() -> None:
    digest = "0123456789abcdef" * 4
    lines = ["at 2026-11-30T12:00:00+00:00 in 1.2 s", f"digest {digest}", "count: 3 of 9 blocks", "rho 0.1234567890123456"]
    assert normalised(lines) == ["at TIME in SECONDS s", "digest DIGEST", "rho 0.1234567890123456"]


def test_a_page_is_read_line_by_line() -> None:
    page = (
        "<title>T</title><h2>Budget</h2><p>One <b>half</b> is left.</p><table><tr><th>a</th><td>1</td></tr></table>"
        '<svg class="wide"><path d="M0 1"/><text x="3">ten</text></svg><script>say("no")</script>'
        '<script type="application/json">{"v": [1, 2]}</script>'
    )
    text = ["T", "h2: Budget", "One half is left.", "a | 1"]
    assert page_lines(page) == text
    assert page_lines(page, ("wide",), numbers=True) == [
        *text, "<svg> class=wide", "<path> d=M0 1", "<text> x=3 ten", '{"v": [1, 2]}',
    ]  # fmt: skip
