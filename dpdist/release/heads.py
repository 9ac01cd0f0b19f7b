"""The ledger's head, noted where its owner cannot rewrite it: a bucket with object lock, or a folder of somebody else's."""

from __future__ import annotations

import os
import re

from dpdist.documents import Documents
from dpdist.errors import LedgerError, StoreError
from dpdist.privacy.ledger import Ledger

HEADS = "DPDIST_LEDGER_HEADS"
"""Where the ledger's head is noted after every step of a release: a folder, or a URL such as s3://bucket/prefix."""
_FOLDER = "heads"


def note(ledger: Ledger) -> None:
    """Write number and digest of the newest row, once, where ``HEADS`` says. Nothing is ever overwritten or deleted.

    Raises: StoreError when it cannot be written: asked before the charge, that refuses the release.
    """
    place = os.environ.get(HEADS)
    if place and ledger.digest_of(1) is None:
        _at(place).create_document(f"{_FOLDER}/empty.json", {})  # tries whether heads can be noted
    elif place:
        head = ledger.mark()
        facts = {"first": head.first, "sequence": head.sequence, "head": head.head}
        _at(place).create_document(f"{_FOLDER}/{head.sequence:012d}-{head.head}.json", facts)


def compare(ledger: Ledger) -> int | None:
    """How many noted heads the ledger still has, None where none are noted.

    Raises: LedgerError for a ledger that lacks one: rows were removed or replaced after it was noted.
    """
    place = os.environ.get(HEADS)
    if not place:
        return None
    found = (
        re.fullmatch(r"(\d{12})-([0-9a-f]{64})\.json", path.rpartition("/")[2]) for path, _, _ in _at(place).listed(_FOLDER)
    )
    noted = sorted((int(name[1]), name[2]) for name in found if name)
    for sequence, digest in noted:
        if ledger.digest_of(sequence) != digest:
            raise LedgerError(
                f"the ledger has another row {sequence} than the head that was noted at {place}, or none: it was rolled back or replaced; "
                "restore the newest backup, and ask who could write it"
            )
    return len(noted)


def _at(place: str) -> Documents:
    """The place of heads. Raises: StoreError when it cannot be used."""
    try:
        return Documents(place, lockable=True)
    except OSError as error:
        raise StoreError(f"the ledger's head cannot be noted at {place} ({error.strerror}); correct {HEADS}") from None
