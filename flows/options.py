"""Arguments and options that several commands take."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from flows.terminal import day_of

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
Quiet = Annotated[bool, typer.Option("--quiet", help="print only errors, and JSON if --json is given")]
ReleaseName = Annotated[str, typer.Argument(help="the id of a release, or the folder or URL of a published release")]
