"""The same questions to dpdist and to other systems: error and lines of code, side by side.

    python benchmarks/peers/compare.py [--venvs FOLDER] [--only dpdist opendp pipelinedp smartnoise tumult] [--noise default]
        [--repeats 1.0] [--people 20000]

Every other system runs in a virtual environment of its own, which is made with uv and PyPI if it is not there (Tumult Analytics needs Java,
too). All get the same files (people.py), with one record a person but for the purchases of a shop, and epsilon = 1 with delta = 1e-6
for each question; what they do with it is their own standard way, with the noise that they take of themselves. dpdist has a column for
each --noise that its specs ask for; its cells say which kind it took. Their programs lie beside this file and are written here, from
what they document. Answers that lie in --answers are not asked for again. Questions whose data is not part of the project are left out
where it is not there (DPDIST_DATA).

Error: the root of the mean squared error over all answers of a question and all repeats, of which all systems have the same number, and
by how much of itself it is uncertain (one standard error, from the spread over the repeats). Lines: statements that a user writes for a
question and the lines of its spec, without those that load the files; helpers that several questions share count for each.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np
from people import truth, written
from protocol import TAKEN, Answers

HERE = Path(__file__).parent
PACKAGES = {
    "opendp": ("OpenDP", "opendp[polars]==0.16.0", "opendp"),
    "pipelinedp": ("PipelineDP", "pipeline-dp==0.3.1", "pipeline-dp"),
    "smartnoise": ("SmartNoise SQL", "smartnoise-sql==1.0.10", "smartnoise-sql"),
    "tumult": ("Tumult Analytics", "tmlt.analytics==0.21.0", "tmlt.analytics"),
}
QUESTIONS = {
    "tables": ("people by region, by sex, by age, and by all three (906 counts)", 5),
    "prefix": ("people up to each age (100 counts)", 20),
    "sums": ("sum of payments by region (4)", 40),
    "means": ("mean payment by region (4)", 40),
    "medians": ("median age by region (4)", 40),
    "flights": ("flights by hour, by delay, and by both (1,624 counts)", 5),
    "spent": ("sum spent by town, three purchases a customer (4)", 40),
    "days": ("purchases up to each day, three a customer (91 counts)", 20),
    "levels": ("people by region, subregion and country of birth (54 counts)", 20),
    "sparse": ("Adult: all ten 3-way tables of five attributes (10,587 counts)", 5),
}
"""What is asked, and how often."""
UNSHARED = ("load", "main", "print_noise_kind")
"""What no question is charged for: reading the file, and the protocol."""


def error(found: list[Answers], exact: Answers) -> str:
    """The root mean squared error and its uncertainty; a group that a system left out is an answer of zero."""
    squares = np.array(
        [np.mean([(answers.get(name, 0.0) - value) ** 2 for name, value in exact.items()]) for answers in found]
    )
    mean = squares.mean()
    uncertain = squares.std(ddof=1) / squares.size**0.5 / (2 * mean) if squares.size > 1 and mean else 0.0
    shown = f"{np.sqrt(mean):,.3g}" if mean < 1e6 else f"{np.sqrt(mean):,.0f}"
    return f"{shown} ± {uncertain:.0%}" if uncertain else shown


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


def system_answers(system: str, noise: str, files: Path, repeats: dict[str, int], venvs: Path, kept: Path) -> Found:
    """What a system answers, question by question."""
    store = kept / f"{system}{noise and '-'}{noise}.json"
    if not store.exists():
        python = Path(sys.executable) if system == "dpdist" else python_of(system, venvs)
        command = [python, HERE / f"{system}_answers.py", files, json.dumps(repeats), noise]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=files, env=os.environ)
        line = next((line for line in done.stdout.splitlines() if line.startswith("ANSWERS")), None)
        if line is None:
            raise SystemExit(f"{system} gave no answers: {done.stderr[-2000:]}")
        answers: dict[str, list[Answers] | str] = json.loads(line.removeprefix("ANSWERS"))
        taken = {tuple(line.removeprefix(TAKEN).split()) for line in done.stdout.splitlines() if line.startswith(TAKEN)}
        kinds = {name: " or ".join(sorted(kind for asked, kind in taken if asked == name)) for name in answers}
        kept.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps({name: (values, kinds[name]) for name, values in answers.items()}), encoding="utf-8")
    return dict(json.loads(store.read_text(encoding="utf-8")))


def code_lines_by_question(system: str) -> dict[str, int]:
    """Lines of code of each question, with those of the helpers and constants that it uses."""
    source = (HERE / f"{system}_answers.py").read_text(encoding="utf-8")
    parts: dict[str, ast.stmt] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            parts[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            parts[node.targets[0].id] = node
    return {
        name: sum(_count_code_lines(parts[each]) for each in _names_used(name, parts)) for name in QUESTIONS if name in parts
    }


def _names_used(name: str, parts: dict[str, ast.stmt]) -> set[str]:
    found, unvisited = set(), [name]
    while unvisited:
        each = unvisited.pop()
        if each in parts and each not in found and each not in UNSHARED:
            found.add(each)
            unvisited += [node.id for node in ast.walk(parts[each]) if isinstance(node, ast.Name)]
    return found


def _count_code_lines(node: ast.stmt) -> int:
    """Lines that hold code; a text that is no docstring is code."""
    text = ast.unparse(node).splitlines()
    long = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return len([line for line in text if line.strip()]) + sum(value.strip().count("\n") for value in long)


def version_of(system: str, noise: str) -> str:
    if system == "dpdist":
        return f"dpdist {metadata.version('dpdist')}{'' if noise == 'default' else f', noise: {noise}'}"
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
    parser.add_argument("--noise", nargs="+", default=["default"], choices=["default", "gaussian", "laplace"])
    parser.add_argument("--repeats", type=float, default=1.0, help="by what the numbers of repeats are multiplied")
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "peers.md")
    parser.add_argument("--answers", type=Path, default=None, help="folder that keeps the answers; default: nowhere")
    options = parser.parse_args()
    options.venvs = options.venvs.resolve()
    columns = [(system, noise) for system in options.only for noise in (options.noise if system == "dpdist" else [""])]
    with tempfile.TemporaryDirectory() as folder:
        exact = truth(written(Path(folder), options.people))
        repeats = {name: max(1, round(options.repeats * QUESTIONS[name][1])) for name in QUESTIONS if name in exact}
        cells = {name: [] for name in repeats}
        for system, noise in columns:
            found = system_answers(
                system, noise, Path(folder), repeats, options.venvs, options.answers or Path(folder) / "answers"
            )
            lines = code_lines_by_question(system)
            for name in repeats:
                given, kind = found.get(name, ("no", ""))
                cells[name].append(cell(given, kind, exact[name], lines.get(name, 0)))
    head = [
        f"| question | repeats | {' | '.join(version_of(*each) for each in columns)} |",
        f"|---|---|{'---|' * len(columns)}",
    ]
    rows = [f"| {QUESTIONS[name][0]} | {repeats[name]} | {' | '.join(row)} |" for name, row in cells.items()]
    options.out.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")
    print("\n".join([*head, *rows]))


if __name__ == "__main__":
    main()
