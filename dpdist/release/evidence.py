"""What lies published beside a release: certificates of its ledger's own releases, which a ledger that was rolled back lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from dpdist.errors import LedgerError, StoreError
from dpdist.machine.objects import Denied, Place
from dpdist.page import report
from dpdist.privacy.ledger import Ledger

MOST_READ = 64
"""Certificates that are read before a charge: the last ones by name, for names mostly follow the dates."""


def check_published(ledger: Ledger, where: Place) -> None:
    """Whether the ledger has committed each release that its name stands on, of those that lie beside a release's place.

    One listing, and at most ``MOST_READ`` certificates: folders with the name of a committed release are taken for that release.

    Raises: LedgerError for a ledger that was restored from before one of them; StoreError when the place cannot be listed.
    """
    name = ledger.name()
    if name is None:
        return  # an empty ledger is nobody's copy
    folders = _folders(where.parent)  # before the ledger is asked: what is published meanwhile was committed before
    committed = set(ledger.committed())
    unknown = sorted(set(folders) - committed, reverse=True)[:MOST_READ]
    for place, content in _certificates(where.parent, unknown):
        try:
            certificate = report.read_certificate(content, place)
        except StoreError:
            continue
        budget = certificate.get("budget")
        if isinstance(budget, dict) and budget.get("ledger") == name and certificate["release"] not in committed:
            raise LedgerError(
                f"{place} holds {certificate['release']!r} of data set {certificate.get('dataset')!r}, published after this ledger "
                "committed it, and the ledger does not know that: it was restored from an older backup. Restore the newest backup. If "
                "there is none, lower the cap by what that certificate spent ('dpdist ledger cap') and move its folder elsewhere"
            )


def _folders(place: Place) -> list[str]:
    """The names of the folders at a place; none where they may not be listed."""
    try:
        return place.folders()
    except Denied:
        return []


def _certificates(place: Place, names: list[str]) -> Iterator[tuple[Place, bytes]]:
    """The certificates in folders of a place, where there are some."""
    for each in (place / name for name in names):
        with suppress(Denied):  # a folder of somebody else
            if content := report.published_certificate(each):
                yield each, content
