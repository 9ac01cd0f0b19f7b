"""Both tutorials as a newcomer follows them: each in a fresh environment with what it names, each step after the step before it.

    python benchmarks/tutorials.py [--again 1] [--out benchmarks/results/tutorials.md]

CPU seconds count children, statements those of Python, the commands of a shell and the lines of a spec, lines all that are not empty. The
environment is made with the built wheel; what a first run compiles is in its figures, and in those of a run again no more.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TERMINAL = ROOT / "docs" / "tutorial.md"
NOTEBOOK = ROOT / "examples" / "notebooks" / "first_release.ipynb"
EXTRAS = {"terminal": "cli", "notebook": "notebook"}
"""What each tutorial has its reader install."""
SECTION = re.compile(r"^## (\d+\. [^\n]*)$|^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELLS = """
import ast, json, resource, sys, traceback

def used():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

namespace, found = {"__name__": "__main__"}, []
for cell in json.load(open(sys.argv[1])):
    before, tree = used(), ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, "cell", "exec"), namespace)
        if last is not None:  # as a notebook shows it
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
            for form in ("_repr_html_", "__repr__"):
                getattr(shown, form, str)()
    except BaseException:
        sys.exit("".join(traceback.format_exc()))
    found.append(used() - before)
json.dump(found, open(sys.argv[2], "w"))
"""
MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
open(sys.argv[1], "w").write(str(used.ru_utime + used.ru_stime))
sys.exit(done.returncode)
"""


@dataclass(frozen=True)
class Step:
    """What a reader does at once.

    Attributes:
        blocks: kind, options and text of each.
    """

    title: str
    blocks: tuple[tuple[str, str, str], ...]

    @property
    def line_count(self) -> int:
        return sum(bool(line.strip()) for _, _, text in self.blocks for line in text.splitlines())

    @property
    def statements(self) -> int:
        python = sum(
            isinstance(each, ast.stmt)
            for kind, _, text in self.blocks
            if kind == "python"
            for each in ast.walk(ast.parse(text))
        )
        return python + sum(
            bool(line.strip()) for kind, _, text in self.blocks if kind != "python" for line in text.splitlines()
        )


def terminal_steps() -> list[Step]:
    """The numbered sections of the page; its first block names the installation, which is measured apart."""
    steps: list[tuple[str, list[tuple[str, str, str]]]] = []
    for title, kind, options, text in SECTION.findall(TERMINAL.read_text(encoding="utf-8")):
        if title:
            steps.append((title, []))
        elif kind != "text":
            steps[-1][1].append((kind, options, text))
    return [Step(title, tuple(blocks)) for title, blocks in steps if blocks]


def notebook_steps() -> list[Step]:
    """The cells of code, called by the first sentence before each."""
    steps, said = [], ""
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            said = text.removeprefix("# ").split("\n")[0].split(". ")[0].split(": ")[0].rstrip(".")
        else:
            steps.append(Step(said, (("python", "", text),)))
    return steps


def wheel(folder: Path) -> Path:
    """The wheel, built from a copy of the project."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "clone")], check=True)
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", str(folder / "out")]
    subprocess.run(command, cwd=folder / "clone", check=True, capture_output=True)
    (built,) = (folder / "out").glob("*.whl")
    return built


def installed(folder: Path, package: Path, extra: str) -> Path:
    """The folder of programs of a fresh environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, f"{package}[{extra}]"], check=True)
    return folder / "bin"


def environment(programs: Path, home: Path) -> dict[str, str]:
    """What a newcomer's shell has."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DPDIST_", "PREFECT_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {**kept, "PATH": f"{programs}:{kept['PATH']}", "DPDIST_HOME": str(home), "OMP_NUM_THREADS": "1"}


def by_terminal(programs: Path, work: Path) -> Iterator[float]:
    """CPU seconds of each step. Raises: SystemExit for a step that does not end as the page says."""
    known = environment(programs, work / "home")
    for step in terminal_steps():
        seconds = 0.0
        for kind, options, text in step.blocks:
            title = re.fullmatch(r'title="(\w[\w.-]*)"', options)
            if kind == "yaml":
                (work / (title[1] if title else "part.yaml")).write_text(text)
                continue
            command = [str(programs / "python"), "-c", text] if kind == "python" else ["bash", "-euc", text]
            told = work / "seconds"
            done = subprocess.run(
                [sys.executable, "-c", MEASURED, str(told), *command],
                cwd=work,
                env=known,
                capture_output=True,
                text=True,
                check=False,
            )
            if (done.returncode != 0) != (options == 'title="refused"'):
                sys.exit(f"{step.title}\n{text}\n{done.stdout}\n{done.stderr}")
            seconds += float(told.read_text())
        yield seconds


def by_notebook(programs: Path, work: Path) -> Iterator[float]:
    """CPU seconds of each cell. Raises: SystemExit for one that fails."""
    (work / "cells.json").write_text(json.dumps([text for step in notebook_steps() for _, _, text in step.blocks]))
    known = environment(programs, work / "home")
    command = [str(programs / "python"), "-c", CELLS, "cells.json", "seconds.json"]
    done = subprocess.run(command, cwd=work, env=known, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    yield from json.loads((work / "seconds.json").read_text())


FOLLOWED = {"terminal": (terminal_steps, by_terminal), "notebook": (notebook_steps, by_notebook)}


def followed(name: str, package: Path, folder: Path, again: int) -> str:
    """A table of a tutorial's steps: the first time, and the last of so many more, each in an empty folder."""
    steps, follow = FOLLOWED[name]
    programs = installed(folder / f"{name}-venv", package, EXTRAS[name])
    runs = []
    for number in range(again + 1):
        work = folder / f"{name}-{number}"
        work.mkdir()
        runs.append(list(follow(programs, work)))
    rows = [
        f"| {step.title} | {step.statements} | {step.line_count} | {first:.2f} | {last:.2f} |"
        for step, first, last in zip(steps(), runs[0], runs[-1], strict=True)
    ]
    totals = f"{sum(s.statements for s in steps())} | {sum(s.line_count for s in steps())}"
    whole = f"| all | {totals} | {sum(runs[0]):.2f} | {sum(runs[-1]):.2f} |"
    columns = "| step | statements | lines | CPU s, first time | CPU s, again |\n|---|---|---|---|---|"
    head = f'The {name}, `pip install "dpdist[{EXTRAS[name]}]"`:\n\n{columns}'
    return "\n".join([head, *rows, whole])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", choices=[*FOLLOWED], help="one of them")
    parser.add_argument("--again", type=int, default=1, help="how often each is followed again")
    parser.add_argument("--out", type=Path, help="the file to write")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dpdist-tutorials-") as folder:
        package = wheel(Path(folder))
        names = [given.only] if given.only else [*FOLLOWED]
        tables = "\n\n".join(followed(name, package, Path(folder), given.again) for name in names)
    print(tables)
    if given.out is not None:
        given.out.write_text(
            f"# Both tutorials, step by step\n\nWritten by `python benchmarks/tutorials.py --out {given.out}`.\n\n{tables}\n"
        )


if __name__ == "__main__":
    main()
