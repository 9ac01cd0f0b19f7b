"""Machines on one kernel: each has a network namespace on a bridge, and a mount namespace with a disk of its own.

Only addresses of these namespaces are used. It needs root, iproute2 and unshare; where namespaces are not allowed, ``reason`` says so.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from tests.support import tls_certificates

WORKERS = ("worker1", "worker2")
HOSTS = ("scheduler", *WORKERS, "flow", "store")
MORE_WORKERS = ("worker3", "worker4")
DATABASE = "database"
NETWORK = "10.77.0"
BRIDGE = "dpbr0"
SCHEDULER, STORE = f"{NETWORK}.2", f"{NETWORK}.6"
BIN = Path(sys.executable).parent
SERVER = Path(__file__).with_name("store_server.py")
MARK = "TEST_MACHINES"
"""The variable by which the programs of these machines are known."""
OWN_DISK = "/mnt"
"""Where a machine sees its own disk."""
ENTER_MACHINE = (
    f'mount --make-rprivate / && mount --rbind "$0" {OWN_DISK} && mount -t tmpfs none "$1" '
    f'&& cd {OWN_DISK} && shift && exec "$@"'
)
"""A shell's program: the disk of a machine is mounted, and those of the others are hidden."""
THROTTLES = Path("/sys/fs/cgroup/blkio")
SLOW_BYTES, SLOW_WRITES = 100_000, 20
"""What a slow disk writes a second, in bytes and requests."""


