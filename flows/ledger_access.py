"""The ledger, as commands and servers open it that run no release; a release asks ``Context.ledger``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from dpdist.storage.home_folder import state_folder

if TYPE_CHECKING:
    from dpdist.privacy.ledger.budget_ledger import Ledger


def open_local_ledger(home: Path | None = None, *, patience: float | None = None) -> AbstractContextManager[Ledger]:
    """The ledger of a state folder, by default this machine's; its database is imported where a command asks it."""
    from dpdist.privacy.ledger.budget_ledger import open_ledger

    return open_ledger(home or state_folder(), patience=patience)
