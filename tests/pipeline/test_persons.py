"""Releases that count persons by group: what is published, what it says of its bias, and what is refused."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.errors import InvalidSpec, LedgerError
from dpdist.planner.release_plan import plan
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.privacy.noise import NORMAL_95
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.verifier_findings import wrong_claims

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


def visit_records() -> pa.Table:
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
    path = small_release.write(home.parent / "data", table=visit_records(), **ASKED)
    done = small_release.run(path, home)
    truth = bounded(visit_records(), 3)
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
    files = small_release.tree(Path(done.folder))
    shutil.rmtree(done.folder)
    assert small_release.tree(Path(small_release.run(path, home).folder)) == files


@pytest.mark.parametrize("most", [2, 4])
def test_the_bound_of_errors_is_that_for_one_person_in_all_their_groups(home: Path, most: int) -> None:
    """However many groups those are, from the second on."""
    person = {"column": "person", "most_groups": most}
    path = small_release.write(
        home.parent / "data", table=visit_records(), **{**ASKED, "records": {**ASKED["records"], "person": person}}
    )
    planned = plan(Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(path))
    claimed = planned.certificate()["mechanism"]
    assert claimed["bound"].startswith("what no strategy can beat for one person in all their places")
    assert claimed["certified_gap"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("pure", [False, True])
def test_intervals_cover_the_bounded_counts(home: Path, pure: bool) -> None:
    """Of 2,000 simulated releases with the noise of the plan; a noise that is a fifth too large is seen."""
    changes = {"budget": {"epsilon": 1}, "ledger": {"dataset": "s", "cap": {"epsilon": 1}}} if pure else {}
    changes |= {"mechanism": "identity"}
    path = small_release.write(home.parent / "data", table=visit_records(), **ASKED, **changes)
    made = plan(Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(path))
    assert made.strategy.name == "identity"
    draws = made.noise.draw(bytes(32), count=6 * 2000) * made.measurement.spacing
    half = (float(made.noise.half_width_95(1.0)) if pure else NORMAL_95) * made.noise.deviation * made.measurement.spacing
    assert 0.94 <= (np.abs(draws) <= half).mean() <= 0.965
    assert (np.abs(1.2 * draws) <= half).mean() < 0.94
    scale = made.noise.scale * made.measurement.spacing
    assert scale == pytest.approx(3.0 if pure else np.sqrt(3 / 0.2), rel=1e-6)


def test_persons_are_counted_once_in_totals(home: Path) -> None:
    """In each table the first groups there: nobody is missing in all, and of the sexes nobody either, since there are two."""
    path = small_release.write(
        home.parent / "data",
        table=visit_records(),
        **{**ASKED, "domain": TOTALS, "budget": {"rho": 10**7}, "ledger": {"dataset": "s", "cap": {"rho": 10**7}}},
    )
    done = small_release.run(path, home)
    found = {(row["sex"], row["work"]): round(row["answer"]) for row in done.answers.arrow.to_pylist()}
    rows = visit_records().to_pylist()
    alone: dict[str, dict[str, list[int]]] = {name: {} for name in ("sex", "work")}
    for row in rows:
        for name, of in alone.items():
            of.setdefault(row[name], []).append(row["person"])
    assert found.pop(("both", "any work")) == len({row["person"] for row in rows}) == 500
    assert [found.pop((sex, "any work")) for sex in "fm"] == [len(set(alone["sex"][sex])) for sex in "fm"]
    assert [found.pop(("both", work)) for work in "abc"] == [len(set(alone["work"][work])) for work in "abc"]
    assert found == bounded(visit_records(), 3)
    assert done.plan.job.moved.groups == 3 + 2 + 3 + 1
    page = (Path(done.folder) / "index.html").read_text(encoding="utf-8")
    assert "are counted once more as “any work”" in page
    assert "a total is no sum of its parts" in page
    assert "their parts agree" not in page


KINDS: dict[str, Any] = {
    "domain": {
        "sex": TOTALS["sex"],
        "work": {**TOTALS["work"], "levels": {"kind": {"x": ["a", "b"], "y": ["c"]}}, "most_groups": {"kind": 2}},
    },
    "workload": [{"marginals": {"of": [["sex", "work"], ["sex", "kind"]]}}],
}
BY_LEVELS: dict[str, Any] = {
    "domain": {
        "day": {
            "dates": {"from": "2026-09-01", "to": "2026-09-20", "every": "day"},
            "outside": "drop",
            "missing": "no day",
            "levels": {"week": "week", "month": "month"},
            "level_titles": {"month": "calendar month"},
            "most_groups": {"week": 2},
            "total": "ever",
        },
        "town": {
            "categories": ["a", "b", "c"],
            "levels": {"land": {"north": ["a"], "south": ["b", "c"]}},
            "total": "all towns",
        },
    },
    "workload": [{"marginals": {"of": [["day", "town"], ["week", "town"], ["week", "land"], ["month", "town"]]}}],
}
"""Weeks begin on 31 August, 7 and 14 September: three of them."""


def travels() -> pa.Table:
    """Five hundred persons with one to nine records each; some days lie outside, and some records have none."""
    state = np.random.default_rng(9)
    person = np.repeat(np.arange(500), state.integers(1, 10, 500))
    days = [datetime.date(2026, 9, 1) + datetime.timedelta(days=int(each)) for each in state.integers(0, 22, person.size)]
    return pa.table(
        {
            "day": [None if place % 17 == 0 else day for place, day in enumerate(days)],
            "town": state.choice(["a", "b", "c"], person.size),
            "person": person,
        }
    )


def test_persons_are_counted_once_in_the_groups_of_levels(home: Path) -> None:
    """Every table by itself, with its bound: of a week two, however many records a person has there."""
    plenty = {"budget": {"rho": 10**8}, "ledger": {"dataset": "s", "cap": {"rho": 10**8}}}
    path = small_release.write(home.parent / "data", table=travels(), mechanism="identity", **ASKED | BY_LEVELS | plenty)
    done = small_release.run(path, home)
    rows = [row for row in travels().to_pylist() if row["day"] is None or row["day"].day <= 20]

    def expected_counts(most: int, *of: Callable[[dict[str, Any]], str]) -> dict[tuple[str, ...], int]:
        groups: dict[int, list[tuple[str, ...]]] = {}
        for row in rows:
            mine, group = groups.setdefault(row["person"], []), tuple(each(row) for each in of)
            if group not in mine and len(mine) < most:
                mine.append(group)
        counted = [group for mine in groups.values() for group in mine]
        return {group: counted.count(group) for group in set(counted)}

    def day(row: dict[str, Any]) -> str:
        return "no day" if row["day"] is None else str(row["day"])

    def week(row: dict[str, Any]) -> str:
        return "no day" if row["day"] is None else f"2026-W{row['day'].isocalendar().week}"

    def month(row: dict[str, Any]) -> str:
        return "no day" if row["day"] is None else "2026-09"

    def town(row: dict[str, Any]) -> str:
        return str(row["town"])

    def land(row: dict[str, Any]) -> str:
        return "north" if row["town"] == "a" else "south"

    def towns(row: dict[str, Any]) -> str:
        return "all towns"

    def ever(row: dict[str, Any]) -> str:
        return "ever"

    tables = {
        "day x town": expected_counts(3, day, town)
        | expected_counts(3, ever, town)
        | expected_counts(3, day, towns)
        | expected_counts(1, ever, towns),
        "week x town": expected_counts(2, week, town) | expected_counts(2, week, towns),
        "week x land": expected_counts(2, week, land),
        "month x town": expected_counts(3, month, town) | expected_counts(2, month, towns),
    }
    found: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in tables}
    for row in done.answers.arrow.to_pylist():
        labels = [row[name] for name in row["group"].split(" x ")]
        if round(row["answer"]):
            found[row["group"]][labels[0].split(" (")[0], labels[1]] = round(row["answer"])
    assert found == tables
    assert done.plan.job.moved.groups == (3 + 3 + 3 + 1) + (2 + 2) + 2 + (3 + 2)
    folder = Path(done.folder)
    assert wrong_claims(folder) == {}
    certificate = json.loads((folder / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    assert certificate["method"]["attributes"]["day"]["persons_by"] == {"week": 2, "month": 3}


@pytest.mark.parametrize(
    ("language", "bounded", "more", "as_others"),
    [
        (
            "en",
            "persons are also counted by “week”, each once in each of the first 2 of their groups there; how many",
            "how many have more groups there is not known",
            "also counted by “calendar month”, each once in each of the first 3 of their groups",
        ),
        (
            "de",
            "Personen werden auch nach „week“ gezählt",
            "wie viele dort mehr Gruppen haben",
            "„calendar month“ gezählt, jede einmal",
        ),
        (
            "fr",
            "les personnes sont aussi comptées par « week »",
            "on ignore combien d’entre elles",
            "« calendar month », chacune",
        ),
        ("es", "las personas se cuentan también por «week»", "no se sabe cuántas tienen más", "«calendar month», cada una"),
    ],
)
def test_the_page_says_by_which_levels_persons_are_counted(
    home: Path, language: str, bounded: str, more: str, as_others: str
) -> None:
    path = small_release.write(
        home.parent / "data", table=travels(), mechanism="identity", **ASKED | BY_LEVELS | {"language": language}
    )
    page = (Path(small_release.run(path, home).folder) / "index.html").read_text(encoding="utf-8")
    assert bounded in page
    assert as_others in page
    assert page.count(more) == page.count(bounded) > 0  # what is beyond the bound of all tables is another sentence's


def test_levels_of_a_file_decide_what_is_counted(home: Path) -> None:
    """No query names them, so that the release is another one where the file says otherwise."""
    folder = home.parent / "data"
    asked = {
        "domain": {"work": {"categories": ["a", "b", "c"], "levels": "levels.csv"}},
        "workload": [{"marginals": {"of": [["work"], ["kind"]]}}],
    }
    path = small_release.write(folder, table=visit_records(), **{**ASKED, **asked})
    digests = []
    for kinds in ("xxy", "xyy"):
        (folder / "levels.csv").write_text(
            "work,kind\n" + "".join(f"{work},{kind}\n" for work, kind in zip("abc", kinds, strict=True))
        )
        digests.append(load(path).digest)
    assert digests[0] != digests[1]


def test_records_may_be_bounded_over_groups_too(home: Path) -> None:
    """Two records in each of three groups: sqrt(3) 2 in place of 6, and any workload, since records add up."""
    records = {"path": "records.parquet", "person": {"column": "person", "most_groups": 3, "most_records": 2}}
    path = small_release.write(
        home.parent / "data",
        table=visit_records(),
        **{**ASKED, "records": records, "workload": [{"marginals": {"ways": [1, 2]}}]},
    )
    made = plan(Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(path))
    assert made.strategy.name == "coa"
    assert {row.mechanism for row in made.table} >= {"coa", "identity"}
    assert made.certificate()["mechanism"]["certified_gap"] == pytest.approx(0, abs=1e-4)
    assert "groups count, with at most 2 records each" in made.certificate()["privacy"]["bound"]
    assert small_release.run(path, home).certificate["cells"] == 6


@pytest.mark.parametrize("asked", [{"ways": [2]}, {"ways": [2, 2], "among": ["work", "sex"]}, {"of": [["work", "sex"]]}])
def test_the_tables_that_are_asked_for_decide_and_not_their_form(home: Path, asked: dict[str, Any]) -> None:
    path = small_release.write(home.parent / "data", **{**ASKED, "workload": [{"marginals": asked}]})
    made = plan(Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(path))
    (block,) = made.workload.blocks
    assert (block.name, block.queries) == ("sex x work", 6)


@pytest.mark.parametrize(
    ("missing", "language", "said"),
    [
        ("drop", "en", "Records that name no person are left out of all answers."),
        ("each", "en", "Each record that names no person is counted as a person of its own."),
        ("drop", "de", "Datensätze, die keine Person nennen, gehen in kein Ergebnis ein."),
        ("each", "fr", "Chaque enregistrement qui ne nomme personne est compté comme une personne à part."),
        ("each", "es", "Cada registro que no nombra a ninguna persona se cuenta como una persona aparte."),
    ],
)
def test_the_page_says_what_became_of_records_without_a_person(home: Path, missing: str, language: str, said: str) -> None:
    table = visit_records()
    persons = [None if place % 9 == 0 else each for place, each in enumerate(table["person"].to_pylist())]
    table = table.set_column(table.schema.get_field_index("person"), "person", pa.array(persons))
    records = {**ASKED["records"], "person": {**PERSON, "missing": missing}, "most_missing": "100%"}
    path = small_release.write(home.parent / "data", table=table, **{**ASKED, "records": records, "language": language})
    done = small_release.run(path, home)
    assert said in (Path(done.folder) / "index.html").read_text(encoding="utf-8")
    assert done.certificate["method"]["missing_persons"] == missing


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
        ({**BY_LEVELS, **changed_records(count="records")}, "set 'count: persons'"),
        ({**BY_LEVELS, "workload": [{"marginals": {"of": [["week", "town"]]}}]}, "publishes the table of all attributes"),
        ({**BY_LEVELS, "workload": [{"marginals": {"of": [["day", "town"], ["week"]]}}]}, "tables with levels in place"),
        (
            {**BY_LEVELS, "workload": [{"marginals": {"of": [["day", "town"], ["wek", "town"]]}}]},
            "tables with levels in place",
        ),
        ({"domain": {**TOTALS, "sex": {"categories": ["f", "m"], "most_groups": {"kin": 1}}}}, "its levels are none"),
        ({"domain": {**TOTALS, "sex": {"categories": ["f", "m"], "total": "f"}}}, "'f' is a declared value"),
        (
            {"domain": {**TOTALS, "sex": {"categories": ["f", "m"], "missing": "x", "total": "x"}}},
            "needs a label of its own",
        ),
    ],
)
def test_what_is_no_count_of_persons_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, **{**ASKED, **changes}))


def test_the_table_of_all_attributes_may_be_asked_for_by_their_number(tmp_path: Path) -> None:
    """It was refused, though the spec asks for the same table."""
    by_number = load(small_release.write(tmp_path / "ways", **{**ASKED, "workload": [{"marginals": {"ways": [2]}}]}))
    listed = load(small_release.write(tmp_path / "of", **ASKED))
    assert by_number.workload.queries.fingerprint == listed.workload.queries.fingerprint
    assert by_number.moved == listed.moved


def test_files_that_tell_persons_apart_otherwise_than_the_cap_are_refused_before_the_charge(home: Path) -> None:
    """Whole numbers, then texts, of which 1 and 01 would be two persons: the specs alone say so, whatever the files hold."""
    records: dict[str, Any] = {"person": {"column": "person", "most_records": 1, "type": "integer"}}
    asked: dict[str, Any] = {"domain": {"age": {"from": 0, "to": 11}}, "workload": [{"marginals": {"ways": [1]}}]}
    table = pa.table({"age": [1, 2, 2], "person": [1, 1, 2]})
    small_release.run(
        small_release.write(home.parent / "a", table=table, records={"path": "records.parquet", **records}, **asked), home
    )
    records["person"].pop("type")
    path = small_release.write(home.parent / "b", release="b", records={"path": "records.csv", **records}, **asked)
    (path.parent / "records.csv").write_text("age,person\n1,1\n2,01\n")
    with pytest.raises(LedgerError, match=r"tells persons apart as text, the cap of 'small' as whole numbers"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("b") is None
    records["person"]["type"] = "integer"
    path = small_release.write(home.parent / "c", release="b", records={"path": "records.csv", **records}, **asked)
    (path.parent / "records.csv").write_text("age,person\n1,1\n2,01\n")
    assert small_release.run(path, home).tally.beyond_bound == 1
