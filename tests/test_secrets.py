"""Root key, salt and release key leave no trace: everything a real run writes, prints, sends or raises is searched."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from distributed import Client, LocalCluster

from dpdist import engine
from dpdist.engine import task_queue, tasks
from dpdist.errors import DpdistError, InvalidSpec, TaskFailed, UnknownValue
from dpdist.pipeline import release_run
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import Sizes
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import always
from tests.support import forked_programs, small_release
from tests.support.prefect_server import flow_server


def secrets_of(home: Path) -> dict[str, bytes]:
    """The three secrets of a reserved release."""
    root = keys.load(home)
    with open_ledger(home) as ledger:
        receipt = ledger.receipt("small-1")
    assert receipt is not None
    assert receipt.salt is not None
    key = keys.release_key(
        root,
        salt=receipt.salt,
        release="small-1",
        spec_digest=receipt.spec_digest,
        histogram_digest=small_release.counts_digest(home),
    )
    return {"root key": root.reveal(), "salt": receipt.salt, "release key": key.reveal()}


def secrets_in(content: bytes, secrets: dict[str, bytes]) -> list[str]:
    """Secrets that occur in a content: raw, hexadecimal, base 64, or as Python prints bytes, lists and integers."""
    names = []
    for name, secret in secrets.items():
        texts = [
            secret.hex(),
            secret.hex().upper(),
            repr(secret)[2:-1],
            str(list(secret))[1:-1],
            str(int.from_bytes(secret, "big")),
        ]
        texts += [base64.b64encode(secret).decode()[:-1], base64.urlsafe_b64encode(secret).decode()[:-1]]
        if secret in content or any(text.encode() in content for text in texts):
            names.append(name)
    return names


def searched(folder: Path, secrets: dict[str, bytes], *, but: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Files below a folder in which a secret occurs."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name not in but]
    assert files
    hits = {str(f.relative_to(folder)): secrets_in(f.read_bytes(), secrets) for f in files}
    return {name: hit for name, hit in hits.items() if hit}


def test_the_search_finds_what_it_looks_for() -> None:
    secret = {"it": os.urandom(32)}
    for content in (
        b"x" + secret["it"] + b"y",
        secret["it"].hex().encode(),
        str(secret).encode(),
        str(list(secret["it"])).encode(),
        base64.b64encode(b"" + secret["it"]),
        cloudpickle.dumps({"a": secret["it"]}),
    ):
        assert secrets_in(content, secret) == ["it"]
    assert secrets_in(os.urandom(1000), secret) == []


@contextmanager
def recording_flow_server(home: Path) -> Iterator[dict[str, str]]:
    """A Prefect server that keeps all that it is told in files, log, states and events, and the environment of its clients."""
    with flow_server(home / "prefect") as (api, _):
        yield {"PREFECT_API_URL": api, "PREFECT_LOGGING_LEVEL": "DEBUG", "PREFECT_LOGGING_TO_API_ENABLED": "true"}


BROKEN_RUN = """
import sys
from dpdist.privacy.noise import Noise
def draw(self, key, *, start=0, count):
    raise RuntimeError("the sampler broke")
Noise.draw = draw
from flows.commands.cli import main
main()
"""


@pytest.mark.parametrize(
    "broken", [pytest.param(False, id="finished"), pytest.param(True, id="crashed in the draw", marks=pytest.mark.slow)]
)
def test_a_real_run_leaves_no_secret(home: Path, broken: bool) -> None:
    """The command with its debug log: Prefect's database and log, Dask's workers, store, ledger, tables, page, traceback."""
    path = small_release.write(home.parent / "data")
    small_release.reserved(path, home)
    secrets = secrets_of(home)
    assert secrets_in((home / "ledger.db").read_bytes(), secrets) == ["salt"]  # while it runs, and nowhere else
    assert searched(home, secrets, but=("root.key", "ledger.db")) == {}
    with recording_flow_server(home) as environment:
        done = forked_programs.finished(
            BROKEN_RUN if broken else "flows.commands.cli", "--debug", "run", path, **environment
        )
    assert (done.returncode != 0) == broken
    if broken:
        assert "the sampler broke" in done.stderr
        assert "Traceback" in done.stderr
    assert secrets_in((done.stdout + done.stderr).encode(), secrets) == []
    kept = ("root.key", "ledger.db") if broken else ("root.key",)
    assert searched(home, secrets, but=kept) == {}
    if not broken:
        assert searched(Path("releases"), secrets) == {}


@pytest.mark.usefixtures("without_tls")
def test_no_task_and_no_repr_holds_a_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is sent to Dask workers, and every object a user can print."""
    path = small_release.write(home.parent / "data")
    small_release.reserved(path, home)
    secrets = secrets_of(home)
    shutil.rmtree(home / "store" / "histograms")
    sent: list[bytes] = []
    shown: list[str] = []
    for name in ("map", "on_largest_worker"):
        original = getattr(engine.Engine, name)

        def spy(self: engine.Engine, *arguments: Any, _original: Any = original, **options: Any) -> Any:
            sent.append(cloudpickle.dumps(arguments))
            return _original(self, *arguments, **options)

        monkeypatch.setattr(engine.Engine, name, spy)
    original_reserve = Ledger.reserve

    def reserve(self: Ledger, charge: Any) -> Any:
        receipt = original_reserve(self, charge)
        shown.extend([repr(receipt), str(receipt), repr(charge), repr(self)])
        return receipt

    monkeypatch.setattr(Ledger, "reserve", reserve)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        context = Context(home, Store(home / "store"), started, ignore_progress)
        done = release_run.release(context, load(path))
        shown += [repr(context), repr(done), repr(done.plan), str(vars(done)), repr(keys.load(home))]
    assert len(sent) >= 4
    for content in [*sent, *(text.encode() for text in shown)]:
        assert secrets_in(content, secrets) == []


