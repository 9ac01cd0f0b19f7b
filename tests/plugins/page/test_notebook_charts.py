"""What a notebook shows of a page: its first charts, as images."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.support import small_release


def test_a_release_shows_its_first_charts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = small_release.run(small_release.write(home.parent / "data"), home)
    shown = done._repr_html_()
    charts = [base64.b64decode(each).decode() for each in re.findall('src="data:image/svg.xml;base64,([^"]*)"', shown)]
    assert len(charts) == 2
    page = (Path(done.folder) / "index.html").read_text()
    for label, chart in zip(("age", "sex"), charts, strict=True):
        assert f'aria-label="{label}. ' in chart
        assert all(part in chart for part in ("prefers-color-scheme:dark", "with 95 % intervals", "background:var(--paper)"))
        assert chart.replace(chart[chart.index("<style>") : chart.index("</style>") + 8], "") in page
    monkeypatch.setattr("dpdist.plugins.page.notebook_charts.LARGEST_PICTURE", 100)
    assert "data:image" not in done._repr_html_()
