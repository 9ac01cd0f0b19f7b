"""Tests in forked processes: the third-party packages are imported once, everything of the project anew in every process."""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from coverage import Coverage

from tests.mutants.faults import PACKAGES, ROOT, named

OURS = ("dpdist", "flows", "tests")
HANGS = 120
"""Seconds without any CPU time after which a run is taken to hang."""
WAITS = 30
"""Seconds after which a test without a fault is given up: it catches nothing. With a fault, it has three times as
many, and ten times its CPU time."""
LONGEST = 60.0
"""CPU seconds of a file of tests that is run without a fault: those of its tests that come later catch nothing."""
STOPPED = "this file has had its time"
FIXTURE = "fixture "
"""Before the name of a fixture, for what it executes in place of a test."""
SPARE = 10.0
"""CPU seconds that a test may take beyond three times what it takes without a fault."""


@dataclass(frozen=True)
class Ran:
    """How tests ended in a process of their own.

    Attributes:
        code: pytest's exit code, negative for a signal, 0 where no test failed.
        began: the tests that began, in their order.
        failed: those that failed, and files that could not be imported.
    """

    code: int
    began: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def noticed(self) -> tuple[str, ...]:
        """Those that failed, and the one in which the process was killed."""
        return self.failed + (self.began[-1:] if self.code < 0 else ())


class Watch:
    """A pytest plugin that limits the CPU time of every test, and writes down which ones begin and which fail."""

    def __init__(self, told: Path, expected: dict[str, float], spare: float) -> None:
        self.told, self.expected, self.spare = told, expected, spare

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        allowed = self.spare + 3 * self.expected.get(item.nodeid, 0.0)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(spent() + allowed), resource.RLIM_INFINITY))
        signal.alarm(math.ceil(3 * WAITS + 10 * allowed))
        self._write("began", item.nodeid)
        yield
        signal.alarm(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("failed", report.nodeid)

    def _write(self, what: str, test: str) -> None:
        with self.told.open("a", encoding="utf-8") as file:
            file.write(json.dumps([what, test]) + "\n")


class LineCoverage:
    """A pytest plugin that measures which lines of the program each test executes, and its CPU seconds."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.without, self.shared = tree, set[str](), dict[str, set[str]]()
        self.cpu, self.by_file = dict[str, float](), dict[Path, float]()
        self.coverage = Coverage(
            data_file=None, config_file=False, messages=False, include=[f"{tree}/{name}/*" for name in PACKAGES]
        )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = spent()
        for fixture in getattr(item, "fixturenames", ()):
            self.shared.setdefault(f"{FIXTURE}{fixture}", set()).add(item.nodeid)
        self.coverage.switch_context(item.nodeid)
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(WAITS)
        yield
        signal.alarm(0)
        self.coverage.switch_context("")
        self.cpu[item.nodeid] = round(spent() - before, 3)
        self.by_file[item.path] = self.by_file.get(item.path, 0.0) + self.cpu[item.nodeid]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """What comes later of a long file is not measured."""
        if self.by_file.get(item.path, 0.0) > LONGEST:
            pytest.skip(STOPPED)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
        """What a fixture executes that several tests share is executed by all that ask for it."""
        shared = fixturedef.scope != "function"
        if shared:
            self.coverage.switch_context(f"{FIXTURE}{fixturedef.argname}")
        yield
        if shared:
            self.coverage.switch_context(request._pyfuncitem.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.without.add(report.nodeid)

    def coverage_report(self) -> dict[str, dict[str, Any]]:
        """Of each file of tests, the CPU seconds of each test that passes, and by module and line the places of those that execute it.

        Lines have names, so that changes elsewhere in a module leave what is known of them.
        """
        reports = {name.partition("::")[0]: {"tests": dict[str, float](), "lines": {}} for name in self.cpu}
        for name in (name for name in self.cpu if name not in self.without):
            reports[name.partition("::")[0]]["tests"][name] = self.cpu[name]
        places = {name: place for report in reports.values() for place, name in enumerate(report["tests"])}
        data = self.coverage.get_data()
        for path in (name for name in data.measured_files() if name.endswith(".py")):  # templates of pages execute, too
            names, module = named(Path(path).read_text(encoding="utf-8")), str(Path(path).relative_to(self.tree))
            for line, contexts in data.contexts_by_lineno(path).items():
                if (
                    not 1 <= line <= len(names)
                ):  # an empty module executes line 0 or 1, and code that was made names what made it
                    continue
                tests = {test for context in contexts for test in self.shared.get(context, (context,))}
                for test in sorted(tests & places.keys(), key=lambda test: places[test]):
                    lines = reports[test.partition("::")[0]]["lines"].setdefault(module, {})
                    lines.setdefault(names[line - 1], []).append(places[test])
        return reports


_LATER = (
    "scipy.signal",
    "scipy.stats",
    "scipy.linalg",
    "scipy.optimize",
    "numba",
    "pandas",
    "hypothesis",
    "xdist.plugin",
    "psycopg",
)
"""What is imported at its first use."""
_ALLOCATOR = "jemalloc_bg_thd"
"""Arrow's memory allocator prepares itself for forks."""


def _give_up(number: int, frame: Any) -> None:
    raise TimeoutError(f"signal {number} in {frame.f_code.co_name}")


def spent() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def warmed() -> None:
    """Import whatever the tests import, save the project itself; no thread may run, for processes are forked from here."""
    imported = ("tests.conftest", "tests.support.small_release", "tests.support.oracles", "flows.commands.cli", *_LATER)
    probe = f"import sys, {', '.join(imported)}; print(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if name.partition(".")[0] not in OURS and name != "__main__":
            with suppress(ImportError):
                importlib.import_module(name)
    assert not any(name.partition(".")[0] in ("dpdist", "flows") for name in sys.modules)
    gc.freeze()
    threads = {
        (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())
    }
    assert threads <= {_ALLOCATOR}, f"threads run that a fork would lose: {sorted(threads)}"


def watched(
    tree: Path,
    tests: list[str],
    *,
    expected: dict[str, float] | None = None,
    spare: float = SPARE,
    to_the_end: bool = False,
) -> Ran:
    """Run tests of a tree in a process of their own, up to the first that fails or to the end.

    Args:
        expected: CPU seconds of each test without a fault; three times that is allowed, and
        spare: CPU seconds more.
    """
    told = tree / "told.jsonl"
    told.unlink(missing_ok=True)
    options = ["--continue-on-collection-errors"] if to_the_end else ["-x"]
    code = _forked(tree, lambda: _run(tree, [*options, *tests], Watch(told, expected or {}, spare)))
    lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()] if told.exists() else []
    began, failed = (tuple(dict.fromkeys(test for what, test in lines if what == of)) for of in ("began", "failed"))
    return Ran(0 if not failed and code == pytest.ExitCode.NO_TESTS_COLLECTED else code, began, failed)


