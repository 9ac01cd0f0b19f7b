"""Who signs what is published: the process that measured, which holds the root key and charges the ledger.

The ledger names the certificate before anybody can see it, so no signed file exists that its chain does not know.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

from dpdist.errors import StoreError
from dpdist.privacy import keys, signatures
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import Publication
from dpdist.release.context import Context


@dataclass(frozen=True)
class LedgerSeal:
    """Signs the certificate of a release, and knows those that the ledger says were published.

    Attributes:
        place: where it is published.
        tables: of warehouses that get its rows, by kind and name.
    """

    context: Context
    release: str
    place: str
    tables: tuple[tuple[str, str], ...]

    @cached_property
    def _root(self) -> Secret:
        return keys.load(self.context.home)

    def sign(self, certificate: bytes) -> bytes:
        """The signature's file, once the ledger has the certificate's digest. Raises: LedgerError, KeyUnavailable."""
        digest = hashlib.sha256(certificate).hexdigest()
        publication = Publication(digest, signatures.public_key(self._root), self.place, self.tables)
        self.context.ledger.publish(self.release, publication)
        return signatures.sign(self._root, certificate)

    def check(self, certificate: bytes, where: object) -> None:
        """Accept a certificate that was published; the ledger notes if it lies at another place. Raises: StoreError."""
        digest = hashlib.sha256(certificate).hexdigest()
        known = next((each for each in self.context.ledger.publications(self.release) if each.certificate == digest), None)
        if known is None:
            raise StoreError(
                f"{where} holds a signed {self.release!r} that this ledger has not published; get the folder that it has, or move this "
                "one away and run again: nothing is charged twice"
            )
        self.context.ledger.publish(self.release, replace(known, place=self.place, tables=self.tables))
