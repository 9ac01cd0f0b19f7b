"""Records without a value, or with another than the declared ones: which answers count them, through every kind of query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist.errors import InvalidSpec, UnknownValue
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.page.domain_text import exclusion_sentences
from dpdist.spec import load
from tests.support import small_release

pytestmark = pytest.mark.usefixtures("home")
TABLE = pa.table(
    {
        "age": pa.array([0, 1, 1, 2, 9, None, None, 2], pa.float64()),
        "sex": pa.array(["f", "m", None, "x", "f", "f", "", "m"]),
    }
)
LABELLED = {
    "age": {"from": 0, "to": 2, "missing": "unknown", "other": "beyond"},
    "sex": {"categories": ["f", "m"], "missing": "not told", "other": "another"},
}
DROPPED = {
    "age": {"from": 0, "to": 2, "missing": "drop", "other": "drop"},
    "sex": {"categories": ["f", "m"], "missing": "drop", "other": "drop"},
}
QUERIES: list[Any] = [{"marginals": {"of": [[], ["age"], ["sex"], ["age", "sex"]]}}, {"cdf": {"of": "age", "by": ["sex"]}}]
EXACT = {"budget": {"rho": 1e7}, "ledger": {"dataset": "small", "cap": {"rho": 1e8}}}


def answers(folder: Path, table: pa.Table = TABLE, **changes: Any) -> dict[str, float]:
    """What a release with hardly any noise says, by group and query."""
    release = small_release.run(small_release.write(folder, table=table, **{**EXACT, **changes}), folder / "home")
    published = pyarrow.parquet.read_table(release.folder / "answers.parquet").to_pylist()
    return {f"{row['group']}: {row['query']}": round(row["answer"]) for row in published}


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_labelled_bins_are_counted_in_tables_and_in_no_range(form: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {}
    if form == "csv":
        tmp_path.joinpath("data").mkdir()
        pyarrow.csv.write_csv(TABLE, tmp_path / "data" / "records.csv")
        changes["records"] = {"path": str(tmp_path / "data" / "records.csv")}
    found = answers(tmp_path, domain=LABELLED, workload=QUERIES, **changes)
    assert found["total: all"] == 8
    assert [found[f"age: age {label}"] for label in ("0", "1", "2", "beyond", "unknown")] == [1, 2, 2, 1, 2]
    assert [found[f"sex: sex {label}"] for label in ("f", "m", "another", "not told")] == [3, 2, 1, 2]
    assert found["age x sex: age unknown, sex f"] == 1
    assert found["cdf of age by sex: age up to 2, sex f"] == 1
    assert found["cdf of age by sex: age up to 2, sex not told"] == 1
    assert not any("up to beyond" in query or "up to unknown" in query for query in found)


def test_dropped_records_leave_only_the_tables_that_use_the_attribute(tmp_path: Path) -> None:
    found = answers(tmp_path, domain=DROPPED, workload=QUERIES)
    assert found["total: all"] == 8
    assert [found[f"age: age {label}"] for label in ("0", "1", "2")] == [1, 2, 2]
    assert [found[f"sex: sex {label}"] for label in ("f", "m")] == [3, 2]
    assert sum(value for query, value in found.items() if query.startswith("age x sex")) == 3
    assert len(found) == 1 + 3 + 2 + 6 + 6


PURE = {"budget": {"epsilon": 1e6}, "ledger": {"dataset": "small", "cap": {"epsilon": 1e7}}}
REFUSING = {
    "adaptive", "banded", "buffered", "convolution", "datacube", "dawa", "fourier", "kronecker", "marginals", "nested", "square-root",
    "triangular",
}  # fmt: skip
"""Mechanisms for other workloads, with missing values or without."""
EVERY = [
    pytest.param(mechanism, domain, marks=() if (mechanism, domain) == ("residual", DROPPED) else pytest.mark.slow)
    for mechanism in sorted(set(REGISTRY) - REFUSING)
    for domain in (LABELLED, DROPPED)
]


def exactly(mechanism: str) -> dict[str, Any]:
    """A budget under which a mechanism's noise hardly counts."""
    return EXACT if "l2" in REGISTRY[mechanism].noises else PURE


@pytest.mark.parametrize(("mechanism", "domain"), EVERY)
def test_every_mechanism_that_answers_answers_alike(mechanism: str, domain: Any, tmp_path: Path) -> None:
    """Queries that leave cells out are no new kind of question: a mechanism answers them as it is."""
    found = answers(tmp_path, domain=domain, workload=QUERIES, mechanism=mechanism, **exactly(mechanism))
    assert (found["total: all"], found["age: age 1"], found["cdf of age by sex: age up to 2, sex f"]) == (8, 2, 1)


