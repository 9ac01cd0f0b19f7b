"""The memory plan against the measured peak, each stage in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests import HANGS, small

MEASURE = """
import json, os, sys, threading, time
from pathlib import Path
import psutil
import numba, obstore, pandas, pyarrow.compute, pyarrow.parquet  # stages import late
import scipy.fft, scipy.linalg, scipy.signal, scipy.stats, zarr
from dpdist import engine, strategies
from dpdist.release import story
from dpdist.release.context import Context, silent
from dpdist.release.plan import stage_memory
from dpdist.privacy.noise import Noise
from dpdist.spec import load
from dpdist.store import Store
home, spec = Path(sys.argv[1]), load(sys.argv[2])
Noise("gaussian", 1000).draw(bytes(32), count=10)  # compiled before anything is measured
strategies.coa(__import__("dpdist").workloads.prefix(64))
where = engine.Engine(workers=1, memory_bytes=int(sys.argv[3]), threads=1, connect=None, local=True)
context = Context(home, Store(home / "store"), where, silent)
me, found, peak, stop = psutil.Process(), {}, [0], threading.Event()
def watch():
    while not stop.wait(0.002):
        peak[0] = max(peak[0], me.memory_info().rss)
threading.Thread(target=watch, daemon=True).start()
def step(name, work):
    before = peak[0] = me.memory_info().rss
    out = work()
    found[name] = peak[0] - before
    return out
done = story.release(context, spec, step=step)
stop.set()
planned = {stage.stage: stage.bytes for stage in stage_memory(done.plan, where)}
print(json.dumps([planned, found]))
"""
SLACK = 48 * 2**20
"""What libraries take at their first call, and what the allocator keeps."""


def measured(home: Path, path: Path, memory: int) -> tuple[dict[str, int], dict[str, int]]:
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(home), str(path), str(memory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    planned, found = json.loads(done.stdout.splitlines()[-1])
    return planned, found


CELLS = {"age": {"from": 0, "to": 11}, "x": {"from": 0, "to": 599}, "y": {"from": 0, "to": 599}}
CASES: dict[str, dict[str, Any]] = {
    "a dense strategy": {
        "domain": {"age": {"from": 0, "to": 899}},
        "workload": [{"rows": {"file": "w.zarr"}}],
        "mechanism": "coa",
    },
    "every cell": {
        "domain": CELLS,
        "workload": [{"marginals": {"ways": [3]}}],
        "mechanism": "identity",
        "output": {"formats": ["zarr"]},
    },
    "tables": {
        "domain": CELLS,
        "workload": [{"marginals": {"ways": [2]}}],
        "mechanism": "marginals",
        "output": {"formats": ["parquet"]},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_stages_take_what_was_planned(home: Path, case: str) -> None:
    """No stage takes more than its plan and some slack; the plan is not a wild guess either."""
    data = home.parent / "data"
    data.mkdir()
    state = np.random.default_rng(0)
    zarr.save_array(data / "w.zarr", state.integers(0, 2, (30_000, 900)).astype(np.int8))
    table = small.records()
    for name in ("x", "y"):
        table = table.append_column(name, [state.integers(0, 600, table.num_rows)])
    path = small.write(data, table=table, **CASES[case])
    planned, found = measured(home, path, 2**30)
    allowed = {"plan": planned["optimise"] + planned.get("gram", 0)}
    for stage, taken in found.items():
        limit = allowed.get(stage, planned.get(stage, 0))
        assert taken <= limit + SLACK, f"{stage} was planned at {limit / 2**20:.0f} MiB and took {taken / 2**20:.0f}"
    total, most = sum(found.values()), sum(planned.values())
    assert most <= 12 * (total + SLACK), f"planned {most / 2**20:.0f} MiB in all, {total / 2**20:.0f} were taken"
