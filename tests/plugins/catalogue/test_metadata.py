"""What a release carries for catalogues: metadata that says what the files hold, in the forms of those who read it."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dpdist.page.citation import link_address
from dpdist.publish.release_folder import certificate_of
from dpdist.spec import load
from dpdist.spec.sections.output import AboutSpec
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.small_release import run

FIELDS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "deployment_fields.yaml").read_text())
ABOUT = {
    "curator": "Stadtbücherei",
    "description": "Visitors by age.",
    "intended_use": "Planning opening hours",
    "region": "Hamburg, Germany",
    "published": "2026-12-01",
    "license": "CC-BY-4.0",
}
SHOWN_IN = {
    "curator": "CITATION.cff croissant.json deployment.yaml index.html",
    "description": "CITATION.cff answers.csv-metadata.json croissant.json deployment.yaml index.html",
    "intended_use": "deployment.yaml",
    "region": "deployment.yaml",
    "published": "CITATION.cff croissant.json deployment.yaml",
    "sector": "deployment.yaml",
    "authors": "CITATION.cff citation.bib citation.json deployment.yaml index.html",
    "license": "CITATION.cff croissant.json index.html",
    "contact": "CITATION.cff index.html",
    "address": "CITATION.cff citation.bib citation.json croissant.json deployment.yaml index.html",
}
"""Every field of ``about``, and the files of a release that show its value."""
OPTIONAL = {"data_product_sector", "sources", "notes"}
"""Fields that say more than a release knows, and may be left out of a complete record."""


def leaves(node: dict[str, Any]) -> Iterator[str]:
    for name, inner in node.get("properties", {}).items():
        yield from leaves(inner) if "properties" in inner and name != "privacy_parameters" else [name]


def field_names(value: dict[str, Any]) -> Iterator[str]:
    for name, inner in value.items():
        yield from field_names(inner) if isinstance(inner, dict) and name != "privacy_parameters" else [name]


@pytest.mark.parametrize("noise", slow_after_first(1, ["gaussian", "laplace"]))
def test_a_release_carries_a_whole_record_for_the_registry_and_a_citation(home: Path, noise: str) -> None:
    pure = {"budget": {"epsilon": 0.5}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}} if noise == "laplace" else {}
    done = run(small_release.write(home.parent / "data", mechanism="identity", about=ABOUT, title="=Visits", **pure), home)
    record = yaml.safe_load((done.folder / "deployment.yaml").read_text())
    jsonschema.validate(record, FIELDS)
    assert set(leaves(FIELDS)) - set(field_names(record)) == OPTIONAL
    privacy = done.certificate["privacy"]
    parameters = record["deployment"]["privacy_loss"]["privacy_parameters"]
    assert parameters["epsilon"] == privacy["epsilon"]
    assert parameters.get("rho") == (privacy["rho_decimal"] if noise == "gaussian" else None)
    record["deployment"]["surprise"] = "unknown"
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(record, FIELDS)
    citation = yaml.safe_load((done.folder / "CITATION.cff").read_text())
    assert citation["authors"] == [{"name": "Stadtbücherei"}]
    assert (citation["date-released"], citation["version"], citation["cff-version"]) == ("2026-12-01", "small-1", "1.2.0")


def test_the_record_says_what_is_true_of_this_release(home: Path) -> None:
    """Not of another: DAWA measures what it chose from the records, and no measurement may be asked that is not published."""
    pure = {
        "budget": {"epsilon": 0.5},
        "ledger": {"dataset": "small", "cap": {"epsilon": 2}},
        "workload": [{"cdf": {"of": "age"}}],
        "domain": {"age": {"from": 0, "to": 11}},
    }
    records = {}
    for name, changes in {"dawa": {}, "identity": {}, "closed": {"output": {"measurement": False}}}.items():
        mechanism = "dawa" if name == "dawa" else "identity"
        path = small_release.write(home.parent / name, release=name, mechanism=mechanism, about=ABOUT, **pure, **changes)
        records[name] = yaml.safe_load((run(path, home).folder / "deployment.yaml").read_text())["deployment"]
    assert "from the queries alone" in records["identity"]["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "was chosen from the records" in records["dawa"]["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "One vector" in records["identity"]["accounting"]["composition"]
    assert "A part of the budget" in records["dawa"]["accounting"]["composition"]
    asked = {
        name: "Further questions" in record["deployment_model"]["access_type_details"] for name, record in records.items()
    }
    assert asked == {"dawa": False, "identity": True, "closed": False}


def test_every_release_describes_its_columns_three_times_alike(home: Path) -> None:
    done = run(small_release.write(home.parent / "data", mechanism="identity"), home)
    with (done.folder / "answers.csv").open(newline="") as file:
        header = next(csv.reader(file))
    csvw = json.loads((done.folder / "answers.csv-metadata.json").read_text())
    assert [column["titles"] for column in csvw["tableSchema"]["columns"]] == header
    with (done.folder / "dictionary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["column"] for row in rows] == header
    assert "2 categories: f, m" in next(row["meaning"] for row in rows if row["column"] == "sex")
    croissant = json.loads((done.folder / "croissant.json").read_text())
    (answers,) = croissant["recordSet"]
    assert [field["source"]["extract"]["column"] for field in answers["field"]] == header
    for file_object in croissant["distribution"]:
        content = (done.folder / file_object["contentUrl"]).read_bytes()
        assert file_object["sha256"] == hashlib.sha256(content).hexdigest()
    assert not (done.folder / "deployment.yaml").exists()
    first = small_release.tree(done.folder)
    assert set(certificate_of(done.folder)["files"]) == set(first) - {"release.json", "release.json.sig"}
    (done.folder / "croissant.json").write_text("{}")
    with pytest.raises(Exception, match="altered"):
        certificate_of(done.folder)


def test_every_release_is_cited_in_words_and_for_programs(home: Path) -> None:
    """Without anything said of it, too; titles lose nothing, and no character of theirs is a command to TeX."""
    title = "Visits & 50 % of {all}_x"
    done = run(small_release.write(home.parent / "data", title=title, period="2026-11-01"), home)
    (item,) = json.loads((done.folder / "citation.json").read_text())
    assert (item["title"], item["version"], item["issued"]) == (title, "small-1", {"date-parts": [[2026, 11, 1]]})
    entry = (done.folder / "citation.bib").read_text()
    assert r"title = {{Visits \& 50 \% of \{all\}\_x}}" in entry
    assert entry.startswith("@misc{small-1,")
    page = (done.folder / "index.html").read_text()
    for name in ("citation.bib", "citation.json", "release.json", "release.json.sig", "answers.csv"):
        assert f'<a href="{name}">' in page
        assert (done.folder / name).is_file()
    assert not (done.folder / "CITATION.cff").exists()


def test_every_word_about_a_release_stands_in_the_files_that_show_it(home: Path) -> None:
    about = ABOUT | {
        "sector": "Education",
        "authors": ["Ada Weiss"],
        "contact": "statistics@example.org",
        "address": "https://example.org/visitors",
    }
    folder = run(small_release.write(home.parent / "data", about=about), home).folder
    texts = {
        path.name: path.read_text()
        for path in folder.iterdir()
        if path.suffix in (".cff", ".bib", ".json", ".yaml", ".html")
    }
    values = {field: value if isinstance(value, str) else value[0] for field, value in about.items()}
    assert set(about) == set(AboutSpec.model_fields)
    assert {field: {name for name, text in texts.items() if value in text} for field, value in values.items()} == {
        field: set(names.split()) for field, names in SHOWN_IN.items()
    }


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("https://example.org/x", "https://example.org/x"),
        ("a@example.org", "mailto:a@example.org"),
        ("CC-BY-4.0", "https://spdx.org/licenses/CC-BY-4.0.html"),
        ("javascript:alert(1)", ""),
        ("Town hall, room 3", ""),
        ('https://example.org/"onclick="x', ""),
    ],
)
def test_only_addresses_become_links(text: str, to: str) -> None:
    assert link_address(text) == to


def test_words_about_a_release_change_no_digest(home: Path) -> None:
    plain = small_release.write(home.parent / "data")
    before = load(plain).digest
    assert load(small_release.write(home.parent / "data", about=ABOUT)).digest == before
