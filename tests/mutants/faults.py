"""Which faults there are: the modules, the replacements, and what counts as a fault."""

from __future__ import annotations

import ast
import difflib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).parents[2]
MODULES = (
    "dpdist/privacy/*.py",
    "dpdist/privacy/*/*.py",
    "dpdist/grids/*.py",
    "dpdist/strategies/representations.py",
    "dpdist/release/*.py",
    "dpdist/machine/leases.py",
    "dpdist/machine/reduction.py",
    "dpdist/machine/store*.py",
    "dpdist/machine/engine/*.py",
    "dpdist/machine/objects/*.py",
    "dpdist/process/durable.py",
    "dpdist/process/private.py",
    "dpdist/domain/*.py",
    "dpdist/quantities/*.py",
    "dpdist/records/*.py",
    "dpdist/records/formats/*.py",
    "dpdist/spec/compiled.py",
    "dpdist/spec/job.py",
    "dpdist/spec/origin.py",
    "dpdist/spec/sums.py",
    "dpdist/spec/queries/statistics.py",
    "dpdist/strategies/worst.py",
    "dpdist/identities.py",
    "dpdist/stability.py",
)
"""Where faults are planted: patterns of files."""
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


def modules() -> list[str]:
    """The files in which faults are planted, in the order of ``MODULES``."""
    found = chain.from_iterable(sorted(ROOT.glob(pattern)) for pattern in MODULES)
    return list(dict.fromkeys(str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"))


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

    def source(self) -> str:
        """The module with the fault."""
        changed = mutate_code(_source(self.module), get_operator(f"core/{self.operator}")(), self.occurrence)
        assert changed is not None
        return changed


Place = tuple[str, str, int]
"""A module, an operator, and which of the constructs that it changes."""


@cache
def _source(module: str) -> str:
    return (ROOT / module).read_text(encoding="utf-8")


def places_in(module: str) -> Iterator[Place]:
    """Every place where an operator finds something to change."""
    nodes = list(ast_nodes(get_ast(_source(module))))
    for name in OPERATORS:
        operator = get_operator(name)()
        found = sum(len(list(operator.mutation_positions(node))) for node in nodes)
        yield from ((module, name, occurrence) for occurrence in range(found))


def drawn(among: list[str], seed: int) -> Iterator[Mutant]:
    """All faults of the modules in a random order: one of every module, a second of every module, and so on.

    Every module has a draw of its own: a change of one leaves the faults of all others as they were.
    """
    shuffled = []
    for module in among:
        places = list(places_in(module))
        random.Random(f"{seed} {module}").shuffle(places)
        shuffled.append(filter(None, map(mutant_at, places)))
    for turn in zip_longest(*shuffled):
        yield from filter(None, turn)


def mutant_at(place: Place) -> Mutant | None:
    """The fault; None where the program is no other one, or none at all."""
    module, name, occurrence = place
    source = _source(module)
    changed = mutate_code(source, get_operator(name)(), occurrence)
    if changed is None or not differs(source, changed):
        return None
    lines = source.splitlines(), changed.splitlines()
    difference = difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes()
    _, start, stop, first, last = next(code for code in difference if code[0] != "equal")
    before, after = (" ".join(" ".join(part).split()) for part in (lines[0][start:stop], lines[1][first:last]))
    return Mutant(module, name.partition("/")[2], occurrence, start + 1, before, after)


def differs(source: str, changed: str) -> bool:
    """Whether a changed module can do anything else, beside what it says of itself.

    Left out are annotations, texts of errors and assertions, ``__repr__`` and ``__str__``, the sizes of caches, what only
    type checkers read, that dataclasses are frozen (tests/test_habits.py) and that arguments are given by name. The guards
    before an error, and the numbers that they compare, are not.
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
            decorator.keywords = [keyword for keyword in decorator.keywords if keyword.arg != "frozen"]
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
        return self.generic_visit(node)


def _text(value: ast.expr) -> bool:
    """Whether a value is put together from texts alone."""
    if isinstance(value, ast.BinOp):
        return _text(value.left) or _text(value.right)
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


def equivalents(table: Path) -> dict[str, str]:
    """Faults that change nothing that users could see, with the reason: the rows of the table in docs/mutants.md."""
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in table.read_text(encoding="utf-8").splitlines()]
    cells = [[cell.strip().strip("`").replace("\\|", "|") for cell in row] for row in rows if len(row) == 4]
    return {f"{module}: {before} -> {after}": why for module, before, after, why in cells}


def functions_at(module: str, line: int) -> set[int] | None:
    """First lines of the functions whose calls show a fault in a line; None: whatever uses the module.

    That is the innermost function around the line; for a constant of the module, the functions that name it.
    """
    tree = ast.parse(_source(module))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if _first(node) <= line <= (node.end_lineno or 0)]
    body = [node for node in around if node.body[0].lineno <= line]
    if body:
        return {_first(max(body, key=_first))}
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= line <= (node.end_lineno or 0)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    naming = {
        _first(node) for node in functions if any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
    }
    return naming or None


def _first(node: ast.FunctionDef) -> int:
    """The line that the interpreter calls a function's first: its first decorator's."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
