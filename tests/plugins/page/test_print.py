"""Printed pages: no heading without what it heads, no sentence over two pages, no page that is half empty, a summary on the first."""

from __future__ import annotations

import contextlib
import io
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pypdf
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.plugins.page import page_export, release_page
from dpdist.workloads.product_queries import marginals
from tests.case_selection import always
from tests.page.browsing import browser
from tests.plugins.page.gallery import LONG_NAMES, attribute, content
from tests.support import small_release
from tests.support.small_release import run

__all__ = ["browser"]  # a fixture

ROOT = Path(__file__).parents[3]
WHOLE = ("h1", "h2", "h3", "p", "li", "dd", "figcaption")
"""What stands on one page."""
LINE = 3
"""Points within which texts stand on one line."""
LARGE = 14.5
"""Size of letters of headings, and of nothing else."""
SEEN = """(names) => [...document.querySelectorAll(names)].filter((one) => one.checkVisibility() && !one.querySelector(names))
  .map((one) => [one.tagName.toLowerCase(), one.innerText])"""
"""The texts of a printed page that are to stay whole, each with the name of its element."""


@dataclass(frozen=True)
class Text:
    """A text on a page.

    Attributes:
        y: its distance from the lower edge, in points.
        size: of its letters, in CSS pixels.
    """

    text: str
    y: float
    size: float


@dataclass(frozen=True)
class Printed:
    """The texts of each page of a PDF, and the height of a page."""

    pages: Sequence[list[Text]]
    height: float

    @staticmethod
    def print_page(page: Path, target: Path) -> Printed:
        """A page as the command prints it, on Letter."""
        page_export.save(page.resolve(), target.resolve())
        return Printed.read_pdf(target)

    @staticmethod
    def read_pdf(file: Path | io.BytesIO) -> Printed:
        """A PDF."""
        reader = pypdf.PdfReader(file)
        return Printed([_texts(one) for one in reader.pages], float(reader.pages[0].mediabox.height))

    @property
    def whole(self) -> list[str]:
        """The text of each page without spaces and signs, which differ by font."""
        return [_letters("".join(one.text for one in page)) for page in self.pages]

    def faults(self, headings: Sequence[str], texts: Sequence[str]) -> list[str]:
        """What is wrong with it."""
        return [
            *(f"alone: {each}" for each in self.alone(headings)),
            *(f"cut: {each}" for each in self.cut(texts)),
            *(f"half empty: {each}" for each in self.half_empty()),
        ]

    def alone(self, headings: Sequence[str]) -> list[str]:
        """The headings below which nothing stands on their page."""
        last = [[one for one in page if one.y < min(each.y for each in page) + LINE] for page in self.pages]
        ends = [_letters("".join(one.text for one in line)) for line in last if all(one.size > LARGE for one in line)]
        return [each for each in headings if any(_letters(each).endswith(end) for end in ends)]

    def cut(self, texts: Sequence[str]) -> list[str]:
        """The texts that no page holds whole."""
        return [each for each in texts if not any(_letters(each) in page for page in self.whole)]

    def half_empty(self) -> list[int]:
        """The pages, but for the last, whose lower half holds no text."""
        return [n for n, page in enumerate(self.pages[:-1], start=1) if min(one.y for one in page) > self.height / 2]


def _texts(page: pypdf.PageObject) -> list[Text]:
    found: list[Text] = []

    def collect_text(text: str, matrix: list[float], place: list[float], font: object, size: float) -> None:
        del font
        if text.strip():
            found.append(Text(text, place[5] * matrix[3] + matrix[5], size))

    page.extract_text(visitor_text=collect_text)
    return found


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text)).lower()


def faults(page: Path, browser: Any) -> list[str]:
    """What is wrong with a page that is printed on A4, or on Letter."""
    with contextlib.closing(browser.new_page()) as looked:
        looked.emulate_media(media="print")
        looked.goto(page.resolve().as_uri())
        seen = [(tag, text) for tag, text in looked.evaluate(SEEN, ",".join(WHOLE)) if _letters(text)]
        on_a4 = Printed.read_pdf(io.BytesIO(looked.pdf(format="A4", prefer_css_page_size=True)))
    headings = [text for tag, text in seen if tag in ("h2", "h3")]
    assert len(headings) >= 2
    both = (on_a4, Printed.print_page(page, Path(f"{page.parent.name}.pdf")))
    assert round(on_a4.height / 72 * 25.4) in (297, 210)  # mm; the second is a size that a page sets itself
    return list(dict.fromkeys(fault for each in both for fault in each.faults(headings, [text for _, text in seen])))


@pytest.mark.slow
def test_a_release(home: Path, browser: Any) -> None:
    run(small_release.write(home.parent / "data"), home)
    assert faults(Path("releases/small-1/index.html"), browser) == []


@pytest.mark.parametrize("language", always(["de"], ["en", "de", "fr", "es"]))
def test_the_summary_is_one_page(tmp_path: Path, browser: Any, language: str) -> None:
    """Of a release of many tables with long names and sentences: it says what is missing, and cuts nothing."""
    domain = Domain(tuple(Attribute(f"one{k}", categories=LONG_NAMES) for k in range(4)))
    named = {f"one{k}": attribute(f"A rather long title of attribute {k}", "10 values", missing="drop") for k in range(20)}
    method = {"counted": "people", "attributes": named}
    made = content("Long names", marginals(domain, ways=(1, 2)), np.ones(10**4), 9.0, method)
    made.certificate["language"] = language
    page = tmp_path / "index.html"
    page.write_text(release_page.release_page(made, 1), encoding="utf-8")
    with contextlib.closing(browser.new_page()) as looked:
        looked.emulate_media(media="print")
        looked.goto(f"{page.as_uri()}#summary")
        seen = [text for _, text in looked.evaluate(SEEN, ",".join(WHOLE))]
        files = [looked.pdf(format=paper, prefer_css_page_size=True) for paper in ("A4", "Letter")]
        tables, told = (looked.locator(f"#summary {each}").count() for each in ("use", "dd p"))
    printed = [Printed.read_pdf(io.BytesIO(file)) for file in files]
    assert [len(each.pages) for each in printed] == [1, 1]
    assert [fault for each in printed for fault in each.cut(seen)] == []
    assert 2 < tables < 10  # of so many
    assert 2 < told < 20


def test_faults_are_seen(tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heading at the end of a page, a sentence over two, and a page that is mostly empty."""
    monkeypatch.chdir(tmp_path)
    style = "*{margin:0;padding:0}@page{size:148mm 210mm;margin:10mm}.tall{height:160mm}.next{break-before:page}"
    long = " ".join(f"word{n}" for n in range(200))
    parts = [
        '<h2>First heading</h2><p>Text below.</p><div class="tall"></div><h2>Lonely</h2>', '<h2 class="next">Short page</h2><p>Little.</p>',
        f'<h2 class="next">Long</h2><div style="height:140mm"></div><p>{long}</p>',
    ]  # fmt: skip
    Path("index.html").write_text(f"<!doctype html><style>{style}</style>{''.join(parts)}")
    assert faults(Path("index.html").resolve(), browser) == ["alone: Lonely", f"cut: {long}", "half empty: 2"]
