"""How long a page keeps Chromium's main thread busy until it stands: medians over fresh browser contexts.

    python benchmarks/page_opening.py releases/census-2026-11/index.html [MORE ...] [--large] [--repeats 7] [--out FILE]

With ``--large`` also the pages of `hundred` and `million`, which it publishes first, in a folder that goes away.

CPU seconds of the main thread as the browser counts them (DevTools, Performance.getMetrics), from an empty tab to half a second after the
event `load`: all tasks, and of these scripts, style and layout; then of one search in the table of answers. On a desk (1400 x 900) and on
a phone (390 x 844). Seconds of tasks by the clock, which the browser counts by default, grow with whatever else the machine does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml
from playwright.sync_api import Browser, sync_playwright

from dpdist.plugins.page.page_export import BROWSERS

SCREENS = {"desk": (1400, 900), "phone": (390, 844)}
PARTS = ("TaskDuration", "ScriptDuration", "RecalcStyleDuration", "LayoutDuration")


LARGE = {"hundred": (301, 301), "million": (1000, 1001)}
"""Values of two attributes, of which all tables of one and of two are asked: 91,203 and 1,003,001 answers."""


def large(folder: Path) -> list[Path]:
    """The pages of the large releases, which are published in a folder."""
    os.environ["DPDIST_HOME"] = str(folder / "home")
    command = [sys.executable, "-m", "flows.commands.cli"]
    subprocess.run([*command, "keys", "init"], check=True, capture_output=True)
    state = np.random.default_rng(1)
    for release, sizes in LARGE.items():
        columns = {f"attribute {k}": state.binomial(size - 1, 0.3, 200_000) for k, size in enumerate(sizes)}
        pa.parquet.write_table(pa.table(columns), folder / f"{release}.parquet")
        spec = {
            "release": release,
            "records": {"path": f"{release}.parquet"},
            "domain": {name: {"from": 0, "to": size - 1} for name, size in zip(columns, sizes, strict=True)},
            "workload": [{"marginals": {"ways": [1, 2]}}],
            "budget": {"epsilon": 1, "delta": 1e-9},
            "ledger": {"dataset": release, "cap": {"epsilon": 1, "delta": 1e-9}},
            "output": {"folder": str(folder / release)},
        }
        (folder / f"{release}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
        subprocess.run([*command, "run", str(folder / f"{release}.yaml")], check=True, capture_output=True)
    return [folder / release / "index.html" for release in LARGE]


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
    parser.add_argument("pages", type=Path, nargs="*")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [
        "| page | bytes | screen | main thread, CPU s | scripts | style | layout | a search |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for page in [*asked.pages, *(large(Path(folder)) if asked.large else [])]:
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
