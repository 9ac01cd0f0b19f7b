"""Mutation runs: small faults planted one at a time in the code that privacy rests on, each to be caught by the tests of its module.

``python -m tests.mutants`` draws a sample of faults with a fixed seed, plants each in a copy of the tree and runs the tests that
concern the module, with a limit in CPU seconds. docs/mutants.md lists the survivors that change nothing that users could see, and
why. Exit code 1 when fewer than nine in ten of the others are caught. What was tried before is kept under build/mutants, by fault
and content of the module, and is not tried again.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).parent.parent
EQUIVALENT = ROOT / "docs" / "mutants.md"
KEPT = ROOT / "build" / "mutants"
WANTED = 0.9
"""Share of the faults that are to be caught, of those that change anything."""
HANGS = 1800
"""Seconds after which a run that takes no CPU time is taken to hang, on a busy machine, too."""

SENSITIVITY, INTERVALS = "tests/properties/test_sensitivity.py", "tests/properties/test_intervals.py"
ADDRESSES, AMOUNTS = "tests/properties/test_addresses.py", "tests/properties/test_amounts.py"
ORDER, CERTIFICATE = "tests/properties/test_order.py", "tests/properties/test_certificate.py"
COUNTING, GRID = "tests/properties/test_counting.py", "tests/strategies/test_grid.py"
TESTS: dict[str, tuple[str, ...]] = {
    "dpdist/privacy/accounting.py": (AMOUNTS, "tests/privacy/test_accounting.py"),
    "dpdist/privacy/keys.py": ("tests/privacy/test_keys.py",),
    **{
        f"dpdist/privacy/{name}.py": ("tests/privacy/test_ledger.py", "tests/release/test_ledger_and_store.py", ORDER)
        for name in ("ledger", "charges", "database", "derived", "migration", "replay")
    },
    "dpdist/privacy/meaning.py": ("tests/privacy/test_protection.py", CERTIFICATE),
    **{f"dpdist/privacy/{name}.py": ("tests/privacy/test_noise.py",) for name in ("noise", "sampler")},
    "dpdist/privacy/protection.py": ("tests/privacy/test_protection.py",),
    "dpdist/strategies/dawa.py": ("tests/strategies/test_dawa.py", SENSITIVITY),
    "dpdist/strategies/grid.py": (SENSITIVITY, GRID),
    "dpdist/strategies/hadamard_grid.py": (SENSITIVITY, "tests/strategies/test_dnf.py"),
    "dpdist/strategies/kernel_grid.py": (SENSITIVITY, "tests/strategies/test_convolution.py"),
    "dpdist/strategies/lattice.py": (SENSITIVITY, GRID),
    "dpdist/strategies/term_grid.py": (SENSITIVITY, "tests/strategies/test_terms.py"),
    "dpdist/domain.py": ("tests/test_domain.py", COUNTING),
    "dpdist/records/counting.py": (COUNTING, "tests/records/test_counting.py"),
    "dpdist/release/exact.py": (ADDRESSES, SENSITIVITY),
    "dpdist/release/reconstruct.py": (GRID, INTERVALS, "tests/strategies/test_terms.py"),
    "dpdist/stages.py": (CERTIFICATE, ORDER, INTERVALS, "tests/release/test_stream.py", "tests/release/test_release.py"),
    "dpdist/store.py": ("tests/test_store.py",),
}
"""The modules, and the tests that concern each, those first that catch most."""
OPERATORS = tuple(
    f"core/{name}"
    for name in (
        *(
            f"ReplaceBinaryOperator_{pair}"
            for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul")
        ),
        *(f"ReplaceBinaryOperator_{pair}" for pair in ("Pow_Mul", "RShift_LShift", "LShift_RShift", "BitAnd_BitOr")),
        *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
        *(f"ReplaceComparisonOperator_{pair}" for pair in ("Is_IsNot", "IsNot_Is")),
        *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "AddNot"),
        *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
        *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
    )
)
"""One replacement for every construct: several for one would only be caught or missed together."""


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        before, after: the lines that it changes.
    """

    module: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """What it is, wherever the line stands."""
        return f"{self.module}: {self.before} -> {self.after}"


Place = tuple[str, str, int]
"""A module, an operator, and which of the constructs that it changes."""


def places_in(module: str) -> Iterator[Place]:
    """Every place where an operator finds something to change."""
    nodes = list(ast_nodes(get_ast((ROOT / module).read_text(encoding="utf-8"))))
    for name in OPERATORS:
        operator = get_operator(name)()
        found = sum(len(list(operator.mutation_positions(node))) for node in nodes)
        yield from ((module, name, occurrence) for occurrence in range(found))


