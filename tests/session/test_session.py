"""Releases from Python: errors that come true, specs that come back, and one charge whatever form the records have."""

from __future__ import annotations

import enum
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml

import dpdist as dp
from dpdist.errors import InvalidInput, InvalidSpec, KeyUnavailable
from dpdist.runtime.context import ignore_progress
from dpdist.session import PlannedRelease, planned_release
from dpdist.spec import load
from tests.case_selection import always, slow_after_first
from tests.support import small_release
from tests.support.complete_tree import needs_plugin

KNOWN = "known4711"


def session(**options: Any) -> dp.Session:
    found = dp.Session("small", cap=dp.Budget(epsilon=4, delta=1e-6), **options)
    found.domain(age=dp.numbers(0, 11), sex=["f", "m"], work=("a", "b", "c"))
    return found


def visit_records() -> pa.Table:
    minutes = np.random.default_rng(3).integers(0, 240, 3000)
    return small_release.records().append_column("minutes", pa.array(minutes))


PLANS: dict[str, Callable[[dp.Session], PlannedRelease]] = {
    "tables": lambda s: s.plan(dp.marginals(1, 2), budget=dp.Budget(epsilon=1, delta=1e-6)),
    "pure": lambda s: s.plan(dp.marginals("sex", ("sex", "work")), budget=dp.Budget(epsilon=1)),
    "distribution": lambda s: s.plan(
        dp.cdf("age", by="sex", weight=2), dp.ranges("age"), budget=dp.Budget(rho="1/20"), mechanism="coa"
    ),
    "amounts": lambda s: s.plan(
        dp.sums("minutes", by=("sex", "work"), between=(0, 240), step=1, unit="minutes"),
        dp.means("minutes", by="sex", between=(0, 240), step=1, unit="minutes"),
        dp.marginals(1),
        budget=dp.Budget(epsilon=1, delta=1e-6),
        noise="gaussian",
    ),
    "whole": lambda s: s.plan(
        dp.question(predicates=["age >= 6"]), budget=dp.Budget(epsilon=1), postprocess={"integer": True}
    ),
}


@pytest.mark.parametrize("name", always(["distribution", "amounts"], PLANS))
def test_errors_come_true_and_the_spec_comes_back(home: Path, name: str) -> None:
    """The half widths that are shown before are those that are published; YAML of the plan is the same job."""
    planned = PLANS[name](session(protect=dp.Persons("person", most_records=2)))
    file = Path("asked.yaml")
    assert planned.to_yaml(file) == file.read_text()
    assert PlannedRelease.read(file).content == planned.content
    assert load(file, records=False).digest == planned.job.digest
    done = planned.publish(visit_records())
    table = done.answers.arrow
    half = np.maximum(*(np.abs(pc.subtract(table[end], table["answer"]).to_numpy()) for end in ("low_95", "high_95")))
    assert {each.group for each in planned.errors.groups} == set(table["group"].to_pylist())
    for each in planned.errors.groups:
        own = half[np.array(table["group"].to_pylist()) == each.group]
        assert own.size == each.queries
        assert each.half_width == pytest.approx(own.max(), rel=1e-3)
        assert each.unit == ("minutes" if each.group.startswith("sum ") else "records")
    assert not planned.publish(visit_records()).charged


def test_a_plan_asks_nothing_of_the_ledger(home: Path) -> None:
    """Under 'mechanism: auto', too: a notebook plans where no ledger is within reach, and leaves none behind."""
    assert PlannedRelease.read(small_release.write(home.parent / "data")).plan.strategy.name
    assert not (home / "ledger.db").exists()


def test_errors_of_too_many_queries_are_not_computed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = PLANS["tables"](session())
    monkeypatch.setattr("dpdist.planner.error_prediction.MOST_QUERIES", 70)
    with pytest.raises(InvalidInput, match="errors are predicted of up to 70 queries, found 83"):
        planned.errors  # noqa: B018
    monkeypatch.setattr("dpdist.planner.error_prediction.MOST_QUERIES", 83)
    assert planned.errors.groups


