"""The mutation run looks where privacy is at stake, changes what acts, and tells caught faults from survivors."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import __main__ as command
from tests.mutants import faults
from tests.mutants.edits import edits
from tests.mutants.runs import Ran

SAID = {
    "an annotation": ("def f(x: Literal[1]) -> Literal[2]: return x", "def f(x: Literal[2]) -> Literal[3]: return x"),
    "a text of an error": ("raise InvalidInput(f'{x + 1} is too large')", "raise InvalidInput(f'{x - 1} is too large')"),
    "a text of an assertion": ("assert x, x + 1", "assert x, x - 1"),
    "a representation": ("class C:\n def __repr__(self): return 'a' * 2", "class C:\n def __repr__(self): return 'a' * 3"),
    "the size of a cache": ("@lru_cache(maxsize=64)\ndef f(): pass", "@lru_cache(maxsize=65)\ndef f(): pass"),
    "what type checkers read": ("if TYPE_CHECKING: import pyarrow", "if not TYPE_CHECKING: import pyarrow"),
    "slots": ("@dataclass(frozen=True, slots=True)\nclass C: pass", "@dataclass(frozen=True, slots=False)\nclass C: pass"),
    "a field by name": ("class C:\n x: int = field(kw_only=True)", "class C:\n x: int = field()"),
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


EDITS = {
    "a = b + c": {"a = b - c"},
    "a += b": {"a -= b", "pass"},
    "a = b <= c": {"a = b < c"},
    "a = b is None": {"a = b is not None"},
    "a = b and c": {"a = b or c"},
    "a = not b": {"a =  b"},
    "a = True": {"a = False"},
    "a = 2": {"a = 3"},
    "if a: b()": {"if not (a): b()", "if a: pass"},
    "for a in b: c()": {"for a in (): c()", "for a in b: pass"},
    "f(a, b=c)": {"f(a)", "pass"},
    "f(b=c)": {"f()", "pass"},
    "a.b = c": {"pass"},
    "raise a": {"pass"},
    "a = 'SELECT b FROM c WHERE d = e AND f IS NULL'": {
        "a = 'SELECT b FROM c WHERE d <> e AND f IS NULL'",
        "a = 'SELECT b FROM c WHERE d = e OR f IS NULL'",
        "a = 'SELECT b FROM c WHERE d = e AND f IS NOT NULL'",
    },
    "é = 'ä' + b * (c)  # ö": {"é = 'ä' - b * (c)  # ö", "é = 'ä' + b / (c)  # ö"},
}


@pytest.mark.parametrize("source", EDITS)
def test_every_construct_has_a_fault(source: str) -> None:
    assert {faults._changed(source, edit) for edit in edits(source)} == EDITS[source]


def test_a_line_of_several_lines_is_edited_where_it_stands() -> None:
    source = 'a = f(\n    """SELECT b\n    WHERE c > d""",\n    e=g,\n)\n'
    found = {edit.line: faults._changed(source, edit) for edit in edits(source)}
    assert found == {3: source.replace(">", ">="), 4: source.replace(",\n    e=g", "")}


def test_every_module_of_the_program_gets_faults() -> None:
    found = faults.modules()
    assert {
        "dpdist/privacy/noise.py",
        "dpdist/plugins/page/charts/heat_map.py",
        "flows/commands/cli.py",
        "dpdist/plugins/verifier/verify.py",
    } <= set(found)
    assert len(found) == len({*found}) > 300
    folders = {module.split("/")[1] for module in faults.modules("dpdist/privacy/", "dpdist/counting/")}
    assert folders == {"privacy", "counting"}
    assert faults.modules("dpdist/privacy/noise.py") == ["dpdist/privacy/noise.py"]


def test_a_sample_is_fixed_and_goes_by_lines() -> None:
    """The same faults for one seed, others for another, one a line; those of a module do not hang on other modules."""
    among = ["dpdist/privacy/noise_distributions.py", "dpdist/privacy/risk_in_words.py"]
    first, again, other = (list(faults.drawn(among, seed)) for seed in (1, 1, 2))
    assert first == again
    assert [fault.name for fault in first] != [fault.name for fault in other]
    assert len({(fault.module, fault.line) for fault in first}) == len(first)
    assert list(faults.drawn(among[1:], 1)) == [fault for fault in first if fault.module == among[1]]
    for fault in first:
        assert fault.source() != (faults.ROOT / fault.module).read_text(encoding="utf-8")


def test_a_new_line_is_three_times_as_likely_to_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two lines, with 400 seeds: 300 +- 35, four standard deviations of a binomial share of 3/4."""
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    (tmp_path / "two_lines.py").write_text("a = 1\nb = 2\n")
    drawn = [list(faults.drawn(["two_lines.py"], seed, {("two_lines.py", 2)})) for seed in range(400)]
    assert abs(sum(first.line == 2 for first, _ in drawn) - 300) < 35


