"""Sign-offs in the ledger's chain, on SQLite and PostgreSQL, and on the command line."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from dpdist.errors import InvalidInput, KeyUnavailable, LedgerError
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import approvals, database
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.budget_ledger import Charge, Counted, CountedRecords, Ledger, open_ledger
from dpdist.privacy.ledger.rules.ledger_state import LedgerEvent
from dpdist.privacy.privacy_unit import ProtectedRecords
from flows.commands import cli
from tests.support import small_release

CAP, PROTECTION = Cap(rho=Fraction(1)), ProtectedRecords("add-remove", 1)


def charge(release: str, asked: str = "spec", dataset: str = "people") -> Charge:
    return Charge(
        release=release,
        dataset=dataset,
        loss=Loss.gaussian(Fraction(1, 10)),
        cap=CAP,
        protection=PROTECTION,
        spec_digest="binding",
        approval_digest=asked,
        counted=Counted(lambda _: "counts", CountedRecords(f"records of {release}")),
    )


def signers(folder: Path, count: int) -> list[tuple[str, Path]]:
    """Public keys and the files of private ones."""
    paths = [folder / f"approver-{number}.pem" for number in range(count)]
    return [(approvals.new_key(path), path) for path in paths]


def sign(ledger: Ledger, path: Path, release: str, spec: str = "spec", dataset: str = "people") -> tuple[int, int]:
    key = approvals.load_key(path)
    signed = approvals.signature(key, dataset, release, spec)
    return ledger.approve(dataset, release, spec, key=approvals.public_of(key), signature=signed)


def test_a_release_needs_the_approvals_that_its_data_set_asks_for(ledger: Ledger, tmp_path: Path) -> None:
    (first, a), (second, b), (stranger, c) = signers(tmp_path, 3)
    ledger.reserve(charge("before"))
    ledger.set_approvers("people", Approvers((first, second), 2), "agreed on")
    ledger.set_approvers("people", Approvers((first, second), 2), "agreed on")  # asked for twice, kept once
    assert not ledger.reserve(charge("before")).charged  # charged before: it goes on
    for refused in (ledger.reserve, ledger.rehearse):
        with pytest.raises(LedgerError, match="'r1' needs 2 approvals of its spec as it is now, found 0; have approvers"):
            refused(charge("r1"))
    assert [sign(ledger, a, "r1"), sign(ledger, a, "r1"), sign(ledger, b, "r1", "another spec")] == [(1, 2), (1, 2), (1, 2)]
    with pytest.raises(LedgerError, match="needs 2 approvals of its spec as it is now, found 1"):
        ledger.reserve(charge("r1"))
    with pytest.raises(LedgerError, match=f"the key {stranger} is no approver's of 'people'"):
        sign(ledger, c, "r1")
    assert sign(ledger, b, "r1") == (2, 2)
    with pytest.raises(LedgerError, match="found 0"):
        ledger.reserve(charge("r2"))  # of another release
    assert ledger.reserve(charge("r1")).charged
    ledger.set_approvers("people", Approvers((), 0), "no longer")
    assert ledger.reserve(charge("r3")).charged
    assert ledger.verify().releases == 3


def test_events_of_approvals_are_numbered_from_one(ledger: Ledger, tmp_path: Path) -> None:
    """The number is part of the row's key: of two steps that write the same one at the same time, one fails and is tried again."""
    (first, a), (second, b) = signers(tmp_path, 2)
    ledger.declare("people", CAP, PROTECTION)
    for needed in (2, 1, 0, 2):
        ledger.set_approvers("people", Approvers((first, second), needed), "agreed on")
    for path, release, spec in ((a, "r1", "spec"), (b, "r1", "spec"), (a, "r2", "spec"), (a, "r1", "another spec")):
        sign(ledger, path, release, spec)
    assert [(row["event"], row["release"], row["attempt"]) for row in ledger.entries()] == [
        ("declared", "budget of people", 1),
        *(("approvers", "approvers of people", number) for number in (1, 2, 3, 4)),
        *(("approved", release, number) for release, number in (("r1", 1), ("r1", 2), ("r2", 1), ("r1", 3))),
    ]


