"""Days of the command line: one that exists, or one line that says how to write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


@pytest.mark.parametrize("day", ["nonsense", "2026-02-30", "2026-13-01", "02.11.2026", ""])
@pytest.mark.parametrize(
    "command",
    [
        ("run", "release.yaml", "--period"),
        ("plan", "release.yaml", "--period"),
        ("ledger", "declare", "release.yaml", "--period"),
        ("backfill", "release.yaml", "--to", "2026-11-02", "--from"),
    ],
    ids=lambda command: command[0],
)
def test_what_is_no_day_is_told_in_one_line(
    command: tuple[str, ...], day: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del home  # not that of whoever runs the tests
    ended = CommandLine(monkeypatch, capsys)(*command, day)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"error: {day!r} is no day; write year, month and day of a day that exists, such as 2026-11-02"
