"""Root keys that a command prints: an envelope that a KMS opens, over real HTTP, and commands that fail."""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from dpdist.errors import KeyUnavailable
from dpdist.privacy import keys
from tests.support import small_release

KEY = "a7" * 32
OPENED = """
import base64, boto3, pathlib, sys
blob = base64.b64decode(pathlib.Path(sys.argv[1]).read_text())
print(boto3.client("kms").decrypt(CiphertextBlob=blob, EncryptionContext={"for": "dpdist"})["Plaintext"].decode())
"""


@pytest.fixture(scope="module")
def kms() -> Iterator[None]:
    """AWS KMS of the test's own."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_KMS", f"http://{host}:{port}")
        for name, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "eu-central-1"}.items():
            patch.setenv(f"AWS_{name}", value)
        yield
    server.stop()


def envelope(folder: Path) -> tuple[Path, str]:
    """The root key as the KMS sealed it, and the command that has it opened."""
    client = boto3.client("kms")
    master = client.create_key()["KeyMetadata"]["KeyId"]
    sealed = client.encrypt(KeyId=master, Plaintext=KEY.encode(), EncryptionContext={"for": "dpdist"})["CiphertextBlob"]
    assert KEY.encode() not in sealed
    file = folder / "root.key.kms"
    file.write_text(base64.b64encode(sealed).decode())
    return file, shlex.join([sys.executable, "-c", OPENED, str(file)])


def test_a_release_with_a_key_from_a_kms(kms: None, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the key is left; the release's process asks the KMS, and an envelope that was altered is refused."""
    file, command = envelope(tmp_path)
    (home / "root.key").unlink()
    monkeypatch.setenv(keys.COMMAND_ENVIRONMENT, command)
    assert keys.load(home).reveal().hex() == KEY
    assert small_release.run(small_release.write(tmp_path / "data"), home).charged
    altered = bytearray(base64.b64decode(file.read_text()))
    altered[-1] ^= 1
    file.write_text(base64.b64encode(bytes(altered)).decode())
    keys._key_from_command.cache_clear()
    with pytest.raises(KeyUnavailable, match="ended with code 1; run it by hand"):
        keys.load(home)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("/nothing/there", "cannot be run .No such file"),
        ("'unbalanced", "cannot be run .it is no command line"),
        ("   ", "cannot be run .it is no command line"),
        (f"{sys.executable} -c 'print(\"{KEY[:-2]}\")'", "must hold 64 hexadecimal digits, found 62"),
        (f"{sys.executable} -c 'print(\"secret {KEY}\")'", "its content is not shown"),
        (f"{sys.executable} -c 'import os; os.write(1, bytes([255]))'", "its content is not shown"),
        (f"{sys.executable} -c 'import time; time.sleep(99)'", "did not end within 1 s"),
    ],
)
def test_commands_that_print_no_key(command: str, line: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "COMMAND_SECONDS", 1.0)
    monkeypatch.setenv(keys.COMMAND_ENVIRONMENT, command)
    with pytest.raises(KeyUnavailable, match=line) as refused:
        keys.load(home)
    assert KEY[:20] not in str(refused.value)


def test_a_command_is_asked_once_and_never_by_a_shell(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    program = f"open({str(asked)!r}, 'a').write('x'); print({KEY!r})"
    monkeypatch.setenv(
        keys.COMMAND_ENVIRONMENT, f"{shlex.join([sys.executable, '-c', program])} ; touch {tmp_path / 'shell'}"
    )
    for _ in range(3):
        assert keys.load(home).reveal().hex() == KEY
    assert asked.read_text() == "x"
    assert not (tmp_path / "shell").exists()
    assert KEY not in repr(keys.load(home))
