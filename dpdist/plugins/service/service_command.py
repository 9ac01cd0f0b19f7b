"""The command ``dpdist serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from flows.api.commands import check_program, error_console

if TYPE_CHECKING:
    from flows.api.service import PeriodLength


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
    from dpdist.plugins.service.listener import serve as listening
    from dpdist.plugins.service.spec_registry import SpecFolder
    from flows.api.service import check_period_length

    check_period_length(every)
    spec_folder = SpecFolder(specs.resolve(), window, cast("PeriodLength", every))
    listening(
        spec_folder,
        listen,
        group=group,
        certificate=certificate,
        key=key,
        ready=lambda message: error_console.print(f"measuring for {message}"),
    )