@pytest.mark.usefixtures("without_tls")
def test_noise_workers_tell_no_secret(home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What they are sent, what they answer and leave in the store, logs, events and states of scheduler and workers.

    They hold the keys: what is sent names the counts past the scheduler only.
    """
    sizes = Sizes(shard_bytes=8 * 16)
    path = small_release.write(home.parent / "data", mechanism="identity")
    small_release.reserved(path, home, sizes=sizes)
    secrets = secrets_of(home)
    sent: list[bytes] = []
    exchanged: list[bytes] = []
    drawn: list[str] = []

    def mapped(self: Client, *arguments: Any, _original: Any = Client.map, **options: Any) -> Any:
        sent.append(cloudpickle.dumps((arguments, options)))
        return _original(self, *arguments, **options)

    def put(self: Store, name: str, block: Any, _original: Any = Store.put_block) -> str:
        exchanged.append(block.tobytes())
        return str(_original(self, name, block))

    def progress(stage: str, line: str) -> None:
        drawn.append(f"{stage}: {line}")

    monkeypatch.setattr(Client, "map", mapped)
    monkeypatch.setattr(Store, "put_block", put)
    with (
        caplog.at_level("DEBUG"),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", resources={"noise": 1}
        ) as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        release_run.release(Context(home, Store(home / "store", sizes), started, progress), load(path, sizes=sizes))
        seen = [started.client.get_scheduler_logs(), started.client.get_worker_logs(), cluster.scheduler.transition_log]
        seen += [cluster.scheduler._broker._topics, [repr(t.run_spec) for t in cluster.scheduler.tasks.values()]]
        seen += [[repr((each.state.tasks, each.state.data, each.state.log)) for each in cluster.workers.values()]]
    assert "measure: 5 of 5 parts drawn by workers" in drawn
    told = [*sent, caplog.text.encode(), "".join(drawn).encode(), *(repr(each).encode() for each in seen)]
    for content in [*told, *exchanged]:
        assert secrets_in(content, secrets) == []
    assert searched(home, secrets, but=("root.key",)) == {}
    counts = small_release.counts_digest(home).encode()
    assert [counts in b"".join(contents) for contents in (told, exchanged)] == [False, True]


THROUGH_THE_STORE: dict[str, tuple[dict[str, Any], Sizes]] = {
    "cells": ({"mechanism": "identity"}, Sizes(shard_bytes=8 * 16)),
    "product": (
        {"workload": [{"ranges": {"of": ["age"], "by": ["sex", "work"]}}], "mechanism": "kronecker"},
        Sizes(streamed_cells=10, shard_bytes=8 * 30),
    ),
}


@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize("case", THROUGH_THE_STORE)
def test_the_scheduler_is_told_no_digest_of_exact_values(home: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by what is sent nor by what comes back: a guess of the counts could be tested with one. However small a stage is."""
    changes, sizes = THROUGH_THE_STORE[case]
    path = small_release.write(home.parent / "data", **changes)
    passed: list[bytes] = []
    exact: set[str] = set()

    def mapped(self: Client, *arguments: Any, _original: Any = Client.map, **options: Any) -> Any:
        passed.append(cloudpickle.dumps((arguments, options)))
        return _original(self, *arguments, **options)

    def result(future: Any, _original: Any = task_queue.result_of) -> Any:
        found = _original(future)
        passed.append(cloudpickle.dumps(found))
        return found

    def finish(self: Store, plan: Any, digests: Any, facts: Any = None, _original: Any = Store.finish) -> Any:
        if not plan.name.startswith(("measurements/", "answers/")):
            exact.update(digests)
        return _original(self, plan, digests, facts)

    monkeypatch.setattr(Client, "map", mapped)
    monkeypatch.setattr(task_queue, "result_of", result)
    monkeypatch.setattr(Store, "finish", finish)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        release_run.release(Context(home, Store(home / "store", sizes), started, ignore_progress), load(path, sizes=sizes))
    assert len(exact) > 1
    assert len(passed) > 4
    assert [digest for digest in exact if digest.encode() in b"".join(passed)] == []


PERSON = "alice.lidell@example.org"
ROWS = 1_306_927
DROPPED = 294_871


def private_records(folder: Path, fault: str) -> Path:
    """Records with numbers that are easily found again, and a spec; with one fault."""
    folder.mkdir(parents=True)
    state = np.random.default_rng(5)
    sex = np.where(np.arange(ROWS) < DROPPED, "x", state.choice(["f", "m"], ROWS))
    outside = "error" if fault == "unknown value" else "drop"
    content = small_release.spec(
        domain={"sex": {"categories": ["f", "m"], "outside": outside}}, workload=[{"marginals": {"ways": [1]}}]
    )
    if fault == "open quote":
        content["records"] = {"path": "records.csv"}
        (folder / "records.csv").write_text(f'sex,mail\nf,b\nm,"{PERSON}\n')
    else:
        content["records"] = {"path": "records.parquet", "most_missing": "100%"}
        pyarrow.parquet.write_table(pa.table({"sex": sex}), folder / "records.parquet")
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def told_of_records(content: bytes, home: Path, records: Path) -> list[str]:
    """Rows, counts, tallies, and digests of counts and of records that occur in a content."""
    numbers = [ROWS, DROPPED, ROWS - DROPPED]
    texts = [PERSON, hashlib.sha256(PERSON.encode()).hexdigest(), *(str(n) for n in numbers), *(f"{n:,}" for n in numbers)]
    files = [f for f in records.iterdir() if f.suffix in (".parquet", ".csv")]
    texts += [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]
    for whole in (home / "store" / "histograms").rglob("manifest.json"):
        found = json.loads(whole.read_text())
        texts += [found["digest"], *found["shard_digests"]]
    return [text for text in texts if text.encode() in content]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("none", marks=pytest.mark.slow),
        "open quote",
        pytest.param("unknown value", marks=pytest.mark.slow),
    ],
)
def test_prefect_is_told_nothing_of_the_records(home: Path, fault: str) -> None:
    """Its database (states, logs, artifacts) and the terminal, after success and after failures of reading."""
    path = private_records(home.parent / "data", fault)
    with recording_flow_server(home) as environment:
        done = forked_programs.finished("flows.commands.cli", "run", path, **environment, DPDIST_ENGINE="inline")
    assert done.returncode == (fault != "none"), done.stderr
    kept = b"".join(f.read_bytes() for f in (home / "prefect").rglob("*") if f.is_file())
    assert b"count" in kept  # the stage's name: something was kept
    assert told_of_records(kept, home, path.parent) == []
    assert b"groups of partitions" not in kept  # how many row groups there are
    told = done.stdout + done.stderr
    if fault == "none":
        assert f"{ROWS:,} records read, {DROPPED:,} dropped" in done.stderr  # the operator's own line
        told = done.stdout
    assert told_of_records(told.encode(), home, path.parent) == []


