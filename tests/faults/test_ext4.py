"""Power loss on a real file system: the image is copied right after the commit, and the copy is mounted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpdist.errors import StoreError
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.storage.array_store import Store
from dpdist.storage.objects import atomic_folder
from tests.support import small_release


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    if subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount; test_kills loses power without")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An empty ext4 file system of 32 MiB."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4; test_kills loses power without")
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(32 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", path], check=True)
    return path


def test_the_measurement_outlives_a_power_loss_right_after_the_commit(
    home: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, later = small_release.write(home.parent / "data"), home.parent / "later"
    commit = Ledger.commit

    def lost_power(self: Ledger, *arguments: str) -> object:
        receipt = commit(self, *arguments)
        shutil.copyfile(image, later)
        return receipt

    with mounted(image, home.parent / "disk") as disk:
        shutil.copytree(home, disk / "home")
        subprocess.run(["sync", "-f", disk], check=True)  # the key was there long before
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "commit", lost_power)
            expected = small_release.tree(Path(small_release.run(path, disk / "home").folder))
    shutil.rmtree("releases")
    with mounted(later, home.parent / "after") as disk:
        with open_ledger(disk / "home") as ledger:
            receipt = ledger.receipt("small-1")
        assert receipt is not None
        assert receipt.state == "committed"
        for name in ("histograms", "strategies"):  # they may be torn, and can be made again
            shutil.rmtree(disk / "home" / "store" / name, ignore_errors=True)
        assert small_release.tree(Path(small_release.run(path, disk / "home").folder)) == expected


def test_what_is_published_outlives_a_power_loss_right_after(
    home: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, later = small_release.write(home.parent / "data"), home.parent / "later"
    with mounted(image, home.parent / "disk") as disk, monkeypatch.context() as patch:
        patch.chdir(disk)
        folder = Path(small_release.run(path, home).folder).absolute()
        shutil.copyfile(image, later)
        expected = small_release.tree(folder)
    with mounted(later, home.parent / "after") as disk:
        assert small_release.tree(disk / "releases" / "small-1") == expected


def test_a_published_folder_whose_name_the_disk_refuses_to_keep_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_release.write(home.parent / "data")

    def refused(path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_folder, "sync_folders", refused)
        with pytest.raises(
            StoreError, match="Input/output error; it is complete, but a power loss may remove it: .*run again"
        ):
            small_release.run(path, home)
    small_release.run(path, home)


def test_a_lost_measurement_is_told_with_what_to_do(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    done = small_release.run(path, home)
    shutil.rmtree(done.folder)
    shutil.rmtree(home / "store" / "measurements")
    with pytest.raises(
        StoreError, match=r"its charge stays. Restore 'measurements/small-1' from the store's backup, or choose"
    ):
        small_release.run(path, home)


def test_nothing_is_committed_when_the_disk_refuses_a_sync(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system takes for written after a failed sync is not trusted: it is drawn again, bit for bit."""
    path = small_release.write(home.parent / "data")
    expected = small_release.undisturbed(path, home)

    def refused(store: Store, name: str) -> None:
        if store.exists(name) and name.startswith("measurements/"):
            raise StoreError("Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "sync", refused)
        with pytest.raises(StoreError, match="Input/output error"):
            small_release.run(path, home)
    with open_ledger(home) as ledger:
        receipt = ledger.receipt("small-1")
    assert receipt is not None
    assert receipt.state == "drawing"
    assert not (home / "store" / "measurements" / "small-1").exists()
    assert small_release.tree(Path(small_release.run(path, home).folder)) == expected
