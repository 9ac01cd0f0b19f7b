"""The shipped chart, installed on a node with all that it needs there: its Secrets, an S3 server and a Prefect server."""

from __future__ import annotations

import base64
import datetime
import hashlib
import io
import json
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import obstore
import obstore.store
import psycopg
import pyarrow.parquet
import yaml

from tests import HANGS
from tests.deploy.test_control_plane import hooks_of, in_order, template_of
from tests.deploy.test_helm import rendered
from tests.kubernetes.node import NODE, Node
from tests.support import small_release
from tests.support.fixed_salts import KNOWN_SALTS

NAMESPACE = "private"
IMAGE = "docker.io/library/dpdist:1.0.0"
S3_IMAGE = "docker.io/library/dpdist-moto:1"
POSTGRES = "docker.io/library/postgres:16.14-bookworm"
_MONDAY = datetime.date.today() - datetime.timedelta(days=datetime.date.today().weekday())
PERIODS = tuple(str(_MONDAY - datetime.timedelta(weeks=weeks)) for weeks in range(52, 2, -1))
"""Weeks that are over, which the measuring service takes."""
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
ROOT_KEY = "5c" * 32
ALONE = """
import hashlib, json, os, shutil, sys
from pathlib import Path
for name in [name for name in os.environ if name.startswith("DPDIST_") and "ROOT_KEY" not in name]:
    del os.environ[name]
os.environ["DPDIST_ENGINE"] = "inline"
from flows.main import main
words, found = sys.argv[1:], {}
home = Path("/tmp/alone")
for name, period in zip(words[::2], words[1::2]):
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    os.environ["DPDIST_HOME"] = str(home)
    spec = home / f"{name}.yaml"
    spec.write_text(Path(f"/data/specs/{name}.yaml").read_text().replace("s3://bucket/releases", str(home / "releases")))
    sys.argv = ["dpdist", "run", str(spec), "--period", period]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (name, period)
    files = (home / "releases" / name / period).glob("answers.*")
    found[f"{name} {period}"] = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
shutil.rmtree(home)
print(json.dumps(found))
"""
"""Releases again, in one process of the service's pod, in a state folder of their own: the digests of their answers."""
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
SMALL = {
    "requests": {"cpu": "50m", "memory": "256Mi", "ephemeral-storage": "64Mi"},
    "limits": {"cpu": "2", "memory": "1536Mi", "ephemeral-storage": "1Gi"},
}
PACKAGES = "/opt/dpdist/lib/python3.11/site-packages"
PARTS = ("service", "dask-worker", "worker", "dask-scheduler", "dask-optimiser", "dask-noise")
STAGES = ("counting", "drawing", "answering", "published")
"""What a release does: before its charge, between charge and commit, before its files are published, and after that."""
VALUES: dict[str, Any] = {
    "image": {"tag": "1.0.0", "pullPolicy": "Never"},
    "rootKey": {"existingSecret": "root-key"},
    "ledger": {"existingSecret": "ledger", "embedded": {"enabled": True}, "tls": {"mode": "disable"}},
    "store": {
        "url": "s3://bucket/store",
        "existingSecret": "store",
        "endpoint": "http://s3:9000",
        "allowHttp": True,
    },
    "output": {"url": "s3://bucket/releases"},
    "service": {"existingSecret": "service", "specs": {"configMap": "specs"}, "window": 400, "resources": SMALL},
    "prefect": {"apiUrl": "http://prefect:4200/api", "worker": {"resources": SMALL}},
    "extraVolumes": [{"name": "salts", "configMap": {"name": "salts"}}],
    "extraVolumeMounts": [
        {"name": "salts", "mountPath": f"{PACKAGES}/{name}", "subPath": name, "readOnly": True}
        for name in ("known_salts.py", "known_salts.pth")
    ],
    "dask": {
        "tls": {"existingSecret": "dask"},
        "scheduler": {"resources": SMALL},
        "workers": {"replicas": 2, "resources": SMALL},
        "optimiser": {"replicas": 1, "threads": 1, "resources": SMALL},
        "noise": {"replicas": 1, "threads": 1, "ledgerSecret": "ledger", "resources": SMALL},
    },
}
RESTRICTED: dict[str, Any] = {
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
}
CLOSED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class InstalledChart:
    """The chart in a namespace that enforces Pod Security "restricted".

    Args:
        specs: by name, without their records' place: the measuring service is given them, and every period has records of its own.
    """

    def __init__(self, node: Node, folder: Path, specs: dict[str, dict[str, Any]], **values: Any) -> None:
        self.node, self.folder = node, folder
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
        self.secrets()
        self.server("s3", S3_IMAGE, ["/opt/moto/bin/moto_server", "--host", "0.0.0.0", "--port", "9000"], 9000)
        self.server("prefect", IMAGE, ["prefect", "server", "start", "--host", "0.0.0.0"], 4200)
        self.volume()
        self.write_records(specs)
        salts = {"known_salts.py": KNOWN_SALTS, "known_salts.pth": "import known_salts\n"}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "salts"}, "data": salts})
        self.wait("prefect")
        self.apply_chart("post-install", **values)

    def apply_chart(self, *hooks: str, **values: Any) -> None:
        """Install or upgrade the chart; hooks that end in "upgrade" and begin with "pre" run before its objects are applied."""
        self.documents = rendered({**VALUES, **values})
        for hook in hooks:
            if hook.startswith("pre"):
                self.run_hooks(hook)
        for document in in_order(self.documents):
            self.apply(document)
        for hook in hooks:
            if hook.startswith("post"):
                self.run_hooks(hook)

    def apply(self, document: dict[str, Any]) -> None:
        """Apply an object on the server, as Helm 4 does."""
        _, warnings = self.node.apply(document, NAMESPACE)
        assert warnings == [], warnings

    def secrets(self) -> None:
        """What the chart's values name, made as docs/operations.md says."""
        password = "trial"
        service = self.certificate("weekly-dpdist-service")
        dask = self.certificate("dask")
        contents = {
            "root-key": {"root.key": ROOT_KEY + "\n"},
            "ledger": {
                "url": f"postgresql+psycopg://dpdist:{password}@weekly-dpdist-ledger:5432/dpdist",
                "password": password,
            },
            "store": KEYS,
            "service": {**service, "token": "7e" * 32},
            "dask": dask,
        }
        for name, content in contents.items():
            data = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
            self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})

    def certificate(self, name: str) -> dict[str, str]:
        """One that signs itself, for a name."""
        files = [self.folder / f"{name}.key", self.folder / f"{name}.crt"]
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30"
        options = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
        subprocess.run([*command.split(), *options, "-keyout", files[0], "-out", files[1]], check=True, capture_output=True)
        key, certificate = (file.read_text() for file in files)
        return {"tls.key": key, "tls.crt": certificate, "ca.crt": certificate}

    def server(self, name: str, image: str, command: list[str], port: int) -> None:
        """A server that the chart does not bring, as a pod with a Service."""
        labels = {"app": name, "app.kubernetes.io/component": name}
        container = {
            "name": name,
            "image": image,
            "imagePullPolicy": "Never",
            "command": command,
            "ports": [{"containerPort": port}],
            "env": [
                {"name": "PREFECT_HOME", "value": "/tmp/prefect"},
                {
                    "name": "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE",
                    "value": "prefect.server.concurrency.lease_storage.filesystem",
                },
            ],
            "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 2},
            "securityContext": CLOSED,
            "resources": {"requests": {"cpu": "500m"}},
        }
        template = {
            "metadata": {"labels": labels},
            "spec": {**RESTRICTED, "containers": [container], "enableServiceLinks": False},
        }
        selector = {"matchLabels": {"app": name}}
        ports = [{"port": port, "targetPort": port}]
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name},
                "spec": {"selector": {"app": name}, "ports": ports},
            }
        )
        spec = {"replicas": 1, "selector": selector, "template": template}
        self.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})

    def volume(self) -> None:
        """A disk of this machine for the trial ledger: there is no provisioner."""
        folder = self.folder / "ledger"
        folder.mkdir()
        folder.chmod(0o777)
        spec = {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(folder)},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        self.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "ledger"}, "spec": spec})

    def wait(self, component: str, count: int = 1, seconds: float = 600) -> list[dict[str, Any]]:
        """The pods of a part, as soon as so many of them are ready."""
        deadline = time.monotonic() + seconds
        while True:
            pods = self.node.pods(NAMESPACE, component)
            ready = [pod for pod in pods if _is_ready(pod)]
            if len(ready) >= count:
                return ready
            assert time.monotonic() < deadline, f"{component}: {[pod['status'] for pod in pods]}"
            time.sleep(0.5)

    def write_records(self, specs: dict[str, dict[str, Any]]) -> None:
        """Records of every period in the bucket, and the specs in a ConfigMap."""
        address = f"http://{self.wait('s3')[0]['status']['podIP']}:9000"
        self.bucket = obstore.store.S3Store(
            "bucket", endpoint=address, access_key_id="key", secret_access_key="secret", region="us-east-1",
            client_options={"allow_http": True},
        )  # fmt: skip
        self.node.until(lambda: _create_bucket(address), "the bucket")
        texts = {}
        for number, (name, content) in enumerate(specs.items()):
            for seed, period in enumerate(PERIODS):
                written = io.BytesIO()
                pyarrow.parquet.write_table(small_release.records(seed=100 * number + seed), written)
                obstore.put(self.bucket, f"records/{name}/{period}.parquet", written.getvalue())
            spec = small_release.spec(
                release=f"{name}-{{period}}",
                period="{period}",
                records={"path": f"s3://bucket/records/{name}/{{period}}.parquet", "most_missing": "100%"},
                output={"folder": f"s3://bucket/releases/{name}/{{period}}"},
            )
            texts[f"{name}.yaml"] = yaml.safe_dump(
                {**spec, "ledger": {"dataset": name, "cap": {"rho": 1, "per": "week"}}, **content}
            )
        self.specs = texts
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "specs"}, "data": texts})

    def run_hooks(self, kind: str) -> None:
        """The jobs of a hook one after the other, as Helm does."""
        hooks = [document for document in self.documents if kind in (hooks_of(document) or "").split(",")]
        hooks.sort(key=lambda document: int(document["metadata"]["annotations"].get("helm.sh/hook-weight", "0")))
        for document in hooks:
            self.apply(document)
            if template_of(document) is None:
                continue
            path = self.node.path(document, NAMESPACE)

            def ended(path: str = path) -> bool:
                status = self.node.ask(path)["status"]
                failed = any(each["type"] == "Failed" and each["status"] == "True" for each in status.get("conditions", ()))
                assert not failed, self.pod_logs(path.rpartition("/")[2])
                return bool(status.get("succeeded"))

            self.node.until(ended, path)
            self.node.delete(path)

    def pod_logs(self, prefix: str) -> str:
        """What the pods print whose names begin so."""
        pods = [pod["metadata"]["name"] for pod in self.node.pods(NAMESPACE) if pod["metadata"]["name"].startswith(prefix)]
        return "\n".join(f"{pod}: {self.node.logs(NAMESPACE, pod)[-3000:]}" for pod in pods)

    def prefect(self, what: str, content: dict[str, Any] | None = None) -> Any:
        """What Prefect's server answers."""
        address = self.wait("prefect")[0]["status"]["podIP"]
        url = f"http://{address}:4200/api/{what}"
        deadline = time.monotonic() + HANGS
        while True:  # SQLite below it is locked now and then
            with suppress(httpx.TransportError):
                answer = httpx.get(url, timeout=60) if content is None else httpx.post(url, json=content, timeout=60)
                if answer.status_code < 500:
                    return answer.raise_for_status().json() if answer.content else None
            assert time.monotonic() < deadline, f"Prefect's server does not answer {what}"
            time.sleep(1)

    def begin(self, name: str, period: str) -> str:
        """Ask Prefect for a release; the id of the run."""
        return self.begin_run("weekly", spec_path=f"/data/specs/{name}.yaml", period=period, catch_up=0)

    def begin_run(self, deployment: str, **parameters: Any) -> str:
        """Ask Prefect for a run of a deployment; its id."""
        deployments = self.prefect("deployments/filter", {})
        found = next(each["id"] for each in deployments if each["name"].endswith(deployment))
        content = {"parameters": parameters, "idempotency_key": str(uuid.uuid4())}
        return str(self.prefect(f"deployments/{found}/create_flow_run", content)["id"])

    def running(self, name: str, period: str) -> str:
        """The same, as soon as the run's process has started."""
        run = self.begin(name, period)
        while self.state(run)["type"] in ("SCHEDULED", "PENDING"):
            time.sleep(0.2)
        return run

    def state(self, run: str) -> dict[str, Any]:
        """The state of a run."""
        found: dict[str, Any] = self.prefect(f"flow_runs/{run}")["state"]
        return found

    def stage(self, name: str, period: str) -> str:
        """What a release does now, as its ledger and its folder say."""
        password, address = "trial", self.wait("ledger")[0]["status"]["podIP"]
        with psycopg.connect(f"host={address} dbname=dpdist user=dpdist password={password}", connect_timeout=10) as ledger:
            rows = ledger.execute("SELECT state FROM dpdist_releases WHERE release = %s", [f"{name}-{period}"]).fetchall()
        if not rows:
            return "counting"
        if rows[0][0] != "committed":
            return "drawing"
        return "published" if self.is_published(name, period) else "answering"

    def is_published(self, name: str, period: str) -> bool:
        """Whether a release has its last file."""
        try:
            obstore.head(self.bucket, f"releases/{name}/{period}/release.json")
        except FileNotFoundError:
            return False
        return True

    def answers(self, name: str, period: str) -> dict[str, str]:
        """The digests of the answers that a release published."""
        files = [each["path"] for page in obstore.list(self.bucket, f"releases/{name}/{period}/") for each in page]
        return {
            file.rpartition("/")[2]: hashlib.sha256(bytes(obstore.get(self.bucket, file).bytes())).hexdigest()
            for file in files
            if file.rpartition("/")[2].startswith("answers.")
        }

    def answers_of_one_process(self, releases: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
        """The same of releases that one process of the same image publishes, from the same records, under the same key and salts."""
        pod = self.wait("service")[0]["metadata"]["name"]
        words = [word for release in releases for word in release]
        alone = ("env", "OMP_NUM_THREADS=1", "python", "-c", ALONE, *words)
        found = json.loads(self.node.inside(NAMESPACE, pod, "service", *alone).splitlines()[-1])
        return {(name, period): found[f"{name} {period}"] for name, period in releases}

    def charges(self) -> dict[str, int]:
        """How often each release was charged, as the ledger says."""
        rows = json.loads(self.ledger_command("export"))["entries"]
        return dict(Counter(row["release"] for row in rows if row["event"] == "reserved"))

    def ledger_command(self, *words: str) -> str:
        """What a command of the ledger prints where the ledger's login is."""
        pod = self.wait("service")[0]["metadata"]["name"]
        return self.node.inside(NAMESPACE, pod, "service", "dpdist", "ledger", *words)

    def verify(self, release: str) -> str:
        """What dpdist verify prints."""
        pod = self.wait("service")[0]["metadata"]["name"]
        return self.node.inside(NAMESPACE, pod, "service", "dpdist", "verify", release)

    def ended(self, run: str, seconds: float) -> dict[str, Any]:
        """The state in which a run ended. Raises: AssertionError where it has not after some seconds."""
        deadline = time.monotonic() + seconds
        while (state := self.state(run))["type"] not in ENDED:
            assert time.monotonic() < deadline, f"the run is still {state['name']}"
            time.sleep(0.5)
        return state

    def scale(self, part: str, replicas: int) -> None:
        """Let a part have so many pods, as kubectl scale does."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/weekly-dpdist-{part}/scale"
        headers = {"content-type": "application/merge-patch+json"}
        self.node.client.patch(path, json={"spec": {"replicas": replicas}}, headers=headers).raise_for_status()

    def cordon(self, closed: bool) -> None:
        """Let no new pod come to the node, or let them come again."""
        headers = {"content-type": "application/merge-patch+json"}
        self.node.client.patch(
            f"/api/v1/nodes/{NODE}", json={"spec": {"unschedulable": closed}}, headers=headers
        ).raise_for_status()


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


def _create_bucket(address: str) -> bool:
    try:
        return httpx.put(f"{address}/bucket", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
