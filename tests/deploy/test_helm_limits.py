"""What the chart's pods may take and reach: disks, probes, TLS to the ledger, the shared volume."""

from __future__ import annotations

import pytest

from tests.deploy.test_helm import BASE, CHART, MATRIX, environment_of, merged, pods, rendered


@pytest.mark.parametrize("case", MATRIX)
def test_a_pod_fills_no_disk(case: str) -> None:
    """Every folder in a pod has a limit, the scratch folder that of a container of the pod."""
    for name, pod in pods(rendered(MATRIX[case])):
        limits = {container["resources"]["limits"]["ephemeral-storage"] for container in pod["containers"]}
        folders = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume}
        assert folders["tmp"] in limits, name


def test_a_probe_kills_no_release_that_runs() -> None:
    """The worker's own answer says that Prefect's server is away; only one without a release is restarted for that."""
    (pod,) = (pod for name, pod in pods(rendered(BASE)) if name == "weekly-dpdist-worker")
    container = pod["containers"][0]
    assert not any("httpGet" in container[probe] for probe in ("startupProbe", "livenessProbe"))
    url = f"http://127.0.0.1:{environment_of(pod)['PREFECT_WORKER_WEBSERVER_PORT']}/health"
    command = container["livenessProbe"]["exec"]["command"]
    assert command == ["python", "deploy/alive.py", url, "--or-child-of", "1"]
    assert (CHART.parents[1] / command[1]).is_file()
    assert "shareProcessNamespace" not in pod  # the worker is process 1 of its container


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ({}, ("verify-full", "/etc/ssl/certs/ca-certificates.crt")),
        ({"existingSecret": "ca"}, ("verify-full", "/run/dpdist/ledger-ca/ca.crt")),
        ({"mode": "verify-ca", "existingSecret": "ca", "key": "root"}, ("verify-ca", "/run/dpdist/ledger-ca/root")),
        ({"mode": "require"}, ("require", None)),  # with a root certificate, libpq would check the authority
        ({"mode": "disable"}, ("disable", None)),
    ],
)
def test_the_ledger_s_certificate_is_checked(tls: dict[str, str], expected: tuple[str, str | None]) -> None:
    """In every container that has a URL of the ledger, unless the values say otherwise."""
    noise = {"replicas": 1, "ledgerSecret": "dpdist-noise"}
    peers = {"enabled": True, "from": [{"podSelector": {}}]}
    found = pods(rendered(merged(BASE, {"ledger": {"tls": tls}, "dask": {"noise": noise}, "monitoring": peers})))
    containers = [(pod, container) for _, pod in found for container in pod["containers"]]
    reaching = 0
    for pod, container in containers:
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        if "DPDIST_LEDGER_FILE" not in environment:
            assert "PGSSLMODE" not in environment
            continue
        reaching += 1
        assert (environment["PGSSLMODE"], environment.get("PGSSLROOTCERT")) == expected
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert ("/run/dpdist/ledger-ca" in mounted) == ("existingSecret" in tls)
        assert ("ledger-ca" in {volume["name"] for volume in pod["volumes"]}) == ("existingSecret" in tls)
    assert reaching == 5  # service, exporter, noise worker, migration, test


@pytest.mark.parametrize(("store", "read_only"), [("s3://bucket/dpdist", True), ("/data/store", False)])
def test_only_the_service_writes_to_the_shared_volume(store: str, read_only: bool) -> None:
    """Dask workers write there only where the store is a folder of it; the register job sees it only for a file of yours."""
    found = dict(pods(rendered(merged(BASE, {"store": {"url": store}}))))
    for name in ("dask-worker", "dask-optimiser"):
        (mount,) = (m for m in found[f"weekly-dpdist-{name}"]["containers"][0]["volumeMounts"] if m["name"] == "shared")
        assert mount["readOnly"] is read_only
    specs = {"name": "shared", "mountPath": "/data/specs", "subPath": "specs", "readOnly": True}
    seen = {
        name: [m for m in found[f"weekly-dpdist-{name}"]["containers"][0]["volumeMounts"] if m["name"] == "shared"]
        for name in ("worker", "service")
    }
    assert seen == {"worker": [specs], "service": [{"name": "shared", "mountPath": "/data"}, specs]}
    assert "shared" not in {volume["name"] for volume in found["weekly-dpdist-register"]["volumes"]}
    assert "shared" not in {volume["name"] for volume in found["weekly-dpdist-scheduler"]["volumes"]}
