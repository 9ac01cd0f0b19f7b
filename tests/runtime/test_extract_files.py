"""Files of records that a run writes: private, durable before the charge, and there no longer than their release may go on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpdist as dp
from dpdist.errors import DpdistError, InvalidSpec
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.runtime import extract_files
from dpdist.runtime.context import open_context
from dpdist.sources.frames import write_records
from dpdist.sources.verified_files import hash_with_tags
from tests.case_selection import slow_after_first
from tests.support import forked_programs, small_release
from tests.support.command_line import CommandLine

SQL = {
    "sql": "SELECT * FROM 'records.parquet'",
    "types": {"age": "whole", "sex": "text", "work": "text", "person": "whole"},
}
KILLED = """
import os, signal, sys
from pathlib import Path
from dpdist.pipeline import release_run
from tests.support import small_release
if sys.argv[3] == "before the charge":
    release_run.count = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    release_run.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
small_release.run(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def record_files(home: Path) -> list[str]:
    """Files of records below the state folder, also drafts: what is no document or mark of a lease."""
    folders = [home / "records" / "of", home / "scratch" / "scratch"]
    return sorted(path.name for place in folders for path in place.rglob("*") if path.is_file() and path.suffix != ".used")


def state(home: Path, release: str = "small-1") -> str | None:
    with open_ledger(home) as ledger:
        receipt = ledger.receipt(release)
    return None if receipt is None else receipt.state


@pytest.mark.parametrize(
    "how", ["a missing column", "a budget that is too small", "an unknown value", "a table from Python"]
)
def test_a_refused_release_leaves_no_records(home: Path, how: str) -> None:
    table = small_release.records().drop_columns(["sex"]) if how == "a missing column" else small_release.records()
    if how == "an unknown value":
        table = table.set_column(1, "sex", pa.array(["x"] * table.num_rows))
    path = small_release.write(home.parent / "data", table=table, records=SQL)
    with open_ledger(home):
        pass
    refusing = mock.patch.object(Ledger, "reserve", side_effect=InvalidSpec("no") if "budget" in how else Ledger.reserve)
    with refusing, pytest.raises(DpdistError):
        _ = (
            dp.run(small_release.spec(), records=table.drop_columns(["sex"]), engine="inline")
            if how == "a table from Python"
            else small_release.run(path, home)
        )
    assert state(home) is None
    assert record_files(home) == []
    assert not list((home / "records" / "leases").glob("*"))


def swept(home: Path) -> None:
    """Remove what nobody needs, as every run does."""
    with open_context("inline", home=home) as context:
        extract_files.sweep(context)


def test_a_charged_release_keeps_them_until_it_has_finished(home: Path) -> None:
    path = small_release.write(home.parent / "data", records=SQL)
    small_release.reserved(path, home)
    (extract,) = record_files(home)
    swept(home)
    assert record_files(home) == [extract]
    small_release.run(path, home)
    assert record_files(home) == []
    small_release.run(path, home)  # read again, and removed again
    assert record_files(home) == []


def test_an_aborted_release_keeps_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_release.write(home.parent / "data", records=SQL)
    with (
        mock.patch("dpdist.privacy.ledger.budget_ledger.Ledger.begin_drawing", side_effect=KeyboardInterrupt),
        suppress(KeyboardInterrupt),
    ):
        small_release.run(path, home)
    assert state(home) == "reserved"
    assert record_files(home)
    done = CommandLine(monkeypatch, capsys)("ledger", "abort", "small-1")
    assert done.code == 0, done.err
    assert record_files(home) == []


@pytest.mark.parametrize(("when", "kept"), slow_after_first(1, [("before the charge", 0), ("after the commit", 1)]))
def test_the_next_run_removes_what_killed_ones_left_and_nobody_goes_on_with(home: Path, when: str, kept: int) -> None:
    path = small_release.write(home.parent / "data", records=SQL)
    assert forked_programs.finished(KILLED, path, home, when).returncode == -9
    assert len(record_files(home)) == 1
    swept(home)
    assert len(record_files(home)) == kept
    small_release.run(path, home)
    assert record_files(home) == []
    assert forked_programs.finished(KILLED, path, home, when).returncode == -9
    swept(home)  # of a finished release nobody goes on
    assert record_files(home) == []


def test_nobody_comes_back_after_a_stated_time(home: Path) -> None:
    small_release.reserved(small_release.write(home.parent / "data", records=SQL), home)
    for days, kept in ((29, 1), (31, 0)):
        then = time.time() - days * 86_400
        os.utime(home / "records" / "of" / "small-1", (then, then))
        swept(home)
        assert len(record_files(home)) == kept


def test_what_a_living_run_uses_is_removed_by_nobody(home: Path) -> None:
    with open_context("inline", home=home) as context, extract_files.extract_folder(context, "small-1") as one:
        (one / "x.parquet").touch()
        extract_files.sweep(context)
        extract_files.remove(home, "small-1")
        with extract_files.extract_folder(context, "small-1", finishes=False) as other:
            assert other == one
        assert record_files(home) == ["x.parquet"]
    assert record_files(home) == []


def test_records_are_private_whatever_the_umask_also_while_they_are_written(tmp_path: Path) -> None:
    modes: list[int] = []
    table = small_release.records(100)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=20):
            modes.extend(path.stat().st_mode & 0o777 for path in (tmp_path / "kept").iterdir())
            yield batch

    before = os.umask(0)
    try:
        path = write_records(
            pa.RecordBatchReader.from_batches(table.schema, batches()),
            table.column_names,
            tmp_path / "kept",
            Secret(bytes(range(32))),
        )
    finally:
        os.umask(before)
    assert {*modes, path.stat().st_mode & 0o777} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert hash_with_tags(path)[0][:32] not in path.name


def test_no_name_becomes_durable_before_what_it_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which files are synced and named: an extract before the charge, the shards of counts before their manifest."""
    events: list[tuple[str, str]] = []
    fsync, replace, link, reserve = os.fsync, os.replace, os.link, Ledger.reserve

    def synced(file: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def named(source: str, target: str) -> None:
        events.append(("name", f"{source}\0{target}"))
        replace(source, target)

    def linked(source: str, target: str) -> None:
        events.append(("name", f"{source}\0{target}"))
        link(source, target)

    def charged(self: Ledger, *given: object) -> object:
        events.append(("charge", ""))
        return reserve(self, *given)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(Ledger, "reserve", charged)
    small_release.run(small_release.write(home.parent / "data", records=SQL), home)
    charge = events.index(("charge", ""))
    ((at, source, target),) = [
        (place, *what.split("\0"))
        for place, (kind, what) in enumerate(events)
        if kind == "name" and what.endswith(".parquet") and "/records/of/" in what
    ]
    assert ("sync", source) in events[:at]
    assert ("sync", str(Path(target).parent)) in events[at:charge]
    names = [(place, what.split("\0")[1]) for place, (kind, what) in enumerate(events) if kind == "name"]
    manifests = [(place, target) for place, target in names if target.endswith("/manifest.json")]
    arrays = [(place, Path(target).parent) for place, target in manifests if "/scratch/" not in target]
    assert {"histograms", "measurements"} <= {folder.parent.name for _, folder in arrays}
    for place, folder in arrays:
        before = [what for kind, what in events[:place] if kind == "sync"]
        shards = [str(path) for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"]
        assert shards or folder.parent.name not in ("histograms", "measurements")
        assert set(shards) <= set(before), folder
