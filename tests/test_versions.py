"""A cluster of other versions is refused when a run starts."""

from __future__ import annotations

import copy
from pathlib import Path

import dask
import pytest
from distributed import Client

from dpdist import engine, versions
from dpdist.errors import EngineError
from tests.test_engine import Processes


def test_versions_of_a_real_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the same environment agree; as soon as one of their packages is another one, it is named with both versions."""
    cluster = Processes(tmp_path)
    try:
        cluster.worker(1)
        monkeypatch.setattr(dask.config, "config", {**dask.config.config})
        dask.config.set(cluster.settings)
        with engine.started(cluster.address) as started:
            assert started.map(abs, [-1]) == [1]
        with Client(cluster.address, security=engine._certificates()) as client:
            client.wait_for_workers(1)
            found = client.get_versions(packages=["dpdist"])
        assert versions.differences(found) == []
        (worker,) = found["workers"]
        older = copy.deepcopy(found)
        older["workers"][worker]["packages"] |= {"dpdist": "0.0.9", "python": "3.12.1.final.0"}
        older["scheduler"]["packages"] |= {"dask": None}
        own = found["client"]["packages"]
        assert versions.differences(older) == [
            f"dask {own['dask']} here, none on the scheduler",
            "python 3.11 here, 3.12 on a worker".replace("3.11", ".".join(own["python"].split(".")[:2])),
            f"dpdist {own['dpdist']} here, 0.0.9 on a worker",
        ]
        monkeypatch.setattr(Client, "get_versions", lambda self, packages: older)
        with pytest.raises(
            EngineError, match="runs other versions than this process: dask .* give client, scheduler and workers"
        ):
            engine.started(cluster.address).__enter__()
    finally:
        cluster.stop()
