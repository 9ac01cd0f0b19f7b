"""Figures of the documentation are compared with what their commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import figures

PAGE = """# A page

## Errors
What `python benchmarks/none.py` prints:

| cells | error | CPU s |
|---|---|---|
| 16 | 1,234.5 | 2.0 |

## Files
`python benchmarks/none.py FOLDER` needs files.

| cells | error |
|---|---|
| 16 | 3.5 |

## No table
`python benchmarks/none.py --large` is not run.

## Prose
No program is named here: 17.
"""


@pytest.mark.parametrize(
    ("printed", "missing"), [([1240.0, 2.9], "-"), ([1300.0, 2.9], "1,234.5"), ([1234.5, 3.5], "2.0"), ([], "1,234.5, 2.0")]
)
def test_a_figure_that_is_printed_no_more_is_named(
    printed: list[float], missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(figures, "print_again", lambda _, __: printed)
    assert figures.compare([tmp_path / "page.md"], 1.0) == (missing != "-")
    _, _, errors, files = capsys.readouterr().out.splitlines()
    same = 2 - len([text for text in missing.split(", ") if text != "-"])
    assert errors == f"| page.md: Errors | 1 | 2 | {same} | {missing} |"
    assert files == "| page.md: Files | 1 | 1 | - | not run: `python benchmarks/none.py FOLDER` |"


def test_a_program_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    assert figures.compare([tmp_path / "page.md"], 60.0) == 1
    assert "can't open file" in capsys.readouterr().out
