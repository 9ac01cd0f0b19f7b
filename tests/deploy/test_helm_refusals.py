"""Values of the chart that cannot work are refused, with the cure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.test_helm import BASE, helm, merged, rendered


@pytest.mark.parametrize(
    ("values", "cure"),
    [
        ({"noise": {"replicas": 1}}, "dask.noise.ledgerSecret is empty"),
        (
            {"noise": {"replicas": 1, "ledgerSecret": "n"}, "tls": {"existingSecret": "", "disabled": True}},
            "could read the root key",
        ),
    ],
)
def test_noise_workers_without_a_login_or_tls_are_refused(values: dict[str, Any], cure: str) -> None:
    with pytest.raises(helm().HelmError, match=cure):
        rendered(merged(BASE, {"dask": values}))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no key": ({"rootKey": {"existingSecret": ""}}, "rootKey.existingSecret is empty: make one with"),
    "no ledger": ({"ledger": {"existingSecret": ""}}, "ledger.existingSecret is empty: name a Secret"),
    "no token": ({"service": {"existingSecret": ""}}, "a certificate for weekly-dpdist-service"),
    "one secret for the cluster and for the worker": (
        {"service": {"existingSecret": "dpdist-dask"}},
        "whoever holds the latter runs code in the service",
    ),
    "no specs": (
        {"shared": {"existingClaim": ""}, "output": {"url": "s3://public"}},
        "the measuring service has no specs: name a ConfigMap",
    ),
    "an identity for what Prefect commands": ({"serviceAccount": {"annotations": {"iam": "role"}}}, "annotations"),
    "a container beside the worker": ({"prefect": {"worker": {"extraContainers": [{}]}}}, "extraContainers"),
    "no server": ({"prefect": {"apiUrl": ""}}, "prefect.apiUrl is empty"),
    "dask without store": ({"store": {"url": ""}}, "dask.enabled needs store.url"),
    "dask with a store in a folder of each pod": (
        {"shared": {"existingClaim": ""}, "store": {"url": "/data/store"}},
        "dask.enabled with a store in a folder needs shared.existingClaim",
    ),
    "dask without TLS": ({"dask": {"tls": {"existingSecret": ""}}}, "whoever reached the scheduler's port could run code"),
    "TLS and none": ({"dask": {"tls": {"disabled": True}}}, "exclude each other"),
    "nothing that lasts": (
        {"dask": {"enabled": False}, "store": {"url": ""}, "shared": {"existingClaim": ""}},
        "would be lost with the pod",
    ),
    "an output that is no place": ({"output": {"url": "bucket"}}, "output.url .bucket. is neither"),
    "two certificates": ({"dask": {"tls": {"certManager": {"enabled": True}}}}, "certManager excludes"),
    "no issuer": (
        {"dask": {"tls": {"existingSecret": "", "certManager": {"enabled": True}}}},
        "issuerRef.name is empty: name an Issuer",
    ),
    "roles without an owner": ({"ledger": {"roles": {"application": "dpdist"}}}, "needs ledger.ownerSecret"),
    "noise alone": ({"ledger": {"roles": {"noise": "dpdist_noise"}}}, "go with ledger.roles.application"),
    "an exporter that may charge": (
        {
            "ledger": {"roles": {"application": "dpdist"}, "ownerSecret": "dpdist-owner"},
            "monitoring": {"enabled": True, "from": [{"podSelector": {}}]},
        },
        "monitoring.ledgerSecret is empty",
    ),
    "a digest that is none": ({"image": {"digest": "latest"}}, "digest"),
    "no URL": ({"store": {"url": "bucket/prefix"}}, "is no object store URL"),
    "plain http": ({"store": {"allowHttp": True}}, "set store.endpoint, too"),
    "a trial ledger that is asked for a certificate": (
        {"ledger": {"embedded": {"enabled": True}}},
        "set ledger.tls.mode=disable for the trial",
    ),
    "any authority for any name": ({"ledger": {"tls": {"mode": "verify-ca"}}}, "any public authority has certified"),
    "an authority and no TLS": (
        {"ledger": {"tls": {"mode": "disable", "existingSecret": "ca"}}},
        "exclude each other: leave one out",
    ),
    "no such mode": ({"ledger": {"tls": {"mode": "prefer"}}}, "mode"),
    "no bound on the disk": (
        {"prefect": {"worker": {"resources": {"limits": {"ephemeral-storage": None}}}}},
        "ephemeral-storage",
    ),
    "scaling down": (
        {"dask": {"workers": {"replicas": 9, "autoscaling": {"enabled": True}}}},
        "maxReplicas .8. is below dask.workers.replicas .9.",
    ),
    "metrics that nobody reaches": ({"monitoring": {"enabled": True}}, "monitoring.from is empty: the network policy"),
    "an API whose port is closed": (
        {"prefect": {"apiUrl": "http://prefect-server:4242/api"}},
        "prefectEgressPorts leaves out port 4242 of prefect.apiUrl .http://prefect-server:4242/api., .*: add it",
    ),
    "an API at the port of its scheme that is closed": (
        {"prefect": {"apiUrl": "https://prefect.example.org/api"}, "networkPolicy": {"prefectEgressPorts": [4200]}},
        "prefectEgressPorts leaves out port 443",
    ),
    "an endpoint whose port is closed": (
        {"store": {"endpoint": "http://s3:8333", "allowHttp": True}},
        "egressPorts leaves out port 8333 of store.endpoint .http://s3:8333., .*: add it",
    ),
    "a store whose port is closed": (
        {"networkPolicy": {"egressPorts": [5432]}},
        "egressPorts leaves out port 443 of store.url",
    ),
    "releases in a folder of one pod": (
        {"shared": {"existingClaim": ""}, "output": {"url": "/releases"}, "service": {"specs": {"configMap": "specs"}}},
        "output.url ./releases. is a folder of one pod, .*: set shared.existingClaim",
    ),
    "measurements in a folder of one pod": (
        {
            "shared": {"existingClaim": ""},
            "dask": {"enabled": False},
            "store": {"url": "/store"},
            "output": {"url": "s3://public"},
            "service": {"specs": {"configMap": "specs"}},
        },
        "store.url ./store. is a folder of one pod, .*: set shared.existingClaim",
    ),
    "a typo": ({"dask": {"worker": {"replicas": 3}}}, "worker"),
    "a wrong type": ({"dask": {"workers": {"replicas": "three"}}}, "replicas"),
    "no API": ({"prefect": {"apiUrl": "prefect-server"}}, "apiUrl"),
    "no unit": ({"dask": {"workers": {"resources": {"limits": {"cpu": "1", "memory": "4"}}}}}, "memory"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_cure(case: str) -> None:
    change, message = REFUSED[case]
    with pytest.raises(helm().HelmError, match=message):
        rendered(merged(BASE, change))


@pytest.mark.parametrize(
    "change",
    [
        {"prefect": {"apiUrl": "http://prefect-server:4242/api"}, "networkPolicy": {"prefectEgressPorts": [4242]}},
        {"prefect": {"apiUrl": "http://prefect-server:4242/api"}, "networkPolicy": {"enabled": False}},
        {"prefect": {"apiUrl": "https://prefect.example.org/api"}},
        {"store": {"endpoint": "http://s3:8333", "allowHttp": True}, "networkPolicy": {"egressPorts": [8333, 5432]}},
    ],
)
def test_ports_that_agree_are_rendered(change: dict[str, Any]) -> None:
    assert rendered(merged(BASE, change))