def test_lines_since_a_revision_are_those_that_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was renamed keeps its lines, but for the one that changed."""
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    module = tmp_path / "dpdist" / "old.py"
    module.parent.mkdir()
    module.write_text("".join(f"line_{number} = {number}\n" for number in range(20)))

    def git(*words: str) -> None:
        person = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *person, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    git("mv", "dpdist/old.py", "dpdist/new.py")
    renamed = module.with_name("new.py")
    renamed.write_text(renamed.read_text().replace("line_7 = 7", "line_7 = 8\nadded = 1"))
    git("add", ".")
    git("commit", "-m", "second")
    assert faults.lines_since("HEAD~1") == {("dpdist/new.py", 8), ("dpdist/new.py", 9)}


def test_rows_of_the_table_are_read(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    table.write_text(
        "| module | line | with the fault | why |\n|---|---|---|---|\n| `a.py` | `x \\| y` | `x & y` | both are bits |\n"
    )
    assert faults.equivalents(table)["a.py:x|y->x&y"] == "both are bits"


@pytest.mark.parametrize("name", faults.equivalents(command.EQUIVALENT))
def test_what_is_called_equivalent_is_there(name: str) -> None:
    module, _, change = name.partition(":")
    lines = map(faults.packed, (faults.ROOT / module).read_text(encoding="utf-8").splitlines())
    assert any(change.startswith(f"{line}->") for line in lines if line)


@pytest.mark.slow
def test_the_nearest_tests_come_first() -> None:
    assert (
        command.nearest_tests("dpdist/privacy/selection/partition_selection.py")[0]
        == "tests/privacy/test_partition_selection.py"
    )
    assert "tests/stability/test_groups.py" in command.nearest_tests("dpdist/measurement/sensitivity/group_contribution.py")
    assert command.nearest_tests("flows/public_facts.py")[0] == "tests/test_public_facts.py"
    found = command.nearest_tests("dpdist/measurement/sensitivity/column_norms.py")
    assert found[0] == "tests/measurement/test_proofs.py"
    assert 1 < len(found) <= command.LOOKED_AT


def test_a_run_goes_on_and_tries_again_what_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was caught stands while its test or check does; a survivor is tried again when a test near it has changed, or with more time."""
    monkeypatch.setattr(command, "KEPT", tmp_path)
    runs, near = command.Runs(tmp_path, 1.0), ["tests/privacy/test_risk_in_words.py"]
    monkeypatch.setattr(command, "nearest_tests", lambda module: near)
    monkeypatch.setattr(runs, "_sound", lambda test: True)
    first, second, refused = islice(faults.drawn(["dpdist/privacy/risk_in_words.py"], 1), 3)
    ends = {first: ("caught", "tests/privacy/test_risk_in_words.py::test_a"), second: ("survived", None)}
    monkeypatch.setattr(
        runs, "_check_that_refuses", lambda mutant: next(iter(command.CHECKS)) if mutant == refused else None
    )
    runs.cpu_of_tests[near[0]] = {f"{near[0]}::test_a": 0.1}

    def has_results() -> list[bool]:
        return [runs.earlier_result(fault) is not None for fault in (first, second)]

    assert has_results() == [False, False]
    for fault, (end, by) in ends.items():
        monkeypatch.setattr(runs, "_planted", lambda mutant, tests, end=end, by=by: (end, by))
        assert runs.end(fault)["end"] == end
    assert has_results() == [True, True]
    row = runs.end(refused)
    assert (row["end"], row["by"]) == ("caught", "pyproject.toml::mypy")
    assert runs.earlier_result(refused) is not None
    assert list(runs.tests_for(refused)) == [f"{near[0]}::test_a"]  # a check is no test
    runs.cpu_seconds = 2.0
    assert has_results() == [True, False]
    runs.cpu_seconds = 1.0
    near.append("tests/privacy/test_noise.py")
    assert has_results() == [True, False]


