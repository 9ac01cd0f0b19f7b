"""pytest, with pytest-xdist's processes forked from one that has collected the tests: ``python -m tests.parallel -n 4 tests``.

Of a process's 6.2 CPU seconds until its first test, imports take 5.4. A process that is forked from one that has them spends 0.8.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import types
from collections.abc import Iterator
from multiprocessing import connection, util
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked_programs

MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
FORK = multiprocessing.get_context("fork")
ASKS = """
import os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
socket.send_fds(line, [sys.argv[-1].encode()], [0, 1, 2])
nothing = os.open(os.devnull, os.O_RDWR)
os.dup2(nothing, 0)
os.dup2(nothing, 1)
line.recv(1)
"""
"""What execnet starts in place of Python: hands its program and its streams to a forked process, and ends when that ends."""


class Forks:
    """A plugin of pytest that has every process of pytest-xdist forked."""

    def __init__(self, place: str) -> None:
        self.program = shlex.join([sys.executable, "-IS", "-c", ASKS, place])

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """After pytest-xdist has said how many there are, and before it starts them."""
        config.option.tx = [f"popen//python={self.program}" for _ in config.option.tx]


def main(arguments: list[str]) -> int:
    """How pytest ends with the arguments."""
    nothing = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # open for good: modules bind it, as Prefect does for its log
    with (
        _in_memory(),
        forked_programs.PLAIN.inherited(),
        forked_programs.WITH_PREFECT.inherited(),
        tempfile.TemporaryDirectory(prefix="dpdist-") as folder,
    ):
        with contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
            pytest.main([*arguments, "--collect-only", "--capture=no"])
        _refuse_threads()
        with forking(f"{folder}/socket"):
            return int(pytest.main(arguments, plugins=[Forks(f"{folder}/socket")]))


@contextlib.contextmanager
def _in_memory() -> Iterator[None]:
    """Temporary files are kept in memory where a file system there has room for them, and are gone afterwards.

    A small release waits for a disk some sixty times: for the files that it makes durable, and for the commits of its ledger.
    """
    found = os.statvfs(MEMORY) if MEMORY.is_dir() else None
    if "TMPDIR" in os.environ or found is None or found.f_bavail * found.f_frsize < ROOM or found.f_flag & os.ST_NOEXEC:
        yield
        return
    util.get_temp_dir()  # multiprocessing takes its own away later
    folder = tempfile.mkdtemp(prefix="dpdist-", dir=MEMORY)  # a TemporaryDirectory ends with the first forked process, too
    os.chmod(folder, 0o711)  # PostgreSQL runs as another user
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", folder)
            patch.setattr(tempfile, "tempdir", folder)
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_threads() -> None:
    """A forked process has only the thread that forked it, and locks of others stay locked; jemalloc's, of Arrow, begins again."""
    names = [Path(f"/proc/self/task/{each}/comm").read_text().strip() for each in os.listdir("/proc/self/task")]
    others = len(names) - names.count("jemalloc_bg_thd") - 1
    if others:
        sys.exit(
            f"modules of the tests start {others} threads when they are imported; import what starts them inside of tests"
        )


@contextlib.contextmanager
def forking(place: str) -> Iterator[None]:
    """Processes are forked for who asks at a socket."""
    lives, ends = FORK.Pipe(duplex=False)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        process = FORK.Process(target=_serve, args=(listener, lives, ends))
        process.start()
    lives.close()
    try:
        yield
    finally:
        ends.close()
        process.join()


def _serve(listener: socket.socket, lives: Any, ends: Any) -> None:
    """Until the process that started this one has ended."""
    ends.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while lives not in connection.wait([listener, lives]):
        line, _ = listener.accept()
        with line:
            program, streams, _, _ = socket.recv_fds(line, 2**16, 3)
            FORK.Process(target=_work, args=(program.decode(), streams)).start()
        for stream in streams:
            os.close(stream)
        multiprocessing.active_children()  # takes note of those that have ended


def _work(program: str, streams: list[int]) -> None:
    """What ``python -c`` does. The line to the process that asked is open until this one has ended."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["-c"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(program, main.__dict__)
    finally:
        atexit._run_exitfuncs()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
