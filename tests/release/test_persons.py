"""Releases that count persons by group: what is published, what it says of its bias, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from dpdist.errors import InvalidSpec, LedgerError
from dpdist.machine import engine
from dpdist.machine.store import Store
from dpdist.privacy.ledger import opened
from dpdist.privacy.noise import NORMAL_95
from dpdist.release.context import Context, silent
from dpdist.release.plan import plan
from dpdist.spec import load
from tests import small

PERSON = {"column": "person", "most_groups": 3}
ASKED: dict[str, Any] = {
    "records": {"path": "records.parquet", "count": "persons", "person": PERSON},
    "domain": {"sex": {"categories": ["f", "m"]}, "work": {"categories": ["a", "b", "c"]}},
    "workload": [{"marginals": {"of": [["sex", "work"]]}}],
}

TOTALS: dict[str, Any] = {
    "sex": {"categories": ["f", "m"], "total": "both"},
    "work": {"categories": ["a", "b", "c"], "total": "any work"},
}


def visits() -> pa.Table:
    """Five hundred persons with one to nine records each, in up to five groups."""
    state = np.random.default_rng(8)
    person = np.repeat(np.arange(500), state.integers(1, 10, 500))
    return pa.table(
        {
            "sex": state.choice(["f", "m"], person.size, p=[0.8, 0.2]),
            "work": state.choice(["a", "b", "c"], person.size),
            "person": person,
        }
    )


def bounded(table: pa.Table, groups: int) -> dict[tuple[str, str], int]:
    """Persons by group, each in the first groups that it has records in."""
    of: dict[int, list[tuple[str, str]]] = {}
    for row in table.to_pylist():
        mine, group = of.setdefault(row["person"], []), (row["sex"], row["work"])
        if group not in mine and len(mine) < groups:
            mine.append(group)
    every = [group for mine in of.values() for group in mine]
    return {group: every.count(group) for group in set(every)}


def test_persons_are_counted_once_in_each_of_their_first_groups(home: Path) -> None:
    path = small.write(home.parent / "data", table=visits(), **ASKED)
    done = small.run(path, home)
    truth = bounded(visits(), 3)
    error = done.answers.arrow["standard_error"][0].as_py()
    assert error == pytest.approx(3.6180, rel=1e-3)  # where every cell by itself has sqrt(l) / sqrt(2 rho) = 3.8730
    for row in done.answers.arrow.to_pylist():
        assert row["answer"] == pytest.approx(truth[row["sex"], row["work"]], abs=5 * error)
    certificate = json.loads((Path(done.folder) / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    privacy = certificate["privacy"]
    assert (privacy["most_groups_of_one_person"], privacy["most_records_of_one_person"]) == (3, 1)
    assert "so that their counts are too small" in privacy["bound"]
    assert certificate["method"]["counted"] == "persons"
    assert certificate["mechanism"]["certified_gap"] == pytest.approx(0, abs=1e-6)
    assert certificate["mechanism"]["bound"].endswith("closed form over all sets of cells of one size")
    assert certificate["measurement"]["why"] == "it counts persons by group, and sums over groups are no numbers of persons"
    page = (Path(done.folder) / "index.html").read_text(encoding="utf-8")
    assert "so that their counts are too small" in page
    files = small.tree(Path(done.folder))
    shutil.rmtree(done.folder)
    assert small.tree(Path(small.run(path, home).folder)) == files


@pytest.mark.parametrize("most", [2, 4])
def test_the_bound_of_errors_is_that_for_one_person_in_all_their_groups(home: Path, most: int) -> None:
    """However many groups those are, from the second on."""
    person = {"column": "person", "most_groups": most}
    path = small.write(home.parent / "data", table=visits(), **{**ASKED, "records": {**ASKED["records"], "person": person}})
    planned = plan(Context(home, Store(home / "store"), engine.inline(), silent), load(path))
    claimed = planned.certificate()["mechanism"]
    assert claimed["bound"].startswith("what no strategy can beat for one person in all their places")
    assert claimed["certified_gap"] == pytest.approx(0, abs=1e-6)


def test_a_release_killed_after_its_charge_publishes_the_same_bytes(home: Path) -> None:
    path = small.write(home.parent / "data", table=visits(), **ASKED)
    expected = small.undisturbed(path, home)
    assert small.tree(Path(small.run(path, home).folder)) == expected


@pytest.mark.parametrize("pure", [False, True])
def test_intervals_cover_the_bounded_counts(home: Path, pure: bool) -> None:
    """Of 2,000 simulated releases with the noise of the plan; a noise that is a fifth too large is seen."""
    changes = {"budget": {"epsilon": 1}, "ledger": {"dataset": "s", "cap": {"epsilon": 1}}} if pure else {}
    changes |= {"mechanism": "identity"}
    path = small.write(home.parent / "data", table=visits(), **ASKED, **changes)
    made = plan(Context(home, Store(home / "store"), engine.inline(), silent), load(path))
    assert made.strategy.name == "identity"
    draws = made.noise.draw(bytes(32), count=6 * 2000) * made.grid.spacing
    half = (float(made.noise.half_width_95(1.0)) if pure else NORMAL_95) * made.noise.deviation * made.grid.spacing
    assert 0.94 <= (np.abs(draws) <= half).mean() <= 0.965
    assert (np.abs(1.2 * draws) <= half).mean() < 0.94
    scale = made.noise.scale * made.grid.spacing
    assert scale == pytest.approx(3.0 if pure else np.sqrt(3 / 0.2), rel=1e-6)


def test_persons_are_counted_once_in_totals(home: Path) -> None:
    """In each table the first groups there: nobody is missing in all, and of the sexes nobody either, since there are two."""
    path = small.write(
        home.parent / "data",
        table=visits(),
        **{**ASKED, "domain": TOTALS, "budget": {"rho": 10**7}, "ledger": {"dataset": "s", "cap": {"rho": 10**7}}},
    )
    done = small.run(path, home)
    found = {(row["sex"], row["work"]): round(row["answer"]) for row in done.answers.arrow.to_pylist()}
    rows = visits().to_pylist()
    alone: dict[str, dict[str, list[int]]] = {name: {} for name in ("sex", "work")}
    for row in rows:
        for name, of in alone.items():
            of.setdefault(row[name], []).append(row["person"])
    assert found.pop(("both", "any work")) == len({row["person"] for row in rows}) == 500
    assert [found.pop((sex, "any work")) for sex in "fm"] == [len(set(alone["sex"][sex])) for sex in "fm"]
    assert [found.pop(("both", work)) for work in "abc"] == [len(set(alone["work"][work])) for work in "abc"]
    assert found == bounded(visits(), 3)
    assert done.plan.job.moved.groups == 3 + 2 + 3 + 1
    page = (Path(done.folder) / "index.html").read_text(encoding="utf-8")
    assert "are counted once more as “any work”" in page
    assert "a total is no sum of its parts" in page
    assert "their parts agree" not in page


def test_records_may_be_bounded_over_groups_too(home: Path) -> None:
    """Two records in each of three groups: sqrt(3) 2 in place of 6, and any workload, since records add up."""
    records = {"path": "records.parquet", "person": {"column": "person", "most_groups": 3, "most_records": 2}}
    path = small.write(
        home.parent / "data", table=visits(), **{**ASKED, "records": records, "workload": [{"marginals": {"ways": [1, 2]}}]}
    )
    made = plan(Context(home, Store(home / "store"), engine.inline(), silent), load(path))
    assert made.strategy.name == "coa"
    assert {row.mechanism for row in made.table} >= {"coa", "identity"}
    assert made.certificate()["mechanism"]["certified_gap"] == pytest.approx(0, abs=1e-4)
    assert "groups count, with at most 2 records each" in made.certificate()["privacy"]["bound"]
    assert small.run(path, home).certificate["cells"] == 6


@pytest.mark.parametrize("asked", [{"ways": [2]}, {"ways": [2, 2], "among": ["work", "sex"]}, {"of": [["work", "sex"]]}])
def test_the_tables_that_are_asked_for_decide_and_not_their_form(home: Path, asked: dict[str, Any]) -> None:
    path = small.write(home.parent / "data", **{**ASKED, "workload": [{"marginals": asked}]})
    made = plan(Context(home, Store(home / "store"), engine.inline(), silent), load(path))
    (block,) = made.workload.blocks
    assert (block.name, block.queries) == ("sex x work", 6)


def changed_records(**other: Any) -> dict[str, Any]:
    return {"records": {**ASKED["records"], **other}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (changed_records(person={"column": "person"}), "give 'person' a 'column' and 'most_groups'"),
        (
            changed_records(person={"column": "person", "most_groups": 2, "most_records": 2}),
            "and leave 'most_records' and 'sums' out",
        ),
        (changed_records(person={"most_groups": 2}), "name the 'column'"),
        ({"workload": [{"marginals": {"of": [["sex"]]}}]}, r"marginals: \{of: \[\[sex, work\]\]\}"),
        ({"workload": [{"marginals": {"of": [["sex", "work"], ["sex"]]}}]}, "are no sums of these"),
        ({"workload": [{"marginals": {"ways": [1, 2]}}]}, "are no sums of these"),
        ({"workload": [{"marginals": {"ways": [2], "ranges": True}}]}, "are no sums of these"),
        ({"workload": [{"predicates": ["sex == 'f'"]}]}, "are no sums of these"),
        ({"postprocess": {"known": [{"count": 5}]}}, "measures none"),
        (changed_records(count="visitors"), "records.count"),
        ({"domain": TOTALS, **changed_records(count="records")}, "set 'count: persons'"),
        ({"domain": {**TOTALS, "sex": {"categories": ["f", "m"], "total": "f"}}}, "'f' is a declared value"),
        (
            {"domain": {**TOTALS, "sex": {"categories": ["f", "m"], "missing": "x", "total": "x"}}},
            "needs a label of its own",
        ),
    ],
)
def test_what_is_no_count_of_persons_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small.write(tmp_path, **{**ASKED, **changes}))


def test_the_table_of_all_attributes_may_be_asked_for_by_their_number(tmp_path: Path) -> None:
    """It was refused, though the spec asks for the same table."""
    by_number = load(small.write(tmp_path / "ways", **{**ASKED, "workload": [{"marginals": {"ways": [2]}}]}))
    listed = load(small.write(tmp_path / "of", **ASKED))
    assert by_number.workload.queries.fingerprint == listed.workload.queries.fingerprint
    assert by_number.moved == listed.moved


def test_files_that_tell_persons_apart_otherwise_than_the_cap_are_refused_before_the_charge(home: Path) -> None:
    """Whole numbers, then texts, of which 1 and 01 would be two persons: the specs alone say so, whatever the files hold."""
    records: dict[str, Any] = {"person": {"column": "person", "most_records": 1, "type": "integer"}}
    asked: dict[str, Any] = {"domain": {"age": {"from": 0, "to": 11}}, "workload": [{"marginals": {"ways": [1]}}]}
    table = pa.table({"age": [1, 2, 2], "person": [1, 1, 2]})
    small.run(small.write(home.parent / "a", table=table, records={"path": "records.parquet", **records}, **asked), home)
    records["person"].pop("type")
    path = small.write(home.parent / "b", release="b", records={"path": "records.csv", **records}, **asked)
    (path.parent / "records.csv").write_text("age,person\n1,1\n2,01\n")
    with pytest.raises(LedgerError, match=r"tells persons apart as text, the cap of 'small' as whole numbers"):
        small.run(path, home)
    with opened(home) as ledger:
        assert ledger.receipt("b") is None
    records["person"]["type"] = "integer"
    path = small.write(home.parent / "c", release="b", records={"path": "records.csv", **records}, **asked)
    (path.parent / "records.csv").write_text("age,person\n1,1\n2,01\n")
    assert small.run(path, home).tally.beyond_bound == 1
