"""Where releases go whose spec names no folder: an image has no writable current folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpdist.errors import StoreError
from dpdist.machine import state
from dpdist.page import report
from dpdist.privacy.ledger import opened
from tests import small


def test_a_release_goes_where_the_environment_says(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(state.OUTPUT, str(tmp_path / "data" / "releases"))
    done = small.run(small.write(tmp_path / "spec"), home)
    assert done.folder == tmp_path / "data" / "releases" / "small-1"
    assert report.certificate_of(done.folder)["release"] == "small-1"
    assert not Path("releases").exists()


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state.published_at("a").given == Path.cwd() / "releases" / "a"
    monkeypatch.setenv(state.OUTPUT, "s3://bucket/public/")
    assert state.published_at("a").given == "s3://bucket/public/a"
    assert state.published_at("a", "here").given == Path.cwd() / "here"
    assert state.published_at("a", "gs://other/x").given == "gs://other/x"


def test_a_place_that_cannot_be_written_is_refused_before_the_charge(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(state.OUTPUT, "/proc/releases")
    with pytest.raises(StoreError, match="/proc"):
        small.run(small.write(tmp_path / "spec"), home)
    with opened(home) as book:
        assert book.budgets() == []
