from __future__ import annotations

import gc
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import sqlalchemy as sa
from moto.server import ThreadedMotoServer

from dpdist import engine
from dpdist.privacy import keys, sampler
from dpdist.privacy.ledger import database
from dpdist.privacy.selection import exponential_mechanism
from dpdist.process.resource_limits import cores
from tests.case_selection import DAY, leave_cases_to_other_days
from tests.support import forked_programs
from tests.support.complete_tree import is_plugin_missing
from tests.support.postgres_server import Server

LONGEST = (
    "test_release.py",
    "test_flows.py",
    "test_workers.py",
    "test_cli.py",
    "test_mechanisms.py",
    "test_end_to_end.py",
    "test_steps.py",
    "test_benchmarks.py",
    "test_docs.py",
    "test_memory.py",
    "test_golden.py",
    "test_registration.py",
    "test_secrets.py",
    "test_commands.py",
    "test_command_start.py",
    "test_local_cluster.py",
    "test_stored_filters.py",
    "test_kills.py",
    "test_readme.py",
    "test_addresses.py",
    "test_helm.py",
    "test_vector.py",
    "test_store.py",
    "test_files.py",
)
"""Files that take longest begin first, so that no process is left alone with one of them at the end."""


MAY_BE_SKIPPED = (
    "only root ",
    "needs (the right to mount|mkfs|a file that belongs to root|a C compiler|a memory control group|Coq|cosign)",
    "needs (azurite-blob|storage-testbench|rclone|a Ceph cluster)",
    "needs Linux's /proc",
    "needs (a folder with |podman|the image )",  # clusters and containers: make containers
    "mounting a small tmpfs needs root",
    "not begun: the time of this run is over",  # make slow WITHIN=480
    "damages files on disk",  # of the same test over a bucket
    "a row of counts tells no persons",
    "no (other Python|Python 3)",
    "the shared data is not here",
    "not a checkout of git",
    r"\w+ cannot be installed here",
    "uv is not installed",
    "a plugin of this distribution is missing",
    "could not import '(torch|dp_accounting)'",  # optional oracles
)
"""Reasons for which tests are skipped even where browser, PostgreSQL and Prometheus are required (.ci/run); any other fails there."""
ENGINE_OF = database._sqlite
"""Of a ledger: those of tests share what they compile (``pytest_sessionstart``)."""
ROOT_KEY = "5c" * 32 + "\n"
DEFAULT_RNG = np.random.default_rng
SHARED_GENERATORS: list[tuple[np.random.Generator, Mapping[str, object]]] = []
"""Those of files of tests, with the states in which they were imported."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed-offset", type=int, default=0, help="statistical tests draw other numbers, under another root key"
    )
    parser.addoption("--order-seed", type=int, help="files, and the tests of every file, run in a random order")


def pytest_configure() -> None:
    """Processes that tests start are forked where that shows the same; examples are the same in every run, and have no time limit.

    What does not say where it writes finds an empty folder, which every test leaves empty, and not the state of who runs the tests.

    Imports and the list of tests are no garbage: looking for some among them takes a sixth of the CPU time of the collection.
    """
    gc.disable()
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="dpdist-nobody-")
    forked_programs.prepare()
    hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("tests")


def pytest_unconfigure() -> None:
    """Take away the folder of what says not where it writes."""
    shutil.rmtree(os.environ.pop("XDG_DATA_HOME"), ignore_errors=True)


def pytest_collection_finish() -> None:
    """From here on garbage is collected, among what the tests make; and generators that a file of tests shares stand where it left them."""
    gc.freeze()
    gc.enable()
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            SHARED_GENERATORS.extend(
                (value, value.bit_generator.state)
                for value in vars(module).values()
                if isinstance(value, np.random.Generator)
            )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, all others in their order; or all in the random order of ``--order-seed``, with a file's tests together."""
    refuse_missing_fixtures(items)
    leave_cases_to_other_days(items, DAY)
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    if (seed := config.getoption("--order-seed")) is not None:
        random.Random(seed).shuffle(items)
        ranks = {item.path.name: rank for rank, item in enumerate(items)}
    items.sort(key=lambda item: (ranks.get(item.path.name, len(ranks)), str(item.path) if seed is not None else ""))


def refuse_missing_fixtures(items: list[pytest.Item]) -> None:
    """Name the tests whose fixtures are not there, also those of a slow test that does not run today.

    :raises pytest.UsageError: If there is one.
    """
    for item in items:
        if isinstance(item, pytest.Function):
            found = item._fixtureinfo
            missing = sorted({*found.names_closure} - {*found.name2fixturedefs} - {"request"})
            if missing:
                raise pytest.UsageError(f"{item.nodeid} asks for fixtures that are not there: {', '.join(missing)}")


def pytest_xdist_auto_num_workers() -> int:
    """One process for every core that the tests may use, and two for while others wait for a server."""
    return cores() + 2


