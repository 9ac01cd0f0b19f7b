"""Lies about rows of a thresholded histogram, which stand in thresholded.csv alone: each is found, whoever writes the digests anew."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpdist.plugins.verifier import verify
from tests.plugins.verifier import test_verify

honest, _here = test_verify.honest, test_verify._here
RELEASES = ("a thresholded histogram of records", "a thresholded histogram", "a thresholded histogram, Laplace noise")
Lines = list[list[str]]
"""Country, page, value, low_95 and high_95, with the line of their names."""


def field(place: int, change: Callable[[str], str], row: int = 1) -> Callable[[Lines], None]:
    """Another text in a row."""

    def lie(lines: Lines) -> None:
        lines[row][place] = change(lines[row][place])

    return lie


def scaled(factor: float) -> Callable[[str], str]:
    return lambda text: f"{float(text) * factor:.3f}"


LIES: dict[str, Callable[[Lines], Any]] = {
    "a country that is none of as many": field(0, lambda text: f"{text}x"),
    "a country that spreadsheets run": lambda lines: [
        line.__setitem__(0, line[0].replace("DE", "=DE")) for line in lines[1:]
    ],
    "no country": field(0, lambda text: ""),
    "a page that is no number": field(1, lambda text: "nonsense"),
    "a page with a zero in front": field(1, lambda text: f"0{text}"),
    "a page beyond the range": field(1, lambda text: "1000000000"),
    "a page below the range": field(1, lambda text: "'-1"),
    "a formula": field(1, lambda text: f"={text}"),
    "an apostrophe": field(1, lambda text: f"'{text}"),
    "a larger count": field(2, scaled(1.5)),
    "a smaller count": field(2, scaled(0.99)),
    "a count below the threshold": lambda lines: lines[1].__setitem__(slice(2, 5), ["59.999", "0", "70"]),
    "a count that is no number": field(2, lambda text: "nan"),
    "a count without end": field(2, lambda text: "inf"),
    "a count that other programs read otherwise": field(2, lambda text: f"{text[0]}_{text[1:]}"),
    "a count with a space": field(2, lambda text: f" {text}"),
    "a higher lower end": field(3, lambda text: f"{float(text) + 0.1:.3f}"),
    "a lower end of zero": lambda lines: max(lines[1:], key=lambda line: float(line[3])).__setitem__(3, "0"),
    "a lower upper end": field(4, lambda text: f"{float(text) - 0.1:.3f}"),
    "no upper end": field(4, lambda text: ""),
    "a row less": lambda lines: lines.pop(),
    "a row twice in the place of another": lambda lines: lines.__setitem__(2, lines[1]),
    "a row more": lambda lines: lines.append(lines[1]),
    "a field more": lambda lines: lines[1].append("1"),
    "a field less": lambda lines: lines[1].pop(),
    "a column with another name": field(2, lambda text: "count", row=0),
    "columns in another order": lambda lines: [line.reverse() for line in lines],
    "nothing": lambda lines: lines.clear(),
}


def verdict(folder: Path) -> str:
    return verify.claim_result(verify.CLAIMS["a thresholded histogram"], verify.ReleaseClaims(folder))


@pytest.mark.parametrize("of", [RELEASES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in RELEASES[1:])])
def test_every_lie_about_a_row_is_found(of: str, honest: Any, tmp_path: Path) -> None:
    folder = tmp_path / "release"
    shutil.copytree(honest(of)[0], folder)
    text = (folder / "thresholded.csv").read_text()
    assert verdict(folder) == "right"
    missed = []
    for name, lie in LIES.items():
        lines = list(csv.reader(io.StringIO(text)))
        lie(lines)
        with (folder / "thresholded.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
        if not verdict(folder).startswith("wrong"):
            missed.append(name)
    assert missed == []
