"""Where releases go whose spec names no folder: an image has no writable current folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpdist.errors import StoreError
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.storage import home_folder
from tests.support import small_release


def test_a_release_goes_where_the_environment_says(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(home_folder.OUTPUT, str(tmp_path / "data" / "releases"))
    done = small_release.run(small_release.write(tmp_path / "spec"), home)
    assert done.folder == tmp_path / "data" / "releases" / "small-1"
    assert release_folder.certificate_of(done.folder)["release"] == "small-1"
    assert not Path("releases").exists()


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_folder.published_at("a").path_or_url == Path.cwd() / "releases" / "a"
    monkeypatch.setenv(home_folder.OUTPUT, "s3://bucket/public/")
    assert home_folder.published_at("a").path_or_url == "s3://bucket/public/a"
    assert home_folder.published_at("a", "here").path_or_url == Path.cwd() / "here"
    assert home_folder.published_at("a", "gs://other/x").path_or_url == "gs://other/x"


def test_a_place_that_cannot_be_written_is_refused_before_the_charge(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(home_folder.OUTPUT, "/proc/releases")
    with pytest.raises(StoreError, match="/proc"):
        small_release.run(small_release.write(tmp_path / "spec"), home)
    with open_ledger(home) as book:
        assert book.budgets() == []