@pytest.mark.parametrize("name", always(["tables"], ["tables", "pure", "distribution"]))
def test_the_budget_of_a_wanted_error_is_the_least(home: Path, name: str) -> None:
    planned = PLANS[name](session())
    group = planned.errors.groups[0].group
    for factor in (0.3, 0.9, 5):
        wanted = planned.errors.half_width_of(group) * factor
        found = planned.for_half_width(group, wanted)
        amount = {key: float(each) for key, each in found.content.items() if key != "delta"}
        assert planned._errors_with(found.content).half_width_of(group) <= wanted
        less = {**found.content, **{key: 0.97 * each for key, each in amount.items()}}
        assert planned._errors_with(less).half_width_of(group) > wanted
    with pytest.raises(
        InvalidInput, match=re.escape(f"no group '{group}e' is asked for (did you mean {group!r}?); there are")
    ):
        planned.for_half_width(f"{group}e", 1)


COMPUTED = {"sql": "SELECT years // 1 AS age, sex, work FROM 'years.parquet'", "types": {"years": "whole"}}
FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "Arrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "Polars": lambda table: pytest.importorskip("polars").from_arrow(table),
    "DuckDB": lambda table: pytest.importorskip("duckdb").from_arrow(table),
    "name": lambda _: "visits.parquet",
    "path": lambda _: Path("visits.parquet"),
    "as in a spec": lambda _: {"path": "visits.parquet"},
    "query": lambda _: "SELECT age, sex, work FROM 'visits.parquet'",
    "query for all": lambda _: "SELECT * FROM 'visits.parquet'",
    "query that computes": lambda _: COMPUTED,
}


@pytest.mark.parametrize("form", always(["pandas", "Polars", "query that computes"], FORMS))
def test_records_of_every_form_are_the_same_records(home: Path, form: str) -> None:
    table = visit_records()
    pyarrow.parquet.write_table(table, "visits.parquet")
    pyarrow.parquet.write_table(table.rename_columns({"age": "years"}), "years.parquet")
    done = session().plan(dp.marginals(3), budget=dp.Budget(epsilon=0.4), mechanism="identity").publish(FORMS[form](table))
    assert done.tally.read == 3000
    assert round(sum(done["age x sex x work"].arrow["answer"].to_pylist()), -3) == 3000


@pytest.mark.parametrize("declared", slow_after_first(1, [bool, [True, False], ["False", "True"]]))
def test_booleans_count_as_pandas_arrow_and_csv_hold_them(home: Path, declared: Any) -> None:
    """pandas writes True into CSV, Arrow true; a DataFrame holds booleans."""
    frame = visit_records().select(["sex"]).to_pandas()
    frame["borrowed"] = frame.pop("sex") == "f"
    frame.to_csv("pandas.csv", index=False)
    pa.csv.write_csv(pa.Table.from_pandas(frame), "arrow.csv")
    asked, found = dp.Session("small", cap=dp.Budget(epsilon=10)), []
    asked.domain(borrowed=declared)
    for number, form in enumerate((frame, "pandas.csv", "arrow.csv", "SELECT * FROM 'pandas.csv'")):
        planned = asked.plan(dp.marginals(1), budget=dp.Budget(epsilon=2), release=f"b{number}", mechanism="identity")
        table = planned.publish(form)["borrowed"].pandas()
        found.append(
            {value.lower(): round(answer, -2) for value, answer in zip(table["borrowed"], table["answer"], strict=True)}
        )
    assert found == [{"true": round(frame["borrowed"].sum(), -2), "false": round((~frame["borrowed"]).sum(), -2)}] * 4


