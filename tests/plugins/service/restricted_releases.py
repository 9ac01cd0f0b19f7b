"""Releases of cases over a cluster, in a process that unpickles what a measuring process does.

``python -m tests.plugins.service.restricted_releases``: prints each case that the command line names,
and how its release ended.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from dpdist import engine
from dpdist.engine import Engine
from dpdist.errors import DpdistError
from dpdist.plugins.service import restricted_unpickler
from dpdist.privacy import keys
from tests.contracts.cases import CASES
from tests.support import small_release


def published(name: str, where: Engine, folder: Path) -> str:
    """How a case's release over a cluster ends, whose workers solve its strategy."""
    case, home, planned = CASES[name], folder / "home", []
    keys.initialise(home)

    def step(stage: str, work: Callable[[], Any]) -> Any:
        made = work()
        if stage == "plan":
            planned.append(made.strategy.name)
        return made

    for through in case.through or (None,):
        small_release.run(case.write(folder, case.neighbours[-1], through), home, sizes=case.sizes, step=step, where=where)
    return "published" if set(planned) == {case.mechanism} else f"planned {planned}"


def main() -> None:
    """Release every case that the command line names."""

    def refuse(error: Exception) -> NoReturn:
        sys.stdout.write(f"{error}\n")
        sys.stdout.flush()
        os._exit(3)

    restricted_unpickler.restrict(refuse)
    with engine.open_engine(os.environ["DPDIST_ENGINE"]) as where, tempfile.TemporaryDirectory() as top:
        for number, name in enumerate(sys.argv[1:]):
            sys.stdout.write(f"{name}: ")
            sys.stdout.flush()
            folder = Path(top) / str(number)
            folder.mkdir()
            os.chdir(folder)  # where releases are published
            try:
                line = published(name, where, folder)
            except DpdistError as error:
                line = str(error)
            sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
