"""Every kind of work over five machines, also with a fault amid it, gives the bytes of the same release in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.hosts import machines
from tests.hosts.machines import BIN, SCHEDULER, Machines
from tests.support.fixed_salts import COMMAND

pytestmark = pytest.mark.large
RECORDS = """
import boto3, io, numpy as np, pyarrow as pa, pyarrow.parquet as pq
store = boto3.client("s3")
store.create_bucket(Bucket="dpdist")
state = np.random.default_rng(0)
for part in range(8):
    file = io.BytesIO()
    pq.write_table(
        pa.table(
            {
                "who": state.integers(0, 20_000, 60_000),
                "x": state.integers(0, 400, 60_000),
                "page": np.minimum(state.zipf(1.3, 60_000), 10**9),
                "step": state.integers(0, STEPS, 60_000),
            }
        ),
        file,
    )
    store.put_object(Bucket="dpdist", Key=f"records/part-{part}.parquet", Body=file.getvalue())
"""
STEPS = 2**20
"""Of the series."""
COMMON = """
release: NAME
records: {path: "s3://dpdist/records/", called: calls PERSON}
budget: {rho: 0.1}
ledger: {dataset: NAME, shared_records: true, cap: {rho: 0.1}}
"""
PERSON = ", person: {column: who, most_records: 4}"
WORK = {
    "tables": """
domain: {x: {from: 0, to: 399}}
workload: [{marginals: {of: [[], [x]]}}]
mechanism: marginals
""",
    "persons": """
domain: {x: {from: 0, to: 399}}
workload: [{cdf: {of: x}}]
mechanism: coa
""",
    "filter": """
domain: {step: {from: 0, to: LAST}}
workload: [{filters: {of: step, apply: [{running_sum: true}]}}]
mechanism: square-root
""",
    "product": """
domain: {x: {from: 0, to: 399}, step: {from: 0, to: LAST, width: 4096}}
workload: [{cdf: {of: x, by: [step]}}]
mechanism: kronecker
""",
    "eigen": """
domain: {x: {from: 0, to: 399}}
workload: [{ranges: {of: [x], list: [[0, 99], [50, 249], [200, 399], [10, 19], [0, 399]]}}, {cdf: {of: x}}]
mechanism: eigen
""",
    "thresholded": """
domain: {x: {from: 0, to: 399}}
workload: [{marginals: {of: [[x]]}}]
mechanism: identity
thresholded: {of: {page: {integers: {from: 1, to: 1000000000}}}, at_least: 400, cells_per_person: 4, share: 0.5}
""",
}
"""A spec for each kind of work."""
OF_PERSONS = ("persons", "thresholded")


def spec_of(name: str, work: str) -> str:
    """The spec of a release of one kind of work."""
    text = (COMMON + WORK[work]).replace("NAME", name).replace("LAST", str(STEPS - 1))
    return text.replace(" PERSON", PERSON if work in OF_PERSONS else "")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Five machines with records in the store, and a root key on that of the flow."""
    if why := machines.reason():
        pytest.skip(why)
    with Machines(tmp_path_factory.mktemp("work")) as made:
        made.wait(lambda: "Running on" in made.log("store"), "the store does not start")
        made.run("flow", str(BIN / "python"), "-c", RECORDS.replace("STEPS", str(STEPS)))
        made.run("flow", str(BIN / "dpdist"), "keys", "init")
        yield made


def digests(hosts: Machines, release: str) -> dict[str, str]:
    """Of the answers that a release published: every table of it."""
    files = hosts.run("flow", str(BIN / "python"), "-c", READ.replace("RELEASE", release)).split()
    return dict(zip(files[::2], files[1::2], strict=True))


READ = """
import boto3, hashlib
store = boto3.client("s3")
for each in store.list_objects_v2(Bucket="dpdist", Prefix="RELEASE/")["Contents"]:
    name = each["Key"].rpartition("/")[2]
    if name in ("answers.parquet", "thresholded.csv", "answers.csv"):
        body = store.get_object(Bucket="dpdist", Key=each["Key"])["Body"].read()
        print(name, hashlib.sha256(body).hexdigest())
"""


def published_alike(hosts: Machines, name: str) -> None:
    """A release over the machines has the bytes of the same release in one process, under the same key."""
    hosts.run("flow", "sh", "-c", f"mkdir alone-{name} && cp home/root.key alone-{name}")
    began = time.monotonic()
    words = (str(BIN / "python"), "-c", COMMAND, "run", f"{name}.yaml", "--engine")
    hosts.run("flow", *words, f"tls://{SCHEDULER}:8786")
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    places = {
        "HOME": f"{hosts.folder}/node/alone-{name}",
        "STORE": f"s3://dpdist/alone-{name}",
        "OUTPUT": "s3://dpdist/alone",
    }
    hosts.run("flow", "env", *(f"DPDIST_{key}={place}" for key, place in places.items()), *words, "inline")
    over, alone = digests(hosts, f"releases/{name}"), digests(hosts, f"alone/{name}")
    assert over == alone
    assert over


@pytest.mark.parametrize("work", WORK)
def test_the_bytes_of_one_process(hosts: Machines, work: str) -> None:
    hosts.start_missing_workers()
    (hosts.folder / "disks" / "flow" / f"{work}.yaml").write_text(spec_of(work, work))
    published_alike(hosts, work)
