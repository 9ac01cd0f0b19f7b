"""The ledger's head, noted elsewhere after every commit: in a folder and in a bucket."""

from __future__ import annotations

import datetime
import importlib
import os
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import BudgetExceeded, LedgerError, StoreError
from dpdist.privacy.ledger import checkpoints
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.storage.documents import Documents
from tests.privacy.test_budget_ledger import charge
from tests.support import small_release


@pytest.fixture(params=["folder", "s3"])
def heads_location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where heads are noted."""
    location = str(tmp_path / "heads") if request.param == "folder" else f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    monkeypatch.setenv(checkpoints.HEADS_ENVIRONMENT, location)
    return location


def test_a_ledger_that_was_rolled_back_is_found(home: Path, tmp_path: Path, heads_location: str) -> None:
    """The chain alone cannot show that its newest rows are missing, nor can the store that was rolled back with it."""
    path = small_release.write(tmp_path / "data")
    small_release.run(path, home)
    small_release.run(path, home)  # notes nothing new
    noted = Documents(heads_location).names("heads")
    with open_ledger(home) as ledger:
        rows = ledger.entries()
        assert (
            checkpoints.compare(ledger.checkpoints) == len(noted) - 1 == len(rows)
        )  # one more says with which row the place began
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("DELETE FROM dpdist_rows WHERE event = 'committed'")
    connection.close()
    with open_ledger(home) as ledger, pytest.raises(LedgerError, match=f"lacks row {len(rows) - 2}, whose head is noted at"):
        checkpoints.compare(ledger.checkpoints)


def test_a_ledger_rolled_back_with_its_store_is_not_charged(home: Path, tmp_path: Path, heads_location: str) -> None:
    """The reproduced fault: r3 was charged beside r1 and the lost r2, 0.15 under a cap of 0.1."""
    assert heads_location
    cap = {"dataset": "small", "cap": {"rho": 0.1}}
    small_release.run(small_release.write(tmp_path / "r1", release="r1", budget={"rho": 0.05}, ledger=cap), home)
    shutil.copytree(home, tmp_path / "backup")
    folder = small_release.run(
        small_release.write(tmp_path / "r2", release="r2", budget={"rho": 0.05}, ledger=cap), home
    ).folder
    shutil.move(folder, tmp_path / "elsewhere")  # the heads alone must tell
    shutil.move(home, tmp_path / "newest")
    shutil.move(tmp_path / "backup", home)
    third = small_release.write(tmp_path / "r3", release="r3", budget={"rho": 0.05}, ledger=cap)
    with pytest.raises(LedgerError, match="lacks row 7, whose head is noted at .* Restore the newest backup"):
        small_release.run(third, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("r3") is None
    shutil.rmtree(home)
    shutil.move(tmp_path / "newest", home)
    with pytest.raises(BudgetExceeded):
        small_release.run(third, home)


def test_of_two_copies_that_write_the_same_row_one_is_refused(
    home: Path, tmp_path: Path, heads_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both compare their rows first and find nothing: the head of the row itself tells, before anything is drawn."""
    with open_ledger(home) as ledger:
        ledger.reserve(charge("r1"))
    shutil.copytree(home, tmp_path / "copy")
    with open_ledger(home) as ledger, open_ledger(tmp_path / "copy") as other:
        compare = ledger._checkpoints.check

        def compare_before_the_other_writes() -> None:
            compare()
            other.reserve(charge("r3"))

        monkeypatch.setattr(ledger._checkpoints, "check", compare_before_the_other_writes)
        with pytest.raises(LedgerError, match=f"another row .*{re.escape(heads_location)}"):
            ledger.reserve(charge("r2"))


def test_a_head_that_was_removed_is_missed(home: Path, heads_location: str) -> None:
    with open_ledger(home) as ledger:
        for release in ("r1", "r2"):
            ledger.reserve(charge(release))
        noted = Documents(heads_location)
        assert checkpoints.compare(ledger.checkpoints) == len(noted.names("heads")) - 1
        noted.storage.remove("heads/000000000002.json")
        with pytest.raises(LedgerError, match="lacks the head of row 2 and has later ones: somebody removed it there"):
            checkpoints.compare(ledger.checkpoints)


def test_heads_in_a_bucket_are_locked(home: Path, tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bucket's default retention, as far as moto enforces it: versions cannot be deleted, only hidden."""
    client: Any = importlib.import_module("boto3").client("s3", endpoint_url=os.environ["AWS_ENDPOINT"])
    refused = importlib.import_module("botocore.exceptions").ClientError
    client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    retention = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket="locked", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": retention}
    )
    monkeypatch.setenv(checkpoints.HEADS_ENVIRONMENT, "s3://locked/heads-of-ours")
    path = small_release.write(tmp_path / "data")
    small_release.run(path, home)
    small_release.run(path, home)  # notes nothing new: no second version of anything
    versions = client.list_object_versions(Bucket="locked")["Versions"]
    assert len(versions) == len({version["Key"] for version in versions}) == 7
    for version in versions:
        which = {"Bucket": "locked", "Key": version["Key"], "VersionId": version["VersionId"]}
        found = client.head_object(**which)
        assert found["ObjectLockMode"] == "COMPLIANCE"
        assert found["ObjectLockRetainUntilDate"] > found["LastModified"] + datetime.timedelta(hours=23)
        with pytest.raises(refused, match="AccessDenied"):
            client.delete_object(**which)
        client.delete_object(Bucket="locked", Key=version["Key"])  # a marker hides it
    assert {version["VersionId"] for version in client.list_object_versions(Bucket="locked")["Versions"]} == {
        version["VersionId"] for version in versions
    }


def test_a_head_that_cannot_be_noted_refuses_the_release(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(checkpoints.HEADS_ENVIRONMENT, str(tmp_path / "file" / "heads"))
    path = small_release.write(tmp_path / "data")
    with pytest.raises(StoreError, match="cannot be noted: the store .*file/heads could not be opened: Not a directory"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1") is None  # before the charge
    monkeypatch.setenv(checkpoints.HEADS_ENVIRONMENT, str(tmp_path / "heads"))
    small_release.run(path, home)


def test_nothing_is_noted_where_nobody_asked(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(checkpoints.HEADS_ENVIRONMENT, raising=False)
    small_release.run(small_release.write(tmp_path / "data"), home)
    with open_ledger(home) as ledger:
        assert checkpoints.compare(ledger.checkpoints) is None
