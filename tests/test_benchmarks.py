"""Every benchmark runs, at a small size."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks import idle_deployment
from dpdist.planner.memory_estimate import DELIVERED_BYTES
from tests import HANGS
from tests.page.browsing import BROWSERS
from tests.support import forked_programs
from tests.support.complete_tree import needs_plugin

ROOT = Path(__file__).parents[1]
PACKAGES = ("dpdist", "flows", "tests", "benchmarks")


def table_of(folder: Path, benchmark: str, *options: str) -> str:
    """The table that a benchmark writes, at a small size."""
    done = forked_programs.finished(str(ROOT / "benchmarks" / f"{benchmark}.py"), *options, "--out", folder / "table.md")
    assert done.returncode == 0, done.stderr
    return (folder / "table.md").read_text()


def test_no_program_takes_the_name_of_a_package() -> None:
    """Where a program lies is looked for modules first: Numba imported the program that was called coverage."""
    programs = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert {name for name in programs if importlib.util.find_spec(name)} == set()


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules of this program and what is taken out of them, by an import, by ``importlib.import_module("...").name``, or in the text of
    a program for another process."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.search(rf"(?m)^from ({'|'.join(PACKAGES)})\b", node.value)
        ):
            with contextlib.suppress(SyntaxError):  # a text that is filled in first
                yield from imported_names(ast.parse(node.value))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and node.value.args:
            module = node.value.args[0]
            if ast.unparse(node.value.func) == "importlib.import_module" and isinstance(module, ast.Constant):
                yield module.value, node.attr


def test_what_benchmarks_and_texts_of_programs_import_is_there() -> None:
    """mypy does not read them."""
    paths = {path for folder in ("benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")}
    for path in sorted(paths - {ROOT / "tests/test_mutants.py"}):  # whose programs are there to be changed
        for module, name in imported_names(ast.parse(path.read_text())):
            found = hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")
            assert found, f"{path.relative_to(ROOT)}: {module}.{name}"


@pytest.mark.slow
def test_optimisers(tmp_path: Path) -> None:
    table = table_of(tmp_path, "optimisers", "--sizes", "64", "--cap", "3")
    for name in ("prefix", "all ranges", "random ranges", "WRelated", "WDiscrete", "2-way marginals"):
        assert f"| {name} | 64 |" in table


@pytest.mark.slow
def test_table_reading(tmp_path: Path) -> None:
    assert "| 1,048,576 | 300 | 40,440 |" in table_of(tmp_path, "table_reading", "--cells", "6", "--folder", str(tmp_path))


@pytest.mark.slow
def test_horizons(tmp_path: Path) -> None:
    assert "| square-root | 52 | 104 | 9.5 % | 1.0000 |" in table_of(tmp_path, "extended_streams", "--most", "104")


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_verify() -> None:
    done = forked_programs.finished(str(ROOT / "benchmarks" / "ledger_verification.py"), "--rows", "50", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert "| now |" in done.stdout
    assert "| `decide` |" in done.stdout


@pytest.mark.slow
def test_measured(tmp_path: Path) -> None:
    table = table_of(tmp_path, "predicted_errors", "--repeats", "2", "--only", "square-root", "laplace")
    assert "| laplace | 56 | 2 |" in table


@pytest.mark.slow
def test_peers(tmp_path: Path) -> None:
    """dpdist's part; the others need environments of their own."""
    command = [sys.executable, ROOT / "benchmarks" / "peers" / "compare.py", "--only", "dpdist", "--repeats", "0.01"]
    done = subprocess.run(
        [*command, "--people", "500", "--noise", "default", "gaussian", "--out", tmp_path / "table.md"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.md").read_text()
    medians = next(line for line in table.splitlines() if line.startswith("| median age by region (4) | "))
    repeats, default, gaussian = medians.split(" | ")[1:]
    assert repeats == "1"
    assert default.endswith(", Laplace")  # the kind that the release took, not the one that was asked for
    assert gaussian.endswith(", Gaussian |")


def test_the_table_of_peers_in_the_documentation_is_the_result() -> None:
    assert (ROOT / "benchmarks" / "results" / "peers.md").read_text() in (ROOT / "docs" / "peers.md").read_text()


def rows_of(table: str) -> list[list[str]]:
    """The cells of each row of a benchmark's result, below its head."""
    lines = (ROOT / "benchmarks" / "results" / table).read_text().splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in lines]


def test_the_decision_says_of_charts_what_their_table_does() -> None:
    page = (ROOT / "docs" / "decisions" / "0016-page.md").read_text()
    rows = {what: cells for what, *cells in rows_of("charts.md")}
    ratios = []
    for what in ("all: bytes of SVG", "CPU s, a process that draws all eight"):
        ours, vega, plot = (float(cell.replace(",", "")) for cell in rows[what])
        ratios.append(f"{plot / ours:.1f} and {vega / ours:.1f} times")
    assert f"{ratios[0]} the bytes, {ratios[1]} the CPU time" in page
    assert rows["axe-core: violations"][0] == "none" not in rows["axe-core: violations"][1:]
    assert "benchmarks/results/charts.md" in page


def test_the_decision_says_of_opening_pages_what_their_table_does() -> None:
    page = (ROOT / "docs" / "decisions" / "0016-page.md").read_text()
    busy = [float(seconds) for _, _, _, seconds, *_ in rows_of("page_opening.md")]
    assert len(busy) == 12
    assert f"busy for {min(busy):.2f} to {max(busy):.2f} CPU seconds" in page
    assert max(busy) <= 0.5
    assert "benchmarks/results/page_opening.md" in page


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="needs Chromium: apt-get install chromium-headless-shell")
def test_charts(tmp_path: Path) -> None:
    """dpdist's part; the others need packages of their own."""
    home = tmp_path / "home"
    for words in (
        ["keys", "init"],
        ["run", str(ROOT / "examples" / "birthplaces" / "release.yaml")],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "flows.commands.cli", *words],
            env={**os.environ, "DPDIST_HOME": str(home)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    release = next(tmp_path.glob("**/answers.csv")).parent
    command = [sys.executable, ROOT / "benchmarks" / "charts" / "compare.py", release, "--out", tmp_path / "charts"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| axe-core: violations | none |" in done.stdout
    assert "| styles that the policy blocks | 0 |" in done.stdout


def test_a_gpu_that_is_missing_is_told_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "--sizes", "64", "--out", tmp_path / "table.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS)
    if done.returncode == 0:  # there is one
        assert "| prefix | 64 |" in (tmp_path / "table.md").read_text()
    else:
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        assert "needs a GPU" in done.stderr


@pytest.mark.slow
def test_scaling_is_measured_and_drawn(tmp_path: Path) -> None:
    """A table with a row for each size, and a plot for each experiment."""
    scaling = runpy.run_path(str(ROOT / "benchmarks" / "scaling.py"))["scaling"]
    table = scaling(str(tmp_path), rows=(600, 1200), columns=(8, 16), cells=(1000, 2000), engine_address="inline")
    assert len(Path(table).read_text().splitlines()) == 2 + 1 + 1 + 2 + 2 + 2
    for name in ("strong", "weak", "rows", "columns", "cells"):
        assert (tmp_path / f"{name}.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_speeds_of_noise() -> None:
    """The part of the benchmark that starts no processes: a row for each noise and scale, each contestant's speed and their ratio."""
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "noise_samplers.py"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in list(benchmark["speeds"](20_000, 20, 1))[2:]]
    assert [row[:2] for row in rows] == [
        [kind, f"{scale:,}"] for kind in ("gaussian", "laplace") for scale in benchmark["SCALES"]
    ]
    for row in rows:
        ours, peer, ratio = (float(cell) for cell in row[2:5])
        assert abs(ratio * peer - ours) <= 0.05 * (1 + ratio) + 0.005 * peer  # each is rounded


@pytest.mark.slow
def test_the_noise_of_a_release_end_to_end() -> None:
    """Every part and step is timed, and whole numbers take fewer bytes than they did (6.08 by a shuffle of bytes)."""
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "noise_stages.py"))
    found = benchmark["measured"](2**15)
    for kind in ("gaussian", "laplace"):
        assert set(found[kind]) == {*benchmark["PARTS"], "bytes"}
        assert min(found[kind].values()) > 0
        assert found[kind]["bytes"] < 5.5
    assert set(found["steps"]) == set(benchmark["STEPS"])
    benchmark["rows"].__globals__["measured_by"] = lambda *_: found
    tables = [[cell.strip() for cell in line.split("|")[1:-1]] for line in benchmark["rows"](2**15, 1, ROOT) if "|" in line]
    assert [row[0] for row in tables[2:16]] == ["gaussian"] * 7 + ["laplace"] * 7
    assert all(row[2] == row[3] for row in tables[2:16])
    assert [row[0] for row in tables[18:]] == list(benchmark["STEPS"])


