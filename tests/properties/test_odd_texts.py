"""Whatever attributes, values, columns and titles are called: a release that is charged is verified, shown and put on a site."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dpdist.pipeline.release_audit import Verification
from dpdist.pipeline.release_run import release
from dpdist.spec import load
from tests.case_selection import slow_after_first
from tests.properties.compositions import context_of_all
from tests.properties.test_random_specs import read_by_commands

ODD_TEXTS = [
    *("a b", "a x b", "a by b", "a and b", "a, b", "a=b", "<b>", "&amp;", "it's", 'q"q', "''", "=1", "'=1", "-1", "+1", "@x", "a|b"),
    *("a\\b", "007", "1.5", "2e-07", "100%", "12,345", "{x}", "%s", "\N{SNOWMAN}", "e\u0301", "d\te", "f\ng", "h\ri", " c"),
    *("nan", "null", "None", "True", "inf", "N/A", "-", "--help", "../x", ".", "x" * 300, "\u202eabc", "\x1b[31m", "]]>", "</script>", "'"),
    *("\N{HEBREW LETTER SHIN}", "sum", "all", "or", "not", "in", "rest", "mean", "of", "at", "group", "query", "answer", "value", "0"),
    *("low_95", "release", "period", "Age", "AGE", "age", "attribute_of", "__proto__", "constructor", "up to x", "sum of a", "total"),
]  # fmt: skip
"""Words of titles and of questions, columns of tables, markup, formulas of spreadsheets, numbers, and characters of their own kind."""


def spec_of(random: Random) -> dict[str, Any]:
    """A spec of which every text is odd, of two attributes, a level and two columns of amounts."""
    town, age, level, paid, tip = random.sample(ODD_TEXTS, 5)
    labels = random.sample(ODD_TEXTS, 30)
    first, second, third, fourth = random.sample(ODD_TEXTS, 4)
    tables: list[dict[str, Any]] = [
        {"marginals": {"of": [[town], [town, age], [level, age], []]}},
        {"ranges": {"of": [age], "by": [town]}},
    ]
    statistics: list[dict[str, Any]] = [
        {"marginals": {"of": [[town], [level]]}, "mean": paid},
        {"marginals": {"of": [[age]]}, "covariance": [paid, tip]},
    ]
    return {
        "title": first,
        "records": {"path": "records.parquet", "called": second},
        "domain": {
            town: {"categories": labels, "levels": {level: {third: labels[:9], "others": labels[9:]}}},
            age: {"from": 0, "to": 1, "title": fourth, "unit": third},
        },
        "sums": {paid: {"from": 0, "to": 3, "unit": second}, tip: {"from": 0, "to": 3}},
        "workload": [*tables, *statistics],
        "about": {
            "curator": first,
            "description": second,
            "intended_use": third,
            "region": fourth,
            "authors": [second, fourth],
        },
        "site": {"name": "Office 24,683 & <b>"},
        "budget": {"rho": 1},
    }


def table_of(spec: dict[str, Any]) -> pa.Table:
    """Two records of every value."""
    (town, declared), (age, _) = spec["domain"].items()
    paid, tip = spec["sums"]
    count = len(declared["categories"])
    columns = {town: declared["categories"] * 2, age: [0, 1] * count, paid: [1.0, 2.0] * count, tip: [0.0, 3.0] * count}
    return pa.table(columns)


def check_read_by_others(folder: Path) -> None:
    """JSON without numbers that are none, and CSV of as many fields in every row."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no number of JSON")

    for path in folder.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    for path in folder.rglob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file, strict=True)
        assert len(set(head)) == len(head), path
        assert {len(row) for row in rows} <= {len(head)}, path


@pytest.mark.parametrize("seed", slow_after_first(1, range(24)))
def test_a_release_of_odd_texts_is_verified_and_read(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    context, spec, name = context_of_all(), spec_of(Random(seed)), f"odd-{seed}"
    pyarrow.parquet.write_table(table_of(spec), tmp_path / "records.parquet")
    spec |= {"release": name, "ledger": {"dataset": name, "cap": {"rho": 2}, "shared_records": True}}
    spec["output"] = {"folder": str(tmp_path / "published")}
    (tmp_path / "release.yaml").write_text(yaml.safe_dump(spec, allow_unicode=True, sort_keys=False), encoding="utf-8")
    assert release(context, load(tmp_path / "release.yaml")).charged
    read_by_commands(tmp_path, name, context.home)
    found = Verification(context.store, context.ledger, tmp_path / "site").verify_release(name)
    assert [str(each) for each in found if each.differs] == [], spec
    check_read_by_others(tmp_path / "published")
    assert not release(context, load(tmp_path / "release.yaml")).charged
