"""``python -m tests.mutants`` draws lines of the program with a fixed seed, plants a fault in each and runs the tests that notice it first.

A fault is given to the files of tests that are nearest to its module, those of its name, those that import it, those that import what
imports it, and to those that have rare words of its function. These run as they are, each until one of its tests fails or its CPU time is
used up. Faults that survive this come again once all were tried: a file is run without a fault, to learn what its tests cost and execute,
and then the tests run that execute the line, the cheapest first; after the nearest files come the others that were measured. What was tried
is kept under build/mutants and is not tried again while the module and the tests are the same: a run takes a slice of time, and the next
one, or one beside it, goes on. tests/mutants/README.md lists the survivors that change nothing that users could see, and why.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice, product, zip_longest
from pathlib import Path
from typing import Any

from tests.mutants.faults import ROOT, Mutant, drawn, equivalents, lines_since, modules, packed, showing
from tests.mutants.runs import copied, executed, spent, warmed, watched

EQUIVALENT = ROOT / "tests" / "mutants" / "README.md"
KEPT = ROOT / "build" / "mutants"
DOCUMENTED, DOCUMENTATION = ("dpdist/spec/", "flows/"), "tests/test_docs.py::test_generated_pages_are_current"
"""Packages whose declarations pages of the documentation are written from, and the test that compares them."""
SLOWEST = 300.0
"""CPU seconds that a test may take alone and without a fault."""
WANTED = 0.92
"""Share of the faults that are to be caught, of those that change anything."""
FILES, LOOKED_AT, UNMEASURED = 16, 12, 4
"""Files of tests that a fault is given to, at most, among which they are looked for, and that run before any is measured."""


def digest(*parts: object) -> str:
    """A short name for contents."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@cache
def content(*names: str) -> str:
    """A digest of files of the project, as they are when the run begins."""
    return digest(sorted((name, (ROOT / name).read_bytes()) for name in names))


@cache
def imports() -> dict[str, set[str]]:
    """The files of the project that each of its files imports."""
    paths = [path for name in ("dpdist", "flows", "tests") for path in (ROOT / name).rglob("*.py")]
    return {str(path.relative_to(ROOT)): set(_imported(path)) for path in paths}


def _imported(path: Path) -> Iterator[str]:
    """Modules, and names that are modules of packages."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            place = name.replace(".", "/")
            yield from (found for found in (f"{place}.py", f"{place}/__init__.py") if (ROOT / found).is_file())


def files_of_tests() -> list[str]:
    """All of them."""
    return [name for name in imports() if Path(name).name.startswith("test_")]


@cache
def nearest_tests(module: str) -> list[str]:
    """The files of tests for a module, the nearest first: by name, by imports, by imports of what imports it, and so on."""
    distances, found = {module: 0}, {module}
    while found:
        found = {name for name, of in imports().items() if of & found and name not in distances}
        distances.update(dict.fromkeys(found, 1 + max(distances.values())))
    parts = Path(module).with_suffix("").parts
    tests = [name for name in files_of_tests() if name in distances or Path(name).stem == f"test_{parts[-1]}"]

    def order(name: str) -> tuple[bool, int, bool]:
        """First those of the module's name; of all others as near as each other, first those in a folder of its name."""
        named = Path(name).stem == f"test_{parts[-1]}"
        return not named, distances.get(name, len(distances)), not set(Path(name).parts[1:-1]) & set(parts)

    return sorted(sorted(tests), key=order)[:LOOKED_AT]


WORD = re.compile(r"[A-Za-z_]\w{2,}")


@cache
def words_of_tests() -> tuple[dict[str, set[str]], Counter[str]]:
    """The words of each file of tests, and how many files have each word."""
    words = {name: set(WORD.findall((ROOT / name).read_text(encoding="utf-8"))) for name in sorted(files_of_tests())}
    return words, Counter(word for of in words.values() for word in of)


