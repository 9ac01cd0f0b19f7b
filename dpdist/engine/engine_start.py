"""How an engine begins: in this process, on worker processes of this machine, or on a Dask cluster that is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from dpdist.engine import cluster_versions
from dpdist.engine.cluster_workers import losses_told, size_of, workers_of
from dpdist.engine.runner import Engine
from dpdist.engine.worker_checks import Admission
from dpdist.errors import EngineError
from dpdist.process.resource_limits import (
    MIB,
    TERMINATED_SHARE,
    WORKER_BYTES,
    blas_threads,
    check_program,
    cores,
    free_bytes,
)

CONNECT_SECONDS = 20
"""How long a scheduler that does not answer, or went away, is waited for."""
LEAST_TASK_BYTES = 256 * MIB
"""With less for each task, fewer worker processes are started: stages that need more would be refused."""
WITHOUT_TLS = "DPDIST_ENGINE_WITHOUT_TLS"
"""Set to 1, lets a release use a scheduler that runs the code of whoever reaches its port."""
CERTIFICATES = "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..._TLS__CLIENT__CERT and ..._TLS__CLIENT__KEY"


def inline() -> Engine:
    """Everything in this process, one task after the other. Raises: OutOfMemory where the program itself does not fit."""
    check_program()
    return Engine(workers=1, memory_bytes=free_bytes(), threads=blas_threads(), connect=None, local=True)


def _resolve_address(address: str | None = None) -> str | None:
    """Where tasks are to run, as an argument says or else the environment; None: wherever suits."""
    return address or os.environ.get("DPDIST_ENGINE") or None


def is_cluster(address: str | None) -> bool:
    """Whether tasks run on a cluster that is there, which others may have a hold of."""
    return _resolve_address(address) not in (None, "inline")


@contextmanager
def open_engine(address: str | None = None, *, workers: int | None = None) -> Iterator[Engine]:
    """An engine for the duration of a block.

    Args:
        address: ``tls://host:port`` of a Dask scheduler, with certificates from Dask's configuration; None starts one process a
            core on this machine; ``inline`` starts nothing. Without one the environment variable DPDIST_ENGINE is asked first.
        workers: most local worker processes; each gets an equal part of the BLAS threads. Fewer are started where memory is short.
    Raises: OutOfMemory where the program itself does not fit.
    """
    check_program()
    address = _resolve_address(address)
    if address == "inline":
        yield inline()
        return
    with ExitStack() as stack:
        if address is not None:
            client = stack.enter_context(_connect(address))
            with losses_told():
                cluster_versions.check(client)
            tasks, memory = size_of(workers_of(client)) or (1, free_bytes())
            yield Engine(
                workers=tasks,
                memory_bytes=memory,
                threads=1,
                connect=lambda: client,
                local=False,
                admission=Admission(client),
            )
            return
        processes = min(workers or cores(), cores())
        while processes > 0 and free_bytes(processes) < LEAST_TASK_BYTES:
            processes -= 1
        if processes == 0:
            yield inline()
            return
        worker_bytes = free_bytes(processes)
        yield Engine(
            workers=processes,
            memory_bytes=worker_bytes,
            threads=blas_threads(),
            connect=lambda: stack.enter_context(_local(processes, int((worker_bytes + WORKER_BYTES) / TERMINATED_SHARE))),
            local=True,
        )


def _local(processes: int, memory_bytes: int) -> AbstractContextManager[Any]:
    from dpdist.engine.local_cluster import local_client  # imports distributed, which takes a second
    from dpdist.engine.local_worker import quiet

    quiet()
    return local_client(processes, memory_bytes)


def _connect(address: str) -> Any:
    """A client of a running scheduler. Raises: EngineError when none answers, or its connections are not encrypted."""
    from distributed import Client

    from dpdist.engine.local_worker import quiet

    quiet()
    if "://" not in address and os.environ.get(WITHOUT_TLS) != "1":
        raise EngineError(f"an engine is 'inline' (this process) or tls://host:port of a Dask scheduler, found {address!r}")
    if address.startswith("tls://"):
        security = _certificates()
    elif address.startswith("inproc://") or os.environ.get(WITHOUT_TLS) == "1":
        security = None
    else:
        raise EngineError(
            f"the Dask scheduler at {address!r} is not reached by TLS: whoever reaches its port could run code as your user and read "
            f"records and root key; give tls://host:port and certificates ({CERTIFICATES}), or accept it with {WITHOUT_TLS}=1"
        )
    try:
        return Client(address, timeout=CONNECT_SECONDS, security=security)
    except (OSError, ValueError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}); give tls://host:port of a running one"
        ) from None


def _certificates() -> Any:
    """The certificates of Dask's own configuration. Raises: EngineError when they are missing or unreadable."""
    from distributed import Security

    security = Security(require_encryption=True)
    try:
        context = security.get_connection_args("client")["ssl_context"]
    except OSError as error:
        raise EngineError(
            f"the certificates for a tls:// scheduler cannot be read ({error.strerror or type(error).__name__}); check {CERTIFICATES}"
        ) from None
    if context is None:
        raise EngineError(f"a tls:// scheduler asks for certificates; name their files in {CERTIFICATES}")
    return security
