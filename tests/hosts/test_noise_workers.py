"""Noise drawn by workers on machines of their own, with the ledger in PostgreSQL on another: the bytes of one process, and bytes sent."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from benchmarks.simulator import stages
from dpdist.engine.tree_reduction import narrow
from dpdist.storage.array_store import Store
from tests.hosts.host_releases import HostRelease, machines_with_records, print_traffic, stored_bytes
from tests.hosts.machines import BIN, DATABASE, MORE_WORKERS, OWN_DISK, Machines
from tests.support import postgres_server

pytestmark = pytest.mark.large
WIDTH, SHARDS = 2**12, 4
CELLS = WIDTH**2
COUNTED = "PUT /dpdist/{place}/store/histograms/[^ ]*manifest.json"
MEASURED = "PUT /dpdist/{place}/store/measurements/{name}/manifest.json"
SPEC = """
release: NAME
records: {path: "s3://dpdist/pairs/", called: calls}
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


def ledger_url(hosts: Machines, login: str) -> str:
    """The URL of the ledger for one of its logins, on a machine."""
    certificate = hosts.certificates["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"]
    return f"postgresql+psycopg://{login}:trial@{hosts.address(DATABASE)}:5432/ledger?sslmode=verify-ca&sslrootcert={certificate}"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Eight machines: two of the workers hold the root key and a login that reads salts, one has neither; the ledger is on its own."""
    if (programs := postgres_server.binaries()) is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    folder, more = tmp_path_factory.mktemp("noise"), (*MORE_WORKERS, DATABASE)
    with machines_with_records(folder, more=more, begin_with=("worker1",)) as made:
        files = [made.certificates[f"DASK_DISTRIBUTED__COMM__TLS__CLIENT__{kind}"] for kind in ("CERT", "KEY")]
        made.start(DATABASE, DATABASE, "sh", "-c", SERVER, "-", *map(str, files), str(programs))
        made.wait(lambda: "ready to accept connections" in made.log(DATABASE), "PostgreSQL does not start")
        address = f"host={made.address(DATABASE)} user=postgres password=trial dbname=postgres sslmode=require"
        made.run("flow", str(BIN / "python"), "-c", MAKE_LOGINS, address, *LOGINS)
        grants = ("--application", "dpdist", "--noise", "dpdist_noise", "--metrics", "dpdist_metrics")
        owner(made, "migrate", *grants)
        for host in MORE_WORKERS:
            start_noise_worker(made, host)
        made.wait(lambda: all(map(made.registrations, MORE_WORKERS)), "no workers")
        yield made


def start_noise_worker(hosts: Machines, host: str) -> None:
    """Start a worker that holds the root key and a login that reads salts."""
    shutil.copy(hosts.disk("flow") / "home/root.key", hosts.disk(host))
    secrets = (f"DPDIST_LEDGER={ledger_url(hosts, 'dpdist_noise')}", f"DPDIST_ROOT_KEY_FILE={OWN_DISK}/root.key")
    hosts.start_worker(host, "env", *secrets, options=("--resources", "noise=1"))


def owner(hosts: Machines, *words: str) -> str:
    """What a command of the ledger prints to its owner."""
    url = ledger_url(hosts, "dpdist_owner")
    return hosts.run("flow", "env", f"DPDIST_LEDGER={url}", str(BIN / "dpdist"), "ledger", *words)


def release(hosts: Machines, name: str) -> HostRelease:
    """A release that has begun, with the login of the application; all have one ledger, and therefore one store."""
    (hosts.disk("flow") / f"{name}.yaml").write_text(spec := SPEC.replace("NAME", name))
    owner(hosts, "declare", f"{name}.yaml")
    return HostRelease(hosts, spec, "drawn", ledger_url=ledger_url(hosts, "dpdist")).start()


def test_workers_that_hold_the_key_draw_and_the_model_knows_what_they_send(hosts: Machines, tmp_path: Path) -> None:
    running = release(hosts, "by-workers")
    sent = running.follow({"count": COUNTED, "noise": MEASURED})
    running.finish()
    assert f"{SHARDS} of {SHARDS} parts drawn by workers" in hosts.log("drawn")
    assert not (hosts.disk("worker1") / "root.key").exists()
    records, counts, noise = (
        stored_bytes(hosts, prefix)
        for prefix in ("pairs/", "drawn/store/histograms/", "drawn/store/measurements/by-workers/")
    )
    shares = {"counts_share": counts / (8 * CELLS), "noise_share": noise / (8 * CELLS)}
    partials = partial_counts_bytes(hosts, tmp_path)
    predicted = stages.network_bytes(CELLS, records_bytes=records, partial_bytes=partials, **shares)
    print(
        f"records {records / 1e6:.1f} MB, partial counts {partials / 1e6:.1f} MB; bytes in the store for each of an array: {shares}"
    )
    print_traffic(sent, predicted)
    assert sent["noise"] == pytest.approx(predicted["noise"], rel=0.1)
    assert sent["count"] == pytest.approx(predicted["count"], rel=0.25)


def partial_counts_bytes(hosts: Machines, folder: Path) -> int:
    """What the partial counts of all tasks take in the store: each counts one of the files."""
    store = Store(folder / "store")
    for number, each in enumerate(hosts.bucket().objects.filter(Prefix="pairs/")):
        table = pyarrow.parquet.read_table(pa.BufferReader(each.get()["Body"].read()))
        counts = np.bincount(table["x"].to_numpy() * WIDTH + table["y"].to_numpy(), minlength=CELLS)
        store.put(f"partial/{number}", narrow(counts))
    return sum(file.stat().st_size for file in (folder / "store/partial").rglob("*") if file.is_file())


def draws(running: HostRelease) -> None:
    """Wait until something of a release's measurement is written."""
    running.reach("PUT /dpdist/{place}/store/measurements/{name}/")


@pytest.mark.parametrize(("host", "seconds"), [(DATABASE, 20), ("worker4", 60)])
def test_a_link_that_is_down_while_workers_draw_changes_nothing(hosts: Machines, host: str, seconds: int) -> None:
    """That of PostgreSQL's machine or of a worker, from the first object that a worker writes on."""
    running = release(hosts, f"away-{host}")
    draws(running)
    hosts.link(host, "down")
    time.sleep(seconds)
    hosts.link(host, "up")
    running.finish()


def test_a_worker_killed_while_it_draws_changes_nothing(hosts: Machines) -> None:
    """One of the two that hold the key; the other one, or the flow, draws what it had to draw."""
    running = release(hosts, "killed")
    draws(running)
    hosts.kill("worker4")
    running.finish()