def test_six_statements_answer(home: Path) -> None:
    asked = session(protect=dp.Persons("person", most_records=2))
    planned = asked.plan(dp.marginals(1, 2), budget=dp.Budget(epsilon=1))
    done = planned.publish(visit_records().to_pandas())
    assert done["work"].pandas()["work"].tolist() == ["a", "b", "c"]
    asked_more = done.ask("quantile 0.5 of age by work", "sex=f")
    assert [each.group.get("work") for each in asked_more] == ["a", "b", "c", None]
    assert repr(asked_more).startswith("quantile 0.5 of age by work [work a]: 6 (5 .. 6)")
    assert asked_more._repr_html_().count("<tr>") == 5
    assert Path(done.page).read_text().startswith("<!doctype html>")
    assert done["sex x work"].workload.shape[0] == done["sex x work"].arrow.num_rows == 6
    with pytest.raises(InvalidInput, match=r"the release has no group 'agee' \(did you mean 'age'\?\); it has 'age', 'sex'"):
        done["agee"]
    assert "± " in planned._repr_html_()
    assert repr(planned).splitlines()[1].split() == ["group", "answers", "95", "%", "half", "width", "of"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (lambda: dp.Session("small", cap=2), r"'cap' is given as dp.Budget\(epsilon=2, delta=1e-6\); found int"),
        (
            lambda: dp.Session("small", cap=dp.Budget(epsilon=2), protect="card"),
            r"'protect' is given as dp.Persons\(.*; found str",
        ),
        (lambda: session().plan(dp.marginals(1), budget=1), r"'budget' is given as dp.Budget\(epsilon=1\); found int"),
        (lambda: session().plan(dp.marginals(1), budget=dp.Budget(epsilon=1)).for_half_width("sex", 0), "above 0, found 0"),
        (lambda: session().plan(dp.marginals(1), budget=dp.Budget(epsilon=1)).publish(), r"as publish\(table\)"),
    ],
)
def test_what_is_no_budget_or_error_is_refused_in_a_line(home: Path, asked: Any, told: str) -> None:
    with pytest.raises((InvalidSpec, InvalidInput), match=told) as refused:
        asked()
    assert "\n" not in str(refused.value)


def test_amounts_are_counted_in_bins_under_another_name(home: Path) -> None:
    """What the refusal writes is what works."""
    asked = session()
    questions = (dp.marginals("minutes"), dp.means("minutes", by="sex", between=(0, 240)))
    for declared in ({"minutes": dp.edges(0, 60, 240)}, {}):
        asked.domain(sex=["f", "m"], **declared)
        with pytest.raises(InvalidSpec, match=re.escape("plan(..., records={'columns': {'minutes_in_bins': 'minutes'}})")):
            asked.plan(*questions, budget=dp.Budget(epsilon=1)).job  # noqa: B018
    asked.domain(sex=["f", "m"], minutes_in_bins=dp.edges(0, 60, 240))
    columns = {"columns": {"minutes_in_bins": "minutes"}}
    planned = asked.plan(dp.marginals("minutes_in_bins"), questions[1], budget=dp.Budget(epsilon=4), records=columns)
    done = planned.publish(visit_records().to_pandas())
    low = int(np.count_nonzero(visit_records()["minutes"].to_numpy() < 60))
    assert abs(done["minutes_in_bins"].pandas()["answer"][0] - low) < 60
    assert [each.group.get("sex") for each in done.ask("mean of minutes by sex")] == ["f", "m"]


class Sex(enum.Enum):
    F = "f"
    M = "m"


def test_attributes_are_declared_in_any_form() -> None:
    import pandas as pd
    import polars as pl

    asked = session()
    forms: list[Any] = [["f", "m"], Sex, pd.CategoricalDtype(["f", "m"]), pl.Enum(["f", "m"]), {"categories": ["f", "m"]}]
    forms += [dp.categories("f", "m"), dp.Attribute("x", categories=("f", "m"))]
    for form in forms:
        assert asked.domain(x=form).attributes == (dp.Attribute("x", categories=("f", "m")),)
    edges = dp.Attribute("x", edges=(0, 1, 5), outside="clip", missing="none", labels=("low", "high"))
    assert asked.domain(dp.Domain((edges,))).attributes == (edges,)
    assert asked.domain({"a b": range(3)}, c=bool).names == ("a b", "c")
    assert asked.domain(day=dp.dates("2026-01-01", "2026-12-31", every="month")).shape == (12,)


