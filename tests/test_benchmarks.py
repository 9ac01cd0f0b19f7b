"""Every benchmark runs, at a small size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_optimisers(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "optimisers.py",
        "--sizes",
        "64",
        "--cap",
        "3",
        "--out",
        tmp_path / "table.md",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.md").read_text()
    for name in ("prefix", "all ranges", "random ranges", "WRelated", "WDiscrete", "2-way marginals"):
        assert f"| {name} | 64 |" in table


def test_noise(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "noise.py",
        "--samples",
        "200000",
        "--peer-samples",
        "200",
        "--repeats",
        "1",
    ]
    done = subprocess.run(
        [*command, "--out", tmp_path / "table.md"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.md").read_text()
    for name in ("gaussian", "laplace"):
        for scale in ("10", "1,000", "1,000,000"):
            assert f"| {name} | {scale} |" in table
    assert "first sample, s" in table


def test_mechanisms(tmp_path: Path) -> None:
    """The benchmark itself stops when any mechanism beats the certified optimum."""
    command = [sys.executable, ROOT / "benchmarks" / "mechanisms.py", "--size", "64", "--out", tmp_path / "table.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [
        line.split("|")
        for line in (tmp_path / "table.md").read_text().splitlines()
        if line.startswith("| ") and "dpdist |" not in line
    ]
    assert len(rows) == 15
    assert all(abs(float(row[2]) - 1) < 1e-6 for row in rows)


@pytest.mark.parametrize(
    ("part", "options", "told"),
    [
        ("gram", "--rows 30000 --columns 128", "| 30,000 | "),
        ("cells", "--cells 18 --records 5000", "of the plain rate"),
        ("count", "--records 300000", "| dpdist, with digests |"),
        ("explicit", "--rows 3000 --columns 64 --records 5000", "certified gap"),
        ("products", "--side 60 --ranges 5 --records 20000", "## 125 boxes over 216,000 cells"),
    ],
)
def test_scale(tmp_path: Path, part: str, options: str, told: str) -> None:
    """A small form of every part; sums are exact, counts those of DuckDB and Polars, errors as large as they are said to be."""
    command = [sys.executable, ROOT / "benchmarks" / "scale.py", part, *options.split()]
    done = subprocess.run(
        [*command, "--out", tmp_path / "table.md"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.md").read_text()
    assert told in table
    assert "False" not in table
    if part == "cells":
        error = float(table.rstrip().rsplit(" ", 1)[1])
        assert 0.98 < error < 1.02  # of 262,144 answers: 7 standard errors of it


def test_convolution(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "convolution.py",
        "--memory",
        "12",
        "--stored",
        "12",
        "--cap",
        "8",
        "--steps",
        "64",
    ]
    done = subprocess.run(
        [*command, "--out", tmp_path / "table.md"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.md").read_text()
    for name in ("running sum, padded", "sum of 24 steps", "periods of 6 to 32 steps"):
        row = next(line.split("|") for line in table.splitlines() if line.startswith(f"| {name} | 1 |"))
        assert float(row[8]) > 3.0  # Algorithm 1 over Gaussian noise of the same guarantee
    assert "| running sum | 64 |" in table


PAPERS = [sys.executable, ROOT / "benchmarks" / "papers" / "reproduce.py", "--size", "small"]


def papers(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DPDIST_DATA": str(folder / "none"), "OPENBLAS_NUM_THREADS": "1"}
    command = [*PAPERS, "--folder", folder, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, env=environment)


def test_papers(tmp_path: Path) -> None:
    """Every figure at a small size, twice: the second run measures nothing. COA is never beaten and never below its bound."""
    done = papers(tmp_path, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    listed = papers(tmp_path, "--list").stdout.splitlines()
    assert {path.stem.removesuffix("-small") for path in tmp_path.glob("*.svg")} == {line.split(":")[0] for line in listed}
    assert len(listed) >= 16
    for name in ("coa-over-n", "coa-over-m", "coa-over-rank"):
        points: dict[str, dict[str, dict[str, float]]] = {}
        for key, values in json.loads((tmp_path / f"{name}-small.json").read_text()).items():
            panel, x, line = key.split("|")
            points.setdefault(f"{panel} {x}", {})[line] = values
        for point, lines in points.items():
            best = lines["COA"]
            assert best["bound"] <= best["error"] * (1 + 1e-6), point
            assert best["gap"] <= 1e-6, point
            assert best["error"] <= min(values["error"] for values in lines.values()) * (1 + 2e-6), (point, lines)
            assert len(lines) >= 8
    for key, values in json.loads((tmp_path / "am-errors-small.json").read_text()).items():
        assert values["error"] >= 1 - 1e-9, key
    steps = json.loads((tmp_path / "convolution-steps-small.json").read_text())
    for key, values in steps.items():
        least = min(value for name, value in values.items() if name in ("Algorithm 2", "noise on x", "noise on the answer"))
        assert values["Gaussian optimum"] < values["Algorithm 1"] <= least * (1 + 1e-9), key
    again = papers(tmp_path, "coa-2-5-error-over-n")
    assert again.returncode == 0
    assert again.stdout == ""
    wrong = papers(tmp_path, "figure-99")
    assert wrong.returncode == 2
    assert "no figure 'figure-99'; there are coa-1-convergence" in wrong.stderr


def test_papers_stop_what_takes_too_long(tmp_path: Path) -> None:
    """A measurement over the limit is noted, larger ones of its line are left out, and a longer limit tries again."""
    stopped = papers(tmp_path, "coa-10-error-over-rank", "--limit", "0", "--no-plots")
    assert stopped.returncode == 0, stopped.stderr
    found = json.loads((tmp_path / "coa-over-rank-small.json").read_text())
    assert found["WRelated|0.25|ESM"] == {"stopped after": 0.0}
    assert "WRelated|1|ESM" not in found
    assert papers(tmp_path, "coa-10-error-over-rank", "--limit", "0", "--no-plots").stdout == ""
    assert papers(tmp_path, "coa-10-error-over-rank", "--limit", "60", "--no-plots").returncode == 0
    found = json.loads((tmp_path / "coa-over-rank-small.json").read_text())
    assert all("error" in values for values in found.values())
    assert len(found) == 16
