"""What a measuring process unpickles of a cluster: errors, and words of its scheduler. Nothing that runs code.

Results of tasks are no pickles (``dpdist.engine.result_encoding``). Dask's references to them, errors and messages of its scheduler are,
and a pickle may call any function that can be imported; whoever holds the cluster's certificate can send one. Python tells an audit hook
of every name that a pickle asks for, in whichever library, before it is looked up.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import NoReturn

import tblib.pickling_support

from dpdist.api import EngineError

PLAIN_TYPES = {
    "builtins": {"bytearray", "bytes", "dict", "frozenset", "int", "list", "set", "slice", "tuple"},
    # Dask's own errors: how each is put together, and the worker that one names
    "tblib": {"Code", "Frame", "Traceback"},
    "tblib.pickling_support": {"unpickle_exception", "unpickle_exception_with_attrs", "unpickle_traceback"},
    "distributed.core": {"Status"},
    "distributed.scheduler": {"WorkerState"},
    "collections": {"defaultdict", "deque"},  # fields of WorkerState
}
"""Names that make a value of what they are given, and do nothing else."""
OWN_ERRORS = ("builtins", "asyncio", "concurrent", "distributed", "dpdist")
"""Packages whose errors a cluster may send."""
TRUSTED = ("numba", "multiprocessing", "dask.tokenize")
"""Modules that unpickle what this process or its own machine has pickled: compiled code, names of its own tasks."""


def restrict(end: Callable[[EngineError], NoReturn]) -> None:
    """End this process where a pickle asks for another name, from now on: no hook can be taken away.

    Tracebacks are left out: where one is printed, Python quotes the lines of the files that it names.

    Args:
        end: tells the refusal and ends the process. A client of Dask that cannot read a message would wait for the next one.
    """

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "pickle.find_class" and not _trusted(sys._getframe(1).f_globals.get("__name__", "")):
            module, name = (str(argument) for argument in arguments)
            if not allowed(module, name):
                end(
                    EngineError(
                        f"the cluster sent something that asks for {module}.{name}, which no result of dpdist does: look at its workers, "
                        "and at who holds its certificate, before you run the same command again"
                    )
                )

    sys.addaudithook(hook)
    tblib.pickling_support.unpickle_traceback = _no_traceback


def _no_traceback(*arguments: object) -> None:
    """What is made of a traceback of the cluster."""


def _trusted(module: str) -> bool:
    return any(module == trusted_module or module.startswith(f"{trusted_module}.") for trusted_module in TRUSTED)


@functools.cache
def allowed(module: str, name: str) -> bool:
    """Whether a pickle of the cluster may ask for a name."""
    if name in PLAIN_TYPES.get(module, ()):
        return True
    if "." in name or module.partition(".")[0] not in OWN_ERRORS:
        return False
    member = (
        getattr(importlib.import_module(module), name, None)
        if module.startswith("dpdist.")
        else _loaded_member(module, name)
    )
    if not isinstance(member, type) or member.__module__ != module:
        return False
    return issubclass(member, Exception)


def _loaded_member(module: str, name: str) -> object:
    return getattr(sys.modules.get(module), name, None)