def test_queries_of_a_matrix_or_a_workload_are_published(home: Path) -> None:
    asked = dp.Session("small", cap=dp.Budget(epsilon=4))
    domain = asked.domain(sex=["f", "m"], work=["a", "b", "c"])
    workload = dp.workloads.marginals(domain, [1])
    for rows in (workload, workload.unweighted.dense()):
        planned = asked.plan(dp.rows(rows, "own.npy"), budget=dp.Budget(epsilon=1))
        assert planned.job.workload.queries.unweighted.dense().tolist() == workload.unweighted.dense().tolist()
    assert planned.publish(small_release.records()).answers.arrow.num_rows == 5


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no domain": (
        lambda: dp.Session("x", cap=dp.Budget(epsilon=1)).plan(dp.marginals(1), budget=dp.Budget(epsilon=1)),
        "the session has no domain yet; declare it with 'domain'",
    ),
    "no question": (lambda: session().plan(budget=dp.Budget(epsilon=1)), "a plan is of one or more questions"),
    "an entry": (lambda: session().plan({"cdf": {"of": "age"}}, budget=dp.Budget(epsilon=1)), "such as dp.marginals"),
    "numbers and names": (lambda: dp.marginals(1, "age"), "by numbers of attributes, which 'among' may limit, or by their"),
    "an unknown key": (lambda: dp.marginals(1, wieght=2), r"question.*wieght"),
    "an unknown key of values": (lambda: dp.edges(0, 1, uint="years"), r"edges.*uint"),
    "no values": (lambda: session().domain(age=7), "attribute 'age' is a list of names, bool, .* found int"),
    "a range": (lambda: dp.means("m", between=(0, 1, 2)), "'between' is the smallest and the largest amount, found 3"),
    "two ranges": (
        lambda: session().plan(dp.sums("m", between=(0, 1)), dp.sums("m", between=(0, 2)), budget=dp.Budget(epsilon=1)),
        "two questions declare different amounts of 'm'",
    ),
    "an unknown attribute": (
        lambda: session().plan(dp.marginals("agee"), budget=dp.Budget(epsilon=1)).job,
        "spec: attribute 'agee' does not exist .did you mean 'age'..; declared are age",
    ),
    "no records": (lambda: session().plan(dp.marginals(1), budget=dp.Budget(epsilon=1)).publish(7), "found int"),
}


def test_values_hand_over_their_unit() -> None:
    """Answers and pages name it."""
    assert dp.edges(0, 18, 65, unit="years").content["unit"] == "years"
    assert "unit" not in dp.edges(0, 18, 65).content


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_in_one_line(home: Path, name: str) -> None:
    act, said = REFUSED[name]
    with pytest.raises((InvalidSpec, InvalidInput), match=said) as refused:
        act()
    assert "\n" not in str(refused.value)
    assert not (home / "ledger.db").exists()


@pytest.mark.parametrize("column", slow_after_first(1, ["age", "sex"]))
def test_a_table_of_mixed_types_is_refused_without_its_values(home: Path, column: str) -> None:
    table = small_release.records().to_pandas().astype({column: object})
    table.loc[5, column] = KNOWN if column == "age" else 4711.0815
    with pytest.raises(
        InvalidSpec,
        match=f"the column {column!r} of the table of records has the type object, .*; give frame.{column!r}..astype.str.",
    ) as refused:
        session().plan(dp.marginals(1), budget=dp.Budget(epsilon=1)).publish(table)
    assert "4711" not in f"{refused.value}{refused.value.args}"
    assert refused.value.__suppress_context__
    assert not [each for each in (home / "records").rglob("*") if each.is_file()]


def test_run_makes_a_key_as_publish_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path / "new"))
    planned = session().plan(dp.marginals(1), budget=dp.Budget(epsilon=1, delta=1e-6))
    with pytest.warns(UserWarning, match="a root key was made at .*root.key; back it up"):
        dp.run({**planned.content}, records=small_release.records())
    (tmp_path / "new" / "root.key").unlink()
    with pytest.raises(KeyUnavailable, match="no root key at"):
        dp.run({**planned.content, "release": "next"}, records=small_release.records())


