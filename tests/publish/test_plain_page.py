"""The page of the core, where the plugin ``page`` is missing: its numbers are those of the tables, and the verifier compares them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from dpdist.publish.outputs import output_registry, plain_page
from tests.support import small_release
from tests.support.verifier_findings import wrong_claims


def test_a_plain_page_shows_the_first_answers_and_the_guarantee(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = output_registry.plugin_objects
    monkeypatch.setattr(output_registry, "plugin_objects", lambda field: [] if field == "pages" else [*others(field)])
    monkeypatch.setattr(plain_page, "PLAIN_ROWS", 5)
    folder = Path(
        small_release.run(
            small_release.write(home.parent / "data", workload=[{"marginals": {"of": [["age"]]}}]), home
        ).folder
    )
    page = folder / "index.html"
    text = page.read_text()
    assert text.count("<td>age ") == 5
    assert "<p>The first 5 of 12 answers; all are in the files.</p>" in text
    assert json.loads((folder / "release.json").read_text())["privacy"]["meaning"]["headline"] in text
    assert "<script" not in text
    assert wrong_claims(folder) == {}
    answer = (folder / "answers.csv").read_text().splitlines()[1].split(",")[5]
    for altered in (text.replace(f"<td>{answer}</td>", "<td>7.5</td>"), text.replace("</table>", "<tr></tr></table>")):
        assert altered != text
        page.chmod(0o600)
        page.write_text(altered)
        certificate = json.loads((folder / "release.json").read_text())
        certificate["files"]["index.html"] = hashlib.sha256(altered.encode()).hexdigest()
        (folder / "release.json").chmod(0o600)
        (folder / "release.json").write_text(json.dumps(certificate))
        assert {"page"} <= wrong_claims(folder).keys()
