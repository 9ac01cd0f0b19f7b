"""dpdist sizes: what it prints fits the chart, and the stages of the releases fit what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dpdist.engine import cluster_workers
from dpdist.plugins.deployment.sizes_command import LEAST_DISK, part_bytes, pod_resources, sizes
from tests.deploy.test_helm import BASE, merged, rendered
from tests.support import small_release


def mebibytes(text: str) -> int:
    assert text.endswith("Mi")
    return int(text[:-2]) * 2**20


@pytest.mark.parametrize("needed", [0, 10**6, 10**9, 7 * 10**10])
def test_a_worker_may_take_what_a_stage_needs(needed: int) -> None:
    """By the rule that Dask's workers are asked by."""
    limit = mebibytes(pod_resources("workers", needed, 0)["limits"]["memory"])
    ((_, allowed),) = cluster_workers.optimisers({"address": {"memory_limit": limit, "resources": {}}})
    assert needed <= allowed <= needed + 2**29


def test_stages_belong_to_parts() -> None:
    stages = {"count": 5, "gram": 7, "optimise": 11, "measure": 3, "publish": 2}.items()
    assert part_bytes(stages) == {"service": 3, "workers": 7, "optimiser": 11}
    assert pod_resources("service", 0, 5 * 2**30)["limits"]["ephemeral-storage"] == "5Gi"
    assert pod_resources("service", 0, 0)["limits"]["ephemeral-storage"] == f"{LEAST_DISK // 2**30}Gi"


def test_the_chart_takes_the_values(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = small_release.write(home.parent / "data")
    sizes([spec], None, 3)
    values = yaml.safe_load(capsys.readouterr().out)
    assert values["dask"]["workers"]["replicas"] == 3
    pods = {
        document["metadata"]["name"]: document
        for document in rendered(merged(BASE, values))
        if document["kind"] == "Deployment"
    }
    (worker,) = pods["weekly-dpdist-dask-worker"]["spec"]["template"]["spec"]["containers"]
    assert worker["resources"] == values["dask"]["workers"]["resources"]
    assert mebibytes(worker["resources"]["limits"]["memory"]) > 2**28


def test_pods_have_what_any_of_the_releases_takes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the order of the specs: memory and disk of the largest."""
    large = {"domain": {name: {"from": 0, "to": 1999} for name in ("age", "years")}, "records": {"path": "records.parquet"}}
    specs = [
        small_release.write(home.parent / "small"),
        small_release.write(home.parent / "large", **large, workload=[{"marginals": {"of": [["age", "years"]]}}]),
    ]
    printed = []
    for listed in (specs[:1], specs[1:], specs, specs[::-1]):
        sizes(listed, None, 2)
        printed.append(capsys.readouterr().out)
    assert printed[0] != printed[1] == printed[2] == printed[3]
    assert "ephemeral-storage: 3Gi" in printed[1]
