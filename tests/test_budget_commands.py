"""The commands of the ledger, in process: what they print and change, and how they refuse."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from dpdist.errors import DpdistError
from dpdist.privacy.accounting import Cap, zcdp_epsilon
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.size_limits import SIZES
from flows.commands import budget_commands
from tests.case_selection import always
from tests.privacy.test_budget_ledger import charge, finished
from tests.support import small_release
from tests.support.command_line import CommandLine


@pytest.fixture
def charged(home: Path) -> Path:
    """A home whose ledger has one finished release of data set people, under a cap of rho 0.3."""
    book = open_ledger(home)
    finished(book, charge("first"))
    book.close()
    return home


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(monkeypatch, capsys)


class Run:
    """The commands of the ledger, in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._command = CommandLine(patch, captured)

    def __call__(self, *arguments: str) -> tuple[object, str]:
        """Exit code, and all that was printed, in one line."""
        ended = self._command("ledger", *arguments)
        return ended.code, ended.printed


def test_a_narrow_terminal_cuts_nothing_off(charged: Path, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    del charged
    monkeypatch.setattr(budget_commands.console, "width", 40)
    code, printed = command()
    assert code == 0
    assert "…" not in printed


@pytest.mark.parametrize(
    ("budget", "cap", "basic"),
    [({"epsilon": 0.1}, {"epsilon": 1}, True), ({"epsilon": 0.1, "delta": 1e-9}, {"epsilon": 1, "delta": 1e-6}, False)],
)
def test_what_was_spent_is_explained_in_every_composition(
    budget: dict[str, float], cap: dict[str, float], basic: bool, home: Path, command: Run
) -> None:
    for name in ("one", "two"):
        ledger = {"dataset": "small", "cap": cap}
        small_release.reserved(small_release.write(home.parent / name, release=name, budget=budget, ledger=ledger), home)
    with open_ledger(home) as book:
        (found,) = book.budgets("small")
    code, explained = command("explain")
    assert code == 0
    delta = cap.get("delta", 1e-9)
    assert ("together, basic composition: epsilon=0.2 (pure)" in explained) == basic
    assert f"together, best proven composition: epsilon={found.spent.epsilon(delta):.6g}, delta={delta:g}" in explained
    assert f"rho={float(found.spent.zcdp):.6g} zCDP: epsilon={zcdp_epsilon(float(found.spent.zcdp), delta):.6g}" in explained
    assert ("privacy loss distributions: epsilon=" in explained) or "dp_accounting" in explained
    code, listed = command()
    spent = "epsilon=0.2" if basic else f"epsilon={found.spent.epsilon(delta):.6g} (rho={float(found.spent.rho):.6g})"
    assert (code, spent in listed) == (0, True), listed
    code, refused = command("explain", "three")
    assert (code, "the ledger knows no release 'three'; 'dpdist ledger' lists them" in refused) == (1, True)


def test_a_cap_is_changed_with_a_reason(charged: Path, command: Run) -> None:
    code, printed = command("cap", "people", "--rho", "0.5", "--why", "the board agreed")
    assert (code, "people: cap rho=0.5, protects records: One record is added or removed." in printed) == (0, True)
    code, printed = command()
    assert code == 0
    assert "rho=0.5" in printed
    assert "capped" in printed
    code, printed = command("export")
    (event,) = [entry for entry in json.loads(printed)["entries"] if entry["event"] == "capped"]
    assert event["facts"]["why"] == "the board agreed"
    assert event["facts"]["who"]
    assert command("verify")[0] == 0


def test_the_part_for_selections_changes_by_itself(charged: Path, command: Run) -> None:
    """As the refusal of a selection says; the amounts of the cap stay, its limits are those of the rest of the delta."""
    code, printed = command("cap", "people", "--selection", "1e-7", "--why", "names of towns")
    assert (code, "people: cap rho=0.3, 1e-07 for selections" in printed) == (0, True)
    assert command("cap", "people", "--epsilon", "2", "--delta", "1e-6", "--why", "an epsilon")[0] == 0
    assert command("cap", "people", "--selection", "2e-7", "--why", "more towns")[0] == 0
    book = open_ledger(charged)
    (budget,) = book.budgets("people")
    book.close()
    wanted = Cap(epsilon=Fraction(2), delta=Fraction(1, 10**6), selection=Fraction(2, 10**7))
    assert budget.cap == wanted
    assert budget.cap.limit_by("gaussian") == wanted.limit_by("gaussian")
    assert command("verify")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("people", "--rho", "0.5"), "--why"),
        (("people", "--rho", "0.5", "--why", " "), "say why it changes"),
        (("people", "--rho", "0.3", "--why", "x"), "is already rho=0.3: nothing was changed"),
        (("people", "--why", "x"), "nothing would change: give the new cap"),
        (("nobody", "--rho", "0.5", "--why", "x"), "has no cap yet"),
        (("people", "--rho", "much", "--why", "x"), "a cap is a number such as 0.5 or 1/2, found 'much'"),
        (("people", "--rho", "1e-99999999", "--why", "x"), "a power of ten from -99 to 99"),
        (("people", "--rho", "-1", "--why", "x"), "must be a positive"),
        (("people", "--rho", "1", "--epsilon", "1", "--why", "x"), "either rho, or epsilon with or without delta"),
        (("people", "--rho", "1", "--delta", "1e-9", "--why", "x"), "--delta belongs to a cap in epsilon"),
        (("people", "--epsilon", "1", "--delta", "1", "--why", "x"), "delta lies in [0, 1)"),
        (("people", "--epsilon", "1e-9", "--delta", "1e-30", "--why", "x"), "nothing useful can be released"),
    ],
)
def test_a_cap_that_cannot_be_is_refused_and_nothing_changes(
    charged: Path, command: Run, arguments: tuple[str, ...], said: str
) -> None:
    code, printed = command("cap", *arguments)
    assert code != 0
    assert said in printed
    assert "Traceback" not in printed
    book = open_ledger(charged)
    assert [entry["event"] for entry in book.entries()] == ["declared", "reserved", "drawing", "committed"]
    book.close()


