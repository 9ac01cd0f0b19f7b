"""A ledger that lacks what the store holds, and a store that lacks what the ledger knows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.errors import LedgerError, StoreError
from dpdist.pipeline import release_run
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import Ledger, Receipt, open_ledger
from dpdist.runtime import reconciliation
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.command_line import CommandLine

WEEKLY = {"dataset": "weekly", "cap": {"rho": 0.1, "per": "week"}}


def test_an_emptied_ledger_is_refused(home: Path) -> None:
    """Also when the store's mark is gone."""
    path = small_release.write(home.parent / "data")
    small_release.run(path, home)
    (home / "ledger.db").unlink()
    other = small_release.write(home.parent / "other", release="other")
    with pytest.raises(LedgerError, match="emptied or lost.*Restore the newest backup"):
        small_release.run(other, home)
    (home / "store" / "ledger.json").unlink()
    with pytest.raises(LedgerError, match="'small-1' that this ledger has not charged"):
        small_release.run(other, home)


def test_a_store_without_a_mark_whose_releases_are_charged_goes_on(home: Path) -> None:
    """As after a kill before it was written; also with a folder of a release that was killed before it was measured."""
    small_release.run(small_release.write(home.parent / "data"), home)
    (home / "store" / "ledger.json").unlink()
    (home / "store" / "measurements" / "killed").mkdir()
    assert small_release.run(small_release.write(home.parent / "other", release="other"), home).charged
    assert (home / "store" / "ledger.json").exists()


@pytest.mark.parametrize("form", slow_after_first(1, [None, 0, 2]))
def test_a_store_of_another_format_is_refused_in_one_line(home: Path, form: int | None) -> None:
    """Before a charge, whether it is older or newer."""
    small_release.run(small_release.write(home.parent / "data"), home)
    store = Store(home / "store")
    known = store.read_document("ledger.json")
    assert known["format"] == reconciliation.FORMAT
    store.write_document("ledger.json", {**known, "format": form})
    other = small_release.write(home.parent / "other", release="other")
    reason = (
        "was written by a later version of dpdist .*its form is 2"
        if form == 2
        else f"has format {form}, and this version of dpdist"
    )
    with pytest.raises(StoreError, match=rf"the store .* {reason}.*: use") as refused:
        small_release.run(other, home)
    assert "\n" not in str(refused.value)
    with open_ledger(home) as ledger:
        assert ledger.receipt("other") is None


