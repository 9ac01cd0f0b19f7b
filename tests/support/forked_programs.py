"""Processes of a test's own, without the seconds that imports take: forked from a server that has imported them and runs no thread."""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed.utils import get_mp_context

from dpdist import engine
from dpdist.errors import DpdistError
from dpdist.pipeline import release_run
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.support import prefect_preload

ROOT = Path(__file__).parents[2]
FORKED = multiprocessing.get_context("forkserver")
LATER = (
    "dpdist.plugins.page.release_page",
    "dpdist.publish.outputs.output_registry",
    "dpdist.privacy.sampler",
    "distributed",
    "hypothesis",
    "pandas",
    "psycopg",
    "pyarrow.pandas_compat",
    "pytest",
    "scipy.linalg",
    "sqlalchemy.dialects.sqlite",
    "yaml",
    "zarr",
)
"""What a release, or the tests, import where they use it: half of the CPU time of a small release is spent on that."""


class Here(ForkServerProcess):
    """A forked process with the environment that the process had which asked for it, and in its folder."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._environment = dict(os.environ)

    def run(self) -> None:
        """What it is for."""
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class Server(forkserver.ForkServer):
    """A fork server that finds what it imports wherever this process is, and that can be inherited."""

    def __init__(self) -> None:
        super().__init__()
        self._beginning = threading.Lock()  # Dask starts its workers in several threads

    def ensure_running(self) -> None:
        """Start one, unless this process has one or inherited its address.

        A server looks for what it imports in the folder where this process is when it starts one, and is silent if it finds nothing.
        """
        with self._beginning, pytest.MonkeyPatch.context() as patch:
            if self._forkserver_address is None:
                patch.setenv("PYTHONPATH", str(ROOT))
            elif self._forkserver_pid is None:
                resource_tracker.ensure_running()
                return
            super().ensure_running()

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """In the block this process and those that it forks have one server. It imports when it is first asked for a process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONWARNINGS", "ignore:resource_tracker")  # that tests kill processes which hold semaphores
            resource_tracker.ensure_running()
        ends, lives = os.pipe()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address := connection.arbitrary_address("AF_UNIX"))
            listener.listen()
            arguments = (listener.detach(), ends, lives, self._preload_modules)
        process = multiprocessing.get_context("fork").Process(target=_serve, args=arguments)
        process.start()
        os.close(arguments[0])
        os.close(ends)
        self._forkserver_address, self._forkserver_alive_fd = address, lives
        try:
            yield
        finally:
            os.close(lives)
            process.terminate()
            process.join()


def _serve(listener: int, ends: int, lives: int, imports: list[str]) -> None:
    os.close(lives)
    if listener in connection.wait([listener, ends]):
        forkserver.main(listener, ends, imports)


def _server(imports: str) -> Server:
    made = Server()
    made.set_forkserver_preload([imports])
    return made


PLAIN, WITH_PREFECT = _server("tests.support.fork_server"), _server("tests.support.prefect_fork_server")


class OfPrefect(Here):
    """A process forked from the server that has imported Prefect."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - the name under which multiprocessing looks for it
        """As multiprocessing starts one, by another server."""
        with _STARTING, pytest.MonkeyPatch.context() as patch:
            patch.setattr(forkserver, "connect_to_new_process", WITH_PREFECT.connect_to_new_process)
            return ForkServerProcess._Popen(process_obj)


_STARTING = threading.Lock()


def prepare() -> None:
    """From now on what this process forks has its imports, and so have the workers of Dask clusters in this process."""
    FORKED.Process = Here
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()  # sets Dask's own list of what is imported before a fork, which is a part of this one
    forkserver.connect_to_new_process = PLAIN.connect_to_new_process


def import_ahead() -> None:
    """Import what programs import."""
    for name in LATER:
        importlib.import_module(name)


def exit_code(target: Callable[..., None], *arguments: Any) -> int | None:
    """How a process ends that calls the function with the environment and in the folder of this one."""
    process = Here(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


class Program:
    """A Python module run as a program in a forked process, with what tests use of ``subprocess.Popen``. It prints nowhere.

    It leads a group of its own, and has its variables beside those of this process.
    """

    def __init__(self, module: str, *arguments: str, folder: Path, **environment: str) -> None:
        kind = OfPrefect if module.startswith("prefect.") else Here
        self._process = kind(target=_run_module, args=(module, arguments, folder, environment), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.exitcode

    def wait(self) -> None:
        """Until it has ended."""
        self._process.join()

    def kill(self) -> None:
        """End it with SIGKILL, if it still runs."""
        with suppress(ProcessLookupError):
            self._process.kill()


def _run_module(module: str, arguments: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.environ.update(environment)
    os.chdir(folder)
    dask.config.refresh()  # reads the variables of this process
    if "prefect" in sys.modules:
        prefect_preload.Ahead()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


def finished(
    program: str, *arguments: str | Path, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A Python program run to its end in a forked process, with what ``subprocess.run`` tells of it.

    Args:
        program: the name of a module, the path of a script (it ends with ".py"), or the text of one (it has several lines).
        folder: where it runs.
        environment: variables beside those of this process.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        known, place = {**os.environ, **environment}, folder or Path.cwd()
        streams = DupFd(out.fileno()), DupFd(error.fileno())
        process = OfPrefect(target=_finish, args=(program, [str(each) for each in arguments], place, known, streams))
        process.start()
        process.join(HANGS)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired([program, *arguments], HANGS)
        told = [(stream.seek(0), stream.read().decode())[1] for stream in (out, error)]
    return subprocess.CompletedProcess([program, *arguments], process.exitcode, *told)


def _finish(program: str, arguments: list[str], folder: Path, environment: dict[str, str], streams: tuple[Any, Any]) -> None:
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream.detach(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    dask.config.refresh()
    prefect_preload.Ahead()
    sys.argv = [program, *arguments]
    try:
        if "\n" in program:
            sys.argv[0] = "-c"
            main = types.ModuleType("__main__")
            sys.modules["__main__"] = main
            exec(compile(program, "<string>", "exec"), main.__dict__)
        elif program.endswith(".py"):
            sys.path.insert(0, str(Path(program).parent))
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends its processes without them


def killed_run(holder: str, name: str, spec: Path, home: Path) -> None:
    """A release whose process is killed when it comes to a function."""
    module, _, last = holder.rpartition(".")
    target = getattr(importlib.import_module(module), last) if last[0].isupper() else importlib.import_module(holder)

    def die(*arguments: Any, **options: Any) -> None:
        del arguments, options
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(target, name, die)
    _release(spec, home)


def limited_run(limit: int, spec: Path, home: Path, told: Connection) -> None:
    """A release that may write no file longer than the limit; tells its error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        _release(spec, home)
    except DpdistError as error:
        told.send(str(error))
    else:
        told.send(None)


def _release(spec: Path, home: Path) -> None:
    release_run.release(Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(spec))
