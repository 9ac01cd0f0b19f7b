"""A cluster of other versions is refused when a run starts."""

from __future__ import annotations

import copy

import pytest
from distributed import Client

from dpdist import engine, versions
from dpdist.errors import EngineError


def test_versions_of_a_real_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduler and worker of this process agree; as soon as one of their packages is another one, it is named with both versions."""
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as client:
        found = client.get_versions(packages=["dpdist"])
        assert versions.differences(found) == []
        (worker,) = found["workers"]
        older = copy.deepcopy(found)
        older["workers"][worker]["packages"] |= {"dpdist": "0.0.9", "python": "2.7.1.final.0"}
        older["scheduler"]["packages"] |= {"dask": None}
        own = found["client"]["packages"]
        assert versions.differences(older) == [
            f"dask {own['dask']} here, none on the scheduler",
            f"python {'.'.join(own['python'].split('.')[:2])} here, 2.7 on a worker",
            f"dpdist {own['dpdist']} here, 0.0.9 on a worker",
        ]
        monkeypatch.setattr(Client, "get_versions", lambda self, packages: older)
        with (
            pytest.raises(
                EngineError, match="runs other versions than this process: dask .* give client, scheduler and workers"
            ),
            engine.started(client.scheduler.address),
        ):
            pass
