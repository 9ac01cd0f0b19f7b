"""The studio by keyboard alone, as it ships: from the columns of a file to a release, with the focus always in sight."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests import HANGS
from tests.page.browsing import SCREENS, browser, sync_api, violations

__all__ = ["browser"]
FOCUSED = """() => {
    const at = document.activeElement, box = at.getBoundingClientRect(), look = getComputedStyle(at);
    const middle = [box.left + Math.min(box.width, innerWidth) / 2, box.top + Math.min(box.height, innerHeight) / 2];
    return {
        words: (at.closest("label")?.firstChild ?? at).textContent.trim().slice(0, 80),
        legend: at.closest("fieldset")?.firstElementChild.textContent ?? "",
        ringed: at !== document.body && look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2,
        covered: !at.contains(document.elementFromPoint(...middle)),
    };
}"""
PATIENCE = HANGS * 1000
"""Milliseconds."""
RECORDS = "card,age,branch,minutes\n" + "".join(
    f"{row % 900},{row % 97},{('Centre', 'North', 'Harbour')[row % 3]},{row % 240}\n" for row in range(3000)
)


class Keyboard:
    """Hands on the keyboard of a page, and eyes on what has the focus."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def press(self, key: str, times: int = 1) -> dict[str, Any]:
        """What has the focus then."""
        found: dict[str, Any] = {}
        for _ in range(times):
            self.page.keyboard.press(key)
            found = self.page.evaluate(FOCUSED)
            assert found["ringed"], f"{key} leaves the focus where nobody sees it: {found}"
            assert not found["covered"], f"{key} leaves the focus behind something else: {found}"
        return found

    def move_to(self, words: str, inside: str = "", *, key: str = "Tab") -> None:
        """Go on to a control by its words, in a box by its legend."""
        for _ in range(100):
            focus = self.press(key)
            if focus["words"].startswith(words) and focus["legend"].startswith(inside):
                return
        pytest.fail(f"{key} never comes to {words!r} of {inside!r}")

    def write(self, text: str) -> None:
        """In place of what is there."""
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)


@pytest.fixture
def studio(home: Path) -> Iterator[str]:
    """The address of a studio without a spec, beside a file of records."""
    del home  # its own folder, which is the current one
    Path("visits.csv").write_text(RECORDS)
    words = ["studio", "visits.yaml", "--records", "visits.csv", "--names-in-first-row"]
    with subprocess.Popen([sys.executable, "-m", "flows.commands.cli", *words], stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        yield served.stderr.readline().split()[-1]
        served.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("screen", ["phone", "desk"])
def test_a_release_by_keyboard_alone(browser: Any, studio: str, home: Path, screen: str) -> None:
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height}, bypass_csp=True)
    page, expect = context.new_page(), sync_api.expect
    page.set_default_timeout(PATIENCE)
    page.goto(studio)
    page.wait_for_selector("#columns fieldset")
    hands = Keyboard(page)
    assert violations(page) == []

    hands.move_to("Column that tells persons apart")
    hands.press("ArrowDown")
    hands.move_to("Records of one person")
    hands.write("3")
    hands.move_to("Counted as", "age")
    assert hands.press("ArrowDown", 3)["legend"].startswith("age")
    hands.move_to("Edges of the bins", "age")
    hands.write("0, 18, 65, 100")
    hands.move_to("Counted as", "age", key="Shift+Tab")
    hands.press("ArrowDown")  # past what was declared, and back
    hands.press("ArrowUp")
    hands.move_to("Counted as", "branch")
    hands.press("ArrowDown")
    hands.move_to("All names", "branch")
    hands.write("Centre, North, Harbour")
    hands.move_to("Counted as", "minutes")
    hands.press("ArrowDown", 5)
    hands.move_to("To", "minutes")
    hands.write("240")
    assert violations(page) == []

    hands.move_to("Asks for", "Question 1")
    hands.press("ArrowDown")
    hands.move_to("Tables", "Question 1")
    hands.write("age; branch; age, branch")
    hands.move_to("Another question")
    assert hands.press("Enter")["legend"] == "Question 2"
    hands.press("ArrowDown", 4)
    hands.move_to("By attributes", "Question 2")
    hands.write("branch")
    hands.move_to("Another question")
    hands.press("Enter")
    hands.move_to("Remove", "Question 3")
    assert hands.press("Enter")["words"] == "Another question"
    expect(page.locator("#tables h3").last).to_have_text("Mean of minutes by branch", timeout=PATIENCE)
    assert violations(page) == []

    hands.move_to("This release: epsilon")
    before = page.locator("#tables .group").first.inner_text()
    hands.press("ArrowLeft", 10)
    expect(page.locator("#tables .group").first).not_to_have_text(before, use_inner_text=True, timeout=PATIENCE)
    assert page.evaluate("document.activeElement.ariaValueText") == "epsilon 0.63"
    hands.move_to("Save")
    hands.press("Enter")
    expect(page.locator("#status")).to_have_text("Saved as visits.yaml.", timeout=PATIENCE)
    saved = yaml.safe_load(Path("visits.yaml").read_text())
    assert saved["domain"]["age"] == {"edges": [0, 18, 65, 100]}
    assert saved["workload"] == [
        {"marginals": {"of": [["age"], ["branch"], ["age", "branch"]]}},
        {"marginals": {"of": [["branch"]]}, "mean": "minutes"},
    ]
    assert (saved["records"]["person"], saved["left_out"]) == ({"column": "card", "most_records": 3}, {"share": 0.05})
    with open_ledger(home) as ledger:
        assert not ledger.budgets()

    hands.move_to("Publish")
    page.keyboard.press("Enter")
    page.wait_for_selector("#confirm[open]")
    assert "Release visits-1 takes" in page.inner_text("#what")
    assert page.evaluate(FOCUSED)["words"] == "Not now"  # a key that is held down charges nothing
    assert violations(page) == []
    hands.move_to("Charge and publish", key="Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("Published.", timeout=PATIENCE)
    assert violations(page) == []
    hands.move_to("Close")
    assert hands.press("Enter")["words"].startswith("Publish")
    context.close()
    assert "persons have more" in Path("releases/visits-1/index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_button_that_does_nothing_keeps_the_focus(browser: Any, studio: str) -> None:
    """Who changes a field and goes on to a button may be there before the refusal is."""
    context = browser.new_context()
    page, expect = context.new_page(), sync_api.expect
    page.goto(studio)
    expect(page.locator("#status.refused")).to_be_visible(timeout=PATIENCE)
    save = page.locator("#save")
    expect(save).to_be_disabled()
    hands = Keyboard(page)
    hands.move_to("Save")
    hands.press("Enter")
    expect(page.locator("#status.refused")).to_be_visible()
    assert not Path("visits.yaml").exists()
    context.close()
