"""The scheduler of a release is no door: who has not its certificate cannot talk to it, and nothing else listens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest
from distributed import KilledWorker, LocalCluster

from dpdist import engine
from dpdist.engine import local_cluster
from dpdist.errors import EngineError
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.process.resource_limits import MIB, blas_threads
from tests import HANGS
from tests.engine.test_engine import Processes, processes
from tests.support import small_release, tls_certificates

__all__ = ["processes"]

NOBODY = 65534
READ = "read: "
REFUSED = "refused"
NO_ANSWER = "no answer"
INTRUDER = """
import asyncio, json, os, pathlib, ssl, sys
import cryptography.x509, distributed.comm.tcp
from distributed import Security
from distributed.comm import CommClosedError, connect
from distributed.core import send_recv
from distributed.protocol.pickle import dumps
address, secret, user, seconds = sys.argv[1:]
certificate, key = json.load(sys.stdin)
if os.geteuid() == 0:  # after the imports: the interpreter itself may be private
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    try:
        open(secret)
        sys.exit("the secret is not private")
    except PermissionError:
        pass

async def tried(where, **options):
    comm = None
    try:
        async with asyncio.timeout(float(seconds)):
            comm = await connect(where, timeout=2 * float(seconds), **options)
            call = {"function": dumps(lambda: pathlib.Path(secret).read_text()), "args": dumps(()), "kwargs": dumps({})}
            return "read: " + (await send_recv(comm, op="run_function", wait=True, **call))["result"]
    except CommClosedError:
        return "refused"
    except ValueError:  # of tornado, when the other side speaks before TLS has begun
        return "in the clear only"
    except TimeoutError:
        return "no answer"
    finally:
        if comm is not None:
            comm.abort()

async def main():
    port = address.rsplit(":", 1)[1]
    own = dict(tls_ca_file=certificate, tls_client_cert=certificate, tls_client_key=key)
    encrypted = Security(require_encryption=True, **own).get_connection_args("client")
    encrypted["ssl_context"].check_hostname, encrypted["ssl_context"].verify_mode = False, ssl.CERT_NONE
    return {
        "in the clear": await tried(f"tcp://127.0.0.1:{port}"),
        "its own certificate": await tried(f"tls://127.0.0.1:{port}", **encrypted),
    }

print(json.dumps(asyncio.run(main())))
"""


def intrusion(address: str, folder: Path, *, seconds: float = HANGS) -> dict[str, str]:
    """How another user's process (the same user's, where this one may not change users) fares at a scheduler.

    It tries once in the clear and once with a certificate of its own, trusting whoever answers; each ends with what it read, with
    ``REFUSED`` once the scheduler has hung up, or with ``NO_ANSWER`` after the seconds.
    """
    secret = folder / "root.key"
    secret.write_text("the key")
    secret.chmod(0o600)
    pair = tls_certificates.written(folder / "intruder")
    done = subprocess.run(
        [sys.executable, "-c", INTRUDER, address, str(secret), str(NOBODY), str(seconds)],
        input=json.dumps([file.read_text() for file in pair]),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * HANGS,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def ports_of(pids: set[int]) -> dict[int, int]:
    """TCP ports that processes listen on, with the process."""
    inodes = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes[descriptor.readlink().name] = pid
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:  # LISTEN
                found[int(fields[1].rsplit(":", 1)[1], 16)] = inodes[f"socket:[{fields[9]}]"]
    return found


def own_processes() -> set[int]:
    """This process and its descendants."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                text = (folder / "stat").read_text()
                parents[int(folder.name)] = int(text.rsplit(")", 1)[1].split()[1])
    mine = {int(Path("/proc/self").readlink().name)}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return mine


def speaks_tls(port: int) -> bool:
    """Whether a port wants a certificate before it says a word."""
    text = subprocess.run(
        [sys.executable, "-c", TALK, str(port), str(HANGS)], capture_output=True, text=True, check=True, timeout=HANGS
    ).stdout.strip()
    return text == "encrypted"


TALK = """
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=int(sys.argv[2])) as plain, context.wrap_socket(plain):
        print("encrypted")
except ssl.SSLError:
    print("clear")
"""


def test_another_user_cannot_run_code(tmp_path: Path) -> None:
    """Who has not the certificate reads nothing, and every port of the cluster asks for it."""
    before = set(ports_of(own_processes()))
    with engine.open_engine(workers=2) as started:
        assert started.map(abs, [-1, -2]) == [1, 2]
        ports = set(ports_of(own_processes())) - before
        assert len(ports) == 3  # scheduler, two workers
        assert all(speaks_tls(port) for port in ports)
        found = intrusion(started.client.scheduler.address, tmp_path)
    assert found == {"in the clear": REFUSED, "its own certificate": REFUSED}


def test_a_cluster_of_somebody_else_s_may_be_started_beside_it() -> None:
    """In the clear, as in a notebook: that worker processes of dpdist are encrypted says nothing of other clusters of the process."""
    with engine.open_engine(workers=1) as started:
        assert started.map(abs, [-1]) == [1]
        with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
            assert not speaks_tls(int(cluster.scheduler_address.rsplit(":", 1)[1]))
        assert started.map(abs, [-2]) == [2]


