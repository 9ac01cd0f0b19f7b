"""``dpdist serve``, and ``dpdist run`` as its client."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.text import Text

from dpdist.errors import InvalidInput
from dpdist.process.resource_limits import check_program
from flows.commands.console_output import console, error_console, progress
from flows.periods import PeriodLength
from flows.service.service_address import Address


def serve(
    specs: Annotated[
        Path, typer.Option("--specs", help="the folder of the specs that may be released; only the operator may write it")
    ],
    listen: Annotated[
        str,
        typer.Option(
            help="where it listens: unix:/PATH, whose group may connect; https://HOST:PORT or http://127.0.0.1:PORT, where clients show "
            "the token of DPDIST_SERVICE_TOKEN_FILE"
        ),
    ] = "unix:/run/dpdist/service.sock",
    group: Annotated[
        str | None, typer.Option(help="the group of the Unix socket, a name or number: its members may ask for releases")
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="how many days ago a period may have begun")] = 100,
    every: Annotated[
        str, typer.Option(help="how long the periods of specs are whose cap is in total: 'day', 'week' or 'month'")
    ] = "day",
    certificate: Annotated[Path | None, typer.Option(help="with https://: the certificate, in PEM")] = None,
    key: Annotated[Path | None, typer.Option(help="with https://: its private key, in PEM")] = None,
) -> None:
    """Measure for clients that are not trusted: this process alone holds the root key and the ledger's login.

    They name a spec of the folder by the digest of its bytes, and a period that is over. 'dpdist run' and the flows are such clients where
    DPDIST_SERVICE holds the address.
    """
    check_program()
    from flows.service.listener import serve as listening
    from flows.service.spec_registry import SpecFolder

    check_period_length(every)
    spec_folder = SpecFolder(specs.resolve(), window, cast(PeriodLength, every))
    listening(
        spec_folder,
        listen,
        group=group,
        certificate=certificate,
        key=key,
        ready=lambda message: error_console.print(f"measuring for {message}"),
    )


def run_there(
    service: Address,
    spec: Path,
    period: datetime.date | None,
    engine_address: str | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Have a measuring service publish a release, and tell how that goes."""
    from flows.service.service_client import RemoteRelease

    if engine_address is not None:
        raise InvalidInput(f"the measuring service at {service} has an engine of its own; leave out --engine")
    with progress(quiet=quiet) as report_progress:
        remote_release = RemoteRelease(service, str(spec), period, report_wait=partial(report_progress, "service"))
        for event in remote_release:
            report_progress(event.stage, event.message or event.kind)
    result = remote_release.result
    if as_json:
        console.print_json(json.dumps(asdict(result)))
    elif not quiet:
        charged = "charged" if result.charged else "nothing charged: it was charged before"
        console.print_line(Text.assemble(("published", "bold green"), f" {result.folder} ({charged})"))


def check_period_length(period_length: str) -> None:
    """Raises: InvalidInput for a length that no period has."""
    if period_length not in get_args(PeriodLength):
        raise InvalidInput(f"periods are a day, week or month long, found {period_length!r}; set --every")
