"""A site reads only what changed since it was last written, and is the one that would be written from the start."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from dpdist.errors import StoreError
from dpdist.plugins.site import editions, site_pages
from dpdist.privacy import keys
from dpdist.publish import release_folder
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.small_release import run

SITE = Path("site")


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three weekly releases, the last one beside those of the site."""
    folder = tmp_path_factory.mktemp("weeks")
    keys.initialise(folder / "home")
    ledger = {"dataset": "weekly", "cap": {"rho": 0.4, "per": "week"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, day in enumerate(("2026-11-09", "2026-11-16", "2026-11-23"), start=1):
            table = small_release.records(100, seed=seed)
            run(
                small_release.write(folder / "data", table=table, release=f"w{seed}", period=day, ledger=ledger),
                folder / "home",
            )
    (folder / "releases" / "w3").rename(folder / "w3")
    return folder


@pytest.fixture
def site_of_two_releases(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two releases and their site, which was written when all of their files had settled; and the third, elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpdist.plugins.site.editions.SETTLING_SECONDS", 0.0)
    shutil.copytree(weeks / "releases", "releases")
    write(SITE)
    return weeks / "w3"


def write(target: Path, *, anew: bool = False) -> list[str]:
    """The site; why folders were left out."""
    found, left_out = editions.releases_in(Path("releases"), "weekly", earlier=None if anew else target)
    site_pages.write_site("weekly", found, (), target)
    return left_out


def read_again() -> set[str]:
    """Which releases are read in full when the site is written again, and that it is the one of a new folder."""
    real, seen = release_folder.certificate_of, set()
    with mock.patch.object(
        release_folder, "certificate_of", side_effect=lambda folder: (seen.add(folder.name), real(folder))[1]
    ):
        left_out = write(SITE)
    shutil.rmtree("anew", ignore_errors=True)
    assert write(Path("anew"), anew=True) == left_out
    written = [{**small_release.tree(folder), editions.STAMPS_FILE: b""} for folder in (SITE, Path("anew"))]
    assert written[0] == written[1]
    return seen


def inode_numbers(release: str) -> list[int]:
    """Which files of the disk the copies of a release are."""
    return sorted(path.stat().st_ino for path in (SITE / release).rglob("*") if path.is_file())


def test_what_did_not_change_is_neither_read_nor_copied(site_of_two_releases: Path) -> None:
    before = inode_numbers("w1")
    for _ in range(2):
        assert read_again() == set()
        assert inode_numbers("w1") == before
    shutil.copytree(site_of_two_releases, "releases/w3")
    assert read_again() == {"w3"}
    assert (inode_numbers("w1"), sorted(path.name for path in SITE.iterdir() if path.is_dir())) == (
        before,
        ["w1", "w2", "w3"],
    )


def altered() -> None:
    """One digit of a table, with the size and the time set back."""
    table = Path("releases/w1/answers.csv")
    facts, text = table.stat(), table.read_bytes()
    table.write_bytes(text[:-2] + (b"1" if text[-2:-1] != b"1" else b"2") + text[-1:])
    os.utime(table, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (table.stat().st_size, table.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)


def corrected() -> None:
    """Another title, signed by whoever has the key."""
    certificate = Path("releases/w1/release.json")
    certificate.write_text(json.dumps({**json.loads(certificate.read_text()), "period": "2026-11-10"}))
    small_release.sign(Path("releases/w1"))


def added() -> None:
    Path("releases/w1/more").write_text("more")


@pytest.mark.parametrize(
    ("change", "seen", "held"),
    slow_after_first(
        4,
        [
            (altered, {"w1"}, {"w2"}),
            (added, {"w1"}, {"w2"}),
            (lambda: Path("releases/w1/dictionary.csv").unlink(), {"w1"}, {"w2"}),
            (corrected, {"w1"}, {"w1", "w2"}),
            (lambda: shutil.rmtree("releases/w1"), set(), {"w2"}),
            (lambda: Path("releases/w1").rename("releases/elsewhere"), set(), {"w1", "w2"}),
            (lambda: (SITE / "w1" / "index.html").write_text("altered"), set(), {"w1", "w2"}),
            (lambda: (SITE / "w1" / "index.html").unlink(), set(), {"w1", "w2"}),
            (lambda: (SITE / editions.STAMPS_FILE).write_text("[]"), {"w1", "w2"}, {"w1", "w2"}),
        ],
    ),
)
def test_changes_are_seen(site_of_two_releases: Path, change: Callable[[], object], seen: set[str], held: set[str]) -> None:
    change()
    assert read_again() == seen
    assert {path.name for path in SITE.iterdir() if path.is_dir()} == held


def test_what_another_version_noted_is_not_believed(site_of_two_releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.plugins.site.editions.version", lambda: "another")
    assert read_again() == {"w1", "w2"}


def test_files_that_changed_just_now_are_read_again(site_of_two_releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change within a tick of the system's clock would not show."""
    monkeypatch.setattr("dpdist.plugins.site.editions.SETTLING_SECONDS", 3600.0)
    assert [read_again(), read_again()] == [{"w1", "w2"}] * 2


def test_file_systems_without_second_names(site_of_two_releases: Path) -> None:
    with mock.patch("os.link", side_effect=OSError):
        assert read_again() == set()


def test_links_lead_nowhere(site_of_two_releases: Path) -> None:
    """A file that became a link since: its stamp is another one, and a release with links is none."""
    table = Path("releases/w1/answers.csv")
    shutil.copy(table, "elsewhere.csv")
    table.unlink()
    table.symlink_to(Path("elsewhere.csv").resolve())
    assert read_again() == {"w1"}
    with pytest.raises(StoreError, match="link"):
        release_folder.certificate_of(Path("releases/w1"))