def likely_tests(mutant: Mutant) -> list[str]:
    """The files of tests that run before any is measured: in turn the next nearest and the next that has rare words of the function."""
    words, counts = words_of_tests()
    around = set(WORD.findall(mutant.function()))

    def weight(name: str) -> float:
        """Each word by its rarity, of long files less. Source: Spärck Jones 1972, squared."""
        shared = sum(math.log(len(words) / counts[word]) ** 2 for word in around & words[name])
        return shared / (1.0 + math.log(1 + len(words[name])))

    similar = sorted(words, key=weight, reverse=True)[:LOOKED_AT]
    either = [file for pair in zip_longest(nearest_tests(mutant.module), similar) for file in pair if file is not None]
    return list(dict.fromkeys(either))[:UNMEASURED]


@dataclass(frozen=True)
class Measured:
    """The tests of a file that pass without a fault.

    Attributes:
        tests: CPU seconds of each.
        lines: by module and name of a line, which tests execute it, by their places in that list.
    """

    tests: dict[str, float]
    lines: dict[str, dict[str, list[int]]]

    def showing(self, mutant: Mutant) -> dict[str, float]:
        """The tests that execute the line with the fault. What stands outside of functions shows wherever the module is used."""
        lines, found = self.lines.get(mutant.module, {}), showing(mutant.module, mutant.line)
        places = {place for line in (lines if found is None else found) for place in lines.get(line, [])}
        return {test: cpu for place, (test, cpu) in enumerate(self.tests.items()) if place in places}


