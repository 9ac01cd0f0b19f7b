"""The published releases of a data set, and which of their folders an earlier site has seen as they are now."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpdist.errors import InvalidInput, StoreError
from dpdist.publish import release_folder
from dpdist.theme import FILE, PLAIN, Look
from dpdist.version import version


@dataclass(frozen=True)
class Comparable:
    """What the numbers of a release are, from its certificate. Two releases are comparable if their quantities are equal.

    Attributes:
        counted: the records, in the plural.
        unit: what is protected: with the bounds, it decides which records count.
        meaning: digest of everything else that decides what a number says (``dpdist.planner.certificate.meaning``).
    """

    dataset: str
    counted: str
    unit: str
    meaning: str

    @staticmethod
    def of(certificate: dict[str, Any]) -> Comparable:
        """That of a certificate."""
        method = certificate["method"]
        return Comparable(certificate["dataset"], method["counted"], certificate["privacy"]["unit"], method["meaning"])


SEEN = ".dpdist-seen.json"
"""Of a site: stamps of the folders that it was written from, and of its copies."""
SETTLED = 2.0
"""Seconds after which a further change of a file is sure to change its time."""


@dataclass(frozen=True)
class Edition:
    """A published release: its folder and its certificate.

    Attributes:
        stamp: what the system says of its files (``stamp_of``); empty where that does not show every change yet.
    """

    folder: Path
    certificate: dict[str, Any]
    stamp: str = ""

    @property
    def release(self) -> str:
        """Its id."""
        return str(self.certificate["release"])

    @property
    def period(self) -> str:
        """Its period, or its id where it has none."""
        return str(self.certificate["period"] or self.certificate["release"])

    @cached_property
    def look(self) -> Look:
        """What its publisher gave of its own."""
        if FILE not in self.certificate["files"]:
            return PLAIN
        return Look(**json.loads((self.folder / FILE).read_bytes()))

    @cached_property
    def quantity(self) -> Comparable:
        """What its numbers are: only those of equal ones are compared."""
        return Comparable.of(self.certificate)


def releases_in(
    folder: Path,
    dataset: str,
    *,
    ledger: str | None = None,
    known: Mapping[str, str] | None = None,
    earlier: Path | None = None,
) -> tuple[list[Edition], list[str]]:
    """Whole releases of a data set below a folder, by period and id; and of each folder that is left out, why.

    Args:
        ledger, known: a ledger's name, and the release of each certificate that it has published, by the SHA-256 of its bytes.
        earlier: a site: files of folders that it was written from are not read again unless they changed.
    Raises: InvalidInput when there are none.
    """
    found, others, left_out = [], set(), []
    stamps = {stamp for stamp, _ in seen_by(earlier).values()} if earlier is not None else set()
    for path in sorted(_published(folder)):
        stamp = stamp_of(path)
        try:
            certificate, text = _whole(path, stamp in stamps)
        except StoreError as error:
            left_out.append(str(error))
            continue
        if certificate.get("dataset") != dataset:
            others.add(str(certificate.get("dataset")))
        elif _is_of(certificate, ledger) and hashlib.sha256(text).hexdigest() not in (known or {}):
            left_out.append(f"{path}: this ledger has not published it; get the release's files again, or move it away")
        else:
            found.append(Edition(path, certificate, stamp))
    if not found:
        elsewhere = f"; there are releases of {', '.join(sorted(others))}" if others else ""
        first = f"; {left_out[0]}" if left_out else "; publish one there, or name their folder with --releases"
        cure = elsewhere or first
        raise InvalidInput(f"no complete release of {dataset!r} lies below {folder}{cure}")
    return sorted(found, key=lambda one: (one.period, one.release)), left_out


def _published(folder: Path) -> list[Path]:
    """The folders below one that hold a certificate, but for drafts."""
    found = []
    for name, inner, files in os.walk(folder):
        inner[:] = [each for each in inner if not each.startswith(".")]
        if release_folder.CERTIFICATE in files:
            found.append(Path(name))
    return found


def _whole(folder: Path, unchanged: bool) -> tuple[dict[str, Any], bytes]:
    """A release's certificate, and its bytes. Raises: StoreError when a file was altered or is missing."""
    if not unchanged:
        release_folder.certificate_of(folder)
    text = (folder / release_folder.CERTIFICATE).read_bytes()
    return release_folder.read_certificate(text, folder), text


def _is_of(certificate: Mapping[str, Any], ledger: str | None) -> bool:
    budget = certificate.get("budget")
    return ledger is not None and isinstance(budget, Mapping) and budget.get("ledger") == ledger


def stamp_of(folder: Path) -> str:
    """A digest of what the system says of every file of a folder; empty where one changed so lately that a change might not show.

    Whoever changes a file can set its size and its time back, but not the time at which the system noted the change.
    """
    entries = _entries(os.fspath(folder), "")
    settled = max((entry[-1] for entry in entries), default=0) < time.time_ns() - int(SETTLED * 1e9)
    return _digest(entries) if settled else ""


def look_of(folder: Path) -> str:
    """The same of a folder whose files get and lose further names, which the system notes as changes; empty where there is none."""
    try:
        return _digest([entry[:-1] for entry in _entries(os.fspath(folder), "")])
    except OSError:
        return ""


def _digest(entries: Sequence[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(sorted(entries)).encode()).hexdigest()[:32]


def _entries(folder: str, under: str) -> list[tuple[str, int, int, int, int, int]]:
    """Name, kind, size, time, place and last change of every file and link in a folder."""
    entries = []
    with os.scandir(folder) as listed:
        for each in listed:
            name = f"{under}{each.name}"
            if each.is_dir(follow_symlinks=False):
                entries += _entries(each.path, f"{name}/")
            else:
                facts = each.stat(follow_symlinks=False)
                entries.append((name, facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_ctime_ns))
    return entries


def seen_by(site: Path) -> dict[str, tuple[str, str]]:
    """Of each release of a site: the stamp of its folder and the look of the site's copy.

    None of a site that another version wrote, or that was written before the machine started: a power loss may have cost its files.
    """
    try:
        noted = json.loads((site / SEEN).read_bytes())
        return {one: (stamp, look) for one, (stamp, look) in noted["releases"].items()} if noted["by"] == _writer() else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def note_seen(site: Path, seen: Mapping[str, tuple[str, str]]) -> None:
    """Write what ``seen_by`` reads; releases without a stamp are left out."""
    releases = {release: both for release, both in seen.items() if all(both)}
    (site / SEEN).write_text(json.dumps({"by": _writer(), "releases": releases}), encoding="utf-8")


def _writer() -> str:
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        start = ""
    return hashlib.sha256(f"{version()} {start}".encode()).hexdigest()[:16]
