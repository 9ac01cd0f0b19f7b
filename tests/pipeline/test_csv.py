"""CSV files through the whole pipeline: a record is a line, and moves the counts of that line alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet
import pytest

from dpdist.errors import InvalidSpec, UnknownValue
from dpdist.page.domain_text import exclusion_sentences
from dpdist.spec import load
from tests.support import small_release

pytestmark = pytest.mark.usefixtures("home")
SCHEMA = Path(__file__).parents[2] / "docs/certificate.schema.json"
EXACT = {"budget": {"rho": 1e7}, "ledger": {"dataset": "small", "cap": {"rho": 1e8}}}
NAMES = {"name": {"categories": ["a", "x", "y"], "outside": "drop"}}
CLINIC = "".join(f"a,foo{number}\n" for number in range(100))


def written(folder: Path, text: str | bytes, domain: dict[str, Any], **records: Any) -> Path:
    path = small_release.write(
        folder,
        release=folder.name.replace("_", "-"),
        records={"path": "records.csv", "most_missing": "100%", **records},
        domain=domain,
        workload=[{"marginals": {"of": [[name] for name in domain]}}],
        mechanism="identity",
        **EXACT,
    )
    (folder / "records.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def counts(folder: Path, text: str | bytes, domain: dict[str, Any] | None = None, **records: Any) -> dict[str, int]:
    """What a release with hardly any noise says of each value."""
    home = next(each / "home" for each in (folder, folder.parent) if (each / "home").exists())
    release = small_release.run(written(folder, text, NAMES if domain is None else domain, **records), home)
    rows = pyarrow.parquet.read_table(release.folder / "answers.parquet").to_pylist()
    return {row["query"]: round(row["answer"]) for row in rows}


def test_a_quotation_mark_swallows_no_neighbours(tmp_path: Path) -> None:
    """One line more, x,"oops, made all records after it a part of its own value."""
    plain = counts(tmp_path / "plain", f"name,text\n{CLINIC}y,bar\n")
    assert plain == {"name a": 100, "name x": 0, "name y": 1}
    with pytest.raises(
        InvalidSpec, match=r"records.csv cannot be read: a quotation mark is still open .*\(line 2\)"
    ) as told:
        counts(tmp_path / "one", f'name,text\nx,"oops\n{CLINIC}y,bar\n')
    assert "oops" not in str(told.value)
    assert not list((tmp_path / "one").rglob("release.json"))
    text = counts(tmp_path / "text", f'name,text\nx,"oops\n{CLINIC}y,bar\n', csv={"quoting": "none"})
    assert text == {**plain, "name x": 1}


def test_two_quotation_marks_on_two_lines_make_no_record_of_both(tmp_path: Path) -> None:
    text = 'name,text\nx,"oops\ny"\na,1\n'
    with pytest.raises(InvalidSpec, match=r"still open .*\(line 2\)"):
        counts(tmp_path / "lines", text)
    assert counts(tmp_path / "none", text, csv={"quoting": "none"}) == {"name a": 1, "name x": 1, "name y": 0}
    assert counts(tmp_path / "multiline", text, csv={"multiline": True}) == {"name a": 1, "name x": 1, "name y": 0}
    with pytest.raises(InvalidSpec, match=r"RFC 4180 alone: correct the line \(line 3\)"):
        counts(tmp_path / "strict", 'name,text\na,1\ny"z,1\n', csv={"multiline": True})


RAGGED = "name,age\nx,1\ny\na,2,3\n" + '"x"y,1\n' + "y,2\n"


@pytest.mark.parametrize(
    ("how", "names", "missing"),
    [
        ({"missing": "unknown"}, {"name a": 0, "name x": 1, "name y": 1, "name unknown": 3}, 3),
        ({"missing": "unknown", "other": "another"}, {"name a": 0, "name x": 1, "name y": 1, "name another": 0, "name unknown": 3}, 3),
        ({"outside": "drop"}, {"name a": 0, "name x": 1, "name y": 1}, 0),
        ({"missing": "drop"}, {"name a": 0, "name x": 1, "name y": 1}, 3),
    ],
)  # fmt: skip
def test_a_ragged_line_is_a_record_without_values(
    how: dict[str, Any], names: dict[str, int], missing: int, tmp_path: Path
) -> None:
    domain = {"name": {"categories": ["a", "x", "y"], **how}, "age": {"from": 1, "to": 3, "missing": "none"}}
    found = counts(tmp_path, RAGGED, domain)
    assert found == {**names, "age 1": 1, "age 2": 1, "age 3": 0, "age none": missing}


