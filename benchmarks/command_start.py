"""CPU seconds and memory of commands that do little: what a user waits for before anything happens.

    python benchmarks/command_start.py [--before ANOTHER_TREE] [--repeats 5] [--plan] [--out benchmarks/results/command_start.md]

Children count: the cluster. With another tree (a git worktree of an older commit) its commands are run in turn with
this one's, so that what else the machine does slows both.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEASURED = """
import os, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)
sys.stderr.write(done.stderr)
"""
DPDIST = "import sys; from flows.main import main; main()"
SESSION = """
import dpdist as dp
session = dp.Session("visitors", cap=dp.Budget(epsilon=2, delta=1e-6))
ages = dp.edges(0, 12, 18, 25, 35, 50, 65, 80, 100)
session.domain(age=ages, branch=["Centre", "North", "Harbour"], borrowed=["yes", "no"])
session.plan(dp.marginals(1, 2), budget=dp.Budget(epsilon=1, delta=1e-6)).publish("visitors.csv")
"""
PROGRAMS = {
    "for comparison: Python alone": "pass",
    "for comparison: `import typer, rich`": "import typer, rich",
    "for comparison: `import sqlalchemy`": "import sqlalchemy",
    "for comparison: `import pyarrow.parquet, pyarrow.compute`": "import pyarrow.parquet, pyarrow.compute",
    "`import dpdist`": "import dpdist",
}
"""What libraries take by themselves, which no command that needs them can fall below; and the import of this one."""
CHEAP: dict[str, tuple[str, ...]] = {
    "`dpdist --help`": ("--help",),
    "`dpdist keys check`": ("keys", "check"),
    "`dpdist ledger`": ("ledger",),
    "`dpdist show visitors-2026-11`": ("show", "visitors-2026-11"),
    "`dpdist schema`": ("schema",),
    "the tutorial's release, finished, run again": ("run", "release.yaml"),
    "a refusal: no budget left": ("run", "greedy.yaml"),
}


class Tree:
    """A copy of the project, with a place where the tutorial is followed."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place = root, place
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DPDIST_", "PREFECT_", "PYTHON"))},
            "PYTHONPATH": str(root),
            "OMP_NUM_THREADS": "1",
            "DPDIST_HOME": str(place / "home"),
        }
        text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
        (spec,) = re.findall(r'^```yaml title="release.yaml"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
        records = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
        place.mkdir()
        (place / "release.yaml").write_text(spec, encoding="utf-8")
        greedy = spec.replace("visitors-2026-11", "greedy").replace("  epsilon: 1\n", "  epsilon: 1.9\n")
        (place / "greedy.yaml").write_text(greedy, encoding="utf-8")
        subprocess.run([sys.executable, "-c", records], cwd=place, check=True)

    def release(self) -> tuple[float, int]:
        """Of the tutorial's release: published anew, with a new root key, ledger and store."""
        for folder in ("home", "releases"):
            shutil.rmtree(self.place / folder, ignore_errors=True)
        self.run("keys", "init")
        return self.run("run", "release.yaml")

    def session(self) -> tuple[float, int]:
        """Of the same release in Python."""
        for folder in ("home", "releases"):
            shutil.rmtree(self.place / folder, ignore_errors=True)
        return self.program(SESSION)

    def run(self, *arguments: str) -> tuple[float, int]:
        """CPU seconds and the largest process's MB of a command."""
        return self.program(DPDIST, *arguments)

    def program(self, program: str, *arguments: str) -> tuple[float, int]:
        """The same of a Python program."""
        command = [sys.executable, "-c", MEASURED, sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, cwd=self.place, env=self.environment, capture_output=True, text=True, check=True)
        code, seconds, memory = done.stdout.split()
        if (code != "0") != ("greedy.yaml" in arguments):
            raise RuntimeError(f"{arguments} ended with {code}: {done.stderr}")
        return float(seconds), int(memory)


def medians(found: list[tuple[float, int]]) -> str:
    if not found:
        return ""
    seconds, memory = (statistics.median(values) for values in zip(*found, strict=True))
    return f"{seconds:.2f} s, {memory:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--plan", action="store_true", help="plan examples/census, too, which takes a minute")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dpdist-start-") as folder:
        trees = [Tree(root, Path(folder) / str(i)) for i, root in enumerate(filter(None, (options.before, ROOT)))]
        rows: dict[str, list[str]] = {}
        for name, released in (("the same with `dp.Session`", Tree.session), ("the tutorial's release", Tree.release)):
            taken: list[list[tuple[float, int]]] = [[] for _ in trees]
            for _ in range(options.repeats):
                for own, tree in zip(taken, trees, strict=True):
                    own.append(released(tree))
            rows = {name: [medians(own) for own in taken], **rows}
        found: dict[str, list[list[tuple[float, int]]]] = {name: [[] for _ in trees] for name in (*PROGRAMS, *CHEAP)}
        for _ in range(options.repeats):
            for taken, tree in enumerate(trees):
                for name, program in PROGRAMS.items():
                    if name == "`import dpdist`" or tree.root == ROOT:
                        found[name][taken].append(tree.program(program))
                for name, arguments in CHEAP.items():
                    found[name][taken].append(tree.run(*arguments))
        rows |= {name: [medians(each) for each in both] for name, both in found.items()}
        if options.plan:
            census = "examples/census/release.yaml"
            for time in ("first", "second"):
                rows[f"`dpdist plan {census}`, {time} time"] = [
                    medians([tree.run("plan", str(ROOT / census))]) for tree in trees
                ]
    heads = ["before", "now"] if options.before else ["now"]
    table = [f"| what | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    table += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    note = f"CPU seconds with all children and MB of the largest process, medians of {options.repeats} runs (plan: 1); "
    note += f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}."
    text = f"# Start\n\n`python benchmarks/command_start.py {' '.join(sys.argv[1:])}`. {note}\n\n" + "\n".join(table) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
