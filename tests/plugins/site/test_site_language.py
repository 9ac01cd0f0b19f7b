"""Every sentence of a site is one that translations know."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpdist.plugins.site import editions, site_pages
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests.language.test_pages import check_pages, pseudo, spoken_by


def test_nothing_on_the_pages_of_a_site_passes_by(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent)
    with pseudo():
        folders = [spoken_by(name, home) for name in ("r1", "r2")]
        found = editions.releases_in(Path("releases"), "d1")[0]
        with open_ledger(home) as ledger:
            site_pages.write_site("d1", found, ledger.budgets(charges=True), Path("site"))
    check_pages(folders[0], *Path("site").glob("*.html"))