def test_survivors_are_planted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three faults one kills its test, one is caught by a later test, and one is executed by tests that pass."""
    monkeypatch.setattr(command, "KEPT", tmp_path)
    monkeypatch.setattr(command, "content", lambda *names: "")
    monkeypatch.setattr(command, "nearest_tests", lambda module: [])
    monkeypatch.setattr(command, "files_of_tests", lambda: ["a", "b"])
    module = "dpdist/privacy/risk_in_words.py"
    hangs, fails, passes = islice(faults.drawn([module], 1), 3)
    (tmp_path / module).parent.mkdir(parents=True)
    (tmp_path / module).write_text("without")
    runs, ran = command.Runs(tmp_path, 40.0), list[tuple[list[str], int]]()
    runs.executing |= {
        hangs: {"a": {"a::hangs": 0.1}},
        fails: {"a": {"a::hangs": 0.1, "a::fails": 0.1}},
        passes: {"a": {"a::fails": 0.1}, "b": {"b::passes": 0.1}},
    }

    def watched(tree: Path, tests: list[str], **options: Any) -> Ran:
        source = (tree / module).read_text()
        planted = [] if source == "without" else [each for each in (hangs, fails, passes) if is_in(each, source)]
        ran.append((tests, len(planted)))
        if "a::hangs" in tests and hangs in planted:
            return Ran(-9, ("a::hangs",), ())
        failed = ("a::fails",) if "a::fails" in tests and fails in planted else ()
        return Ran(len(failed), tuple(tests), failed)

    def is_in(fault: faults.Mutant, source: str) -> bool:
        lines = fault.source().splitlines()
        original = (faults.ROOT / module).read_text(encoding="utf-8").splitlines()
        return any(new in source.splitlines() for new in set(lines) - set(original))

    monkeypatch.setattr(command, "watched", watched)
    found = {fault: (row["end"], row["by"]) for fault, row in runs.end_together([hangs, fails, passes], math.inf)}
    assert found == {hangs: ("hung", "a::hangs"), fails: ("caught", "a::fails")}
    assert (tmp_path / module).read_text() == "without"
    assert ran[0] == (["a::hangs", "a::fails", "b::passes"], 3)
    assert (["a::fails", "b::passes"], 3) in ran, "after a test that is killed the others run on"
    ran.clear()
    assert list(runs.end_together([passes], math.inf)) == ran == [], "what was asked together is not asked again"


def test_a_test_that_fails_without_the_fault_has_caught_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out, and the others run again."""
    monkeypatch.setattr(command, "KEPT", tmp_path)
    monkeypatch.setattr(command, "content", lambda *names: "")
    monkeypatch.setattr(command, "nearest_tests", lambda module: [])
    fault = next(faults.drawn(["dpdist/privacy/risk_in_words.py"], 1))
    (tmp_path / fault.module).parent.mkdir(parents=True)
    (tmp_path / fault.module).write_text("without")
    ran = list[tuple[list[str], bool]]()

    def watched(tree: Path, tests: list[str], **options: Any) -> Ran:
        with_fault = (tree / fault.module).read_text() != "without"
        ran.append((tests, with_fault))
        fails = {"a::unsound", "a::fails"} if with_fault else {"a::unsound"}
        failed = tuple(test for test in tests if test in fails)[:1]
        return Ran(len(failed), tuple(tests), failed)

    monkeypatch.setattr(command, "watched", watched)
    runs = command.Runs(tmp_path, 40.0)
    runs.executing[fault] = {"a": {"a::passes": 0.1, "a::unsound": 0.2, "a::fails": 0.3}}
    row = runs.end(fault)
    assert (row["end"], row["by"]) == ("caught", "a::fails")
    assert ran == [
        (["a::passes", "a::unsound", "a::fails"], True),
        (["a::unsound"], False),
        (["a::passes", "a::fails"], True),
        (["a::fails"], False),
    ]


