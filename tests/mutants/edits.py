"""Every small change of a module's source that makes another program of it, found by its syntax tree."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"), ast.RShift: (">>", "<<"), ast.LShift: ("<<", ">>"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
COMPARISONS = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER|GRANT|REVOKE|RAISE|WHERE|BEGIN)\b")
IN_SQL = {
    r"<>": "=",
    r"(?<![<>!=:])=(?!=)": "<>",
    r"<=": "<",
    r">=": ">",
    r"<(?![=>])": "<=",
    r"(?<![<-])>(?!=)": ">=",
    r"\bAND\b": "OR",
    r"\bOR\b(?! REPLACE)": "AND",
    r"\bIS NOT\b": "IS",
    r"\bIS (?!NOT|DISTINCT)": "IS NOT ",
    r"(?<!IS )\bNOT ": "",
    r"\bDISTINCT ": "",
    r"\bMAX\(": "MIN(",
    r"\bMIN\(": "MAX(",
    r"\bsum\(": "max(",
    r"\bDESC\b": "ASC",
    r" \+ ": " - ",
    r" - ": " + ",
}
"""Patterns in statements of SQL, and what stands there instead."""


@dataclass(frozen=True)
class Edit:
    """One change: of a span of the source, in bytes, on a line."""

    kind: str
    line: int
    start: int
    stop: int
    text: str


def edits(source: str) -> Iterator[Edit]:
    """All changes of a module, one for every construct."""
    finder = _Finder(source)
    for node in ast.walk(ast.parse(source)):
        yield from finder.edits_of_node(node)
    yield from finder.of_sql()


class _Finder:
    def __init__(self, source: str) -> None:
        self.source, self.bytes = source, source.encode()
        self.starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def byte_offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.byte_offset(node.lineno, node.col_offset), self.byte_offset(node.end_lineno, node.end_col_offset)

    def edit(self, kind: str, start: int, stop: int, text: str) -> Edit:
        return Edit(kind, self.bytes.count(b"\n", 0, start) + 1, start, stop, text)

    def edits_of_node(self, node: ast.AST) -> Iterator[Edit]:
        """The changes of one node."""
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield from self.edits_of_sign("operator", node.left, node.right, *OPERATORS[type(node.op)])
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            sign, other = OPERATORS[type(node.op)]
            yield from self.edits_of_sign("operator", node.target, node.value, f"{sign}=", f"{other}=")
        elif isinstance(node, ast.Compare):
            for left, sort, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                yield from self.edits_of_sign("comparison", left, right, *COMPARISONS[type(sort)])
        elif isinstance(node, ast.BoolOp):
            signs = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            yield from self.edits_of_sign("condition", node.values[0], node.values[1], *signs)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield self.edit("sign or negation dropped", self.span(node)[0], self.span(node.operand)[0], " ")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            value = repr(not node.value) if isinstance(node.value, bool) else repr(node.value + 1)
            yield self.edit("number", *self.span(node), value)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            start, stop = self.span(node.test)
            yield self.edit("condition negated", start, stop, f"not ({self.bytes[start:stop].decode()})")
        elif isinstance(node, ast.For):
            yield self.edit("loop never entered", *self.span(node.iter), "()")
        elif isinstance(node, ast.Break | ast.Continue):
            yield self.edit("loop", *self.span(node), "continue" if isinstance(node, ast.Break) else "break")
        elif isinstance(node, ast.Call):
            yield from self.dropped(node)
        if _can_be_deleted(node):
            yield self.edit("statement deleted", *self.span(node), "pass")

    def edits_of_sign(self, kind: str, left: ast.expr, right: ast.expr, sign: str, other: str) -> Iterator[Edit]:
        """The sign between two expressions, where nothing but parentheses stands beside it."""
        start, stop = self.span(left)[1], self.span(right)[0]
        found = re.fullmatch(rf"([\s)\\]*){re.escape(sign)}([\s(\\]*)", self.bytes[start:stop].decode())
        if found:
            begin = start + len(found[1])
            yield self.edit(kind, begin, begin + len(sign), other)

    def dropped(self, node: ast.Call) -> Iterator[Edit]:
        """Arguments that are given by name and left out: those by place have no default, mostly, and every call would fail."""
        parts = sorted([*node.args, *node.keywords], key=lambda part: self.span(part)[0])
        for before, part in zip([None, *parts], parts, strict=False):
            start, stop = self.span(part)
            if not isinstance(part, ast.keyword) or part.arg is None:
                continue
            if before is None:
                yield Edit("argument dropped", part.lineno, start, stop, "")
            elif self.bytes[self.span(before)[1] : start].strip() == b",":
                yield Edit("argument dropped", part.lineno, self.span(before)[1], stop, "")

    def of_sql(self) -> Iterator[Edit]:
        """Operators inside of statements of SQL."""
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type != tokenize.STRING or not SQL.search(token.string):
                continue
            begin = self.byte_offset(
                token.start[0], len(token.line[: token.start[1]].encode()) if token.start[0] == token.end[0] else 0
            )
            if token.start[0] != token.end[0]:
                begin = self.byte_offset(
                    token.start[0], len(self.source.splitlines()[token.start[0] - 1][: token.start[1]].encode())
                )
            for pattern, text in IN_SQL.items():
                for found in re.finditer(pattern, token.string):
                    start = begin + len(token.string[: found.start()].encode())
                    yield self.edit("SQL", start, start + len(found[0].encode()), text)


def _can_be_deleted(node: ast.AST) -> TypeGuard[ast.stmt]:
    """Whether a statement does something that nothing after it needs in order to run at all."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)  # a docstring, or an ellipsis
    if isinstance(node, ast.Assign):
        return not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Delete)
