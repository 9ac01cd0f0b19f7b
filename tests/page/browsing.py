"""A Chromium for tests of pages, and axe-core in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the PyPI package playwright")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
"""Programs that run pages, the first that is there."""
REQUIRED = "DPDIST_TEST_BROWSER"
"""Set to 'required' where a missing Chromium must fail the tests instead of skipping them (.ci/run does)."""
SCREENS = {"phone": (390, 844), "desk": (1400, 900)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if os.environ.get(REQUIRED) == "required":
            pytest.fail("Chromium is required here and not installed: apt-get install chromium-headless-shell")
        pytest.skip("needs Chromium: apt-get install chromium-headless-shell")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test when its console tells an error or when it asks the network for anything."""
    context = browser.new_context(viewport={"width": 1000, "height": 800}, accept_downloads=True)
    found = context.new_page()
    told: list[str] = []
    found.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: told.append(str(error)))
    found.on(
        "request",
        lambda request: told.append(request.url) if not request.url.startswith(("file:", "blob:", "data:")) else None,
    )
    yield found
    context.close()
    assert told == []


def shown(browser: Any, path: Path, screen: str, look: str = "light", **options: Any) -> Any:
    """A file on a screen; its context is closed by whoever asked."""
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=look, **options)
    found = context.new_page()
    found.goto(path.as_uri())
    return found


def unfolded(page: Any) -> Any:
    """The page with all its charts open, each by a click, as a reader opens it; this needs no script."""
    for folded in ("details:has(> .groups):not([open]) > summary", ".group > details:not([open]) > summary"):
        while page.locator(folded).count():
            page.locator(folded).first.click()
    return page


def violations(page: Any) -> list[str]:
    """What axe-core finds against the page, by rule and place."""
    import axe_playwright_python

    source = Path(axe_playwright_python.__file__).parent / "axe.min.js"
    page.evaluate(source.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary'][:200]}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]
