"""The command line of dpdist: plan, publish and read differentially private releases."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from dpdist.errors import DpdistError, InvalidInput, MissingRecords
from dpdist.plugin_registry import installed_plugins, load_object, missing_plugin, missing_plugin_text
from dpdist.process.durable_files import private_folder
from dpdist.process.path_encoding import encodes
from dpdist.storage.home_folder import state_folder
from flows.commands import budget_commands, key_commands, reading_commands, release_commands
from flows.commands.console_output import console, error_console
from flows.commands.release_commands import CHARGED, UNCHARGED
from flows.prefect import prefect_settings
from flows.signals import run_guarded

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
for command in (
    release_commands.plan,
    release_commands.run,
    release_commands.approve,
    release_commands.backfill,
    reading_commands.show,
    reading_commands.verify,
):
    app.command()(command)
for plugin in installed_plugins():
    for plugin_command, reference in plugin.commands.items():
        app.command(plugin_command)(load_object(reference))
app.add_typer(key_commands.app, name="keys")
app.add_typer(budget_commands.app, name="ledger")


READING = ("metrics", "verify")
"""Commands that only read: one may see no more of the state than it shows, the other may have none at all."""


def _print_version(requested: bool) -> None:
    if requested:
        from dpdist.version import version

        console.print(f"dpdist {version()}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="before the command: show tracebacks and the log of Prefect")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Publish differentially private aggregates.

    Exit codes: 0 done; 1 refused or failed, with the reason in one line (--debug shows the traceback); 2 wrong usage;
    130 interrupted; 143 terminated.
    """
    home = state_folder()
    if context.invoked_subcommand not in READING:
        private_folder(home)
    prefect_settings.configure(home, debug=debug)
    if debug:
        os.environ["DPDIST_DEBUG"] = "1"


@app.command()
def schema() -> None:
    """Print the JSON schema of release specs, for editors."""
    from dpdist.spec import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=1) + "\n")


def main() -> None:
    """Entry point: whatever goes wrong becomes one line and exit code 1, wrong usage 2; --debug shows the traceback."""
    try:
        _check_folder()
        for word in sys.argv[1:]:
            if not encodes(word):
                raise InvalidInput(f"the argument {word} is not UTF-8; rename what it names, or write it in UTF-8")
        command_name = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        if missing_plugin(command_name):
            raise InvalidInput(missing_plugin_text(command_name))
        code = app(prog_name="dpdist", standalone_mode=False) or 0
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            console.on_broken_pipe()  # ends as Rich and Click do where nobody reads any more, as after 'head'
        sys.exit(code)
    except typer.Abort:  # a question was left without an answer
        sys.exit(128 + signal.SIGINT)
    except Exception as error:  # reported in one line: a traceback may quote what it was working on
        if hasattr(error, "format_message"):
            _end_with_usage(error)
        if os.environ.get("DPDIST_DEBUG"):
            raise
        error_console.print_line(Text.assemble(("error:", "bold red"), f" {_error_line(error)}"))
        if isinstance(error, MissingRecords) and error.private:
            error_console.print(error.private, style="dim")
        sys.exit(1)


def _check_folder() -> None:
    """Accept a working directory that is there. Raises: InvalidInput."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InvalidInput("the folder that this command was started in was deleted; change to one that exists") from None


def _end_with_usage(error: Any) -> NoReturn:
    """End with what is wrong with the words of the command: one line, and the help where there were no words at all."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else "dpdist"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        message = " ".join(error.format_message().split()).rstrip(".")
        error_console.print_line(Text.assemble(("error:", "bold red"), f" {message}; see '{command} --help'"))
    sys.exit(error.exit_code)


def _error_line(error: Exception) -> str:
    """The error in one line: dpdist's own words, or the kind of another one without its text, which may quote records."""
    state = "".join(f". {note}" for note in getattr(error, "__notes__", []) if note in (UNCHARGED, CHARGED))
    if isinstance(error, DpdistError):
        return f"{error}{state}"
    if isinstance(error, OSError) and error.filename and error.strerror:
        missing = isinstance(error, FileNotFoundError)
        cure = "make its folder" if missing else "let this user read and write there"
        return f"{error.filename} cannot be used: {error.strerror}; {cure}, or name another place{state}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    kind = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    return f"{kind}; run again with 'dpdist --debug' to see it{state}"


if __name__ == "__main__":
    run_guarded(main)
