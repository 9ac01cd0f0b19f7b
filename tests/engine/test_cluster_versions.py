"""A cluster of other versions is refused when a run starts."""

from __future__ import annotations

import copy
import re

import pytest
from distributed import Client

from dpdist import engine
from dpdist.engine import cluster_versions
from dpdist.errors import EngineError


def test_versions_of_a_real_cluster() -> None:
    """Scheduler and worker of this process agree; as soon as one of their packages is another one, it is named with both versions."""
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as client:
        found = client.get_versions(packages=["dpdist"])
        cluster_versions.check(client)
        (worker,) = found["workers"]
        assert cluster_versions.differing_packages(cluster_versions.here(), found["workers"][worker]) == []
        own, python = found["client"]["packages"], ".".join(found["client"]["packages"]["python"].split(".")[:2])
        older = copy.deepcopy(found["workers"][worker])
        older["packages"] |= {"dpdist": "0.0.9", "python": "2.7.1.final.0"}
        assert cluster_versions.differing_packages(found["client"], older) == [
            f"python 2.7 (here {python})",
            f"dpdist 0.0.9 (here {own['dpdist']})",
        ]
        scheduler = copy.deepcopy(found["scheduler"])
        scheduler["packages"] |= {"dask": None}
        client.cluster.scheduler.handlers["versions"] = lambda packages: scheduler
        told = f"dask {own['dask']} here, none on the scheduler"
        with (
            pytest.raises(
                EngineError, match=re.escape(f"runs other versions than this process: {told}; give client, scheduler")
            ),
            engine.open_engine(client.scheduler.address),
        ):
            pass
