"""The chart on a real API server, by server-side apply, in a namespace that enforces Pod Security "restricted".

The controllers make the pods, so each was admitted for real. No kubelet runs them; the test says in its place that they are ready.
The custom kinds of cert-manager and of the Prometheus operator are definitions without a schema here. The Helm engine of the other
tests renders the values.
"""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.control_plane import ControlPlane, Refused, programs
from tests.deploy.test_helm import BASE, MATRIX, helm, merged, rendered
from tests.deploy.test_helm_refusals import REFUSED

pytestmark = pytest.mark.large
Document = dict[str, Any]
FIRST = ("ServiceAccount", "ConfigMap", "Service")
"""Kinds that Helm makes before what uses them."""
CUSTOM = ("cert-manager.io", "monitoring.coreos.com")
RBAC = "rbac.authorization.k8s.io/v1"
ANYBODY = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
"""What every login may create: questions about itself."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows the custom kinds and the classes which the chart names."""
    found = programs()
    documents = [*itertools.chain(*map(rendered, MATRIX.values()))]
    started = ControlPlane(found, tmp_path_factory.mktemp("kubernetes"))
    try:
        for document in documents:
            if document["apiVersion"].startswith(CUSTOM):
                started.define(document["apiVersion"], document["kind"])
            for named in classes_of(document):
                started.apply(named, "")
        yield started
    finally:
        started.stop()


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own that enforces Pod Security, and warns of what it would refuse later."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, name)
    yield name
    plane.delete(f"/api/v1/namespaces/{name}")


def hooks_of(document: Document) -> str | None:
    found: str | None = document["metadata"].get("annotations", {}).get("helm.sh/hook")
    return found


def in_order(documents: list[Document]) -> list[Document]:
    """All but hooks, in the order of Helm."""
    plain = [document for document in documents if hooks_of(document) is None]
    return sorted(plain, key=lambda document: FIRST.index(document["kind"]) if document["kind"] in FIRST else len(FIRST))


def template_of(document: Document) -> Document | None:
    """The pod that an object is, or makes."""
    if document["kind"] == "Pod":
        return {"metadata": document["metadata"], "spec": document["spec"]}
    found: Document | None = document.get("spec", {}).get("template")
    return found if found is not None and "containers" in found.get("spec", {}) else None


