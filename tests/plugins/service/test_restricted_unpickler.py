"""A cluster that sends pickles which run code: the measuring process refuses them, and one without that refusal runs them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tblib.pickling_support
from distributed import Client, LocalCluster
from tblib.pickling_support import unpickle_exception

from dpdist.plugins.service import restricted_unpickler
from dpdist.privacy import keys
from tests import HANGS
from tests.plugins.service.measuring_service import ROOT
from tests.support import small_release

SLOW = ("error", "cause", "traceback", "reply", "event", "first answer")
POISONS = ("result", *(pytest.param(how, marks=pytest.mark.slow) for how in SLOW))
"""What of the cluster's is hostile: a task's result; its error, with the one behind it and its traceback; a
worker's reply to a call; an event that a worker logs; what the scheduler first says."""


class Evil:
    """Runs a command where it is unpickled: it makes a file that is named by the process."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.target}-$PPID",)


class Behind:
    """An error that is pickled as Dask pickles errors, behind which another thing is the cause."""

    def __init__(self, cause: object) -> None:
        self.cause = cause

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return unpickle_exception, (ValueError, ("honest words",), self.cause, None)


def poison(how: str, target: str, dask_worker: Any = None) -> None:
    """On a worker: what it sends or leaves in the store is hostile from now on. Dask makes its messages of errors by ``error_message``."""
    import distributed.worker
    from distributed.protocol import to_serialize

    from dpdist.engine import tasks, worker_checks

    evil = pickle.dumps(Evil(target))
    errors: dict[str, tuple[bytes, Any]] = {"error": (evil, None), "cause": (pickle.dumps(Behind(Evil(target))), None)}
    errors["traceback"] = (pickle.dumps(Behind(None)), to_serialize(evil))

    def hostile(exchange: Any, folder: str, function: Any, item: Any) -> Any:
        del exchange, folder, function, item
        if how in errors:
            raise ValueError
        return Evil(target)

    def message(e: BaseException, status: str = "error") -> Any:
        del e
        exception, traceback = errors[how]
        texts = {"exception_text": "", "traceback_text": ""}
        return {"status": status, "exception": to_serialize(exception), "traceback": traceback, **texts}

    async def lacking(requirements: Any) -> Any:
        del requirements
        if how == "reply":
            return Evil(target)
        dask_worker.log_event("warn", {"message": evil})
        return ""

    if how in ("reply", "event"):
        worker_checks.lack_of = lacking
    else:
        tasks.by_reference = hostile
        if how in errors:
            distributed.worker.error_message = message


def poisoned(cluster: Client, how: str, target: str) -> None:
    """Make the workers hostile, or the scheduler."""

    def scheduler(dask_scheduler: Any) -> None:
        from distributed.protocol import to_serialize

        async def versions(**asked: Any) -> Any:
            del asked
            return to_serialize(Evil(target))

        dask_scheduler.handlers["versions"] = versions

    if how == "first answer":
        cluster.run_on_scheduler(scheduler)
    else:
        cluster.run(poison, how, target)


def honest(dask_scheduler: Any) -> None:
    """On the scheduler: it answers as it did."""
    dask_scheduler.handlers["versions"] = dask_scheduler.versions


def failing(how: str) -> None:
    """On a worker: tasks fail as honest ones do."""
    from dpdist.engine import tasks
    from dpdist.errors import StoreError

    def failed(folder: str, function: Any, item: Any) -> Any:
        del folder, function, item
        if how == "dies":
            os._exit(1)  # its scheduler allows no death more, so that one is enough
        try:
            raise OSError(2, "behind it")
        except OSError as error:
            raise (StoreError("honest words") if how == "refuses" else ValueError("a record")) from error

    tasks._call_stage = failed


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=2**31) as made,
        Client(made) as client,
    ):
        yield client


def measuring(folder: Path, client: Client, *, restricted: bool) -> subprocess.Popen[str]:
    """The measuring service's own process over the cluster; without the restriction where that is asked for."""
    import hashlib

    digest = hashlib.sha256((folder / "specs" / "release.yaml").read_bytes()).hexdigest()
    off = "" if restricted else "restricted_unpickler.restrict = lambda end: None\n"
    words = [str(folder / "specs"), "100", "day", digest, "-", str(uuid.uuid4())]
    script = f"import sys\nfrom dpdist.plugins.service import release_process, restricted_unpickler\n{off}sys.argv[1:] = {words!r}\n"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DPDIST_HOME": str(folder / "home"),
        "DPDIST_ENGINE": client.scheduler.address,
        "DPDIST_ENGINE_WITHOUT_TLS": "1",
    }
    command = [sys.executable, "-c", f"{script}release_process.main()"]
    with (folder / "operator.log").open("w") as log:
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)


