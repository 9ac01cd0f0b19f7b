"""Small JSON documents and raw blocks under one root: a local folder or an object store.

A document holds the digest of its own content, so one that was altered is refused and never used. It is written in one step:
readers see the old one, the new one or none, never half of one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpdist.errors import StoreError
from dpdist.storage.objects import Missing, StorageLocation, parse_location

SEAL = "digest"
"""The key of a document's own digest."""
FORM, FORM_KEY = 1, "form"
"""The number of the form that documents have in this version, and its key. Whoever changes the fields of a stored record raises it, and
says so in ``tests/storage/test_forms.py``. Documents of earlier versions without a number have the first form."""
FLEETING = ("scratch/", "leases/", "digests/")
"""Folders that nothing promised rests on: they need not survive a power loss."""


class Documents:
    """Documents and blocks under one root.

    Args:
        location: a folder, or an object store URL such as ``s3://bucket/prefix`` (credentials from the environment).
        briefly, checksums: as in ``dpdist.storage.objects.parse_location``.
        sent: another process has opened the place and sent this handle: nothing is touched before it is used. Dask's scheduler passes
            handles on and sees no folder of a store.
    """

    def __init__(self, location: str | Path, *, briefly: bool = False, checksums: bool = False, sent: bool = False) -> None:
        storage = parse_location(location, briefly=briefly, checksums=checksums)
        self.location = storage.location
        self._storage = replace(storage, label=f"the store {storage}")
        self._claimed = False
        if not sent:
            _ = self.storage

    @property
    def storage(self) -> StorageLocation:
        """Where the documents are. Raises: StoreError when it cannot be opened."""
        if not self._claimed:
            self._storage.claim()
            self._claimed = True
        return self._storage

    def write_document(self, name: str, content: dict[str, Any]) -> None:
        """Write a small JSON document in one step. Raises: StoreError when it cannot be written."""
        self.storage.write(name, _encoded(name, content), lasting=not name.startswith(FLEETING))

    def create_document(self, name: str, content: dict[str, Any]) -> bool:
        """Write a document unless there is one; whether this call wrote it. Atomic between processes.

        Raises: StoreError when it cannot be written.
        """
        return self.storage.create(name, _encoded(name, content), lasting=not name.startswith(FLEETING))

    def read_document(self, name: str) -> dict[str, Any]:
        """A JSON document. Raises: StoreError when it is missing, cannot be read or is not what was written."""
        try:
            loaded = json.loads(bytes(self.storage.read_bytes(name)))
        except Missing:
            raise Missing(f"{name!r} is not in the store {self.location}: it is missing or incomplete") from None
        except (ValueError, RecursionError):
            raise StoreError(f"{name!r} in the store {self.location} is not readable JSON: it was altered") from None
        if isinstance(loaded, dict):  # before its digest: a later version may seal what it writes in another way
            check_form(loaded.get(FORM_KEY, FORM), f"{name!r} in the store {self.location}")
        if not isinstance(loaded, dict) or loaded.pop(SEAL, None) != seal(name, loaded):
            raise StoreError(
                f"{name!r} in the store {self.location} was altered; restore it from a backup, or delete what it describes and run again"
            )
        loaded.pop(FORM_KEY, None)
        return loaded

    def has_document(self, name: str) -> bool:
        """Whether the document is there. Raises: StoreError when the store cannot be asked."""
        return self.storage.exists(name)

    def delete(self, name: str, *, delete_first: Sequence[str] = ()) -> None:
        """Remove a document, or everything below a folder: what is named ``delete_first`` before all else."""
        self.storage.remove(name, delete_first=delete_first)

    def folders(self, name: str) -> list[str]:
        """Names of the folders directly below a folder. Raises: StoreError when they cannot be listed."""
        return self.storage.folders(name)

    def names(self, folder: str) -> list[str]:
        """The names of all objects below a folder. Raises: StoreError when they cannot be listed."""
        return sorted(entry.name for entry in self.storage.entries(folder))

    def sync(self, name: str) -> None:
        """Put everything below a folder on the disk: it is there after a power loss. Raises: StoreError when the disk refuses."""
        self.storage.sync(name)


def check_form(found: object, what: str, newest: int = FORM) -> None:
    """Refuse what a later version wrote. Raises: StoreError.

    Args:
        found: the number of its form.
        what: in the message.
        newest: the last form that this version reads.
    """
    if isinstance(found, int) and found > newest:
        raise StoreError(
            f"{what} was written by a later version of dpdist (its form is {found}, this version reads up to {newest}): use that version"
        )


def seal(name: str, content: dict[str, Any]) -> str:
    """The digest that a document holds of its name and content: one that was put in another's place is altered, too."""
    return hashlib.sha256(json.dumps([name, content], sort_keys=True).encode()).hexdigest()


def _encoded(name: str, content: dict[str, Any]) -> bytes:
    assert FORM_KEY not in content, "the number of the form is not the content's own"
    json_content = {FORM_KEY: FORM, **json.loads(json.dumps(content))}  # as it will be read: tuples are lists, keys are text
    return json.dumps({**json_content, SEAL: seal(name, json_content)}, sort_keys=True, indent=1).encode()
