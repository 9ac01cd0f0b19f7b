"""A Dask cluster of processes on this machine that answers nobody but its own processes.

Whoever can talk to a Dask scheduler can run code as its user, and every user of a machine can reach its loopback ports. So all
connections are TLS in both directions, under a certificate made for this cluster that exists in the memory of its processes only;
no port answers HTTP; and nothing is written outside a private folder.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, Nanny, Scheduler, Security, SpecCluster, Worker

from dpdist.limits import blas_threads

LOOPBACK = "127.0.0.1"


class SilentScheduler(Scheduler):
    """A scheduler without the HTTP port that Dask opens even where the dashboard is off."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Nothing."""


class SilentWorker(Worker):
    """A worker without an HTTP port."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Nothing."""


@contextmanager
def local_client(processes: int, memory_bytes: int) -> Iterator[Any]:
    """The client of a new cluster of worker processes with an equal part of the BLAS threads each, which ends with the block."""
    threads = str(max(1, blas_threads() // processes))
    blas = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    with tempfile.TemporaryDirectory(prefix="dpdist-dask-") as folder:  # mode 0700
        options = {
            "temporary-directory": folder,
            "distributed.nanny.pre-spawn-environ": blas,
            "distributed.comm.require-encryption": True,
            "distributed.worker.memory.target": False,  # results are small: none is ever spilled to disk
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False,  # nothing is spilled: waiting frees nothing
            "distributed.admin.tick.limit": "60s",
            "distributed.comm.timeouts.connect": "60s",
        }
        with dask.config.set(options):
            security = Security.temporary()
            worker = {
                "worker_class": SilentWorker,
                "protocol": "tls://",
                "host": LOOPBACK,
                "nthreads": 1,
                "memory_limit": memory_bytes,
                "security": security,
                "dashboard": False,
                "silence_logs": logging.ERROR,
            }
            scheduler = {"protocol": "tls://", "host": LOOPBACK, "port": 0, "security": security, "dashboard": False}
            found = SpecCluster(
                workers={i: {"cls": Nanny, "options": worker} for i in range(processes)},
                scheduler={"cls": SilentScheduler, "options": scheduler},
                security=security,
                silence_logs=logging.ERROR,
            )
        with found, Client(found) as client:
            yield client
