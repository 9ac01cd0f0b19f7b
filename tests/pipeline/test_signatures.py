"""Signed certificates: what was altered, signed by somebody else or left unsigned is refused by every command that reads it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import KeyUnavailable, StoreError
from dpdist.pipeline import publish
from dpdist.privacy import keys, signatures
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.publish import release_folder
from dpdist.storage.objects import parse_location
from tests.support import small_release
from tests.support.command_line import CommandLine

ABOUT = {"curator": "Library", "description": "Visits", "intended_use": "Planning", "region": "Hamburg"}
TINY: dict[str, Any] = {
    "mechanism": "identity",
    "domain": {"age": {"from": 0, "to": 11, "width": 4}},
    "workload": [{"cdf": {"of": "age"}}],
}
"""Three cells."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a home, a spec and its release with every kind of file: tables in all formats, means, variances, metadata."""
    folder = tmp_path_factory.mktemp("signed")
    before = Path.cwd()
    os.chdir(folder)
    keys.initialise(folder / "home")
    by_sex: dict[str, Any] = {"marginals": {"of": [["sex"]]}}
    path = small_release.write(
        folder / "data",
        table=small_release.records(200),
        about=ABOUT,
        mechanism="identity",
        domain={"sex": {"categories": ["f", "m"]}},
        sums={"age": {"from": 0, "to": 12, "step": 6}},
        workload=[{**by_sex, "mean": "age"}, {**by_sex, "variance": "age"}],
        output={"formats": small_release.EVERY_FORMAT},
    )
    small_release.run(path, folder / "home")
    yield folder
    os.chdir(before)


def copied(published: Path, target: Path) -> Path:
    """A copy of the release that a test may alter."""
    return Path(shutil.copytree(published / "releases" / "small-1", target))


def lowered(folder: Path) -> None:
    """The edit that is worth most: a tenth of the loss becomes a thousandth."""
    text = (folder / "release.json").read_text()
    facts = json.loads(text)
    assert facts["privacy"]["rho"] == "1/10"
    facts["privacy"] |= {"rho": "1/1000", "rho_decimal": 0.001}
    (folder / "release.json").write_text(json.dumps(facts, indent=1) + "\n")


def resigned(folder: Path) -> None:
    """An edit whose author signs it with a key of their own."""
    lowered(folder)
    (folder / "release.json.sig").write_bytes(
        signatures.sign(Secret(bytes(range(32))), (folder / "release.json").read_bytes())
    )


def test_a_bit_in_any_file_is_found(published: Path, tmp_path: Path) -> None:
    """In every file of every format, the signature and the certificate among them; and a file more or less."""
    folder = copied(published, tmp_path / "copy")
    release_folder.certificate_of(folder)
    files = small_release.tree(folder)
    kinds = {name.partition("/")[0] for name in files}
    assert kinds >= {"answers.csv", "answers.parquet", "answers.zarr", "means.csv", "variances.csv", "measurement.npz"}
    assert kinds >= {"release.json", "release.json.sig", "index.html", "CITATION.cff", "deployment.yaml", "croissant.json"}
    for name, content in files.items():
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        (folder / name).write_bytes(changed)
        with pytest.raises(StoreError):
            release_folder.certificate_of(folder)
        (folder / name).unlink()
        with pytest.raises(StoreError):
            release_folder.certificate_of(folder)
        (folder / name).write_bytes(content)
    for name in ("another.txt", "answers.zarr/release.json"):
        (folder / name).write_text("{}")
        with pytest.raises(StoreError, match=f"{name} for one"):
            release_folder.certificate_of(folder)
        (folder / name).unlink()
    release_folder.certificate_of(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("algorithm", "none"),
        ("public_key", "00" * 32),
        ("public_key", "zz"),
        ("sha256", "00" * 32),
        ("signature", "00" * 64),
        ("signature", ""),
        ("signature", None),
    ],
)
def test_a_signature_of_another_form_is_none(published: Path, tmp_path: Path, field: str, value: str | None) -> None:
    folder = copied(published, tmp_path / "copy")
    signed = json.loads((folder / "release.json.sig").read_text())
    assert signed["sha256"] == hashlib.sha256((folder / "release.json").read_bytes()).hexdigest()
    (folder / "release.json.sig").write_text(json.dumps({**signed, field: value}))
    with pytest.raises(StoreError, match="its signature"):
        release_folder.certificate_of(folder)


