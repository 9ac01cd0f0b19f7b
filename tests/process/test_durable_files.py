"""Nothing that a release writes is open to other users, whatever the umask, except what it publishes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpdist.content.destination import DraftFolder, TaskMap, WrittenFile
from dpdist.content.release_content import ReleaseContent
from dpdist.counting import contribution_bounding
from dpdist.errors import StoreError
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.process.durable_files import private_file, private_files, private_folder, published_mode
from dpdist.publish import release_folder
from dpdist.storage.array_store import Store
from dpdist.storage.documents import Documents
from dpdist.storage.leases import Lease
from dpdist.storage.objects.atomic_folder import unfinished_folder
from tests.support import forked_programs, small_release


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def open_to_others(folder: Path) -> list[str]:
    """Files and folders below a folder that others may read, write or enter."""
    return [str(path.relative_to(folder)) for path in [folder, *folder.rglob("*")] if mode(path) & 0o077]


@pytest.mark.usefixtures("open_umask")
def test_what_a_release_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    keys.initialise(home)
    monkeypatch.setenv("DPDIST_HOME", str(home))
    path = small_release.write(tmp_path / "data", records={"path": "records.parquet", "person": {"column": "person"}})
    amid: list[str] = []
    original = contribution_bounding._count_parts
    written = release_folder._write_files

    def watched(*arguments: object) -> object:
        amid.extend(open_to_others(home))
        return original(*arguments)

    def writing(content: ReleaseContent, place: DraftFolder, spread: TaskMap | None) -> tuple[list[WrittenFile], bytes]:
        assert mode(place.draft) == mode(unfinished_folder(place.draft)) == 0o700
        return written(content, place, spread)

    monkeypatch.setattr(contribution_bounding, "_count_parts", watched)
    monkeypatch.setattr(release_folder, "_write_files", writing)
    done = small_release.run(path, home)
    assert amid == []
    assert open_to_others(home) == []
    assert {mode(home), mode(home / "store")} == {0o700}
    assert {mode(home / "ledger.db"), mode(home / "root.key")} == {0o600}
    assert isinstance(done.folder, Path)
    assert mode(done.folder) == 0o775  # by the user's umask, but nobody else may write what is published
    assert mode(done.folder / "index.html") == 0o664


def test_a_home_that_was_open_is_closed_with_a_word(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "store").mkdir()
    for folder in (home, home / "store"):
        folder.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        small_release.run(small_release.write(home.parent / "data"), home)
    assert {mode(home), mode(home / "store")} == {0o700}
    assert f"{home} had mode 0755: other users could read it; it is 0700 now" in caplog.text


def test_what_is_not_ours_to_close_is_refused(tmp_path: Path) -> None:
    everybody = tmp_path / "everybody"
    everybody.mkdir()
    everybody.chmod(0o1777)
    with pytest.raises(
        StoreError, match=r"has mode 1777, so other users can reach .* choose a folder of your own, or .* chmod 0700"
    ):
        private_folder(everybody)
    assert everybody.stat().st_mode & 0o7777 == 0o1777
    if os.geteuid() == 0:
        alien = tmp_path / "alien"
        alien.mkdir(mode=0o755)
        tmp_path.chmod(0o755)
        assert private_folder(alien) is None  # root may
        alien.chmod(0o755)


def test_a_file_that_was_open_is_closed(tmp_path: Path) -> None:
    for before in (0o644, 0o660, 0o601, 0o700):
        path = tmp_path / f"{before:o}"
        path.touch()
        path.chmod(before)
        private_file(path)
        assert mode(path) & 0o077 == 0
    private_file(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o600


def test_the_folder_of_a_new_ledger_is_private(tmp_path: Path) -> None:
    Ledger(f"sqlite:///{tmp_path / 'new' / 'ledger.db'}")
    assert open_to_others(tmp_path / "new") == []


KILLED = """
import os, signal, sys
from pathlib import Path
from dpdist.counting import contribution_bounding
contribution_bounding._count_parts = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from tests.support import small_release
small_release.run(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_scratch_of_a_killed_run_goes_with_the_next(home: Path) -> None:
    """Killed between dealing and counting: what it left is private, and the next run removes it, age or not."""
    person = {"path": "records.parquet", "person": {"column": "person"}}
    path = small_release.write(home.parent / "data", records=person)
    assert forked_programs.finished(KILLED, path, home).returncode == -9
    left = home / "store" / "scratch"
    assert [file for file in left.rglob("*") if file.is_file()]
    assert open_to_others(left) == []
    small_release.run(path, home)
    assert not [file for file in left.rglob("*") if file.is_file()]


def test_records_that_a_killed_run_extracted_go_with_the_next_run(home: Path) -> None:
    """They lie in a folder of the home, under a lease of their own; a run that still lives keeps its own."""
    killed = Documents(home / "scratch")
    dead, alive = Lease(killed.location), Lease(killed.location)
    owner = killed.read_document(f"leases/{dead.id}/lease.json")
    killed.write_document(f"leases/{dead.id}/lease.json", {**owner, "started": "0"})
    for lease in (dead, alive):
        (home / "scratch" / "scratch" / lease.id).mkdir(parents=True)
        (home / "scratch" / "scratch" / lease.id / "0-00000000.parquet").touch()
    small_release.run(small_release.write(home.parent / "data"), home)
    assert [file.parent.name for file in (home / "scratch").rglob("*.parquet")] == [alive.id]
    alive.end()


def test_a_store_is_private(tmp_path: Path) -> None:
    Store(tmp_path / "store")
    assert mode(tmp_path / "store") == 0o700


def test_blocks_in_several_threads_leave_the_mask_as_it_was() -> None:
    """Two that overlap: the second one found the mask of the first, and set it back for good."""
    before = os.umask(0o022)
    try:
        first, second = private_files(), private_files()
        first.__enter__()
        second.__enter__()
        assert published_mode() == 0o755
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
