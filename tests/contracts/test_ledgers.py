"""The two databases keep the same ledger: the same lives of releases leave the same rows, receipts, sums and refusals."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import DpdistError
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger.budget_ledger import Ledger, Receipt
from tests.privacy.test_budget_ledger import charge, commit, drawing, stream_charge
from tests.support.postgres_server import Server

MIXED = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
WEEKLY = Cap(rho=Fraction(1, 5), per="week")
SCRIPT: list[Callable[[Ledger], Any]] = [
    lambda ledger: ledger.rehearse(charge("a")),
    lambda ledger: ledger.reserve(charge("a")),
    lambda ledger: ledger.reserve(charge("a", histogram="other")),
    lambda ledger: ledger.reserve(charge("b", rho=Fraction(1, 4))),
    lambda ledger: drawing(ledger, "a"),
    lambda ledger: ledger.abort("a"),
    lambda ledger: commit(ledger, "a"),
    lambda ledger: commit(ledger, "a", "another"),
    lambda ledger: ledger.reserve(charge("b")),
    lambda ledger: ledger.abort("b"),
    lambda ledger: commit(ledger, "b"),
    lambda ledger: ledger.reserve(charge("b", spec_digest="changed")),
    lambda ledger: ledger.begin_drawing("b", 1, "of another attempt"),
    lambda ledger: ledger.reserve(charge("c", cap=Cap(rho=Fraction(1)))),
    lambda ledger: ledger.set_cap("people", cap=Cap(rho=Fraction(1)), why="one more year"),
    lambda ledger: ledger.reserve(charge("c", cap=Cap(rho=Fraction(1)))),
    lambda ledger: ledger.reserve(charge("w", dataset="weeks", cap=WEEKLY, period="2026-03-02")),
    lambda ledger: ledger.reserve(charge("x", dataset="weeks", cap=WEEKLY, period="2026-03-08", histogram="next")),
    lambda ledger: ledger.reserve(charge("y", dataset="weeks", cap=WEEKLY, period="2026-03-08", histogram="third")),
    lambda ledger: ledger.reserve(charge("p", dataset="mixed", cap=MIXED, loss=Loss.laplace(Fraction(1, 3)))),
    lambda ledger: ledger.reserve(charge("q", dataset="mixed", cap=MIXED, rho=Fraction(1, 10**6))),
    lambda ledger: ledger.reserve(charge("q2", dataset="mixed", cap=MIXED, loss=Loss.laplace(Fraction(2, 3)))),
    lambda ledger: ledger.reserve(stream_charge("s", 0, 3, dataset="series")),
    lambda ledger: commit(ledger, drawing(ledger, "s").release),
    lambda ledger: ledger.reserve(stream_charge("t", 3, 5, dataset="series")),
    lambda ledger: ledger.reserve(stream_charge("u", 9, 12, dataset="series")),
    lambda ledger: ledger.receipt("a"),
    lambda ledger: ledger.receipt("nobody"),
    lambda ledger: ledger.stream("series", "hours"),
    lambda ledger: ledger.budgets(charges=True),
    lambda ledger: ledger.budget_after("s"),
    lambda ledger: ledger.charges("mixed", "total"),
    lambda ledger: (ledger.verify().rows, ledger.verify().releases, ledger.verify().running),
]


def lived(url: str, patch: pytest.MonkeyPatch) -> list[Any]:
    """What every step returned or how it was refused, and all rows without their times and what is hashed of these.

    What is drawn at random is a function of the step: a transaction may be tried again, and then draws once more.
    """
    ledger, out = Ledger(url), []
    for number, step in enumerate(SCRIPT):
        patch.setattr("dpdist.privacy.ledger.budget_ledger._new_salt", lambda number=number: bytes([number] * 32))
        patch.setattr("dpdist.privacy.ledger.budget_ledger.uuid.uuid4", lambda number=number: uuid.UUID(int=number))
        try:
            found = step(ledger)
        except DpdistError as error:
            found = f"{type(error).__name__}: {error}"
        out.append([_unbound(one) for one in found] if isinstance(found, list) else _unbound(found))
    times = ("written_at", "previous", "digest")
    rows = [{name: value for name, value in row.items() if name not in times} for row in ledger.entries()]
    ledger.close()
    return [*out, *rows]


def _unbound(found: Any) -> Any:
    """A receipt without the digest of its row."""
    return replace(found, binding="") if isinstance(found, Receipt) else found


def test_sqlite_and_postgresql_keep_the_same_ledger(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (lived(url, monkeypatch) for url in (f"sqlite:///{tmp_path / 'ledger.db'}", postgres.database()))
    for step, (found, expected) in enumerate(zip(one, other, strict=True)):
        assert found == expected, f"step {step}"
    refused = [found for found in one if isinstance(found, str)]
    assert len(refused) >= 9