def test_an_approval_is_of_one_data_set_and_signed(ledger: Ledger, tmp_path: Path) -> None:
    ((key, path),) = signers(tmp_path, 1)
    for dataset in ("people", "others"):
        ledger.declare(dataset, CAP, PROTECTION)
        ledger.set_approvers(dataset, Approvers((key,), 1), "agreed on")
    signed = approvals.signature(approvals.load_key(path), "people", "r1", "spec")
    for dataset, release, spec in (("others", "r1", "spec"), ("people", "r2", "spec"), ("people", "r1", "other")):
        with pytest.raises(LedgerError, match="is not of the key .* sign it again"):
            ledger.approve(dataset, release, spec, key=key, signature=signed)
    sign(ledger, path, "r1", dataset="others")
    with pytest.raises(LedgerError, match="found 0"):
        ledger.reserve(charge("r1"))
    ledger.verify()


@pytest.mark.parametrize("forged", ["signature", "key", "charge"])
def test_verify_finds_what_nobody_approved(url: str, tmp_path: Path, forged: str) -> None:
    """Rows that another program appends to the chain, with right digests."""
    (first, path), (second, _) = signers(tmp_path, 2)
    book = Ledger(url)
    book.declare("people", CAP, PROTECTION)
    book.reserve(charge("r0"))
    reserved = book.entries()[-1]["facts"]
    book.set_approvers("people", Approvers((first,), 1), "agreed on")
    sign(book, path, "r1")
    book.verify()
    signed = approvals.signature(approvals.load_key(path), "people", "r2", "spec")
    false = {
        "signature": ("approved", {"spec": "other", "key": first, "signature": signed}),
        "key": ("approved", {"spec": "spec", "key": second, "signature": signed}),
        "charge": ("reserved", {**reserved, "asked": "spec"}),
    }
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        event, facts = false[forged]
        database.append(connection, LedgerEvent(event, "people", "r2", 1, facts))
    engine.dispose()
    with pytest.raises(LedgerError, match=f"'{false[forged][0]}' of 'r2' breaks the ledger's rules"):
        book.verify()
    book.close()


@pytest.mark.parametrize(("keys", "needed"), [((), 1), (("ab" * 32,) * 2, 1), (("x",), 1), (("ab" * 32,), -1)])
def test_approvers_that_cannot_be(keys: tuple[str, ...], needed: int) -> None:
    with pytest.raises(InvalidInput, match="approv"):
        Approvers(keys, needed)


def test_keys_of_approvers_are_private(tmp_path: Path) -> None:
    ((_, path),) = signers(tmp_path, 1)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyUnavailable, match="name a new file"):
        approvals.new_key(path)
    path.chmod(0o640)
    with pytest.raises(KeyUnavailable, match="can be read by others"):
        approvals.load_key(path)
    path.write_text("no key")
    path.chmod(0o600)
    with pytest.raises(KeyUnavailable, match="holds no Ed25519 private key"):
        approvals.load_key(path)
    with pytest.raises(KeyUnavailable, match="cannot be read"):
        approvals.load_key(tmp_path / "absent.pem")


def test_the_command_line_approves(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Made, asked for, refused before counting and by 'plan', approved with what is measured beside it, published; the rows as JSON Lines
    hold no secret.
    """
    persons = {"path": "records.parquet", "person": {"column": "person"}}
    path, key = small_release.write(home.parent / "data", records=persons, left_out={}), home.parent / "key.pem"
    monkeypatch.setenv("DPDIST_OUTPUT", str(home.parent / "out"))

    def command_output(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.app([*words])
        assert ended.value.code in (0, None)
        return capsys.readouterr().out

    public = command_output("keys", "approver", str(key)).strip()
    command_output("ledger", "declare", str(path))
    asked = command_output("ledger", "approvers", "small", "--key", public, "--needed", "1", "--why", "agreed on")
    assert "releases need 1 approvals of 1 approvers" in asked
    with pytest.raises(LedgerError, match="'small-1' needs 1 approvals"):
        small_release.run(path, home)
    assert not (home / "store" / "histograms").exists()  # refused before anything was counted
    assert "1 of 1 approvals" in command_output("approve", str(path), "--key", str(key))
    assert small_release.run(path, home).charged
    exported = command_output("ledger", "export", "--lines")
    with open_ledger(home) as book:
        assert [json.loads(line) for line in exported.splitlines()] == book.entries()
    assert [json.loads(line)["event"] for line in exported.splitlines()][:3] == ["declared", "approvers", "approved"]
    secrets = ((home / "root.key").read_text().strip(), key.read_text().splitlines()[1])
    assert not any(secret in exported for secret in secrets)
