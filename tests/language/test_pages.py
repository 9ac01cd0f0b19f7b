"""No word of a page passes ``say`` by: pages of real releases, whose own names have no Latin letters, in a language that has no words."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.publish import release_folder
from tests.language.pseudo_language import pseudo, words
from tests.support import small_release
from tests.support.small_release import run

SPOKEN = ("aria-label", "placeholder", "title", "content")
"""Attributes that a reader sees or hears."""
PROPER = {"BibTeX", "CSL", "Feed", "iCalendar", "JSON", "RSS", "Laplace", "Gaussian", "rho", "epsilon", "delta", *REGISTRY}
"""Names that are the same in all languages: formats, mechanisms, noise."""


class Texts(HTMLParser):
    """What a reader sees of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "input", "path", "rect"):
            self._inside.append(tag)
        given = dict(attrs)
        policy = (
            "http-equiv" in given or given.get("name") in ("viewport", "color-scheme") or given.get("property") == "og:type"
        )
        if not policy:
            self.found += [given[name] or "" for name in SPOKEN if given.get(name)]

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style", "code"} & set(self._inside) and data.strip():
            self.found.append(data.strip())


def texts(page: str) -> list[str]:
    reader = Texts()
    reader.feed(page)
    return reader.found


def spoken_by(name: str, home: Path, **changes: Any) -> Path:
    """A release with means, variances, filters, charges and dates, and no Latin letter in the publisher's words."""
    state = np.random.default_rng(1)
    days = np.datetime64("2026-11-01") + state.integers(0, 10, 3000)
    table = pa.table(
        {
            "щ": state.integers(0, 12, 3000),
            "ж": state.choice(["ф", "ю"], 3000),
            "д": pa.array(days.astype("datetime64[D]")),
            "ц": state.integers(0, 100, 3000),
            "ч": state.integers(0, 1500, 3000),
        }
    )
    spec: dict[str, Any] = {
        "release": name,
        "title": "Посетители",
        "records": {"path": "records.parquet", "person": {"column": "ч", "most_records": 2}},
        "domain": {
            "щ": {"edges": [0, 3, 6, 12], "outside": "clip"},
            "ж": {"categories": ["ф", "ю"], "other": "я", "missing": "э"},
            "д": {"dates": {"from": "2026-11-01", "to": "2026-11-10", "every": "day"}, "outside": "drop"},
        },
        "sums": {"ц": {"from": 0, "to": 100, "step": 1, "unit": "€"}},
        "workload": [
            {"marginals": {"ways": [0, 1, 2]}},
            {"cdf": {"of": "щ", "by": ["ж"]}},
            {"filters": {"of": "д", "apply": [{"running_sum": True}, {"window": 3}]}},
            {"mean": "ц", "marginals": {"of": [["ж"]]}},
            {"variance": "ц", "marginals": {"of": [["ж"]]}},
        ],
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "d1", "cap": {"rho": 0.4, "per": "week"}},
        "period": "2026-11-09",
        "about": {"curator": "Я", "description": "Я.", "intended_use": "Я.", "region": "Я", "license": "ц", "contact": "ц"},
        **changes,
    }
    return Path(run(small_release.write(home.parent / name, table=table, **spec), home).folder)


def unsaid(page: str, known: set[str]) -> str:
    """The texts that hold other words than proper names, digits, and what the files of the release call its queries."""
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    found = [
        re.sub(rf"⟦⟧ ({names})(?= )", "⟦⟧", text) for text in texts(page) if text not in known
    ]  # a name within a sentence
    return "\n".join(text for text in found if set(words(re.sub(r"[\w-]*\d[\w.-]*", "", text))) - PROPER)


def check_pages(release: Path, *pages: Path) -> None:
    """Every word of pages is said by ``say``, or stands in the release's files."""
    table, certificate = release_folder.load_release(release)
    known = {str(text) for name in ("group", "query") for text in table[name].to_pylist()} | set(certificate["files"])
    known |= {"release.json", "release.json.sig"} | {text.replace("up to ", "⟦⟧ ") for text in known}
    for page in pages:
        left = unsaid(page.read_text(encoding="utf-8"), known)
        assert not left, f"{page.name}: {left}"


def test_nothing_on_the_page_of_a_release_passes_by(home: Path) -> None:
    with pseudo():
        folder = spoken_by("r1", home)
    check_pages(folder, folder / "index.html")
