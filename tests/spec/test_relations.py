"""Relations of two attributes: planned over the numbers that they give, released, certified, verified, and refused."""

from __future__ import annotations

import datetime
import html
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from dpdist import strategies
from dpdist.domain import Layout
from dpdist.engine import inline
from dpdist.errors import InvalidSpec
from dpdist.pipeline.histogram import count
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import Job, load
from dpdist.storage.array_store import Store
from dpdist.workloads import explicit, union
from tests.support import small_release
from tests.support.verifier_findings import wrong_claims

DOMAIN: dict[str, Any] = {
    "age": {"from": 0, "to": 11},
    "tenure": {"from": 0, "to": 7, "missing": "drop"},
    "sex": {"categories": ["f", "m"]},
}
DIFFERENCE = {"age": 1, "tenure": -1}


def job(*asked: dict[str, Any], **changes: Any) -> Job:
    return load(small_release.spec(domain=DOMAIN, workload=[{"relation": each} for each in asked], **changes))


def records() -> pa.Table:
    table, state = small_release.records(), np.random.default_rng(2)
    tenure = [None if value == 8 else value for value in state.integers(0, 9, table.num_rows).tolist()]
    return table.append_column("tenure", pa.array(tenure))


@pytest.mark.parametrize(
    ("asked", "pairs"),
    [
        ({"of": DIFFERENCE}, [lambda x, y, c=c: x - y <= c for c in range(-7, 12)]),
        ({"of": DIFFERENCE, "at_most": [-1, 5]}, [lambda x, y, c=c: x - y <= c for c in (-1, 5)]),
        ({"of": {"age": 2, "tenure": 3}, "within": [7, 9, 30]}, [lambda x, y, c=c: 2 * x + 3 * y <= c for c in (7, 9, 30)]),
        ({"of": DIFFERENCE, "within": [0, 2, 4]}, [lambda x, y, c=c: abs(x - y) <= c for c in (0, 2, 4)]),
    ],
)
def test_the_optimum_is_that_over_all_pairs(asked: dict[str, Any], pairs: list[Any]) -> None:
    """Pairs of the same number are one cell: the certified optimum over 96 pairs is that over the numbers."""
    x, y = np.indices((12, 8)).reshape(2, -1)
    rows = np.array([of(x, y) for of in pairs], dtype=np.int64)
    domain = {**DOMAIN, "tenure": {"from": 0, "to": 7}}
    del domain["sex"]
    workload = load(small_release.spec(domain=domain, workload=[{"relation": asked}])).workload.queries
    assert workload.domain.names == (workload.blocks[0].heads(workload.domain.names)[0],)
    assert np.array_equal(np.unique(rows, axis=1).shape[1], np.unique(workload.rows(slice(None)), axis=1).shape[1])
    found, over_pairs = strategies.coa(workload), strategies.coa(explicit(rows))
    assert found.workload_cost == pytest.approx(over_pairs.workload_cost, rel=3e-6)
    assert found.lower_bound == pytest.approx(over_pairs.lower_bound, rel=3e-6)


def test_a_release_of_relations_is_right_certified_shown_and_verified(home: Path) -> None:
    from flows.commands.cli import app

    table = records()
    asked = [
        {"relation": {"of": DIFFERENCE, "at_most": [-1, 5], "by": ["sex"]}},
        {"relation": {"of": DIFFERENCE, "within": [0, 2]}, "weight": 2},
        {"relation": {"of": {"age": 2, "tenure": 3}}},
        {"marginals": {"of": [["sex"]]}},
    ]
    path = small_release.write(home.parent / "data", table=table, domain=DOMAIN, workload=asked)
    done = small_release.run(path, home)
    rows = done.answers.arrow.to_pylist()
    known = [(a, t, s) for a, t, s in zip(*(table[n].to_pylist() for n in DOMAIN), strict=True) if t is not None]
    truth = [sum(s == sex and a - t <= c for a, t, s in known) for sex in "fm" for c in (-1, 5)]
    truth += [sum(abs(a - t) <= c for a, t, _ in known) for c in (0, 2)]
    numbers = sorted({2 * a + 3 * t for a in range(12) for t in range(8)})
    truth += [sum(2 * a + 3 * t <= c for a, t, _ in known) for c in numbers]
    truth += [int((table["sex"].to_numpy(zero_copy_only=False) == sex).sum()) for sex in "fm"]  # also those without a tenure
    off = [(row["answer"] - true) / row["standard_error"] for row, true in zip(rows, truth, strict=True)]
    assert max(map(abs, off)) < 5.5  # fails once in 10^5 seeds
    assert [rows[k]["query"] for k in (0, 4, 6)] == [
        "sex f, age - tenure <= -1",
        "age - tenure from 0 to 0",
        "2 age + 3 tenure <= 0",
    ]
    method = done.certificate["method"]
    assert method["asked"][:2] == [
        "counts with age - tenure at most -1, 5, for each sex",
        "counts with the absolute value of age - tenure at most 0, 2 (weight 2)",
    ]
    assert method["attributes"]["age - tenure"]["values"] == "whole numbers from -7 to 11, in 6 bins"
    assert "takes age - tenure and 2 age + 3 tenure for an attribute" in done.certificate["mechanism"]["bound"]
    assert "age - tenure" in (done.folder / "index.html").read_text()
    shown = CliRunner().invoke(app, ["show", str(done.folder), "--json"])
    assert json.loads(shown.output)["certificate"]["method"]["asked"] == method["asked"]
    assert [each for each in small_release.verified(home, "small-1") if ": right" not in each] == []
    assert wrong_claims(done.folder) == {}
    told = CliRunner().invoke(app, ["ask", str(done.folder), "sum of 'age - tenure' <= 5", "sum of sex=f", "--json"])
    assert told.exit_code == 0, told.output


