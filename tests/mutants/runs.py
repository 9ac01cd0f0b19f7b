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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutants.faults import ROOT

OURS = ("dpdist", "flows", "tests")
HANGS = 600
"""Seconds without any CPU time after which a run is taken to hang."""
LONGEST = 60.0
"""CPU seconds of a file of tests that is run without a fault: those of its tests that come later catch nothing."""
SPARE = 10.0
"""CPU seconds that a test may take beyond three times what it takes without a fault."""


@dataclass(frozen=True)
class Measured:
    """One test of an undisturbed tree: its CPU seconds, and the functions that it calls, by file and first line."""

    test: str
    cpu: float
    calls: frozenset[tuple[str, int]] = field(repr=False)


class Watch:
    """A pytest plugin that limits the CPU time of every test, and writes down the first that fails or what each one calls."""

    def __init__(self, told: Path, expected: dict[str, float], spare: float, calls: bool) -> None:
        self.told, self.expected, self.spare, self.record = told, expected, spare, calls
        self.called: set[CodeType] = set()
        self.failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = spent()
        if not self.record:
            allowed = self.spare + 3 * self.expected.get(item.nodeid, 0.0)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(before + allowed), resource.RLIM_INFINITY))
        self.called.clear()
        trace = self._trace if self.record else None
        threading.settrace(trace)
        sys.settrace(trace)
        yield
        sys.settrace(None)
        threading.settrace(None)
        if self.record and item.nodeid not in self.failed:
            self._tell(test=item.nodeid, cpu=round(spent() - before, 3), calls=self._calls())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (self.record and report.skipped):
            self.failed.add(report.nodeid)
        if report.failed and not self.record:
            self._tell(test=report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell(test=report.nodeid)

    def _trace(self, frame: FrameType, event: str, value: Any) -> None:
        del event, value
        self.called.add(frame.f_code)

    def _calls(self) -> list[tuple[str, int]]:
        """The project's own functions among those that were called: file and first line."""
        own = (code for code in self.called if code.co_filename.startswith(_HERE))
        return sorted({(code.co_filename.removeprefix(_HERE), code.co_firstlineno) for code in own})

    def _tell(self, **facts: Any) -> None:
        with self.told.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")


_HERE = ""
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


def spent() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def warmed() -> None:
    """Import whatever the tests import, save the project itself; no thread may run, for processes are forked from here."""
    probe = f"import sys, tests.conftest, tests.small, tests.oracles, flows.cli, {', '.join(_LATER)}; print(*sys.modules)"
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
    tree: Path, tests: list[str], *, expected: dict[str, float] | None = None, spare: float = SPARE, calls: bool = False
) -> tuple[int, list[dict[str, Any]]]:
    """Run tests of a tree in a process of their own, up to the first that fails.

    Args:
        expected: CPU seconds of each test without a fault; three times that is allowed, and
        spare: CPU seconds more.
        calls: run all of them without limits, and tell what each one calls.
    Returns: the exit code, negative for a signal; and what the plugin told.
    """
    told = tree / "told.jsonl"
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _in_child(lambda: _run(tree, tests, Watch(told, expected or {}, spare, calls)), tree)
    code = _ended(child)
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    return code, [json.loads(line) for line in lines]


def _run(tree: Path, tests: list[str], watch: Watch) -> int:
    options = ["-q", "-p", "no:cacheprovider", *([] if watch.record else ["-x"])]
    if watch.record:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(spent() + LONGEST), resource.RLIM_INFINITY))
    code = pytest.main([*options, *tests], plugins=[watch])
    held = importlib.import_module("dpdist").__file__ or ""
    assert held.startswith(str(tree)), f"the tests ran {held}, not the copy"
    return int(code)


def _in_child(work: Callable[[], int], tree: Path) -> None:
    """Become a process that imports the project from the tree; never returns."""
    global _HERE
    code = 99
    try:
        os.setsid()
        log = os.open(tree / "output.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.chdir(tree)
        _HERE = f"{tree}{os.sep}"
        sys.path[0] = str(tree)
        os.environ.update(PYTHONPATH=str(tree), NUMBA_CACHE_DIR=str(tree / ".numba"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
        code = work()
    finally:
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
