from __future__ import annotations

import copy
import hashlib
import hmac
import os
import pickle
from pathlib import Path

import pytest

from dpdist.errors import KeyUnavailable
from dpdist.privacy import keys


def test_a_new_key_is_private_and_kept(home: Path) -> None:
    path = home / "root.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(path.read_text().strip())) == 32
    with pytest.raises(KeyUnavailable, match="exists and is kept"):
        keys.initialise(home)


def test_a_mounted_secret_may_be_read_through_its_group(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes mounts secrets owned by root with the pod's group; nobody else may read them, and the group may not write."""
    path = home / "root.key"
    monkeypatch.setattr("os.geteuid", lambda: 10001)
    for mode, allowed in ((0o440, True), (0o400, True), (0o444, False), (0o460, False), (0o450, False)):
        path.chmod(mode)
        if path.stat().st_uid != 0:
            pytest.skip("needs a file that belongs to root")
        if allowed:
            keys.load(home)
        else:
            with pytest.raises(KeyUnavailable, match="others may read it"):
                keys.load(home)


def test_only_the_mounts_of_root_for_others_may_be_read_through_their_group(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of one's own, of any other user, and of root that root reads itself: their groups hold somebody else."""
    path = home / "root.key"
    path.chmod(0o440)
    owners = [path.stat().st_uid] if os.geteuid() else [0, 10001, 10002]
    for owner in owners:
        if not os.geteuid():
            os.chown(path, owner, -1)
        with monkeypatch.context() as patch:
            patch.setattr("os.geteuid", lambda owner=owner: 10001 if owner else 0)
            with pytest.raises(KeyUnavailable, match="has mode 0440, others may read it"):
                keys.load(home)


def test_missing_readable_and_malformed_keys_are_refused(home: Path) -> None:
    path = home / "root.key"
    path.chmod(0o640)
    with pytest.raises(KeyUnavailable, match="chmod 600"):
        keys.load(home)
    path.chmod(0o600)
    content = path.read_text().strip()
    path.write_text(content[:10])
    with pytest.raises(KeyUnavailable, match="64 hexadecimal digits") as refusal:
        keys.load(home)
    assert content[:10] not in str(refusal.value)
    path.write_text("not hexadecimal: secret")
    with pytest.raises(KeyUnavailable) as refusal:
        keys.load(home)
    assert "secret" not in str(refusal.value)
    path.unlink()
    with pytest.raises(KeyUnavailable, match="keys init"):
        keys.load(home)


def test_environment_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(keys.ENVIRONMENT, "ab" * 32)
    assert keys.load(home).reveal() == b"\xab" * 32


def test_release_keys_differ_in_every_part() -> None:
    root = keys.Secret(b"r" * 32)
    base = {"salt": b"s" * 32, "release": "a", "spec_digest": "b", "histogram_digest": "c"}
    found = {keys.release_key(root, **base).reveal()}
    for part in base:
        changed = {**base, part: b"t" * 32 if part == "salt" else "x"}
        found.add(keys.release_key(root, **changed).reveal())
    found.add(keys.release_key(root, **{**base, "release": "a\0b", "spec_digest": ""}).reveal())
    found.add(keys.release_key(keys.Secret(b"q" * 32), **base).reveal())
    assert len(found) == 7
    assert keys.release_key(root, **base).reveal() in found


def test_secrets_do_not_show_or_travel() -> None:
    secret = keys.Secret(b"k" * 32)
    assert "k" * 8 not in repr(secret) + str(secret)
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(KeyUnavailable):
            escape(secret)


def test_a_full_disk_leaves_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty key would be kept by the next 'keys init'."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.delenv(keys.FILE_ENVIRONMENT, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(KeyUnavailable, match="No space left on device"):
            keys.initialise(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert keys.initialise(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_no_text_is_told_in_one_line(home: Path) -> None:
    (home / "root.key").write_bytes(b"\xff\xfe" * 32)
    with pytest.raises(KeyUnavailable, match="must hold 64 hexadecimal digits"):
        keys.load(home)


def hkdf(root: bytes, salt: bytes, information: bytes) -> bytes:
    """RFC 5869 with SHA-256 and one block of output, written from the RFC."""
    extracted = hmac.new(salt or bytes(32), root, hashlib.sha256).digest()
    return hmac.new(extracted, information + b"\x01", hashlib.sha256).digest()


def mac(key: bytes, *texts: str) -> str:
    """HMAC-SHA256 of texts, each behind its length in eight bytes."""
    content = b"".join(len(text.encode()).to_bytes(8, "big") + text.encode() for text in texts)
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def test_keys_and_commitments_are_what_they_were_derived_as() -> None:
    """A release in flight, a guard and a finished release are recognised by later versions only if no derivation ever changes."""
    secret, salt = bytes(range(32)), bytes(range(100, 132))
    root = keys.Secret(secret)
    found = keys.release_key(root, salt=salt, release="r", spec_digest="s", histogram_digest="h")
    assert found.reveal() == hkdf(secret, salt, b"dpdist release key v1\0r\0s\0h")
    own = hkdf(secret, salt, b"dpdist histogram commitment v1")
    assert keys.histogram_commitment(root, salt=salt, release="r", histogram_digest="h") == mac(own, "r", "h")
    lasting = hkdf(secret, b"", b"dpdist commitment v1\0file")
    assert keys.commitment_key(root, "file").reveal() == lasting
    assert keys.commitment(root, "file", "a", "bc") == mac(lasting, "a", "bc") != mac(lasting, "ab", "c")
    assert keys.file_commitments(root, ["a", "é"]) == (mac(lasting, "a"), mac(lasting, "é"))
