"""A second node of the cluster: a containerd and a kubelet in a network namespace of their own, whose link can be cut."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tests.kubernetes.node import ADDRESS, BRIDGE, NETWORK, Node, NodeParts

NAMESPACE = "dpkube-second"
LINK = "dpkube-link"
SECOND_ADDRESS, SECOND_NETWORK = f"{NETWORK}.2", "10.88.8"
CONTROL_GROUP = "dpdist-second"
CLONE_NEWNET = 0x40000000
_T = TypeVar("_T")


class SecondNode:
    """Joins the cluster of a first node, below it in the same folder.

    The API server listens on loopback: sockets of this process, made in the namespace, stand there in its place.
    """

    name = "node2"

    def __init__(self, first: Node) -> None:
        self.first = first
        _run("ip", "netns", "add", NAMESPACE)
        _run("ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", NAMESPACE)
        _run("ip", "link", "set", LINK, "master", BRIDGE, "up")
        for words in (
            ("addr", "add", f"{SECOND_ADDRESS}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", ADDRESS),
        ):
            _run("ip", "-n", NAMESPACE, *words)
        _run("ip", "route", "add", f"{SECOND_NETWORK}.0/24", "via", SECOND_ADDRESS)
        self.prefix = ("nsenter", f"--net=/run/netns/{NAMESPACE}")
        _run(*self.prefix, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for controller in Path("/sys/fs/cgroup").iterdir():  # each kubelet ends the groups that it does not know
            if (controller / "cgroup.procs").exists():
                group = controller / CONTROL_GROUP
                group.mkdir(exist_ok=True)
                for file in ("cpuset.cpus", "cpuset.mems"):
                    if (controller / file).exists():
                        (group / file).write_text((controller / file).read_text())
        self.folder = first.folder / "second"
        self.folder.mkdir()
        self.relay = Relay(first.ports["kube-apiserver"].number)
        self.parts = NodeParts(first, self.folder, self.name, SECOND_ADDRESS, SECOND_NETWORK, "dpkube1", self.prefix)
        self.parts.start(first.login, cgroup_root=f"/{CONTROL_GROUP}")
        first.services.places.append(self.prefix)
        first.until(lambda: first.is_ready(self.name), "the second node")

    def cut(self) -> None:
        """Cut the node off: from the API server, and from the other node's pods."""
        self.relay.close()
        _run("ip", "link", "set", LINK, "down")

    def connect(self) -> None:
        """Let it be reached again."""
        _run("ip", "link", "set", LINK, "up")
        self.relay = Relay(self.first.ports["kube-apiserver"].number)

    def stop(self) -> None:
        self.first.client.delete(f"/api/v1/nodes/{self.name}").raise_for_status()  # its pods are given up, and replaced
        self.relay.close()
        self.parts.stop()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False, capture_output=True)
        for words in (("ip", "netns", "del", NAMESPACE), ("ip", "link", "del", LINK)):
            subprocess.run(words, check=False, capture_output=True)
        for controller in Path("/sys/fs/cgroup").iterdir():
            for group in sorted((controller / CONTROL_GROUP).rglob("*"), key=lambda path: -len(path.parts)):
                with suppress(OSError):
                    group.rmdir()
            with suppress(OSError):
                (controller / CONTROL_GROUP).rmdir()


class Relay:
    """Leads connections to a port of the namespace's loopback to the same port of this one's."""

    def __init__(self, port: int) -> None:
        self.port, self.open = port, set[socket.socket]()
        self.server = in_namespace(lambda: socket.create_server(("127.0.0.1", port)))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it, and all connections through it."""
        for each in (self.server, *self.open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.server.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
                self.open |= {near, far}
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def in_namespace(work: Callable[[], _T]) -> _T:
    """What work returns in the node's network namespace: in a thread of its own, which ends with it."""
    results: list[_T] = []

    def enter() -> None:
        handle = os.open(f"/run/netns/{NAMESPACE}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(handle)
        results.append(work())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return results[0]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
