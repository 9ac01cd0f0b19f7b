"""The chart, rendered by a real Helm engine and checked against Kubernetes' schemas; test_control_plane.py installs it."""

from __future__ import annotations

import copy
import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.case_selection import always

kubernetes_validate = pytest.importorskip("kubernetes_validate")

CHART = Path(__file__).parents[2] / "helm" / "dpdist"
GOLDEN = Path(__file__).parent / "golden"
VERSIONS = ("1.25", "1.30", "1.34", "1.37")
BASE: dict[str, Any] = {
    "rootKey": {"existingSecret": "dpdist-root-key"},
    "ledger": {"existingSecret": "dpdist-ledger"},
    "store": {"url": "s3://bucket/dpdist", "existingSecret": "dpdist-store"},
    "shared": {"existingClaim": "dpdist-shared"},
    "service": {"existingSecret": "dpdist-service"},
    "dask": {"tls": {"existingSecret": "dpdist-dask"}},
    "prefect": {"apiUrl": "http://prefect-server:4200/api"},
}


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for part in parts:
        for key, value in copy.deepcopy(part).items():
            out[key] = merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


MATRIX = {
    "default": BASE,
    "no-dask": merged(BASE, {"dask": {"enabled": False}, "store": {"url": ""}}),
    "autoscaling": merged(BASE, {"dask": {"workers": {"autoscaling": {"enabled": True, "maxReplicas": 12}}}}),
    "trial": merged(
        BASE,
        {
            "dask": {"tls": {"existingSecret": "", "disabled": True}},
            "ledger": {"embedded": {"enabled": True}, "tls": {"mode": "disable"}},
            "store": {"endpoint": "http://s3:9000", "allowHttp": True},
            "networkPolicy": {"egressPorts": [9000]},
        },
    ),
    "everything": merged(
        BASE,
        {
            "notify": {"existingSecret": "hook"},
            "serviceAccount": {"name": "nobody"},
            "service": {
                "specs": {"configMap": "specs"},
                "serviceAccount": {"name": "publisher", "annotations": {"iam": "role"}},
                "window": 400,
                "every": "week",
                "terminationGracePeriodSeconds": 600,
                "nodeSelector": {"pool": "keys"},
                "extraContainers": [],
            },
            "image": {
                "repository": "registry.example/dpdist",
                "digest": "sha256:" + "0f" * 32,
                "pullSecrets": [{"name": "pull"}],
            },
            "nodeSelector": {"pool": "large"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "podAnnotations": {"a": "b"},
            "prefect": {
                "deploymentsFile": "/data/prefect.yaml",
                "pool": "own",
                "poolLimit": 3,
                "datasets": ["visits", "rentals"],
                "auth": {"existingSecret": "prefect-login", "key": "login"},
                "worker": {"priorityClassName": "high"},
                "extraEnvFrom": [{"configMapRef": {"name": "proxies"}}],
            },
            "ledger": {
                "ownerSecret": "dpdist-owner",
                "roles": {"application": "dpdist", "noise": "dpdist_noise", "metrics": "dpdist_metrics"},
                "tls": {"existingSecret": "postgres-ca"},
            },
            "output": {"url": "s3://public/releases"},
            "dask": {
                "tls": {"existingSecret": "", "certManager": {"enabled": True, "issuerRef": {"name": "dask"}}},
                "optimiser": {"tolerations": [{"key": "memory", "operator": "Exists"}]},
                "serviceAccount": {"annotations": {"iam": "workers"}},
                "noise": {"replicas": 3, "threads": 2, "ledgerSecret": "dpdist-noise"},
            },
            "commonLabels": {"team": "statistics"},
            "commonAnnotations": {"contact": "statistics@example.org"},
            "runAsUser": None,
            "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["warehouse"]}],
            "dnsConfig": {"searches": ["example.org"]},
            "runtimeClassName": "gvisor",
            "extraEnvFrom": [{"configMapRef": {"name": "proxies"}}],
            "monitoring": {
                "enabled": True,
                "ledgerSecret": "dpdist-metrics",
                "monitor": {"kind": "ServiceMonitor", "labels": {"team": "statistics"}},
            },
            "podLabels": {"team": "statistics"},
            "fullnameOverride": "publisher",
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
            "extraVolumes": [{"name": "records", "persistentVolumeClaim": {"claimName": "records"}}],
            "extraVolumeMounts": [{"name": "records", "mountPath": "/records", "readOnly": True}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "normal",
            "tests": {"enabled": False},
            "networkPolicy": {"enabled": False},
            "podDisruptionBudget": {"enabled": False},
        },
    ),
}


def helm() -> Any:
    """The engine. It starts threads, after which nobody can fork: not while the tests are collected."""
    return pytest.importorskip("helm_python", reason="needs the PyPI package helm-python-sdk")


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    return copy.deepcopy(_rendered(json.dumps(values)))


@functools.cache
def _rendered(values: str) -> list[dict[str, Any]]:
    files = helm().Chart.load(CHART).render(json.loads(values), name="weekly", namespace="private")
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return [document for text in texts for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def pods(documents: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Name and pod spec of everything that runs."""
    out = []
    for document in documents:
        spec, name = document.get("spec", {}), document["metadata"]["name"]
        if document["kind"] == "Pod":
            out.append((name, spec))
        elif document["kind"] in ("Deployment", "StatefulSet", "Job"):
            out.append((name, spec["template"]["spec"]))
    return out


@pytest.mark.parametrize("case", MATRIX)
def test_golden(case: str) -> None:
    """What is rendered is what was looked at. DPDIST_GOLDEN=write writes it anew."""
    text = yaml.dump_all(rendered(MATRIX[case]), Dumper=yaml.CSafeDumper, sort_keys=True)
    file = GOLDEN / f"{case}.yaml"
    if os.environ.get("DPDIST_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} differs: look at it, then DPDIST_GOLDEN=write pytest tests/deploy"


@pytest.mark.parametrize(
    "version", [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in VERSIONS[1:-1]), VERSIONS[-1]]
)
@pytest.mark.parametrize("case", always(list(MATRIX)[::2], MATRIX))
def test_manifests_are_valid(case: str, version: str) -> None:
    found = rendered(MATRIX[case])
    assert len(found) >= 4
    for document in found:
        if not document["apiVersion"].startswith(("cert-manager.io", "monitoring.coreos.com")):
            kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_manifest_would_be_found() -> None:
    document = next(d for d in rendered(BASE) if d["kind"] == "Deployment")
    document["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)


@pytest.mark.parametrize("case", MATRIX)
def test_policies(case: str) -> None:
    """Nothing privileged, limits everywhere, no secret in plain, no token of the cluster's API; the key in the flow's pods only."""
    documents = rendered(MATRIX[case])
    found = pods(documents)
    assert len(found) >= 2
    for name, pod in found:
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not any("hostPath" in volume for volume in pod["volumes"])
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            for part in ("requests", "limits"):
                assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"][part].keys()
            for variable in container.get("env", []):
                secret = any(word in variable["name"] for word in ("KEY", "PASSWORD", "SECRET", "TOKEN", "LEDGER", "NOTIFY"))
                if secret and not variable["name"].endswith("_FILE"):
                    assert variable.get("value", "/run/dpdist/").startswith("/run/dpdist/"), variable["name"]
    assert not any(d["kind"] in ("Secret", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding") for d in documents)
    selected = [d for d in documents if d["kind"] in ("Deployment", "StatefulSet")]
    for document in selected:
        wanted, has = document["spec"]["selector"]["matchLabels"], document["spec"]["template"]["metadata"]["labels"]
        assert wanted.items() <= has.items()


def environment_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}


def test_two_installations_share_a_server() -> None:
    """Pool, deployments and limits carry the name of the Helm release."""
    names = []
    for release in ("north", "south"):
        files = helm().Chart.load(CHART).render(BASE, name=release, namespace="private")
        documents = [
            d for text in files.values() if text.strip().startswith(("#", "api")) for d in yaml.safe_load_all(text) if d
        ]
        found = dict(pods([d for d in documents if isinstance(d, dict)]))
        worker, register = found[f"{release}-dpdist-worker"], found[f"{release}-dpdist-register"]
        pool = worker["containers"][0]["args"][4]
        assert register["containers"][0]["args"][3] == pool
        assert environment_of(worker)["DPDIST_INSTALLATION"] == environment_of(register)["DPDIST_INSTALLATION"]
        names += [pool, environment_of(worker)["DPDIST_INSTALLATION"]]
    assert len({*names}) == 2


def test_placement_of_a_component_wins_over_the_chart_s() -> None:
    found = dict(pods(rendered(MATRIX["everything"])))
    assert found["publisher-service"]["nodeSelector"] == {"pool": "keys"}
    assert found["publisher-scheduler"]["nodeSelector"] == {"pool": "large"}
    assert found["publisher-dask-optimiser"]["tolerations"] == [{"key": "memory", "operator": "Exists"}]
    assert (found["publisher-worker"]["priorityClassName"], found["publisher-scheduler"]["priorityClassName"]) == (
        "high",
        "normal",
    )
    assert all(pod["containers"][0]["image"].endswith("@sha256:" + "0f" * 32) for pod in found.values())
    mounted = {name: {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]} for name, pod in found.items()}
    without = {name for name, paths in mounted.items() if "/records" not in paths}
    assert without == {"publisher-worker", "publisher-register"}


def test_drains_jobs_and_egress() -> None:
    """Nodes drain; jobs end before Helm stops waiting; cloud identity and object stores inside the cluster are reached."""
    documents = rendered(BASE)
    budgets = {d["metadata"]["name"]: d["spec"]["maxUnavailable"] for d in documents if d["kind"] == "PodDisruptionBudget"}
    assert budgets == dict.fromkeys(
        ("weekly-dpdist-service", "weekly-dpdist-dask-scheduler", "weekly-dpdist-dask-optimiser"), 1
    )
    jobs = {d["metadata"]["name"]: d for d in documents if d["kind"] == "Job"}
    assert all(job["spec"]["activeDeadlineSeconds"] < 300 for job in jobs.values())
    hooks = {name: job["metadata"]["annotations"] for name, job in jobs.items()}
    assert hooks["weekly-dpdist-migrate"]["helm.sh/hook"] == "post-install,pre-upgrade"
    assert int(hooks["weekly-dpdist-migrate"]["helm.sh/hook-weight"]) < int(
        hooks["weekly-dpdist-register"]["helm.sh/hook-weight"]
    )
    policies = {d["metadata"]["name"].removeprefix("weekly-dpdist-"): d for d in documents if d["kind"] == "NetworkPolicy"}
    ports = {
        name: {entry["port"] for rule in policy["spec"].get("egress", []) for entry in rule.get("ports", [])}
        for name, policy in policies.items()
    }
    for name in ("service", "dask", "jobs"):
        assert ports[name] == {53, 80, 443, 5432, 9000}
    assert ports["worker"] == {53, 443, 4200}
    assert ports["ledger"] == set()


def test_dask_listens_to_certificates_only() -> None:
    """Scheduler, workers and flow mount the certificate and require it; without TLS only the named switch lets the flow connect."""
    parts = ("scheduler", "dask-worker", "dask-optimiser", "service", "test")
    for case, switched in (("default", False), ("trial", True)):
        found = [(name, pod) for name, pod in pods(rendered(MATRIX[case])) if name.removeprefix("weekly-dpdist-") in parts]
        assert len(found) >= 4
        for name, pod in found:
            container = pod["containers"][0]
            environment = environment_of(pod)
            mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert ("/run/dpdist/tls" in mounted) != switched, name
            assert ("DPDIST_ENGINE_WITHOUT_TLS" in environment) == switched
            assert (environment.get("DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION") == "true") != switched
            files = [value for key, value in environment.items() if key.startswith("DASK_DISTRIBUTED__COMM__TLS__")]
            assert len(files) == (0 if switched else 7)
            assert all(str(file).startswith("/run/dpdist/tls/") for file in files)
            if name.endswith("scheduler"):
                assert container["args"][2:4] == ["--protocol", "tcp" if switched else "tls"]


def test_what_other_charts_let_people_set() -> None:
    """The rows of docs/operations.md's comparison that ours lacked: annotations, users, DNS, runtime, environment from objects."""
    documents = rendered(MATRIX["everything"])
    assert all(d["metadata"]["annotations"]["contact"] == "statistics@example.org" for d in documents)
    found = dict(pods(documents))
    for name, pod in found.items():
        assert "runAsUser" not in pod["securityContext"], name
        assert pod["hostAliases"][0]["ip"] == "10.1.2.3"
        assert pod["dnsConfig"] == {"searches": ["example.org"]}
        assert pod["runtimeClassName"] == "gvisor"
        assert pod["containers"][0]["envFrom"] == [{"configMapRef": {"name": "proxies"}}]
    assert found["publisher-service"]["terminationGracePeriodSeconds"] == 600


def test_a_service_monitor_finds_the_same_port() -> None:
    """Through a Service of its own: monitor to service by labels, service to pod by labels and the port's name."""
    peers = [{"podSelector": {}}]
    values = {"monitoring": {"enabled": True, "from": peers, "monitor": {"kind": "ServiceMonitor", "interval": "30s"}}}
    documents = rendered(merged(BASE, values))
    assert not [d for d in documents if d["kind"] == "PodMonitor"]
    (monitor,) = [d for d in documents if d["kind"] == "ServiceMonitor"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (service,) = [d for d in documents if d["kind"] == "Service" and wanted <= d["metadata"]["labels"].items()]
    assert monitor["spec"]["endpoints"] == [
        {"port": service["spec"]["ports"][0]["name"], "path": "/metrics", "interval": "30s"}
    ]
    (pod,) = [
        d["spec"]["template"]
        for d in documents
        if d["kind"] == "Deployment"
        and service["spec"]["selector"].items() <= d["spec"]["template"]["metadata"]["labels"].items()
    ]
    ports = [port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", [])]
    assert ports.count(service["spec"]["ports"][0]["targetPort"]) == 1
    with pytest.raises(helm().HelmError, match="monitor"):
        rendered(merged(BASE, {"monitoring": {"monitor": {"kind": "StatsD"}}}))


def test_metrics_are_served_beside_the_service() -> None:
    """The exporter sees the ledger, no key and no store; Prometheus selects its pod, and the policy lets it in."""
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    documents = rendered(merged(BASE, {"monitoring": {"enabled": True, "from": peers}}))
    pod = next(d for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == "weekly-dpdist-service")
    _, exporter = pod["spec"]["template"]["spec"]["containers"]
    assert exporter["args"] == ["dpdist", "metrics", "--listen", "0.0.0.0:9464"]
    assert {mount["name"]: mount.get("readOnly", False) for mount in exporter["volumeMounts"]} == {
        "tmp": False,
        "metrics-ledger": True,
        "shared": True,
        "certificates": True,
    }
    assert not any("AWS" in variable["name"] or "KEY" in variable["name"] for variable in exporter["env"])
    (mounted,) = [v for v in pod["spec"]["template"]["spec"]["volumes"] if v["name"] == "certificates"]
    assert [item["key"] for item in mounted["secret"]["items"]] == ["ca.crt", "tls.crt"]
    named = {each["value"].rpartition("/")[2] for each in exporter["env"] if "TLS" in each["name"]}
    assert named == {item["path"] for item in mounted["secret"]["items"]}
    (monitor,) = [d for d in documents if d["kind"] == "PodMonitor"]
    labels = pod["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == exporter["ports"][0]["name"]
    (policy,) = [d for d in documents if d["metadata"]["name"] == "weekly-dpdist-service" and d["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"][1] == {"from": peers, "ports": [{"protocol": "TCP", "port": 9464}]}
    (rules,) = [d for d in documents if d["kind"] == "PrometheusRule"]
    assert rules["spec"] == yaml.safe_load((CHART / "monitoring" / "alerts.yaml").read_text())
    (dashboard,) = [d for d in documents if d["kind"] == "ConfigMap"]
    assert json.loads(dashboard["data"]["dpdist.json"]) == json.loads((CHART / "monitoring" / "dashboard.json").read_text())


def test_names_fit_together() -> None:
    """Services select their pods, workers call the scheduler's service, the optimiser's group has its resource."""
    documents = rendered(BASE)
    services = {d["metadata"]["name"]: d for d in documents if d["kind"] == "Service"}
    labels = [d["spec"]["template"]["metadata"]["labels"] for d in documents if d["kind"] in ("Deployment", "StatefulSet")]
    for service in services.values():
        assert sum(service["spec"]["selector"].items() <= has.items() for has in labels) == 1
    found = dict(pods(documents))
    arguments = found["weekly-dpdist-dask-optimiser"]["containers"][0]["args"]
    assert arguments[2] == "tls://weekly-dpdist-scheduler:8786"
    assert "weekly-dpdist-scheduler" in services
    assert arguments[-2:] == ["--resources", "optimiser=1"]
    assert "--resources" not in found["weekly-dpdist-dask-worker"]["containers"][0]["args"]
    assert environment_of(found["weekly-dpdist-service"])["DPDIST_ENGINE"] == arguments[2]
    assert environment_of(found["weekly-dpdist-worker"])["DPDIST_SERVICE"] == "https://weekly-dpdist-service:8443"
    assert services["weekly-dpdist-service"]["spec"]["ports"] == [{"name": "https", "port": 8443, "targetPort": "https"}]
    budgets = [d for d in documents if d["kind"] == "PodDisruptionBudget"]
    for budget in budgets:
        assert sum(budget["spec"]["selector"]["matchLabels"].items() <= has.items() for has in labels) == 1


def test_lint() -> None:
    report = helm().lint(CHART, values=BASE, strict=True)
    assert not report["errors"], report
    assert not [message for message in report["messages"] if message["severity"] >= 3], report


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def check(value: Any, part: dict[str, Any], place: str) -> None:
        if isinstance(value, dict) and "properties" in part:
            assert value.keys() <= part["properties"].keys(), place
            for key, inner in value.items():
                check(inner, part["properties"][key], f"{place}.{key}")

    check(values, schema, "values")
    assert values.keys() == schema["properties"].keys() - {"global"}
