"""Every sentence that the page says, from its source: Python, templates and scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jinja2

import dpdist

ROOT = Path(dpdist.__file__).parent


@cache
def of_python() -> set[str]:
    return {text for file in ROOT.rglob("*.py") for text in _constants(ast.parse(file.read_text(encoding="utf-8")))}


def _constants(tree: ast.AST) -> Iterator[str]:
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in ("say", "translatable", "plural")
        ):
            for given in call.args[1:] if call.func.id == "plural" else call.args[:1]:
                yield from _texts(given)


def _texts(given: ast.expr) -> Iterator[str]:
    """The sentences of an argument: a text, one of two, or a name for one that ``translatable`` has."""
    if isinstance(given, ast.IfExp):
        yield from _texts(given.body)
        yield from _texts(given.orelse)
    elif isinstance(given, ast.Constant):
        yield str(given.value)
    else:
        assert not isinstance(given, ast.JoinedStr | ast.BinOp), f"say takes a whole sentence: {ast.unparse(given)}"


def of_templates() -> set[str]:
    out = set()
    for file in ROOT.rglob("templates/*.html"):
        for call in jinja2.Environment().parse(file.read_text(encoding="utf-8")).find_all(jinja2.nodes.Call):
            if isinstance(call.node, jinja2.nodes.Name) and call.node.name in ("say", "plural"):
                given = call.args[1:] if call.node.name == "plural" else call.args[:1]
                assert all(isinstance(text, jinja2.nodes.Const) for text in given), (
                    f"say takes a whole sentence: {file.name}"
                )
                out |= {text.value for text in given if isinstance(text, jinja2.nodes.Const)}
    return out


def of_scripts() -> set[str]:
    sources = (file.read_text(encoding="utf-8") for file in ROOT.rglob("templates/*.js"))
    return {text for source in sources for text in re.findall(r'\bsay\("((?:[^"\\]|\\.)*)"', source)}


def in_words(sentences: set[str]) -> set[str]:
    """Without those that are nothing but places and signs."""
    return {sentence for sentence in sentences if re.search(r"[^\W\d_]", re.sub(r"\{[^}]*\}", "", sentence))}