def unknown_skip(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why a test is skipped, where the machine has all that tests need and nobody said that it may be."""
    if os.environ.get("DPDIST_TEST_BROWSER") != "required" or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return None
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")
    return None if re.match("|".join(MAY_BE_SKIPPED), reason) else reason


def failed_if_unknown(report: pytest.TestReport | pytest.CollectReport) -> None:
    """A test that nobody meant to leave out fails."""
    if reason := unknown_skip(report):
        report.outcome = "failed"
        report.longrepr = f"skipped, and the reason is none of MAY_BE_SKIPPED of tests/conftest.py: {reason}"


def pytest_sessionstart() -> None:
    """What one ledger's engine has compiled, those of all tests' ledgers know: it is a tenth of a small release's CPU time."""
    engine_of, first = ENGINE_OF.__wrapped__, list[sa.Engine]()

    @lru_cache(maxsize=16)
    def opened(url: sa.URL) -> sa.Engine:
        engine = engine_of(url)
        first.append(engine)
        engine.dialect, engine._compiled_cache = first[0].dialect, first[0]._compiled_cache
        return engine

    database._sqlite = opened


MISSING_PLUGIN = re.compile(r"needs the plugin \W+\w+\W+ of dpdist, which is not installed here")


@contextmanager
def skipping_without_plugin() -> Iterator[None]:
    """What asks in the block for something that a plugin adds is skipped where the plugin was deleted (``make core``)."""
    try:
        yield
    except Exception as error:
        missing = MISSING_PLUGIN.search(str(error))
        if missing is None or not is_plugin_missing():
            raise
        pytest.skip(missing[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Of fixtures."""
    with skipping_without_plugin():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Of tests."""
    with skipping_without_plugin():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests are skipped in CI for known reasons only."""
    report = yield
    failed_if_unknown(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """And so are whole files."""
    report = yield
    failed_if_unknown(report)
    return report


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """What a command that a test runs in this process sets in the environment does not reach the next test."""
    before = dict(os.environ)
    yield
    for name in {*before, *os.environ}:
        if not name.startswith(("PREFECT_", "DPDIST_")) or os.environ.get(name) == before.get(name):
            continue
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]


@pytest.fixture(autouse=True)
def rewound_generators() -> None:
    """What a test draws from a generator that its file shares depends on no other test."""
    for generator, state in SHARED_GENERATORS:
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def seed_offset(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """What ``--seed-offset`` says, for a test that is marked as statistical: its generators and keys draw other numbers."""
    offset: int = request.config.getoption("--seed-offset")
    if not offset or request.node.get_closest_marker("statistical") is None:
        return 0

    def generator(seed: object = None) -> np.random.Generator:
        return DEFAULT_RNG([seed, offset] if isinstance(seed, int) else seed)

    monkeypatch.setattr(np.random, "default_rng", generator)
    for module, name in ((sampler, "_stream"), (exponential_mechanism, "_uniform")):
        draw = getattr(module, name)
        monkeypatch.setattr(module, name, lambda key, *place, draw=draw: draw(_other_key(key, offset), *place))
    return offset


def _other_key(key: bytes, offset: int) -> bytes:
    return hashlib.sha256(bytes(key) + offset.to_bytes(8, "big")).digest()


@pytest.fixture(autouse=True)
def no_state_outside_home() -> Iterator[None]:
    """A test that leaves state where nobody asked for it, as in the home of who runs the tests, fails."""
    yield
    state = Path(os.environ["XDG_DATA_HOME"], "dpdist")
    if state.exists():
        files = sorted(str(path.relative_to(state)) for path in state.rglob("*"))
        shutil.rmtree(state)
        pytest.fail(f"state was written without DPDIST_HOME: {files}; take the fixture 'home'")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed_offset: int) -> Path:
    """A state folder of its own, with a root key; the current folder is beside it.

    The key is always the same, and so are the salts that this process makes: a release draws the same noise in every run of the tests.
    """
    folder = tmp_path / "home"
    monkeypatch.setenv("DPDIST_HOME", str(folder))
    for name in (keys.ENVIRONMENT, keys.FILE_ENVIRONMENT, "DPDIST_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    keys.initialise(folder)
    (folder / "root.key").write_text(f"{int(ROOT_KEY, 16) ^ seed_offset:064x}\n")
    monkeypatch.setattr("dpdist.privacy.ledger.budget_ledger._new_salt", lambda: bytes(range(database.SALT_BYTES)))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return folder


@pytest.fixture
def without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of the test's own, whose connections are in the clear, may be used."""
    monkeypatch.setenv(engine.WITHOUT_TLS, "1")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server for the whole session; every test takes a database of its own."""
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def shaky(postgres: Server) -> Iterator[Server]:
    """The same server, to be stopped and killed; it runs again for the tests that follow."""
    yield postgres
    postgres.start()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """An S3-compatible server on loopback, and a bucket in it that no other server has: opened buckets are remembered by their names."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/dpdist-test-{port}", method="PUT")).close()
        yield f"s3://dpdist-test-{port}"
    server.stop()
