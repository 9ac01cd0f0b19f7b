"""Five tasks of an analyst in four systems: statements, lines, CPU seconds, and what is seen before anything is spent.

    python benchmarks/peers/tasks.py [--venvs FOLDER] [--only dpdist opendp tumult dpwizard] [--out benchmarks/results/tasks.md]

8,000 invented visits of 4,000 visitors of a library; a visitor is protected with up to five visits, epsilon is 1 and delta 1e-6. Each task
is a program (tasks_SYSTEM.py) that runs by itself, in an environment of its own system, which is made with uv and PyPI if it is not there;
Tumult Analytics needs Java. Lines and statements are those of the task's function and of what it uses. DP Wizard has a form in place
of a program: its lines are those of the script that the form writes, and nobody has to write them. CPU seconds are those of the program and
the processes that it waits for: Spark's own process, which Tumult's programs leave to end by itself, is not among them.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from compare import PACKAGES, python_of

HERE = Path(__file__).parent
PACKAGES["dpwizard"] = ("DP Wizard", "dp-wizard==0.10.0", "dp-wizard")
SYSTEMS = ("dpdist", "opendp", "tumult", "dpwizard")
TASKS = {
    "tables": "visits by branch, by eight bands of age, and by both",
    "means": "mean minutes by branch",
    "medians": "median age by branch",
    "visitors": "different visitors by branch",
    "year": "three releases of epsilon 1 under a cap of 2: the third must be refused",
}
SEEN = {
    "dpdist": "the exact 95 % half width of each answer of linear questions, after the fit of all tables together; the budget for a wanted "
    "one; of means those of sum and count; of medians nothing. No record is read. The cap is kept in a ledger between processes",
    "opendp": "scale and 95 % half width of each noise (`summarize(alpha=)`), of a median its scale alone; the data must be there. The "
    "budget is kept while the process runs",
    "tumult": "nothing by its public interface: a query is evaluated or not. The remaining budget is kept while the process runs",
    "dpwizard": "a chart of simulated data with error bars, for each column, in a browser. No budget is kept: a script runs as often as "
    "one starts it",
}


def write_visit_records(path: Path) -> None:
    """Write the records."""
    state, rows = np.random.default_rng(1), 8000
    columns = {
        "card": state.integers(0, 4000, rows),
        "age": state.normal(38, 18, rows).clip(0, 99).round(),
        "branch": state.choice(["Centre", "North", "Harbour"], rows, p=[0.5, 0.3, 0.2]),
        "borrowed": np.where(state.random(rows) < 0.45, "yes", "no"),
        "minutes": state.gamma(2, 25, rows).round(),
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def size(text: str, task: str | None) -> tuple[int, int]:
    """Statements and lines of a task and of what it uses, without comments and docstrings; of a whole program where no task is named."""
    body = [
        each for each in ast.parse(text).body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]
    used = body if task is None else _statements_used(body, task)
    statements = sum(isinstance(node, ast.stmt) for each in used for node in ast.walk(each))
    return statements, sum(bool(line.strip()) for each in used for line in ast.unparse(each).splitlines())


def _statements_used(body: list[ast.stmt], task: str) -> list[ast.stmt]:
    """The task's function, and whatever of the program it names, itself or by another."""
    found: list[ast.stmt] = []
    names = {task}
    for _ in body:
        for each in body:
            if each not in found and _names(each) & names:
                found.append(each)
                names |= {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
    return found


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(each.asname or each.name).split(".")[0] for each in node.names}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def run_task(system: str, task: str, folder: Path, venvs: Path) -> str:
    """A cell: statements, lines and CPU seconds. Raises: SystemExit for a program that fails."""
    program, python = HERE / f"tasks_{system}.py", sys.executable if system == "dpdist" else str(python_of(system, venvs))
    work = folder / f"{system}-{task}"
    work.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "DPDIST_HOME": str(work / "home"), "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(
        [python, str(program), task, str(folder / "visits.csv")],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if "NO FORM" in completed.stderr:
        return "no form"
    if completed.returncode or (task == "year" and "REFUSED" not in completed.stdout):
        sys.exit(f"{system} {task}: {completed.stderr[-2000:]}")
    written = work / "task.py"
    statements, lines = size(
        written.read_text() if written.exists() else program.read_text(), None if written.exists() else task
    )
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{statements} / {lines} / {seconds:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--venvs", type=Path, default=Path("venvs"))
    parser.add_argument("--only", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--out", type=Path, help="the file to write")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_visit_records(Path(folder) / "visits.csv")
        for system in given.only:  # compiles what is compiled once after an installation
            run_task(system, "tables", Path(folder), given.venvs.resolve())
            (Path(folder) / f"{system}-tables").rename(Path(folder) / f"{system}-first")
        cells = {
            task: [run_task(system, task, Path(folder), given.venvs.resolve()) for system in given.only] for task in TASKS
        }
    named = ["dpdist" if system == "dpdist" else PACKAGES[system][1].replace("==", " ") for system in given.only]
    lines = [f"| statements / lines / CPU s | {' | '.join(named)} |", f"|---|{'---|' * len(named)}"]
    lines += [f"| {TASKS[task]} | {' | '.join(row)} |" for task, row in cells.items()]
    lines.append(f"| seen before anything is spent | {' | '.join(SEEN[system] for system in given.only)} |")
    print("\n".join(lines))
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
