"""Releases of the shipped chart on a node whose pods are evicted, scaled and drained meanwhile: one charge, and no run without end.

``make kubernetes`` runs them; DPDIST_TEST_EVICTIONS says how many evictions (default 10), DPDIST_TEST_SEED which and when.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.test_helm import helm
from tests.kubernetes import node as node_module
from tests.kubernetes.installed_chart import IMAGE, NAMESPACE, PERIODS, POSTGRES, S3_IMAGE, InstalledChart
from tests.kubernetes.node import Node

pytestmark = pytest.mark.large
EVICTIONS = int(os.environ.get("DPDIST_TEST_EVICTIONS", "10"))
SEED = int(os.environ.get("DPDIST_TEST_SEED", "1"))
PARTS = ("service", "dask-worker", "worker", "dask-scheduler", "dask-optimiser", "dask-noise")
LONGEST = 1200
"""Seconds after which a run has ended: a silent one is taken for dead after 180, one that its worker had not yet started after 900."""
SPECS = {
    "weekly": {},
    "pure": {"budget": {"epsilon": 1}, "ledger": {"dataset": "pure", "cap": {"epsilon": 10, "per": "week"}}},
}


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledChart]:
    helm()
    reason = node_module.reason()
    if reason:
        pytest.skip(reason)
    for image in (IMAGE, S3_IMAGE, POSTGRES):
        if subprocess.run(["podman", "image", "exists", image], check=False).returncode:
            pytest.skip(f"needs the image {image} in podman (docs/operations.md, Kubernetes)")
    folder = tmp_path_factory.mktemp("node")
    node = Node(Path(os.environ[node_module.FOLDER]), folder)
    try:
        for image in (IMAGE, S3_IMAGE, POSTGRES):
            node.bring_image(image)
        yield InstalledChart(node, folder, SPECS)
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def released(chart: InstalledChart, name: str, period: str) -> None:
    """A release that must be published, charged once and right."""
    state = chart.ended(chart.begin(name, period), LONGEST)
    assert state["type"] == "COMPLETED", state["message"]
    found = chart.verify(f"{name}-{period}")
    assert "wrong" not in found, found
    assert found.count(": right") >= 4, found


def test_weekly_and_pure_releases_are_published(chart: InstalledChart) -> None:
    """With workers that draw noise, in a namespace that enforces Pod Security "restricted"."""
    for name in SPECS:
        begun = time.monotonic()
        released(chart, name, PERIODS[0])
        print(f"{name}: {time.monotonic() - begun:.0f} s")
    assert chart.charges() == {f"{name}-{PERIODS[0]}": 1 for name in SPECS}


def test_workers_are_scaled_amid_a_release(chart: InstalledChart) -> None:
    run = chart.running("weekly", PERIODS[1])
    for replicas in (1, 3, 0, 2):
        chart.scale("dask-worker", replicas)
        time.sleep(4)
    state = chart.ended(run, LONGEST)
    if state["type"] != "COMPLETED":
        print(f"scaled: {state['name']}, {state['message']}")
        released(chart, "weekly", PERIODS[1])
    assert chart.charges()[f"weekly-{PERIODS[1]}"] == 1


def test_a_drained_node_goes_on(chart: InstalledChart) -> None:
    """All pods but the servers beside the chart leave, and come back."""
    run = chart.running("weekly", PERIODS[2])
    time.sleep(2)
    chart.cordon(True)
    for part in PARTS:
        for pod in chart.node.pods(NAMESPACE, part):
            chart.node.evict(NAMESPACE, pod["metadata"]["name"])
    time.sleep(10)
    chart.cordon(False)
    begun = time.monotonic()
    for part in PARTS:
        chart.wait(part)
    print(f"drained: all parts are ready {time.monotonic() - begun:.0f} s after the node was opened again")
    state = chart.ended(run, LONGEST)
    print(f"drained: {state['name']} after {time.monotonic() - begun:.0f} s")
    released(chart, "weekly", PERIODS[2])
    assert chart.charges()[f"weekly-{PERIODS[2]}"] == 1


def test_evictions_in_every_stage_charge_once(chart: InstalledChart) -> None:
    chance = random.Random(SEED)
    for number in range(EVICTIONS):
        name, period, part = ("weekly", "pure")[number % 2], PERIODS[3 + number], PARTS[number % len(PARTS)]
        for needed in PARTS:
            chart.wait(needed)
        begun, run = time.monotonic(), chart.running(name, period)
        wait = chance.uniform(0, 12)
        time.sleep(wait)
        (pod, *_) = chart.node.pods(NAMESPACE, part)
        status = chart.node.evict(NAMESPACE, pod["metadata"]["name"])
        state = chart.ended(run, LONGEST)
        print(
            f"eviction {number + 1} of {part} after {wait:.0f} s ({status}): {state['name']} after {time.monotonic() - begun:.0f} s",
            flush=True,
        )
        if state["type"] != "COMPLETED":
            released(chart, name, period)
        assert chart.charges()[f"{name}-{period}"] == 1
    assert set(chart.charges().values()) == {1}
    print(chart.ledger_command("verify"))
