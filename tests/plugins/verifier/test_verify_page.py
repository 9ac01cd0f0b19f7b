"""Lies on the page and in the files beside the tables: the liar writes all digests anew, and the verifier finds each."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpdist.plugins.verifier import verify
from tests.plugins.verifier import test_verify

honest, _here = test_verify.honest, test_verify._here


def replaced(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    """A text in the place of another one."""

    def lie(text: str) -> str:
        assert old in text
        return text.replace(old, new, count)

    return lie


def matched(pattern: str, new: str) -> Callable[[str], str]:
    """A text in the place of what a pattern matches first."""

    def lie(text: str) -> str:
        assert re.search(pattern, text), pattern
        return re.sub(pattern, new, text, count=1)

    return lie


def moved(pattern: str, by: float) -> Callable[[str], str]:
    """Another number in the place of the first group of what a pattern matches first; which noise there is depends on the processor."""

    def lie(text: str) -> str:
        found = re.search(pattern, text)
        assert found is not None, pattern
        number = found[1]
        decimals = len(number.partition(".")[2])
        return f"{text[: found.start(1)]}{float(number) + by:.{decimals}f}{text[found.end(1) :]}"

    return lie


PAGE: dict[str, tuple[str, Callable[[str], str]]] = {
    "an answer in a sentence": ("sums", moved(r"(\d+\.\d)\N{NO-BREAK SPACE}±", 700)),
    "a half width in a sentence": ("sums", moved(r"±\N{NO-BREAK SPACE}(\d+\.\d)", -8)),
    "an answer in a chart": ("sums", moved(r'<g class="values"><text[^>]*>(\d+\.\d)', 700)),
    "an answer in a chart's data": ("sums", moved(r'"v":\[\[(\d+\.\d+)', 700)),
    "an answer in the table": ("sums", moved(r"<td>(\d+\.\d)</td>", 600)),
    "an interval in the table": ("sums", moved(r"(\d+\.\d) to \d", 10)),
    "an answer in the list": ("sums", matched(r'"steps":"(\w)', r'"steps":"9\1')),
    "a standard error in the list": ("sums", moved(r'"pairs":\[\[(\d+\.\d+)', -5)),
    "a mean": ("sums", moved(r"<td>(4\d\.\d)</td>", 10)),
    "a quantile": ("quantiles", matched(r"<td>15\.39</td>", "<td>45.39</td>")),
    "epsilon": (
        "sums",
        replaced("ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2.583", "ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0.583"),
    ),
    "what it means": ("sums", replaced("in at most 11.8 of 100", "in at most 5.1 of 100", 2)),
    "whom it protects": (
        "sums",
        replaced("One record is added or removed.", "All records of one person are added or removed.", 9),
    ),
    "another script": ("sums", replaced("</body>", "<script>alert(1)</script></body>")),
    "a longer script": ("sums", replaced('"use strict";', '"use strict";alert(1);')),
    "a handler": ("sums", replaced("<main>", '<main onclick="alert(1)">')),
    "a frame": ("sums", replaced("<main>", '<main><iframe src="https://example.org"></iframe>')),
    "a picture from elsewhere": ("sums", replaced("<main>", '<main><img src="https://example.org/x.png" alt="">')),
    "a link that runs": ("sums", replaced('href="answers.csv"', 'href="javascript:alert(1)"')),
    "a link elsewhere": ("sums", replaced('href="answers.csv"', 'href="https://example.org/answers.csv"')),
    "a page that leads on": (
        "sums",
        replaced('<meta charset="utf-8">', '<meta charset="utf-8"><meta http-equiv="refresh" content="0">'),
    ),
    "a style that hides": ("sums", replaced("</style>", "#exclusions{display:none}</style>")),
    "a comment": ("sums", replaced("<main>", "<main><!-- x -->")),
    "another page": ("sums", lambda text: "<!doctype html>\n<html lang='en'><body><p>1,000 records</p></body></html>"),
}
BESIDE: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "another release in BibTeX": ("citation.bib", "citation", replaced("version = {small-1}", "version = {small-2}")),
    "another title": ("citation.json", "citation", replaced('"title": "small-1"', '"title": "Census"')),
    "another id": ("citation.json", "citation", replaced('"id": "small-1"', '"id": "small-2"')),
    "another epsilon in a catalogue": ("croissant.json", "catalogues", replaced("epsilon = 2.58287", "epsilon = 0.58287")),
    "another digest in a catalogue": ("croissant.json", "catalogues", matched(r'"sha256": "[0-9a-f]{64}"', f'"sha256": "{"0" * 64}"')),
    "another rho beside the table": ("answers.csv-metadata.json", "catalogues", replaced("rho = 0.1,", "rho = 0.01,")),
    "another meaning of a column": ("dictionary.csv", "data dictionary", replaced("the noisy answer", "the exact answer")),
    "another meaning of an error": (
        "answers.csv-metadata.json", "catalogues", replaced("standard deviation of the noise", "standard deviation of the records"),
    ),
}  # fmt: skip


def line_after(folder: Path, work: Path, name: str, lie: Callable[[str], str], claim: str) -> str:
    """What the verifier says after a file was altered and its digests were written anew."""
    shutil.copytree(folder, work)
    (work / name).write_text(lie((work / name).read_text()))
    certificate = json.loads((work / "release.json").read_text())
    certificate["files"][name] = hashlib.sha256((work / name).read_bytes()).hexdigest()
    (work / "release.json").write_text(json.dumps(certificate))
    found = verify.verify(work)
    assert found["files"].startswith("right")
    return found[claim]


@pytest.mark.parametrize("name", PAGE)
def test_a_lie_on_the_page_is_found(name: str, honest: Any, tmp_path: Path) -> None:
    of, lie = PAGE[name]
    assert line_after(honest(of)[0], tmp_path / "work", "index.html", lie, "page").startswith("wrong: ")


@pytest.mark.parametrize("name", BESIDE)
def test_a_lie_in_a_file_beside_the_tables_is_found(name: str, honest: Any, tmp_path: Path) -> None:
    file, claim, lie = BESIDE[name]
    assert line_after(honest("sums")[0], tmp_path / "work", file, lie, claim).startswith("wrong: ")


def test_the_verifier_knows_script_and_style_of_this_version() -> None:
    """Whoever changes them adds their digests to ``verify.py``; those of earlier versions stay."""
    assets = pytest.importorskip("dpdist.plugins.page.assets", reason="a plugin of this distribution is missing")
    own = [assets.page_assets(), assets.page_assets("ask.js")]
    assert [hashlib.sha256(each.script.encode()).hexdigest()[:32] in verify.SCRIPTS for each in own] == [True, True]
    rest = assets.STYLE.replace("text{", "svg text{", 1) + assets._file("page.css")
    assert hashlib.sha256(rest.encode()).hexdigest()[:32] in verify.STYLES
