"""A published page as PDF or PNG, printed by a Chromium that is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dpdist.api import InvalidInput, release_location
from flows.api.commands import ReleaseName, console, shown

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 1000, 1400
SECONDS = 120


def save(page: Path, target: Path) -> None:
    """Print a page to ``target``, .pdf or .png.

    Raises: InvalidInput for another ending, without a browser, or when it prints nothing.
    """
    if target.suffix not in (".pdf", ".png"):
        raise InvalidInput(f"a page is saved as .pdf or .png, found {target.name!r}")
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise InvalidInput(f"saving pages needs Chromium; install one of {', '.join(BROWSERS)}")
    print_to = f"--print-to-pdf={target}" if target.suffix == ".pdf" else f"--screenshot={target}"
    with tempfile.TemporaryDirectory(prefix="dpdist-") as profile:
        options = ["--headless", "--disable-gpu", "--no-sandbox", "--no-pdf-header-footer", "--hide-scrollbars"]
        command = [
            browser,
            *options,
            f"--user-data-dir={profile}",
            f"--window-size={WIDTH},{HEIGHT}",
            print_to,
            page.as_uri(),
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if process.returncode != 0 or not target.exists():
        raise InvalidInput(f"{Path(browser).name} could not print the page: {process.stderr.strip()[-300:]}")


def export(
    release: ReleaseName,
    target: Annotated[Path, typer.Argument(help="the file to write, .pdf or .png")],
) -> None:
    """Save the page of a release as a PDF or PNG file. This needs an installed Chromium."""
    from dpdist.api.releases import release_folder

    with release_location(release).local_copy() as folder:
        release_folder.certificate_of(folder)
        save((folder / "index.html").resolve(), target.resolve())
    console.print(shown(target))
