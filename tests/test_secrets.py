"""Root key, salt and release key leave no trace: everything a real run writes, prints, sends or raises is searched."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import LocalCluster

from dpdist import engine, stages
from dpdist.privacy import keys
from dpdist.privacy.ledger import Ledger, opened
from dpdist.spec import load
from dpdist.store import Store
from tests import small


def secrets_of(home: Path) -> dict[str, bytes]:
    """The three secrets of a reserved release."""
    root = keys.load(home)
    with opened(home) as ledger:
        receipt = ledger.receipt("small-1")
    assert receipt is not None
    assert receipt.salt is not None
    key = keys.release_key(
        root,
        salt=receipt.salt,
        release="small-1",
        spec_digest=receipt.spec_digest,
        histogram_digest=receipt.histogram_digest,
    )
    return {"root key": root.reveal(), "salt": receipt.salt, "release key": key.reveal()}


def found_in(content: bytes, secrets: dict[str, bytes]) -> list[str]:
    """Secrets that occur in a content: raw, hexadecimal, base 64, or as Python prints bytes, lists and integers."""
    out = []
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
            out.append(name)
    return out


def searched(folder: Path, secrets: dict[str, bytes], *, but: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Files below a folder in which a secret occurs."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name not in but]
    assert files
    hits = {str(f.relative_to(folder)): found_in(f.read_bytes(), secrets) for f in files}
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
        assert found_in(content, secret) == ["it"]
    assert found_in(os.urandom(1000), secret) == []


BROKEN_RUN = """
import sys
from dpdist.privacy.noise import Noise
def draw(self, key, *, start=0, count):
    raise RuntimeError("the sampler broke")
Noise.draw = draw
from flows.cli import main
main()
"""


@pytest.mark.parametrize("broken", [False, True], ids=["finished", "crashed in the draw"])
def test_a_real_run_leaves_no_secret(home: Path, broken: bool) -> None:
    """The command with its debug log: Prefect's database and log, Dask's workers, store, ledger, tables, page, traceback."""
    path = small.write(home.parent / "data")
    small.reserved(path, home)
    secrets = secrets_of(home)
    assert found_in((home / "ledger.db").read_bytes(), secrets) == ["salt"]  # while it runs, and nowhere else
    assert searched(home, secrets, but=("root.key", "ledger.db")) == {}
    environment = {**os.environ, "PREFECT_LOGGING_LEVEL": "DEBUG", "PREFECT_LOGGING_TO_API_ENABLED": "true"}
    program = ["-c", BROKEN_RUN] if broken else ["-m", "flows.cli"]
    done = subprocess.run(
        [sys.executable, *program, "--debug", "run", str(path)], capture_output=True, check=False, env=environment
    )
    assert (done.returncode != 0) == broken
    if broken:
        assert b"the sampler broke" in done.stderr
        assert b"Traceback" in done.stderr
    assert found_in(done.stdout + done.stderr, secrets) == []
    kept = ("root.key", "ledger.db") if broken else ("root.key",)
    assert searched(home, secrets, but=kept) == {}
    if not broken:
        assert searched(Path("releases"), secrets) == {}


@pytest.mark.usefixtures("without_tls")
def test_no_task_and_no_repr_holds_a_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is sent to Dask workers, and every object a user can print."""
    path = small.write(home.parent / "data")
    small.reserved(path, home)
    secrets = secrets_of(home)
    shutil.rmtree(home / "store" / "histograms")
    sent: list[bytes] = []
    shown: list[str] = []
    for name in ("map", "heavy"):
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
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        engine.started(cluster.scheduler_address) as started,
    ):
        context = stages.Context(home, Store(home / "store"), started, stages.silent)
        done = stages.release(context, load(path))
        shown += [repr(context), repr(done), repr(done.plan), str(vars(done)), repr(keys.load(home))]
    assert len(sent) >= 4
    for content in [*sent, *(text.encode() for text in shown)]:
        assert found_in(content, secrets) == []
