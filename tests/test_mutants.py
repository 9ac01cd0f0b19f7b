"""The mutation run looks where privacy is at stake, changes what acts, and tells caught faults from survivors."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants import faults

BESIDE = {
    "dpdist/privacy/__init__.py": "names, and nothing that acts",
    "dpdist/page/measurement.py": "writes and reads committed noisy integers with the scale of their noise, and draws none",
    "dpdist/page/site.py": "shows what a ledger holds",
    "dpdist/page/certificate.py": "types of what a certificate says",
    "dpdist/__init__.py": "names, and nothing that acts",
}
"""Modules that touch privacy and are left out, and why."""
TOUCHING = {"charges", "kernels", "keys", "ledger", "noise", "sampler", "thresholds"}
"""Modules of dpdist.privacy whose users charge, draw or know what is secret."""


def uses_of_privacy(path: Path) -> set[str]:
    """What a module imports of the above when it runs, and whether it computes a sensitivity."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dpdist.privacy"):
            names = [node.module.rpartition(".")[2], *(name.name for name in node.names)]
            found |= TOUCHING.intersection(names)
        written = [getattr(node, kind, None) for kind in ("name", "id", "attr", "arg")]
        found |= {"sensitivity_squared" for name in written if isinstance(name, str) and "sensitivity_squared" in name}
    return found


def test_every_module_that_privacy_rests_on_is_listed() -> None:
    found = {
        str(path.relative_to(faults.ROOT)): uses
        for path in sorted((faults.ROOT / "dpdist").rglob("*.py"))
        if (uses := uses_of_privacy(path)) and str(path.relative_to(faults.ROOT)) not in BESIDE
    }
    assert {name: uses for name, uses in found.items() if name not in faults.modules()} == {}
    assert all((faults.ROOT / name).is_file() for name in BESIDE)


@pytest.mark.parametrize("pattern", faults.MODULES)
def test_every_pattern_of_modules_finds_one(pattern: str) -> None:
    assert list(faults.ROOT.glob(pattern))


@pytest.mark.parametrize("name", command.TESTS)
def test_every_listed_test_is_there(name: str) -> None:
    path = faults.ROOT / name
    assert path.is_file() or list(path.rglob("test_*.py"))


SAID = {
    "an annotation": ("def f(x: Literal[1]) -> Literal[2]: return x", "def f(x: Literal[2]) -> Literal[3]: return x"),
    "a text of an error": ("raise InvalidInput(f'{x + 1} is too large')", "raise InvalidInput(f'{x - 1} is too large')"),
    "a text of an assertion": ("assert x, x + 1", "assert x, x - 1"),
    "a representation": ("class C:\n def __repr__(self): return 'a' * 2", "class C:\n def __repr__(self): return 'a' * 3"),
    "the size of a cache": ("@lru_cache(maxsize=64)\ndef f(): pass", "@lru_cache(maxsize=65)\ndef f(): pass"),
    "what type checkers read": ("if TYPE_CHECKING: import pyarrow", "if not TYPE_CHECKING: import pyarrow"),
    "a comment": ("x = 1  # one", "x = 1  # two"),
}
ACTS = {
    "a guard": ("if x > 1: raise InvalidInput('too large')", "if x >= 1: raise InvalidInput('too large')"),
    "a number": ("x: int = 1", "x: int = 2"),
    "a default": ("def f(x: int = 1): pass", "def f(x: int = 2): pass"),
    "a condition": ("assert x > 1, 'small'", "assert x >= 1, 'small'"),
    "an error's amount": ("raise BudgetExceeded(name, asked, left - 1)", "raise BudgetExceeded(name, asked, left + 1)"),
}


@pytest.mark.parametrize("case", SAID)
def test_what_is_only_said_is_no_fault(case: str) -> None:
    assert not faults.differs(*SAID[case])


@pytest.mark.parametrize("case", ACTS)
def test_what_acts_is(case: str) -> None:
    assert faults.differs(*ACTS[case])


