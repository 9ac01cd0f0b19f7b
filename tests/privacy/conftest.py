from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpdist.privacy.ledger.budget_ledger import Ledger
from tests.support.postgres_server import Server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of its own, of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """An empty ledger in it."""
    book = Ledger(url)
    yield book
    book.close()