def test_a_section_takes_the_place_of_the_one_that_its_command_printed() -> None:
    """All others stay, also under a new head, and those that no command of a run printed are told."""
    sections = runpy.run_path(str(ROOT / "benchmarks" / "result_sections.py"))
    merged, text = sections["merged"], "# Results\n\n## By hand\n\nremarks\n"
    for part, size in (("one", 1), ("two", 1), ("one", 2)):
        text = merged(text, f"## {part}\n\n{size}\n\n`python a.py {part} --size {size}`, at noon\n\nnotes")
    assert re.findall(r"(?m)^## .*\n\n\w+", text) == ["## By hand\n\nremarks", "## one\n\n1", "## one\n\n2", "## two\n\n1"]
    told = "## one, again\n\n3\n\n`python a.py one --size 1`, at two\n"
    again = merged(text, told)
    assert again == text.replace("## one\n\n1\n\n`python a.py one --size 1`, at noon\n\nnotes", told.strip())
    assert merged(again, told) == again
    assert sections["headed"](again, "# Other\n\nwords") == again.replace("# Results", "# Other\n\nwords", 1)
    assert sections["unprinted_headings"](again, ["`python a.py one --size 1`", "`python a.py two --size 1`"]) == [
        "## By hand",
        "## one",
    ]
    assert sections["headed"]("", "# Head") == "# Head\n"