def end_first(marker: str) -> int:
    """Ends its process with SIGKILL the first time."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def fill(size: int) -> int:
    """Holds so many bytes until somebody ends it."""
    held = b"x" * size  # zeros would take no memory
    time.sleep(HANGS)
    return len(held)


@pytest.mark.slow
def test_workers_that_are_killed_or_take_too_much_are_started_again(tmp_path: Path) -> None:
    """Each has its part of the BLAS threads; this process keeps its own variables."""
    before = dict(os.environ)
    with engine.open_engine(workers=1) as started:
        (first,) = started.map(abs_pid, [0])
        assert first != os.getpid()
        (second,) = started.map(end_first, [str(tmp_path / "marker")])
        assert second not in (first, os.getpid())
    first_end = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with first_end, local_cluster.local_client(1, 512 * MIB) as client:
        ended = client.submit(fill, 1024 * MIB, retries=0)
        with pytest.raises(KilledWorker):
            ended.result()
        assert client.submit(os.environ.get, "OPENBLAS_NUM_THREADS").result() == str(blas_threads())
    assert dict(os.environ) == before


def abs_pid(item: int) -> int:
    return os.getpid() + item


def test_a_cluster_that_cannot_start_charges_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It starts before the charge, however late its first task comes, and the reason is one line."""
    path = small_release.write(tmp_path / "data")
    monkeypatch.setattr("multiprocessing.spawn.get_executable", lambda: "/bin/false")
    with (
        pytest.raises(EngineError, match=r"^a worker process of this machine ended before it could work .exit code 1.;"),
        engine.open_engine(workers=1) as started,
    ):
        small_release.run(path, home, where=started)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1") is None
    monkeypatch.setattr("multiprocessing.spawn.get_executable", lambda: str(tmp_path / "nothing"))
    with (
        pytest.raises(EngineError, match="worker processes of this machine cannot start .FileNotFoundError"),
        engine.open_engine(workers=1) as started,
    ):
        small_release.run(path, home, where=started)


def test_the_intruder_would_read_through_a_cluster_in_the_clear(tmp_path: Path) -> None:
    """What dpdist started before it had certificates."""
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
        assert not speaks_tls(int(cluster.scheduler_address.rsplit(":", 1)[1]))
        found = intrusion(cluster.scheduler_address, tmp_path)
    assert found["in the clear"] == READ + "the key"


def test_an_intruder_that_gets_no_answer_is_not_taken_for_a_refused_one(tmp_path: Path) -> None:
    """What a slow machine looks like: a port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        found = intrusion(address, tmp_path, seconds=0.5)
    assert found == {"in the clear": NO_ANSWER, "its own certificate": NO_ANSWER}


def test_a_remote_scheduler_asks_for_certificates(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.worker(1)
    with engine.open_engine(processes.address) as started:
        assert processes.address.startswith("tls://")
        assert started.map(abs, [-3]) == [3]
    for changed, match in (
        (
            dict.fromkeys(processes.settings),
            "asks for certificates; name their files in DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
        ),
        (
            {"distributed.comm.tls.client.cert": str(tmp_path / "no.pem")},
            "cannot be read .No such file or directory.; check DASK_",
        ),
    ):
        with dask.config.set(changed), pytest.raises(EngineError, match=match):
            started_at(processes.address)
    monkeypatch.setattr("dpdist.engine.engine_start.CONNECT_SECONDS", 3)
    with pytest.raises(EngineError, match="no Dask scheduler answers at 'tls://127.0.0.1:1'"):
        started_at("tls://127.0.0.1:1")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "ws://127.0.0.1:1", "nonsense"])
def test_plain_connections_are_refused_unless_accepted(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        "is not reached by TLS: whoever .* or accept it with DPDIST_ENGINE_WITHOUT_TLS=1"
        if "://" in address
        else "an engine is 'inline' .this process. or tls://host:port"
    )
    with pytest.raises(EngineError, match=told):
        started_at(address)
    monkeypatch.setenv("DPDIST_ENGINE", address)
    with pytest.raises(EngineError, match=told):
        started_at(None)
    monkeypatch.setenv(engine.WITHOUT_TLS, "0")
    with pytest.raises(EngineError, match=told):
        started_at(None)


def started_at(address: str | None) -> None:
    with engine.open_engine(address):
        raise AssertionError(f"{address} was accepted")


HEARD = """
import logging
from dpdist import engine

logging.basicConfig(level=logging.INFO)
with engine.open_engine(workers=1) as run:
    assert run.map(abs, [-1]) == [1]
"""


def test_dask_tells_the_terminal_nothing(tmp_path: Path) -> None:
    """However its importing sets levels, which it does when the first cluster starts: somebody else's handler hears nothing."""
    (tmp_path / "heard.py").write_text(HEARD)
    done = subprocess.run([sys.executable, tmp_path / "heard.py"], capture_output=True, text=True, timeout=HANGS, check=True)
    assert (done.stdout, done.stderr) == ("", "")
