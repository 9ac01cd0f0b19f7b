"""``dpdist serve``, and ``dpdist run`` as its client."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.text import Text

from dpdist.errors import InvalidInput
from dpdist.process.resource_limits import check_program
from flows.commands.console_output import err, out, progress
from flows.periods import Every
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
    from flows.service.spec_registry import Given

    check_every(every)
    given = Given(specs.resolve(), window, cast(Every, every))
    listening(
        given, listen, group=group, certificate=certificate, key=key, ready=lambda line: err.print(f"measuring for {line}")
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
    from flows.service.service_client import ServedRelease

    if engine_address is not None:
        raise InvalidInput(f"the measuring service at {service} has an engine of its own; leave out --engine")
    with progress(quiet=quiet) as tell:
        course = ServedRelease(service, str(spec), period)
        for event in course:
            tell(event.stage, event.line or event.mark)
    done = course.done
    if as_json:
        out.print_json(json.dumps(asdict(done)))
    elif not quiet:
        charged = "charged" if done.charged else "nothing charged: it was charged before"
        out.one_line(Text.assemble(("published", "bold green"), f" {done.folder} ({charged})"))


def check_every(every: str) -> None:
    """Raises: InvalidInput for a length that no period has."""
    if every not in get_args(Every):
        raise InvalidInput(f"periods are a day, week or month long, found {every!r}; set --every")