@pytest.mark.parametrize("mechanism", sorted(REFUSING & {*REGISTRY}))
def test_the_others_refuse_in_words(mechanism: str, tmp_path: Path) -> None:
    for domain in (LABELLED, DROPPED):
        path = small_release.write(tmp_path, domain=domain, workload=QUERIES, mechanism=mechanism, **exactly(mechanism))
        with pytest.raises(
            InvalidSpec, match=f"'{mechanism}' (cannot answer this workload|partitions one ordered attribute)"
        ):
            load(path)


@pytest.mark.parametrize(
    ("workload", "sizes"),
    [
        ([{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}], (3, 2)),
        ([{"cdf": {"of": "age"}}], (3, 3)),
        ([{"marginals": {"of": [["age", "sex"]]}}], (3, 2)),
        ([{"marginals": {"ways": [2]}}], (3, 2)),
        ([{"marginals": {"ways": [1, 2]}}], (4, 3)),
        (QUERIES, (4, 3)),
    ],
)
def test_no_bin_is_kept_where_every_query_would_leave_it_out(workload: Any, sizes: tuple[int, ...], tmp_path: Path) -> None:
    """Filters stay filters, and tables of all attributes stay tables: closed forms answer them."""
    assert load(small_release.write(tmp_path, domain=DROPPED, workload=workload)).measured.domain.shape == sizes


def test_a_stream_leaves_records_without_a_time_out(tmp_path: Path) -> None:
    series = [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}]
    found = answers(tmp_path, domain=LABELLED, workload=series, stream={"name": "ages", "through": 2})
    assert found["running sum by sex: age at 2, sex f"] == 1
    assert found["running sum by sex: age at 2, sex not told"] == 1


@pytest.mark.parametrize(
    ("predicate", "count"),
    [
        ("age == 'unknown'", 2),
        ("age >= 1", 4),
        ("not age >= 1", 4),
        ("age != 1", 6),
        ("sex != 'f'", 5),
        ("sex in ['not told', 'another']", 3),
        ("sex == 'f' or age == 'unknown'", 4),
    ],
)
def test_predicates(predicate: str, count: int, tmp_path: Path) -> None:
    assert list(answers(tmp_path, domain=LABELLED, workload=[{"predicates": [predicate]}]).values()) == [count]


@pytest.mark.parametrize(("predicate", "count"), [("not age >= 1", 1), ("sex != 'f'", 2), ("sex == 'f' or not age < 1", 3)])
def test_predicates_never_count_what_is_dropped(predicate: str, count: int, tmp_path: Path) -> None:
    found = answers(tmp_path, domain=DROPPED, workload=[{"predicates": [predicate]}, {"marginals": {"of": [[]]}}])
    assert next(iter(found.values())) == count
    assert found["total: all"] == 8


def test_missing_values_stop_a_release_that_does_not_declare_them(tmp_path: Path) -> None:
    with pytest.raises(UnknownValue):
        answers(tmp_path, domain={**LABELLED, "age": {"from": 0, "to": 9}}, workload=QUERIES)


def test_the_page_says_what_is_left_out_and_never_how_many(tmp_path: Path) -> None:
    domain = {**LABELLED, "age": {"from": 0, "to": 2, "missing": "drop", "outside": "clip"}}
    path = small_release.write(tmp_path, table=TABLE, domain=domain, workload=QUERIES, **EXACT)
    release = small_release.run(path, tmp_path / "home")
    assert exclusion_sentences(release.certificate) == [
        "Age: values below or above those declared are counted at the nearest one; records without a value are left out of the "
        "answers that use it.",
        "Sex: records with any other value are counted as “another”; records without a value are counted as “not told”.",
    ]
    assert "records without a value are counted as “not told”" in (release.folder / "index.html").read_text()
    assert np.isfinite(pyarrow.parquet.read_table(release.folder / "answers.parquet")["answer"].to_numpy()).all()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"outside": "drop"},
            "records with any other value are left out of all answers; records without a value are left out of all answers.",
        ),
        (
            {"outside": "drop", "missing": "unknown"},
            "records with any other value are left out of all answers; records without a value are counted as “unknown”.",
        ),
        (
            {"outside": "clip"},
            "values below or above those declared are counted at the nearest one; records without a value are left out of all answers.",
        ),
        ({"outside": "error"}, "a record with any other value would have stopped the release."),
    ],
)
def test_each_rule_is_told_once(facts: dict[str, str], said: str) -> None:
    assert exclusion_sentences({"method": {"attributes": {"age": facts}}}) == [f"Age: {said}"]
