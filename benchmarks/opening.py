"""How long a page keeps Chromium's main thread busy until it stands: medians over fresh browser contexts.

    python benchmarks/opening.py releases/census-2026-11/index.html [MORE ...] [--repeats 7] [--out FILE]

CPU seconds of the main thread as the browser counts them (DevTools, Performance.getMetrics), from an empty tab to half a second after the
event `load`: all tasks, and of these scripts, style and layout; then of one search in the table of answers. On a desk (1400 x 900) and on
a phone (390 x 844). Seconds of tasks by the clock, which the browser counts by default, grow with whatever else the machine does.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from flows.pictures import BROWSERS

SCREENS = {"desk": (1400, 900), "phone": (390, 844)}
PARTS = ("TaskDuration", "ScriptDuration", "RecalcStyleDuration", "LayoutDuration")


def opened(browser: Browser, page: Path, screen: str) -> list[float]:
    """Seconds of all tasks, scripts, style and layout of one opening, and of all tasks of a search."""
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height})
    tab = context.new_page()
    session: Any = context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def counted() -> dict[str, float]:
        return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}

    before = counted()
    tab.goto(page.resolve().as_uri())
    tab.wait_for_timeout(500)
    after = counted()
    if tab.locator("#find").count():
        tab.locator("#find").fill("1")
        tab.wait_for_timeout(200)
    searched = counted()
    context.close()
    return [*(after[part] - before[part] for part in PARTS), searched[PARTS[0]] - after[PARTS[0]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [
        "| page | bytes | screen | main thread, CPU s | scripts | style | layout | a search |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for page in asked.pages:
            for screen in SCREENS:
                runs = zip(*(opened(browser, page, screen) for _ in range(asked.repeats)), strict=True)
                numbers = " | ".join(f"{median(run):.3f}" for run in runs)
                lines.append(f"| {page.parent.name} | {page.stat().st_size:,} | {screen} | {numbers} |")
        browser.close()
    table = "\n".join(lines) + "\n"
    print(table)
    if asked.out:
        asked.out.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