def test_a_store_that_was_emptied_or_exchanged_is_refused_until_it_is_begun(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could not tell whether the ledger was rolled back, too. The way out that the message names works, and asks for an empty store."""
    small_release.run(small_release.write(home.parent / "data"), home)
    other = small_release.write(home.parent / "other", release="other")
    shutil.move(home / "store", home.parent / "old-store")
    with pytest.raises(
        LedgerError, match="finished 'small-1': the store was emptied or exchanged.*run 'dpdist ledger new-store'"
    ):
        small_release.run(other, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("other") is None
        with pytest.raises(LedgerError, match="is not new"):
            reconciliation.begin_store(Store(home.parent / "old-store"), ledger)
    command = CommandLine(monkeypatch, capsys)
    assert "belongs to this ledger now" in command("ledger", "new-store").out
    assert small_release.run(other, home).charged
    assert "is not new" in command("ledger", "new-store").err
    with open_ledger(home) as ledger:
        assert len(reconciliation.differences(Store(home / "store"), ledger)) == 1  # the lost measurement


def test_a_restored_ledger_that_is_older_than_the_store_is_refused(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    small_release.reserved(path, home)
    shutil.copy(home / "ledger.db", home.parent / "backup.db")
    small_release.run(path, home)
    shutil.copy(home / "ledger.db", home.parent / "newest.db")
    shutil.copy(home.parent / "backup.db", home / "ledger.db")
    with pytest.raises(LedgerError, match="older than the store"):
        small_release.run(path, home)
    store = Store(home / "store")
    with open_ledger(home) as ledger:
        with pytest.raises(LedgerError, match="older than the store"):
            reconciliation.abort_reserved(store, ledger, "small-1")
        assert len(reconciliation.differences(store, ledger)) == 2
        store.delete("ledger.json")
        with pytest.raises(LedgerError, match="drawn, perhaps published, and its charge stays"):
            reconciliation.abort_reserved(store, ledger, "small-1")
        assert ledger.receipt("small-1").state == "reserved"
    shutil.copy(home.parent / "newest.db", home / "ledger.db")
    with open_ledger(home) as ledger:
        assert reconciliation.differences(store, ledger) == []
    assert not small_release.run(path, home).charged


def test_a_suspended_run_whose_charge_was_replaced_draws_nothing(home: Path) -> None:
    """The reproduced fault: noise for one rho was published, another was charged, and verify said ok."""
    first = small_release.write(home.parent / "first", budget={"rho": 0.2})
    second = small_release.write(home.parent / "second", budget={"rho": 0.01})
    original: Callable[..., object] = Ledger.begin_drawing

    def suspended(self: Ledger, *arguments: object) -> object:
        with open_ledger(home) as operator:
            reconciliation.abort_reserved(Store(home / "store"), operator, "small-1")
        with mock.patch.object(Ledger, "begin_drawing", original):
            small_release.reserved(second, home)
        return original(self, *arguments)

    with (
        mock.patch.object(Ledger, "begin_drawing", suspended),
        pytest.raises(LedgerError, match=r"attempt 1\) was given back"),
    ):
        small_release.run(first, home)
    assert not Store(home / "store").exists("measurements/small-1")
    done = small_release.run(second, home)
    assert done.certificate["privacy"]["rho"] == "1/100"
    with open_ledger(home) as ledger:
        assert ledger.verify().running == 0
        assert ledger.budgets()[0].spent.rho == done.plan.loss.rho


def test_a_measurement_that_was_drawn_for_another_charge_is_not_published(home: Path) -> None:
    """Not by the run that finds it after it has drawn, and not by those that come later."""
    path = small_release.write(home.parent / "data")

    def of_another(receipt: Receipt) -> dict[str, object]:
        return {"attempt": receipt.attempt, "charge": "0" * 64}

    with (
        mock.patch("dpdist.pipeline.measure.charge_facts", of_another),
        pytest.raises(LedgerError, match="for another charge"),
    ):
        small_release.run(path, home)
    with pytest.raises(LedgerError, match="drawn for another charge of the same id: nothing is published"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        known = ledger.receipt("small-1")
        assert known is not None
        assert known.state != "committed"


def test_the_guard_outlives_the_store_and_recompression(home: Path) -> None:
    data = home.parent / "data"
    small_release.run(small_release.write(data, release="w1", period="2026-11-16", ledger=WEEKLY), home)
    later = small_release.write(data, release="w2", period="2026-11-23", ledger=WEEKLY)

    second = Store(home.parent / "second")
    with open_ledger(home) as ledger:
        reconciliation.begin_store(second, ledger)

    def run_in_a_new_store() -> object:
        return release_run.release(Context(home, second, engine.inline(), ignore_progress), load(later))

    with pytest.raises(LedgerError, match="records.parquet was counted in period 2026-W47 by 'w1'"):
        run_in_a_new_store()
    table = pyarrow.parquet.read_table(data / "records.parquet")
    pyarrow.parquet.write_table(table, data / "records.parquet", compression="zstd", row_group_size=100)
    with pytest.raises(LedgerError, match="the same counts as this release's were measured in period 2026-W47 by 'w1'"):
        run_in_a_new_store()


def test_nothing_that_outlives_a_release_is_a_plain_digest_of_its_records(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    small_release.run(path, home)
    source, counted = load(path).source.files, small_release.counts_digest(home)
    with open_ledger(home) as ledger:
        text = json.dumps(ledger.entries())
    plain = [counted, source.digest, *(digest for _, digest in source.files)]
    names = " ".join(Store(home / "store").names(""))
    for digest in plain:
        assert digest not in text
        assert digest.encode() not in (home / "ledger.db").read_bytes()
        assert digest[:32] not in names
    assert keys.commitment(keys.load(home), "records", "small-1", source.digest) in text
