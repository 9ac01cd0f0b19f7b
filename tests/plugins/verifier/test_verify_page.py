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


PAGE: dict[str, tuple[str, Callable[[str], str]]] = {
    "an answer in a sentence": ("sums", matched(r"202\.1\N{NO-BREAK SPACE}±", "902.1\N{NO-BREAK SPACE}±")),
    "a half width in a sentence": ("sums", matched(r"±\N{NO-BREAK SPACE}8\.2", "±\N{NO-BREAK SPACE}0.2")),
    "an answer in a chart": ("sums", matched(r'(<g class="values"><text[^>]*>)202\.1', r"\g<1>902.1")),
    "an answer in a chart's data": ("sums", matched(r'"v":\[\[202\.092', '"v":[[902.092')),
    "an answer in the table": ("sums", replaced("<td>399.3</td>", "<td>999.3</td>")),
    "an interval in the table": ("sums", replaced("388.8 to 409.8", "398.8 to 399.8")),
    "an answer in the list": ("sums", replaced('"steps":"8K35"', '"steps":"9K35"')),
    "a standard error in the list": ("sums", replaced('"pairs":[[5.34477,', '"pairs":[[0.34477,')),
    "a mean": ("sums", replaced("<td>45.7</td>", "<td>55.7</td>")),
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
