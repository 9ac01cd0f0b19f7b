"""Pictures of pages and a site for README and docs: ``python docs/screenshots.py`` publishes two examples and looks at them.

Needs Chromium and the test extras. State and releases live in build/screenshots, so that a second run publishes nothing anew.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from dpdist.plugins.page.page_export import BROWSERS

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SCREENS = {"desk": (1400, 1000), "phone": (390, 844)}
WEEKS = ("2011-06-06", "2011-06-13")


def published(folder: Path) -> dict[str, Path]:
    """The pages that are looked at, by the names of their pictures."""
    program = str(Path(sys.executable).parent / "dpdist")
    environment = {**os.environ, "DPDIST_HOME": str(folder / "home"), "DPDIST_ENGINE": "inline"}

    def dpdist(*arguments: str) -> None:
        subprocess.run([program, *arguments], cwd=folder, env=environment, check=True, capture_output=True)

    if not (folder / "home").exists():
        dpdist("keys", "init")
    dpdist("run", str(ROOT / "examples" / "census" / "release.yaml"))
    for week in WEEKS:
        dpdist("run", str(ROOT / "examples" / "periodic" / "release.yaml"), "--period", week)
    dpdist("site", "rentals")
    return {"page": folder / "releases" / "census-2026-11" / "index.html", "site": folder / "site" / "index.html"}


def taken(browser: Any, page: Path, screen: str, look: str) -> bytes:
    """The first screen of a page as WebP."""
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=look)
    found = context.new_page()
    found.goto(page.as_uri())
    picture = Image.open(io.BytesIO(found.screenshot()))
    context.close()
    written = io.BytesIO()
    picture.save(written, "WEBP", quality=82, method=6)
    return written.getvalue()


def main() -> None:
    """Write all pictures."""
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    pages = published(folder)
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, screen, look in (("page", "desk", "light"), ("page", "phone", "dark"), ("site", "desk", "light")):
            target = IMAGES / f"{name}-{screen}-{look}.webp"
            target.write_bytes(taken(browser, pages[name], screen, look))
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
