"""A real Kubernetes node on this machine, below the control plane of ``tests.deploy.control_plane``.

etcd, API server, all controllers and the scheduler, containerd and a kubelet run as processes; pods are containers with addresses on a
bridge. Services have no kube-proxy and no CoreDNS here: ``Services`` writes what they would, with nftables and dnsmasq. The bridge enforces
no network policy.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import httpx
import yaml

from tests.deploy.control_plane import FOLDER, ControlPlane

NODE = "node1"
NETWORK = "10.88.7"
ADDRESS = f"{NETWORK}.1"
SERVICES = "10.96"
BRIDGE = "dpkube0"
DOMAIN = "cluster.local"
PAUSE = "registry.local/pause:1"
TABLE = "dpdist_services"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
TOOLS = ("containerd", "ctr", "runc", "dnsmasq", "nft", "ip", "podman")
TAKE_MEMORY = """
open("/proc/1/oom_score_adj", "w").write("1000")
taken = []
while True:
    taken.append(bytearray(2**25))
"""
"""The kernel ends the process with the highest score first."""
PLUGINS = Path("/usr/lib/cni/bridge")


def reason() -> str:
    """Why there is no node here; "" where one can be started."""
    folder = os.environ.get(FOLDER)
    if folder is None or not all(os.access(Path(folder, name), os.X_OK) for name in PROGRAMS):
        return f"needs a folder with {', '.join(PROGRAMS)}, named by {FOLDER}"
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or not PLUGINS.exists() or not Path("/bin/busybox").exists():
        packages = "containerd runc dnsmasq-base nftables containernetworking-plugins busybox-static podman"
        return f"needs {', '.join(missing) or 'plugins of CNI and busybox'}: apt-get install {packages}"
    return ""


class NodeParts:
    """What makes a machine a node: a containerd and a kubelet, in a folder.

    Args:
        address: of the node.
        network: the first three numbers of its pods' addresses.
        before: a program that the others are started with.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        name: str,
        address: str,
        network: str,
        bridge: str,
        before: tuple[str, ...] = (),
    ) -> None:
        self.plane, self.folder, self.name, self.address, self.before = plane, folder, name, address, before
        self.network, self.bridge, self.sock = network, bridge, folder / "containerd.sock"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, login: Path, *, cgroup_root: str = "/") -> None:
        """Start both."""
        self.others = network_namespaces()
        self._containerd()
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroup_root,
            "containerRuntimeEndpoint": f"unix://{self.sock}",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "podLogsDir": str(self.folder / "pod-logs"),
            "clusterDNS": [ADDRESS],
            "clusterDomain": DOMAIN,
            "maxPods": 60,
            "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }
        file = self.folder / "kubelet.yaml"
        file.write_text(yaml.safe_dump(settings))
        options = {
            "config": file,
            "kubeconfig": login,
            "hostname-override": self.name,
            "node-ip": self.address,
            "root-dir": self.folder / "kubelet",
        }
        self._begin(self.plane.programs / "kubelet", *(f"--{name}={value}" for name, value in options.items()))

    def _begin(self, *command: str | Path) -> None:
        log = self.plane.log
        self.running.append(subprocess.Popen([*self.before, *command], stdout=log, stderr=log, start_new_session=True))

    def _containerd(self) -> None:
        runtime = self.folder / "runc"
        shutil.copyfile(Path(__file__).with_name("runc_without_limits.py"), runtime)
        runtime.chmod(0o755)
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": self.bridge,
                    "isGateway": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self.folder / "addresses"),
                        "ranges": [[{"subnet": f"{self.network}.0/24", "rangeStart": f"{self.network}.10"}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10.conflist").write_text(json.dumps(network))
        cri = "io.containerd.grpc.v1.cri"
        (self.folder / "containerd.toml").write_text(
            f"""
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-state"
[grpc]
  address = "{self.sock}"
[plugins."{cri}"]
  sandbox_image = "{PAUSE}"
  [plugins."{cri}".cni]
    bin_dir = "{PLUGINS.parent}"
    conf_dir = "{self.folder}/cni"
  [plugins."{cri}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{cri}".containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "{runtime}"
"""
        )
        self._begin("containerd", "-c", self.folder / "containerd.toml")
        self.plane.until(lambda: self.ctr("version", check=False).returncode == 0, "containerd")
        pause = self.folder / "pause.tar"
        pause.write_bytes(pause_image())
        self.ctr("images", "import", str(pause))

    def ctr(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Containerd's own command."""
        return subprocess.run(
            ["ctr", "-a", str(self.sock), "-n", "k8s.io", *words], capture_output=True, text=True, check=check
        )

    def stop(self) -> None:
        containerd, kubelet = self.running
        kubelet.kill()
        kubelet.wait()
        for line in self.ctr("tasks", "ls", "-q", check=False).stdout.split():
            self.ctr("tasks", "kill", "-s", "SIGKILL", line, check=False)
        time.sleep(1)
        for line in self.ctr("tasks", "ls", "-q", check=False).stdout.split():
            self.ctr("tasks", "delete", "-f", line, check=False)
        subprocess.run(["pkill", "-f", f"containerd-shim.*{self.sock}"], check=False)
        containerd.terminate()
        containerd.wait()
        for name in network_namespaces() - self.others:  # of pods that were not deleted
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def network_namespaces() -> set[str]:
    """The names of the network namespaces that plugins of CNI made on this machine."""
    return {path.name for path in Path("/run/netns").glob("cni-*")}


class Node(ControlPlane):
    """A cluster of one node."""

    controllers = ("*",)
    options_of_server: ClassVar[dict[str, str]] = {"kubelet-preferred-address-types": "InternalIP"}

    def _start(self) -> None:
        super()._start()
        _run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        with suppress(subprocess.CalledProcessError):
            _run("ip", "link", "add", BRIDGE, "type", "bridge")
            _run("ip", "addr", "add", f"{ADDRESS}/24", "dev", BRIDGE)
            _run("ip", "link", "set", BRIDGE, "up")
        self.login = self._login("admin", "system:masters", "admin.kubeconfig")
        self._begin(
            "kube-scheduler",
            {"kubeconfig": self.login, "leader-elect": "false", "bind-address": "127.0.0.1", "secure-port": "0"},
        )
        self.parts = NodeParts(self, self.folder, NODE, ADDRESS, NETWORK, BRIDGE)
        self.parts.start(self.login)
        self.services = Services(self)
        self.until(lambda: self.is_ready(NODE), "the node")

    def bring_image(self, name: str, *more: NodeParts) -> None:
        """An image of podman's, by the name that pods give it, to this node and more."""
        file = self.folder / "image.tar"
        subprocess.run(["podman", "save", "--quiet", "--output", file, name], check=True)
        for parts in (self.parts, *more):
            parts.ctr("images", "import", str(file))
        file.unlink()

    def administrator(self, name: str) -> httpx.Client:
        """A client for a thread of its own: where two shared one, a request failed with "Bad file descriptor"."""
        return self._client(name, "system:masters")

    def is_ready(self, name: str) -> bool:
        """Whether pods can run on a node."""
        nodes = self.ask("/api/v1/nodes")["items"]
        return any(
            each["type"] == "Ready" and each["status"] == "True"
            for node in nodes
            for each in node["status"]["conditions"]
            if node["metadata"]["name"] == name
        )

    def pods(self, namespace: str, component: str | None = None) -> list[dict[str, Any]]:
        """The pods of a part of the chart that are neither ending nor evicted for what they took."""
        query = f"?labelSelector=app.kubernetes.io/component={component}" if component else ""
        found = self.ask(f"/api/v1/namespaces/{namespace}/pods{query}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"]

    def logs(self, namespace: str, pod: str, container: str = "") -> str:
        """What a pod has printed, as the API server tells it."""
        query = f"?container={container}" if container else ""
        return self.client.get(f"/api/v1/namespaces/{namespace}/pods/{pod}/log{query}").text

    def evict(self, namespace: str, pod: str, seconds: int | None = None) -> int:
        """Ask for a pod's eviction, as a drain does; the server's status: 429 where a disruption budget forbids it.

        Args:
            seconds: that its processes have to end; those that the pod states where none are given.
        """
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        if seconds is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": seconds}
        return self.client.post(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", json=body).status_code

    def inside(self, namespace: str, pod: str, container: str, *command: str, check: bool = True) -> str:
        """What a command prints in a container."""
        containers = self.ask(f"/api/v1/namespaces/{namespace}/pods/{pod}")["status"]["containerStatuses"]
        found = next(each["containerID"].rpartition("/")[2] for each in containers if each["name"] == container)
        words = ("tasks", "exec", "--exec-id", f"asked-{time.monotonic_ns()}", found, *command)
        return self.parts.ctr(*words, check=check).stdout

    def run_out_of_memory(self, namespace: str, pod: str, container: str) -> None:
        """Have the kernel end a container's first process for memory: another one in its control group takes all that there is."""
        self.inside(namespace, pod, container, "python", "-c", TAKE_MEMORY, check=False)

    def usage(self, by: httpx.Client) -> Iterator[tuple[str, dict[str, float]]]:
        """What the kubelet says that pods take now: the part of the chart, and bytes of memory, of disk, and cores."""
        parts = {
            pod["metadata"]["uid"]: pod["metadata"].get("labels", {}).get("app.kubernetes.io/component", "")
            for pod in self.ask("/api/v1/pods", by=by)["items"]
        }
        for pod in self.ask(f"/api/v1/nodes/{NODE}/proxy/stats/summary", by=by)["pods"]:
            yield (
                parts.get(pod["podRef"]["uid"], ""),
                {
                    "memory": pod.get("memory", {}).get("workingSetBytes", 0),
                    "disk": pod.get("ephemeral-storage", {}).get("usedBytes", 0),
                    "cores": pod.get("cpu", {}).get("usageNanoCores", 0) / 1e9,
                },
            )

    def stop(self) -> None:
        self.services.stop()
        self.parts.stop()
        super().stop()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.folder)):
                subprocess.run(["umount", "-l", line.split()[1]], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)


class Services:
    """What kube-proxy and CoreDNS do: addresses of services lead to a ready pod, and their names to the addresses."""

    def __init__(self, node: Node) -> None:
        self.node, self.written = node, ""
        self.places: list[tuple[str, ...]] = [()]
        self.names = node.folder / "names"
        self.names.mkdir()
        command = [
            "dnsmasq",
            "--keep-in-foreground",
            "--no-resolv",
            "--no-hosts",
            f"--hostsdir={self.names}",
            f"--listen-address={ADDRESS}",
        ]
        self.server = subprocess.Popen(
            [*command, "--bind-interfaces", "--user=root", "--pid-file="], stdout=node.log, stderr=node.log
        )
        self.client = node.administrator("services")
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()
        self.server.terminate()
        subprocess.run(["nft", "delete", "table", "ip", TABLE], check=False, capture_output=True)

    def _follow(self) -> None:
        while not self.ended.wait(0.5):
            with suppress(httpx.HTTPError, KeyError, subprocess.CalledProcessError):
                self._write()

    def _write(self) -> None:
        ready = {}
        for part in self.client.get("/apis/discovery.k8s.io/v1/endpointslices").json()["items"]:
            key = part["metadata"]["namespace"], part["metadata"].get("labels", {}).get("kubernetes.io/service-name")
            found = [each["addresses"][0] for each in part["endpoints"] or () if each["conditions"].get("ready")]
            ports = {port["name"]: port["port"] for port in part["ports"] or ()}
            if found:
                ready[key] = (found[0], ports)
        rules, refused, names = [], [], []
        for service in self.client.get("/api/v1/services").json()["items"]:
            name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
            address = service["spec"].get("clusterIP", "None")
            if address == "None":
                address = ready.get((namespace, name), (None, {}))[0]
                if address is None:
                    continue
            names.append(f"{address} {name}.{namespace}.svc.{DOMAIN}")
            for port in service["spec"].get("ports", ()):
                target, ports = ready.get((namespace, name), (None, {}))
                number = ports.get(port.get("name", ""), ports.get(None))
                if not address.startswith(f"{SERVICES}."):
                    continue
                match = f"ip daddr {address} tcp dport {port['port']}"
                if target is None or number is None:
                    refused.append(f"{match} reject with tcp reset")
                else:
                    rules.append(f"{match} dnat to {target}:{number}")
        text = _table(rules, refused)
        written = f"{len(self.places)} {text}" + "\n".join(names)
        if written == self.written:
            return
        for before in self.places:
            subprocess.run([*before, "nft", "-f", "-"], input=text, text=True, check=True, capture_output=True)
        file = self.names / "services"
        file.write_text("\n".join(sorted(names)) + "\n")
        self.server.send_signal(signal.SIGHUP)
        self.written = written


def _table(rules: list[str], refused: list[str]) -> str:
    chain = "\n".join(rules)
    refuse = "\n".join(refused)
    return f"""
table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
  chain incoming {{ type nat hook prerouting priority dstnat; {chain}
  }}
  chain own {{ type nat hook output priority -100; {chain}
  }}
  chain back {{ type nat hook postrouting priority srcnat; ct status dnat masquerade
  }}
  chain refused {{ type filter hook forward priority 0; {refuse}
  }}
  chain refused_own {{ type filter hook output priority 0; {refuse}
  }}
}}
"""


def pause_image() -> bytes:
    """The image of a container that does nothing, in docker's form: busybox, asleep."""
    layer = _tar({"bin/busybox": Path("/bin/busybox").read_bytes(), "bin/sleep": "busybox"})
    digest = hashlib.sha256(layer).hexdigest()
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "1000000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    config = json.dumps(settings).encode()
    name = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{name}.json", "RepoTags": [PAUSE], "Layers": [f"{digest}.tar"]}]
    return _tar({f"{digest}.tar": layer, f"{name}.json": config, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes | str]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
