"""Noise drawn by workers on machines of their own, with the ledger in PostgreSQL on another: the bytes of one process, and bytes sent."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from benchmarks.simulator import stages
from tests.hosts import machines
from tests.hosts.machines import BIN, DATABASE, MORE_WORKERS, SCHEDULER, Machines
from tests.hosts.test_hosts import RECORDS
from tests.hosts.test_work import digests
from tests.support import postgres_server
from tests.support.fixed_salts import COMMAND

pytestmark = pytest.mark.large
CELLS, SHARDS = 2**24, 4
SPEC = """
release: NAME
records: {path: "s3://dpdist/records/", called: calls}
domain: {x: {from: 0, to: 4095}, y: {from: 0, to: 4095}}
workload: [{marginals: {of: [[x]]}}]
mechanism: identity
budget: {rho: 0.1}
ledger: {dataset: NAME, shared_records: true, cap: {rho: 0.1}}
"""
SERVER = """
set -e
home=/var/lib/postgresql
mount -t tmpfs none $home
install -o postgres -m 600 "$1" $home/server.crt
install -o postgres -m 600 "$2" $home/server.key
install -o postgres -m 600 /dev/null $home/password
echo trial > $home/password
chown postgres $home
cd $home
as="setpriv --reuid postgres --regid postgres --clear-groups"
$as "$3/initdb" -D $home/data -U postgres --pwfile $home/password --auth-local reject --auth-host scram-sha-256 --no-sync --no-instructions
echo "hostssl all all all scram-sha-256" > $home/data/pg_hba.conf
exec $as "$3/postgres" -D $home/data -k $home -c 'listen_addresses=*' -c ssl=on -c ssl_cert_file=$home/server.crt \\
  -c ssl_key_file=$home/server.key -c fsync=off
"""
LOGINS = ("dpdist_owner", "dpdist", "dpdist_noise", "dpdist_metrics")
MAKE_LOGINS = """
import sys, psycopg
address, names = sys.argv[1], sys.argv[2:]
with psycopg.connect(address, autocommit=True) as database:
    for name in names:
        database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'trial'")
    database.execute("GRANT dpdist TO dpdist_owner")
    database.execute("CREATE DATABASE ledger OWNER dpdist_owner")
with psycopg.connect(address.replace("dbname=postgres", "dbname=ledger"), autocommit=True) as database:
    database.execute("ALTER SCHEMA public OWNER TO dpdist_owner")
"""
STORED = """
import boto3, sys
pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket="dpdist", Prefix=sys.argv[1])
print(sum(entry["Size"] for page in pages for entry in page.get("Contents", ())))
"""
"""The bytes of all objects below a prefix."""


def ledger_url(hosts: Machines, login: str) -> str:
    """The URL of the ledger for one of its logins."""
    certificate = hosts.certificates["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"]
    return f"postgresql+psycopg://{login}:trial@{hosts.address(DATABASE)}:5432/ledger?sslmode=verify-ca&sslrootcert={certificate}"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Eight machines: two of the workers hold the root key and a login that reads salts, one has neither; the ledger is on its own."""
    if why := machines.reason():
        pytest.skip(why)
    if (programs := postgres_server.binaries()) is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    with Machines(tmp_path_factory.mktemp("noise"), more=(*MORE_WORKERS, DATABASE), begin_with=("worker1",)) as made:
        files = [made.certificates[f"DASK_DISTRIBUTED__COMM__TLS__CLIENT__{kind}"] for kind in ("CERT", "KEY")]
        made.start(DATABASE, DATABASE, "sh", "-c", SERVER, "-", *map(str, files), str(programs))
        made.wait(lambda: "Running on" in made.log("store"), "the store does not start")
        made.wait(lambda: "ready to accept connections" in made.log(DATABASE), "PostgreSQL does not start")
        address = f"host={made.address(DATABASE)} user=postgres password=trial dbname=postgres sslmode=require"
        made.run("flow", str(BIN / "python"), "-c", MAKE_LOGINS, address, *LOGINS)
        made.run("flow", str(BIN / "python"), "-c", RECORDS)
        made.run("flow", str(BIN / "dpdist"), "keys", "init")
        grants = ("--application", "dpdist", "--noise", "dpdist_noise", "--metrics", "dpdist_metrics")
        owner(made, "migrate", *grants)
        for host in MORE_WORKERS:
            shutil.copy(made.folder / "disks/flow/home/root.key", made.folder / "disks" / host)
            secrets = (
                f"DPDIST_LEDGER={ledger_url(made, 'dpdist_noise')}",
                f"DPDIST_ROOT_KEY_FILE={made.folder}/node/root.key",
            )
            made.start_worker(host, "env", *secrets, options=("--resources", "noise=1"))
        made.wait(lambda: all("Registered to" in made.log(name) for name in ("worker1", *MORE_WORKERS)), "no workers")
        yield made


def owner(hosts: Machines, *words: str) -> str:
    """What a command of the ledger prints to its owner."""
    url = ledger_url(hosts, "dpdist_owner")
    return hosts.run("flow", "env", f"DPDIST_LEDGER={url}", str(BIN / "dpdist"), "ledger", *words)


def start_release(hosts: Machines, name: str) -> subprocess.Popen[bytes]:
    """A release that runs on the machine of the flow, with the login of the application."""
    (hosts.folder / "disks" / "flow" / f"{name}.yaml").write_text(SPEC.replace("NAME", name))
    owner(hosts, "declare", f"{name}.yaml")
    hosts.begun[name] = len(hosts.log("store"))
    words = (str(BIN / "python"), "-c", COMMAND, "run", f"{name}.yaml", "--engine", f"tls://{SCHEDULER}:8786")
    return hosts.start(name, "flow", "env", f"DPDIST_LEDGER={ledger_url(hosts, 'dpdist')}", *words)