class Runs:
    """Plants faults in a copy of the tree, and keeps how each ended."""

    def __init__(self, tree: Path, cpu_seconds: float) -> None:
        self.tree, self.cpu_seconds = tree, cpu_seconds
        self.written = int(time.time())
        self.alone, self.unsound = set[str](), set[str]()

    def earlier_result(self, mutant: Mutant, *, measuring: bool) -> dict[str, Any] | None:
        """How the tests ended with a fault in an earlier run, where nothing that decided has changed.

        A survivor is tried again with more CPU time, and with files of tests that are measured.
        """
        row = self._ended(mutant)
        if row is None:
            return None
        files = [row["by"].partition("::")[0]] if row["by"] else nearest_tests(mutant.module)
        there = all((ROOT / name).is_file() for name in files)
        enough = row["by"] or (row["limit"] >= self.cpu_seconds and row["measuring"] >= measuring)
        return row if there and enough and row["decided"] == content(*files) else None

    def _ended(self, mutant: Mutant) -> dict[str, Any] | None:
        kept = self._result_file(mutant)
        return json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else None

    def missed(self, mutant: Mutant) -> dict[str, Any] | None:
        """How the tests ended that missed a fault when it was tried last, whatever has become of them since.

        Tests that were written later may catch it: the share that counts it as a survivor is a lower one.
        """
        row = self._ended(mutant)
        return None if row is None or row["by"] else row

    def claimed(self, mutant: Mutant) -> bool:
        """Whether another run beside this one tries the fault; if not, this one does."""
        claim = self._result_file(mutant).with_suffix(".claim")
        try:
            with claim.open("x", encoding="utf-8") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return Path(f"/proc/{claim.read_text(encoding='utf-8') or 'self'}").exists()
        return False

    def end(self, mutant: Mutant, *, measuring: bool) -> dict[str, Any]:
        """How the tests end with a fault: 'caught', 'hung' or 'survived', and by which test.

        Args:
            measuring: give the fault to the tests that execute its line, not to the likely files as they are.
        """
        began = spent()
        by = None if measuring else self._failing_in_likely_files(mutant)
        end = "caught" if by else "survived"
        if measuring:
            end, by = self._end_among_measured(mutant)
        decided = content(*([by.partition("::")[0]] if by else nearest_tests(mutant.module)))
        cpu = round(spent() - began, 1)
        row = {"end": end, "by": by, "decided": decided, "measuring": measuring, "cpu": cpu, "limit": self.cpu_seconds}
        self._result_file(mutant).write_text(json.dumps({**row, "mutant": mutant.name}), encoding="utf-8")
        self._result_file(mutant).with_suffix(".claim").unlink(missing_ok=True)
        return row

    def _failing_in_likely_files(self, mutant: Mutant) -> str | None:
        """The first test that fails with a fault: the one that caught it last, the documentation's, or one of the likely files.

        Each file runs until its CPU seconds are used up. One that is killed is left to the run that knows what its tests cost.
        """
        before = self._ended(mutant)
        near = likely_tests(mutant)
        if before is not None and before["by"]:
            near.insert(0, before["by"])
        if _is_documented(mutant):
            near.insert(0, DOCUMENTATION)
        for file in near:
            while True:
                with self._fault(mutant):
                    code, by = watched(self.tree, [file], leave_out=self.unsound, stop_after=self.cpu_seconds)
                if code <= 0:
                    break
                by = by or file
                if self._sound(by):
                    return by
                if by == file or by in self.unsound:
                    break
                self.unsound.add(by)
        return None

    def _end_among_measured(self, mutant: Mutant) -> tuple[str, str | None]:
        """How the tests end that execute the line with a fault, the cheapest of each file, and which one caught it."""
        left, asked = self.cpu_seconds, 0
        end, by = "survived", None
        for tests in self._tests_for(mutant):
            some = cheapest(tests, max(left / 3, 2.0))
            left, asked = left - sum(some.values()), asked + 1
            end, by = self._planted(mutant, some)
            if end != "survived" or left <= 0 or asked == FILES:
                break
        return end, by

    def _tests_for(self, mutant: Mutant) -> Iterator[dict[str, float]]:
        """The tests of one file after the other that execute the line with the fault; where none does, all of the nearest file.

        What runs in other processes is executed by no test.
        """
        near, found = nearest_tests(mutant.module), False
        for file in [*near, *(file for file in files_of_tests() if file not in near and self._measured_at(file).exists())]:
            tests = self.measured(file).showing(mutant)
            if tests:
                found = True
                yield tests
        if near and not found and self.measured(near[0]).tests:
            yield self.measured(near[0]).tests

    @cache  # noqa: B019 - there is one
    def measured(self, file: str) -> Measured:
        """What the tests of a file that pass without a fault cost, and which lines they execute."""
        kept = self._measured_at(file)
        if not kept.exists():
            made = kept.with_suffix(f".{os.getpid()}")
            made.write_text(json.dumps(executed(self.tree, file)), encoding="utf-8")
            made.replace(kept)
        return Measured(**json.loads(kept.read_text(encoding="utf-8")))

    def _measured_at(self, file: str) -> Path:
        return KEPT / f"tests-{digest(file, content(file))}.json"

    def _result_file(self, mutant: Mutant) -> Path:
        return KEPT / f"{digest(mutant.name, mutant.kind, mutant.edit.start, content(mutant.module))}.json"

    def _planted(self, mutant: Mutant, tests: dict[str, float]) -> tuple[str, str | None]:
        with self._fault(mutant):
            code, by = watched(self.tree, list(tests), expected=tests)
        if code == 0:
            return "survived", None
        by = by if by in tests else next(iter(tests))
        if not self._sound(by):
            return "survived", None
        return ("caught" if code > 0 else "hung"), by

    @contextmanager
    def _fault(self, mutant: Mutant) -> Iterator[None]:
        """Plant it, and take it out at the end."""
        path = self.tree / mutant.module
        source = path.read_text(encoding="utf-8")
        self._write(path, mutant.source())
        try:
            yield
        finally:
            self._write(path, source)

    def _sound(self, test: str) -> bool:
        """Whether a test passes alone without any fault: one that depends on others has caught nothing.

        Of a file that cannot be imported with a fault, the tests run until their CPU seconds are used up.
        """
        if test not in self.alone and watched(self.tree, [test], spare=SLOWEST, stop_after=self.cpu_seconds)[0] != 0:
            print(f"{test} fails alone without any fault: mend it", flush=True)
            return False
        self.alone.add(test)
        return True

    def _write(self, path: Path, source: str) -> None:
        """A module, with a time of change that no compiled form of it has."""
        path.write_text(source, encoding="utf-8")
        self.written += 1
        os.utime(path, (self.written, self.written))


def _is_documented(mutant: Mutant) -> bool:
    """Whether pages of the documentation are written from the line of a fault."""
    return mutant.module.startswith(DOCUMENTED) and showing(mutant.module, mutant.line) is None


