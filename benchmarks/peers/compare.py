"""The same questions to dpdist and to other systems: error and lines of code, side by side.

    python benchmarks/peers/compare.py [--venvs FOLDER] [--only dpdist opendp pipelinedp smartnoise tumult] [--noise auto gaussian]
        [--repeats 20] [--people 20000]

Every other system runs in a virtual environment of its own, which is made with uv and PyPI if it is not there (Tumult Analytics needs Java,
too). All get the same file of people, one record each, and epsilon = 1 with delta = 1e-6 for each question; what they do with it is their
own standard way; PipelineDP, which asks for the kind of noise, is told Gaussian. dpdist has a column for each --noise that its specs ask
for; its cells say which kind it took. Their programs lie beside this file and are written
here, from what they document. Answers that lie in --answers are not asked for again.

Error: the root of the mean squared error over all answers of a question and all repeats. Lines: statements that a user writes for a
question and the lines of its spec, without those that load the file; helpers that several questions share count for each.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np
from protocol import AGES, MOST_PAID, REGIONS, SEXES, TABLES, TAKEN, VALUES, Answers, key

HERE = Path(__file__).parent
PACKAGES = {
    "opendp": ("OpenDP", "opendp[polars]==0.16.0", "opendp"),
    "pipelinedp": ("PipelineDP", "pipeline-dp==0.3.1", "pipeline-dp"),
    "smartnoise": ("SmartNoise SQL", "smartnoise-sql==1.0.10", "smartnoise-sql"),
    "tumult": ("Tumult Analytics", "tmlt.analytics==0.21.0", "tmlt.analytics"),
}
QUESTIONS = {
    "tables": "people by region, by sex, by age, and by all three (906 counts)",
    "prefix": "people up to each age (100 counts)",
    "sums": "sum of payments by region (4)",
    "means": "mean payment by region (4)",
    "medians": "median age by region (4)",
}
UNSHARED = ("load", "main", "told")
"""What no question is charged for: reading the file, and the protocol."""


def people(path: Path, count: int) -> list[dict[str, object]]:
    """People with a region, sex, age and payment, also written as a CSV file."""
    state = np.random.default_rng(11)
    regions, sexes = state.choice(REGIONS, count, p=[0.4, 0.3, 0.2, 0.1]), state.choice(SEXES, count)
    ages = np.minimum(state.gamma(6, 7, count).astype(int), 99)
    paid = np.minimum(state.lognormal(10, 0.6, count).astype(int), MOST_PAID)
    rows = [
        {"region": str(r), "sex": str(s), "age": int(a), "paid": int(p)}
        for r, s, a, p in zip(regions, sexes, ages, paid, strict=True)
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def truth(rows: list[dict[str, object]]) -> dict[str, Answers]:
    """The exact answers of every question."""
    tables: Answers = {}
    for of in TABLES:
        for values in np.ndindex(*(len(VALUES[name]) for name in of)):
            tables[key(*(VALUES[name][place] for name, place in zip(of, values, strict=True)))] = 0
        for row in rows:
            tables[key(*(row[name] for name in of))] += 1
    ages = np.array([row["age"] for row in rows])
    mine = {region: [row for row in rows if row["region"] == region] for region in REGIONS}
    return {
        "tables": tables,
        "prefix": {key(age): float((ages <= age).sum()) for age in AGES},
        "sums": {region: float(sum(row["paid"] for row in some)) for region, some in mine.items()},
        "means": {region: float(np.mean([row["paid"] for row in some])) for region, some in mine.items()},
        "medians": {region: float(np.median([row["age"] for row in some])) for region, some in mine.items()},
    }


def error(found: list[Answers], exact: Answers) -> str:
    """The root mean squared error; a group that a system left out is an answer of zero."""
    squares = [(answers.get(name, 0.0) - value) ** 2 for answers in found for name, value in exact.items()]
    return f"{np.sqrt(np.mean(squares)):,.3g}" if np.mean(squares) < 1e6 else f"{np.sqrt(np.mean(squares)):,.0f}"


def python_of(system: str, venvs: Path) -> Path:
    """The interpreter of a system's own environment, made if it is not there."""
    _, package, folder = PACKAGES[system]
    python = venvs / folder / "bin" / "python"
    if not python.exists():
        subprocess.run(["uv", "venv", "-q", "--python", "3.11", venvs / folder], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "--python", python, package], check=True)
    return python


