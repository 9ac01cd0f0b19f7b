"""A site looks like the publisher, as the pages of its releases do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpdist.plugins.site import site_pages
from dpdist.plugins.site.editions import Edition
from dpdist.publish import release_folder
from tests.page.browsing import browser
from tests.plugins.page.test_appearance import check_look, dressed

__all__ = ["browser", "dressed"]


def test_a_site_looks_like_the_publisher(dressed: Path, browser: Any, tmp_path: Path) -> None:
    edition = Edition(dressed, release_folder.certificate_of(dressed))
    place = site_pages.write_site("small", [edition], [], tmp_path / "site")
    check_look(browser, place / "index.html", place / "methodology.html")
