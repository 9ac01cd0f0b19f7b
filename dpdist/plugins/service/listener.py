"""``dpdist serve``: the measuring service on a Unix socket or a port."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dpdist.api import InvalidInput, state_folder
from dpdist.api.runs import keys
from dpdist.plugins.service import service_address
from dpdist.plugins.service.measuring_service import Service
from dpdist.plugins.service.served_runs import ServedRuns
from dpdist.plugins.service.service_address import Address
from dpdist.plugins.service.spec_registry import SpecFolder
from flows.api.service import Terminated, open_local_ledger, process_group

SOCKET_MODE = 0o660
"""Its group are the clients."""


def serve(
    spec_folder: SpecFolder,
    listen: str,
    *,
    group: str | None,
    certificate: Path | None,
    key: Path | None,
    ready: Callable[[str], None],
) -> None:
    """Listen until a signal ends the process, and its releases with it; they go on when they are asked for again.

    Raises: InvalidInput, KeyUnavailable, LedgerError: what would refuse every release.
    """
    address, token = Address.of(listen), service_address.token()
    if not address.path and token is None:
        raise InvalidInput(f"a service on a port needs a token; set {service_address.TOKEN_FILE}, or listen on unix:/PATH")
    context = _context(address, certificate, key)
    home, specs = state_folder(), spec_folder.check()
    keys.load(home)
    with open_local_ledger(home):
        pass
    process_group.end_with_this_process()
    runs = ServedRuns(home)
    asyncio.run(
        _until_terminated(
            Service(spec_folder, token=token, runs=runs),
            address,
            group,
            context,
            lambda: _begin(runs, ready, f"{specs} specs, at {address}"),
        )
    )
    raise Terminated


def _begin(runs: ServedRuns, ready: Callable[[str], None], line: str) -> None:
    """What is done once the address is this service's own: no other one has runs under way in this home."""
    runs.count_left()
    ready(line)


async def _until_terminated(
    service: Service, address: Address, group: str | None, context: ssl.SSLContext | None, ready: Callable[[], None]
) -> None:
    limit = service.limits.head_bytes
    if address.path:
        server = await asyncio.start_unix_server(service.answer, sock=_bind_socket(address.path, group), limit=limit)
    else:
        wait = service.limits.seconds if context is not None else None
        server = await asyncio.start_server(
            service.answer, address.host, address.port, ssl=context, ssl_handshake_timeout=wait, limit=limit
        )
    terminated = asyncio.Event()  # what a handler of another kind raises in a callback, asyncio would log and forget
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    try:
        ready()
        await terminated.wait()
    finally:
        server.close()
        if address.path:
            Path(address.path).unlink(missing_ok=True)


def _bind_socket(path: str, group: str | None) -> socket.socket:
    """A Unix socket that its owner and a group may connect to. Raises: InvalidInput."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError, ConnectionRefusedError):  # a service that was killed left its socket
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
                tried.settimeout(5)
                tried.connect(path)
            raise InvalidInput(f"another service listens at {path}; end it, or name another socket with --listen")
        Path(path).unlink(missing_ok=True)
        before = os.umask(0o777 & ~SOCKET_MODE)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        if group is not None:
            shutil.chown(path, group=int(group) if group.isdecimal() else group)
    except (OSError, LookupError) as error:
        listener.close()
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(
            f"the socket {path} cannot be made: {problem}; name a folder that this user may write, and a group of it"
        ) from None
    return listener


def _context(address: Address, certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """TLS with the given certificate; None where the address has none. Raises: InvalidInput."""
    if not address.tls:
        return None
    if certificate is None or key is None:
        raise InvalidInput("a service at https:// needs --certificate and --key, files in PEM")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"{certificate} and {key} cannot be used ({error.strerror or 'they do not fit'}); give a certificate and its key in PEM"
        ) from None
    return context
