"""Names that say nothing to a reader who does not know the code: ``tools/vague_names.py [--list] [--check] [--definitions] FOLDER...``

A name counts when each of its words is a function word, a bare participle or a figure of speech ("told", "kept", "as_read"): it says
neither what a thing is (a noun of the field) nor what is done to what (a verb with its object). ``--list`` prints each with its place,
``--check`` fails above the limits, ``--definitions`` leaves parameters and variables out of both, as for tests and benchmarks. cubed,
jax_privacy, tumult-core and zarr have 0.3 to 0.6 % of such names among modules, classes and functions.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_OF_DEFINITIONS, MOST_OF_ALL = 0.010, 0.050
"""The largest shares that pass: of modules, classes and functions, and of these with parameters and variables."""
DEFINITIONS = ("module", "class", "function")
_VAGUE_WORDS = """
    told tell tells kept keep held hold asked given gives known seen found bought begun began done made said called wanted needed used read
    beyond apart fewer most least more less many some other others nobody somebody whoever whatever each every both such same
    past present later former further first firsts last lasts early aside away over under within without beside between
    course story trade trades visit visits need needs look circle line lines tall buffer buffers split pass passes place places room rooms
    chosen listed gathered spread side part parts piece pieces thing things way ways what which where when how who why
    happened going gone comes came left right off on up down in out own through across plain plainly silent silently
    mark marked share shares shared nearest furthest closest nearly"""
_JOINING_WORDS = (
    "of by as to for is has a the and with from at it its all are be can may no not new one two so than that this"
)
VAGUE, JOINING = frozenset(_VAGUE_WORDS.split()), frozenset(_JOINING_WORDS.split())


_VAGUE_FILES = {
    "alone",
    "small",
    "often",
    "ends",
    "fit",
    "idle",
    "opening",
    "worst",
    "efforts",
    "heads",
    "scripts",
    "start",
    "method",
}
"""Words that may name a function beside its arguments, and say too little as the name of a file."""


def words_of(name: str) -> list[str]:
    """The words of a name in snake or camel case, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name.strip("_"))]


def is_vague(name: str) -> bool:
    """Whether no word of a name says anything."""
    words = words_of(name)
    return bool(words) and all(word in VAGUE or word in JOINING for word in words)


def is_vague_file(name: str) -> bool:
    """Whether no word of a file's name, without its ending and the ``test_`` of tests, says what it is about."""
    return all(is_vague(word) or word in _VAGUE_FILES for word in words_of(name.removeprefix("test_")))


def names_in(path: Path) -> Iterator[tuple[str, str, int]]:
    """Every name that a file binds: its kind, the name, its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.name != "__init__.py":
        yield "module", path.stem, 1
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield "class", node.name, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("__"):
                yield "function", node.name, node.lineno
            parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (("parameter", each.arg, node.lineno) for each in parameters if each.arg not in ("self", "cls"))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield "variable", node.id, node.lineno


def main(arguments: list[str]) -> int:
    """Print the shares; with ``--check``, returns 1 where one is above its limit."""
    folders = [argument for argument in arguments if not argument.startswith("--")] or ["dpdist", "flows"]
    names = [(path, *name) for folder in folders for path in sorted(Path(folder).rglob("*.py")) for name in names_in(path)]
    if "--definitions" in arguments:
        names = [name for name in names if name[1] in DEFINITIONS]
    if "--list" in arguments:
        print(*(f"{path}:{line}\t{kind}\t{name}" for path, kind, name, line in names if is_vague(name)), sep="\n")
    failed = False
    measures = [
        ("modules, classes and functions", DEFINITIONS, MOST_OF_DEFINITIONS),
        ("all names", (*DEFINITIONS, "parameter", "variable"), MOST_OF_ALL),
    ]
    for title, kinds, limit in measures[:1] if "--definitions" in arguments else measures:
        of_kinds = [name for _, kind, name, _ in names if kind in kinds]
        share = sum(map(is_vague, of_kinds)) / max(1, len(of_kinds))
        failed = failed or share > limit
        print(f"{title}: {100 * share:.2f} % of {len(of_kinds)} say nothing (at most {100 * limit:.0f} %)")
    return int(failed and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