@pytest.mark.slow
def test_all_numbers_of_ten_thousand_million_pairs_are_planned(tmp_path: Path) -> None:
    """Within a tenth of a bound that no strategy beats, in memory of one attribute's size; a few bounds exactly."""
    many = {name: {"from": 0, "to": 99_999} for name in ("start", "end")}
    context = Context(tmp_path, Store(tmp_path / "store"), inline(), ignore_progress)
    bounds = {"of": {"start": 1, "end": -1}, "at_most": [-1, 30]}
    for asked, queries, cells in (({"of": {"start": 1, "end": -1}}, 199_999, 199_999), (bounds, 2, 3)):
        made = plan(context, load(small_release.spec(domain=many, workload=[{"relation": asked}])))
        assert made.workload.shape == (queries, cells)
        chosen = next(row for row in made.table if row.mechanism == made.strategy.name)
        assert chosen.gap is not None
        assert chosen.gap < (0.1 if queries > 2 else 1e-6)
        assert made.effort.memory_bytes < 2**30


def test_attributes_that_only_relations_read_are_not_counted_by_themselves() -> None:
    assert job({"of": DIFFERENCE, "by": ["sex"]}).measured.domain.names == ("sex", "age - tenure")
    both = load(small_release.spec(domain=DOMAIN, workload=[{"relation": {"of": DIFFERENCE}}, {"marginals": {"ways": [1]}}]))
    assert both.measured.domain.names == ("age", "tenure", "sex", "age - tenure")
    assert [block.name for block in both.workload.queries.blocks] == ["age - tenure", "age", "tenure", "sex"]
    assert both.measured.domain.dependent == ("age - tenure",)
    one = load(
        small_release.spec(domain=DOMAIN, workload=[{"relation": {"of": DIFFERENCE}}, {"marginals": {"of": [["sex"]]}}])
    )
    assert one.measured.domain.names == ("sex", "age - tenure")
    assert one.measured.domain.dependent == ()


def test_one_line_serves_every_group_that_asks_for_it() -> None:
    asked = job({"of": DIFFERENCE, "at_most": [-1, 5]}, {"of": DIFFERENCE, "within": [2]})
    assert asked.workload.queries.domain.attribute("age - tenure").values == 5
    alone = union(*(job(each).workload.queries for each in ({"of": DIFFERENCE, "at_most": [-1]},)))
    assert alone.domain.attribute("age - tenure").values == 2


def test_two_numbers_of_one_name_are_refused_and_never_merged() -> None:
    given = {"domain": {**DOMAIN, "2 age": {"from": 0, "to": 3}}}
    asked = [{"relation": {"of": of}} for of in ({"age": 2, "tenure": 1}, {"2 age": 1, "tenure": 1})]
    with pytest.raises(InvalidSpec, match="two numbers are called '2 age \\+ tenure'"):
        load(small_release.spec(workload=asked, **given))


def test_other_groups_may_ask_for_the_number_of_a_relation() -> None:
    name = "age - tenure"
    others = [{"marginals": {"of": [["sex", name]]}}, {"cdf": {"of": "age", "by": [name]}}, {"ranges": {"of": [name]}}]
    asked = load(small_release.spec(domain=DOMAIN, workload=[{"relation": {"of": DIFFERENCE, "at_most": [-1, 5]}}, *others]))
    assert asked.measured.domain.names == ("age", "sex", name)
    assert [block.queries for block in asked.workload.queries.blocks] == [2, 2 * 3, 12 * 3, 6]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_every_form_of_files_counts_the_same_numbers(form: str, tmp_path: Path) -> None:
    """Also dates, whose columns are read as dates although no attribute of the domain has them; the last record is left out of all."""
    begin = [datetime.date(2026, 3, day) for day in (1, 2, 3, 3, 9, 1)]
    end = [datetime.date(2026, 3, day) for day in (1, 5, 2, 4, 4, 1)]
    table = pa.table({"start": begin, "finish": end, "x": [0.5, 1.0, None, 2.0, 2.0, 9.0], "y": [1, 1, 1, 0, 7, 1]})
    pyarrow.csv.write_csv(table, tmp_path / "records.csv")
    dates = {"dates": {"from": "2026-03-01", "to": "2026-03-05", "every": "day"}, "other": "drop", "missing": "drop"}
    numbers = {"from": 0, "to": 2, "other": "drop", "missing": "drop"}
    domain = {"start": dates, "end": dates, "x": {"from": 0, "to": 2, "outside": "drop", "missing": "drop"}, "y": numbers}
    asked = [{"relation": {"of": {"end": 1, "start": -1}}}, {"relation": {"of": {"x": 1, "y": -1}}}]
    records = {"path": f"records.{form}", "columns": {"end": "finish"}}
    made = load(small_release.write(tmp_path, table=table, domain=domain, workload=asked, records=records))
    keys.initialise(tmp_path)
    store, of = Store(tmp_path / "store"), made.measured.domain
    tables = Layout(of.shape, ((0,), (1,)), of.shares_per_record, of.max_abs_shares)
    counts, _ = count(Context(tmp_path, store, inline(), ignore_progress), made.source, made.measured, tables)
    differences, rest = [0, 0, 0, 1, 1, 1, 0, 1, 0], 1
    assert store.read_array(counts).ravel().tolist() == [*differences, rest, *[0, 1, 1, 0, 1], 2]