def classes_of(document: Document) -> Iterator[Document]:
    """The classes that a pod names, which the operator of a cluster makes."""
    pod = (template_of(document) or {}).get("spec", {})
    if "priorityClassName" in pod:
        name = {"name": pod["priorityClassName"]}
        yield {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": name, "value": 1000}
    if "runtimeClassName" in pod:
        yield {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": pod["runtimeClassName"]},
            "handler": "runsc",
        }


def admit(plane: ControlPlane, document: Document, namespace: str) -> None:
    """Ask whether the pod of an object would be admitted. Raises: Refused."""
    template = copy.deepcopy(template_of(document))
    if template is not None:
        template["metadata"].pop("name", None)
        template["metadata"]["generateName"] = "asked-"
        claims = [each["metadata"]["name"] for each in document["spec"].get("volumeClaimTemplates", [])]
        template["spec"]["volumes"] += [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
        plane.ask(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", {"apiVersion": "v1", "kind": "Pod", **template})


def runs(plane: ControlPlane, document: Document, namespace: str) -> bool:
    """Whether the controllers have made all pods of an object as it is now."""
    live = plane.ask(plane.path(document, namespace))
    status, wanted = live.get("status", {}), live["spec"].get("replicas", 1)
    failed = [each["message"] for each in status.get("conditions", []) if each["type"] == "ReplicaFailure"]
    assert not failed, failed
    if document["kind"] == "Job":
        return bool(status.get("active") == 1)
    current = status.get("observedGeneration") == live["metadata"]["generation"]
    return bool(current and status.get("updatedReplicas", 0) == status.get("replicas", 0) == wanted)


def play_kubelet(plane: ControlPlane, namespace: str) -> None:
    """Say of every pod that it is ready, as nobody else does here: an upgrade waits for it."""
    for pod in plane.ask(f"/api/v1/namespaces/{namespace}/pods")["items"]:
        if pod["status"]["phase"] == "Pending":
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
            headers = {"content-type": "application/strategic-merge-patch+json"}
            plane.client.patch(path, json={"status": status}, headers=headers)  # a pod that is gone by now needs none


def install(plane: ControlPlane, documents: list[Document], namespace: str) -> None:
    """Apply everything but hooks, without a warning, and wait for the pods. Raises: Refused."""
    for document in in_order(documents):
        live, warnings = plane.apply(document, namespace)
        assert warnings == []
        assert differences(document, live) == []
    for document in in_order(documents):
        if template_of(document) is None:
            continue
        admit(plane, document, namespace)

        def pods_made(document: Document = document) -> bool:
            play_kubelet(plane, namespace)
            return runs(plane, document, namespace)

        plane.until(pods_made, f"pods of {document['metadata']['name']}")


def try_all(plane: ControlPlane, documents: list[Document], namespace: str) -> None:
    """Apply everything but hooks, and let nothing of it stay. Raises: Refused."""
    for document in in_order(documents):
        plane.apply(document, namespace, dry=True)


def differences(asked: Any, live: Any, path: str = "") -> list[str]:
    """Where an object of the server lacks what was asked. Quantities and what the server completes may be written in another way."""
    if isinstance(asked, dict) and isinstance(live, dict):
        return [
            each for name, value in asked.items() if value for each in differences(value, live.get(name), f"{path}.{name}")
        ]
    if isinstance(asked, list) and isinstance(live, list) and len(asked) == len(live):
        return [each for number, value in enumerate(asked) for each in differences(value, live[number], f"{path}[{number}]")]
    return [] if asked == live or str(asked) == str(live) else [f"{path}: {live!r} in place of {asked!r}"]


@pytest.mark.parametrize("case", MATRIX)
def test_everything_is_admitted(plane: ControlPlane, namespace: str, case: str) -> None:
    """Every object, every pod that the controllers make, and every hook as a job; budgets and policies find the pods they are for."""
    documents = rendered(MATRIX[case])
    install(plane, documents, namespace)
    for document in documents:
        if hooks_of(document) is not None:
            assert "before-hook-creation" in document["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            _, warnings = plane.apply(document, namespace)
            assert warnings == []
            if document["kind"] == "Job":
                plane.until(lambda document=document: runs(plane, document, namespace), document["metadata"]["name"])
    pods = plane.ask(f"/api/v1/namespaces/{namespace}/pods")["items"]
    for document in documents:
        if document["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
            selector = document["spec"].get("selector") or document["spec"]["podSelector"]
            wanted = selector["matchLabels"].items()
            chosen = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
            assert chosen, f"{document['metadata']['name']} is for no pod"
            if document["kind"] == "NetworkPolicy":
                assert chosen == pods
                continue

            def counted(document: Document = document, chosen: list[Document] = chosen) -> bool:
                status = plane.ask(plane.path(document, namespace)).get("status", {})
                return bool(status.get("expectedPods") == len(chosen))

            plane.until(counted, f"pods of the budget {document['metadata']['name']}")


def test_a_privileged_container_is_refused(plane: ControlPlane, namespace: str) -> None:
    """As a pod at once; as a deployment with a warning, and its controller makes no pod."""
    documents = in_order(rendered(BASE))
    planted = next(document for document in documents if document["kind"] == "Deployment")
    planted["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    for document in documents:
        if document["kind"] == "ServiceAccount":
            plane.apply(document, namespace)
    with pytest.raises(Refused, match=r"403: .*violates PodSecurity.*privileged"):
        admit(plane, planted, namespace)
    _, warnings = plane.apply(planted, namespace)
    assert any("would violate PodSecurity" in warning for warning in warnings)

    def refused() -> bool:
        try:
            runs(plane, planted, namespace)
        except AssertionError as failed:
            return "violates PodSecurity" in str(failed)
        return False

    plane.until(refused, "the refusal of the controller's pods")
    assert plane.ask(f"/api/v1/namespaces/{namespace}/pods")["items"] == []


def test_service_accounts_may_do_nothing(plane: ControlPlane, namespace: str) -> None:
    """Each asks with a token of its own whether it may do anything that the server knows; a right that is planted is seen."""
    accounts = [
        name
        for values in MATRIX.values()
        for document in in_order(rendered(values))
        if document["kind"] == "ServiceAccount" and plane.apply(document, namespace)
        for name in [document["metadata"]["name"]]
    ]
    assert accounts
    for account in {"default", *accounts}:
        plane.until(lambda account=account: account in named(plane, "serviceaccounts", namespace), account)
        assert allowed(plane, account, namespace) == set()
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    planted = {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "planted"}, "rules": [rule]}
    binding = {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": "planted"},
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": "planted"},
        "subjects": [{"kind": "ServiceAccount", "name": accounts[0], "namespace": namespace}],
    }
    plane.apply(planted, namespace)
    plane.apply(binding, namespace)
    plane.until(lambda: allowed(plane, accounts[0], namespace) == {("list", "pods")}, "the planted right")


def named(plane: ControlPlane, plural: str, namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in plane.ask(f"/api/v1/namespaces/{namespace}/{plural}")["items"]]


def allowed(plane: ControlPlane, account: str, namespace: str) -> set[tuple[str, str]]:
    """Verbs and kinds that a service account may use in its namespace, asked by itself, one by one."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = plane.ask(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", request)["status"]["token"]
    with plane.bearer(token) as client:
        out = set()
        for group, resource, verb in plane.verbs():
            asked = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked},
            }
            found = plane.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, by=client)
            if found["status"]["allowed"] and resource not in ANYBODY:
                out.add((verb, resource))
    return out


UPGRADES = ("default", "trial", "autoscaling", "no-dask", "everything", "default")


def test_upgrades_meet_no_conflict(plane: ControlPlane, namespace: str) -> None:
    """From values to values: no field is another's, none of the earlier values is left, and a repetition changes nothing."""
    before: dict[str, Document] = {}
    for case in UPGRADES:
        documents = rendered(MATRIX[case])
        install(plane, documents, namespace)
        now = {plane.path(document, namespace): document for document in in_order(documents)}
        for path in before.keys() - now.keys():
            plane.delete(path)
        for path, document in now.items():
            live = plane.ask(path)
            assert unrequested_names(document, live) == set()
            again, _ = plane.apply(document, namespace)
            assert again["metadata"].get("generation") == live["metadata"].get("generation")
        before = now


def unrequested_names(asked: Document, live: Document) -> set[str]:
    """Names of variables, volumes, mounts and labels of a pod that were not asked for."""

    def names(document: Document) -> set[str]:
        template = template_of(document)
        if template is None:
            return set()
        pod = template["spec"]
        containers = [*pod["containers"], *pod.get("initContainers", [])]
        return {
            *(f"label {name}" for name in template["metadata"].get("labels", {})),
            *(f"volume {volume['name']}" for volume in pod.get("volumes", [])),
            *(f"container {each['name']}" for each in containers),
            *(f"variable {v['name']} of {each['name']}" for each in containers for v in each.get("env", [])),
            *(f"mount {m['mountPath']} of {each['name']}" for each in containers for m in each.get("volumeMounts", [])),
        }

    return names(live) - names(asked)


def test_what_another_has_changed_is_a_conflict(plane: ControlPlane, namespace: str) -> None:
    """A number of workers that was set by hand is not overwritten in silence: the server names the field and who has it."""
    documents = rendered(BASE)
    install(plane, documents, namespace)
    workers = next(document for document in documents if document["metadata"]["name"].endswith("-dask-worker"))
    scale = {"spec": {"replicas": workers["spec"]["replicas"] + 3}}
    path = f"{plane.path(workers, namespace)}/scale"
    headers = {"content-type": "application/merge-patch+json"}
    plane.client.patch(path, params={"fieldManager": "kubectl"}, json=scale, headers=headers).raise_for_status()
    with pytest.raises(Refused, match=r"409: .*kubectl.*\.spec\.replicas"):
        plane.apply(workers, namespace)
    workers["spec"]["replicas"] += 3  # the same number is no conflict
    plane.apply(workers, namespace)


def test_refused_values_change_nothing(plane: ControlPlane, namespace: str) -> None:
    """Values that the chart refuses reach no server; objects that the server refuses leave what was there."""
    documents = rendered(BASE)
    install(plane, documents, namespace)

    def versions() -> dict[str, str]:
        return {
            path: plane.ask(path)["spec" if "spec" in plane.ask(path) else "metadata"]
            for path in (plane.path(document, namespace) for document in in_order(documents))
        }

    before = versions()
    for change, message in REFUSED.values():
        with pytest.raises(helm().HelmError, match=message):
            install(plane, rendered(merged(BASE, change)), namespace)
    for change, message in WRONG:
        with pytest.raises(Refused, match=message):
            try_all(plane, rendered(merged(BASE, change)), namespace)
    assert versions() == before


WRONG: tuple[tuple[Document, str], ...] = (
    ({"extraVolumeMounts": [{"name": "records", "mountPath": "/records"}]}, r"422: .*volumeMounts.*Not found: \"records\""),
    ({"extraEnv": [{"name": "TZ", "valeu": "UTC"}]}, r"\.valeu: field not declared in schema"),
    ({"commonLabels": {"team": "no label!"}}, "422: .*no label!"),
    ({"fullnameOverride": "Upper_Case"}, "422: .*Upper_Case"),
)
"""Values that the chart cannot know to be wrong, and what the API server says of them."""
