"""What runs on a worker, and how functions and results pass by the scheduler: it sees no count and no digest of one."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import cloudpickle
import numpy as np
import threadpoolctl

from dpdist.engine.result_encoding import decode, encode
from dpdist.engine.worker_checks import TaskStore
from dpdist.errors import DpdistError, EngineError, StoreError, TaskFailed
from dpdist.process.allocator import freed_memory_kept

_T = TypeVar("_T")
_Item = TypeVar("_Item")

SALT_BYTES = 16
COMES_AGAIN = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""Errors that the same task raises again, wherever it runs."""


class Parcel:
    """A pickled object in the exchange, fetched once in a process."""

    def __init__(self, exchange: TaskStore, name: str, size: int, digest: str) -> None:
        self._exchange, self._name, self._size, self._digest = exchange, name, size, digest

    @staticmethod
    def of(exchange: TaskStore, folder: str, item: Any) -> Parcel:
        """Put an object into a folder of the exchange."""
        data = os.urandom(SALT_BYTES) + cloudpickle.dumps(item)  # the digest travels: it must not tell what is kept
        name = f"{folder}/{uuid.uuid4().hex}"
        return Parcel(exchange, name, len(data), exchange.put_block(name, np.frombuffer(data, dtype=np.uint8)))

    def fetch(self) -> Any:
        """The object, from the exchange. The digest travelled apart: only what was put there is unpickled."""
        data = self._exchange.get_block(self._name, (self._size,), np.uint8, self._digest)
        return pickle.loads(data[SALT_BYTES:].tobytes())


@dataclass(frozen=True)
class _Refusal:
    """What a task returns in place of raising it: Dask would run the task three times more, and log it each time."""

    error: DpdistError


class _Stage:
    """The function of a stage on a worker, unpickled once: what it reads for one task it holds for the next ones."""

    folder, function = "", None
    changing = threading.Lock()


def _stage_function(folder: str, function: Parcel) -> Callable[[Any], Any]:
    """The first function that came for the stage that has this folder."""
    with _Stage.changing:
        if _Stage.folder != folder:
            _Stage.folder, _Stage.function = folder, function.fetch()
        return cast(Callable[[Any], Any], _Stage.function)


def forget() -> None:
    """Give up what a stage holds on this worker."""
    with _Stage.changing:
        _Stage.folder, _Stage.function = "", None


Reference = tuple[str, int, str]
"""A result in the exchange: its name, its size in bytes and its digest. Nothing else of a result passes the scheduler."""


def by_reference(exchange: TaskStore, folder: str, function: Parcel, item: Any) -> Reference | tuple[()]:
    """function(item) where it runs; its result, if it has one, is left in the exchange as a document and arrays.

    Nothing is an empty tuple: Dask tells a client the type of each result, and that of None is made by a call.
    """
    result = without_data(partial(_call_stage, folder, function), item)
    if result is None:
        return ()
    data = os.urandom(SALT_BYTES) + encode(result)
    name = f"{folder}/{uuid.uuid4().hex}"
    return name, len(data), exchange.put_block(name, np.frombuffer(data, dtype=np.uint8))


def fetch_result(exchange: TaskStore | None, result: Any) -> Any:
    """What a task returned, read from the exchange where there is one. Raises: what it refused."""
    if exchange is not None and result == ():
        return None
    if exchange is not None:
        name, size, digest = _checked(result)
        result = decode(exchange.get_block(name, (size,), np.uint8, digest)[SALT_BYTES:])
    if isinstance(result, _Refusal):
        raise result.error
    return result


def _checked(result: Any) -> Reference:
    if isinstance(result, tuple | list) and len(result) == 3:
        name, size, digest = result
        inside = isinstance(name, str) and not name.startswith("/") and ".." not in name.split("/")
        if inside and isinstance(size, int) and isinstance(digest, str):
            return name, size, digest
    raise EngineError(
        "the cluster sent something that is no reference to a result: look at its workers, and at who holds its certificate"
    )


def one_after_another(function: Callable[[_Item], _T], items: Sequence[_Item]) -> list[_T]:
    """function of every item, as one task."""
    return [function(item) for item in items]


def _call_stage(folder: str, function: Parcel, item: Any) -> Any:
    return _stage_function(folder, function)(item)


def without_data(function: Callable[[Any], _T], item: Any) -> _T | _Refusal:
    """function(item), or what it refuses. Raises, for Dask to try again, what may not come again: StoreError as it is, else TaskFailed.

    Workers log errors and the scheduler keeps them: what other libraries write into theirs may quote a record, and so may the
    errors behind an error.
    """
    try:
        with freed_memory_kept():
            return function(item)
    except Exception as error:  # noqa: BLE001 - whatever it is
        failure, again = failure_of(error), isinstance(error, COMES_AGAIN)
    failure.__context__ = failure.__cause__ = None
    if again or not isinstance(failure, StoreError | TaskFailed):
        return _Refusal(failure)
    raise failure


def failure_of(error: Exception) -> DpdistError:
    """An error of dpdist as it is; of another one its type and the line of code that raised it, and nothing of its text."""
    if isinstance(error, DpdistError):
        return error
    *_, frame = traceback.extract_tb(error.__traceback__)
    return TaskFailed(
        f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}; its text is not shown, it may quote records: "
        "run again with --debug, and report it"
    )


def with_blas_threads(threads: int) -> AbstractContextManager[Any]:
    """A block in which linear algebra runs so many threads."""
    limited: AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(limits=threads)
    return limited


@lru_cache(maxsize=1)
def _libraries(modules: int) -> threadpoolctl.ThreadpoolController:
    """The libraries of linear algebra. To find them takes milliseconds, and modules load them: they are looked for after imports."""
    del modules
    return threadpoolctl.ThreadpoolController()


def with_threads(function: Callable[..., _T], *arguments: Any) -> _T:
    """On a worker: as many BLAS threads as it has threads. The last argument is the task's empty item."""
    from distributed import get_worker

    with with_blas_threads(get_worker().state.nthreads):
        return function(*arguments[:-1])


def this_worker() -> str:
    """The address of the worker that runs this task, empty where that is not Dask's."""
    from distributed import get_worker

    with suppress(ValueError):
        return str(get_worker().address)
    return ""
