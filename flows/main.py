"""Where ``dpdist`` starts: ready for signals before anything large is imported."""

from __future__ import annotations

import sys

from dpdist.errors import NotInstalled
from dpdist.optional_layers import optional_layer
from flows.signals import run_guarded, without_collecting


def main() -> None:
    """The command line. Exit codes: 130 after an interrupt, 143 after SIGTERM; both say how to go on."""

    def run() -> None:
        try:
            with optional_layer("cli", "the command dpdist"), without_collecting():
                from flows.commands import cli
        except NotInstalled as missing:
            sys.exit(f"error: {missing}")
        cli.main()

    run_guarded(run)


if __name__ == "__main__":
    main()