def cheapest(tests: dict[str, float], cpu_seconds: float) -> dict[str, float]:
    """As many tests as their CPU time allows, one at least, with the CPU seconds of each."""
    result, total = dict[str, float](), 0.0
    for test, cpu in sorted(tests.items(), key=lambda row: row[1]):
        total += cpu
        if result and total > cpu_seconds:
            break
        result[test] = cpu
    return result


def interval(caught: int, of: int) -> tuple[float, float]:
    """A 95 % confidence interval of a share. Source: Clopper and Pearson 1934."""
    from scipy import stats

    low = float(stats.beta.ppf(0.025, caught, of - caught + 1)) if caught else 0.0
    return low, float(stats.beta.ppf(0.975, caught + 1, of - caught)) if caught < of else 1.0


def main() -> int:
    """Draw, plant, tell. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=500, help="how many faults there are to be")
    parser.add_argument("--minutes", type=float, default=20, help="of this run; the next one goes on")
    parser.add_argument("--seed", type=int, default=37, help="of the draw of the lines")
    parser.add_argument("--cpu", type=float, default=40, help="CPU seconds of the tests that a fault is given to")
    parser.add_argument("--since", help="a revision: lines that are newer are three times as likely")
    parser.add_argument("--module", nargs="+", default=[], help="only modules whose path begins so, such as a folder's")
    given = parser.parse_args()
    os.nice(max(0, 10 - os.nice(0)))
    until = time.monotonic() + 60 * given.minutes
    warmed()
    KEPT.mkdir(parents=True, exist_ok=True)
    new = lines_since(given.since) if given.since else ()
    sample = list(islice(drawn(modules(*given.module), given.seed, new), given.sample))
    print(f"{len(sample)} faults, seed {given.seed}", flush=True)
    known, rows = equivalents(EQUIVALENT), dict[str, dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="dpdist-mutants-") as folder:
        tree = Path(folder).resolve()
        copied(tree)
        runs = Runs(tree, given.cpu)
        for measuring, (number, mutant) in product((False, True), enumerate(sample, start=1)):
            row = runs.earlier_result(mutant, measuring=measuring)
            if row is None and packed(mutant.name) in known:
                row = runs.missed(mutant)
            if row is None and time.monotonic() < until and not runs.claimed(mutant):
                row = runs.end(mutant, measuring=measuring)
                print(
                    f"{number:4d} {row['end']:9s} {mutant.module}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}"
                    f" ({row['cpu']} s, {row['by']})",
                    flush=True,
                )
            row = row or runs.missed(mutant)
            if row is not None:
                rows[mutant.name] = row
    ends = dict[str, list[Mutant]]()
    for mutant in (mutant for mutant in sample if mutant.name in rows):
        end = rows[mutant.name]["end"]
        ends.setdefault("equivalent" if end == "survived" and packed(mutant.name) in known else end, []).append(mutant)
    return print_summary(ends, known, len(sample))


def print_summary(ends: dict[str, list[Mutant]], known: dict[str, str], asked: int) -> int:
    """Print what became of the faults of all runs. Returns the exit code: 1 once too few of all that were asked for are caught."""
    for mutant in ends.get("equivalent", []):
        print(f"equivalent: {mutant.name}: {known[packed(mutant.name)]}")
    survivors, caught = ends.get("survived", []), [*ends.get("caught", []), *ends.get("hung", [])]
    for mutant in survivors:
        print(f"survived: {mutant.module}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}")
    tried = len(caught) + len(survivors)
    share, (low, high) = len(caught) / max(1, tried), interval(len(caught), tried) if tried else (0.0, 1.0)
    done = tried + len(ends.get("equivalent", []))
    print(
        f"{done} of {asked} faults tried: {len(caught)} caught, {len(survivors)} survived, {done - tried} equivalent: "
        f"{100 * share:.1f} % caught (95 % interval {100 * low:.1f} to {100 * high:.1f} %); {spent():.0f} CPU seconds in this run"
    )
    return 1 if done == asked and share < WANTED else 0


if __name__ == "__main__":
    sys.exit(main())
