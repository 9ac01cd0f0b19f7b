"""Numbers that mean different things share no comparison, no series and no axis; those that mean the same do."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dpdist.planner.certificate import method_facts
from dpdist.plugins.site import editions, release_comparison, site_pages, trends
from dpdist.plugins.site.editions import Edition
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.spec import load
from tests.support import small_release

SPEC: dict[str, Any] = {
    "release": "r",
    "period": "2026-11-16",
    "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 2, "most_groups": 3}},
    "domain": {
        "age": {"from": 0, "to": 11},
        "sex": {"categories": ["f", "m"]},
        "score": {"edges": [0, 0.5, 1.0]},
        "day": {"dates": {"from": "2026-11-16", "to": "2026-11-22"}},
    },
    "workload": [{"marginals": {"of": [["age", "sex", "score", "day"]]}}],
    "budget": {"rho": 0.1},
    "ledger": {"dataset": "small", "cap": {"rho": 1, "per": "week"}},
}
SERIES: dict[str, Any] = {
    **SPEC,
    "records": {"path": "records.parquet"},
    "domain": {"age": {"from": 0, "to": 11}},
    "workload": [{"filters": {"of": "age", "apply": [{"running_sum": True}]}}],
}
SUMS: dict[str, Any] = {
    **SPEC,
    "records": {"path": "records.parquet"},
    "sums": {"cost": {"from": 0, "to": 100, "step": 1, "unit": "EUR"}},
    "workload": [{"marginals": {"of": [["sex"]]}, "sum": "cost"}],
}
FORMULA: dict[str, Any] = {
    **SPEC,
    "domain": {name: {"categories": ["no", "yes"]} for name in ("smokes", "drinks", "diabetic")},
    "workload": [{"dnf": {"terms": [["smokes", "drinks"], ["diabetic"]]}}],
}
ROWS: dict[str, Any] = {
    **SPEC,
    "records": {"path": "records.parquet"},
    "domain": {"sex": {"categories": ["f", "m"]}},
    "workload": [{"rows": {"file": "queries.npy", "names": ["first", "second"]}}],
}


def changed(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A spec with one value set, by a path of keys and places."""
    out = deepcopy(content)
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    part: Any = out
    for key in way:
        part = part.setdefault(key, {}) if isinstance(part, dict) else part[key]
    part[last] = value
    return out


