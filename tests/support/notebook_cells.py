"""Notebooks run cell by cell as Jupyter runs them: the last expression of a cell is shown.

python -m tests.support.notebook_cells examples/notebooks/*.ipynb      run them and write what they show into the files
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def run(notebook: dict[str, Any], name: str) -> list[list[dict[str, Any]]]:
    """The outputs of every code cell. Raises: whatever a cell raises."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell("".join(cell["source"]), namespace, name) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run_cell(source: str, namespace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    if shown is not None:
        data = {"text/plain": repr(shown).splitlines(keepends=True)}
        if hasattr(shown, "_repr_html_"):
            data["text/html"] = shown._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs


def main() -> None:
    for path in (Path(name).resolve() for name in sys.argv[1:]):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory(prefix="dpdist-notebook-") as folder, contextlib.chdir(folder):
            outputs = iter(run(notebook, path.name))
        for count, cell in enumerate((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), start=1):
            cell["outputs"], cell["execution_count"] = next(outputs), count
            for output in cell["outputs"]:
                if "execution_count" in output:
                    output["execution_count"] = count
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
