"""Noise drawn by workers that hold the root key: killed, raced, late, misled and rogue ones, as processes with a real ledger."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster

from dpdist import engine
from dpdist.arrays.lazy_vector import Vector, to_array
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.person_keys import PersonKey
from dpdist.counting.sparse_counts import count_cells
from dpdist.domain import Attribute, Domain
from dpdist.domain.key_spaces import IntegerKeys, KeySpace
from dpdist.engine import Engine, task_queue
from dpdist.errors import KeyUnavailable, LedgerError, StoreError
from dpdist.pipeline import distributed_noise, measure, release_run
from dpdist.pipeline.distributed_noise import RESOURCE, Claim, DrawReport, Shards
from dpdist.pipeline.sparse_noise import ShardTask, SparseShards
from dpdist.privacy import keys
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.privacy.selection.thresholded_histogram import thresholded_histogram
from dpdist.runtime.context import Context
from dpdist.size_limits import Sizes
from dpdist.sources.record_sources import source_of
from dpdist.spec import load
from dpdist.stability import Distance
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.case_selection import slow_after_first
from tests.faults import harness
from tests.faults.test_steps import ChargedRelease, charge_release, finishes_with
from tests.privacy.test_roles import Database, granted
from tests.support import small_release
from tests.support.forked_programs import Program
from tests.support.postgres_server import Server

SIZES = Sizes(shard_bytes=8 * 16)
SHARDS = 5
"""Of the 72 noisy values."""


def started(drawers: int) -> SpecCluster:
    """Some workers that may draw, and one that may not."""
    here = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    kinds = [*[{RESOURCE: 1}] * drawers, {}]
    return SpecCluster(
        workers={i: {"cls": Nanny, "options": {**here, "nthreads": 1, "resources": given}} for i, given in enumerate(kinds)},
        scheduler={"cls": Scheduler, "options": here},
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpecCluster]:
    with started(2) as found:
        yield found


def settings(**more: str) -> dict[str, str]:
    """What workers are told by their environment."""
    return {"DPDIST_HOME": os.environ["DPDIST_HOME"], **more}


def become(changes: dict[str, str], plant: Callable[[], None] | None) -> None:
    """On a worker: its environment, and a fault in its code; what an earlier test planted is gone."""
    for name in ("DPDIST_LEDGER", "DPDIST_HOME", keys.ENVIRONMENT, keys.FILE_ENVIRONMENT):
        os.environ.pop(name, None)
    os.environ.update(changes)
    for holder, name, right in RIGHT:
        setattr(holder, name, right)
    if plant is not None:
        plant()


RIGHT = [(Shards, "values", Shards.values), (Shards, "check", Shards.check), (Store, "write_shard", Store.write_shard)]


@dataclass
class Drawers:
    """The cluster as a test has it: the addresses of the workers that may draw, and what a run on them tells."""

    cluster: SpecCluster
    client: Client
    told: list[str]

    def prepare(self, plant: Callable[[], None] | None = None, *, only: int | None = None, **more: str) -> None:
        """Give the workers this test's settings, and one of them, or all that may draw, a fault."""
        self.client.wait_for_workers(len(self.cluster.worker_spec), timeout=HANGS)
        self.client.run(become, settings(**more), None)
        self.client.run(become, settings(**more), plant, workers=self.addresses if only is None else [self.addresses[only]])

    @property
    def addresses(self) -> list[str]:
        found = self.client.scheduler_info(n_workers=-1)["workers"]
        return sorted(address for address, worker in found.items() if worker["resources"])

    def run(self, path: Path, home: Path) -> release_run.Release:
        def record_progress(stage: str, line: str) -> None:
            self.told.append(f"{stage}: {line}")

        with engine.open_engine(self.cluster.scheduler_address) as where:
            return release_run.release(
                Context(home, Store(home / "store", SIZES), where, record_progress), load(path, sizes=SIZES)
            )

    @property
    def drew(self) -> bool:
        """Whether workers drew all of it."""
        return f"measure: {SHARDS} of {SHARDS} parts drawn by workers" in self.told


