"""Processes of a test's own, without the seconds that imports take: forked from a server that has imported them and runs no thread."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dpdist import engine
from dpdist.errors import DpdistError
from dpdist.release import story
from dpdist.release.context import Context, silent
from dpdist.spec import load
from dpdist.store import Store

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["dpdist.release.story", "dpdist.spec", "pandas", "yaml", "pytest", "hypothesis", "distributed", "psycopg"]
)


def exit_code(target: Callable[..., None], *arguments: Any) -> int | None:
    """How a process ends that calls the function with the environment and in the folder of this one."""
    process = FORKED.Process(target=_as_here, args=(dict(os.environ), str(Path.cwd()), target, arguments))
    process.start()
    process.join()
    return process.exitcode


def _as_here(environment: dict[str, str], folder: str, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    target(*arguments)


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
    story.release(Context(home, Store(home / "store"), engine.inline(), silent), load(spec))
