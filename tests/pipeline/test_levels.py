"""Levels of attributes: tables at every level agree with each other and with the records, however the levels are declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.errors import InvalidSpec
from dpdist.spec import load
from dpdist.workloads.integer_basis import column_codes
from tests.support import small_release

# NUTS codes of Eurostat, version 2024: districts of Bremen and the Saarland, and two of Berlin and Hamburg
NUTS = {
    "DE300": ("DE3", "DE"),
    "DE501": ("DE5", "DE"),
    "DE502": ("DE5", "DE"),
    "DE600": ("DE6", "DE"),
    "DEC01": ("DEC", "DE"),
    "DEC02": ("DEC", "DE"),
    "LU000": ("LU0", "LU"),
}
STATES = {state: [code for code, (parent, _) in NUTS.items() if parent == state] for state, _ in NUTS.values()}
COUNTRIES = {"DE": list(NUTS)[:-1], "LU": ["LU000"]}
STATE = np.random.default_rng(8)
CODES = STATE.choice([*NUTS, ""], 400)
AGES = STATE.integers(0, 100, 400)
TABLE = pa.table({"district": [code or None for code in CODES], "age": AGES})
DISTRICT: dict[str, Any] = {
    "categories": list(NUTS),
    "missing": "unknown",
    "levels": {"country": COUNTRIES, "land": STATES},
}
AGE: dict[str, Any] = {"edges": [0, 18, 30, 65, 100], "levels": {"age group": [0, 18, 65, 100]}}
ASKED = [{"marginals": {"of": [["country"], ["land", "age group"], ["district"], ["age group"]]}}]
LARGE = {"budget": {"rho": 1}, "ledger": {"dataset": "small", "cap": {"rho": 1}}}


def rows(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    given: dict[str, Any] = {"domain": {"district": DISTRICT, "age": AGE}, "workload": ASKED, **LARGE}
    release = small_release.run(small_release.write(folder, table=TABLE, **{**given, **changes}), folder / "home")
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(release.folder / "answers.parquet").to_pylist()
    return found


@pytest.mark.usefixtures("home")
def test_tables_at_every_level_agree(tmp_path: Path) -> None:
    """Noisy as they are: a state is the sum of its districts, a country that of its states, and unknown is everywhere the same."""
    found = rows(tmp_path)
    countries = {row["country"]: row["answer"] for row in found if row["group"] == "country"}
    states = dict.fromkeys((*STATES, "unknown"), 0.0)
    for row in found:
        if row["group"] == "land x age group":
            states[row["land"]] += row["answer"]
    districts = {row["district"]: row["answer"] for row in found if row["group"] == "district"}
    assert countries.keys() == {"DE", "LU", "unknown"}
    for country, members in COUNTRIES.items():
        assert countries[country] == pytest.approx(sum(districts[code] for code in members), abs=0.1)
    for state, members in STATES.items():
        assert states[state] == pytest.approx(sum(districts[code] for code in members), abs=0.1)
    assert states["unknown"] == pytest.approx(countries["unknown"], abs=0.1)
    for code in (*NUTS, ""):
        assert districts[code or "unknown"] == pytest.approx(int((code == CODES).sum()), abs=6)
    assert [row["query"] for row in found[:2]] == ["country DE", "country LU"]
    page = next((tmp_path / "work" / "releases").rglob("index.html"), None) or next(tmp_path.rglob("index.html"))
    assert "land and age group" in page.read_text(encoding="utf-8")
    described = (page.parent / "dictionary.csv").read_text(encoding="utf-8").splitlines()
    assert [line.partition(",")[0] for line in described[1:]] == list(found[0])


def test_levels_of_numbers_are_wider_bins(tmp_path: Path) -> None:
    spec = load(small_release.write(tmp_path, domain={"district": DISTRICT, "age": AGE}, workload=ASKED))
    (block,) = [block for block in spec.workload.queries.blocks if block.name == "age group"]
    assert list(block.labels[0]) == ["0 to <18", "18 to <65", "65 to <100"]
    assert block.factors[0].dense().tolist() == [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    assert column_codes(block.factors[0]).tolist().count(column_codes(block.factors[0])[1]) == 2


def test_a_file_of_levels_is_the_same_as_lists(tmp_path: Path) -> None:
    inline = load(small_release.write(tmp_path, domain={"district": DISTRICT, "age": AGE}, workload=ASKED))
    lines = ["code,country,land", *(f"{code},{country},{land}" for code, (land, country) in NUTS.items())]
    (tmp_path / "nuts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    filed = load(
        small_release.write(tmp_path, domain={"district": {**DISTRICT, "levels": "nuts.csv"}, "age": AGE}, workload=ASKED)
    )
    assert filed.measured.domain == inline.measured.domain
    assert filed.workload.queries.fingerprint == inline.workload.queries.fingerprint


def levels(**given: Any) -> dict[str, Any]:
    return {"domain": {"district": {**DISTRICT, "levels": given}, "age": AGE}}


BAD: dict[str, dict[str, Any]] = {
    "'LU000' is in no group": levels(country={"DE": COUNTRIES["DE"]}),
    "'DE300' is in two groups": levels(country={**COUNTRIES, "also": ["DE300"]}),
    "'XX' is no declared value": levels(country={**COUNTRIES, "more": ["XX"]}),
    "is the label of missing or other": levels(country={"unknown": list(NUTS)}),
    "only numbers have edges": levels(country=[0, 5]),
    "a bin may not be cut": {"domain": {"district": DISTRICT, "age": {**AGE, "levels": {"age group": [0, 20, 100]}}}},
    "cannot be read from 'none.csv'": {"domain": {"district": {**DISTRICT, "levels": "none.csv"}, "age": AGE}},
    "row 2 is different": {"domain": {"district": {**DISTRICT, "levels": "short.csv"}, "age": AGE}},
    "have different names": levels(age=COUNTRIES),
    "a level of it, or two levels": {"workload": [{"marginals": {"of": [["country", "district"]]}}]},
    "is a level of an attribute": {"workload": [{"cdf": {"of": "age group"}}]},
}


@pytest.mark.parametrize("said", BAD)
def test_levels_that_are_refused(said: str, tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("code,country\nDE300\n")
    given: dict[str, Any] = {"domain": {"district": DISTRICT, "age": AGE}, "workload": [{"marginals": {"of": [["age"]]}}]}
    with pytest.raises(InvalidSpec, match=said) as refused:
        load(small_release.write(tmp_path, **{**given, **BAD[said]}))
    assert "\n" not in str(refused.value)
