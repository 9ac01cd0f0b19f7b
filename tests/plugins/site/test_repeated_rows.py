"""Rows of thresholded histograms in several releases: linked in the site, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from dpdist.plugins.site import editions, repeated_rows, site_pages
from tests.pipeline.test_thresholded import changes, views
from tests.support import small_release


@pytest.fixture
def days(home: Path) -> list[editions.Edition]:
    """Two days of page views; the second has other pages."""
    cap = {"rho": 0.3, "per": "day"}
    for number, records in enumerate((900, 700)):
        day = {"release": f"day-{number}", "period": f"2026-11-0{number + 1}", "ledger": {"dataset": "daily", "cap": cap}}
        small_release.run(small_release.write(home.parent / f"{number}", table=views(records), **changes(**day)), home)
    return editions.releases_in(Path("releases"), "daily")[0]


def rows_of(edition: editions.Edition) -> dict[tuple[str, ...], dict[str, Any]]:
    rows = pyarrow.csv.read_csv(edition.folder / "thresholded.csv").to_pylist()
    return {(row["country"], str(row["page"])): row for row in rows}


def test_rows_of_two_releases_are_linked(days: list[editions.Edition], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = map(rows_of, days)
    both = first.keys() & second.keys()
    assert 1 < len(both) < len(first.keys() | second.keys())
    rows = repeated_rows.repeated_rows(days)
    assert {row.keys for row in rows} == both
    newest = [row.counts[-1][1].value for row in rows]
    assert newest == sorted(newest, reverse=True) == [second[row.keys]["value"] for row in rows]
    folder = site_pages.write_site("daily", days, [], Path("site"))
    assert 'href="rows.html"' in (folder / "index.html").read_text()
    page = (folder / "rows.html").read_text()
    assert len(re.findall(r'<th scope="row">', page)) == len(both)
    for edition in days:
        assert page.count(f'href="{edition.release}/index.html') == len(both)
    assert "largest newest counts" not in page  # all are shown
    monkeypatch.setattr(repeated_rows, "MOST_LINKED_ROWS", 1)
    page = (site_pages.write_site("daily", days, [], folder) / "rows.html").read_text()
    assert "Shown are the 1 with the largest newest counts." in page
    (shown,) = re.findall(r'<th scope="row">([^<]+)', page)
    assert shown == ", ".join(rows[0].keys)


def test_rows_of_one_release_alone_have_no_page(days: list[editions.Edition]) -> None:
    folder = site_pages.write_site("daily", days[:1], [], Path("site"))
    assert not (folder / "rows.html").exists()
    assert "rows.html" not in (folder / "index.html").read_text()
