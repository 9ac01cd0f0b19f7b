"""Where ``dpdist`` starts: ready for signals before anything large is imported."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

GO_ON = "run the same command again to go on where it stopped"


class Terminated(BaseException):
    """SIGTERM arrived."""


def main() -> None:
    """The command line. Exit codes: 130 after an interrupt, 143 after SIGTERM; both say how to go on."""

    def run() -> None:
        from flows import cli

        cli.main()

    guarded(run)


def guarded(run: Callable[[], None]) -> None:
    """Run a command; a signal ends it in one line."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        run()
    except Terminated:
        _end("terminated", 128 + signal.SIGTERM)
    except KeyboardInterrupt:
        _end("interrupted", 128 + signal.SIGINT)
    except SystemExit as ended:
        if ended.code == 128 + signal.SIGINT:
            _end("interrupted", 128 + signal.SIGINT)
        raise


def _terminated(number: int, frame: Any) -> None:
    del number, frame
    raise Terminated


def _end(what: str, code: int) -> None:
    sys.stderr.write(f"{what}; {GO_ON}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