@pytest.mark.slow
def test_parts_of_scale_end_and_leave_nothing(tmp_path: Path) -> None:
    """One takes the place of its former section; another takes too long, and changes nothing."""
    out, scratch = tmp_path / "scale.md", tmp_path / "scratch"
    scratch.mkdir()
    former = "## old\n\n`python benchmarks/scale.py count --worker-gib 1 --records 5000000`, at noon\n"
    out.write_text(f"# Head\n\n{former}\n## By hand\n\nremarks\n")

    def run_scale_parts(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, ROOT / "benchmarks" / "scale.py", "all", "--folder", scratch, "--out", out, *options]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS)
        running = [each.info for each in psutil.process_iter(["cmdline", "environ"])]
        assert not [each for each in running if str(scratch) in str(each)]
        assert list(scratch.iterdir()) == []
        return completed

    done = run_scale_parts("--only", "count")
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert re.findall("(?m)^## (.{7})", text) == ["5,000,0", "By hand"]
    assert "# Head\n" not in text
    assert "peak memory: " in text
    assert "left as it was: ## By hand" in done.stderr
    done = run_scale_parts("--only", "model", "--minutes", "0.2")
    assert (done.returncode, out.read_text()) == (1, text)
    assert "1 parts did not end" in done.stderr
    assert "Traceback" not in done.stderr  # of a process that is left, and finds its scratch gone


