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


def test_papers(tmp_path: Path) -> None:
    """Every figure at a small size, twice: the second run measures nothing. COA is never beaten and never below its bound."""
    command = [sys.executable, ROOT / "benchmarks" / "papers" / "reproduce.py", "--size", "small", "--folder", tmp_path]
    environment = {**os.environ, "DPDIST_DATA": str(tmp_path / "none")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    figures = {path.stem.removesuffix("-small") for path in tmp_path.glob("*.json")}
    assert len(figures) == 8
    assert {path.stem.removesuffix("-small") for path in tmp_path.glob("*.svg")} == figures
    for name in ("coa-error-n", "coa-error-m", "coa-error-rank"):
        for point, errors in json.loads((tmp_path / f"{name}-small.json").read_text()).items():
            others = {key: value for key, value in errors.items() if key not in ("COA", "bound")}
            assert errors["bound"] <= errors["COA"] * (1 + 1e-6), point
            assert errors["COA"] <= min(others.values()) * (1 + 2e-6), (point, errors)
            assert len(others) == 7
    again = subprocess.run(
        [*command, "coa-error-n"], capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert again.returncode == 0
    assert again.stdout == ""
    wrong = subprocess.run([*command, "figure-99"], capture_output=True, text=True, check=False, env=environment)
    assert wrong.returncode == 2
    assert "no figure 'figure-99'; there are coa-convergence" in wrong.stderr
