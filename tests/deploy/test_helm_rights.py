"""Who in the chart sees what: keys, logins, identities, networks."""

from __future__ import annotations

import pytest
import yaml

from tests.deploy.test_helm import BASE, CHART, MATRIX, environment_of, merged, pods, rendered


def test_only_the_service_and_jobs_of_the_operator_see_the_key() -> None:
    seeing = {name for name, pod in pods(rendered(BASE)) if any(volume["name"] == "key" for volume in pod["volumes"])}
    assert seeing == {"weekly-dpdist-service", "weekly-dpdist-test", "weekly-dpdist-migrate"}


def test_noise_workers_are_there_when_they_are_asked_for() -> None:
    """They mount the key and the ledger's URL of their own login, and draw on as many threads as they have; no other worker does."""
    asked = merged(BASE, {"dask": {"noise": {"replicas": 2, "threads": 3, "ledgerSecret": "dpdist-noise"}}})
    before, found = {name for name, _ in pods(rendered(BASE))}, pods(rendered(asked))
    (name,) = {name for name, _ in found} - before
    (pod,) = (pod for each, pod in found if each == name)
    arguments = pod["containers"][0]["args"]
    assert arguments[arguments.index("--resources") + 1] == "noise=3"
    assert environment_of(pod)["DPDIST_ROOT_KEY_FILE"] == "/run/dpdist/key/root.key"
    assert environment_of(pod)["DPDIST_LEDGER_FILE"] == "/run/dpdist/ledger/url"
    assert {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v} == {
        "dpdist-dask",
        "dpdist-root-key",
        "dpdist-noise",
    }
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert all(mounts[name]["readOnly"] is True for name in ("key", "ledger"))
    modes = {v["name"]: v["secret"].get("defaultMode") for v in pod["volumes"] if "secret" in v}
    assert modes["key"] == 0o400
    keyed = {each for each, one in found if any(volume["name"] == "key" for volume in one["volumes"])}
    assert keyed == {"weekly-dpdist-service", "weekly-dpdist-test", "weekly-dpdist-migrate", name}


def test_secrets_are_where_they_are_used() -> None:
    """The Dask scheduler and the register job see neither store nor ledger; only the migration sees the owner's login."""
    store = merged(MATRIX["everything"], {"store": {"existingSecret": "dpdist-store"}})
    found = {name.removeprefix("publisher-"): pod for name, pod in pods(rendered(store))}
    seeing = {name for name, pod in found.items() if "AWS_SECRET_ACCESS_KEY" in environment_of(pod)}
    assert seeing == {"service", "dask-worker", "dask-optimiser", "dask-noise"}
    secrets = {
        name: {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        for name, pod in found.items()
    }
    assert secrets["scheduler"] == {"publisher-dask"}
    assert secrets["register"] == set()
    assert secrets["worker"] == {"dpdist-service"}
    assert secrets["service"] == {
        *("dpdist-root-key", "dpdist-ledger", "dpdist-metrics"),
        *("postgres-ca", "publisher-dask", "dpdist-service"),
    }
    urls = {volume["name"]: volume["secret"]["secretName"] for volume in found["service"]["volumes"] if "secret" in volume}
    mounted = {
        container["name"]: {
            urls[each["name"]] for each in container["volumeMounts"] if each["mountPath"] == "/run/dpdist/ledger"
        }
        for container in found["service"]["containers"]
    }
    assert mounted == {"service": {"dpdist-ledger"}, "metrics": {"dpdist-metrics"}}  # the exporter's login cannot charge
    assert [name for name, mounted in secrets.items() if "dpdist-owner" in mounted] == ["migrate"]
    assert secrets["dask-noise"] == {"publisher-dask", "dpdist-root-key", "dpdist-noise", "postgres-ca"}
    assert secrets["dask-worker"] == secrets["dask-optimiser"] == {"publisher-dask"}
    assert {name for name, pod in found.items() if "PREFECT_API_AUTH_STRING" in environment_of(pod)} == {
        "worker",
        "register",
    }


@pytest.mark.parametrize("case", MATRIX)
def test_policies_close_both_ways_and_have_no_empty_rules(case: str) -> None:
    """A server keeps an empty list as none: each upgrade would be a change of the policy."""
    policies = [d["spec"] for d in rendered(MATRIX[case]) if d["kind"] == "NetworkPolicy"]
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies)
    assert all(policy[way] for policy in policies for way in ("ingress", "egress") if way in policy)