@pytest.mark.slow
def test_every_stage_with_one_and_two_workers(tmp_path: Path) -> None:
    """Less passes Dask than the counts take: 8 bytes for each of 27,000 cells, 16,384 steps and 10,000 queries in three columns."""
    options = ("--cells", "14", "--side", "30", "--rows", "10000", "--columns", "64", "--records", "50000")
    table = table_of(tmp_path, "scale", "stages", *options)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")][1:]
    assert [row[1] for row in rows] == ["plan", "count", "measure", "answer", "publish"] * 4
    assert {row[0] for row in rows} == {"noisy cells", "a product", "a filter", "stored rows"}
    assert max(int(row[7].replace(",", "")) for row in rows) < 8 * 10_000 // 2**10
    assert min(int(row[11].replace(",", "")) for row in rows if row[1] == "measure") > 0


@pytest.mark.slow
def test_noise(tmp_path: Path) -> None:
    table = table_of(tmp_path, "noise_samplers", "--samples", "200000", "--peer-samples", "200", "--repeats", "1")
    for name in ("gaussian", "laplace"):
        for scale in ("10", "1,000", "1,000,000"):
            assert f"| {name} | {scale} |" in table
    assert "first sample, s" in table


@pytest.mark.slow
def test_streams(tmp_path: Path) -> None:
    """The benchmark itself stops when a strategy beats the certified bound."""
    table = table_of(tmp_path, "streams", "--sizes", "64")
    for name in ("running sum", "window of n / 8", "exponential 0.99"):
        assert f"| {name} | 64 | 1.000000" in table


def test_buffers(tmp_path: Path) -> None:
    assert "| 256 | 1.1661 | 1.1256 | " in table_of(tmp_path, "buffered_streams", "--sizes", "256", "--buffers", "2")


@pytest.mark.slow
def test_bands(tmp_path: Path) -> None:
    """The benchmark itself compares its total errors with dense algebra at this size."""
    assert "| 64 | 1.194 | 1.142 | " in table_of(tmp_path, "banded_streams", "--sizes", "64", "--bands", "8")


@pytest.mark.slow
def test_symmetry(tmp_path: Path) -> None:
    assert "| mini SF1 | 1,472 | 487 | 24 | 2.0397 | " in table_of(tmp_path, "symmetric_optima", "--rows", "mini SF1")


@pytest.mark.slow
@needs_plugin("mechanism.nested")
def test_geography(tmp_path: Path) -> None:
    """At a small size; and the error is that of noise which was drawn."""
    table = table_of(tmp_path, "geography", "--blocks", "20000", "--cells", "2", "--columns", "2")
    rows = [line.split("|") for line in table.splitlines() if re.match(r"\| [0-9] \|", line)]
    assert len(rows) >= 8
    assert all(abs(float(row[6]) / float(row[5]) - 1) < 0.1 for row in rows if int(row[2].replace(",", "")) > 2000)
    assert all(float(gap) < 0.01 for gap in re.findall(r"gap ([0-9.e-]+)\. ", table))


@pytest.mark.slow
def test_pure(tmp_path: Path) -> None:
    """SF1 over 500,480 cells: 62 times less squared error than noise on the answers, which was the best before."""
    table = table_of(tmp_path, "pure_epsilon", "--rows", "SF1, persons")
    (line,) = [each for each in table.splitlines() if "SF1" in each and each.startswith("|")]
    columns = [column.strip() for column in line.split("|")]
    assert columns[2:4] == ["4,151", "500,480"]
    products, cells, answers, published = (float(columns[place]) for place in (5, 8, 9, 10))
    assert products < published
    assert (answers / products) ** 2 > 62
    assert (cells / products) ** 2 > 170


@pytest.mark.slow
def test_unions(tmp_path: Path) -> None:
    assert "| CPS | 1 | 163 | 3.0" in table_of(tmp_path, "prefix_tables", "--data", "CPS", "--ways", "1", "--dense", "0")


@pytest.mark.slow
def test_mixed_unions(tmp_path: Path) -> None:
    table = table_of(tmp_path, "mixed_unions", "--unions", "2")
    assert "| 0 | 3 x 4 x 5 x 9 | p1 r2 p3; p1 p4; r1 p2; r1 r2 p3 p4; r2 | 11.2 % | 1.7 % | 0.950 | 7.1 % |" in table
    assert "Largest: over 1.7 %, gap 7.1 %" in table


