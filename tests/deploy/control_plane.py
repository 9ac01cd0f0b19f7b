"""A real Kubernetes control plane on loopback: etcd, API server and controller manager, each a process, with certificates of their own.

There is no kubelet and no scheduler: pods are made, and stay pending.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests import HANGS
from tests.support.loopback_ports import HeldPort

FOLDER = "DPDIST_TEST_KUBERNETES"
"""Names the folder with the programs."""
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
CONTROLLERS = (
    "deployment",
    "replicaset",
    "statefulset",
    "job",
    "disruption",
    "serviceaccount",
    "namespace",
    "garbage-collector",
    "persistentvolumeclaim-protection",
)
MANAGER = "helm"
"""Under this name the chart's fields are applied."""


class Refused(Exception):
    """What the API server refused, with its code and its reason."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Authority:
    """One that signs the certificates of every part, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _named("dpdist-test")
        self.certificate = folder / "ca.crt"
        built = self._built(self.name, self.key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.certificate.write_bytes(built.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def signed(self, name: str, group: str | None = None) -> tuple[Path, Path]:
        """Files of the certificate and the key of a part on loopback, or of a user in a group."""
        certificate, file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        key = ec.generate_private_key(ec.SECP256R1())
        loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        built = self._built(_named(name, group), key).add_extension(loopback, critical=False)
        certificate.write_bytes(built.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        form, none = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
        return certificate, file

    def _built(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self.name).public_key(key.public_key())
        return builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)


def _named(name: str, group: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    return x509.Name([*parts, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else parts)


class ControlPlane:
    """The running parts, and what asks them as the administrator.

    Attributes:
        controllers: those that run.
        options_of_server: further ones of the API server.
    """

    controllers: tuple[str, ...] = tuple(f"{name}-controller" for name in CONTROLLERS)
    options_of_server: ClassVar[dict[str, str]] = {}

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.authority = Authority(folder / "certificates")
        self.ports = {name: HeldPort() for name in (*PROGRAMS, "peers")}
        self.running: list[subprocess.Popen[bytes]] = []
        self.log = (folder / "log").open("wb")
        self.client = self._client("admin", "system:masters")
        self._paths: dict[str, dict[str, tuple[str, bool]]] = {}
        self._start()

    def _start(self) -> None:
        authority, ports = self.authority, {name: port.number for name, port in self.ports.items()}
        server = authority.signed("server")
        store, peers = f"https://127.0.0.1:{ports['etcd']}", f"https://127.0.0.1:{ports['peers']}"
        trusted = {"trusted-ca-file": authority.certificate, "cert-file": server[0], "key-file": server[1]}
        self._begin(
            "etcd",
            {
                "data-dir": self.folder / "etcd",
                "listen-client-urls": store,
                "advertise-client-urls": store,
                "listen-peer-urls": peers,
                "initial-advertise-peer-urls": peers,
                "initial-cluster": f"default={peers}",
                "unsafe-no-fsync": "true",
                "client-cert-auth": "true",
                "peer-client-cert-auth": "true",
                **trusted,
                **{f"peer-{name}": file for name, file in trusted.items()},
            },
        )
        self._begin(
            "kube-apiserver",
            {
                "etcd-servers": store,
                "etcd-cafile": authority.certificate,
                "etcd-certfile": server[0],
                "etcd-keyfile": server[1],
                "bind-address": "127.0.0.1",
                "advertise-address": "127.0.0.1",
                "endpoint-reconciler-type": "none",
                "secure-port": ports["kube-apiserver"],
                "tls-cert-file": server[0],
                "tls-private-key-file": server[1],
                "client-ca-file": authority.certificate,
                "authorization-mode": "RBAC",
                "allow-privileged": "true",  # so that it is Pod Security that refuses
                "anonymous-auth": "false",
                "service-cluster-ip-range": "10.96.0.0/16",
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": server[1],
                "service-account-signing-key-file": server[1],
                **self.options_of_server,
            },
        )
        self.until(lambda: self.client.get("/readyz").status_code == 200, "the API server")
        self._begin(
            "kube-controller-manager",
            {
                "kubeconfig": self._login("system:kube-controller-manager"),
                "bind-address": "127.0.0.1",
                "secure-port": ports["kube-controller-manager"],
                "leader-elect": "false",
                "use-service-account-credentials": "true",
                "service-account-private-key-file": server[1],
                "controllers": ",".join(self.controllers),
            },
        )

    def _begin(self, program: str, options: dict[str, object]) -> None:
        command = [self.programs / program, *(f"--{name}={value}" for name, value in options.items())]
        started = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=self.folder, start_new_session=True)
        self.running.append(started)

    def _login(self, user: str, group: str | None = None, name: str = "kubeconfig") -> Path:
        certificate, key = self.authority.signed(user, group)
        files = {"client-certificate": str(certificate), "client-key": str(key)}
        cluster = {"server": str(self.client.base_url), "certificate-authority": str(self.authority.certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "here", "user": files}],
        }
        file = self.folder / name
        file.write_text(yaml.safe_dump(content))
        return file

    def _client(self, user: str | None = None, group: str | None = None, **headers: str) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if user is not None:
            context.load_cert_chain(*self.authority.signed(user, group))
        port = self.ports["kube-apiserver"].number
        return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=HANGS, headers=headers)

    def bearer(self, token: str) -> httpx.Client:
        """A client that holds no certificate, only the token of a service account."""
        return self._client(authorization=f"Bearer {token}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + HANGS
        while True:
            for process in self.running:
                assert process.poll() is None, f"a part ended with {process.returncode}; see {self.log.name}"
            try:
                if condition():
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, f"{what}: nothing after {HANGS} s"
            time.sleep(0.2)

    def ask(self, path: str, content: dict[str, Any] | None = None, *, by: httpx.Client | None = None) -> Any:
        """What is there, or what a POST of the content makes. Raises: Refused."""
        client = by or self.client
        return answered(client.get(path) if content is None else client.post(path, json=content))

    def path(self, document: dict[str, Any], namespace: str) -> str:
        """Where an object is. Raises: Refused when the server does not know its kind."""
        version = document["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if document["kind"] not in self._paths.get(version, {}):
            known = self.ask(base)["resources"]
            self._paths[version] = {
                each["kind"]: (each["name"], each["namespaced"]) for each in known if "/" not in each["name"]
            }
        plural, namespaced = self._paths[version][document["kind"]]
        where = f"{base}/namespaces/{namespace}" if namespaced else base
        return f"{where}/{plural}/{document['metadata']['name']}"

    def apply(
        self, document: dict[str, Any], namespace: str, *, manager: str = MANAGER, dry: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """The object after a server-side apply that forces nothing, with the server's warnings. Raises: Refused."""
        options = {"fieldManager": manager, "fieldValidation": "Strict", **({"dryRun": "All"} if dry else {})}
        found = self.client.patch(
            self.path(document, namespace),
            params=options,
            content=json.dumps(document),
            headers={"content-type": "application/apply-patch+yaml"},
        )
        return answered(found), found.headers.get_list("warning")

    def define(self, version: str, kind: str) -> None:
        """Let the server know a custom kind; it takes any content."""
        group, number = version.split("/")
        name = f"{kind.lower()}s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{name}.{group}"},
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": name},
                "scope": "Namespaced",
                "versions": [{"name": number, "served": True, "storage": True, "schema": schema}],
            },
        }
        self.apply(definition, "")

        def served() -> bool:
            answer = self.client.get(f"/apis/{version}")
            return answer.status_code == 200 and kind in {each["kind"] for each in answer.json()["resources"]}

        self.until(served, kind)

    def verbs(self) -> list[tuple[str, str, str]]:
        """Group, resource and verb of all that the server can be asked for."""
        versions = [("", "/api/v1")]
        versions += [
            (each["name"], f"/apis/{each['preferredVersion']['groupVersion']}") for each in self.ask("/apis")["groups"]
        ]
        return [
            (group, each["name"], verb)
            for group, base in versions
            for each in self.ask(base)["resources"]
            for verb in each["verbs"]
        ]

    def delete(self, path: str) -> None:
        """Delete an object with what it owns, and wait for its end."""
        answered(self.client.request("DELETE", path, json={"propagationPolicy": "Foreground"}))
        self.until(lambda: self.client.get(path).status_code == 404, f"the end of {path}")

    def stop(self) -> None:
        self.client.close()
        for process in reversed(self.running):
            process.terminate()
            process.wait(HANGS)
        self.log.close()
        for port in self.ports.values():
            port.release()


def answered(answer: httpx.Response) -> Any:
    """Raises: Refused."""
    content = answer.json()
    if answer.status_code >= 400:
        raise Refused(answer.status_code, content["message"])
    return content


def programs() -> Path:
    """The folder with the programs; where there is none, the test is skipped."""
    if FOLDER not in os.environ:
        pytest.skip(f"needs a folder with {', '.join(PROGRAMS)}, named by {FOLDER}")
    folder = Path(os.environ[FOLDER])
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    assert not missing, f"{FOLDER}={folder} has no {', '.join(missing)}"
    return folder
