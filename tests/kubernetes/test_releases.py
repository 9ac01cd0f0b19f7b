"""Releases of the shipped chart on a node whose pods are evicted, scaled and drained meanwhile: one charge, and no run without end.

``make kubernetes`` runs them.
"""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.test_helm import helm
from tests.kubernetes import node as node_module
from tests.kubernetes.disturbances import LONGEST, Disturbances, Usage
from tests.kubernetes.installed_chart import (
    IMAGE,
    NAMESPACE,
    PARTS,
    PERIODS,
    POSTGRES,
    S3_IMAGE,
    STAGES,
    VALUES,
    InstalledChart,
)
from tests.kubernetes.node import NODE, Node
from tests.kubernetes.second_node import SecondNode

pytestmark = pytest.mark.large
EVICTIONS = (
    "counting dask-worker, counting dask-noise, drawing service, drawing dask-scheduler, answering worker",
    "counting service, counting dask-optimiser, drawing dask-noise, drawing worker, answering dask-scheduler",
    "counting worker, drawing dask-optimiser, drawing dask-worker, answering service, answering dask-noise",
    "counting dask-scheduler, drawing service, answering service, answering dask-worker, answering dask-optimiser",
)
"""Of four releases: in which stage a pod of which part leaves. Each part does in each stage, the measuring service twice after a charge."""
LARGE = {
    "domain": {"age": {"from": 0, "to": 2047}, "person": {"from": 0, "to": 4095}},
    "workload": [{"marginals": {"of": [["age"]]}}],
    "mechanism": "identity",
}
"""Two shards of noise: workers draw it."""
SPECS = {
    "large": LARGE,
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
        found = InstalledChart(node, folder, SPECS)
        usage = Usage(found)
        yield found
        print(f"\nwhat the kubelet saw at most:\n{usage.table()}")
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def never_begun(chart: InstalledChart) -> str:
    """A run whose worker's pod left before the run had a process: before the other tests, so that its 900 s pass meanwhile."""
    name = chart.wait("worker")[0]["metadata"]["name"]
    run = chart.begin_run("backfill", **LAST_WEEK)
    while chart.state(run)["type"] == "SCHEDULED":
        time.sleep(0.05)
    assert chart.node.evict(NAMESPACE, name, seconds=1) < 300
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    chart.node.until(lambda: chart.node.client.get(path).status_code == 404, f"the end of {name}")
    state = chart.state(run)
    print(f"a run whose worker's pod left is {state['name']}")
    assert state["type"] == "PENDING"
    return run


LAST_WEEK = {"spec_path": "/data/specs/weekly.yaml", "every": "week", "first": PERIODS[-1], "last": PERIODS[-1]}
"""What is asked of the deployment ``backfill``, which no other test asks for anything."""


@pytest.fixture(scope="module")
def disturbances(chart: InstalledChart, never_begun: str) -> Disturbances:
    """What tests of this module did to releases of periods that only they release."""
    found = Disturbances(chart, list(PERIODS[3:-1]))
    print(
        "\n| release | what was done, in which stage | published s after it | s in all | asked for again |\n|---|---|---|---|---|"
    )
    return found


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


def test_evictions_in_every_stage_charge_once(disturbances: Disturbances) -> None:
    """Pods of every part leave while releases count, draw and answer: five amid one release."""
    stages = Counter[str]()
    for amid_one in EVICTIONS:
        disturbed = disturbances.begin("large")
        for stage, part in (each.split() for each in amid_one.split(", ")):
            disturbances.evict(disturbed, stage, part)
        disturbances.publish(disturbed)
        stages.update(stage for _, stage, _ in disturbed.done)
    print(f"evictions: {dict(stages)}")
    assert min(stages[stage] for stage in STAGES[:-1]) >= 3
    disturbances.check()
    print(disturbances.chart.ledger_command("verify"))


@pytest.mark.parametrize(
    ("part", "container"), [("dask-worker", "worker"), ("dask-scheduler", "scheduler"), ("service", "service")]
)
def test_a_part_that_runs_out_of_memory_charges_once(disturbances: Disturbances, part: str, container: str) -> None:
    """The kernel ends it while a release is between its charge and its commit."""
    chart = disturbances.chart
    disturbed = disturbances.begin("large")
    pod = chart.wait(part)[0]["metadata"]["name"]
    disturbances.disturb_at_stage(
        disturbed, "drawing", f"{part} out of memory", lambda: chart.node.run_out_of_memory(NAMESPACE, pod, container)
    )
    chart.node.until(lambda: "OOMKilled" in ends_of(chart, pod), f"the end of {pod}")
    disturbances.publish(disturbed)
    disturbances.check()


def ends_of(chart: InstalledChart, pod: str) -> list[str]:
    """Why the container of a pod ended: this one, and the one before it."""
    (status,) = chart.node.ask(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["status"]["containerStatuses"]
    return [status[state]["terminated"]["reason"] for state in ("state", "lastState") if "terminated" in status[state]]


def test_a_worker_that_fills_its_disk_is_replaced(disturbances: Disturbances) -> None:
    """More lies in its /tmp than its limit of ephemeral storage: the kubelet evicts the pod."""
    chart = disturbances.chart
    disturbed = disturbances.begin("large")
    pod = chart.wait("dask-worker")[0]["metadata"]["name"]
    fill = ("python", "-c", "file = open('/tmp/filled', 'wb')\nfor _ in range(1100): file.write(bytes(2**20))")
    disturbances.disturb_at_stage(
        disturbed,
        "counting",
        "dask-worker's disk filled",
        lambda: chart.node.inside(NAMESPACE, pod, "worker", *fill, check=False),
    )
    disturbances.publish(disturbed)
    begun, path = time.monotonic(), f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}"
    chart.node.until(lambda: chart.node.ask(path)["status"].get("reason") == "Evicted", "the eviction")
    print(f"evicted {time.monotonic() - begun:.0f} s after the release: {chart.node.ask(path)['status']['message'][:160]}")
    chart.wait("dask-worker", 2)
    disturbances.check()


def test_a_second_node_that_is_lost_for_five_minutes_charges_once(disturbances: Disturbances) -> None:
    """One of two Dask workers is there; the link is cut while a release is between its charge and its commit."""
    chart = disturbances.chart
    with second_node(chart) as second:
        workers = {**VALUES["dask"]["workers"], "topologySpreadConstraints": [SPREAD]}
        chart.apply_chart(dask={**VALUES["dask"], "workers": workers})
        chart.node.until(lambda: nodes(chart, "dask-worker") == {NODE, second.name}, "a worker on each node")
        disturbed = disturbances.begin("large")
        disturbances.disturb_at_stage(disturbed, "drawing", "second node lost", second.cut)
        cut = time.monotonic()
        disturbances.publish(disturbed)
        disturbances.compare_answers()  # the node is to be away for minutes anyway
        time.sleep(max(0.0, cut + LOST_SECONDS - time.monotonic()))
        assert not chart.node.is_ready(second.name)
        second.connect()
        back = time.monotonic()
        chart.node.until(lambda: chart.node.is_ready(second.name), "the second node")
        chart.wait("dask-worker", 2)
        print(
            f"the second node was lost for {back - cut:.0f} s; all workers {time.monotonic() - back:.0f} s after it was back"
        )
        disturbances.publish(disturbances.begin("large"))
        chart.apply_chart()
    disturbances.check()


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "dask-worker"}},
    "matchLabelKeys": ["pod-template-hash"],
}
LOST_SECONDS = 300