def test_who_changed_a_cap_is_no_variable(charged: Path, monkeypatch: pytest.MonkeyPatch, command: Run) -> None:
    monkeypatch.setenv("LOGNAME", "somebody else")
    monkeypatch.setattr("os.geteuid", lambda: 987654)  # as in a container: an account without a name
    book = open_ledger(charged)
    book.set_cap("people", cap=Cap(rho=Fraction(1, 2)), why="x")
    assert book.entries()[-1]["facts"]["who"] == "uid 987654"
    book.close()


def test_ledger_and_store_are_compared(home: Path, command: Run) -> None:
    path = small_release.write(home.parent / "data")
    small_release.run(path, home)
    code, printed = command("verify", "--store")
    assert (code, "the store holds exactly the measurements that the ledger knows" in printed) == (0, True)
    head = printed.partition("head ")[2].split()[0]
    assert command("verify", "--head", head)[0] == 0
    code, printed = command("verify", "--head", "0" * 64)
    assert (code, "rows were removed or replaced" in printed) == (1, True)

    (home / "store" / "measurements" / "small-1").rename(home / "store" / "measurements" / "small-2")
    code, printed = command("verify", "--store")
    assert code == 1
    assert "holds a measurement of 'small-2' that this ledger has not charged" in printed
    assert "Release 'small-1' is committed" in printed
    assert "ledger and store disagree in 2 points" in printed

    shutil.rmtree(home / "store" / "measurements")
    assert "ledger and store disagree in 1 points" in command("verify", "--store")[1]


@pytest.mark.parametrize("damage", always(["flipped"], ["missing", "flipped"]))
def test_every_block_of_every_measurement_is_read(home: Path, command: Run, damage: str) -> None:
    """Each block in its turn is removed, or one byte of its values is flipped; put back, nothing is wrong."""
    measured = home / "store" / "measurements" / "small-1"
    small_release.run(small_release.write(home.parent / "data"), home, sizes=replace(SIZES, shard_bytes=64))
    (folder,) = measured.glob("*/c")
    blocks = sorted(folder.iterdir(), key=lambda path: int(path.name))
    assert len(blocks) > 2
    for block in (blocks[0], blocks[-1]):
        content = block.read_bytes()
        if damage == "missing":
            block.unlink()
        else:
            block.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        code, printed = command("verify", "--store")
        assert (code, "ledger and store disagree in 1 points" in printed) == (1, True), printed
        assert f"array 'measurements/small-1': shard {block.name} " in printed
        block.write_bytes(content)
    assert command("verify", "--store")[0] == 0


def test_an_abort_says_what_it_gave_back(home: Path, command: Run) -> None:
    path = small_release.write(home.parent / "data")
    small_release.reserved(path, home)
    assert command("abort", "small-1") == (0, "small-1: aborted, its charge is given back")
    small_release.run(path, home)
    code, printed = command("abort", "small-1")
    assert (code, "is committed: only a reserved release" in printed) == (1, True)
    with pytest.raises(DpdistError):
        small_release.run(small_release.write(home.parent / "data", budget={"rho": 0.2}), home)


READING = {"explain", "verify", "export", "roles"}
"""Commands that print what is asked for and change nothing."""


def test_every_command_that_changes_the_ledger_says_what_it_did(home: Path, command: Run) -> None:
    path = small_release.write(home.parent / "data")
    new = small_release.write(home.parent / "new", ledger={"dataset": "new", "cap": {"rho": 2}})
    small_release.reserved(small_release.write(home.parent / "other", release="other-1"), home)
    changes = [
        (("abort", "other-1"), "other-1: aborted, its charge is given back"),
        (("new-store",), "the store .* belongs to this ledger now"),
        (("declare", str(new)), "new: cap rho=2 declared"),
        (("declare", str(path)), "small: cap rho=0.25 was declared before"),
        (("cap", "small", "--rho", "9", "--why", "x"), "small: cap rho=9, protects records: .*"),
        (("approvers", "small", "--needed", "0", "--why", "x"), "small: releases need 0 approvals of 0 approvers"),
        (("migrate",), r"the ledger is of this version: \d+ rows, head \w+"),
    ]
    for arguments, said in changes:
        code, printed = command(*arguments)
        assert code == 0, printed
        assert re.fullmatch(said, printed)
    assert {arguments[0] for arguments, _ in changes} | READING == {
        each.name for each in budget_commands.app.registered_commands
    }