def test_runs_beside_each_other_share_the_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them tries, the other leaves out, unless the first one has ended amid it."""
    monkeypatch.setattr(command, "KEPT", tmp_path)
    one, other = command.Runs(tmp_path, 1.0), command.Runs(tmp_path, 1.0)
    fault = next(faults.drawn(["dpdist/privacy/risk_in_words.py"], 1))
    assert (one.claimed(fault), other.claimed(fault)) == (False, True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (claim,) = tmp_path.glob("*.claim")
    assert claim.read_text(encoding="utf-8") == str(os.getpid())
    claim.write_text(str(gone.pid), encoding="utf-8")
    assert (other.claimed(fault), one.claimed(fault)) == (False, True)


SHOWN = """LIMIT = 3

def f(x, y=(
    1
)):
    if (
        x
    ):
        return g(
            x,
        )
    try:
        return {
            "a": 1,
        }
    except ValueError:
        return y

def g(x):
    return LIMIT
"""
SHOWING = {4: range(6, 18), 7: [6, 7, 8], 10: [9, 10, 11], 14: [13, 14, 15], 16: [16], 17: [17], 1: [20]}


@pytest.mark.parametrize("line", SHOWING)
def test_the_lines_that_show_a_fault(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the statement, of the function's body, or of the bodies that name a constant."""
    monkeypatch.setattr(faults, "_source", lambda module: SHOWN)
    names = faults.named(SHOWN)
    assert faults.showing("a.py", line) == {names[each - 1] for each in SHOWING[line]}