@contextmanager
def second_node(chart: InstalledChart) -> Iterator[SecondNode]:
    """A second node with the image of the chart."""
    second = SecondNode(chart.node)
    try:
        chart.node.bring_image(IMAGE, second.parts)
        yield second
    finally:
        second.stop()


def nodes(chart: InstalledChart, part: str) -> set[str]:
    """Where pods of a part are ready."""
    return {pod["spec"]["nodeName"] for pod in chart.wait(part)}


def test_an_image_that_is_rolled_amid_a_week_charges_once(disturbances: Disturbances) -> None:
    """The chart is upgraded to another image while a release draws: every pod is replaced."""
    chart = disturbances.chart
    rolled = IMAGE.replace(":1.0.0", ":1.0.0-rolled")
    file = chart.folder / "Dockerfile"
    file.write_text(f"FROM {IMAGE}\nENV ROLLED=1\n")
    subprocess.run(["podman", "build", "--quiet", "--tag", rolled, "--file", file, chart.folder / "names"], check=True)
    chart.node.bring_image(rolled)
    disturbed = disturbances.begin("large")
    values = {"image": {**VALUES["image"], "tag": "1.0.0-rolled"}}
    disturbances.disturb_at_stage(
        disturbed, "drawing", "image rolled", lambda: chart.apply_chart("pre-upgrade", "post-upgrade", **values)
    )
    disturbances.publish(disturbed)
    for part in PARTS:
        chart.node.until(lambda part=part: images(chart, part) == {rolled}, f"{part} with the new image")
    again = disturbances.begin("weekly")
    disturbances.publish(again)
    disturbances.check()


def images(chart: InstalledChart, part: str) -> set[str]:
    """The images of a part's pods."""
    return {f"docker.io/library/{pod['spec']['containers'][0]['image']}" for pod in chart.node.pods(NAMESPACE, part)}


def test_a_run_that_never_began_is_ended(chart: InstalledChart, never_begun: str) -> None:
    """By an automation of the installation; a run after it publishes the period, which is charged once."""
    state = chart.ended(never_begun, LONGEST)
    assert state["type"] == "CRASHED"
    assert "runs that never began" in state["message"]
    asked, ended = chart.prefect(f"flow_runs/{never_begun}")["created"], state["timestamp"]
    seconds = (datetime.datetime.fromisoformat(ended) - datetime.datetime.fromisoformat(asked)).total_seconds()
    print(f"never begun: {state['name']} {seconds:.0f} s after it was asked for; {state['message']}")
    assert chart.ended(chart.begin_run("backfill", **LAST_WEEK), LONGEST)["type"] == "COMPLETED"
    assert chart.charges()[f"weekly-{PERIODS[-1]}"] == 1


def test_answers_are_those_of_one_process(disturbances: Disturbances) -> None:
    """Of all releases amid which the tests before did something."""
    assert disturbances.releases
    disturbances.compare_answers()
