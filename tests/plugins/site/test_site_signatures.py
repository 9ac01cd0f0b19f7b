"""A site takes only what the ledger has published, and says what it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpdist.errors import StoreError
from dpdist.plugins.site import editions
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from tests.pipeline.test_signatures import command, copied, lowered, published, resigned
from tests.support import small_release
from tests.support.command_line import CommandLine

__all__ = ["command", "published"]


@pytest.mark.parametrize("edit", [lowered, resigned])
def test_a_finished_release_and_a_site_take_only_what_the_ledger_published(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: Callable[[Path], None]
) -> None:
    """Edited, or edited and signed with a key of one's own: the ledger knows the digest of what it published."""
    monkeypatch.chdir(tmp_path)
    folder, home = copied(published, tmp_path / "releases" / "small-1"), published / "home"
    assert not small_release.run(published / "data" / "release.yaml", home).charged
    with open_ledger(home) as ledger:
        known = {"ledger": ledger.name(), "published_releases": ledger.published()}
    assert [one.release for one in editions.releases_in(Path("releases"), "small", **known)[0]] == ["small-1"]
    whole = copied(published, tmp_path / "releases" / "whole")
    edit(folder)
    with pytest.raises(StoreError, match="release.json was altered|this ledger has not published"):
        small_release.run(published / "data" / "release.yaml", home)
    found, left_out = editions.releases_in(Path("releases"), "small", **known)
    assert [one.folder.name for one in found] == [whole.name]
    assert [line.partition(":")[0].rpartition("/")[2] for line in left_out] == ["small-1"]


def test_a_site_says_what_it_leaves_out(published: Path, tmp_path: Path, command: CommandLine) -> None:
    copied(published, tmp_path / "releases" / "one")
    lowered(copied(published, tmp_path / "releases" / "two"))
    ended = command("site", "small", "--releases", str(tmp_path / "releases"), "--out", str(tmp_path / "site"))
    assert ended.code == 1
    assert f"left out: {tmp_path / 'releases' / 'two'}: release.json was altered" in ended.err
    assert release_folder.certificate_of(tmp_path / "site" / "small-1")["release"] == "small-1"  # with its signature