def taken(target: Path, process: subprocess.Popen[str]) -> bool:
    """Whether a process has run the command."""
    return target.with_name(f"{target.name}-{process.pid}").exists()


def restricted_output(folder: Path, client: Client) -> tuple[str, str]:
    """All that the restricted process tells its clients, and the operator, to its end; it runs no command."""
    with measuring(folder, client, restricted=True) as process:
        output = process.communicate(timeout=HANGS)[0]
    assert not taken(folder / "taken", process)
    return output, (folder / "operator.log").read_text()


def prepare_folder(folder: Path) -> Path:
    small_release.write(folder / "specs", output={"folder": str(folder / "published")})
    keys.initialise(folder / "home")
    return folder


@pytest.mark.slow
def test_a_release_over_an_honest_cluster_is_published(cluster: Client, tmp_path: Path) -> None:
    assert '"state": "published"' in restricted_output(prepare_folder(tmp_path), cluster)[0]


@pytest.mark.parametrize("how", POISONS)
def test_a_hostile_cluster_runs_no_code_in_the_service(how: str, cluster: Client, tmp_path: Path) -> None:
    target = tmp_path / "taken"
    poisoned(cluster, how, str(target))
    try:
        said, operator = restricted_output(prepare_folder(tmp_path), cluster)
        assert '"reason": "EngineError"' in said
        assert "EngineError: the cluster sent something that asks for " in operator
        with measuring(tmp_path, cluster, restricted=False) as process:
            while not taken(target, process):  # the poison works
                assert process.poll() is None
                time.sleep(0.2)
            process.kill()
    finally:
        cluster.run_on_scheduler(honest)
        cluster.restart()


def deaths(allowed: int, dask_scheduler: Any) -> int:
    """On the scheduler: how many workers a task may kill from now on. Returns: how many it might before."""
    before: int = dask_scheduler.allowed_failures
    dask_scheduler.allowed_failures = allowed
    return before


HONEST = {
    "refuses": ('"reason": "StoreError"', "StoreError: honest words\n"),
    "raises": ('"reason": "TaskFailed"', "TaskFailed: ValueError at "),
    "dies": ('"state": "published"', ""),  # the stage begins again, on the worker that comes in its place
}


@pytest.mark.slow
@pytest.mark.parametrize("how", HONEST)
def test_honest_errors_are_told_as_they_are(how: str, cluster: Client, tmp_path: Path) -> None:
    """Dask sends them with their tracebacks, and with what it knows of a worker that died. Clients hear of their class alone."""
    allowed = cluster.run_on_scheduler(deaths, 0)
    cluster.run(failing, how)
    try:
        said, operator = restricted_output(prepare_folder(tmp_path), cluster)
        public, private = HONEST[how]
        assert public in said, said
        assert private in operator, operator
        assert not private or private not in said
    finally:
        cluster.run_on_scheduler(deaths, allowed)
        cluster.restart()


UNPICKLED = """
import linecache, pickle, sys, traceback
from pathlib import Path
from dpdist.plugins.service import restricted_unpickler

def refused(error):
    raise error

restricted_unpickler.restrict(refused)
for path in sys.argv[1:]:
    try:
        found = pickle.loads(Path(path).read_bytes())
    except Exception as error:
        print("refused" if "asks for posix.system" in str(error) else error)
    else:
        print("".join(traceback.format_exception(found)).strip())
assert not linecache.cache
"""


