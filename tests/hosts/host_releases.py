"""Releases over the machines: begun on that of the flow, followed in the store's log, and compared with what one process publishes."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from tests.hosts import machines
from tests.hosts.machines import BIN, OWN_DISK, SCHEDULER, Machines
from tests.hosts.store_server import Answered, answered_requests
from tests.support.fixed_salts import COMMAND

RECORDS = """
import boto3, io, numpy as np, pyarrow as pa, pyarrow.parquet as pq
store = boto3.client("s3")
store.create_bucket(Bucket="dpdist")
state = np.random.default_rng(0)
for part in range(8):
    file = io.BytesIO()
    columns = {name: state.integers(0, end, 60_000) for name, end in {"who": 20_000, "x": 400, "y": 400, "step": 2**20}.items()}
    pq.write_table(pa.table({**columns, "page": np.minimum(state.zipf(1.3, 60_000), 10**9)}), file)
    store.put_object(Bucket="dpdist", Key=f"records/part-{part}.parquet", Body=file.getvalue())
    pairs = io.BytesIO()
    pq.write_table(pa.table({name: columns[name] for name in "xy"}), pairs)
    store.put_object(Bucket="dpdist", Key=f"pairs/part-{part}.parquet", Body=pairs.getvalue())
"""
"""480,000 records in the store, and two of their columns by themselves."""
ANSWERS = re.compile(r"answers\.(csv|parquet|zarr)|thresholded\.csv")
"""Files of answers, of which a release has some."""


@contextmanager
def machines_with_records(folder: Path, **options: Any) -> Iterator[Machines]:
    """Machines with records in the store, and a root key on that of the flow. Skips where there can be no machines."""
    if why := machines.reason():
        pytest.skip(why)
    with Machines(folder, **options) as made:
        made.wait(lambda: "Running on" in made.log("store"), "the store does not start")
        made.run("flow", str(BIN / "python"), "-c", RECORDS)
        made.run("flow", str(BIN / "dpdist"), "keys", "init")
        made.wait(lambda: all("Registered to" in made.log(name) for name in made.begin_with), "no workers")
        yield made


@dataclass
class HostRelease:
    """A release that runs on the machine of the flow, with a home, a store and a folder for its files of its own.

    Attributes:
        spec: its text. Releases of one spec have one name and one noise, wherever they run.
        place: its home on that machine, and the prefix of all that it writes to the bucket.
        before: a program, with its options, that starts it.
        ledger_url: of its ledger; the one in its home unless it is given.
        settings: further variables.
    """

    hosts: Machines
    spec: str
    place: str
    before: tuple[str, ...] = ()
    ledger_url: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    engine: str = f"tls://{SCHEDULER}:8786"

    @property
    def name(self) -> str:
        """What the spec calls it."""
        return self.spec.partition("release: ")[2].split()[0]

    def start(self) -> HostRelease:
        """Start it, or start it again; returns itself."""
        disk = self.hosts.disk("flow")
        (disk / self.place).mkdir(mode=0o700, exist_ok=True)
        shutil.copy(disk / "home/root.key", disk / self.place)
        (disk / f"{self.place}.yaml").write_text(self.spec)
        self.log_length, self.begin = len(self.hosts.log("store")), time.monotonic()
        settings = {
            "DPDIST_HOME": f"{OWN_DISK}/{self.place}",
            "DPDIST_STORE": f"s3://dpdist/{self.place}/store",
            "DPDIST_OUTPUT": f"s3://dpdist/{self.place}/releases",
            **({"DPDIST_LEDGER": self.ledger_url} if self.ledger_url else {}),
            **self.settings,
        }
        words = [*self.before, str(BIN / "python"), "-c", COMMAND, "run", f"{self.place}.yaml", "--engine", self.engine]
        self.running = self.hosts.start(
            self.place, "flow", "env", *(f"{name}={value}" for name, value in settings.items()), *words
        )
        return self

    @property
    def requests(self) -> str:
        """What the store's log says since it was started."""
        return self.hosts.log("store")[self.log_length :]

    def reach(self, request: str) -> None:
        """Wait until the store was asked for something. Raises: AssertionError where the release ends before."""
        pattern = re.compile(request.format(place=self.place, name=self.name))
        self.hosts.wait(lambda: pattern.search(self.requests) is not None or not self._runs, f"no {request}", 400)
        assert self._runs, self.hosts.log(self.place)[-3000:]

    def follow(self, ends: dict[str, str]) -> dict[str, int]:
        """The bytes of the bodies of all that the store was asked in each stage, and after them, once the release has ended.

        Args:
            ends: for each stage the request with which it ends.
        """
        packets = self.hosts.sent_bytes("store")
        self.end()
        packets = self.hosts.sent_bytes("store") - packets
        requests = answered_requests(self.requests)
        sent = {stage: self._bytes_until(requests, request) for stage, request in ends.items()}
        sent["answers and files"] = sum(each.body_bytes for each in requests)
        print(f"{sum(sent.values()) / 1e6:.1f} MB in bodies, {packets / 1e6:.1f} MB in packets")
        return sent

    def _bytes_until(self, requests: Iterator[Answered], last: str) -> int:
        pattern, sent = re.compile(last.format(place=self.place, name=self.name)), 0
        for each in requests:
            sent += each.body_bytes
            if pattern.search(each.request):
                return sent
        raise AssertionError(f"no {last}")

    def end(self) -> int:
        """Its exit code, once it has ended."""
        return self.running.wait(timeout=900)

    def finish(self) -> None:
        """Wait for its end, and see that it was charged once and has the answers of one process. Prints how long it ran."""
        assert self.end() == 0, self.hosts.log(self.place)[-3000:]
        print(f"{self.place}: {time.monotonic() - self.begin:.0f} s", flush=True)
        url = self.ledger_url.replace(OWN_DISK, str(self.hosts.disk("flow")))
        with Ledger(url) if url else open_ledger(self.hosts.disk("flow") / self.place) as ledger:
            events = [entry["event"] for entry in ledger.entries(self.name)]
            ledger.verify()
        assert events.count("reserved") == events.count("committed") == 1, events
        assert self.digests() == self._digests_of_one_process()

    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file of answers that it published."""
        bucket, prefix = self.hosts.bucket(), f"{self.place}/releases/{self.name}/"
        names = [each.key for each in bucket.objects.filter(Prefix=prefix) if ANSWERS.match(each.key, len(prefix))]
        assert names
        return {
            name.removeprefix(prefix): hashlib.sha256(bucket.Object(name).get()["Body"].read()).hexdigest() for name in names
        }

    def _digests_of_one_process(self) -> dict[str, str]:
        if self.spec not in self.hosts.digests:
            alone = HostRelease(self.hosts, self.spec, f"alone-{self.place}", engine="inline").start()
            assert alone.end() == 0, self.hosts.log(alone.place)[-3000:]
            self.hosts.digests[self.spec] = alone.digests()
        return self.hosts.digests[self.spec]

    @property
    def _runs(self) -> bool:
        return self.running.poll() is None


def stored_bytes(hosts: Machines, prefix: str) -> int:
    """The bytes of all objects of the store below a prefix."""
    return sum(each.size for each in hosts.bucket().objects.filter(Prefix=prefix))


def print_traffic(sent: dict[str, int], predicted: dict[str, float]) -> None:
    """Print what went over the network in each stage, beside what the model says."""
    print("\n| stage | MB sent, model | MB sent, measured | measured / model |\n|---|---|---|---|")
    for stage, measured in sent.items():
        model = predicted.get(stage)
        compared = "| |" if model is None else f"{model / 1e6:.1f} | {measured / 1e6:.1f} | {measured / model:.2f} |"
        print(f"| {stage} | {compared if model else f' | {measured / 1e6:.1f} | |'}")
