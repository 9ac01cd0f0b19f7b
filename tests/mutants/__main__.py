"""``python -m tests.mutants`` draws faults with a fixed seed, plants each in a copy of the tree and runs the tests that notice it first.

The tests of ``TESTS`` first run once without a fault, to learn what each costs and which functions it calls. A fault in a function is then
given to the tests that call it, the cheapest first, until one fails or their CPU time is used up. What was tried is kept under
build/mutants and is not tried again while the module and the test files that decided are the same: a stopped run goes on, and a
survivor for which a test was written is tried again. docs/mutants.md lists the
survivors that change nothing that users could see, and why. Exit code 1 when fewer than nine in ten of the others are caught.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutants.faults import ROOT, Mutant, drawn, equivalents, functions_at, modules
from tests.mutants.runs import Measured, copied, spent, warmed, watched

EQUIVALENT = ROOT / "docs" / "mutants.md"
KEPT = ROOT / "build" / "mutants"
WANTED = 0.9
"""Share of the faults that are to be caught, of those that change anything."""
TESTS = (
    *(
        f"tests/{folder}"
        for folder in (
            "arrays",
            "asking",
            "contracts",
            "domain",
            "grids",
            "machine",
            "mechanisms",
            "privacy",
            "process",
            "properties",
            "records",
            "release",
            "spec",
            "stability",
            "strategies",
            "warehouse",
        )
    ),
    *(f"tests/test_{name}.py" for name in ("identities", "method", "periods", "unit")),
)
"""Files and folders whose tests are to catch the faults."""


def digest(*parts: object) -> str:
    """A short name for contents."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def content(*names: str) -> str:
    """A digest of files and folders of the project."""
    paths = [path for name in names for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*.py"))]
    return digest(sorted((str(path.relative_to(ROOT)), path.read_bytes()) for path in paths))


def groups() -> Iterator[list[str]]:
    """The test files of every entry of ``TESTS``; those that are entries of their own are one group."""
    alone = [name for name in TESTS if name.endswith(".py")]
    yield from (
        sorted(str(path.relative_to(ROOT)) for path in (ROOT / name).glob("test_*.py"))
        for name in TESTS
        if name not in alone
    )
    yield alone


def measured(tree: Path) -> list[Measured]:
    """The tests that pass without a fault, the cheapest first.

    A file of tests is run again when it, what tests share, or a module whose functions it called has changed since.
    """
    shared = content(*sorted(str(path) for path in shared_by_tests()))
    told = list[dict[str, Any]]()
    for names in groups():
        kept = {name: KEPT / f"tests-{digest(shared, name, content(name))}.json" for name in names}
        missing = [name for name in names if not still_holds(kept[name])]
        if missing:
            code, found = watched(tree, missing, calls=True)
            if code not in (0, 1):
                sys.exit(
                    f"the tests did not run without a fault (code {code}):\n{(tree / 'output.txt').read_text()[-4000:]}"
                )
            if code:
                print(
                    "some tests fail without any fault and are left out", (tree / "output.txt").read_text()[-2000:], sep="\n"
                )
            for name in missing:
                mine = [row for row in found if row["test"].partition("::")[0] == name]
                rests = {"tests": mine, "modules": content(*called_by(mine))}
                kept[name].write_text(json.dumps(rests), encoding="utf-8")
        told += [row for name in names for row in json.loads(kept[name].read_text(encoding="utf-8"))["tests"]]
    rows = (Measured(row["test"], row["cpu"], frozenset((file, line) for file, line in row["calls"])) for row in told)
    return sorted(rows, key=lambda row: row.cpu)


def called_by(rows: list[dict[str, Any]]) -> list[str]:
    """The library's modules whose functions tests called, as far as they are still there."""
    files = {file for row in rows for file, _ in row["calls"] if not file.startswith("tests/")}
    return sorted(file for file in files if (ROOT / file).is_file())


def still_holds(kept: Path) -> bool:
    """Whether a file of tests was measured with the modules as they are now."""
    if not kept.exists():
        return False
    earlier = json.loads(kept.read_text(encoding="utf-8"))
    return bool(earlier["modules"] == content(*called_by(earlier["tests"])))


def shared_by_tests() -> Iterator[Path]:
    """Python files of the tests' folder that hold no tests, the mutation run itself left out."""
    paths = (path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))
    return (path for path in paths if not path.name.startswith("test_") and path.parts[1] != "mutants")


def chosen(mutant: Mutant, tests: list[Measured], cpu_seconds: float) -> dict[str, float]:
    """The tests that call the function with the fault, the cheapest first, with the CPU seconds of each.

    What stands outside of functions runs at the import: tests whose file imports the module come first, and where no test calls
    any function of the module, those that call a module that imports it.
    """
    functions, users = functions_at(mutant.module, mutant.line), importing(mutant.module)
    found = [row for row in tests if functions and any((mutant.module, line) in row.calls for line in functions)]
    if not found:
        near = [row for row in tests if row.test.partition("::")[0] in users]
        found = [*near, *(row for row in tests if row not in near and any(file == mutant.module for file, _ in row.calls))]
    found = found or [row for row in tests if any(file in users for file, _ in row.calls)]
    result, total = dict[str, float](), 0.0
    for row in found:
        total += row.cpu
        if result and total > cpu_seconds:
            break
        result[row.test] = row.cpu
    return result


