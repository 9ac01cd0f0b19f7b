"""A plugin of pytest: twelve parts of a suite of about equal CPU time, limits on time, and a summary of what the tests took.

``python -m pytest -p tests.suite_parts -m slow --cpu-record tests/slow_cpu_seconds.json --part 3/12 --begin-within 480 tests``
runs the third twelfth of the slow tests, and begins none after eight minutes. A file's tests stay together. The record has the part and the
CPU seconds of every file; ``--write-record`` writes those of the files that a run has finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from tests.case_selection import DATED_CASES, DAY

NOT_BEGUN = "not begun: the time of this run is over"
"""Why a test is skipped after ``--begin-within`` seconds."""
LONGEST_SHOWN = 30
PARTS = 12
Record = Mapping[str, Mapping[str, float]]
"""Of every file its part, and its CPU seconds once it was run whole. Parts are written down, so that no measurement moves a file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("parts of a suite")
    group.addoption("--cpu-record", type=Path, help="file with the part and the CPU seconds of every file of tests")
    group.addoption(
        "--write-record", action="store_true", help="write the CPU seconds of the files that were run into --cpu-record"
    )
    group.addoption("--part", type=_parse_part, help=f"K/{PARTS}: run the Kth of {PARTS} parts of about equal CPU time")
    group.addoption("--begin-within", type=float, help="seconds after which no further test is begun")
    group.addoption(
        "--test-limit", type=int, help="CPU seconds of its process after which a test fails; it may wait ten times as long"
    )
    group.addoption("--test-times", type=Path, help="file for a line of each test: CPU seconds, wall seconds, outcome, name")


def _parse_part(text: str) -> int:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count == str(PARTS) and 1 <= int(number) <= PARTS):
        raise ValueError(f"--part is {text!r}; write K/{PARTS} with K from 1 to {PARTS}, as in 3/{PARTS}")
    return int(number)


def part_number(name: str, record: Record) -> int:
    """The part of a file: the recorded one, or for a new file one by the digest of its name."""
    if name in record:
        return int(record[name]["part"])
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % PARTS + 1


def updated_record(record: Record, seconds: Mapping[str, float]) -> Record:
    """The record with the seconds of a run. A file keeps its part; new ones, the longest first, go to the part with the fewest seconds."""
    updated = {
        name: {**entry, **({"cpu_seconds": seconds[name]} if name in seconds else {})} for name, entry in record.items()
    }
    loads = dict.fromkeys(range(1, PARTS + 1), 0.0)
    for entry in updated.values():
        loads[int(entry["part"])] += entry.get("cpu_seconds", 0.0)
    for name in sorted(seconds.keys() - record.keys(), key=lambda name: (-seconds[name], name)):
        part = min(loads, key=lambda number: loads[number])
        loads[part] += seconds[name]
        updated[name] = {"part": part, "cpu_seconds": seconds[name]}
    return updated


def write_record(record: Record) -> str:
    """The record, one line a file."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record))
    return f"{{\n{lines}\n}}\n"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SuiteParts(config), "suite-parts")


class SuiteParts:
    """Selects tests, limits their time, and sums it up."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        record = config.getoption("--cpu-record")
        self.recorded: Record = json.loads(record.read_text()) if record and record.exists() else {}
        self.begin_before = time.monotonic() + (config.getoption("--begin-within") or float("inf"))
        self.cpu: dict[str, float] = {}
        self.wall: defaultdict[str, float] = defaultdict(float)
        self.outcomes: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the other parts out; the files that took longest begin first."""
        part = self.config.getoption("--part")
        if part:
            others = [item for item in items if part_number(_file(item.nodeid), self.recorded) != part]
            items[:] = [item for item in items if part_number(_file(item.nodeid), self.recorded) == part]
            self.config.hook.pytest_deselected(items=others)
        if self.recorded:
            items.sort(key=lambda item: -self.recorded.get(_file(item.nodeid), {}).get("cpu_seconds", 0.0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what the process and those that it started have used before the test."""
        item.stash[CPU_BEFORE] = _cpu_seconds()
        limit = self.config.getoption("--test-limit")
        if limit:
            signal.signal(signal.SIGPROF, _fail_late)
            signal.signal(signal.SIGALRM, _fail_late)
            signal.setitimer(signal.ITIMER_PROF, limit)
            signal.alarm(10 * limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self.begin_before:
            pytest.skip(NOT_BEGUN)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("cpu_seconds", max(0.0, _cpu_seconds() - item.stash[CPU_BEFORE])))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sum up, in the process that prints."""
        name = report.nodeid
        self.wall[name] += report.duration
        if report.failed:
            self.outcomes[name] = "failed"
        elif report.skipped:
            never_begun = isinstance(report.longrepr, tuple) and NOT_BEGUN in report.longrepr[2]
            self.outcomes[name] = "not begun" if never_begun else "skipped"
        if report.when == "teardown":
            self.cpu[name] = float(dict(report.user_properties).get("cpu_seconds", 0))
            self.outcomes.setdefault(name, "passed")
            times = self.config.getoption("--test-times")
            if times and not hasattr(self.config, "workerinput"):
                with times.open("a") as file:
                    file.write(f"{self.cpu[name]:.2f}\t{self.wall[name]:.2f}\t{self.outcomes[name]}\t{name}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Counts, CPU by folder, the longest tests, and what was not begun."""
        if not self.cpu:
            return
        write = terminalreporter.write_line
        counts = Counter(self.outcomes.values())
        terminalreporter.section("what the tests took")
        write(
            ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            + f"; {sum(self.cpu.values()) / 60:.1f} CPU minutes"
        )
        folders: Counter[str] = Counter()
        for name, seconds in self.cpu.items():
            folders[str(Path(_file(name)).parent)] += seconds  # type: ignore[assignment]
        for folder, seconds in folders.most_common():
            write(f"{seconds:9.1f} CPU s  {folder}")
        write(f"cases drawn for DPDIST_TEST_DAY={DAY}: at most {DATED_CASES} of a test's slow ones")
        write(f"the {LONGEST_SHOWN} that took longest, CPU s and wall s:")
        for name in sorted(self.cpu, key=lambda name: -self.cpu[name])[:LONGEST_SHOWN]:
            write(f"{self.cpu[name]:9.1f} {self.wall[name]:7.1f}  {name}")
        not_begun = sorted(name for name, outcome in self.outcomes.items() if outcome == "not begun")
        for name in not_begun:
            write(f"not begun: {name}")
        if self.config.getoption("--write-record"):
            self._write_record(not_begun)

    def _write_record(self, not_begun: list[str]) -> None:
        """Files of which a test was not begun keep their earlier seconds."""
        unfinished = {_file(name) for name in not_begun}
        sums: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self.cpu.items():
            sums[_file(name)] += seconds
        new = {name: round(seconds, 1) for name, seconds in sums.items() if name not in unfinished}
        self.config.getoption("--cpu-record").write_text(write_record(updated_record(self.recorded, new)))


CPU_BEFORE = pytest.StashKey[float]()


def _file(name: str) -> str:
    return name.partition("::")[0]


def _fail_late(*_: object) -> None:
    pytest.fail("the test took longer than --test-limit")


def _cpu_seconds() -> float:
    """CPU seconds of this process and of all that it started, as those of a fork server, living or waited for."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = re.sub(r"^.*\) ", "", Path("/proc", entry, "stat").read_text(), flags=re.DOTALL).split()
        except OSError:
            continue
        children[int(fields[1])].append(int(entry))
        ticks[int(entry)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, 0)
        waiting += children[process]
    return total / os.sysconf("SC_CLK_TCK")