def test_a_sample_is_fixed_and_even() -> None:
    """The same faults for one seed, others for another, as many of one module as of the next, whatever other modules there are."""
    among = ["dpdist/privacy/thresholds.py", "dpdist/privacy/meaning.py"]
    first, again, other = (list(islice(faults.drawn(among, seed), 8)) for seed in (1, 1, 2))
    assert first == again != other
    assert [fault.module for fault in again] == among * 4
    assert list(islice(faults.drawn(among[1:], 1), 4)) == again[1::2]
    for fault in again:
        assert fault.source() != (faults.ROOT / fault.module).read_text(encoding="utf-8")


def test_rows_of_the_table_are_read(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    table.write_text(
        "| module | line | with the fault | why |\n|---|---|---|---|\n| `a.py` | `x \\| y` | `x & y` | both are bits |\n"
    )
    assert faults.equivalents(table)["a.py: x | y -> x & y"] == "both are bits"


def test_only_changed_test_files_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on after a new test measures that file alone; after a change of the library those that call what changed."""
    called = {"tests/release/test_a.py": "dpdist/machine/store.py", "tests/release/test_b.py": "dpdist/machine/leases.py"}
    for name in ("dpdist/machine/store.py", "dpdist/machine/leases.py", "dpdist/domain.py", "tests/small.py", *called):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    run = list[list[str]]()

    def watched(tree: Path, tests: list[str], *, calls: bool) -> tuple[int, list[dict[str, object]]]:
        run.append(tests)
        return 0, [{"test": f"{name}::test", "cpu": 1.0, "calls": [[called[name], 1]]} for name in tests]

    for name, value in {"ROOT": tmp_path, "KEPT": tmp_path, "TESTS": ("tests/release",), "watched": watched}.items():
        monkeypatch.setattr(command, name, value)
    both = list(called)
    for changed, again in (
        (None, both),
        (None, []),
        (both[1], both[1:]),
        ("tests/small.py", both),
        ("dpdist/machine/store.py", both[:1]),
        ("dpdist/domain.py", []),
    ):
        if changed:
            (tmp_path / changed).write_text("changed = True\n")
        run.clear()
        assert sorted(row.test for row in command.measured(tmp_path)) == [f"{name}::test" for name in both]
        assert [name for names in run for name in names] == again


RUN = """
import json, sys
from pathlib import Path
from tests.mutants.runs import watched

tree = Path(sys.argv[1])
told = [watched(tree, ["tests"], calls=True)]
for source in sys.argv[2:]:
    (tree / "dpdist" / "domain" / "amounts.py").write_text(source)
    told.append(watched(tree, ["tests"], spare=0.5))
print(json.dumps(told))
"""


@pytest.mark.slow
def test_how_runs_end(tmp_path: Path) -> None:
    """In processes that import the tree: what each test calls without a fault, which one fails, and what takes too long."""
    tree = tmp_path.resolve()
    for name, text in {
        "dpdist/__init__.py": "",
        "dpdist/domain/amounts.py": "def total(values):\n    return sum(values)\n",
        "tests/__init__.py": "",
        "tests/test_amounts.py": (
            "from dpdist.domain.amounts import total\n"
            "def test_type(): assert isinstance(total([]), int)\n"
            "def test_sum(): assert total([1, 2]) == 3\n"
            "def test_nothing(): pass\n"
        ),
    }.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(text)
    changed = [
        "def total(values):\n    return max(values, default=0)\n",
        "def total(values):\n    while True:\n        pass\n",
        "1 /",
    ]
    done = subprocess.run([sys.executable, "-c", RUN, str(tree), *changed], cwd=faults.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (_, without), wrong, endless, broken = json.loads(done.stdout)
    calls = {row["test"].partition("::")[2]: [tuple(call) for call in row["calls"]] for row in without}
    here = ("dpdist/domain/amounts.py", 1)
    assert (here in calls["test_type"], here in calls["test_sum"], here in calls["test_nothing"]) == (True, True, False)
    assert wrong == [1, [{"test": "tests/test_amounts.py::test_sum"}]]
    assert endless == [-signal.SIGXCPU, []]
    assert broken[0] > 0
