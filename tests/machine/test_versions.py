"""A cluster of other versions is refused when a run starts."""

from __future__ import annotations

import copy
import re

import pytest
from distributed import Client

from dpdist.errors import EngineError
from dpdist.machine import engine, versions


def test_versions_of_a_real_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduler and worker of this process agree; as soon as one of their packages is another one, it is named with both versions."""
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as client:
        found = client.get_versions(packages=["dpdist"])
        versions.check(client)
        (worker,) = found["workers"]
        assert versions.of_worker(versions.here(), found["workers"][worker]) == []
        older = copy.deepcopy(found)
        older["workers"][worker]["packages"] |= {"dpdist": "0.0.9", "python": "2.7.1.final.0"}
        older["scheduler"]["packages"] |= {"dask": None}
        own = found["client"]["packages"]
        python = ".".join(own["python"].split(".")[:2])
        told = [
            f"dask {own['dask']} here, none on the scheduler",
            f"python {python} here, 2.7 on a worker",
            f"dpdist {own['dpdist']} here, 0.0.9 on a worker",
        ]
        assert versions.of_worker(found["client"], older["workers"][worker]) == [
            f"python 2.7 (here {python})",
            f"dpdist 0.0.9 (here {own['dpdist']})",
        ]
        monkeypatch.setattr(Client, "get_versions", lambda self, packages: older)
        with (
            pytest.raises(
                EngineError,
                match=re.escape(
                    f"runs other versions than this process: {'; '.join(told)}; give client, scheduler and workers"
                ),
            ),
            engine.started(client.scheduler.address),
        ):
            pass