@pytest.fixture
def command(published: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("DPDIST_HOME", str(published / "home"))
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    monkeypatch.chdir(published)
    return CommandLine(monkeypatch, capsys)


def test_every_command_that_reads_refuses_an_edited_certificate(
    published: Path, tmp_path: Path, command: CommandLine
) -> None:
    folder = copied(published, tmp_path / "copy")
    assert (
        f"signed with the key {json.loads((folder / 'release.json.sig').read_text())['public_key']}"
        in command("show", str(folder), "--about").out
    )
    lowered(folder)
    for words in (("show", str(folder)), ("ask", str(folder), "sum of sex=f"), ("export", str(folder), "page.pdf")):
        ended = command(*words)
        assert ended.code == 1
        assert "release.json was altered, its signature (release.json.sig) is not of these bytes" in ended.err
        assert ended.err_lines == 1


def test_only_named_keys_count(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody else signed is a release of theirs, until the reader says whose releases are meant."""
    folder = copied(published, tmp_path / "copy")
    named = tmp_path / "publisher.pem"
    named.write_text(signatures.pem(signatures.public_key(keys.load(published / "home"))))
    resigned(folder)
    release_folder.certificate_of(folder)
    monkeypatch.setenv(signatures.KEYS, str(named))
    release_folder.certificate_of(published / "releases" / "small-1")
    with pytest.raises(StoreError, match=f"which is none of {signatures.KEYS}"):
        release_folder.certificate_of(folder)
    named.write_text(named.read_text() + signatures.pem(signatures.public_key(Secret(bytes(range(32))))))
    release_folder.certificate_of(folder)
    for content in ("", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"):
        named.write_text(content)
        with pytest.raises(KeyUnavailable, match="'dpdist keys public' prints one"):
            release_folder.certificate_of(folder)
    monkeypatch.setenv(signatures.KEYS, str(tmp_path / "missing.pem"))
    with pytest.raises(KeyUnavailable, match="No such file"):
        release_folder.certificate_of(folder)


def test_the_public_key_is_printed_for_others(published: Path, command: CommandLine, tmp_path: Path) -> None:
    signed = json.loads((published / "releases" / "small-1" / "release.json.sig").read_text())
    assert command("keys", "public", "--hex").out == signed["public_key"]
    printed = command("keys", "public").out
    (tmp_path / "key.pem").write_text(printed.replace("KEY----- ", "KEY-----\n").replace(" -----END", "\n-----END"))
    assert signatures.keys_in(tmp_path / "key.pem") == {signed["public_key"]}
    with open_ledger(published / "home") as ledger:
        assert ledger.signers() == (signed["public_key"],)


class Killed(BaseException):
    """Stands for the end of the process."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def kill_after(call: Callable[..., Any]) -> Callable[..., Any]:
    def killed(*arguments: Any, **options: Any) -> None:
        call(*arguments, **options)
        raise Killed

    return killed


EVENTS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "before the ledger names the certificate": (Ledger, "publish", kill),
    "after it": (Ledger, "publish", kill_after(Ledger.publish)),
    "before it is signed": (publish.signatures, "sign", kill),
    "before the folder has its name": (release_folder, "move_into_place", kill),
    "after the folder has it": (release_folder, "move_into_place", kill_after(release_folder.move_into_place)),
}


@pytest.mark.parametrize(
    "event", [pytest.param(name, marks=() if place is Ledger else pytest.mark.slow) for name, (place, *_) in EVENTS.items()]
)
def test_a_run_killed_around_its_signature_is_finished_with_the_same_bytes(home: Path, event: str) -> None:
    path = small_release.write(home.parent / "data", **TINY)
    place, name, killed = EVENTS[event]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, killed)
        with pytest.raises(Killed):
            small_release.run(path, home)
    with open_ledger(home) as ledger:
        before = ledger.published()
    done = small_release.run(path, home)
    assert not done.charged
    files = small_release.tree(Path(done.folder))
    with open_ledger(home) as ledger:
        assert ledger.verify().releases == 1
        assert list(ledger.published()) == [hashlib.sha256(files["release.json"]).hexdigest()]
        assert len(ledger.publications("small-1")) == 1
        assert before in ({}, ledger.published())
    shutil.rmtree(done.folder)
    small_release.run(path, home)
    assert small_release.tree(Path(done.folder)) == files
    assert (len(before) == 0) == (event == "before the ledger names the certificate")


