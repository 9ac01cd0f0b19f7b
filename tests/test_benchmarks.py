"""Every benchmark runs, at a small size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