def importing(module: str) -> set[str]:
    """The files of the library and of its tests that import a module."""
    package, _, name = module.removesuffix(".py").replace("/", ".").rpartition(".")
    asked = re.compile(
        rf"^\s*(from {re.escape(package)} import [^\n]*\b{name}\b|(from|import) {re.escape(package)}\.{name}\b)", re.M
    )
    paths = (path for folder in ("dpdist", "tests") for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)) for path in paths if asked.search(path.read_text(encoding="utf-8"))}


class Runs:
    """Plants faults in a copy of the tree, and keeps how each ended."""

    def __init__(self, tree: Path, cpu_seconds: float) -> None:
        self.tree, self.cpu_seconds = tree, cpu_seconds
        self.tests = measured(tree)
        self.written = int(time.time())
        self.alone = set[str]()

    def end(self, mutant: Mutant) -> dict[str, Any]:
        """How the tests end with a fault: 'caught', 'hung' or 'survived', and by which test."""
        tests = chosen(mutant, self.tests, self.cpu_seconds)
        kept = KEPT / f"{digest(mutant, content(mutant.module))}.json"
        if kept.exists():
            earlier: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
            if earlier["decided"] == self._decided(earlier["by"], tests):
                return earlier
        began = spent()
        end, by = self._planted(mutant, tests) if tests else ("survived", None)
        row = {
            "end": end,
            "by": by,
            "decided": self._decided(by, tests),
            "tests": len(tests),
            "cpu": round(spent() - began, 1),
        }
        kept.write_text(json.dumps({**row, "mutant": mutant.name}), encoding="utf-8")
        return row

    def _decided(self, by: str | None, tests: dict[str, float]) -> str:
        """What the end rests on: the file of the test that failed, or all that were run."""
        return (
            content(by.partition("::")[0]) if by else digest(*((test, content(test.partition("::")[0])) for test in tests))
        )

    def _planted(self, mutant: Mutant, tests: dict[str, float]) -> tuple[str, str | None]:
        """Plant, run, take out."""
        path = self.tree / mutant.module
        source = path.read_text(encoding="utf-8")
        self._write(path, mutant.source())
        try:
            code, told = watched(self.tree, list(tests), expected=tests)
        finally:
            self._write(path, source)
        if code == 0:
            return "survived", None
        by = told[0]["test"] if told else None
        self._sound(by if by in tests else next(iter(tests)))
        return ("caught" if code > 0 else "hung"), by

    def _sound(self, test: str) -> None:
        """Stop where a test fails alone without any fault, too: it depends on others."""
        if test not in self.alone and watched(self.tree, [test])[0] != 0:
            sys.exit(
                f"{test} fails alone without any fault: mend it first\n{(self.tree / 'output.txt').read_text()[-4000:]}"
            )
        self.alone.add(test)

    def _write(self, path: Path, source: str) -> None:
        """A module, with a time of change that no compiled form of it has."""
        path.write_text(source, encoding="utf-8")
        self.written += 1
        os.utime(path, (self.written, self.written))


def main() -> int:
    """Draw, plant, tell. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=100, help="how many faults")
    parser.add_argument("--seed", type=int, default=16, help="of the draw of the faults")
    parser.add_argument("--cpu", type=float, default=40, help="CPU seconds of the tests that a fault is given to")
    parser.add_argument("--module", choices=modules(), help="only this one")
    given = parser.parse_args()
    among = [given.module] if given.module else modules()
    os.nice(10)
    warmed()
    KEPT.mkdir(parents=True, exist_ok=True)
    print(f"{given.sample} faults in {len(among)} modules, seed {given.seed}", flush=True)
    known, ends = equivalents(EQUIVALENT), dict[str, list[Mutant]]()
    with tempfile.TemporaryDirectory(prefix="dpdist-mutants-") as folder:
        tree = Path(folder).resolve()
        copied(tree)
        runs = Runs(tree, given.cpu)
        for number, mutant in enumerate(islice(drawn(among, given.seed), given.sample), start=1):
            row = runs.end(mutant)
            end = "equivalent" if row["end"] == "survived" and mutant.name in known else row["end"]
            ends.setdefault(end, []).append(mutant)
            print(
                f"{number:4d} {end:10s} {mutant.module}:{mutant.line} {mutant.operator}: {mutant.before} -> {mutant.after}"
                f" ({row['tests']} tests, {row['cpu']} s, {row['by']})",
                flush=True,
            )
    return told(ends, known)


def told(ends: dict[str, list[Mutant]], known: dict[str, str]) -> int:
    """Print what became of the faults. Returns the exit code."""
    for mutant in ends.get("equivalent", []):
        print(f"equivalent: {mutant.name}: {known[mutant.name]}")
    survivors, caught = ends.get("survived", []), [*ends.get("caught", []), *ends.get("hung", [])]
    for mutant in survivors:
        print(f"survived: {mutant.name}")
    share = len(caught) / max(1, len(caught) + len(survivors))
    counts = f"{len(caught)} caught, {len(survivors)} survived, {len(ends.get('equivalent', []))} equivalent"
    print(f"{counts}: {100 * share:.1f} % caught; {spent():.0f} CPU seconds")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
