"""The face of the command line: what commands of plugins import, beside ``dpdist.api``."""

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
    "open_local_ledger",
    "shown",
]
