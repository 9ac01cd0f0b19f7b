"""Every mechanism, in every noise, is planned and released over a cluster by a process that trusts it as little as the service does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from distributed import LocalCluster

from tests import HANGS
from tests.case_selection import always
from tests.contracts.cases import CASES
from tests.plugins.service.measuring_service import ROOT

OFTEN = ("wavelet, Laplace noise", "hierarchical")


@pytest.fixture(scope="module")
def address() -> object:
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=2**32) as cluster:
        yield cluster.scheduler_address


@pytest.mark.slow
@pytest.mark.parametrize("name", always(OFTEN, CASES))
def test_a_case_is_released_over_a_cluster(name: str, address: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DPDIST_ENGINE": address, "DPDIST_ENGINE_WITHOUT_TLS": "1"}
    command = [sys.executable, "-m", "tests.plugins.service.restricted_releases", name]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANGS)
    assert done.stdout == f"{name}: published\n", done.stdout + done.stderr