@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize("fault", always(["unknown value"], ["none", "open quote", "unknown value"]))
def test_dask_is_told_nothing_of_the_records(
    home: Path, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Results of tasks, logs, events and errors of scheduler and workers."""
    path = private_records(home.parent / "data", fault)
    seen: list[Any] = []
    original = task_queue.result_of

    def result(future: Any) -> Any:
        found = original(future)
        seen.append(cloudpickle.dumps(found))
        return found

    monkeypatch.setattr(task_queue, "result_of", result)
    with (
        caplog.at_level("DEBUG"),
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        context = Context(home, Store(home / "store"), started, ignore_progress)
        with contextlib.nullcontext() if fault == "none" else pytest.raises(DpdistError):
            release_run.release(context, load(path))
        scheduler = cluster.scheduler
        seen += [started.client.get_scheduler_logs(), started.client.get_worker_logs(), scheduler.transition_log]
        seen += [dict(scheduler.events) if hasattr(scheduler, "events") else scheduler._broker._topics]
        seen += [[(t.exception_text, t.traceback_text, repr(t.run_spec)) for t in scheduler.tasks.values()]]
    assert fault != "none" or len(seen) > 5
    content = caplog.text.encode() + b"".join(s if isinstance(s, bytes) else repr(s).encode() for s in seen)
    assert told_of_records(content, home, path.parent) == []
    assert b"Tally" not in content


def test_an_unknown_value_keeps_no_count() -> None:
    error = UnknownValue("sex", "records.parquet")
    assert not any(type(argument) is int for argument in error.args)
    assert pickle.loads(pickle.dumps(error)).args == error.args


def fails(item: str) -> None:
    raise RuntimeError(f"invalid literal: {item}")


def test_a_task_s_error_quotes_nothing() -> None:
    """Neither its own text nor that of the errors behind it."""
    with pytest.raises(TaskFailed, match=r"^RuntimeError at test_secrets.py:\d+; its text is not shown") as found:
        tasks.without_data(fails, PERSON)
    assert PERSON not in repr(found.value)
    assert found.value.__context__ is None
    assert found.value.__cause__ is None


def refuses(item: str) -> None:
    try:
        fails(item)
    except RuntimeError as error:
        raise InvalidSpec("a row cannot be read") from error


def test_what_a_task_refuses_has_no_error_behind_it() -> None:
    """The error that it was made from may quote a record."""
    with pytest.raises(InvalidSpec, match="^a row cannot be read$") as found:
        tasks.fetch_result(None, tasks.without_data(refuses, PERSON))
    assert found.value.__context__ is None
    assert found.value.__cause__ is None