def executed(tree: Path, files: list[str]) -> dict[str, dict[str, Any]]:
    """Run files of tests without a fault, and measure what the tests of each cost and which lines they execute."""
    told = tree / "told.json"
    told.unlink(missing_ok=True)

    def work() -> int:
        plugin = LineCoverage(tree)
        plugin.coverage.start()
        code = _run(tree, files, plugin)
        plugin.coverage.stop()
        told.write_text(json.dumps(plugin.coverage_report()), encoding="utf-8")
        return code

    _forked(tree, work)
    result: dict[str, dict[str, Any]] = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {}
    if not result:
        print(f"not measured: {', '.join(files)}\n{(tree / 'output.txt').read_text(encoding='utf-8')[-2000:]}", flush=True)
    return {file: result.get(file, {"tests": {}, "lines": {}}) for file in files}


def _run(tree: Path, tests: list[str], plugin: object) -> int:
    code = pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[plugin])
    held = importlib.import_module("dpdist").__file__ or ""
    assert held.startswith(str(tree)), f"the tests ran {held}, not the copy"
    return int(code)


def _forked(tree: Path, work: Callable[[], int]) -> int:
    """How a forked process ends that imports the project from the tree."""
    child = os.fork()
    if child == 0:
        _in_child(work, tree)
    return _ended(child)


def _in_child(work: Callable[[], int], tree: Path) -> None:
    """Become a process that imports the project from the tree; never returns."""
    code = 99
    try:
        os.setsid()
        log = os.open(tree / "output.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.chdir(tree)
        sys.path[0] = str(tree)
        os.environ.update(PYTHONPATH=str(tree), NUMBA_CACHE_DIR=str(tree / ".numba"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        sys.modules["__main__"] = ModuleType("__main__")  # processes that tests start would run this command again
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
        code = work()
    finally:
        if code == 99:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(child: int) -> int:
    """How a process ends: its code, or the negative signal; what it leaves behind is ended with it."""
    until, before = time.monotonic() + HANGS, ""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        with suppress(OSError):
            taken = "".join(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15])
            if taken != before:
                until, before = time.monotonic() + HANGS, taken
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def copied(tree: Path) -> None:
    """All files of the project that git would keep, in another folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\n")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
