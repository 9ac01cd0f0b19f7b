"""For plugins that add commands: the terminal, options that several commands have, and the ledger."""

from flows import ledger_access
from flows.commands.console_output import GROUPS, console, error_console, shown
from flows.commands.init_command import dataset_of
from flows.commands.options import Delimiter, EngineAddress, NamesInFirstRow, Period, ReleaseName, grammar_of
from flows.ledger_access import open_local_ledger

__all__ = [
    "GROUPS",
    "Delimiter",
    "EngineAddress",
    "NamesInFirstRow",
    "Period",
    "ReleaseName",
    "console",
    "dataset_of",
    "error_console",
    "grammar_of",
    "ledger_access",
    "open_local_ledger",
    "shown",
]