@pytest.mark.parametrize(
    ("asked", "changes", "message"),
    [
        ({"of": {"age": 1}}, {}, "'of' takes two attributes"),
        ({"of": {"age": 1, "tenure": 0}}, {}, "a coefficient other than 0"),
        ({"of": DIFFERENCE, "at_most": [1], "within": [1]}, {}, "either 'at_most' or 'within'"),
        ({"of": DIFFERENCE, "at_most": [1, 1]}, {}, "at least one bound, and each once"),
        ({"of": DIFFERENCE, "at_most": [1.5]}, {}, "a whole number is needed"),
        ({"of": {"age": 1, "pay": -1}}, {}, "line 1[0-9]: attribute 'pay' does not exist; declared are age, tenure, sex"),
        ({"of": {"age": 1, "sex": -1}}, {}, "attribute 'sex' has categories"),
        ({"of": {"age": 10**30, "tenure": 1}}, {}, "goes beyond 2\\^53"),
        ({"of": {"age": 10**30, "tenure": 1}}, {"domain": {**DOMAIN, "age": {"from": 0, "to": 0}}}, "goes beyond 2\\^53"),
        ({"of": DIFFERENCE, "at_most": [10**30]}, {}, "a number of at most 9007199254740992 is needed"),
        (
            {"of": DIFFERENCE},
            {"domain": {**DOMAIN, "age - tenure": {"from": 0, "to": 3}}},
            "line 2[0-9]: two numbers are called 'age - tenure'; rename an attribute",
        ),
        ({"of": DIFFERENCE, "at_most": [-8]}, {}, "no record has 'age - tenure' within the bound -8: it goes from -7 to 11"),
        ({"of": DIFFERENCE, "by": ["age - tenure"]}, {}, "name an attribute twice"),
        ({"of": DIFFERENCE}, {"domain": {**DOMAIN, "age": {"from": 0, "to": 11, "width": 2}}}, "cuts through the bins"),
        ({"of": DIFFERENCE}, {"domain": {**DOMAIN, "age": {"from": 0, "to": 11, "outside": "clip"}}}, "are clipped"),
        (
            {"of": DIFFERENCE},
            {
                "domain": {**DOMAIN, "tenure": {"from": 0, "to": 7}},
                "records": {"path": "counts.npy", "counts": {"of": "visits"}},
            },
            "leave 'missing', 'other', 'relation'",
        ),
    ],
)
def test_relations_are_refused_with_the_line_and_what_is_allowed(
    asked: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSpec, match=message):
        load(small_release.write(tmp_path, **{"domain": DOMAIN, "workload": [{"relation": asked}], **changes}))


def test_running_sums_ask_what_prefixes_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes = job({"of": DIFFERENCE, "by": ["sex"]}).workload.queries
    ranges = importlib.import_module("dpdist.workloads.range_workloads")  # the package has a function of that name
    monkeypatch.setattr(ranges, "PREFIXES", 18)
    sums = job({"of": DIFFERENCE, "by": ["sex"]}).workload.queries
    assert type(sums.blocks[0].factors[-1]) is not type(prefixes.blocks[0].factors[-1])
    np.testing.assert_allclose(sums.unweighted.dense(), prefixes.unweighted.dense(), atol=1e-12)


def test_a_relation_with_one_bound_is_headed_by_it(home: Path) -> None:
    """Side by side two of them are told apart; numbers up to which all are asked for have no two signs."""
    asked = [{"of": DIFFERENCE, "at_most": [0]}, {"of": DIFFERENCE, "within": [2], "by": ["sex"]}, {"of": DIFFERENCE}]
    path = small_release.write(
        home.parent / "data", table=records(), domain=DOMAIN, workload=[{"relation": each} for each in asked]
    )
    done = small_release.run(path, home)
    page = html.unescape((done.folder / "index.html").read_text())
    groups = dict.fromkeys(row["group"] for row in done.answers.arrow.to_pylist())
    assert list(groups) == ["age - tenure <= 0", "age - tenure from -2 to 2 by sex", "age - tenure"]
    assert "Age - tenure <= 0" in page
    assert "records: <= 0" not in page
    assert "up to -7" in page
    assert "up to <=" not in page
