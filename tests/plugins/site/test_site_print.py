"""Pages of a site on paper: no heading alone, no sentence cut, no page half empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpdist.plugins.site import editions, site_pages
from tests.page.browsing import browser
from tests.plugins.page.test_print import ROOT, Printed, _letters, faults
from tests.support import small_release
from tests.support.small_release import run

__all__ = ["browser"]  # a fixture


@pytest.mark.slow
def test_a_site_over_periods(home: Path, browser: Any) -> None:
    ledger = {"dataset": "small", "cap": {"rho": 0.4, "per": "week"}}
    for seed, day in enumerate(("2026-11-09", "2026-11-16")):
        run(
            small_release.write(
                home.parent / day, table=small_release.records(seed=seed), release=day, period=day, ledger=ledger
            ),
            home,
        )
    site_pages.write_site("small", editions.releases_in(Path("releases"), "small")[0], (), Path("site"))
    for page in ("index", "methodology"):
        assert faults(Path(f"site/{page}.html"), browser) == [], page


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["census/release.yaml", "shop/sales.yaml"])
def test_examples(home: Path, browser: Any, spec: str) -> None:
    """The pages that the issue looks at, and the methodology of each."""
    done = run(ROOT / "examples" / spec, home)
    dataset = done.certificate["dataset"]
    site_pages.write_site(dataset, editions.releases_in(Path("releases"), dataset)[0], (), Path("site"))
    for page in (done.folder / "index.html", Path("site/methodology.html"), Path("site/index.html")):
        assert faults(page, browser) == [], page
    first = Printed.print_page(done.folder / "index.html", Path("summary.pdf")).whole[0]
    assert all(_letters(each) in first for each in ("In short", "Privacy loss", "Cite as", done.certificate["release"]))