def test_errors_are_unpickled_without_their_tracebacks(tmp_path: Path) -> None:
    """Where one is printed Python quotes the lines of files that it names: a hostile one names the root key's."""
    (tmp_path / "key").write_text("a secret\n")
    code = compile("\nraise ValueError('honest words')", str(tmp_path / "key"), "exec")
    tblib.pickling_support.install(ValueError)
    with pytest.raises(ValueError, match="honest words") as raised:
        exec(code)
    target = tmp_path / "taken"
    files = {"honest": raised.value, "cause": Behind(Evil(str(target))), "evil": Evil(str(target))}
    for name, content in files.items():
        (tmp_path / name).write_bytes(pickle.dumps(content))
    command = [sys.executable, "-c", UNPICKLED, *(str(tmp_path / name) for name in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["ValueError: honest words", "refused", "refused"]
    assert not [*tmp_path.glob("taken*")]


TOUCHED = """
import dataclasses, importlib, inspect, itertools, pickle, pkgutil, sys
from dpdist.storage import objects
from dpdist.engine import result_encoding

modules = [importlib.import_module(f"{objects.__name__}.{each.name}") for each in pkgutil.iter_modules(objects.__path__)]
classes = [found for module in modules for name, found in inspect.getmembers(module, inspect.isclass)
           if found.__module__ == module.__name__ and result_encoding.is_sent(found.__module__, name)]
frozen = [each for each in classes if dataclasses.is_dataclass(each) and not inspect.isabstract(each)]
places = ("/etc/passwd", "s3://bucket/prefix", "https://127.0.0.1:1/x", "", 0, None)
touched = []
sys.addaudithook(lambda event, _: touched.append(event) if event.startswith(("open", "os.", "socket.", "subprocess.", "import")) else None)
for each in frozen:
    for values in itertools.product(places, repeat=len(dataclasses.fields(each))):
        made = each(*values)
        hash(made), made == made, repr(made), pickle.loads(pickle.dumps(made))
print(sorted(each.__name__ for each in frozen), touched)
"""


def test_places_touch_nothing_when_they_are_made() -> None:
    """A cluster may send places that it chooses; files and networks are touched by who asks them for something."""
    done = subprocess.run([sys.executable, "-c", TOUCHED], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "['Bucket', 'Folder'] []\n"


@pytest.mark.parametrize(
    ("module", "name", "may"),
    [
        ("dpdist.errors", "InvalidSpec", True),
        ("builtins", "ValueError", True),
        ("collections", "deque", True),  # of the worker that KilledWorker names
        ("collections", "OrderedDict", False),
        ("dpdist.engine.tasks", "Parcel", False),
        ("dpdist.storage.array_store", "_sent", False),
        ("dpdist.counting.record_cells", "CountSummary", False),
        ("dpdist.operators.dense_matrix", "Dense", False),
        ("numpy", "dtype", False),
        ("numpy", "ndarray", False),
        ("posix", "system", False),
        ("os", "system", False),
        ("builtins", "eval", False),
        ("builtins", "getattr", False),
        ("builtins", "type", False),
        ("functools", "partial", False),
        ("dpdist.engine.tasks", "by_reference", False),
        ("dpdist.engine.runner", "Engine", False),
        ("dpdist.storage.array_store", "Store.delete", False),
        ("dpdist.storage.array_store", "os.system", False),
        ("dpdist.storage.array_store", "os", False),
        ("dpdist.privacy.keys", "Secret", False),
        ("distributed.protocol.pickle", "loads", False),
        ("dpdist.engine", "TaskFailed", False),  # by its own module only
        ("no.such", "module", False),
    ],
)
def test_what_a_pickle_may_ask_for(module: str, name: str, may: bool) -> None:
    assert restricted_unpickler.allowed(module, name) is may


def test_no_module_is_imported_because_a_pickle_names_it() -> None:
    """What was not imported has raised no error: importing it would run its code."""
    module = "distributed.dashboard.components.nvml"
    sys.modules.pop(module, None)
    restricted_unpickler.allowed.cache_clear()
    assert not restricted_unpickler.allowed(module, "NVMLError")
    assert module not in sys.modules