Found = dict[str, tuple[list[Answers] | str, str]]
"""By question: all answers, or why there are none, and the kind of noise that was taken where the program says it."""


def asked(system: str, noise: str, file: Path, repeats: int, venvs: Path, kept: Path) -> Found:
    """What a system answers, question by question."""
    store = kept / f"{system}{noise and '-'}{noise}.json"
    if not store.exists():
        python = Path(sys.executable) if system == "dpdist" else python_of(system, venvs)
        command = [python, HERE / f"{system}_answers.py", file, str(repeats), noise]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent, env=os.environ)
        line = next((line for line in done.stdout.splitlines() if line.startswith("ANSWERS")), None)
        if line is None:
            raise SystemExit(f"{system} gave no answers: {done.stderr[-2000:]}")
        answers: dict[str, list[Answers] | str] = json.loads(line.removeprefix("ANSWERS"))
        taken = {tuple(line.removeprefix(TAKEN).split()) for line in done.stdout.splitlines() if line.startswith(TAKEN)}
        kinds = {name: " or ".join(sorted(kind for asked, kind in taken if asked == name)) for name in answers}
        kept.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps({name: (given, kinds[name]) for name, given in answers.items()}), encoding="utf-8")
    return dict(json.loads(store.read_text(encoding="utf-8")))


def lines_of(system: str) -> dict[str, int]:
    """Lines of code of each question, with those of the helpers and constants that it uses."""
    source = (HERE / f"{system}_answers.py").read_text(encoding="utf-8")
    parts: dict[str, ast.stmt] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            parts[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            parts[node.targets[0].id] = node
    return {name: sum(_lines(parts[each]) for each in _used(name, parts)) for name in QUESTIONS if name in parts}


def _used(name: str, parts: dict[str, ast.stmt]) -> set[str]:
    found, left = set(), [name]
    while left:
        each = left.pop()
        if each in parts and each not in found and each not in UNSHARED:
            found.add(each)
            left += [node.id for node in ast.walk(parts[each]) if isinstance(node, ast.Name)]
    return found


def _lines(node: ast.stmt) -> int:
    """Lines that hold code; a text that is no docstring is code."""
    text = ast.unparse(node).splitlines()
    long = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return len([line for line in text if line.strip()]) + sum(value.strip().count("\n") for value in long)


def version_of(system: str, noise: str) -> str:
    if system == "dpdist":
        return f"dpdist {metadata.version('dpdist')}, noise: {noise}"
    name, package, _ = PACKAGES[system]
    return f"{name} {package.rpartition('==')[2]}"


def cell(given: list[Answers] | str, kind: str, exact: Answers, lines: int) -> str:
    """Error and lines, and the kind of noise where it is known."""
    if isinstance(given, str):
        return given.partition(":")[0]
    return f"{error(given, exact)} in {lines}{kind and ', '}{kind}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--venvs", type=Path, default=Path("venvs"))
    parser.add_argument("--only", nargs="+", default=["dpdist", *PACKAGES], choices=["dpdist", *PACKAGES])
    parser.add_argument("--noise", nargs="+", default=["auto", "gaussian"], choices=["auto", "gaussian", "laplace"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tumult-repeats", type=int, default=1, help="Spark takes minutes for a repeat")
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "peers.md")
    parser.add_argument("--answers", type=Path, default=None, help="folder that keeps the answers; default: nowhere")
    options = parser.parse_args()
    options.venvs = options.venvs.resolve()
    columns = [(system, noise) for system in options.only for noise in (options.noise if system == "dpdist" else [""])]
    cells: dict[str, list[str]] = {question: [] for question in QUESTIONS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "people.csv"
        exact = truth(people(file, options.people))
        for system, noise in columns:
            repeats = options.tumult_repeats if system == "tumult" else options.repeats
            found = asked(system, noise, file, repeats, options.venvs, options.answers or Path(folder) / "answers")
            lines = lines_of(system)
            for question in QUESTIONS:
                given, kind = found.get(question, ("no", ""))
                cells[question].append(cell(given, kind, exact[question], lines.get(question, 0)))
    head = [f"| question | {' | '.join(version_of(*each) for each in columns)} |", f"|---|{'---|' * len(columns)}"]
    rows = [f"| {words} | {' | '.join(cells[name])} |" for name, words in QUESTIONS.items()]
    options.out.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")
    print("\n".join([*head, *rows]))


if __name__ == "__main__":
    main()
