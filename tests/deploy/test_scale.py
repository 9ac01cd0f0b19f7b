"""10^8 cells on a cluster as it is deployed: three workers over TLS, two of them drawing noise, and an S3-compatible store."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
import zarr

from dpdist import engine
from dpdist.pipeline import release_run
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.engine.test_engine import Processes

SIDES = (400, 500, 500)
GIB = 2**30


@pytest.mark.large
def test_a_hundred_million_cells(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published whole for one charge, with noise of the right size, most of it drawn by workers; prints what each stage took."""
    home = tmp_path / "home"
    monkeypatch.setenv("DPDIST_HOME", str(home))
    keys.initialise(home)
    state = np.random.default_rng(0)
    columns = {name: state.integers(0, side, 500_000) for name, side in zip("abc", SIDES, strict=True)}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "records.parquet")
    content = {
        "release": "cells",
        "records": {"path": "records.parquet"},
        "domain": {name: {"from": 0, "to": side - 1} for name, side in zip("abc", SIDES, strict=True)},
        "workload": [{"marginals": {"of": [["a", "b", "c"]]}}],
        "mechanism": "identity",
        "budget": {"rho": "1/10"},
        "ledger": {"dataset": "scale", "cap": {"rho": "1/10"}},
        "output": {"folder": f"{s3}/published", "formats": ["zarr"]},
    }
    (tmp_path / "release.yaml").write_text(yaml.safe_dump(content))
    processes, took, lines = Processes(tmp_path), {}, []
    try:
        processes.worker(1, "--memory-limit", "1GiB")
        for _ in range(2):
            processes.worker(1, "--memory-limit", "1GiB", "--resources", "noise=1")

        def step(name: str, work: Any) -> Any:
            begun, before = time.perf_counter(), spent(processes)
            out = work()
            took[name] = (time.perf_counter() - begun, spent(processes) - before)
            return out

        with dask.config.set(processes.settings), engine.open_engine(processes.address) as started:
            started.client.wait_for_workers(3, timeout=HANGS)
            context = Context(home, Store(f"{s3}/store"), started, lambda *line: lines.append(line))
            done = release_run.release(context, load(tmp_path / "release.yaml"), step=step)
            peaks = [peak(each.pid) for each in processes.running[1:]]
    finally:
        processes.stop()
    print(
        json.dumps({name: [round(each, 1) for each in both] for name, both in took.items()}),
        f"load {os.getloadavg()[0]:.0f}",
    )
    print(f"peak memory of each worker, GiB: {[round(each / GIB, 2) for each in peaks]}")
    drawn = [line for stage, line in lines if stage == "measure" and line.endswith("parts drawn by workers")]
    assert drawn, lines
    print(drawn[-1])
    with done.location.local_copy() as folder:
        assert release_folder.certificate_of(folder)["release"] == "cells"
        group = zarr.open_group(str(folder / "answers.zarr"), mode="r")
        some = np.asarray(group["answer"][: 2**20])
        error = float(np.asarray(group["standard_error"][:1])[0])
    cell = np.ravel_multi_index(tuple(columns.values()), SIDES)
    deviations = some - np.bincount(cell[cell < some.size], minlength=some.size)
    assert abs(np.mean(deviations**2) / error**2 - 1) < 0.01  # seven standard deviations of such a mean
    with open_ledger(home) as ledger:
        assert (ledger.verify().releases, ledger.verify().running) == (1, 0)


def spent(processes: Processes) -> float:
    """CPU seconds of this process, which holds the store, and of the cluster's."""
    pids = [os.getpid(), *(each.pid for each in processes.running)]
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def peak(pid: int) -> int:
    """The most resident bytes that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
