"""The command ``dpdist metrics``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dpdist.api import InvalidInput, state_folder
from flows.api.commands import console


def metrics(
    listen: Annotated[
        str | None, typer.Option(help="the address HOST:PORT at which they are served. Default: print them once and end")
    ] = None,
) -> None:
    """Print or serve Prometheus metrics of this installation: budgets, releases, the newest periods, failures, seconds of stages."""
    from prometheus_client import generate_latest, start_http_server

    from dpdist.plugins.observability.metrics import registry

    if listen is None:
        sys.stdout.write(generate_latest(registry(state_folder())).decode())
        return
    host, _, port = listen.rpartition(":")
    if not port.isdecimal():
        raise InvalidInput(f"--listen is HOST:PORT, found {listen!r}; give for example 127.0.0.1:9464")
    server, thread = start_http_server(int(port), host or "127.0.0.1", registry(state_folder()))
    console.print(f"metrics at http://{host or '127.0.0.1'}:{server.server_port}/metrics")
    thread.join()