@pytest.mark.slow
def test_worst(tmp_path: Path) -> None:
    """The benchmark itself stops when the strategy of least total error beats the lower bound of the worst query."""
    table = table_of(tmp_path, "worst_query", "--sizes", "64")
    for name in ("prefix", "all ranges", "1024 random ranges", "WRelated", "2-way marginals"):
        assert f"| {name} | 64 |" in table


@pytest.mark.slow
@needs_plugin("mechanism.adaptive")
def test_adaptive(tmp_path: Path) -> None:
    """On drawn records that are independent the model is right, and chosen tables are better than all."""
    table = table_of(tmp_path, "adaptive_tables", "--epsilon", "1", "--ways", "2", "--repeats", "1")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| 2-way")]
    assert [row[2] for row in rows] == ["marginals", "adaptive"]
    optimum, adaptive = (float(row[3]) for row in rows)
    assert adaptive < optimum
    assert 0 < float(rows[1][4]) < 0.5
    assert float(rows[1][10]) >= float(rows[1][11]) >= 0.9


@pytest.mark.slow
@needs_plugin("mechanism.adaptive")
def test_imputed(tmp_path: Path) -> None:
    """One release of few records, three sets: intervals of large and of empty cells hold most true numbers, and not by being endless."""
    state = np.random.default_rng(4)
    first = state.integers(0, 3, 600)
    columns = {"a": first, "b": (first + (state.random(600) < 0.4)) % 3, "c": state.integers(0, 2, 600)}
    np.savez(tmp_path / "few.npz", **columns)
    (tmp_path / "few.json").write_text(json.dumps({"a": 3, "b": 3, "c": 2}))
    options = ("--only", "few", "--mechanism", "adaptive", "--epsilon", "2", "--releases", "1", "--made", "3")
    head, _, row = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table_of(tmp_path, "synthetic_intervals", str(tmp_path), *options).splitlines()
        if line.startswith("|")
    )
    found = dict(zip(head, row, strict=True))
    assert (found["set"], found["mechanism"], found["epsilon"]) == ("few", "adaptive", "2")
    assert (
        min(float(found[kind]) for kind in ("one", "two", "halves")) > 0.2
    )  # of one release, whose noise differs from run to run
    assert 0 < float(found["error"]) < float(found["half"]) < 100


@pytest.mark.slow
def test_tables(tmp_path: Path) -> None:
    """Together is better than apart, and intervals hold every size of count."""
    table = table_of(tmp_path, "fitted_tables", "--epsilon", "1")
    (figures,) = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| 2 | 1 |"))
    raw, apart, together, expected, squared, _, length, covered, *_ = map(float, figures[3:])
    assert expected < together < apart < raw
    assert squared < 0.5
    assert length < 0.8
    assert covered >= 0.94


@pytest.mark.slow
def test_non_negative(tmp_path: Path) -> None:
    """The benchmark itself stops when a draw is made worse by the fit."""
    table = table_of(tmp_path, "nonnegative_cells", "--cells", "32", "--draws", "12")
    for name in ("random ranges", "prefix", "all ranges", "1- and 2-way marginals"):
        assert f"| {name} | sparse |" in table


def test_mechanisms(tmp_path: Path) -> None:
    """The benchmark itself stops when any mechanism beats the certified optimum."""
    table = table_of(tmp_path, "mechanisms", "--size", "64")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ") and "dpdist |" not in line]
    assert len(rows) == 15
    assert all(abs(float(row[2]) - 1) < 1e-6 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "options", "told"),
    [
        ("stages", "--cells 11 --side 12 --records 2000", "| noisy cells | measure | "),
        ("model", "--simulated 1e9", "the same bytes with faults: True"),
        ("gram", "--rows 30000 --columns 128", "| 30,000 | "),
        ("cells", "--cells 18 --records 5000", "of the plain rate"),
        ("count", "--records 300000", "| dpdist, with digests |"),
        ("explicit", "--rows 3000 --columns 64 --records 5000", "certified gap"),
        ("products", "--side 60 --ranges 5 --records 20000", "## 125 boxes over 216,000 cells"),
    ],
)
def test_scale(tmp_path: Path, part: str, options: str, told: str) -> None:
    """A small form of every part; sums are exact, counts those of DuckDB and Polars, errors as large as they are said to be."""
    table = table_of(tmp_path, "scale", part, *options.split())
    assert told in table
    assert "False" not in table
    assert table.count("\n## ") == 0  # one section
    assert "may take" in table or part == "model"  # beside the peak of memory
    if part == "cells":
        error = float(table.split("over the standard error: ")[1].split()[0])
        assert 0.98 < error < 1.02  # of 262,144 answers: 7 standard errors of it


