"""Nothing that a publisher writes becomes markup on the public page: neither as it is sent nor after its script has run."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector, Constant
from dpdist.content.release_content import ReleaseContent
from dpdist.planner.release_plan import plan
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.storage.objects import parse_location
from dpdist.workloads import Workload
from tests.page.browsing import browser, page
from tests.support import small_release

__all__ = ["browser", "page"]  # fixtures

MARK = "<img src=x onerror=alert({})>"
TITLE, LABEL, GROUP, RELEASE, COLUMN = (MARK.format(place) for place in ("1", "2", "3", "4", "5"))


class MarkupFindings(HTMLParser):
    """Elements that are not the page's own, handlers of events, and the text between tags."""

    def __init__(self) -> None:
        super().__init__()
        self.strange: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("img", "iframe", "object", "embed", "link", "base"):
            self.strange.append(tag)
        self.strange += [f"{tag} {name}" for name, _ in attributes if name.startswith("on")]
        self.strange += [f"{tag} {name}" for name, value in attributes if (value or "").startswith("javascript:")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def published(home: Path) -> Path:
    """A page whose title, category, attribute, group and release id are markup."""
    table = small_release.records().append_column(COLUMN, pa.array(["a" if i % 3 else LABEL for i in range(3000)]))
    path = small_release.write(
        home.parent / "data",
        table=table,
        title=TITLE,
        domain={"sex": {"categories": ["f", "m"]}, COLUMN: {"categories": ["a", LABEL]}},
        workload=[{"marginals": {"ways": [1, 2]}}],
    )
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    planned = plan(context, load(path))
    first, *others = planned.workload.blocks
    workload = Workload(planned.workload.domain, (replace(first, name=GROUP), *others))
    size = workload.shape[0]
    content = ReleaseContent(
        release=RELEASE,
        title=TITLE,
        workload=workload,
        answer=ArrayVector(np.arange(size) * 10.0),
        error=Constant(2.0, size),
        half_width=Constant(3.92, size),
        certificate={**planned.certificate(), "release": RELEASE, "dataset": RELEASE},
    )
    folder = release_folder.write_release(content, parse_location(home.parent / "out"), small_release.Seal()).path_or_url
    assert isinstance(folder, Path)
    return folder


def test_the_page_as_it_is_sent_holds_no_markup_of_others(published: Path) -> None:
    found = MarkupFindings()
    found.feed((published / "index.html").read_text(encoding="utf-8"))
    assert found.strange == []
    for mark in (TITLE, LABEL, GROUP, RELEASE, COLUMN):
        assert mark in found.text  # told as it was written


def test_the_page_in_a_browser_holds_none_either(published: Path, page: Any) -> None:
    """After its script has shown, searched and sorted the table."""
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto((published / "index.html").as_uri())
    assert page.title() == TITLE
    page.get_by_label("Search").fill("onerror=alert(2)")
    page.locator("#answers th button").first.click()
    assert page.locator("#answers tbody tr").count() > 0
    assert LABEL in page.locator("#answers").text_content()
    assert GROUP in page.locator("#group").text_content()
    assert page.locator("img").count() == 0
    assert (
        page.evaluate("[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => /^on/.test(n))")
        == []
    )
    assert dialogs == []
