"""For plugins that add commands: the terminal, options that several commands have, and the ledger."""

from flows import ledger_access
from flows.commands.console_output import GROUPS, console, error_console, shown
from flows.commands.init_command import dataset_of
from flows.commands.options import NamesInFirstRow, ReleaseName
from flows.ledger_access import open_local_ledger

__all__ = [
    "GROUPS",
    "NamesInFirstRow",
    "ReleaseName",
    "console",
    "dataset_of",
    "error_console",
    "ledger_access",
    "open_local_ledger",
    "shown",
]
