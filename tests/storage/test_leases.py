from __future__ import annotations

import threading
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.exceptions
import pytest

from dpdist.errors import StoreError
from dpdist.storage import leases
from dpdist.storage.array_store import Store
from dpdist.storage.documents import Documents
from tests import HANGS
from tests.support import forked_programs

KILLED = """
import os, signal, sys
import numpy as np
from dpdist.storage.array_store import Store
store = Store(sys.argv[1])
store.put(f"{store.scratch()}/left-behind", np.arange(10))
plan = store.plan("measurements/a", (10,), np.int64, shard_rows=5)
store.begin(plan)
store.write_shard(plan, 0, np.arange(5))
whole = store.plan("measurements/b", (5,), np.int64)
store.begin(whole)
digest = store.write_shard(whole, 0, np.arange(5))
from dpdist.storage import leases
leases.forget_attempt = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # right after the record is written
store.finish(whole, [digest])
"""

HOLDS = """
import sys
from dpdist.storage.array_store import Store
sys.held = Store(sys.argv[1])
sys.held.put(f"{sys.held.scratch()}/x", __import__("numpy").arange(5))
"""


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Store(tmp_path / "store")
    return Store(f"{request.getfixturevalue('s3')}/{tmp_path.name}")


def names(store: Store) -> set[str]:
    return set(store.names(""))


def test_what_a_killed_run_left_is_swept_at_once(store: Store) -> None:
    assert forked_programs.finished(KILLED, store.location).returncode == -9
    kept = {name for name in names(store) if name.startswith("measurements/b/")}
    assert store.sweep() == 1
    assert {name for name in names(store) if not name.startswith("leases/")} == kept
    assert store.read_array(store.open("measurements/b")).tolist() == list(range(5))
    assert store.sweep() == 0


def test_a_living_run_is_never_swept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long others watch, whatever clocks say: its process is there."""
    other, now = Store(store.location), [0.0]
    kept = other.put(f"{other.scratch()}/in-use", np.arange(10))
    for name in ("time.monotonic", "time.time"):
        monkeypatch.setattr(name, lambda: now[0])
    for _ in range(3):
        now[0] += 8 * 86_400
        assert store.sweep() == 0
    assert other.read_array(kept).tolist() == list(range(10))


def far_away(store: Store, run: Store) -> None:
    """As if the run were on another machine: nothing is known of its process."""
    name = f"leases/{run.lease}/lease.json"
    store.write_document(name, asdict(replace(leases.this_process(), boot="another")))


def test_a_run_on_another_machine_is_dead_when_its_count_stands_still(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    run = Store(store.location)
    plan = run.plan("measurements/a", (5,), np.int64)
    run.begin(plan)
    run.put(f"{run.scratch()}/x", np.arange(5))
    far_away(store, run)
    assert store.sweep() == 0
    now[0] += leases.STRETCH_SECONDS - 1
    assert store.sweep() == 0
    run.write_document(f"leases/{run.lease}/beat.json", {"beat": 1})
    now[0] += leases.STRETCH_SECONDS - 1
    assert Store(store.location).sweep() == 0  # it counted on: watched anew from here, by whoever looks
    now[0] += leases.STRETCH_SECONDS + 1
    assert Store(store.location).sweep() == 1
    assert not {name for name in names(store) if name.startswith(("measurements", f"scratch/{run.lease}"))}


def test_a_run_that_was_taken_for_dead_finds_out_before_its_array_is_whole(store: Store) -> None:
    run = Store(store.location)
    plan = run.plan("measurements/a", (5,), np.int64)
    run.begin(plan)
    digest = run.write_shard(plan, 0, np.arange(5))
    leases.clear(store, run.lease)
    with pytest.raises(StoreError, match="took it for dead.*run again"):
        run.finish(plan, [digest])
    assert not store.exists("measurements/a")


def test_scratch_that_nobody_holds_is_kept_for_a_week_of_watching(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    store.put("scratch/shared/part-0", np.arange(5))
    assert store.sweep() == 0
    now[0] += leases.UNHELD_SECONDS + 1
    store.put("scratch/shared/part-1", np.arange(5))
    assert store.sweep() == 0
    now[0] += leases.UNHELD_SECONDS - 1
    assert store.sweep() == 0
    now[0] += 2
    assert store.sweep() == 1
    assert not store.exists("scratch/shared/part-0")


def test_a_watch_of_another_boot_counts_for_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    run = Store(store.location)
    run.scratch()
    far_away(store, run)
    assert store.sweep() == 0
    now[0] += 10 * leases.STRETCH_SECONDS
    monkeypatch.setattr("dpdist.storage.leases.BOOT", "the next")
    assert store.sweep() == 0


def look_from_another_machine(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> int:
    """What a run sweeps that has a machine of its own, with a clock of its own."""
    monkeypatch.setattr("dpdist.storage.leases.BOOT", name)
    monkeypatch.setattr("time.monotonic", lambda: float(len(name)))
    return store.sweep()


@pytest.mark.parametrize("apart", [0.5, 1.5])
def test_a_killed_run_is_swept_where_every_run_has_a_machine_of_its_own(
    apart: float, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the second machine that looks, two days or more after the first, as the store dates its files."""
    run, dates = Store(store.location), dict[str, float]()
    run.put(f"{run.scratch()}/x", np.arange(5))
    far_away(store, run)
    monkeypatch.setattr(type(store.storage), "written_at", lambda _, name: dates[name.partition("/seen-")[2]])
    dates |= {f"machine-{number}.json": number * apart * leases.UNWATCHED_SECONDS for number in range(2)}
    assert look_from_another_machine(store, monkeypatch, "machine-0") == 0
    assert look_from_another_machine(store, monkeypatch, "machine-1") == (1 if apart > 1 else 0)
    assert bool(store.names(f"scratch/{run.lease}")) is bool(apart < 1)
    assert bool(store.names(f"leases/{run.lease}")) is bool(apart < 1)