def reason() -> str:
    """Why there are no machines here; "" where they can be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return "needs root, iproute2 and unshare"
    made = subprocess.run(["ip", "netns", "add", "dpdist-probe"], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces are not allowed here: {made.stderr.strip()[:120]}"
    subprocess.run(["ip", "netns", "del", "dpdist-probe"], check=True)
    return ""


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)


@dataclass
class Machines:
    """Five machines, or more, and what runs on them.

    Attributes:
        folder: of this test, for disks and logs.
        more: further machines.
        begin_with: the workers that are started at once.
        settings: of every program, beside those that all need.
        digests: of the answers of specs, as one process publishes them.
    """

    folder: Path
    more: tuple[str, ...] = ()
    begin_with: tuple[str, ...] = WORKERS
    settings: dict[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Machines:
        with ExitStack() as stack:
            self.pair = tls_certificates.written(self.folder / "certificates")
            for host in self.hosts:
                shutil.copytree(self.folder / "certificates", self.disk(host) / "certificates")
            for words in [("link", "del", BRIDGE), *(("netns", "del", f"dp-{host}") for host in self.hosts)]:
                _ip(*words, check=False)  # a session that was killed leaves its machines
            stack.callback(_ip, "link", "del", BRIDGE, check=False)
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
            for host in self.hosts:
                stack.callback(_ip, "netns", "del", f"dp-{host}", check=False)
                _ip("netns", "add", f"dp-{host}")
                _ip("link", "add", f"dpv-{host}", "type", "veth", "peer", "name", "eth0", "netns", f"dp-{host}")
                _ip("link", "set", f"dpv-{host}", "master", BRIDGE, "up")
                _ip("-n", f"dp-{host}", "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    _ip("-n", f"dp-{host}", "link", "set", device, "up")
            stack.callback(self._end_all)
            self.start("store", "store", str(BIN / "python"), str(SERVER), "-H", "0.0.0.0", "-p", "9000")
            self.start_scheduler()
            for worker in self.begin_with:
                self.start_worker(worker)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the machines."""
        return (*HOSTS, *self.more)

    def address(self, host: str) -> str:
        """The address of a machine on the network of all."""
        return f"{NETWORK}.{2 + self.hosts.index(host)}"

    def disk(self, host: str) -> Path:
        """The disk of a machine, as this process sees it."""
        return self.folder / "disks" / host

    @property
    def certificates(self) -> dict[str, str]:
        """Dask's variables for its three roles on a machine."""
        certificate, key = (Path(OWN_DISK, "certificates", file.name) for file in self.pair)
        files = tls_certificates.environment(certificate, key)
        for role in ("SCHEDULER", "WORKER"):
            for part, file in (("CERT", certificate), ("KEY", key)):
                files[f"DASK_DISTRIBUTED__COMM__TLS__{role}__{part}"] = str(file)
        return files

    @property
    def environment(self) -> dict[str, str]:
        """Of every program on a machine."""
        server = f"http://{STORE}:9000"
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DPDIST_", "AWS_"))},
            **self.certificates,
            MARK: str(self.folder),
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
            "DPDIST_STORE": "s3://dpdist/store",
            "DPDIST_OUTPUT": "s3://dpdist/releases",
            "DPDIST_HOME": f"{OWN_DISK}/home",
            "AWS_ENDPOINT": server,
            "AWS_ENDPOINT_URL": server,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "OMP_NUM_THREADS": "1",
            "HOME": OWN_DISK,
            "TMPDIR": OWN_DISK,
            **self.settings,
        }

    def command(self, host: str, *words: str) -> list[str]:
        """A command on a machine."""
        disk, disks = str(self.disk(host)), str(self.folder / "disks")
        return ["ip", "netns", "exec", f"dp-{host}", "unshare", "-m", "sh", "-c", ENTER_MACHINE, disk, disks, *words]

    def start(self, name: str, host: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a program on a machine; its output is kept in ``<name>.log``."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                self.command(host, *words), env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        return self.running[name]

    def start_scheduler(self) -> None:
        """Start the Dask scheduler on its machine."""
        words = ("scheduler", "--host", SCHEDULER, "--port", "8786", "--no-dashboard")
        self.start("scheduler", "scheduler", str(BIN / "dask"), *words)

    def start_missing_workers(self) -> None:
        """Start the workers that have ended, as what watches over them would, and wait until the scheduler has both."""
        for host in ("worker1", "worker2"):
            process = self.running.get(host)
            if process is None or process.poll() is not None:
                before = self.registrations(host)
                self.start_worker(host)
                self.wait(lambda host=host, before=before: self.registrations(host) > before, f"no {host}")

    def start_worker(self, host: str, *before: str, options: tuple[str, ...] = ()) -> None:
        """Start the Dask worker of a machine with further options, by a program that changes what it sees of the machine."""
        words = (
            *before,
            str(BIN / "dask"),
            "worker",
            f"tls://{SCHEDULER}:8786",
            "--no-dashboard",
            "--nthreads",
            "1",
            "--memory-limit",
            "2GiB",
            "--name",
            host,
            *options,
        )
        self.start(host, host, *words)

    def end(self, name: str) -> None:
        """Tell a program to end, and all that it has started, as a cloud does before it takes a machine back."""
        self._signal(self.running[name].pid, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """End a program, and all that it has started, without a warning."""
        process = self.running.pop(name)
        self._signal(process.pid, signal.SIGKILL)
        process.wait()

    def _signal(self, session: int, number: signal.Signals) -> None:
        """Signal what a program of these machines has started: its session, whose number others may have once it has ended."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getsid(int(folder.name)) == session and f"{MARK}={self.folder}" in (folder / "environ").read_text():
                    os.kill(int(folder.name), number)

    def link(self, host: str, state: str) -> None:
        """Set the link of a machine "up" or "down"."""
        _ip("link", "set", f"dpv-{host}", state)

    def run(self, host: str, *words: str) -> str:
        """The output of a command on a machine. Raises: AssertionError where it fails."""
        done = subprocess.run(
            self.command(host, *words), env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def bucket(self) -> Any:
        """The bucket of the store, for this process."""
        address = f"http://{STORE}:9000"
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
        return boto3.resource("s3", endpoint_url=address, region_name="us-east-1", **keys).Bucket("dpdist")

    @contextmanager
    def further_disk(self, host: str, name: str, size_bytes: int, *options: str) -> Iterator[Path]:
        """Another disk of a machine, for programs that start now; yields its folder, as this process sees it."""
        folder, image = self.disk(host) / name, self.folder / f"{name}.disk"
        with image.open("wb") as file:
            file.truncate(size_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)], check=True)
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", ",".join(["loop", *options]), str(image), str(folder)], check=True)
        try:
            folder.chmod(0o700)
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)

    @contextmanager
    def slow_disk(self, host: str, name: str) -> Iterator[Path]:
        """A further disk of a machine; yields the file that takes the processes for which it writes ``SLOW_BYTES`` a second."""
        group = THROTTLES / f"dpdist-{name}"
        with self.further_disk(host, name, 2**28, "sync") as folder:
            device = folder.stat().st_dev
            group.mkdir(exist_ok=True)
            for unit, most in (("bps", SLOW_BYTES), ("iops", SLOW_WRITES)):
                limit = group / f"blkio.throttle.write_{unit}_device"
                limit.write_text(f"{os.major(device)}:{os.minor(device)} {most}")
            try:
                yield group / "cgroup.procs"
            finally:
                self.wait(lambda: not (group / "cgroup.procs").read_text(), "a program still writes to a slow disk")
                (written,) = re.findall(r" Write (\d+)", (group / "blkio.throttle.io_service_bytes").read_text())
                group.rmdir()
            assert int(written) > 0, "nothing was written to a slow disk"
            print(f"{written} bytes were written to a slow disk")

    def sent_bytes(self, host: str) -> int:
        """What a machine has sent and received since it was made, with the heads of packets."""
        counters = Path(f"/sys/class/net/dpv-{host}/statistics")
        return sum(int((counters / name).read_text()) for name in ("rx_bytes", "tx_bytes"))

    def log(self, name: str) -> str:
        """What a program has written; "" before it was started."""
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def registrations(self, worker: str) -> int:
        """How often a worker came to the scheduler."""
        return self.log(worker).count("Registered to")

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
        """Until a condition holds. Raises: AssertionError."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.2)

    def _end_all(self) -> None:
        for name in list(self.running):
            self.kill(name)
