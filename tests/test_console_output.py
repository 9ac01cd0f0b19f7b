"""What commands print: numbers below each other, reasons in whole lines, and how much is not shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dpdist.errors import InvalidInput
from dpdist.mechanisms.mechanism import AUTO_LIMITS
from dpdist.planner.error_prediction import PredictedError
from dpdist.planner.memory_estimate import StageMemory
from dpdist.workloads import prefix
from flows.commands import console_output, key_commands, plan_output
from flows.prefect.release_flow import _raise_without_server
from tests import HANGS


def test_answers_stand_below_each_other_and_the_others_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"group": "g", "query": "q", "answer": value, "standard_error": 0.5, "low_95": value - 1, "high_95": value + 1}
        for value in (1.0, 1000.0)
    ]
    console_output.print_answers(rows, 5)
    _, first, second, more = capsys.readouterr().out.splitlines()
    assert first.index(" 1.0 ") + len(" 1.0") == second.index("1,000.0") + len("1,000.0")
    assert int(re.findall(r"[0-9]+", more)[0]) == 5 - len(rows)
    console_output.print_answers([*rows, {**rows[0], "standard_error": None}], 3)
    told = capsys.readouterr().out
    assert "more" not in told
    assert "not known" in told.splitlines()[-1]


def test_in_a_narrow_terminal_numbers_stay_whole_and_no_letter_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_output, "console", Console(width=50))
    row = {"group": "branch x age", "query": "branch Harbourside", "answer": 1232.6, "standard_error": 36.53}
    console_output.print_answers([{**row, "low_95": 1161.0, "high_95": 1304.2}], 1)
    shown = capsys.readouterr().out
    assert "1,161.0 .. 1,304.2" in shown
    assert "…" not in shown


def test_a_reason_is_one_line_however_long(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(plan_output, "console", console_output.ConsoleOutput())
    reason = "needs more memory than there is " * 20
    plan_output.print_left_out({"coa": reason, "eigen": "is slower", "newton": reason}, with_reasons=True)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        f"coa, newton: {reason}".rstrip(),
        "eigen: is slower",
    ]
    plan_output.print_left_out({"coa": reason, "eigen": "is slower", "newton": reason}, with_reasons=False)
    assert capsys.readouterr().out.split()[0] == "3"


def test_only_stages_that_take_much_of_their_memory_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    takes = [StageMemory("count", 2**30, 2**40, on_workers=False), StageMemory("optimise", 2**37, 2**40, on_workers=False)]
    plan_output.print_memory(takes[:1])
    assert capsys.readouterr().out == ""
    plan_output.print_memory(takes)
    assert capsys.readouterr().out == "memory, GiB: optimise 128.00 of 1024.00\n"


def test_whoever_makes_a_key_learns_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path / "state"))
    key_commands.keys_init()
    said = "".join(capsys.readouterr().out.split())
    assert any(str(path) in said for path in (tmp_path / "state").rglob("*") if path.is_file())


def test_of_what_a_flow_raises_the_error_of_dpdist_is_shown() -> None:
    """Prefect and the errors of connections stand before or behind it."""
    reason = InvalidInput("one line")
    outer = RuntimeError("the flow ended")
    outer.__cause__ = reason
    for error in (outer, reason):
        with pytest.raises(InvalidInput, match="^one line$"):
            _raise_without_server(error)
    with pytest.raises(RuntimeError, match="other"):
        _raise_without_server(RuntimeError("other"))


def test_what_nobody_reads_any_more_ends_without_a_word(tmp_path: Path) -> None:
    """As after ``head``: a short text is written at the end, when no command is there to be told."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "flows.main", "ledger", "export"],
        stdout=write,
        stderr=subprocess.PIPE,
        env={**os.environ, "DPDIST_HOME": str(tmp_path), "PYTHONUNBUFFERED": ""},
        timeout=HANGS,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"reached": True, "worst_error_over_target": 0.5, "least_rho": 0.25}, "every target is reached: .* is 0.5 times"),
        ({"reached": False, "worst_error_over_target": 1.5, "least_rho": 0.25}, "targets are missed: .* is 1.5 times"),
    ],
)
def test_targets_are_reached_or_missed(facts: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    console_output.print_targets({})
    assert capsys.readouterr().out == ""
    console_output.print_targets({"targets": facts})
    assert re.search(f"{sentence}.* reaches all targets is rho=0.25", " ".join(capsys.readouterr().out.split()))


def test_every_list_that_ends_early_says_how_many_are_left(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"group": "g", "query": "q", "mean": "1", "value": "1", "standard_error": "", "low_95": "0", "high_95": "2"}
    quantile = {"of": "age", "group": {}, "at": 0.5, "value": 3.0, "low_95": 2.0, "high_95": 4.0}
    facts = {"rows": [quantile] * 7, "by": [], "columns": {"age": {"from": 0, "to": 9}}}
    groups = [PredictedError(f"group {number}", "people", 3, 2.0, 1.0, None) for number in range(console_output.GROUPS + 4)]
    lists = {
        "means": lambda limit: console_output.print_statistics({"means": [row] * 7}, {}, limit),
        "variances": lambda limit: console_output.print_statistics({"variances": [row] * 7}, {}, limit),
        "quantiles": lambda limit: console_output.print_statistics({}, {"quantiles": facts}, limit),
    }
    for name, print_list in lists.items():
        for limit, left in ((3, 4), (6, 1), (7, 0), (9, 0), (0, 0)):
            print_list(limit)
            told = capsys.readouterr().out
            assert told.count("\n") == 1 + (limit or 7) - max(0, limit - 7) + bool(left)
            assert (f"... {left} more {name} (--limit 0 prints all)" in told) == bool(left)
    for shown, left in ((groups, 4), (groups[: console_output.GROUPS], 0)):
        plan_output.print_predicted(shown, None)
        assert ("... 4 more groups" in capsys.readouterr().out) == bool(left)


@pytest.mark.parametrize(
    ("gap", "gain"), [(None, "by how much is not known"), (0.25, "at most 20 % of the squared error"), (0.0, "")]
)
def test_a_longer_search_is_named_with_what_it_may_gain(
    gap: float | None, gain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left_out = {"coa": f"takes 900 s, beyond {AUTO_LIMITS.whose}", "wavelet": "needs one attribute"}
    plan_output.print_longer_search(prefix(64), left_out, gap)
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(f"a longer search may find less noise, {gain}" if gain else "")
    assert ("'mechanism: coa'" in told, "wavelet" in told) == (bool(gain), False)
