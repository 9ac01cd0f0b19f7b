"""The processes that a run starts end with it, however it ends: this file is also the program that watches."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

RUN_VARIABLE = "DPDIST_RUN"
"""Environment variable by which a run knows its own processes again, whoever their parent is by then."""
SECONDS = 5.0
"""How long a process may take to end before it is killed."""


@functools.cache
def end_with_this_process() -> subprocess.Popen[bytes]:
    """The program that ends every process started from now on when this one ends, even by SIGKILL.

    A small program of its own session waits for the end of this process: its standard input is a pipe that closes then.
    It finds the others by their environment (Linux; elsewhere only the ends that Python sees are covered).
    """
    os.environ[RUN_VARIABLE] = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", __file__, os.environ[RUN_VARIABLE]]
    quiet = subprocess.DEVNULL
    watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
    watch.returncode = 0  # nobody waits for it: it outlives this process
    return watch  # kept by the cache: the pipe closes with it


def processes_of_run(run_id: str) -> list[int]:
    """The processes of a run but this one, by the mark in their environment."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{RUN_VARIABLE}={run_id}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                processes.append(int(entry.name))
    return [process for process in processes if process != os.getpid()]


def _end_processes(run_id: str) -> None:
    """Ask the processes of a run to end, and kill those that do not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + SECONDS
        for process in processes_of_run(run_id):
            with contextlib.suppress(OSError):
                os.kill(process, number)
        while time.monotonic() < until and processes_of_run(run_id):
            time.sleep(0.05)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end_processes(sys.argv[1])
