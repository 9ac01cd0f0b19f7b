"""What CONTRIBUTING.md promises and no linter sees: the same checks everywhere, documented names, commands that exist."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
import yaml

from flows.commands import cli
from tests.support.complete_tree import needs_every_plugin

ROOT = Path(__file__).parents[1]
PUBLIC = ("dpdist", "dpdist.workloads", "dpdist.strategies", "dpdist.operators", "dpdist.privacy", "dpdist.arrays")
PRODUCT = [*ROOT.glob("dpdist/**/*.py"), *ROOT.glob("flows/**/*.py")]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def _parse(file: Path) -> ast.Module:
    """A file of the product or of the tests, parsed once for all tests of this module."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def _nodes(file: Path) -> tuple[ast.AST, ...]:
    """Everything in a file, from the outside in, found once for all tests of this module."""
    return tuple(ast.walk(_parse(file)))


def test_pre_commit_runs_the_checks_of_make() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    made = [line.strip().replace("$(VENV)", ".venv") for line in recipe[1].splitlines()]
    assert [hook["entry"] for hook in hooks] == made
    assert "make check" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_there_and_says_what_it_is(package: str) -> None:
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        found = getattr(module, name)
        if inspect.isclass(found) or inspect.isroutine(found) or inspect.ismodule(found):
            assert (inspect.getdoc(found) or "").strip(), f"{package}.{name}"


