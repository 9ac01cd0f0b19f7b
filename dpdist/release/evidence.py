"""What lies published beside a release: certificates of its ledger's own releases, which a ledger that was rolled back lacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dpdist.errors import LedgerError, StoreError
from dpdist.machine import store
from dpdist.page import report
from dpdist.privacy.ledger import Ledger

MOST_READ = 64
"""Certificates that are read before a charge: the last ones by name, for names mostly follow the dates."""


def check_published(ledger: Ledger, where: Path | str) -> None:
    """Whether the ledger has committed each release that its name stands on, of those that lie beside a release's place.

    One listing, and at most ``MOST_READ`` certificates: folders with the name of a committed release are taken for that release.

    Raises: LedgerError for a ledger that was restored from before one of them; StoreError when the place cannot be listed.
    """
    name = ledger.name()
    if name is None:
        return  # an empty ledger is nobody's copy
    folders = _beside(where)  # before the ledger is asked: what is published meanwhile was committed before
    committed = set(ledger.committed())
    unknown = sorted(set(folders) - committed, reverse=True)[:MOST_READ]
    for place, content in _certificates(where, unknown):
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


def _beside(where: Path | str) -> list[str]:
    """The names of the folders beside a place; none where the parent may not be listed."""
    if isinstance(where, str):
        return store.folders_at(where.rstrip("/").rpartition("/")[0])
    try:
        with os.scandir(where.parent) as found:
            return [each.name for each in found if each.is_dir()]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _certificates(where: Path | str, names: list[str]) -> Iterator[tuple[Path | str, bytes]]:
    """The certificates in folders beside a place, where there are some."""
    for name in names:
        if isinstance(where, str):
            url = f"{where.rstrip('/').rpartition('/')[0]}/{name}"
            if store.exists_at(url, report.CERTIFICATE):
                yield url, store.read_at(url, report.CERTIFICATE)
        elif content := report.published_certificate(where.parent / name):
            yield where.parent / name, content
