"""The command line in the process of the tests, for what does not need a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from flows.commands import cli, console_output


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, and what it printed, the words of each stream with one space between them.

    Attributes:
        err_lines: lines of the second stream as it was printed.
        lines: those of both streams as they were printed.
    """

    code: object
    out: str
    err: str
    err_lines: int = 0
    lines: Sequence[str] = ()

    @property
    def printed(self) -> str:
        """Both streams."""
        return f"{self.out} {self.err}".strip()


class CommandLine:
    """The command line as ``main`` runs it, into a pipe: processes of tests are told the width of a terminal, which folds texts."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.patch, self.captured = patch, captured
        for console in (console_output.console, console_output.error_console):
            patch.setattr(console, "_width", console_output.UNBROKEN)

    def __call__(self, *arguments: str) -> Ended:
        """Run a command; under ``--debug`` its error is raised."""
        self.captured.readouterr()
        self.patch.setattr("sys.argv", ["dpdist", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = self.captured.readouterr()
        return Ended(
            ended.value.code or 0,
            " ".join(printed.out.split()),
            " ".join(printed.err.split()),
            printed.err.count("\n"),
            [*printed.out.splitlines(), *printed.err.splitlines()],
        )