@pytest.mark.slow
def test_convolution(tmp_path: Path) -> None:
    table = table_of(tmp_path, "convolution", "--memory", "12", "--stored", "12", "--cap", "8", "--steps", "64")
    assert "| running sum | 64 |" in table


PAPERS = str(ROOT / "benchmarks" / "papers" / "reproduce.py")
MEASURED = ("coa-2-5-error-over-n", "coa-1-convergence", "convolution-steps", "lrm-error-over-rank")
"""Figures of every test run: those of the eigen-design compute what ``test_mechanisms`` does."""


def papers(folder: Path, size: str, *options: str) -> subprocess.CompletedProcess[str]:
    return forked_programs.finished(PAPERS, "--size", size, "--folder", folder, *options, DPDIST_DATA=str(folder / "none"))


def drawn(folder: Path, size: str) -> set[str]:
    return {path.stem.removesuffix(f"-{size}") for path in folder.glob("*.svg")}


def check_papers(folder: Path, size: str) -> None:
    """COA is never beaten and never below its bound, nor is any other optimum."""
    check_optimum(folder, size)
    for file in folder.glob(f"am-errors-{size}.json"):
        for key, values in json.loads(file.read_text()).items():
            assert values["error"] >= 1 - 1e-9, key
    for file in folder.glob(f"lrm-over-*-{size}.json"):
        points: dict[str, dict[str, float]] = {}
        for key, values in json.loads(file.read_text()).items():
            points.setdefault(key.rpartition("|")[0], {})[key.rpartition("|")[2]] = values["error"]
        for key, errors in points.items():
            assert errors["lower bound (twice svdb)"] < errors["LRM"] <= errors["noise on cells"] * (1 + 1e-9), key
    steps = json.loads((folder / f"convolution-steps-{size}.json").read_text())
    for key, values in steps.items():
        least = min(
            value
            for name, value in values.items()
            if name in ("Algorithm 2", "noise on the coefficients of x", "noise on the coefficients of the answer")
        )
        assert values["Gaussian optimum"] < values["Algorithm 1"] <= least * (1 + 1e-9), key


def check_optimum(folder: Path, size: str) -> None:
    """COA among the mechanisms of its paper."""
    for name in (file.stem.removesuffix(f"-{size}") for file in folder.glob("coa-over-*.json")):
        points: dict[str, dict[str, dict[str, float]]] = {}
        for key, values in json.loads((folder / f"{name}-{size}.json").read_text()).items():
            panel, x, line = key.split("|")
            points.setdefault(f"{panel} {x}", {})[line] = values
        for point, lines in points.items():
            best = lines["COA"]
            assert best["bound"] <= best["error"] * (1 + 1e-6), point
            assert best["gap"] <= 1e-6, point
            assert best["error"] <= min(values["error"] for values in lines.values()) * (1 + 2e-6), (point, lines)
            assert len(lines) >= 8


@pytest.mark.slow
@needs_plugin("mechanism.adaptive")
def test_papers(tmp_path: Path) -> None:
    """What figures of each paper show, at a tiny size."""
    done = papers(tmp_path, "tiny", *MEASURED, "--no-plots")
    assert done.returncode == 0, done.stderr
    assert drawn(tmp_path, "tiny") == set()
    check_papers(tmp_path, "tiny")
    wrong = papers(tmp_path, "tiny", "figure-99")
    assert wrong.returncode == 2
    assert "no figure 'figure-99'; there are coa-1-convergence" in wrong.stderr


