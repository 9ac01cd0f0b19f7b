"""Arguments and options that several commands take."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from dpdist.errors import InvalidInput
from flows.commands.console_output import day_of

SpecPath = Annotated[Path, typer.Argument(help="the release spec, a YAML file")]
EngineAddress = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="where the work runs: the address of a Dask scheduler (tls://host:port), or 'inline' for this process alone. "
        "Default: this process for a small release, otherwise one process for each core",
    ),
]
Period = Annotated[
    datetime.date | None,
    typer.Option(parser=day_of, metavar="YYYY-MM-DD", help="the day that replaces '{period}' in the spec"),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
Csv = Annotated[bool, typer.Option("--csv", help="print CSV, for spreadsheets and programs")]
Quiet = Annotated[bool, typer.Option("--quiet", help="print only errors, and JSON if --json is given")]
ReleaseName = Annotated[str, typer.Argument(help="the id of a release, or the folder or URL of a published release")]


def check_format(*, as_json: bool, as_csv: bool) -> None:
    """Accept one format. Raises: InvalidInput."""
    if as_json and as_csv:
        raise InvalidInput("an answer is printed as JSON or as CSV; leave --json or --csv out")
