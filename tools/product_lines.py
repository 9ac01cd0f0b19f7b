"""Prints how many lines of product code there are: ``python tools/product_lines.py [FOLDER ...] [--files N]``.

A line counts when a token of code stands on it: docstrings (and other strings that are statements), comments and blank lines do not.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> list[str]:
    """The lines of a module on which code stands."""
    prose = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    coded = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    lines = text.splitlines()
    return [lines[number - 1] for number in sorted(coded - prose) if lines[number - 1].strip()]


def main() -> None:
    """Print the lines of each room, their sum and mean length, and the longest files where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("dpdist"), Path("flows")])
    parser.add_argument("--files", type=int, default=0, help="how many of the longest files to print")
    asked = parser.parse_args()
    rooms: Counter[str] = Counter()
    files: Counter[str] = Counter()
    characters = 0
    for folder in asked.folders:
        for path in sorted(folder.rglob("*.py")):
            lines = code_lines(path.read_text())
            room = path.relative_to(folder).parts[0] if len(path.relative_to(folder).parts) > 1 else "(files)"
            rooms[f"{folder}/{room}"] += len(lines)
            files[str(path)] += len(lines)
            characters += sum(map(len, lines))
    for name, count in sorted(rooms.items()):
        print(f"{count:7,}  {name}")
    for name, count in files.most_common(asked.files):
        print(f"{count:7,}  {name}")
    total = sum(rooms.values())
    print(f"{total:7,}  lines, {characters / total:.2f} characters each in the mean")


if __name__ == "__main__":
    main()