def ended_alike(hosts: Machines, name: str, running: subprocess.Popen[bytes]) -> None:
    """The release has one charge, its noise was drawn by workers, and its answers are those of one process under the same key."""
    assert running.wait(timeout=600) == 0, hosts.log(name)[-3000:]
    rows = owner(hosts)
    events = re.findall(rf"^\d+ +(\w+) +{name} +{name} ", rows, re.MULTILINE)
    assert events.count("reserved") == events.count("committed") == 1, rows
    hosts.run("flow", "sh", "-c", f"mkdir alone-{name} && cp home/root.key alone-{name}")
    places = {
        "HOME": f"{hosts.folder}/node/alone-{name}",
        "STORE": f"s3://dpdist/alone-{name}",
        "OUTPUT": "s3://dpdist/alone",
    }
    settings = [f"DPDIST_{key}={place}" for key, place in places.items()]
    words = (str(BIN / "python"), "-c", COMMAND, "run", f"{name}.yaml", "--engine", "inline")
    hosts.run("flow", "env", *settings, *words)
    over, alone = digests(hosts, f"releases/{name}"), digests(hosts, f"alone/{name}")
    assert over
    assert over == alone


@dataclass
class Traffic:
    """What the store has sent and received when a release reached the ends of its stages.

    Attributes:
        ends: the request with which each stage ends.
        sent: bytes until then.
    """

    hosts: Machines
    name: str
    ends: dict[str, str]
    sent: dict[str, int] = field(default_factory=dict)

    def follow(self, running: subprocess.Popen[bytes]) -> None:
        """Until the release has ended."""
        before = begin = self.hosts.sent_bytes("store")
        for stage, request in self.ends.items():
            pattern = re.compile(request)
            while not pattern.search(self.hosts.log("store")[self.hosts.begun[self.name] :]):
                assert running.poll() is None, f"{self.name} has ended before the end of {stage}"
                time.sleep(0.05)
            now = self.hosts.sent_bytes("store")
            self.sent[stage], before = now - before, now
        running.wait(timeout=600)
        now = self.hosts.sent_bytes("store")
        self.sent["answers and files"], self.sent["all"] = now - before, now - begin


def test_workers_that_hold_the_key_draw_and_the_model_knows_what_they_send(hosts: Machines) -> None:
    running = start_release(hosts, "drawn")
    ends = {
        "count": "PUT /dpdist/store/histograms/[^ ]*manifest.json",
        "noise": "PUT /dpdist/store/measurements/drawn/manifest.json",
    }
    traffic = Traffic(hosts, "drawn", ends)
    traffic.follow(running)
    ended_alike(hosts, "drawn", running)
    assert f"{SHARDS} of {SHARDS} parts drawn by workers" in hosts.log("drawn")
    assert not (hosts.folder / "disks/worker1/root.key").exists()
    records, counts, noise = (
        int(hosts.run("flow", str(BIN / "python"), "-c", STORED, place))
        for place in ("records/", "store/histograms/", "store/measurements/drawn/")
    )
    shares = {"counts_share": counts / (8 * CELLS), "noise_share": noise / (8 * CELLS)}
    predicted = stages.network_bytes(CELLS, records_bytes=records, **shares)
    print(f"the records have {records / 1e6:.1f} MB; bytes in the store for each byte of an array: {shares}")
    print("\n| stage | MB of arrays, model | MB sent, model | MB sent, measured | measured / model |\n|---|---|---|---|---|")
    of_arrays = {stage.name: stage.bytes for stage in stages.predicted(CELLS, 3)}
    for stage, expected in predicted.items():
        sent = traffic.sent[stage]
        print(
            f"| {stage} | {of_arrays[stage] / 1e6:.1f} | {expected / 1e6:.1f} | {sent / 1e6:.1f} | {sent / expected:.2f} |"
        )
    print(f"answers and files: {traffic.sent['answers and files'] / 1e6:.1f} MB; in all {traffic.sent['all'] / 1e6:.1f} MB")
    assert traffic.sent["noise"] == pytest.approx(predicted["noise"], rel=0.1)


def draws(hosts: Machines, name: str) -> None:
    """Wait until something of a release's measurement is written."""
    request = re.compile(f"PUT /dpdist/store/measurements/{name}/")
    hosts.wait(lambda: request.search(hosts.log("store")[hosts.begun[name] :]) is not None, "nothing is drawn", 300)


def test_a_ledger_that_is_away_while_workers_draw_changes_nothing(hosts: Machines) -> None:
    """The link of PostgreSQL's machine is down for 20 s, from the first object that a worker writes on."""
    running = start_release(hosts, "away")
    draws(hosts, "away")
    hosts.link(DATABASE, "down")
    time.sleep(20)
    hosts.link(DATABASE, "up")
    begin = time.monotonic()
    ended_alike(hosts, "away", running)
    print(f"the ledger was away for 20 s: compared {time.monotonic() - begin:.0f} s later")


def test_a_worker_killed_while_it_draws_changes_nothing(hosts: Machines) -> None:
    """One of the two that hold the key; the other one, or the flow, draws what it had to draw."""
    running = start_release(hosts, "killed")
    draws(hosts, "killed")
    hosts.kill("worker4")
    ended_alike(hosts, "killed", running)
