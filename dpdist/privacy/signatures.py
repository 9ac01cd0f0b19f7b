"""Signatures of published certificates: Ed25519, under a key that follows from the root key.

Whoever holds the root key can sign, and nobody else; there is no second secret to keep. docs/decisions/0009-published-files.md says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpdist.errors import KeyUnavailable, StoreError
from dpdist.privacy.keys import KEY_BYTES, Secret

ALGORITHM = "Ed25519"
KEYS = "DPDIST_PUBLIC_KEYS"
"""A file of the public keys whose signatures count, as ``dpdist keys public`` prints them. Default: any key."""
HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
"""A digest or a public key."""
_CONTEXT = b"dpdist signing key v1"


def _signing_key(root: Secret) -> Ed25519PrivateKey:
    """The private key of a root key: HKDF-SHA256 in a domain of its own, so it tells nothing of any other key."""
    return Ed25519PrivateKey.from_private_bytes(HKDF(hashes.SHA256(), KEY_BYTES, None, _CONTEXT).derive(root.reveal()))


def public_key(root: Secret) -> str:
    """The public half, 64 hexadecimal digits."""
    return _signing_key(root).public_key().public_bytes_raw().hex()


def pem(public: str) -> str:
    """A public key as other programs read it."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form).decode("ascii")


def sign(root: Secret, content: bytes) -> bytes:
    """The signature's file: the same bytes whenever it is made."""
    signed = {
        "algorithm": ALGORITHM,
        "public_key": public_key(root),
        "sha256": hashlib.sha256(content).hexdigest(),
        "signature": _signing_key(root).sign(content).hex(),
    }
    return (json.dumps(signed, indent=1) + "\n").encode()


def signer(content: bytes, signature: bytes, location: object) -> str:
    """The public key that signed these very bytes.

    Args:
        signature: the bytes of the signature's file.
    Raises: StoreError when the signature is not of these bytes, or of a key that the environment does not name.
    """
    key = _signer(content, signature)
    if key is None:
        raise StoreError(
            f"{location}: release.json was altered, its signature (release.json.sig) is not of these bytes; get the release's files again, "
            "or, as its publisher, move the folder away and run the release again"
        )
    named = named_keys()
    if named is not None and key not in named:
        raise StoreError(
            f"{location}: release.json is signed with the key {key}, which is none of {KEYS}; get the release from its publisher, or add "
            "the publisher's key to that file"
        )
    return key


def _signer(content: bytes, signature: bytes) -> str | None:
    """The key that signed the content, None if none did."""
    try:
        document = json.loads(signature)
        key, digest = str(document["public_key"]), hashlib.sha256(content).hexdigest()
        if document["algorithm"] != ALGORITHM or document["sha256"] != digest or not HEXADECIMAL.fullmatch(key):
            return None
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(document["signature"]), content)
    except (InvalidSignature, ValueError, LookupError, TypeError, RecursionError):
        return None
    return key


def named_keys() -> frozenset[str] | None:
    """The keys that the environment names, None where it names none. Raises: KeyUnavailable when its file cannot be read."""
    path = os.environ.get(KEYS)
    return keys_in(Path(path)) if path else None


def keys_in(path: Path) -> frozenset[str]:
    """The public keys in a file: PEM, one after the other. Raises: KeyUnavailable when it cannot be read or holds something else."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise KeyUnavailable(
            f"the public keys in {path} cannot be read: {reason}; 'dpdist keys public' prints one"
        ) from None
    keys = set()
    for block in _PEM.findall(text):
        try:
            key = serialization.load_pem_public_key(block.encode())
        except ValueError:
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise KeyUnavailable(f"{path} holds something else than Ed25519 public keys; 'dpdist keys public' prints one")
        keys.add(key.public_bytes_raw().hex())
    if not keys:
        raise KeyUnavailable(f"{path} holds no public key; 'dpdist keys public' prints one")
    return frozenset(keys)


_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
