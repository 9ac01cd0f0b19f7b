"""``python -m tests.mutants`` draws lines of the program with a fixed seed, plants a fault in each and runs the tests that execute it.

First every file of tests runs once without a fault, to learn what its tests cost and which lines each of them executes; this is kept while
the file is the same. A fault is then given to the tests that execute its line: those of the nearest files first, and of each file the
cheapest, until one fails or their CPU time is used up. Faults that survive this are planted together, once all were tried, and all tests
run that execute a line of one of them; what fails is asked about each of these alone. Before that, the types and the linter are asked,
which every change has to pass. What was tried is kept under build/mutants and is not tried again while the module and the tests are the
same: a run takes a slice of time, and the next one, or one beside it, goes on.
tests/mutants/README.md lists the survivors that change nothing that users could see, and why.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutants.faults import ROOT, Mutant, drawn, equivalents, lines_since, modules, packed, showing, with_faults
from tests.mutants.runs import copied, executed, spent, warmed, watched

EQUIVALENT = ROOT / "tests" / "mutants" / "README.md"
KEPT = ROOT / "build" / "mutants"
DOCUMENTED, DOCUMENTATION = (
    ("dpdist/spec/", "dpdist/plugins/", "flows/"),
    "tests/test_docs.py::test_generated_pages_are_current",
)
"""Packages whose declarations pages of the documentation are written from, and the test that compares them."""
CHECKS = {
    "pyproject.toml::mypy": ("mypy",),
    "pyproject.toml::ruff": ("ruff", "check", "--quiet", "--no-cache", "--select", "F,B", "{module}"),
    "tests/test_contributing_rules.py": ("pytest", "-q", "-x", "-n", "0", "tests/test_contributing_rules.py"),
}
"""What every change has to pass beside the tests that execute it: types, unused names, what is almost always a mistake, and the tests that
read all files; not how it is written."""
SLOWEST = 300.0
"""CPU seconds that a test may take alone and without a fault."""
WANTED = 0.92
"""Share of the faults that are to be caught, of those that change anything."""
LOOKED_AT = 12
"""The nearest files of tests; a survivor is tried again when one of them has changed."""
BATCH = 12
"""Files of tests that are measured in one process."""
FILES = 12
"""Files of tests that a fault is given to alone."""


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


@dataclass(frozen=True)
class Measured:
    """The tests of a file that pass without a fault.

    Attributes:
        tests: CPU seconds of each.
        lines: by module and name of a line, which tests execute it, by their places in that list.
    """

    tests: dict[str, float]
    lines: dict[str, dict[str, list[int]]]

    def executing(self, mutant: Mutant) -> dict[str, float]:
        """The tests that execute the line with the fault. What stands outside of functions shows wherever the module is used."""
        lines, found = self.lines.get(mutant.module, {}), showing(mutant.module, mutant.line)
        places = {place for line in (lines if found is None else found) for place in lines.get(line, [])}
        return {test: cpu for place, (test, cpu) in enumerate(self.tests.items()) if place in places}


class Runs:
    """Plants faults in a copy of the tree, and keeps how each ended."""

    def __init__(self, tree: Path, cpu_seconds: float) -> None:
        self.tree, self.cpu_seconds = tree, cpu_seconds
        self.written = int(time.time())
        self.alone = set[str]()
        self.cpu_of_tests, self.executing = dict[str, dict[str, float]](), dict[Mutant, dict[str, dict[str, float]]]()

    def earlier_result(self, mutant: Mutant) -> dict[str, Any] | None:
        """How the tests ended with a fault in an earlier run, where nothing that decided has changed.

        A survivor is tried again with more CPU time.
        """
        row = self._ended(mutant)
        if row is None:
            return None
        files = [row["by"].partition("::")[0]] if row["by"] else nearest_tests(mutant.module)
        there = all((ROOT / name).is_file() for name in files)
        enough = row["by"] or row["limit"] >= self.cpu_seconds
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
        return _claim(self._result_file(mutant))

    def measure(self) -> None:
        """Run every file of tests once that no run has measured; those that a run beside this one measures now are waited for.

        Files of one folder, which have more in common than others, come in different processes: what one test has kept in memory,
        the next does not execute.
        """
        while left := [file for file in sorted(files_of_tests()) if not self._measured_at(file).exists()]:
            stride = -(-len(left) // BATCH)
            for some in (left[start::stride] for start in range(stride)):
                begun = [
                    file for file in some if not self._measured_at(file).exists() and not _claim(self._measured_at(file))
                ]
                for file, measured in executed(self.tree, begun).items() if begun else ():
                    made = self._measured_at(file).with_suffix(f".{os.getpid()}")
                    made.write_text(json.dumps(measured), encoding="utf-8")
                    made.replace(self._measured_at(file))
                    _release(self._measured_at(file))
            time.sleep(1.0)

    def read_measurements(self, mutants: list[Mutant]) -> None:
        """What is known of the tests that execute the lines of these faults."""
        for file in files_of_tests():
            measured = Measured(**json.loads(self._measured_at(file).read_text(encoding="utf-8")))
            self.cpu_of_tests[file] = measured.tests
            for mutant in mutants:
                if tests := measured.executing(mutant):
                    self.executing.setdefault(mutant, {})[file] = tests

    def end(self, mutant: Mutant) -> dict[str, Any]:
        """How the tests end with a fault: 'caught', 'hung' or 'survived', and by which test."""
        began, tests = spent(), self.tests_for(mutant)
        end, by = self._planted(mutant, tests)
        while by is not None and not self._sound(by):
            tests = {test: cpu for test, cpu in tests.items() if test != by}
            end, by = self._planted(mutant, tests)
        if by is None and (check := self._check_that_refuses(mutant)) is not None:
            end, by = "caught", check
        return self._keep(mutant, {"end": end, "by": by, "cpu": round(spent() - began, 1)})

    def _check_that_refuses(self, mutant: Mutant) -> str | None:
        """Which of the checks refuses a fault that the tests have missed, if one does."""
        with self._fault(mutant):
            return next((name for name in CHECKS if not self.passes(name, mutant.module)), None)

    def passes(self, check: str, module: str) -> bool:
        """Whether a check refuses nothing of a module as it stands in the copy of the tree.

        Raises: RuntimeError where the check cannot run.
        """
        program, *options = CHECKS[check]
        done = subprocess.run(
            [sys.executable, "-m", program, *(option.format(module=module) for option in options)],
            cwd=self.tree,
            capture_output=True,
            text=True,
        )
        if done.returncode > 1:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done.returncode == 0

    def _keep(self, mutant: Mutant, row: dict[str, Any]) -> dict[str, Any]:
        """Write down how the tests ended with a fault."""
        by = row["by"]
        decided = content(*([by.partition("::")[0]] if by else nearest_tests(mutant.module)))
        row = {**row, "decided": decided, "limit": self.cpu_seconds}
        self._result_file(mutant).write_text(json.dumps({**row, "mutant": mutant.name}), encoding="utf-8")
        _release(self._result_file(mutant))
        return row

    def end_together(self, survivors: list[Mutant], until: float) -> Iterator[tuple[Mutant, dict[str, Any]]]:
        """The faults, of those that survived alone, that other tests catch which execute their lines.

        They are planted together, so that all of them take one run of these tests. What one fault hides of another is not found, and
        stays a survivor. Where no test executes a line, whatever fails is asked.
        """
        left = {mutant: set((self._ended(mutant) or {}).get("together", ())) for mutant in survivors}
        files = sorted(files_of_tests())
        stride = -(-len(files) // BATCH)
        for some in (files[start::stride] for start in range(stride)):
            tests = dict[str, float]()
            for mutant, asked in left.items():
                for file in (file for file in some if digest(file, content(file)) not in asked):
                    tests |= self.executing.get(mutant, {}).get(file, {})
            if not tests or time.monotonic() > until:
                continue
            for test in self._failing_together(list(left), tests):
                for mutant in [mutant for mutant in left if self._may_fail(test, mutant)]:
                    end, by = self._planted(mutant, {test: tests[test]})
                    if by is not None and self._sound(by):
                        del left[mutant]
                        yield mutant, self._keep(mutant, {"end": end, "by": by, "cpu": 0.0})
            for mutant, asked in left.items():
                asked |= {digest(file, content(file)) for file in some}
                self._keep(mutant, {"end": "survived", "by": None, "cpu": 0.0, "together": sorted(asked)})

    def _may_fail(self, test: str, mutant: Mutant) -> bool:
        """Whether a test executes the line of a fault, or no test is known to."""
        return mutant not in self.executing or test in self.executing[mutant].get(test.partition("::")[0], {})

    def _failing_together(self, mutants: list[Mutant], tests: dict[str, float]) -> Iterator[str]:
        """The tests that fail with several faults; after one in which the process is killed, the others run on."""
        left = tests
        while left:
            with ExitStack() as planted:
                for module in {mutant.module for mutant in mutants}:
                    planted.enter_context(self._fault(*(mutant for mutant in mutants if mutant.module == module)))
                ran = watched(self.tree, list(left), expected=left, to_the_end=True)
            for noticed in ran.noticed:  # a file that cannot be imported has no test that began
                yield from (test for test in tests if test == noticed or test.startswith(f"{noticed}::"))
            left = {test: cpu for test, cpu in left.items() if test not in ran.began} if ran.code < 0 and ran.began else {}

    def tests_for(self, mutant: Mutant) -> dict[str, float]:
        """The tests that a fault is given to, and the CPU seconds of each.

        These are the test that caught it last, the one that compares the documentation's pages, and those that execute its line, file by
        file; where none does, as with what runs in other processes, those of the nearest files.
        """
        before, chosen = self._ended(mutant), dict[str, float]()
        if before is not None and before["by"] and before["by"] not in CHECKS:
            chosen[before["by"]] = self.cpu_of_tests.get(before["by"].partition("::")[0], {}).get(before["by"], 0.0)
        if _is_documented(mutant):
            chosen[DOCUMENTATION] = 0.0
        near = nearest_tests(mutant.module)
        files = self.executing.get(mutant) or {file: self.cpu_of_tests.get(file, {}) for file in near}
        nearness = {file: place for place, file in enumerate(near)}

        def price(file: str) -> float:
            """CPU seconds of its cheapest test, more the farther it is."""
            return (0.05 + min(files[file].values(), default=math.inf)) * (1 + nearness.get(file, len(near)))

        left = self.cpu_seconds
        for file in sorted(files, key=price)[:FILES]:
            some = cheapest(files[file], max(left / 3, 2.0)) if files[file] else {}
            chosen.update({test: cpu for test, cpu in some.items() if test not in chosen})
            left -= sum(some.values())
            if left <= 0:
                break
        return chosen

    def _measured_at(self, file: str) -> Path:
        return KEPT / f"tests-{digest(file, content(file))}.json"

    def _result_file(self, mutant: Mutant) -> Path:
        return KEPT / f"{digest(mutant.name, mutant.kind, mutant.edit.start, content(mutant.module))}.json"

    def _planted(self, mutant: Mutant, tests: dict[str, float]) -> tuple[str, str | None]:
        if not tests:
            return "survived", None
        with self._fault(mutant):
            ran = watched(self.tree, list(tests), expected=tests)
        if ran.code == 0:
            return "survived", None
        by = next((test for test in ran.noticed if test in tests), next(iter(tests)))
        return ("caught" if ran.code > 0 else "hung"), by

    @contextmanager
    def _fault(self, *mutants: Mutant) -> Iterator[None]:
        """Plant faults of one module, and take them out at the end."""
        path = self.tree / mutants[0].module
        source = path.read_text(encoding="utf-8")
        self._write(path, with_faults(mutants))
        try:
            yield
        finally:
            self._write(path, source)

    def _sound(self, test: str) -> bool:
        """Whether a test passes alone without any fault: one that depends on others has caught nothing."""
        if test not in self.alone and watched(self.tree, [test], spare=SLOWEST).code != 0:
            print(f"{test} fails alone without any fault: mend it", flush=True)
            return False
        self.alone.add(test)
        return True

    def _write(self, path: Path, source: str) -> None:
        """A module, with a time of change that no compiled form of it has."""
        path.write_text(source, encoding="utf-8")
        self.written += 1
        os.utime(path, (self.written, self.written))


def _claim(result: Path) -> bool:
    """Whether another run that goes on has claimed to make a result; if not, this one does."""
    claim = result.with_suffix(".claim")
    try:
        with claim.open("x", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        if Path(f"/proc/{claim.read_text(encoding='utf-8') or 'self'}").exists():
            return True
        claim.write_text(str(os.getpid()), encoding="utf-8")
    return False


def _release(result: Path) -> None:
    result.with_suffix(".claim").unlink(missing_ok=True)


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
    parser.add_argument("--cpu", type=float, default=10, help="CPU seconds of the tests that a fault is given to alone")
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
        for check in CHECKS:
            if not runs.passes(check, "dpdist"):
                raise SystemExit(f"{check} refuses the program as it is: mend it")
        runs.measure()
        runs.read_measurements(sample)
        for number, mutant in enumerate(sample, start=1):
            row = runs.earlier_result(mutant)
            if row is None and packed(mutant.name) in known:
                row = runs.missed(mutant)
            if row is None and time.monotonic() < until and not runs.claimed(mutant):
                row = runs.end(mutant)
                print_end(number, mutant, row)
            row = row or runs.missed(mutant)
            if row is not None:
                rows[mutant.name] = row
        survivors = [
            each for each in sample if each.name in rows and not rows[each.name]["by"] and packed(each.name) not in known
        ]
        for mutant, row in runs.end_together(survivors, until):
            rows[mutant.name] = row
            print_end(sample.index(mutant) + 1, mutant, row)
    ends = dict[str, list[Mutant]]()
    for mutant in (mutant for mutant in sample if mutant.name in rows):
        end = rows[mutant.name]["end"]
        ends.setdefault("equivalent" if end == "survived" and packed(mutant.name) in known else end, []).append(mutant)
    return print_summary(ends, known, len(sample))


def print_end(number: int, mutant: Mutant, row: dict[str, Any]) -> None:
    """Print what became of a fault."""
    changed = f"{mutant.module}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}"
    print(f"{number:4d} {row['end']:9s} {changed} ({row['cpu']} s, {row['by']})", flush=True)


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