def mutant_at(place: Place) -> Mutant | None:
    """The fault; None where the compiler sees no other program, annotations aside."""
    module, name, occurrence = place
    source = (ROOT / module).read_text(encoding="utf-8")
    changed = mutate_code(source, get_operator(name)(), occurrence)
    if changed is None or compiled(changed) in (None, compiled(source)):
        return None
    lines = source.splitlines(), changed.splitlines()
    difference = difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes()
    _, start, stop, first, last = next(code for code in difference if code[0] != "equal")
    before, after = (" ".join(part).strip() for part in (lines[0][start:stop], lines[1][first:last]))
    return Mutant(module, name.partition("/")[2], occurrence, start + 1, before, after)


def compiled(source: str) -> str | None:
    """The program without annotations; None when it is none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def equivalents() -> dict[str, str]:
    """Faults that change nothing that users could see, with the reason: the rows of the table in docs/mutants.md."""
    rows = (line.strip().strip("|").split(" | ") for line in EQUIVALENT.read_text(encoding="utf-8").splitlines())
    return {
        f"{row[0].strip(' `')}: {row[1].strip(' `')} -> {row[2].strip(' `')}": row[3].strip()
        for row in rows
        if len(row) == 4
    }


def planted(mutant: Mutant, tree: Path, cpu_seconds: int) -> str:
    """How the tests of the module end with the fault in place: 'caught', 'hung' or 'survived'."""
    path = tree / mutant.module
    source = path.read_text(encoding="utf-8")
    changed = mutate_code(source, get_operator(f"core/{mutant.operator}")(), mutant.occurrence)
    assert changed is not None
    path.write_text(changed, encoding="utf-8")
    try:
        return tested(mutant.module, tree, cpu_seconds)
    finally:
        path.write_text(source, encoding="utf-8")


def tested(module: str, tree: Path, cpu_seconds: int) -> str:
    """How the tests of a module end in a tree."""

    def limited() -> None:
        os.nice(15)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))

    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS[module]]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, check=False, timeout=HANGS, preexec_fn=limited
        )
    except subprocess.TimeoutExpired:
        return "hung"
    return {0: "survived"}.get(done.returncode, "caught" if done.returncode > 0 else "hung")


def copied(tree: Path) -> None:
    """All files of the project that git would keep, in another folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\n")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def main() -> int:
    """Draw, plant, tell. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="how many faults")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--cpu", type=int, default=300, help="CPU seconds of one run of tests")
    parser.add_argument("--module", choices=sorted(TESTS), help="only this one")
    chosen = parser.parse_args()
    modules = [chosen.module] if chosen.module else [name for name in TESTS if (ROOT / name).exists()]
    every = [place for module in modules for place in places_in(module)]
    random.Random(chosen.seed).shuffle(every)
    sample = list(islice(filter(None, map(mutant_at, every)), chosen.sample))
    print(f"{len(sample)} of {len(every)} faults in {len(modules)} modules, seed {chosen.seed}", flush=True)
    known, ends, sound = equivalents(), dict[str, list[Mutant]](), set[str]()
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dpdist-mutants-") as folder:
        tree = Path(folder)
        copied(tree)
        for number, mutant in enumerate(sample, start=1):
            content = (ROOT / mutant.module).read_text(encoding="utf-8") + repr(asdict(mutant))
            kept = KEPT / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
            if kept.exists():
                end = json.loads(kept.read_text(encoding="utf-8"))["end"]
            else:
                if mutant.module not in sound and tested(mutant.module, tree, chosen.cpu) != "survived":
                    print(f"the tests of {mutant.module} fail without any fault: mend them first")
                    return 2
                sound.add(mutant.module)
                end = planted(mutant, tree, chosen.cpu)
                kept.write_text(json.dumps({"end": end, **asdict(mutant)}), encoding="utf-8")
            end = "equivalent" if end == "survived" and mutant.name in known else end
            ends.setdefault(end, []).append(mutant)
            print(
                f"{number:4d} {end:10s} {mutant.module}:{mutant.line} {mutant.operator}: {mutant.before} -> {mutant.after}",
                flush=True,
            )
    caught = len(ends.get("caught", [])) + len(ends.get("hung", []))
    survivors = ends.get("survived", [])
    for mutant in ends.get("equivalent", []):
        print(f"equivalent: {mutant.name}: {known[mutant.name]}")
    for mutant in survivors:
        print(f"survived: {mutant.name}")
    share = caught / max(1, caught + len(survivors))
    print(
        f"{caught} caught, {len(survivors)} survived, {len(ends.get('equivalent', []))} equivalent: {100 * share:.1f} % caught"
    )
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