@pytest.mark.parametrize("outside", ["clip", "drop", "error"])
def test_numbers_of_ragged_lines_and_texts_that_are_none(outside: str, tmp_path: Path) -> None:
    domain = {"age": {"from": 1, "to": 3, "outside": outside}}
    if outside == "error":
        with pytest.raises(UnknownValue, match="or none at all"):
            counts(tmp_path, RAGGED, domain)
        return
    found = counts(tmp_path, RAGGED + "a,many\na,9\n", domain)
    assert [found[key] for key in found if "1" in key] == [1]
    assert sum(found.values()) == (3 if outside == "clip" else 2)


def test_ragged_lines_have_no_person(tmp_path: Path) -> None:
    """As any record without a person they are refused, and never counted as somebody's."""
    person = {"person": {"column": "name"}}
    domain = {"age": {"from": 1, "to": 3, "missing": "none"}}
    with pytest.raises(InvalidSpec, match="the person column 'name' has missing values"):
        counts(tmp_path / "ragged", RAGGED, domain, **person)
    found = counts(tmp_path / "whole", "name,age\nx,1\nx,2\ny,\n", domain, **person)
    assert found == {"age 1": 1, "age 2": 0, "age 3": 0, "age none": 1}


def test_a_german_export(tmp_path: Path) -> None:
    domain = {
        "Ort": {"categories": ["Köln", "Gießen"]},
        "Betrag": {"edges": [0, 1.5, 2], "missing": "keiner"},
        "Tag": {"dates": {"from": "2026-09-01", "to": "2026-09-02"}, "missing": "keiner"},
    }
    text = 'Ort;Betrag;Tag\r\nKöln;1,49;01.09.2026\r\n"Gießen";"1,5";02.09.2026\r\nKöln;1.49;2026-09-01\r\n'
    csv = {"delimiter": ";", "decimal": ",", "encoding": "windows-1252", "dates": {"format": "%d.%m.%Y"}}
    found = counts(tmp_path, text.encode("cp1252"), domain, csv=csv)
    assert list(found.values()) == [2, 1, 1, 1, 1, 1, 1, 1]


def test_the_certificate_says_what_a_record_is(tmp_path: Path) -> None:
    for name, records, said in (
        ("line", {}, "one line of a CSV file"),
        ("rfc", {"csv": {"multiline": True}}, "RFC 4180"),
        ("parquet", {"path": "records.parquet"}, None),
    ):
        path = written(tmp_path / name, "name,sex,work\na,f,a\n", {"sex": {"categories": ["f", "m"]}}, **records)
        release = small_release.run(path, tmp_path / "home")
        certificate = json.loads((release.folder / "release.json").read_text())
        jsonschema.validate(certificate, json.loads(SCHEMA.read_text()))
        page = (release.folder / "index.html").read_text()
        assert (said is None) == ("record" not in certificate["method"])
        assert said is None or (
            said in certificate["method"]["record"] and said in exclusion_sentences(certificate)[0] and said in page
        )


@pytest.mark.parametrize(
    ("records", "match"),
    [
        ({"csv": {"delimiter": '"'}}, "one ASCII character that is no letter, digit"),
        ({"csv": {"delimiter": "7"}}, "one ASCII character"),
        ({"csv": {"delimiter": ";;"}}, "one ASCII character"),
        ({"csv": {"delimiter": "\n"}}, "one ASCII character"),
        ({"csv": {"delimiter": "¦"}}, "one ASCII character"),
        ({"csv": {"decimal": ","}}, "'delimiter' and 'decimal' are both ','"),
        ({"csv": {"delimiter": "."}}, "'delimiter' and 'decimal' are both '.'"),
        ({"csv": {"multiline": True, "quoting": "none"}}, "'multiline' needs quotation marks"),
        ({"csv": {"encoding": "utf-16"}}, "save files in others, such as UTF-16, as UTF-8"),
        ({"csv": {"dates": {"format": "%d.%m."}}}, "a form of dates needs the year"),
        ({"csv": {}, "path": "records.parquet"}, "'csv' belongs to CSV files"),
        ({"csv": {}, "path": None, "delta": "lake"}, "'csv' belongs to 'path' or 'sql'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_spec(records: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=match):
        load(written(tmp_path, "", NAMES, **records))