def published(folder: Path, content: dict[str, Any], name: str) -> Edition:
    """What the site knows of a release, as far as its spec decides."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**content, "release": name}, sort_keys=False))
    np.save(folder / "queries.npy", np.eye(2))
    spec = load(path)
    facts = {
        "period": spec.guarantee.period.isoformat() if spec.guarantee.period else None,
        "dataset": spec.guarantee.dataset,
        "release": name,
    }
    return Edition(
        folder, {**facts, "method": method_facts(spec), "privacy": {"unit": spec.guarantee.protection.unit}, "stream": None}
    )


OTHER: list[tuple[dict[str, Any], str, Any]] = [
    (SPEC, "records", {**SPEC["records"], "count": "persons", "person": {"column": "person", "most_groups": 3}}),
    (SPEC, "records/called", "visits"),
    (SPEC, "records/columns", {"age": "years"}),
    (SPEC, "records/person/column", "household"),
    (SPEC, "records/person/most_records", 1),
    (SPEC, "records/person/most_groups", 2),
    (SPEC, "records/person", {}),
    (SPEC, "domain/age/to", 12),
    (SPEC, "domain/age/outside", "drop"),
    (SPEC, "domain/age/unit", "months"),
    (SPEC, "domain/sex/categories", ["f", "x"]),
    (SPEC, "domain/sex/other", "other"),
    (SPEC, "domain/sex/missing", "unknown"),
    (SPEC, "domain/score/edges", [0, 0.500001, 1.0]),
    (SPEC, "domain/day/dates", {"from": "2026-11-16", "to": "2026-11-21"}),
    (SPEC, "domain/day/dates", {"from": "2026-11-16", "every": "hour", "steps": 7}),
    (SERIES, "workload/0/filters/apply/0", {"window": 3}),
    (SERIES, "workload/0/filters/circular", True),
    (SERIES, "workload/0/filters/around", 140),
    (FORMULA, "workload/0/dnf/terms", [["smokes", "diabetic"], ["drinks"]]),
    (ROWS, "workload/0/rows/names", ["second", "first"]),
    (SUMS, "sums/cost/to", 200),
    (SUMS, "sums/cost/step", 2),
    (SUMS, "sums/cost/unit", "kEUR"),
    (SUMS, "ledger/dataset", "another"),
]
SAME: list[tuple[dict[str, Any], str, Any]] = [
    (SPEC, "period", "2026-11-23"),
    (SPEC, "domain/day/dates", {"from": "2026-11-23", "to": "2026-11-29"}),
    (SPEC, "budget", {"rho": 0.2}),
    (SPEC, "title", "Visits"),
    (SPEC, "domain/age/title", "age in years"),
    (SPEC, "records/path", "elsewhere.parquet"),
    (SPEC, "mechanism", "identity"),
    (SPEC, "workload/0/weight", 2),
    (SERIES, "workload/0/weight", 2),
    (SUMS, "workload/0/marginals/of", [["age"], ["sex"]]),
    (SUMS, "postprocess", {"non_negative": False}),
]


@pytest.mark.parametrize(("content", "path", "value"), OTHER, ids=lambda part: str(part)[:40])
def test_a_change_of_the_meaning_parts_releases(tmp_path: Path, content: dict[str, Any], path: str, value: Any) -> None:
    """Neither a series nor a comparison has both, whatever their groups and queries are called."""
    first = published(tmp_path, content, "first")
    second = published(tmp_path, {**changed(content, path, value), "period": "2026-11-23"}, "second")
    assert first.quantity != second.quantity
    answers = {one.release: {"sex": {"sex f": (100.0 * k, 1.0)}} for k, one in enumerate((first, second))}
    assert release_comparison.newest_pair([first, second]) is None
    assert trends.trend_charts([first, second], answers) == []
    assert [one.release for kind in trends.group_comparable([first, second]) for one in kind] == ["second", "first"]


@pytest.mark.parametrize(("content", "path", "value"), SAME, ids=lambda part: str(part)[:40])
def test_what_means_the_same_is_compared(tmp_path: Path, content: dict[str, Any], path: str, value: Any) -> None:
    first = published(tmp_path, content, "first")
    second = published(tmp_path, {"period": "2026-11-23", **changed(content, path, value)}, "second")
    assert first.quantity == second.quantity
    assert release_comparison.newest_pair([first, second]) == (first, second)


def test_persons_and_records_of_one_data_set_are_shown_beside_each_other(home: Path) -> None:
    """The reproduced fault: "361 fewer customers than in the period of c1", where c1 counted records. The docs recommend this pair."""
    person = {"column": "person", "most_groups": 2}
    pairs = [
        ("c1", "2026-11-16", {}),
        ("p1", "2026-11-16", {"count": "persons"}),
        ("c2", "2026-11-23", {}),
        ("p2", "2026-11-23", {"count": "persons"}),
    ]
    for seed, (name, day, count) in enumerate(pairs):
        records = {"path": "records.parquet", "person": person, **count}
        changes = {"workload": [{"marginals": {"of": [["sex"]]}}], "domain": {"sex": {"categories": ["f", "m"]}}}
        cap = {"dataset": "small", "cap": {"rho": 1}, "shared_records": True}
        path = small_release.write(
            home.parent / name,
            table=small_release.records(seed=seed),
            release=name,
            period=day,
            records=records,
            ledger=cap,
            **changes,
        )
        small_release.run(path, home)
    found, _ = editions.releases_in(Path("releases"), "small")
    with open_ledger(home) as ledger:
        folder = site_pages.write_site("small", found, ledger.budgets(charges=True), Path("site"))
    page = (folder / "index.html").read_text()
    assert "sex (persons, as in p2)" in page
    assert "sex (records, as in c2)" in page
    assert "is revision" not in page
    compared = (folder / "compare.html").read_text()
    assert "p2 against p1" in compared
    data = json.loads(re.findall(r'id="pairs">(.*?)</script>', compared)[0])
    assert data["kinds"] == {"p2": 0, "c2": 1, "p1": 0, "c1": 1}
    alone = [one for one in found if one.release in ("c1", "p2")]
    with open_ledger(home) as ledger:
        folder = site_pages.write_site("small", alone, ledger.budgets(charges=True), Path("other"))
    assert not (folder / "compare.html").exists()
    assert "compare.html" not in (folder / "index.html").read_text()
    assert "than in the period" not in (folder / "index.html").read_text()
