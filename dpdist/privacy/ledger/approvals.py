"""Sign-offs: releases of a data set that needs them are charged only when enough of its approvers have signed their spec.

An approval is an event in the ledger's chain: an Ed25519 signature of data set, release id and spec digest. Whoever changes the spec
needs new ones; the ledger's owner says whose count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpdist.errors import InvalidInput, KeyUnavailable

_CONTEXT = b"dpdist approval v1\0"


@dataclass(frozen=True)
class Approvers:
    """Whose approvals count for a data set, and how many a release needs.

    Attributes:
        keys: their Ed25519 public keys, 64 hexadecimal digits each.
    """

    keys: tuple[str, ...]
    required_count: int

    def __post_init__(self) -> None:
        if len(set(self.keys)) != len(self.keys) or not 0 <= self.required_count <= len(self.keys):
            raise InvalidInput(
                f"needed are {self.required_count} approvals, there are only {len(set(self.keys))} distinct keys: give each approver's "
                "key once, "
                "and ask for as many approvals or fewer"
            )
        for key in self.keys:
            _public(key)

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Approvers:
        """The approvers that a row names."""
        return Approvers(tuple(facts["keys"]), facts["needed"])

    def count(self, signed: Iterable[str]) -> int:
        """How many of the keys that signed belong to approvers."""
        return len(set(signed) & set(self.keys))


NO_APPROVERS = Approvers((), 0)
"""Of a data set whose releases need no approvals."""


def new_key(path: Path) -> str:
    """The public key of a new private key, which is written to a file that only its owner can read.

    Raises: KeyUnavailable when there is such a file already, or it cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    no_encryption = serialization.NoEncryption()
    content = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_encryption)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise KeyUnavailable(f"no approver's key was written to {path} ({error.strerror}); name a new file") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    return public_of(key)


def load_key(path: Path) -> Ed25519PrivateKey:
    """An approver's private key. Raises: KeyUnavailable when it is not there, readable by others, or none."""
    try:
        if path.stat().st_mode & 0o077:
            raise KeyUnavailable(f"the approver's key {path} can be read by others; run 'chmod 600 {path}'")
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise KeyUnavailable(
            f"the approver's key {path} cannot be read ({error.strerror}); 'dpdist keys approver FILE' makes one"
        ) from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnavailable(
            f"{path} holds no Ed25519 private key without a password; 'dpdist keys approver FILE' makes one"
        )
    return key


def public_of(key: Ed25519PrivateKey) -> str:
    """The public key, as approvers are named."""
    return key.public_key().public_bytes_raw().hex()


def signature(key: Ed25519PrivateKey, dataset: str, release: str, spec: str) -> str:
    """The approval of a spec, by its digest."""
    return key.sign(_message(dataset, release, spec)).hex()


def is_signed(facts: Mapping[str, Any], dataset: str, release: str) -> bool:
    """Whether an approval that a row holds was signed with the key that it names."""
    try:
        _public(facts["key"]).verify(bytes.fromhex(facts["signature"]), _message(dataset, release, facts["spec"]))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(dataset: str, release: str, spec: str) -> bytes:
    return _CONTEXT + json.dumps([dataset, release, spec]).encode()


def _public(key: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    except ValueError:
        raise InvalidInput(
            "an approver's public key has 64 hexadecimal digits, as 'dpdist keys approver' prints it"
        ) from None