def test_a_fault_is_given_to_the_tests_that_execute_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of near files first, the cheapest of each as their CPU time allows; where there is none, all of the nearest files."""
    fault = next(
        each for each in faults.drawn(["dpdist/privacy/risk_in_words.py"], 1) if faults.showing(each.module, each.line)
    )
    line = next(iter(faults.showing(fault.module, fault.line) or ()))
    rows = {
        "a": command.Measured({"a::other": 0.1}, {}),
        "b": command.Measured({"b::slow": 50.0, "b::other": 0.3, "b::executes": 0.4}, {fault.module: {line: [0, 2]}}),
        "c": command.Measured({"c::executes": 0.2}, {fault.module: {line: [0]}}),
    }
    monkeypatch.setattr(command, "KEPT", tmp_path)
    monkeypatch.setattr(command, "content", lambda *names: "")
    monkeypatch.setattr(command, "nearest_tests", lambda module: ["b", "a"])
    monkeypatch.setattr(command, "files_of_tests", lambda: list(rows))
    runs = command.Runs(tmp_path, 40.0)
    for file, row in rows.items():
        runs._measured_at(file).write_text(json.dumps(vars(row)))
    runs.read_measurements([fault])
    assert list(runs.tests_for(fault)) == ["b::executes", "c::executes"]
    runs.cpu_seconds = 200.0
    assert list(runs.tests_for(fault)) == ["b::executes", "b::slow", "c::executes"]
    runs.executing.clear()
    runs.cpu_seconds = 40.0
    assert list(runs.tests_for(fault)) == ["a::other", "b::other", "b::executes"]


def test_the_share_has_an_interval() -> None:
    """Clopper and Pearson, from their tables: 90 of 100."""
    assert command.interval(90, 100) == pytest.approx((0.8238, 0.9510), abs=1e-4)
    assert command.interval(0, 10) == (0.0, pytest.approx(0.3085, abs=1e-4))
    assert command.interval(10, 10)[1] == 1.0


@pytest.mark.slow
def test_checks_refuse_wrong_types_and_what_is_not_used(tmp_path: Path) -> None:
    """And not how a line is written; a check that cannot run is no refusal."""
    module, runs = "dpdist/numbers.py", command.Runs(tmp_path, 1.0)
    (tmp_path / "pyproject.toml").write_text('[tool.mypy]\nfiles = ["dpdist"]\nstrict = true\n')
    (tmp_path / "dpdist").mkdir()
    for source, refusing in {
        "def half(size: int) -> int:\n    return size // 2\n": [],
        "def half(size: int) -> int:\n    return size / 2\n": ["pyproject.toml::mypy"],
        "def half(size: int) -> int:\n    if not (size == 2):\n        return 1\n    return size // 2\n": [],
        "import math\n\ndef half(size: int) -> int:\n    return size // 2\n": ["pyproject.toml::ruff"],
        "def pairs(one: str, other: str) -> object:\n    return zip(one, other)\n": ["pyproject.toml::ruff"],
    }.items():
        (tmp_path / module).write_text(source)
        assert [check for check in command.CHECKS if not runs.passes(check, module)] == refusing, source
    (tmp_path / "pyproject.toml").write_text("[tool.mypy]\nfiles = []\n")
    with pytest.raises(RuntimeError, match="ended with 2"):
        runs.passes("pyproject.toml::mypy", module)


RUN = """
import dataclasses, json, sys
from pathlib import Path
from tests.mutants.runs import executed, watched

tree = Path(sys.argv[1])
told = list(executed(tree, ["tests/test_amounts.py"]).values())
for source in sys.argv[2:]:
    (tree / "dpdist" / "domain" / "numeric_columns.py").write_text(source)
    told.append(dataclasses.astuple(watched(tree, ["tests"], spare=0.5)))
print(json.dumps(told))
"""


@pytest.mark.slow
def test_how_runs_end(tmp_path: Path) -> None:
    """In processes that import the tree: what each test executes without a fault, which one fails, and what takes too long."""
    tree = tmp_path.resolve()
    for name, text in {
        "dpdist/__init__.py": "",
        "dpdist/domain/numeric_columns.py": "def total(values):\n    return sum(values)\n",
        "tests/__init__.py": "",
        "tests/test_amounts.py": (
            "import pytest\n"
            "from dpdist.domain.numeric_columns import total\n"
            "@pytest.fixture(scope='module')\n"
            "def shared(): return total([])\n"
            "def test_first(shared): pass\n"
            "def test_second(shared): pass\n"
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
    without, wrong, endless, broken = json.loads(done.stdout)
    assert [name.partition("::")[2] for name in without["tests"]] == [
        *["test_first", "test_second"],
        *["test_type", "test_sum", "test_nothing"],
    ]
    assert without["lines"]["dpdist/domain/numeric_columns.py"] == {"return sum(values) #1": [0, 1, 2, 3]}
    assert (wrong[0], wrong[2]) == (1, ["tests/test_amounts.py::test_sum"])
    assert (endless[0], endless[1][-1], endless[2]) == (-signal.SIGXCPU, "tests/test_amounts.py::test_first", [])
    assert broken[0] > 0