def test_a_key_is_made_where_nothing_is_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would not be the key of what was charged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path / "new"))
    planned = session().plan(dp.marginals(1), budget=dp.Budget(epsilon=1, delta=1e-6), mechanism="identity")
    assert planned.errors.groups
    with pytest.warns(UserWarning, match="a root key was made at .*root.key; back it up"):
        planned.publish(small_release.records())
    assert oct((tmp_path / "new" / "root.key").stat().st_mode)[-3:] == "600"
    (tmp_path / "new" / "root.key").unlink()
    with pytest.raises(KeyUnavailable, match="no root key at"):
        session().plan(dp.marginals(1), budget=dp.Budget(epsilon=0.5), mechanism="identity").publish(small_release.records())
    for name in ("DPDIST_LEDGER", "DPDIST_ROOT_KEY_FILE"):
        monkeypatch.setenv("DPDIST_HOME", str(tmp_path / name))
        monkeypatch.setenv(name, f"sqlite:///{tmp_path}/other.db" if name == "DPDIST_LEDGER" else str(tmp_path / "no.key"))
        with pytest.raises(KeyUnavailable, match="no root key at"):
            session().plan(dp.marginals(1), budget=dp.Budget(epsilon=0.5), mechanism="identity").publish(
                small_release.records()
            )
        monkeypatch.delenv(name)


def test_a_first_plan_makes_a_private_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path / "new"))
    assert session().plan(dp.marginals(1), budget=dp.Budget(epsilon=1)).errors.groups
    assert not caplog.records
    assert oct((tmp_path / "new").stat().st_mode)[-3:] == "700"


def test_a_notebook_shows_no_progress_that_depends_on_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    shows: Any = types.ModuleType("IPython.display")
    shows.HTML = str
    shows.display = lambda html, display_id: types.SimpleNamespace(update=shown.append)
    assert planned_release.notebook_progress() is ignore_progress
    monkeypatch.setitem(sys.modules, "ipykernel", shows)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    tell = planned_release.notebook_progress()
    for stage in ("extract", "count", "answer"):
        tell(stage, "3 of 17 blocks")
    assert all(stage in shown[-1] for stage in ("extract", "count"))
    assert [html.count("3 of 17") for html in shown] == [0, 0, 1]
    assert [html.count("<td>done</td>") for html in shown] == [0, 1, 2]
    assert [re.findall(r"<progress([^>]*)>", html)[-1] for html in shown] == ["", "", ' value="3" max="17"']
    tell("warning", "a < b")
    assert "<td>a &lt; b</td>" in shown[-1]


def test_the_number_of_releases_that_share_a_cap_decides_the_noise(home: Path) -> None:
    """One histogram at a quarter of the cap: Laplace noise where four of them are to share it, Gaussian where twelve are."""
    for releases, kind in ((4, "Laplace"), (12, "Gaussian")):
        asked = dp.Session("small", cap=dp.Budget(epsilon=4, delta=1e-6, releases=releases))
        asked.domain(sex=["f", "m"])
        planned = asked.plan(dp.marginals(1), budget=dp.Budget(epsilon=1, delta=1e-6))
        assert planned.plan.noise.kind.label == kind


@needs_plugin("left_out")
def test_what_bounds_leave_out_is_measured_where_it_is_asked_for(home: Path) -> None:
    for more, measured in (({}, 0), ({"left_out": None}, 0), ({"left_out": {}}, 1)):
        planned = session(protect=dp.Persons("person", most_records=2)).plan(
            dp.marginals(1), budget=dp.Budget(rho=0.1), **more
        )
        assert len(planned.job.steps_to_find) == measured
        assert "None" not in planned.to_yaml()
        assert planned.job.guarantee.stated == load(yaml.safe_load(planned.to_yaml()), records=False).guarantee.stated