@pytest.mark.large
@needs_plugin("mechanism.adaptive")
def test_every_figure_of_the_papers(tmp_path: Path) -> None:
    done = papers(tmp_path, "small", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    listed = papers(tmp_path, "small", "--list").stdout.splitlines()
    assert drawn(tmp_path, "small") == {line.split(":")[0] for line in listed}
    assert len(listed) >= 16
    check_papers(tmp_path, "small")


@pytest.mark.slow
def test_papers_stop_what_takes_too_long_and_draw_the_same_bytes(tmp_path: Path) -> None:
    """A measurement over the limit is noted, larger ones of its line are left out, and a longer limit tries again.

    A run after all measurements measures nothing.
    """
    figure = "coa-10-error-over-rank"
    stopped = papers(tmp_path, "tiny", figure, "--no-plots", "--limit", "0")
    assert stopped.returncode == 0, stopped.stderr
    found = json.loads((tmp_path / "coa-over-rank-tiny.json").read_text())
    assert found["WRelated|0.25|ESM"] == {"stopped after": 0.0}
    assert "WRelated|1|ESM" not in found
    assert papers(tmp_path, "tiny", figure, "--no-plots", "--limit", "0").stdout == ""
    done = papers(tmp_path, "tiny", figure, "--limit", str(HANGS))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "coa-over-rank-tiny.json").read_text())
    assert all("error" in values for values in found.values())
    assert len(found) == 16
    check_optimum(tmp_path, "tiny")
    assert drawn(tmp_path, "tiny") == {figure}
    picture = tmp_path / f"{figure}-tiny.svg"
    before = picture.read_bytes()
    picture.unlink()
    again = papers(tmp_path, "tiny", figure)
    assert again.returncode == 0, again.stderr
    assert again.stdout == ""
    assert picture.read_bytes() == before


@pytest.mark.slow
def test_deliver() -> None:
    """Two million rows stay below what a release's plan counts for them."""
    command = [sys.executable, ROOT / "benchmarks" / "warehouse_delivery.py", "--rows", "2000000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    grown = [int(line.split("|")[3]) for line in done.stdout.splitlines()[2:]]
    assert len(grown) == 2
    assert max(grown) * 2**20 < DELIVERED_BYTES


@pytest.mark.slow
def test_scheduler(tmp_path: Path) -> None:
    table = table_of(tmp_path, "scheduler", "--rows", "20000", "--columns", "64", "--chunks", "200")
    for line in ("| W'W | plain futures | ", "| sum | dask.array | ", "| nothing | plain futures, ten items a task | 20 |"):
        assert line in table


def test_tutorials_are_divided_into_their_steps() -> None:
    """Every block and cell is in a step: what a reader runs is what is timed."""
    tutorials = runpy.run_path(str(ROOT / "benchmarks" / "tutorials.py"))
    steps = tutorials["terminal_steps"]()
    assert [step.title[:2] for step in steps] == [f"{number}." for number in range(1, 8)]
    blocks = re.findall(r"^```(?!text)\w+", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE)
    assert sum(len(step.blocks) for step in steps) == len(blocks)
    cells = json.loads((ROOT / "examples" / "notebooks" / "first_release.ipynb").read_text())["cells"]
    assert len(tutorials["notebook_steps"]()) == sum(cell["cell_type"] == "code" for cell in cells)


@pytest.mark.large
def test_tutorials_run_in_fresh_environments(tmp_path: Path) -> None:
    """Each with what it has its reader install, each step after the step before it."""
    table = table_of(tmp_path, "tutorials", "--again", "0")
    assert "| 7. In Python |" in table
    assert "| Publish |" in table


@pytest.mark.slow
def test_programs_at_rest_are_measured() -> None:
    """Each of them runs; so does what it started."""
    rows = idle_deployment.measured(2.0)
    assert len(rows) == 6
    assert all(20 < row["memory_mib"] < 1000 for row in rows), rows