@pytest.fixture
def drawers(cluster: SpecCluster, home: Path, without_tls: None) -> Iterator[Drawers]:
    del home, without_tls
    with Client(cluster.scheduler_address) as client:
        yield Drawers(cluster, client, [])


@pytest.fixture(scope="module")
def shared_charged_release(tmp_path_factory: pytest.TempPathFactory) -> ChargedRelease:
    """A release that is charged, with nothing drawn, and the files that it publishes when the flow draws."""
    return charge_release(tmp_path_factory.mktemp("made"), sizes=SIZES, mechanism="identity")


@pytest.fixture
def charged_release(shared_charged_release: ChargedRelease, home: Path) -> tuple[Path, dict[str, bytes]]:
    """In the test's own state folder."""
    shutil.copytree(shared_charged_release.home, home, dirs_exist_ok=True)
    return shared_charged_release.path, shared_charged_release.expected


def test_workers_draw_the_flow_s_own_bytes(
    home: Path, drawers: Drawers, charged_release: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none is asked whether what it drew itself is right."""
    path, expected = charged_release
    asked, send = list[tuple[str, Any]](), Engine.map_where

    def record(self: Engine, resource: str, function: Any, items: Any, *, among: Any = None, **options: Any) -> Any:
        if function.__name__ == "check":
            asked.extend((written.worker, among) for written in items)
        return send(self, resource, function, items, among=among, **options)

    monkeypatch.setattr(Engine, "map_where", record)
    drawers.prepare()
    assert small_release.tree(Path(drawers.run(path, home).folder)) == expected
    assert drawers.drew
    assert len(asked) == SHARDS
    assert all(author not in among for author, among in asked)


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    with granted(postgres) as found:
        yield found


def test_workers_read_the_ledger_with_a_login_of_their_own(
    database: Database, home: Path, drawers: Drawers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL: the flow charges with the application's login, the workers' one reads what is in flight and nothing else."""
    path = small_release.write(home.parent / "data", mechanism="identity")
    checked, owner = load(path), Ledger(database.url("owner"))
    owner.declare("small", checked.guarantee.cap, checked.guarantee.protection)
    owner.close()
    monkeypatch.setenv("DPDIST_LEDGER", database.url("application"))
    drawers.prepare(DPDIST_LEDGER=database.url("noise"))
    own: list[Any] = []

    def draw(context: Context, claim: Claim, name: str, noisy: Vector, facts: dict[str, Any]) -> bool:
        own.append(to_array(noisy))
        return distributed_noise.draw_on_workers(context, claim, name, noisy, facts)

    monkeypatch.setattr(measure, "draw_on_workers", draw)
    assert drawers.run(path, home).charged
    assert drawers.drew
    store = Store(home / "store")
    np.testing.assert_array_equal(store.read_array(store.open("measurements/small-1")), own[0])
    with open_ledger(home) as ledger:
        assert (ledger.verify().rows, ledger.verify().running) == (6, 0)
    assert database.execute("noise", "SELECT count(*) FROM dpdist_salts") == [(0,)]


def wrong_noise() -> None:
    """Values that are one too high, with the digest of just these."""
    right = Shards.values
    Shards.values = lambda self, shard, key: right(self, shard, key) + 1  # type: ignore[method-assign]


def no_noise() -> None:
    """The exact values."""
    Shards.values = lambda self, shard, key: self.exact.read(*self.plan.bounds(shard))  # type: ignore[method-assign]


def false_digest() -> None:
    """Other values than the digest says."""
    right = Store.write_shard

    def write(self: Store, plan: Any, shard: int, block: Any) -> str:
        right(self, plan, shard, block + 1)
        return hashlib.sha256(block.data).hexdigest()

    Store.write_shard = write  # type: ignore[method-assign]


def conspiracy() -> None:
    """Wrong values that workers of the same kind find right."""
    wrong_noise()
    Shards.check = lambda self, written: ""  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("plant", "only", "drawn_again", "fault"),
    slow_after_first(
        2,
        [
            (conspiracy, 0, 0, "does not hold the noise of this release's key"),
            (no_noise, 0, 0, "does not hold the noise of this release's key"),
            (false_digest, 0, 0, "does not hold what its digest says"),
            (conspiracy, None, distributed_noise.REDRAWN_SHARDS, "does not hold the noise of this release's key"),
        ],
    ),
)
def test_a_rogue_worker_is_found_and_nothing_is_committed(
    home: Path,
    drawers: Drawers,
    charged_release: Any,
    plant: Callable[[], None],
    only: int | None,
    drawn_again: int,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the other worker, and where both are wrong in the same way by the flow, which draws some of it again itself."""
    monkeypatch.setattr(distributed_noise, "REDRAWN_SHARDS", drawn_again)
    path, expected = charged_release
    drawers.prepare(plant, only=only)
    with pytest.raises(StoreError, match=rf"shard \d, which the worker at tcp://.* drew, {fault}. Nothing is committed"):
        drawers.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1").state == "drawing"
    assert not Store(home / "store").exists("measurements/small-1")
    drawers.prepare()
    assert small_release.tree(Path(drawers.run(path, home).folder)) == expected
    shutil.rmtree("releases")
    finishes_with(expected, path, home)


def dies() -> None:
    """Killed amid its first shard."""
    Shards.values = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]


@pytest.mark.parametrize("only", slow_after_first(1, [0, None]), ids=["one of two", "both"])
def test_a_worker_killed_amid_its_shard(home: Path, drawers: Drawers, charged_release: Any, only: int | None) -> None:
    path, expected = charged_release
    drawers.prepare(dies, only=only)
    before = set(drawers.addresses)
    assert small_release.tree(Path(drawers.run(path, home).folder)) == expected
    drawers.prepare()
    assert len(before - set(drawers.addresses)) == (2 if only is None else 1)
    finishes_with(expected, path, home)


def test_the_flow_draws_when_the_last_of_them_has_gone(
    home: Path, without_tls: None, charged_release: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release does not wait for a worker that may never come back."""
    del without_tls
    monkeypatch.setattr(task_queue, "POLL_SECONDS", 0.5)
    path, expected = charged_release
    with harness.scheduler_and_worker(home.parent) as (address, _), Client(address) as client:
        options = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--resources", f"{RESOURCE}=1")
        drawer = Program("distributed.cli.dask_worker", address, *options, folder=home.parent)
        client.wait_for_workers(2, timeout=HANGS)
        client.run(become, settings(), dies)
        told: list[str] = []
        with engine.open_engine(address) as where:
            context = Context(home, Store(home / "store", SIZES), where, lambda stage, line: told.append(f"{stage}: {line}"))
            assert small_release.tree(Path(release_run.release(context, load(path, sizes=SIZES)).folder)) == expected
        drawer.wait()
        assert drawer.poll() == -signal.SIGKILL
        assert not any("drawn by workers" in line for line in told)


def test_workers_without_the_key_leave_the_noise_to_the_flow(home: Path, drawers: Drawers, charged_release: Any) -> None:
    path, expected = charged_release
    drawers.prepare(DPDIST_HOME=str(home.parent / "elsewhere"))
    assert small_release.tree(Path(drawers.run(path, home).folder)) == expected
    warnings = [line for line in drawers.told if "with the resource 'noise' drew nothing" in line]
    assert warnings
    for line in warnings:
        assert line.removeprefix("warning: the worker at ").partition(" ")[0] in drawers.addresses
        assert "no root key at" in line
    assert len(warnings) <= len(drawers.addresses)


def test_two_workers_with_one_shard_write_one_object(
    home: Path, drawers: Drawers, charged_release: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected = charged_release
    drawers.prepare()
    original, raced = Engine.map_where, []

    def twice(
        self: Engine, resource: str, function: Any, items: Sequence[Any], *, among: Any = None, report_progress: Any = None
    ) -> list[Any]:
        if function.__name__ != "draw":
            return original(self, resource, function, items, among=among, report_progress=report_progress)
        first, second = (original(self, resource, function, items, among=[each]) for each in drawers.addresses)
        raced.extend(zip(first, second, strict=True))
        return second

    monkeypatch.setattr(Engine, "map_where", twice)
    assert small_release.tree(Path(drawers.run(path, home).folder)) == expected
    assert [(a.worker != b.worker, a.digest == b.digest, bool(a.digest)) for a, b in raced] == [(True, True, True)] * SHARDS
    assert sum(1 for each in (home / "store" / "measurements").rglob("c/*") if each.is_file()) == SHARDS


def late_to_ask() -> None:
    """Stands still after it has drawn."""
    right = Shards.values

    def values(self: Shards, shard: int, key: Any) -> Any:
        found = right(self, shard, key)
        stand_still()
        return found

    Shards.values = values  # type: ignore[method-assign]


def late_to_write() -> None:
    """Stands still after the ledger said, for the second time, that the attempt is being drawn."""
    right = Store.write_shard

    def write(self: Store, plan: Any, shard: int, block: Any) -> str:
        stand_still()
        return right(self, plan, shard, block)

    Store.write_shard = write  # type: ignore[method-assign]


def stand_still() -> None:
    beside = Path(os.environ["DPDIST_HOME"]).parent
    (beside / "stands").touch()
    while not (beside / "goes").exists():
        time.sleep(0.05)


@pytest.mark.parametrize("plant", slow_after_first(1, [late_to_ask, late_to_write]))
def test_a_late_worker_writes_nothing_that_counts(
    home: Path, drawers: Drawers, charged_release: Any, plant: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given a shard, stands still, and goes on when another has drawn it and the release is committed."""
    path, expected = charged_release
    drawers.prepare(plant, only=0)
    original, late = Engine.map_where, []

    def map_without_late_worker(
        self: Engine, resource: str, function: Any, items: Sequence[Any], *, among: Any = None, report_progress: Any = None
    ) -> list[Any]:
        if function.__name__ != "draw":
            return [None] * len(items)  # the flow checks
        stands, other = drawers.addresses
        late.append(drawers.client.submit(function, 0, workers=[stands], resources={resource: 1}))
        deadline = time.monotonic() + HANGS
        while not (home.parent / "stands").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return original(self, resource, function, items, among=[other], report_progress=report_progress)

    monkeypatch.setattr(Engine, "map_where", map_without_late_worker)
    assert small_release.tree(Path(drawers.run(path, home).folder)) == expected
    assert drawers.drew
    stored = small_release.tree(home / "store" / "measurements")
    (home.parent / "goes").touch()
    told: DrawReport = late[0].result(timeout=HANGS)
    if plant is late_to_ask:
        assert told.digest is None
        assert "is committed; this step needs drawing" in told.refusal
    else:
        assert told.digest is not None
    assert small_release.tree(home / "store" / "measurements") == stored
    finishes_with(expected, path, home)


@pytest.fixture
def claim(home: Path) -> Claim:
    """The claim of a release of which noise may be drawn, in the ledger of this process."""
    small_release.reserved(small_release.write(home.parent / "data"), home)
    with open_ledger(home) as ledger:
        receipt = ledger.receipt("small-1")
        assert receipt is not None
        ledger.begin_drawing("small-1", receipt.attempt, receipt.binding)
    return Claim("small-1", receipt.attempt, receipt.binding, small_release.counts_digest(home))


def test_a_claim_gives_the_key_of_the_release(home: Path, claim: Claim) -> None:
    with open_ledger(home) as ledger, claim.key() as ask:
        receipt = ledger.receipt("small-1")
        assert receipt is not None
        assert receipt.salt is not None
        asked = {"salt": receipt.salt, "spec_digest": receipt.spec_digest, "histogram_digest": claim.histogram_digest}
        assert ask().reveal() == keys.release_key(keys.load(home), release="small-1", **asked).reveal()
        ledger.commit("small-1", claim.attempt, claim.binding, "0" * 64)
        with pytest.raises(LedgerError, match="is committed; this step needs drawing"):
            ask()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"attempt": 2}, "reserved again"),
        ({"binding": "0" * 64}, "reserved again"),
        ({"release": "small-2"}, "is not charged"),
        ({"histogram_digest": "0" * 64}, "for other counts than this worker was given"),
    ],
)
def test_a_claim_of_anything_else_gives_no_key(claim: Claim, changes: dict[str, Any], why: str) -> None:
    with replace(claim, **changes).key() as ask, pytest.raises(LedgerError, match=why):
        ask()


def test_another_root_key_and_none_give_no_key(home: Path, claim: Claim) -> None:
    (home / "root.key").unlink()
    with pytest.raises(KeyUnavailable), claim.key():
        pass
    keys.initialise(home)
    with claim.key() as ask, pytest.raises(LedgerError, match="charged under another root key"):
        ask()


def test_nothing_is_drawn_of_a_charge_that_was_given_back(home: Path) -> None:
    """Neither while it is only reserved, nor after it was replaced by another attempt that draws."""
    small_release.reserved(small_release.write(home.parent / "data"), home)
    with open_ledger(home) as ledger:
        first = ledger.receipt("small-1")
        assert first is not None
        claim = Claim("small-1", first.attempt, first.binding, small_release.counts_digest(home))
        with claim.key() as ask, pytest.raises(LedgerError, match="is reserved; this step needs drawing"):
            ask()
        ledger.abort("small-1")
        with claim.key() as ask, pytest.raises(LedgerError, match="is aborted; this step needs drawing"):
            ask()
        shutil.rmtree("releases", ignore_errors=True)
    small_release.reserved(home.parent / "data" / "release.yaml", home)
    with open_ledger(home) as ledger:
        second = ledger.receipt("small-1")
        assert second is not None
        ledger.begin_drawing("small-1", second.attempt, second.binding)
    with claim.key() as ask, pytest.raises(LedgerError, match="was given back, and the id was reserved again"):
        ask()


class LateShards(SparseShards):
    """Shards whose release is committed by the flow while a worker draws them."""

    def rows(self, task: ShardTask, key: keys.Secret) -> Any:
        drawn = super().rows(task, key)
        with open_ledger(Path(os.environ["DPDIST_HOME"])) as ledger:
            ledger.commit(task.claim.release, task.claim.attempt, task.claim.binding, "0" * 64)
        return drawn


def test_a_late_worker_writes_no_rows(home: Path, claim: Claim, tmp_path: Path) -> None:
    """What one draws on time another one draws again, and reads back; of an attempt that has ended nothing is written or said."""
    source = source_of(home.parent / "data" / "records.parquet", columns={}, **small_release.whose())
    ages = (Attribute("age", categories=("an age",), other="other", missing="none"),)
    domain, store = Domain((Attribute("sex", categories=("f", "m")),), beside=ages), Store(tmp_path / "rows")
    records = PartitionedRecords(source, domain, store, engine.inline(), PersonKey(bytes(32)))
    moved = Distance(1, replaced=False)
    rule = thresholded_histogram(GAUSSIAN, Loss.gaussian(Fraction(1)), moved, 12, Fraction(5))
    space = KeySpace({"age": IntegerKeys(0, 11)})
    counted = count_cells(records, space, cells_per_person=None, records_per_cell=1, shards=rule.shards)
    task, shards = ShardTask(range(rule.shards), counted.key, claim), SparseShards(counted, rule)
    report = shards.draw(task)
    assert report.rows == 12
    assert report.digest is not None
    drawn = shards.written_rows(report)
    with claim.key() as ask:
        np.testing.assert_array_equal(drawn, shards.rows(task, ask()))
    assert [shards.agrees((task, digest)) for digest in (report.digest, "0" * 64)] == [True, False]
    with pytest.raises(StoreError, match="are not the noise of this release's key. Nothing is committed"):
        shards.written_rows(replace(report, digest="0" * 64))
    written = small_release.tree(tmp_path / "rows")
    late = LateShards(counted, rule).draw(task)
    assert (late.name, late.rows, late.digest) == ("", 0, None)
    assert "is committed; this step needs drawing" in late.refusal
    assert shards.agrees((task, report.digest)) is None
    assert small_release.tree(tmp_path / "rows") == written