@pytest.mark.parametrize("cloud", ["aws", "gcs", "azure"])
def test_cloud_identities_need_no_secret(cloud: str) -> None:
    values = merged(
        BASE, {"store": {"existingSecret": ""}}, yaml.safe_load((CHART / "identities" / f"{cloud}.yaml").read_text())
    )
    documents = rendered(values)
    accounts = {d["metadata"]["name"]: d["metadata"].get("annotations") for d in documents if d["kind"] == "ServiceAccount"}
    assert {name for name, annotations in accounts.items() if annotations} == {"weekly-dpdist-service", "weekly-dpdist-dask"}
    own = {name.removeprefix("weekly-dpdist-"): pod["serviceAccountName"] for name, pod in pods(documents)}
    assert {part for part, account in own.items() if account == "weekly-dpdist-service"} == {"service", "migrate", "test"}
    assert {part for part, account in own.items() if account == "weekly-dpdist-dask"} == {"dask-worker", "dask-optimiser"}
    assert not accounts[own["worker"]]
    for name, pod in pods(documents):
        assert not any(variable.get("valueFrom", {}).get("secretKeyRef") for variable in pod["containers"][0]["env"]), name
    service = environment_of(dict(pods(documents))["weekly-dpdist-service"])
    assert service["DPDIST_OUTPUT"] == values["output"]["url"]


def test_what_prefect_commands_has_nothing_to_take() -> None:
    """Its worker sees a login of Prefect, the specs and what it shows to the service; policies let it reach no other part."""
    asked = {"extraEnv": [{"name": "AWS_PROFILE", "value": "records"}], "extraEnvFrom": [{"secretRef": {"name": "lake"}}]}
    documents = rendered(merged(BASE, asked))
    found = {name.removeprefix("weekly-dpdist-"): pod for name, pod in pods(documents)}
    for name in ("worker", "register", "test-client"):
        (container,) = found[name]["containers"]
        assert not [v["name"] for v in container["env"] if v["name"].startswith(("AWS", "PG", "DASK"))], name
        assert (
            not {"DPDIST_ROOT_KEY_FILE", "DPDIST_LEDGER_FILE", "DPDIST_STORE", "DPDIST_ENGINE"}
            & environment_of(found[name]).keys()
        )
        assert "envFrom" not in container
    (mounted,) = [volume["secret"] for volume in found["worker"]["volumes"] if "secret" in volume]
    assert [item["key"] for item in mounted["items"]] == ["ca.crt", "token"]
    policies = {
        d["metadata"]["name"].removeprefix("weekly-dpdist-"): d["spec"] for d in documents if d["kind"] == "NetworkPolicy"
    }
    components = {"worker", "register", "service", "test", "test-client", "migrate", "ledger"}
    components |= {"dask-scheduler", "dask-worker", "dask-optimiser", "dask-noise"}
    governed = [each for policy in policies.values() for each in policy["podSelector"]["matchExpressions"][0]["values"]]
    assert sorted(governed) == sorted(components)  # each part by one policy
    (reached,) = [to for rule in policies["worker"]["egress"] for to in rule.get("to", [])]
    assert reached["podSelector"]["matchExpressions"][0]["values"] == ["service"]
    for name, policy in policies.items():
        peers = [peer for rule in policy.get("ingress", []) for peer in rule["from"]]
        lets_in = {each for peer in peers for each in peer["podSelector"]["matchExpressions"][0]["values"]}
        assert ("worker" in lets_in) == (name == "service"), name
    assert policies["service"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 8443}]