def _commands(command: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    for name, part in getattr(command, "commands", {}).items():
        yield from _commands(part, (*path, name))


@needs_every_plugin
def test_every_command_that_the_pages_name_exists() -> None:
    known = set(_commands(typer.main.get_command(cli.app), ()))
    groups = {path[:-1] for path in known if path}
    for page in PAGES:
        code = re.findall(r"^```sh[^\n]*\n(.*?)^```$|(?<!`)`([^`\n]+)`(?!`)", page.read_text(), re.MULTILINE | re.DOTALL)
        for line in (line for block, span in code for line in (block or span).splitlines()):
            for first, second in re.findall(r"(?:^|[\s/])dpdist ([a-z]+)(?: ([a-z-]+))?", line.split("#")[0]):
                assert (first,) in known, f"{page.name}: {line}"
                assert not second or (first,) not in groups or (first, second) in known, f"{page.name}: {line}"


def test_every_decision_is_on_the_site() -> None:
    listed = set(re.findall(r"decisions/\S+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {f"decisions/{page.name}" for page in (ROOT / "docs" / "decisions").glob("*.md")}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout of git")
def test_no_program_or_archive_of_others_is_kept() -> None:
    """As a wheel that a tool left where it was started: what is installed is named in pyproject.toml."""
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [
        name
        for name in git.stdout.split("\0")
        if Path(name).suffix in {".whl", ".so", ".zip", ".tar", ".tgz", ".jar", ".pyc"}
    ] == []


def _opens_text(call: ast.Call) -> bool:
    """Whether a call opens a file of the operating system for text, or reads or writes it whole."""
    match call.func:
        case ast.Attribute(attr="read_text" | "write_text"):
            return True
        case ast.Attribute(value=ast.Name(id="tarfile" | "os" | "store"), attr="open"):
            return False
        case ast.Name(id="open") | ast.Attribute(attr="open"):
            modes = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            return any(re.fullmatch("[rwax][+]?", mode) for mode in modes)
    return False


def test_every_text_is_of_a_named_encoding() -> None:
    """That of the process is another one elsewhere."""
    calls = [(file, node) for file in PRODUCT for node in _nodes(file) if isinstance(node, ast.Call) and _opens_text(node)]
    assert len(calls) > 40
    assert [
        f"{file.relative_to(ROOT)}:{call.lineno}"
        for file, call in calls
        if all(each.arg != "encoding" for each in call.keywords)
    ] == []


@pytest.mark.slow
def test_values_are_never_changed_in_place() -> None:
    """Every dataclass is frozen, except the state of a loop, run or server, and what the verifier reads as it makes its one object."""
    changed = set()
    for file in PRODUCT:
        for node in _nodes(file):
            for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                text = ast.unparse(decorator)
                if text.partition("(")[0] == "dataclass" and "frozen=True" not in text:
                    changed.add(f"{file.relative_to(ROOT)}: {node.name}")
    states = {
        "dpdist/strategies/dense/coa_fixed_point.py: _BestCertificate",
        "dpdist/strategies/dense/coa_barrier.py: _NewtonSolver",
        "dpdist/arrays/convolution.py: Steps",
        "dpdist/extracts/table_extracts.py: UnreadRecords",
        "dpdist/plugins/verifier/verify.py: ReleaseClaims",
        "flows/observability/run_events.py: Run",
        "dpdist/plugins/studio/studio_server.py: StudioSession",
    }
    assert changed == {state for state in states if (ROOT / state.partition(":")[0]).exists()}


def test_every_dask_cluster_takes_a_free_port() -> None:
    """Dask's dashboard listens on port 8787 where it is not told otherwise, ``None`` included: two runs beside each other collide."""
    calls = [
        (path, found)
        for folder in ("tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for found in re.findall(
            r"\bLocalCluster\(([^()]+)\)|\bClient\((n_workers[^()]+)\)", path.read_text(encoding="utf-8")
        )
    ]
    assert len(calls) > 9
    assert not [path for path, found in calls if 'dashboard_address="127.0.0.1:0"' not in "".join(found)]


def test_every_class_name_has_one_meaning() -> None:
    named: dict[str, list[str]] = {}
    for file in PRODUCT:
        for node in _nodes(file):
            if isinstance(node, ast.ClassDef):
                named.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in named.items() if len(files) > 1} == {}


def test_a_class_is_one_kind() -> None:
    """With four fields or more that may be None a class is several; decision 14 says of these why they are not."""
    several = set()
    for file in PRODUCT:
        for node in _nodes(file):
            if isinstance(node, ast.ClassDef):
                fields = [ast.unparse(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)]
                if sum(kind.endswith("None") or "None]" in kind or "None, SectionKey" in kind for kind in fields) > 3:
                    several.add(node.name)
    assert several == {
        *("AboutSpec", "AssumeSpec", "Budget", "Person", "ReleaseSpec"),
        *("Answer", "Attribute", "Figure"),
    }


def test_no_file_of_the_product_is_too_long_to_read_at_once() -> None:
    """Except the verifier, which is one file so that anybody can copy it out."""
    long = {str(file.relative_to(ROOT)) for file in PRODUCT if _line_count(file) > 450}
    assert long == {"dpdist/plugins/verifier/verify.py"}


def _line_count(file: Path) -> int:
    return file.read_text(encoding="utf-8").count("\n")


QUOTED_NAME = re.compile(r"``([A-Za-z_][\w.]*)(?:\(\))?``")
NAMED_ELSEWHERE = {"AWS_TIMEOUT", "to_named_tuple", "age_from", "age_to"}
"""What other packages have, and coordinates whose names a spec makes."""


@needs_every_plugin
def test_docstrings_name_what_there_is() -> None:
    """Every part of a name in double backticks is a name or stands in a text of the product."""
    known, quoted, docstrings = NAMED_ELSEWHERE | set(dir(builtins)), dict[str, str](), set[ast.AST]()
    for file in PRODUCT:
        known |= {file.stem, file.parent.name}
        for node in _nodes(file):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                names = QUOTED_NAME.findall(node.value.value)
                quoted |= {part: f"{file.name}:{node.lineno}: {name}" for name in names for part in name.split(".")}
                docstrings.add(node.value)  # what it says is no name of the product
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                known |= set(re.findall(r"\w+", node.value))
            else:
                fields = (getattr(node, field, None) for field in ("id", "attr", "name", "arg", "module", "asname"))
                known |= {part for name in fields if isinstance(name, str) for part in name.split(".")}
    missing = [place for part, place in quoted.items() if part and part not in known]
    assert not missing, "\n".join(sorted(missing))


DESCRIBED = re.compile(r"^    ([a-z_]\w*(?:, [a-z_]\w*)*): ", re.MULTILINE)
"""Names under a heading of a docstring, which are indented once."""


def _described(node: ast.ClassDef | ast.FunctionDef, heading: str) -> set[str]:
    """The names that the docstring of a class or function describes under a heading."""
    _, _, section = (ast.get_docstring(node) or "").partition(f"\n{heading}:\n")
    section = re.split(r"^\S", section, maxsplit=1, flags=re.MULTILINE)[0]
    return {name for names in DESCRIBED.findall(section) for name in names.split(", ")}


def _declared(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Classes and functions of a module, with those of its classes."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _declared(node.body)


def test_docstrings_describe_the_fields_and_arguments_that_there_are() -> None:
    """A description outlives the name when a field is renamed."""
    nodes = [(file, node) for file in PRODUCT for node in _declared(_parse(file).body)]
    classes = {node.name: node for _, node in nodes if isinstance(node, ast.ClassDef)}

    def fields(node: ast.ClassDef) -> set[str]:
        own = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
        inner = [each for part in node.body for each in ast.walk(part)]
        own |= {each.attr.removeprefix("_") for each in inner if isinstance(each, ast.Attribute)}
        own |= {each.name for each in inner if isinstance(each, ast.FunctionDef)}
        bases = (classes.get(ast.unparse(base).partition("[")[0].rpartition(".")[2]) for base in node.bases)
        return own.union(*(fields(base) for base in bases if base is not None))

    for file, node in nodes:
        described = _described(node, "Attributes" if isinstance(node, ast.ClassDef) else "Args")
        if described and isinstance(node, ast.ClassDef):
            described -= fields(node)
        elif isinstance(node, ast.FunctionDef):
            described -= {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        assert not described, f"{file.name}:{node.lineno}: {node.name} has no {', '.join(described)}"


MOST_FILES = 15
"""Files beside each other in a folder of the core: more are no list that a newcomer keeps in mind."""


def test_no_folder_of_the_core_holds_more_files_than_can_be_kept_in_mind() -> None:
    files = [file for file in PRODUCT if file.name != "__init__.py" and "plugins" not in file.parts]
    numbers = Counter(file.parent for file in files)
    assert not {str(folder): number for folder, number in numbers.items() if number > MOST_FILES}


REPEATED = 20
"""Words of a rule from which on it is a copy, and not the same by chance."""


def _words(node: object) -> tuple[object, ...]:
    """The words of some code, whatever its names are: each is the number of its first use, also what a method reads of its object."""
    words: list[object] = []
    _add_words(node, words, {})
    return tuple(words)


def _add_words(node: object, words: list[object], names: dict[str, int]) -> None:
    if isinstance(node, list):
        for each in node:
            _add_words(each, words, names)
    elif not isinstance(node, ast.AST):
        words.append(node)
    elif isinstance(node, ast.Name | ast.arg) or (
        isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    ):
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else node.attr
        words.append(names.setdefault(name, len(names)))
    else:
        words.append(type(node).__name__)
        for name in node._fields:
            if name not in ("ctx", "annotation", "returns", "type_comment", "kind"):
                _add_words(getattr(node, name, None), words, names)


def _rules(function: ast.FunctionDef, *, parts: bool) -> Iterator[tuple[object, ...]]:
    """What a function does: all of its body, and what it returns where it does nothing else.

    Args:
        parts: whether every value that it gives a name or returns is one of its rules, too.
    """
    body = function.body[1:] if ast.get_docstring(function) else function.body
    yield _words(body)
    for each in ast.walk(function) if parts else body if len(body) == 1 else ():
        if isinstance(each, ast.Return | ast.Assign) and each.value is not None:
            yield _words(each.value)


def _functions(file: Path) -> Iterator[ast.FunctionDef]:
    return (node for node in _nodes(file) if isinstance(node, ast.FunctionDef))


@pytest.mark.slow
def test_tests_run_the_rules_of_the_product_and_no_copies() -> None:
    """A test that compares a copy with itself finds no fault in the product; what stands beside it to compare is said another way."""
    product = {
        rule: f"{file.relative_to(ROOT)}: {function.name}"
        for file in PRODUCT
        for function in _functions(file)
        for rule in _rules(function, parts=False)
        if len(rule) >= REPEATED
    }
    copies = {
        f"{file.relative_to(ROOT)}: {function.name} is {product[rule]}"
        for file in ROOT.glob("tests/**/*.py")
        for function in _functions(file)
        for rule in _rules(function, parts=True)
        if rule in product
    }
    assert copies == set()


@needs_every_plugin
def test_every_file_that_pages_and_docstrings_name_is_there() -> None:
    """By its name, or by the end of its path: whoever moves a file follows it here."""
    folders = ("benchmarks", "deploy", "docs", "dpdist", "examples", "flows", "tests", "tools")
    listed = ["setup.py", *(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    examples = {"utils.py", "definitions.py", "release_weekly.py"}  # of what not to write, and of other orchestrators
    pages = [*PAGES, *sorted(ROOT.glob("dpdist/**/*.py")), *sorted(ROOT.glob("flows/**/*.py"))]
    ends = {"/".join(path.split("/")[start:]) for path in listed for start in range(path.count("/") + 1)}
    missing = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        for name in re.findall(r"(?<![\w/.-])((?:[\w-]+/)*[\w-]+\.py)\b", page.read_text(encoding="utf-8"))
        if name not in ends and name not in examples
    }
    assert missing == set()
