from __future__ import annotations

import json
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import ValidationError

from dpdist.errors import InvalidSpec
from dpdist.privacy.accounting import Loss, rho_for
from dpdist.sources.formats.csv_grammar import Grammar
from dpdist.sources.record_sources import PersonColumn, Source
from dpdist.spec import json_schema, load
from dpdist.spec.attributes.attribute_kind import Values
from dpdist.spec.attributes.attribute_spec import ATTRIBUTES
from dpdist.spec.sections.budgets import ReleaseBudgetSpec
from dpdist.spec.tagged_unions import UnionPart
from tests.support import small_release
from tests.support.complete_tree import needs_every_plugin

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "census" / "release.yaml"


def test_the_example() -> None:
    spec = load(EXAMPLE)
    assert spec.measured.domain.shape == (91, 15, 2, 2)
    assert spec.workload.queries.shape == (2085, 5460)
    assert spec.guarantee.budget.loss.rho == rho_for(1, 1e-9)
    assert Path(spec.source.path).is_file()


def test_numbers_are_exact(tmp_path: Path) -> None:
    spec = load(small_release.write(tmp_path, budget={"rho": 0.1}))
    assert spec.guarantee.budget.loss.rho == Fraction(1, 10)
    text = (tmp_path / "release.yaml").read_text().replace("rho: 0.1", "rho: 1e-3")
    (tmp_path / "release.yaml").write_text(text)
    assert load(tmp_path / "release.yaml").guarantee.budget.loss.rho == Fraction(1, 1000)


def test_digest_ignores_presentation_and_follows_content(tmp_path: Path) -> None:
    base = load(small_release.spec())
    assert load(small_release.spec(title="x", output={"folder": "y"})).digest == base.digest
    shown = {"title": "Age", "unit": "years", "time": {"start": "2011-01-01", "step": "year"}}
    domain = small_release.spec()["domain"]
    told = small_release.spec(
        domain={**domain, "age": {**domain["age"], **shown}}, records={"path": "records.parquet", "called": "people"}
    )
    assert load(told).digest == base.digest
    for change in (
        {"release": "small-2"},
        {"budget": {"rho": 0.05}},
        {"neighbours": "replace-one"},
        {"workload": [{"marginals": {"ways": [1]}}]},
        {"records": {"path": "records.parquet", "person": {"most_records": 2}}},
    ):
        assert load(small_release.spec(**change)).digest != base.digest


@pytest.mark.parametrize(
    ("found", "replacement", "line", "message"),
    [
        ("mechanism: auto", "mechanizm: auto", 59, "unknown key 'mechanizm'; do you mean 'mechanism'"),
        ("mechanism: auto", "mechanism: magic", 59, "'auto', 'marginals', 'kronecker'"),
        ("  epsilon: 1\n", "  epsilon: 0\n", 61, "epsilon must be positive"),
        (
            "  epsilon: 1\n",
            "  epsilonn: 1\n",
            62,
            "unknown key 'budget.epsilonn'; do you mean 'epsilon'",
        ),
        ("  epsilon: 1\n", "  rho: 1\n", 61, "either 'rho', or 'epsilon' and 'delta'"),
        ("delta: 1e-9\n\nledger", "delta: 2\n\nledger", 61, "delta lies in"),
        (
            "of: age",
            "of: agee",
            57,
            "'agee' does not exist (did you mean 'age'?); declared are age, occupation, income, sex",
        ),
        ("of: age,", "of: sex,", 57, "have no order"),
        ("ways: [1, 2]", "ways: [9]", 56, "not possible among 4"),
        ("{from: 0, to: 90, outside: clip, title: Age, unit: years}", "{from: 9, to: 1}", 17, "from <= to"),
        ("{from: 0, to: 90, outside: clip, title: Age, unit: years}", "{edges: [3, 1]}", 17, "strictly increasing"),
        ("[below 50k, above 50k]", "[a, a]", 52, "'a' twice"),
        ("[below 50k, above 50k]}", "[a, b], outside: clip}", 52, "no order to clip"),
        ("most_records: 1 ", "most_records: 0 ", 12, "a number of at least 1 is needed"),
        ("release: census-2026-11", "release: ../escape", 4, "the first of them a letter or a digit"),
        ("period: 2026-11-01", "", 58, ""),
    ],
)
def test_errors_name_line_and_cure(tmp_path: Path, found: str, replacement: str, line: int, message: str) -> None:
    text = EXAMPLE.read_text()
    assert found in text
    bad = tmp_path / "bad.yaml"
    bad.write_text(text.replace(found, replacement, 1))
    if not message:
        text = bad.read_text().replace("per: total", "per: month")
        bad.write_text(text)
        with pytest.raises(InvalidSpec, match="add 'period: YYYY-MM-DD'"):
            load(bad)
        return
    with pytest.raises(InvalidSpec) as refusal:
        load(bad)
    assert f"bad.yaml, line {line}: " in str(refusal.value)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "mapping"),
        ("", "mapping"),
        ("release: a\nrelease: b", "line 2: key 'release' appears twice"),
    ],
)
def test_files_that_are_no_specs(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InvalidSpec, match=match):
        load(path)
    with pytest.raises(InvalidSpec, match="No such file"):
        load(tmp_path / "missing.yaml")


