"""The root key, and the key of each release.

The root key lives outside the ledger: a file of mode 0600, what a command prints (a KMS that opens an envelope, a vault), or an
environment variable. It is never logged, shown in a repr, pickled, or accepted as an argument of a command.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import shlex
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpdist.errors import KeyUnavailable
from dpdist.process.durable_files import private_folder, sync_path

KEY_BYTES = 32
ENVIRONMENT = "DPDIST_ROOT_KEY"
FILE_ENVIRONMENT = "DPDIST_ROOT_KEY_FILE"
COMMAND_ENVIRONMENT = "DPDIST_ROOT_KEY_COMMAND"
COMMAND_SECONDS = 60.0
"""How long a key service may take."""
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


def _key_file(home: Path) -> Path:
    """Where the root key is kept, unless the environment says otherwise."""
    return Path(os.environ.get(FILE_ENVIRONMENT) or home / "root.key")


def initialise(home: Path) -> Path:
    """A new root key from the operating system's entropy, written with mode 0600; returns its path.

    Raises: KeyUnavailable when there is one: a lost root key cannot be made again, an overwritten one neither.
    """
    path = _key_file(home)
    private_folder(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(os.urandom(KEY_BYTES).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # whole or not at all, and never over another key
        sync_path(path.parent)
    except FileExistsError:
        raise KeyUnavailable(f"{path} exists and is kept; move it away first if you really want another root key") from None
    except OSError as error:
        raise KeyUnavailable(
            f"no root key could be written to {path}: {error.strerror}; no key was made; free space on the disk or choose another folder "
            "and run 'dpdist keys init' again"
        ) from None
    finally:
        os.unlink(draft)
    return path


def ensure(home: Path, nothing_charged: Callable[[], bool]) -> None:
    """Make a root key in a state folder that has none, unless the environment says where key or ledger are.

    Args:
        nothing_charged: whether no release was ever charged here: a second key would not be the one of its noise.
    """
    elsewhere = (ENVIRONMENT, FILE_ENVIRONMENT, COMMAND_ENVIRONMENT, "DPDIST_LEDGER", "DPDIST_LEDGER_FILE")
    if any(name in os.environ for name in elsewhere) or _key_file(home).exists() or not nothing_charged():
        return
    with suppress(KeyUnavailable):  # another process has just made one; or there is none, as whoever needs it will say
        path = initialise(home)
        warnings.warn(
            f"a root key was made at {path}; back it up: a release that was interrupted goes on with it alone", stacklevel=4
        )


def load(home: Path) -> Secret:
    """The root key.

    Raises: KeyUnavailable when there is none, when others may read its file, or when it is malformed.
    """
    text = os.environ.get(ENVIRONMENT)
    if text is not None:
        return _parse(text, f"the environment variable {ENVIRONMENT}")
    if command := os.environ.get(COMMAND_ENVIRONMENT):
        return _key_from_command(command)
    path = _key_file(home)
    try:
        file_status = path.stat()
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise KeyUnavailable(f"no root key at {path}; make one with 'dpdist keys init' and back it up") from None
    except OSError as error:
        raise KeyUnavailable(f"the root key at {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _malformed(str(path)) from None
    mode = file_status.st_mode
    # Kubernetes mounts secrets owned by root, readable through the pod's own group
    mounted = file_status.st_uid == 0 and os.geteuid() != 0
    if mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP) or (mode & stat.S_IRGRP and not mounted):
        raise KeyUnavailable(f"the root key {path} has mode {mode & 0o777:04o}, others may read it; run: chmod 600 {path}")
    return _parse(text, str(path))


@functools.cache
def _key_from_command(command: str) -> Secret:
    """The key that a command prints, which is run without a shell and once a process. What it prints is never shown."""
    source = f"the command of {COMMAND_ENVIRONMENT}"
    cure = "run it by hand, and give one that prints the root key and nothing else"
    try:
        words, quiet = shlex.split(command), subprocess.DEVNULL
        process = subprocess.run(
            words,
            stdin=quiet,
            stdout=subprocess.PIPE,
            stderr=quiet,
            timeout=COMMAND_SECONDS,
            check=False,
            text=True,
            encoding="ascii",
        )
    except UnicodeDecodeError:
        raise _malformed(source) from None
    except subprocess.TimeoutExpired:
        raise KeyUnavailable(f"{source} did not end within {COMMAND_SECONDS:g} s; {cure}") from None
    except (OSError, ValueError, IndexError) as error:
        problem = getattr(error, "strerror", None) or "it is no command line"
        raise KeyUnavailable(f"{source} cannot be run ({problem}); {cure}") from None
    if process.returncode:
        raise KeyUnavailable(f"{source} ended with code {process.returncode}; {cure}")
    return _parse(process.stdout, source)


def release_key(root: Secret, *, salt: bytes, release: str, spec_digest: str, histogram_digest: str) -> Secret:
    """HKDF-SHA256(root, salt, release | spec digest | histogram digest): another release, spec or histogram, another key."""
    information = b"\0".join([_CONTEXT, release.encode(), spec_digest.encode(), histogram_digest.encode()])
    return Secret(HKDF(hashes.SHA256(), KEY_BYTES, salt, information).derive(root.reveal()))


def histogram_commitment(root: Secret, *, salt: bytes, release: str, histogram_digest: str) -> str:
    """What a running release's ledger row says of its exact counts: keyed by root and salt, it means nothing once the salt is erased."""
    key = HKDF(hashes.SHA256(), KEY_BYTES, salt, b"dpdist histogram commitment v1").derive(root.reveal())
    return _mac(key, release, histogram_digest)


def commitment_key(root: Secret, purpose: str) -> Secret:
    """The key of commitments that outlive a release, one for each purpose. Whoever lacks the root key learns nothing from them."""
    return Secret(HKDF(hashes.SHA256(), KEY_BYTES, None, b"dpdist commitment v1\0" + purpose.encode()).derive(root.reveal()))


def commitment(root: Secret, purpose: str, *texts: str) -> str:
    """HMAC-SHA256 of some texts under the key of a purpose, 64 hexadecimal digits."""
    return _mac(commitment_key(root, purpose).reveal(), *texts)


def identity(root: Secret) -> str:
    """What tells root keys apart without telling them: commitments under a rotated key cannot be compared with older ones."""
    return commitment(root, "identity")[:16]


def file_commitments(root: Secret, digests: Iterable[str]) -> tuple[str, ...]:
    """The commitments to the bytes of files: ``commitment(root, "file", digest)`` of each."""
    key = commitment_key(root, "file").reveal()
    return tuple(_mac(key, digest) for digest in digests)


def counts_commitment(root: Secret, histogram_digest: str) -> str:
    """The commitment to exact counts that outlives a release: made under caps per period only, where the guard needs it."""
    return commitment(root, "counts", histogram_digest)


def _mac(key: bytes, *texts: str) -> str:
    """HMAC-SHA256 of texts, each with its length, so that no two lists of texts look alike."""
    encoded = [text.encode() for text in texts]
    return hmac.new(
        key, b"".join(len(content).to_bytes(8, "big") + content for content in encoded), hashlib.sha256
    ).hexdigest()


def _malformed(source: str) -> KeyUnavailable:
    return KeyUnavailable(f"{source} must hold 64 hexadecimal digits; its content is not shown")


def _parse(text: str, source: str) -> Secret:
    try:
        content = bytes.fromhex(text.strip())
    except ValueError:
        raise _malformed(source) from None
    if len(content) != KEY_BYTES:
        raise KeyUnavailable(f"{source} must hold 64 hexadecimal digits, found {2 * len(content)}")
    return Secret(content)
