"""The certificate of a series: all its releases by the digests of their certificates, and what was held, voided and published again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpdist.api.holds import ReleaseHold
from dpdist.api.releases import release_folder
from dpdist.plugins.site.release_catalogue import CatalogueEntry

SERIES_FILE = "series.json"


def held_releases(holds: Sequence[ReleaseHold], entries: Sequence[CatalogueEntry]) -> list[dict[str, Any]]:
    """What became of each release that was held, by period, and as which other releases its period was published."""
    releases_by_period: dict[str, list[str]] = {}
    for entry in entries:
        releases_by_period.setdefault(entry.edition.period, []).append(entry.edition.release)
    return [
        {
            "release": hold.release,
            "period": hold.period,
            "state": hold.state,
            "events": [dict(event) for event in hold.events],
            "published_again": [name for name in releases_by_period.get(hold.period, []) if name != hold.release],
        }
        for hold in sorted(holds, key=lambda hold: (hold.period, hold.release))
    ]


def write_series_certificate(
    folder: Path, dataset: str, entries: Sequence[CatalogueEntry], held: Sequence[Mapping[str, Any]]
) -> None:
    """Write what the series is: its releases in order, each with the SHA-256 of its certificate, and those that were held."""
    releases = [
        {
            "release": entry.edition.release,
            "period": entry.edition.period,
            "certificate": hashlib.sha256((entry.edition.folder / release_folder.CERTIFICATE).read_bytes()).hexdigest(),
            "revision": entry.revision,
            "replaces": entry.replaces or None,
        }
        for entry in entries
    ]
    content = {"dataset": dataset, "releases": releases, "held": list(held)}
    (folder / SERIES_FILE).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