AROUND = {"filters": {"of": "age", "by": ["sex", "work"], "apply": [{"window": 3}], "around": 3}}
PURE_CAP = {"dataset": "small", "cap": {"epsilon": 1}}


DO_NOT_FIT: list[tuple[dict[str, Any], str]] = [
    ({"budget": {"epsilon": 1}, "mechanism": "coa"}, "'coa' uses Gaussian noise"),
    ({"mechanism": "laplace"}, "'laplace' uses Laplace noise"),
    ({"ledger": PURE_CAP}, "cap is a pure epsilon"),
    ({"budget": {"epsilon": 2}, "ledger": PURE_CAP}, "asks for epsilon=2, the data set's whole cap is epsilon=1"),
    (
        {"budget": {"epsilon": 3, "delta": 1e-6}, "ledger": {"dataset": "d", "cap": {"epsilon": 2, "delta": 1e-6}}},
        "asks for epsilon=3 at delta=1e-06, the data set's whole cap is epsilon=2, delta=1e-06; lower",
    ),
    ({"budget": {"rho": 1}}, "asks for rho=1, the data set's whole cap is rho=0.25"),
    ({"budget": {"delta": 1e-9}}, "or 'epsilon' alone"),
    ({"budget": {"epsilon": 12, "delta": 1e-6, "calibration": "classic"}}, r"really gives|delta=3\.1"),
    ({"objective": "worst", "mechanism": "identity"}, "'objective: worst' is for one of"),
    (
        {"objective": "worst", "budget": {"epsilon": 1}, "ledger": PURE_CAP},
        "'objective: worst' needs Gaussian noise: give the budget a 'delta' or 'rho'",
    ),
    ({"objective": "worst", "limits": {"minutes": 1e-9}}, "raise 'limits'"),
    ({"workload": [{"cdf": {"of": "age"}, "target": 3}]}, "'target' needs 'objective: worst'"),
    (
        {"workload": [{"cdf": {"of": "age"}, "target": 3}, {"marginals": {"ways": [1]}}], "objective": "worst"},
        "a target in every other group",
    ),
    (
        {"workload": [{"cdf": {"of": "age"}, "target": 3, "weight": 2}], "objective": "worst"},
        "at most one of 'weight' and 'target'",
    ),
    ({"postprocess": {"known": [{"where": "agee == 1", "count": 1}]}}, "'agee' does not exist"),
    ({"limits": {"minutes": 0}}, "a number above 0 is needed"),
    ({"workload": [{"marginals": {"of": [["age"]], "ranges": True}}]}, "'ranges' goes with 'ways'"),
    ({"budget": {"rho": 0.1, "calibration": "magic"}}, "'analytic', 'zcdp' or 'classic'"),
    ({"noise": "gaussian", "budget": {"epsilon": 1}, "ledger": PURE_CAP}, "Gaussian noise needs a 'delta' or 'rho'"),
    ({"noise": "laplace"}, "Laplace noise needs an 'epsilon'"),
    ({"mechanism": "dawa"}, "'dawa' uses Laplace noise"),
    ({"mechanism": "dawa", "budget": {"epsilon": 1}, "ledger": PURE_CAP}, "partitions one ordered attribute"),
    ({"mechanism": "convolution", "budget": {"epsilon": 1}, "ledger": PURE_CAP}, "'convolution' uses Gaussian noise"),
    ({"workload": [{"filters": {"of": "sex", "apply": [{"window": 3}]}}]}, "have no order"),
    ({"workload": [{"filters": {"of": "age", "apply": []}}]}, "at least one entry is needed, found none"),
    ({"workload": [{"filters": {"of": "age", "apply": [{"window": 3, "mean": 3}]}}]}, "exactly one of 'running_sum'"),
    (
        {"workload": [{"filters": {"of": "age", "apply": [{"window": 3, "width": 3}]}}]},
        "'width' belongs to 'band'",
    ),
    ({"workload": [{"filters": {"of": "age", "apply": [{"band": [3, 2]}]}}]}, "shortest < longest"),
    ({"workload": [{"filters": {"of": "age", "apply": [{"file": "no.npy"}]}}]}, "cannot be read"),
    ({"workload": [{"filters": {"of": "age", "apply": [{"window": 3}, {"window": 3}]}}]}, "distinct names"),
    (
        {"workload": [{"filters": {"of": "age", "apply": [{"window": 3}], "around": 3}}]},
        "of all attributes of the domain",
    ),
    ({"workload": [AROUND, {"marginals": {"ways": [1]}}]}, "around the same count"),
    ({"workload": [AROUND], "postprocess": {"known": [{"count": 1}]}}, "this release measures none: distances"),
    ({"workload": [{"ranges": {"of": ["age"], "list": [[0, 1]], "lists": {"age": [[0, 1]]}}}]}, "either 'list'"),
    ({"workload": [{"ranges": {"of": ["age"], "lists": {"sex": [[0, 1]]}}}]}, "belong to none|does not fall"),
]


