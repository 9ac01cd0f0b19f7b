"""Whatever a sentence has a place for is given where it is said."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    file for name in ("dpdist", "flows") for file in (ROOT / name).rglob("*.py") if "say(" in file.read_text("utf-8")
)


def texts_of(node: ast.expr, names: dict[str, ast.expr]) -> Iterator[str]:
    """The sentences that an expression can be, as far as they are written down in its module."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from texts_of(body, names)
            yield from texts_of(other, names)
        case ast.Call(func=ast.Name(id="translatable"), args=[text]):
            yield from texts_of(text, names)
        case ast.Name(id=name):
            if name in names:
                yield from texts_of(names[name], {key: value for key, value in names.items() if key != name})


def places_in(text: str) -> set[str]:
    """What a sentence has places for."""
    return {name.partition(".")[0].partition("[")[0] for _, name, _, _ in Formatter().parse(text) if name is not None}


def assigned(scope: ast.AST, line: int) -> dict[str, ast.expr]:
    """What names stand for at a line of a function, or of what is at the top of a module."""
    nodes = ast.iter_child_nodes(scope) if isinstance(scope, ast.Module) else ast.walk(scope)
    assignments = [node for node in nodes if isinstance(node, ast.Assign) and node.lineno < line]
    return {
        target.id: node.value
        for node in sorted(assignments, key=lambda node: node.lineno)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def said(tree: ast.Module) -> Iterator[tuple[ast.Call, dict[str, ast.expr]]]:
    """Calls of ``say`` with what names stand for where they are made, innermost functions first."""
    scopes = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    seen = set[ast.Call]()
    for scope in (*reversed(scopes), tree):
        for call in ast.walk(scope):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "say" and call not in seen:
                seen.add(call)
                yield call, assigned(tree, call.lineno) | assigned(scope, call.lineno)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_place_of_a_sentence_is_filled(file: Path) -> None:
    for call, names in said(ast.parse(file.read_text("utf-8"))):
        given = {keyword.arg for keyword in call.keywords}
        if None in given:  # a mapping, of which nothing is known here
            continue
        for text in texts_of(call.args[0], names):
            assert places_in(text) <= given, f"line {call.lineno}: {text}"


def test_nearly_all_sentences_are_found() -> None:
    found = [
        any(texts_of(call.args[0], names)) for file in FILES for call, names in said(ast.parse(file.read_text("utf-8")))
    ]
    assert sum(found) > 0.7 * len(found) > 100
