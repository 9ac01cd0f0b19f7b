"""A page draws the first groups of a release alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpdist.plugins.page import release_page
from tests.support import small_release
from tests.support.small_release import run


def test_a_page_draws_the_first_groups_only(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release of many thousand groups would otherwise be a page of hundreds of megabytes."""
    path = small_release.write(home.parent / "data")
    monkeypatch.setattr(release_page, "MOST_CHARTS", 3)
    text = (Path(run(path, home).folder) / "index.html").read_text()
    assert text.count('<svg class="wide"') == 3 + 1  # and the budget
    assert text.count("<section") == 7  # every group is named
