"""Flows beside the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet

from tests import small

CALL = """
import sys
from pathlib import Path
from flows import settings
settings.configure(Path(sys.argv[1]))
from flows.convolve import convolve
done = convolve("bikes", sys.argv[2], "age", 12, [{"running_sum": True}, {"mean": 3}], "small", 0.5, 1e-6, 1.0,
                engine_address="inline", home=sys.argv[1])
print(done.folder, done.charged)
"""


def test_convolve_from_parameters(home: Path) -> None:
    """A process of its own, twice: one charge, the filters asked for."""
    records = home.parent / "records.parquet"
    pyarrow.parquet.write_table(small.records(), records)
    lines = []
    for _ in range(2):
        command = [sys.executable, "-c", CALL, str(home), str(records)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home.parent, timeout=300)
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout.splitlines()[-1].split())
    assert [line[1] for line in lines] == ["True", "False"]
    table = pyarrow.parquet.read_table(Path(lines[0][0]) / "answers.parquet")
    assert set(table["group"].to_pylist()) == {"running sum", "mean of 3 steps"}
    assert table.num_rows == 24
