"""Where a release runs, and who hears of its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from dpdist import engine as engines
from dpdist.engine import Engine
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.process.durable_files import private_folder
from dpdist.storage.array_store import Store
from dpdist.storage.home_folder import state_folder, store_of

Progress = Callable[[str, str], None]
"""Called with a stage's name and a line about how it goes."""
PUBLIC_STAGES = ("plan", "answer", "publish", "deliver")
"""Stages whose course depends on no record. All others read records or their files: how long they take, and how many parts they have, is
for the operator's terminal alone."""


def ignore_progress(stage: str, message: str) -> None:
    """Ignore all progress."""


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
        self.engine.report = partial(self.progress, "warning")

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of the state folder, opened when a stage first asks for it and shared by all; progress says when it is away.

        It holds locks inside its own steps only, and connections to a server until ``close``.
        """
        return open_ledger(self.home, tell=partial(self.progress, "ledger"))

    def close(self) -> None:
        """Close the ledger's connections, if there are any, and end the run's lease in the store. Later stages open new ones."""
        self.store.close()
        if "ledger" in self.__dict__:
            self.ledger.close()


@contextmanager
def open_context(
    address: str | None, progress: Progress = ignore_progress, *, home: Path | None = None
) -> Iterator[Context]:
    """Where releases run during the block: an engine at an address, with the state folder of this machine.

    Args:
        address: ``tls://host:port`` of a Dask scheduler, ``"inline"`` for this process, None for processes of this machine.
        home: another state folder.
    """
    folder = state_folder(home)
    private_folder(folder)  # before anything is put into it
    with engines.open_engine(address) as engine:
        context = Context(folder, store_of(folder), engine, progress)
        try:
            yield context
        finally:
            context.close()
