"""Which faults there are: every line of the program, what is planted there, and what counts as a fault."""

from __future__ import annotations

import ast
import difflib
import hashlib
import math
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.edits import Edit, edits

ROOT = Path(__file__).parents[2]
PACKAGES = ("dpdist", "flows")


def modules(*beginnings: str) -> list[str]:
    """All modules of the program; where there are beginnings of paths, such as folders, those whose path begins with one of them."""
    found = sorted(str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return [module for module in found if module.startswith(beginnings or "")]


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        kind: what was done.
        before, after: the lines that it changes.
    """

    module: str
    kind: str
    line: int
    before: str
    after: str
    edit: Edit

    @property
    def name(self) -> str:
        """What it is, wherever the line stands."""
        return f"{self.module}: {self.before} -> {self.after}"

    def source(self) -> str:
        """The module with the fault."""
        return with_faults([self])


def with_faults(mutants: Sequence[Mutant]) -> str:
    """A module with several faults; of those that overlap, with the one that begins last."""
    (module,) = {mutant.module for mutant in mutants}
    text, begins = _source(module), math.inf
    for edit in sorted((mutant.edit for mutant in mutants), key=lambda edit: -edit.start):
        if edit.stop <= begins:
            text, begins = _changed(text, edit), edit.start
    return text


@cache
def _source(module: str) -> str:
    return (ROOT / module).read_text(encoding="utf-8")


def _changed(source: str, edit: Edit) -> str:
    text = source.encode()
    return (text[: edit.start] + edit.text.encode() + text[edit.stop :]).decode()


NEW_LINES_COUNT = 3
"""A line that is new is as likely to come first as so many others."""


def lines_since(revision: str) -> frozenset[tuple[str, int]]:
    """Module and number of every line that was written since a revision; a line that only moved with its file was not."""
    shown = subprocess.run(
        ["git", "diff", "--unified=0", "--find-renames=40%", "--find-copies", revision, "--", *PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found, module = set[tuple[str, int]](), ""
    for line in shown.splitlines():
        if line.startswith("+++ "):
            module = line.removeprefix("+++ ").removeprefix("b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found |= {(module, number) for number in range(first, first + count)}
    return frozenset(found)


def drawn(among: list[str], seed: int, new: Collection[tuple[str, int]] = ()) -> Iterator[Mutant]:
    """One fault of every line of the modules, the lines in a random order: each is as likely as any other, a new one three times.

    The order hangs on the text of a line, on its module and on whether it is new: a change elsewhere leaves the faults as they were.
    Source: Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir".
    """
    lines = []
    for module in among:
        found, texts, seen = dict[int, list[Edit]](), _source(module).splitlines(), Counter[str]()
        for edit in edits(_source(module)):
            found.setdefault(edit.line, []).append(edit)
        for line in sorted(found):
            text = texts[line - 1].strip()
            seen[text] += 1
            order = _random(seed, module, text, seen[text])
            waits = -math.log1p(-int(order[:13], 16) / 16**13) / (NEW_LINES_COUNT if (module, line) in new else 1)
            lines.append((waits, order, module, found[line]))
    for _, order, module, choices in sorted(lines, key=lambda each: each[:2]):
        for edit in sorted(choices, key=lambda edit: _random(order, edit.kind, edit.start - choices[0].start, edit.text)):
            fault = mutant_of(module, edit)
            if fault is not None:
                yield fault
                break


def _random(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def mutant_of(module: str, edit: Edit) -> Mutant | None:
    """The fault; None where the program is no other one, or none at all."""
    source = _source(module)
    changed = _changed(source, edit)
    if not differs(source, changed):
        return None
    lines = source.splitlines(), changed.splitlines()
    difference = difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes()
    _, start, stop, first, last = next(code for code in difference if code[0] != "equal")
    before, after = (" ".join(" ".join(part).split()) for part in (lines[0][start:stop], lines[1][first:last]))
    return Mutant(module, edit.kind, edit.line, before, after, edit)


def differs(source: str, changed: str) -> bool:
    """Whether a changed module can do anything else, beside what it says of itself.

    Left out are annotations, texts of errors and assertions, ``__repr__`` and ``__str__``, the sizes of caches, what only
    type checkers read, that dataclasses are frozen (tests/test_contributing_rules.py) or have slots, and that arguments and fields are
    given by name. The guards before an error, and the numbers that they compare, are not.
    """
    try:
        return ast.dump(_Acting().visit(ast.parse(source))) != ast.dump(_Acting().visit(ast.parse(changed)))
    except SyntaxError:
        return False


class _Acting(ast.NodeTransformer):
    """What a module does: without what is only said."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        if node.name in ("__repr__", "__str__"):
            node.body = [ast.Pass()]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for decorator in (each for each in node.decorator_list if isinstance(each, ast.Call)):
            decorator.keywords = [keyword for keyword in decorator.keywords if keyword.arg not in ("frozen", "slots")]
        return self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [*node.defaults, *(default for default in node.kw_defaults if default is not None)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = [ast.Constant("") if _text(value) else value for value in node.exc.args]
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "not TYPE_CHECKING"):
            return ast.Pass()
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "lru_cache":
            return node.func
        if isinstance(node.func, ast.Name) and node.func.id == "field":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "kw_only"]
        return self.generic_visit(node)