@pytest.mark.parametrize(("changes", "message"), DO_NOT_FIT)
def test_budgets_and_mechanisms_that_do_not_fit(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        load(small_release.spec(**changes))


def test_budgets() -> None:
    pure = load(small_release.spec(budget={"epsilon": 0.3}, ledger=PURE_CAP))
    assert pure.guarantee.budget.loss == Loss.laplace(Fraction(3, 10))
    ledger = {"dataset": "small", "cap": {"epsilon": 4, "delta": 1e-6}}
    amounts = {
        name: load(
            small_release.spec(budget={"epsilon": 1, "delta": 1e-6, "calibration": name}, ledger=ledger)
        ).guarantee.budget.loss.rho
        for name in ("analytic", "zcdp", "classic")
    }
    assert amounts["classic"] < amounts["zcdp"] < amounts["analytic"]
    assert float(amounts["classic"]) == pytest.approx(0.5 / 5.387**2, rel=1e-3)
    assert (
        load(small_release.spec(budget={"epsilon": 1, "delta": 1e-6}, ledger=ledger)).guarantee.budget.loss.rho
        == amounts["analytic"]
    )


def test_range_marginals_in_a_spec() -> None:
    spec = load(small_release.spec(workload=[{"marginals": {"ways": [2], "ranges": True}}]))
    assert [block.queries for block in spec.workload.queries.blocks] == [78 * 2, 78 * 3, 6]


def test_missing_keys_are_named() -> None:
    content = small_release.spec()
    del content["budget"]
    with pytest.raises(InvalidSpec, match="'budget' is missing"):
        load(content)


def test_listed_ranges_fall_on_bins() -> None:
    entry = {"ranges": {"of": ["age"], "list": [[2, 5]]}}
    row = load(small_release.spec(workload=[entry])).workload.queries.rows(slice(0, 1)).reshape(12, 2, 3)
    assert row[:, 0, 0].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    with pytest.raises(InvalidSpec, match="does not fall on its bins"):
        load(small_release.spec(workload=[{"ranges": {"of": ["age"], "list": [[2, 50]]}}]))


def test_listed_boxes(tmp_path: Path) -> None:
    domain = {"age": {"from": 0, "to": 11}, "hours": {"edges": [0, 10, 20, 40]}}
    entry = {"ranges": {"of": ["age", "hours"], "list": [[[2, 5], [10, 40]]]}}
    row = load(small_release.spec(domain=domain, workload=[entry])).workload.queries.rows(slice(0, 1)).reshape(12, 3)
    assert row.sum() == 8
    assert row[2:6, 1:].all()
    for listed, message in (([[2, 5]], "needs 2 pairs"), ([[[2, 5], [10, 39]]], "does not fall on its bins")):
        entry["ranges"]["list"] = listed
        with pytest.raises(InvalidSpec, match=message):
            load(small_release.spec(domain=domain, workload=[entry]))


def test_every_key_of_a_spec_is_described() -> None:
    schema = json_schema()
    for name, model in {"ReleaseSpec": schema, **schema["$defs"]}.items():
        assert model["description"], name
        assert [key for key, said in model.get("properties", {}).items() if not said.get("description")] == [], name


@needs_every_plugin
def test_published_schema_is_current() -> None:
    assert json.loads((ROOT / "docs" / "release.schema.json").read_text()) == json_schema()


class RequiredBesideKinds(UnionPart):
    """A part of a spec with a key of its own that is needed, beside what is of one kind out of several."""

    most: int
    values: Annotated[Values, ATTRIBUTES]


def test_a_part_of_several_kinds_needs_its_own_keys_as_before() -> None:
    assert RequiredBesideKinds.model_json_schema()["required"] == ["most"]
    assert RequiredBesideKinds.model_validate({"most": 3, "categories": ["a"]}).most == 3
    with pytest.raises(ValidationError, match="most"):
        RequiredBesideKinds.model_validate({"categories": ["a"]})


def test_every_kind_of_filter(tmp_path: Path) -> None:
    np.save(tmp_path / "taps.npy", np.array([1.0, -1.0]))
    kinds = [
        {"running_sum": True},
        {"window": 3},
        {"mean": 3},
        {"exponential": 0.5},
        {"polynomial": 1},
        {"trend": 10},
        {"cycle": 10},
        {"band": [3, 8], "width": 2},
        {"file": "taps.npy"},
    ]
    path = small_release.write(tmp_path, workload=[{"filters": {"of": "age", "by": ["sex"], "apply": kinds}}])
    workload = load(path).workload.queries
    assert [block.name.removesuffix(" by sex") for block in workload.blocks] == [
        "running sum",
        "sum of 3 steps",
        "mean of 3 steps",
        "exponential decay 0.5",
        "polynomial decay 1",
        "Hodrick-Prescott trend, lambda 10",
        "Hodrick-Prescott cycle, lambda 10",
        "periods of 3 to 8 steps",
        "taps.npy",
    ]
    x = np.arange(workload.shape[1], dtype=float)
    found = workload.unweighted.matvec(x).reshape(9, 12, 2)
    counts = x.reshape(12, 2, 3).sum(axis=2)
    np.testing.assert_allclose(found[8, 1:], np.diff(counts, axis=0))
    np.testing.assert_allclose(found[0], np.cumsum(counts, axis=0))


def test_the_series_example_is_right() -> None:
    spec = load(ROOT / "examples" / "series" / "release.yaml")
    assert spec.workload.queries.shape == (4 * 8760, 8760)


def test_a_product_says_what_it_asks_of_every_attribute(tmp_path: Path) -> None:
    for asked, said in ((["age < 3"], "the condition age < 3"), (["age < 3", "age >= 5"], "2 listed conditions on age")):
        job = load(small_release.write(tmp_path, workload=[{"product": {"age": asked, "sex": "total"}}]))
        assert said in job.workload.entries[0].kind.question()


def test_an_amount_in_bins_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Added up and counted in bins: two attributes of one column."""
    given: dict[str, Any] = {
        "domain": {"age": {"edges": [0, 6, 12]}},
        "sums": {"age": {"from": 0, "to": 11, "missing": "drop"}},
        "workload": [{"marginals": {"of": [["age"]]}}],
    }
    with pytest.raises(InvalidSpec, match=r"call its bins 'age_in_bins', .* columns: \{age_in_bins: age\}"):
        load(small_release.write(tmp_path, **given))
    given["domain"] = {"age_in_bins": given["domain"]["age"]}
    given["workload"] = [{"marginals": {"of": [["age_in_bins"]]}}, {"marginals": {"of": [["age_in_bins"]]}, "sum": "age"}]
    job = load(
        small_release.write(tmp_path, records={"path": "records.parquet", "columns": {"age_in_bins": "age"}}, **given)
    )
    assert [each.name for each in job.measured.domain.attributes] == ["age_in_bins", "age"]


def test_what_a_selection_may_fail_by_is_taken_from_the_budget_s_delta() -> None:
    """Gaussian noise has the rest of the delta; Laplace noise, and a budget in rho, spend none."""
    budget = ReleaseBudgetSpec.model_validate({"epsilon": "1", "delta": "1e-6"})
    failure = Fraction(1, 10**7)
    rest = ReleaseBudgetSpec.model_validate({"epsilon": "1", "delta": "9e-7"})
    assert budget.loss_beside(failure, "l2") == rest.loss
    assert rest.loss.rho < budget.loss.rho
    assert budget.loss_beside(Fraction(0), "l2") == budget.loss
    assert budget.loss_beside(failure, "l1") == budget.loss_with("l1")
    assert ReleaseBudgetSpec.model_validate({"rho": "1"}).loss_beside(failure, "l2") == Loss.gaussian(Fraction(1))


READ_AS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "columns": ({"columns": {"age": "years"}}, {"columns": {"age": "years"}}),
    "header": ({"header": ["age", "sex", "work"]}, {"header": ("age", "sex", "work")}),
    "person": ({"person": {"column": "who", "most_records": 1}}, {"person": PersonColumn("who")}),
    "a person's type": (
        {"person": {"column": "who", "most_records": 1, "type": "integer"}},
        {"person": PersonColumn("who", "integer")},
    ),
    "records without a person": (
        {"person": {"column": "who", "most_records": 1, "missing": "drop"}},
        {"person": PersonColumn("who", missing="drop")},
    ),
    "groups of a person": (
        {"person": {"column": "who", "most_records": 1, "most_groups": 2}},
        {"person": PersonColumn("who", most_groups=2)},
    ),
    "most_records": ({"person": {"most_records": 3}}, {"most_records": 3}),
    "counts": ({"counts": {"column": "visits", "of": "visits"}}, {"counts": "visits"}),
    "delimiter": ({"csv": {"delimiter": ";"}}, {"grammar": Grammar(";")}),
    "quoting": ({"csv": {"quoting": "none"}}, {"grammar": Grammar(quoting="none")}),
    "decimal": ({"csv": {"decimal": ",", "delimiter": ";"}}, {"grammar": Grammar(";", decimal=",")}),
    "quoted lines": ({"csv": {"multiline": True}}, {"grammar": Grammar(multiline=True)}),
    "encoding": ({"csv": {"encoding": "latin-1"}}, {"grammar": Grammar(encoding="latin-1")}),
    "types": ({"types": {"age": "whole"}}, {"types": {"age": "whole"}}),
}
"""Keys of 'records', and what they change of the source that is read."""
FOUND_IN_FILES = {"files", "tags", "named", "snapshot"}


@pytest.mark.parametrize("name", READ_AS)
def test_every_key_about_records_reaches_what_is_read(name: str, tmp_path: Path) -> None:
    """Of a file that is the same: what is said of it alone changes the source, and the digest that a charge is bound to."""
    (tmp_path / "records.csv").write_text("age,sex,work,who,visits\n1,f,a,7,2\n")
    plain, changed = (
        load(small_release.spec(records={"path": str(tmp_path / "records.csv"), **keys})).source.files
        for keys in ({}, READ_AS[name][0])
    )
    assert changed == replace(plain, **READ_AS[name][1]) != plain
    assert changed.digest != plain.digest


def test_every_field_of_a_source_is_said_by_a_key_or_found_in_files() -> None:
    assert {field for _, changes in READ_AS.values() for field in changes} | FOUND_IN_FILES == {
        field.name for field in fields(Source)
    }