def test_a_living_run_keeps_its_lease_however_far_apart_machines_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run, dates = Store(store.location), dict[str, float]()
    kept = run.put(f"{run.scratch()}/x", np.arange(5))
    far_away(store, run)
    monkeypatch.setattr(type(store.storage), "written_at", lambda _, name: dates[name.partition("/seen-")[2]])
    for number in range(5):
        dates[f"machine-{number}.json"] = number * 10 * leases.UNWATCHED_SECONDS
        run.write_document(f"leases/{run.lease}/beat.json", {"beat": number})
        assert look_from_another_machine(store, monkeypatch, f"machine-{number}") == 0
    assert run.read_array(kept).tolist() == list(range(5))


def test_files_of_one_place_are_dated_by_one_clock(store: Store) -> None:
    for name in ("a", "b"):
        store.write_document(f"{name}.json", {})
    assert 0 <= store.storage.written_at("b.json") - store.storage.written_at("a.json") < 60


def test_the_end_of_a_run_takes_its_scratch_along(store: Store) -> None:
    run = Store(store.location)
    run.put(f"{run.scratch()}/x", np.arange(5))
    run.begin(run.plan("answers/a", (5,), np.int64))
    kept = run.put("kept", np.arange(5))
    store.sweep()
    run.close()
    left = {name for name in names(store) if not name.startswith(f"leases/{store.lease}")}
    assert {name.partition("/")[0] for name in left} == {"kept"}
    assert store.read_array(kept).tolist() == list(range(5))


def test_a_handle_that_nobody_has_any_more_is_ended_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage is collected in any thread: in that of a server, for one, which the deletion asks."""
    answered, clear, done = threading.Event(), leases.clear, threading.Event()

    def slowly(*arguments: Any) -> None:
        assert answered.wait(HANGS)
        clear(*arguments)
        done.set()

    monkeypatch.setattr(leases, "clear", slowly)
    run = Store(tmp_path / "store")
    scratch = Path(run.location, run.put(f"{run.scratch()}/x", np.arange(5)).plan.name)
    gone = weakref.ref(run)
    del run
    assert gone() is None
    assert scratch.is_dir()
    answered.set()
    assert done.wait(HANGS)
    assert not scratch.exists()


def test_a_process_ends_with_its_leases(tmp_path: Path) -> None:
    """Whatever the handle is held by."""
    assert forked_programs.finished(HOLDS, tmp_path / "store").returncode == 0
    assert names(Store(tmp_path / "store")) == set()


def test_a_damaged_lease_is_watched_like_scratch_that_nobody_holds(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run = Store(store.location)
    run.put(f"{run.scratch()}/x", np.arange(5))
    Path(store.location, f"leases/{run.lease}/lease.json").write_bytes(b"")
    assert store.sweep() == 0


def test_the_number_of_a_process_that_was_given_away_again_is_not_the_process() -> None:
    here = leases.this_process()
    assert here.lives is True
    assert replace(here, started="1").lives is False
    assert replace(here, started="1", boot="another").lives is None
    assert replace(here, started="1", space="pid:[1]").lives is None


@pytest.mark.parametrize("call", ["list", "list_with_delimiter", "delete", "head"])
def test_an_object_store_that_fails_for_a_while_is_told_in_its_own_words_and_ends_no_lease(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A thread that dies of a listing would leave its live run's scratch to be swept by another machine."""
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.01)
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    store = Store(f"{s3}/{tmp_path.name}-{call}")
    store.put(f"{store.scratch()}/in-use", np.arange(10))
    store.write_document("leases/of-another/begun/x.json", {"name": "arrays/x"})
    failed = threading.Event()

    def raise_slow_down(*_: Any, **__: Any) -> Any:
        failed.set()
        raise obstore.exceptions.GenericError("<html>503 SlowDown</html>")

    with monkeypatch.context() as patch:
        patch.setattr(obstore, call, raise_slow_down)
        for step in (
            lambda: store.sweep(),
            lambda: store.names(""),
            lambda: store.folders("leases"),
            lambda: store.delete("leases/of-another"),
        ):
            with suppress(StoreError):
                step()
        assert failed.wait(10)
    beat = f"leases/{store.lease}/beat.json"
    until = time.monotonic() + 10
    counts: set[int] = set()
    while len(counts) < 2 and time.monotonic() < until:
        counts |= {store.read_document(beat)["beat"]} if store.has_document(beat) else set()
    assert len(counts) == 2
    assert died == []


def test_a_listing_that_fails_is_one_line(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"{s3}/{tmp_path.name}")

    def raise_slow_down(*_: Any, **__: Any) -> Any:
        raise obstore.exceptions.GenericError("<html>503 SlowDown</html>")

    for call in ("list", "list_with_delimiter"):
        monkeypatch.setattr(obstore, call, raise_slow_down)
    for listing in (store.names, store.folders):
        with pytest.raises(
            StoreError, match="'measurements' in the store s3://.* could not be listed: GenericError; check the bucket"
        ):
            listing("measurements")


def test_a_lease_that_ends_while_it_is_looked_at_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = Documents(tmp_path)
    documents.write_document("scratch/gone/x.json", {})

    def vanished(*_: object) -> None:
        raise StoreError("its folder is gone")

    monkeypatch.setattr(Documents, "write_document", vanished)
    assert leases.sweep(documents, None) == 0