def _text(value: ast.expr) -> bool:
    """Whether a value is put together from texts alone."""
    if isinstance(value, ast.BinOp):
        return _text(value.left) or _text(value.right)
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


def equivalents(table: Path) -> dict[str, str]:
    """Faults that change nothing that users could see, with the reason: the rows of the table in tests/mutants/README.md."""
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in table.read_text(encoding="utf-8").splitlines()]
    cells = [[cell.strip().strip("`").replace("\\|", "|") for cell in row] for row in rows if len(row) == 4]
    return {packed(f"{module}: {before} -> {after}"): why for module, before, after, why in cells if module.endswith(".py")}


def packed(text: str) -> str:
    """A fault's name without blanks."""
    return "".join(text.split())


def named(source: str) -> list[str]:
    """A name for every line of a module, which changes elsewhere leave as it is: its text, and which of those with this text it is."""
    names, seen = list[str](), Counter[str]()
    for line in map(str.strip, source.splitlines()):
        seen[line] += 1
        names.append(f"{line} #{seen[line]}")
    return names


@cache
def showing(module: str, line: int) -> set[str] | None:
    """Names of the lines of a module whose execution shows a fault in a line; None: any of them.

    That is the innermost statement around the line, without the statements in it. For what stands in a function's signature it is the
    function's body, and for a constant of the module, the bodies of the functions that name it.
    """
    tree, names = ast.parse(_source(module)), named(_source(module))
    inner = _function_around(tree, line)
    if inner is not None:
        found = _statement(inner, line) if inner.body[0].lineno <= line else _body(inner)
        return {names[each - 1] for each in found}
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= line <= (node.end_lineno or 0)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    naming = [
        node
        for node in _functions(tree)
        if any(isinstance(part, ast.Name) and part.id in constants for part in ast.walk(node))
    ]
    return {names[each - 1] for node in naming for each in _body(node)} or None


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _function_around(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    around = [node for node in _functions(tree) if _first_line_number(node) <= line <= (node.end_lineno or 0)]
    return max(around, key=_first_line_number, default=None)


def _statement(function: ast.FunctionDef, line: int) -> Iterable[int]:
    inner = max(
        (
            node
            for node in ast.walk(function)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
        ),
        key=lambda node: (node.lineno, -(node.end_lineno or 0)),
    )
    parts = [part.lineno for part in ast.walk(inner) if isinstance(part, ast.stmt) and part is not inner]
    last = min(parts, default=(inner.end_lineno or 0) + 1)
    return range(inner.lineno, max(last, inner.lineno + 1)) if line < last else [line]


def _body(function: ast.FunctionDef) -> Iterable[int]:
    return range(function.body[0].lineno, (function.end_lineno or 0) + 1)


def _first_line_number(node: ast.FunctionDef) -> int:
    """The line that the interpreter calls a function's first: its first decorator's."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
