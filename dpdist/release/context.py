"""Where a release runs, and who hears of its progress."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpdist.machine.engine import Engine
from dpdist.machine.store import Store
from dpdist.privacy.ledger import Ledger, opened
from dpdist.process.private import private_folder

Progress = Callable[[str, str], None]
"""Called with a stage's name and a line about how it goes."""
PRIVATE_STAGES = ("extract", "count")
"""Stages whose progress depends on the records, on how many row groups they have for example: for the operator's terminal only."""


def silent(stage: str, line: str) -> None:
    """Ignore all progress."""
    del stage, line


@dataclass(frozen=True)
class Context:
    """Where a release runs: state folder, store, engine, and who hears of its progress."""

    home: Path
    store: Store
    engine: Engine
    progress: Progress

    def __post_init__(self) -> None:
        private_folder(self.home)
        self.engine.exchange = self.store
        self.engine.tell = partial(self.progress, "warning")


def book(context: Context) -> AbstractContextManager[Ledger]:
    """The ledger of a release's state folder; progress says when its database is away."""
    return opened(context.home, partial(context.progress, "ledger"))
