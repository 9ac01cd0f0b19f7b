"""dpdist doctor: what places promise, and that one which does not keep it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import StoreError
from dpdist.plugins.deployment import store_promises
from dpdist.plugins.deployment.store_promises import STORE_CHECKS, probe
from dpdist.storage.objects import Folder, parse_location
from tests.support import object_store_servers, small_release
from tests.support.ceph_cluster import ceph_gateway
from tests.support.command_line import CommandLine


def broken(location: Any) -> dict[str, str]:
    """The promises that a place does not keep, with what it answered."""
    return {finding.promise.name: finding.reason for finding in probe(location) if finding.kept is False}


def test_a_folder_and_moto_keep_every_promise_that_counts(tmp_path: Path, s3: str) -> None:
    for location in (parse_location(tmp_path / "store"), parse_location(f"{s3}/probed")):
        assert set(broken(location)) <= {promise.name for promise in STORE_CHECKS if not promise.essential}
        assert not list(location.entries())


class Overwriting(Folder):
    def create(self, name: str, data: bytes, *, lasting: bool = False) -> bool:
        self.write(name, data)
        return True


class Racing(Folder):
    """Looks before it writes, as gateways do."""

    def create(self, name: str, data: bytes, *, lasting: bool = False) -> bool:
        if self.exists(name):
            return False
        store_promises.os.sched_yield()
        self.write(name, data)
        return True


class Stale(Folder):
    def read_bytes(self, name: str = "") -> bytes:
        return _first.setdefault(f"{self}/{name}", super().read_bytes(name))


class Unlisted(Folder):
    def entries(self, name: str = "") -> Any:
        return iter(list(super().entries(name))[1:])


class Undead(Folder):
    def delete(self, names: Sequence[str]) -> None:
        super().delete(names[1:])


class Shifted(Folder):
    def read_range(self, name: str, start: int, length: int) -> bytes:
        return super().read_range(name, start, length + 1)


class Encoded(Folder):
    def entries(self, name: str = "") -> Any:
        return (entry._replace(name=entry.name.replace(" ", "+")) for entry in super().entries(name))


class Cut(Folder):
    def write(self, name: str, data: Any, *, lasting: bool = False) -> None:
        super().write(name, data[: 2**20])


_first: dict[str, bytes] = {}
FAULTS = {
    Overwriting: "writes a name once",
    Racing: "at the same time",
    Stale: "reads what was written last",
    Unlisted: "lists what is there",
    Undead: "misses what was deleted",
    Shifted: "reads ranges",
    Encoded: "keeps names as they are",
    Cut: "keeps objects of many parts",
}


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__.lower())
def test_each_broken_promise_is_found(kind: type[Folder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "__truediv__", lambda place, name: kind(f"{place}/{name}", f"{place}/{name}"))
    assert any(FAULTS[kind] in name for name in broken(kind(str(tmp_path), str(tmp_path))))


def test_the_command_prints_the_promises(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(monkeypatch, capsys)
    printed = command("doctor", str(tmp_path / "store"))
    assert (printed.code, printed.out.count("yes ")) == (
        0,
        len([promise for promise in STORE_CHECKS if not promise.of_buckets]),
    )
    assert not (tmp_path / "store").exists()  # nothing was there before
    content = json.loads(command("doctor", str(tmp_path / "store"), "--json").out)
    assert content["usable"]
    assert content["promises"]["tags objects by their MD5"] is None
    monkeypatch.setattr(Folder, "create", Overwriting.create)
    refused = command("doctor", str(tmp_path / "store"))
    assert refused.code == 1
    assert "must not be the store of dpdist: it does not keep 2 of what it must promise" in refused.err


def azure(tmp_path: Path, patch: pytest.MonkeyPatch) -> AbstractContextManager[str]:
    return object_store_servers.azure_emulator(tmp_path, patch)


def google(tmp_path: Path, patch: pytest.MonkeyPatch) -> AbstractContextManager[str]:
    return object_store_servers.google_emulator(patch)


def ceph(tmp_path: Path, patch: pytest.MonkeyPatch) -> AbstractContextManager[str]:
    return ceph_gateway(tmp_path / "ceph", patch)


def ministack(tmp_path: Path, patch: pytest.MonkeyPatch) -> AbstractContextManager[str]:
    return object_store_servers.s3_server("ministack", tmp_path / "ministack", patch)


@pytest.mark.slow
@pytest.mark.parametrize("server", [azure, google, ceph, ministack])
def test_clouds_keep_every_promise_and_a_release_is_published_there(
    server: Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[str]],
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with server(tmp_path, monkeypatch) as url:
        assert not set(broken(parse_location(f"{url}/probed"))) & {
            promise.name for promise in STORE_CHECKS if promise.essential
        }
        monkeypatch.setenv("DPDIST_STORE", f"{url}/store")
        spec = small_release.write(home.parent / "data", output={"folder": f"{url}/published"})
        command = CommandLine(monkeypatch, capsys)
        for _ in range(2):
            assert command("run", str(spec)).code == 0
        assert command("verify", f"{url}/published").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("server", ["rclone", "s3rver"])
def test_a_server_that_ignores_conditions_is_refused(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store_servers.s3_server(server, tmp_path, monkeypatch) as bucket:
        assert "writes a name once" in broken(parse_location(f"{bucket}/probed"))
    with pytest.raises(StoreError):
        broken(parse_location(f"{bucket}/probed"))  # it has ended
