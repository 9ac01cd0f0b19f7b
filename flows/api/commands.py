"""For plugins that add commands: the terminal, options that several commands have, and the ledger."""

from dpdist.process.resource_limits import check_program
from flows import ledger_access
from flows.commands.console_output import GROUPS, console, error_console, print_csv, progress, shown, table_with_errors
from flows.commands.options import Csv, EngineAddress, Json, Period, ReleaseName, check_format
from flows.ledger_access import open_local_ledger
from flows.prefect.prefect_settings import resume_runs
from flows.release_services import SERVICE
