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

from dpdist.api import InvalidInput, StoreError
from dpdist.api.releases import ThresholdedRow, read_thresholded_rows, release_folder, version
from dpdist.plugins.page.theme import DEFAULT_THEME, THEME_FILE, Theme


@dataclass(frozen=True)
class ComparisonKey:
    """What the numbers of a release are, from its certificate. Two releases are comparable if their quantities are equal.

    Attributes:
        counted: the records, in the plural.
        unit: what is protected: with the bounds, it decides which records count.
        meaning: digest of everything else that decides what a number says (``dpdist.planner.certificate.describe_loss``).
    """

    dataset: str
    counted: str
    unit: str
    meaning: str

    @staticmethod
    def of(certificate: dict[str, Any]) -> ComparisonKey:
        """That of a certificate."""
        method = certificate["method"]
        return ComparisonKey(certificate["dataset"], method["counted"], certificate["privacy"]["unit"], method["meaning"])


STAMPS_FILE = ".dpdist-seen.json"
"""Of a site: stamps of the folders that it was written from, and of its copies."""
SETTLING_SECONDS = 2.0
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
    def thresholded_rows(self) -> list[ThresholdedRow]:
        """The rows of its thresholded histogram; none where it has none."""
        return read_thresholded_rows(self.folder) if self.certificate.get("thresholded") else []

    @cached_property
    def theme(self) -> Theme:
        """What its publisher gave of its own."""
        if THEME_FILE not in self.certificate["files"]:
            return DEFAULT_THEME
        return Theme(**json.loads((self.folder / THEME_FILE).read_bytes()))

    @cached_property
    def quantity(self) -> ComparisonKey:
        """What its numbers are: only those of equal ones are compared."""
        return ComparisonKey.of(self.certificate)


def releases_in(
    folder: Path,
    dataset: str,
    *,
    ledger: str | None = None,
    published_releases: Mapping[str, str] | None = None,
    earlier: Path | None = None,
) -> tuple[list[Edition], list[str]]:
    """Whole releases of a data set below a folder, by period and id; and of each folder that is left out, why.

    Args:
        ledger, published_releases: a ledger's name, and the release of each certificate that it has published, by the SHA-256 of its bytes.
        earlier: a site: files of folders that it was written from are not read again unless they changed.
    Raises: InvalidInput when there are none.
    """
    editions, other_datasets, omissions = [], set(), []
    stamps = {stamp for stamp, _ in read_stamps(earlier).values()} if earlier is not None else set()
    for path in sorted(_certificate_folders(folder)):
        stamp = stamp_of(path)
        try:
            certificate, text = _read_whole_release(path, stamp in stamps)
        except StoreError as error:
            omissions.append(str(error))
            continue
        if certificate.get("dataset") != dataset:
            other_datasets.add(str(certificate.get("dataset")))
        elif _is_from_ledger(certificate, ledger) and hashlib.sha256(text).hexdigest() not in (published_releases or {}):
            omissions.append(f"{path}: this ledger has not published it; get the release's files again, or move it away")
        else:
            editions.append(Edition(path, certificate, stamp))
    if not editions:
        elsewhere = f"; there are releases of {', '.join(sorted(other_datasets))}" if other_datasets else ""
        omission_text = f"; {omissions[0]}" if omissions else "; publish one there, or name their folder with --releases"
        cure = elsewhere or omission_text
        raise InvalidInput(f"no complete release of {dataset!r} lies below {folder}{cure}")
    return sorted(editions, key=lambda edition: (edition.period, edition.release)), omissions


def _certificate_folders(folder: Path) -> list[Path]:
    """The folders below one that hold a certificate, but for drafts."""
    folders = []
    for name, subfolders, files in os.walk(folder):
        subfolders[:] = [folder_name for folder_name in subfolders if not folder_name.startswith(".")]
        if release_folder.CERTIFICATE in files:
            folders.append(Path(name))
    return folders


def _read_whole_release(folder: Path, unchanged: bool) -> tuple[dict[str, Any], bytes]:
    """A release's certificate, and its bytes. Raises: StoreError when a file was altered or is missing."""
    if not unchanged:
        release_folder.certificate_of(folder)
    text = (folder / release_folder.CERTIFICATE).read_bytes()
    return release_folder.read_certificate(text, folder), text


def _is_from_ledger(certificate: Mapping[str, Any], ledger: str | None) -> bool:
    budget = certificate.get("budget")
    return ledger is not None and isinstance(budget, Mapping) and budget.get("ledger") == ledger


def stamp_of(folder: Path) -> str:
    """A digest of what the system says of every file of a folder; empty where one changed so lately that a change might not show.

    Whoever changes a file can set its size and its time back, but not the time at which the system noted the change.
    """
    entries = _file_entries(os.fspath(folder), "")
    settled = max((entry[-1] for entry in entries), default=0) < time.time_ns() - int(SETTLING_SECONDS * 1e9)
    return _digest(entries) if settled else ""


def copy_stamp(folder: Path) -> str:
    """The same of a folder whose files get and lose further names, which the system notes as changes; empty where there is none."""
    try:
        return _digest([entry[:-1] for entry in _file_entries(os.fspath(folder), "")])
    except OSError:
        return ""


def _digest(entries: Sequence[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(sorted(entries)).encode()).hexdigest()[:32]


def _file_entries(folder: str, prefix: str) -> list[tuple[str, int, int, int, int, int]]:
    """Name, kind, size, time, place and last change of every file and link in a folder."""
    entries = []
    with os.scandir(folder) as directory_entries:
        for directory_entry in directory_entries:
            name = f"{prefix}{directory_entry.name}"
            if directory_entry.is_dir(follow_symlinks=False):
                entries += _file_entries(directory_entry.path, f"{name}/")
            else:
                facts = directory_entry.stat(follow_symlinks=False)
                entries.append((name, facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_ctime_ns))
    return entries


def read_stamps(site: Path) -> dict[str, tuple[str, str]]:
    """Of each release of a site: the stamp of its folder and the look of the site's copy.

    None of a site that another version wrote, or that was written before the machine started: a power loss may have cost its files.
    """
    try:
        stamps = json.loads((site / STAMPS_FILE).read_bytes())
        return (
            {release: (stamp, copied_stamp) for release, (stamp, copied_stamp) in stamps["releases"].items()}
            if stamps["by"] == _writer_identity()
            else {}
        )
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def write_stamps(site: Path, stamps_by_release: Mapping[str, tuple[str, str]]) -> None:
    """Write what ``read_stamps`` reads; releases without a stamp are left out."""
    releases = {release: stamps for release, stamps in stamps_by_release.items() if all(stamps)}
    (site / STAMPS_FILE).write_text(json.dumps({"by": _writer_identity(), "releases": releases}), encoding="utf-8")


def _writer_identity() -> str:
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        start = ""
    return hashlib.sha256(f"{version()} {start}".encode()).hexdigest()[:16]