@pytest.mark.slow
def test_a_bucket_gets_its_certificate_after_its_signature(home: Path, s3: str) -> None:
    """Killed between the two, a prefix holds no release yet; run again it has the same bytes."""
    path = small_release.write(home.parent / "data", **TINY, output={"folder": f"{s3}/signed", "formats": ["csv"]})
    place = parse_location(f"{s3}/signed")
    with pytest.MonkeyPatch.context() as patch:
        put = type(place).upload

        def killed(self: Any, name: str, *content: Any, **options: Any) -> Any:
            if name == "release.json":
                raise Killed
            return put(self, name, *content, **options)

        patch.setattr(type(place), "upload", killed)
        with pytest.raises(Killed):
            small_release.run(path, home)
    assert place.exists("release.json.sig")
    assert not place.exists("release.json")
    before = bytes(place.read_bytes("release.json.sig"))
    small_release.run(path, home)
    assert bytes(place.read_bytes("release.json.sig")) == before
    release_folder.signed_certificate(place)
    text = bytes(place.read_bytes("release.json"))
    place.write("release.json", text.replace(b"1/10", b"1/1000"))
    with pytest.raises(StoreError, match="release.json was altered"):
        small_release.run(path, home)


@pytest.mark.slow
def test_a_key_that_went_away_publishes_nothing(home: Path) -> None:
    """The release is charged and measured; with the key back it is published."""
    path = small_release.write(home.parent / "data", **TINY)
    key, away = home / "root.key", home / "away"

    def lost(name: str, work: Callable[[], Any]) -> Any:
        if name == "publish":
            key.rename(away)
        return work()

    with pytest.raises(KeyUnavailable, match="no root key"):
        small_release.run(path, home, step=lost)
    assert not Path("releases/small-1").exists()
    with open_ledger(home) as ledger:
        assert ledger.published() == {}
    away.rename(key)
    assert not small_release.run(path, home).charged
    release_folder.certificate_of(Path("releases/small-1"))


def test_a_new_key_gets_a_row_and_old_releases_still_hold(home: Path) -> None:
    old = signatures.public_key(keys.load(home))
    first = small_release.write(home.parent / "data", **TINY)
    small_release.run(first, home)
    (home / "root.key").write_text("a7" * 32 + "\n")
    new = signatures.public_key(keys.load(home))
    second = small_release.write(home.parent / "other", table=small_release.records(seed=1), **TINY, release="small-2")
    small_release.run(second, home)
    small_release.run(first, home)
    for release, key in (("small-1", old), ("small-2", new)):
        folder = Path("releases", release)
        release_folder.certificate_of(folder)
        assert release_folder.verify_signature(parse_location(folder)) == key
    with open_ledger(home) as ledger:
        assert ledger.signers() == (old, new)
        assert [row["facts"]["key"] for row in ledger.entries() if row["event"] == "signer"] == [old, new]
        assert ledger.verify().releases == 2
