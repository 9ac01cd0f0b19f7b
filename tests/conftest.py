from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpdist.privacy import keys
from tests.postgres import Server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own, with a root key; the current folder is beside it."""
    folder = tmp_path / "home"
    monkeypatch.setenv("DPDIST_HOME", str(folder))
    for name in (keys.ENVIRONMENT, keys.FILE_ENVIRONMENT, "DPDIST_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    keys.initialise(folder)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return folder


@pytest.fixture
def fixed_noise(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same root key and salt in every run: statistical tests of whole releases draw the same noise each time."""
    (home / "root.key").write_text("5c" * 32 + "\n")
    monkeypatch.setattr("dpdist.privacy.ledger._new_salt", lambda: bytes(range(32)))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server for the whole session; every test takes a database of its own."""
    server = Server()
    yield server
    server.remove()
