"""The root key, and the key of each release.

The root key lives outside the ledger: a file of mode 0600 or an environment variable. It is never logged, shown in a
repr, pickled, or accepted as an argument of a command.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpdist.errors import KeyUnavailable

KEY_BYTES = 32
ENVIRONMENT = "DPDIST_ROOT_KEY"
FILE_ENVIRONMENT = "DPDIST_ROOT_KEY_FILE"
_CONTEXT = b"dpdist release key v1"


class Secret:
    """Key bytes that do not show in a repr and refuse to be pickled or copied into a task."""

    __slots__ = ("_bytes",)

    def __init__(self, content: bytes) -> None:
        if len(content) != KEY_BYTES:
            raise KeyUnavailable(f"a key has {KEY_BYTES} bytes, found {len(content)}; make one with 'dpdist keys init'")
        self._bytes = content

    def reveal(self) -> bytes:
        """The bytes, for the one call that needs them."""
        return self._bytes

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> NoReturn:
        raise KeyUnavailable("a key is never pickled: derive it where it is used")


def key_file(home: Path) -> Path:
    """Where the root key is kept, unless the environment says otherwise."""
    return Path(os.environ.get(FILE_ENVIRONMENT) or home / "root.key")


def initialise(home: Path) -> Path:
    """A new root key from the operating system's entropy, written with mode 0600; returns its path.

    Raises: KeyUnavailable when there is one: a lost root key cannot be made again, an overwritten one neither.
    """
    path = key_file(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyUnavailable(f"{path} exists and is kept; move it away first if you really want another root key") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(os.urandom(KEY_BYTES).hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path


def load(home: Path) -> Secret:
    """The root key.

    Raises: KeyUnavailable when there is none, when others may read its file, or when it is malformed.
    """
    text = os.environ.get(ENVIRONMENT)
    if text is not None:
        return _parse(text, f"the environment variable {ENVIRONMENT}")
    path = key_file(home)
    try:
        found = path.stat()
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise KeyUnavailable(f"no root key at {path}; make one with 'dpdist keys init' and back it up") from None
    except OSError as error:
        raise KeyUnavailable(f"the root key at {path} cannot be read: {error.strerror}") from None
    mode = found.st_mode
    # Kubernetes mounts secrets owned by root, readable through the pod's own group
    mounted = found.st_uid == 0 and os.geteuid() != 0
    if mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP) or (mode & stat.S_IRGRP and not mounted):
        raise KeyUnavailable(f"the root key {path} has mode {mode & 0o777:04o}, others may read it; run: chmod 600 {path}")
    return _parse(text, str(path))


def release_key(root: Secret, *, salt: bytes, release: str, spec_digest: str, histogram_digest: str) -> Secret:
    """HKDF-SHA256(root, salt, release | spec digest | histogram digest): another release, spec or histogram, another key."""
    information = b"\0".join([_CONTEXT, release.encode(), spec_digest.encode(), histogram_digest.encode()])
    return Secret(HKDF(hashes.SHA256(), KEY_BYTES, salt, information).derive(root.reveal()))


def _parse(text: str, where: str) -> Secret:
    try:
        content = bytes.fromhex(text.strip())
    except ValueError:
        raise KeyUnavailable(f"{where} must hold 64 hexadecimal digits; its content is not shown") from None
    if len(content) != KEY_BYTES:
        raise KeyUnavailable(f"{where} must hold 64 hexadecimal digits, found {2 * len(content)}")
    return Secret(content)
