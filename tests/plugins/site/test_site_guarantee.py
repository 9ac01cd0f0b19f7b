"""A site says the guarantee of the typed unit, in every language, whatever the publisher calls things."""

from __future__ import annotations

from pathlib import Path

from dpdist import language
from dpdist.language import use_language
from dpdist.plugins.site import editions, site_pages
from tests.page.test_guarantee_text import check_page, hostile


def test_sites_say_what_the_typed_unit_says(home: Path) -> None:
    for code in language.LANGUAGES:
        folder = hostile(f"r-{code}", home, home.parent / code, code)
        found = [each for each in editions.releases_in(home, "small")[0] if each.release == folder.name]
        with use_language(code):
            page = site_pages.methodology_page("small", found, ())
        check_page(page, code)
