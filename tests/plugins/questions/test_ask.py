"""Questions to a finished release: the answers of its measurement, what it refuses, and what its file holds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import dpdist as dp
from dpdist.content import measurement_file
from dpdist.errors import InvalidInput, StoreError
from dpdist.publish import release_folder
from dpdist.query.published_release import load_published
from dpdist.storage.array_store import Store
from dpdist.storage.objects import parse_location
from flows.commands import cli, console_output
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.small_release import run

TABLES: list[dict[str, Any]] = [{"marginals": {"of": [["age", "sex"], ["work"]]}}]


def counts_of(path: Path) -> np.ndarray:
    """The exact histogram of the small records."""
    found = np.zeros((12, 2, 3))
    for row in pyarrow.parquet.read_table(path.parent / "records.parquet").to_pylist():
        found[row["age"], "fm".index(row["sex"]), "abc".index(row["work"])] += 1
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", slow_after_first(2, ["coa", "identity", "residual", "gaussian"]))
def test_questions_are_answered_around_the_truth_with_exact_errors(home: Path, mechanism: str) -> None:
    path = small_release.write(home.parent / "data", workload=TABLES, mechanism=mechanism, budget={"rho": 0.2})
    done, x = run(path, home), counts_of(path)
    asked = {
        "sum of all": x.sum(),
        "sum of age>=6, sex=f": x[6:, 0].sum(),
        "sum of work=a minus 2 times sum of work=b": x[..., 0].sum() - 2 * x[..., 1].sum(),
        "age < 3 or age >= 9 plus count of work != c": x[:3].sum() + x[9:].sum() + x[..., :2].sum(),
        "age in [1, 2], sex=m": x[1:3, 1].sum(),
    }
    answers = done.ask(*asked)
    matrix = done.covariance(list(asked))
    for place, (answer, truth) in enumerate(zip(answers, asked.values(), strict=True)):
        assert isinstance(answer.value, float)
        assert answer.standard_error == pytest.approx(np.sqrt(matrix[place, place]), rel=1e-9)
        assert abs(answer.value - truth) <= 4.5 * answer.standard_error + 1e-6  # seven false alarms in a million
    summed = done.ask("sum of age>=6, sex=f plus sum of all")[0]
    assert summed.value == pytest.approx(answers[0].value + answers[1].value, abs=1e-6)
    assert summed.standard_error == pytest.approx(np.sqrt(matrix[:2, :2].sum()), rel=1e-6)


@pytest.mark.parametrize("mechanism", slow_after_first(2, ["coa", "identity", "marginals"]))
def test_a_published_question_has_its_published_answer(home: Path, mechanism: str) -> None:
    done = run(small_release.write(home.parent / "data", workload=TABLES, mechanism=mechanism), home)
    table, certificate = release_folder.load_release(done.folder)
    rows = [row for row in table.to_pylist() if row["age"]]
    found = dp.published(done.folder).ask(*(f"age={row['age']}, sex={row['sex']}" for row in rows))
    digits = certificate["decimals"]
    for row, answer in zip(rows, found, strict=True):
        assert answer.value == pytest.approx(row["answer"], abs=0.51 * 10**-digits)
        assert answer.standard_error == pytest.approx(row["standard_error"], abs=0.51 * 10 ** -(digits + 2))
        assert (answer.low, answer.high) == pytest.approx((row["low_95"], row["high_95"]), abs=2 * 10**-digits)


@pytest.mark.parametrize("mechanism", ["coa", "residual"])
def test_what_was_not_measured_is_refused_with_what_is_missing(home: Path, mechanism: str) -> None:
    folder = run(small_release.write(home.parent / "data", workload=TABLES, mechanism=mechanism), home).folder
    release = load_published(parse_location(folder))
    with pytest.raises(InvalidInput, match="did not measure the table of (age by work|work by age|age by sex by work)"):
        release.ask("age=3, work=a")
    with pytest.raises(InvalidInput, match="it measured .*age by sex"):
        release.ask("sex=f, work=b minus 3 sum of sex=m, work=b")
    whole = release.ask("sex=f, work=b plus sum of sex=m, work=b")[0]  # what is missing of the two cancels
    assert whole.value == pytest.approx(release.ask("work=b")[0].value)


def test_a_mean_and_its_interval_lie_in_the_range_of_its_values(home: Path) -> None:
    """However little is known: of values 4 to 11, and of amounts 2 to 9."""
    table = small_release.records().slice(0, 40)
    table = table.append_column("paid", table["age"])
    changes = {
        "domain": {"age": {"from": 4, "to": 11, "outside": "clip"}, "sex": {"categories": ["f", "m"]}},
        "sums": {"paid": {"from": 2, "to": 9}},
        "workload": [{"marginals": {"of": [["age", "sex"]]}}, {"marginals": {"of": [["sex"], ["age"]]}, "sum": "paid"}],
        "budget": {"epsilon": 0.1, "delta": 1e-6},
    }
    done = run(small_release.write(home.parent / "means", table=table, **changes), home)
    found = done.ask("mean of age by sex", "mean of paid by age", "mean of paid by sex")
    for each, (low, high) in zip(found, [(4, 11)] * 2 + [(2, 9)] * 10, strict=True):
        assert low <= each.low <= each.value <= each.high <= high
    assert any(each.remark == "there may be no records: every mean is possible" for each in found)


def test_bins_of_missing_and_dropped_records_are_in_no_answer_that_does_not_name_them(home: Path) -> None:
    """Means, quantiles and conditions are over declared values; the total counts everybody; labels of extra bins can be asked for."""
    table = small_release.records()
    ages = table["age"].to_pylist()
    nulled = table.set_column(
        0, "age", pa.array([None if place % 3 == 0 else age for place, age in enumerate(ages)], pa.int64())
    )
    declared = [age for place, age in enumerate(ages) if place % 3]
    for missing, groups in (("unknown", 13), ("drop", 12)):
        domain = {"age": {"from": 0, "to": 11, "missing": missing}, "sex": {"categories": ["f", "m"]}}
        asked = [{"marginals": {"of": [["age"], ["sex"]]}}]
        changes = {"release": f"with-{missing}", "domain": domain, "workload": asked, "mechanism": "identity"}
        done = run(small_release.write(home.parent / missing, table=nulled, **changes), home)
        mean, everybody, young, other = done.ask("mean of age", "sum of all", "age<6", "age!=3")
        assert len(done.ask("age with at least 0")) == groups
        truths = (
            np.mean(declared),
            3000,
            sum(age < 6 for age in declared),
            3000 - declared.count(3) - 1000 * (missing == "drop"),
        )
        for answer, truth in zip((mean, everybody, young, other), truths, strict=True):
            assert isinstance(answer.value, float)
            assert answer.standard_error is not None
            assert abs(answer.value - truth) < 4.5 * answer.standard_error
        assert abs(int(str(done.ask("median of age")[0].value)) - np.median(declared)) <= 1
    assert run(home.parent / "unknown" / "release.yaml", home).ask("age=unknown")[0].value == pytest.approx(1000, abs=60)


def test_people_ask_as_they_speak(home: Path) -> None:
    """Counts, sums and shares by groups are the sums of cells that they say, whatever is said first."""
    paid = {"paid": {"from": 0, "to": 20}}
    asked: list[dict[str, Any]] = [
        {"marginals": {"of": [["age", "sex"], ["work"]]}},
        {"marginals": {"of": [["work"]]}, "sum": "paid"},
    ]
    table = small_release.records()
    done = run(
        small_release.write(
            home.parent / "data", table=table.append_column("paid", table["age"]), sums=paid, workload=asked
        ),
        home,
    )
    same = {
        "count": "sum of all",
        "count by work": "work=a; work=b; work=c",
        "number of records by work": "work=a; work=b; work=c",
        "count by sex where age>=6": "sex=f, age>=6; sex=m, age>=6",
        "age>=6 by sex": "sex=f, age>=6; sex=m, age>=6",
        "sum of age by sex": "total of age where sex=f; total of age where sex=m",
        "sum of paid by work": "total of paid by work",
        "sum by work": "total of paid by work",
        "share of sex=f": "sex=f divided by sum of all",
        "share of age>=6 by sex": "age>=6, sex=f divided by sex=f; age>=6, sex=m divided by sex=m",
        "share of age>=6 where sex=m": "age>=6, sex=m divided by sex=m",
        "sex=f minus sex=m by age": "; ".join(f"sex=f, age={age} minus sex=m, age={age}" for age in range(12)),
    }
    for spoken, written in same.items():
        found, meant = done.ask(spoken), done.ask(*written.split("; "))
        assert len(found) == len(meant), spoken
        for one, other in zip(found, meant, strict=True):
            assert (one.value, one.standard_error) == (pytest.approx(other.value), pytest.approx(other.standard_error)), (
                spoken
            )
            assert (one.low, one.high) == (pytest.approx(other.low), pytest.approx(other.high)), spoken
    assert [each.group for each in done.ask("count by sex")] == [{"sex": "f"}, {"sex": "m"}]
    with pytest.raises(InvalidInput, match="without 'by'"):
        load_published(parse_location(done.folder)).covariance(["count by sex"])


BAD = {
    "sum of height=3": "height",
    "sum of age=three": "'three'",
    "sum of work=z": "'z' is not a declared category",
    "median of work": "have no order",
    "mean of sex": "are no numbers",
    "sum of age=1 divided by sum of age=2 divided by sum of age=3": "divides twice",
    "quantile 2 of age": "between 0 and 1",
    "median of age where sex=f where sex=m": "'where' twice",
    "sex=f by work by age": "'by' twice",
    "count by wrok": r"attribute 'wrok' does not exist \(did you mean 'work'\?\); declared are age, sex, work",
    "count where sxe=f": r"'sxe' does not exist \(did you mean 'sex'\?\)",
    "sum of 'wrok'=a": r"did you mean 'work'\?",
    "sex": "'sex' alone is no condition; write for example 'count by sex'",
    "share of sex by age": "alone is no condition",
    "sum of work by sex": "are no numbers",
    "": "cannot be read",
}


def test_questions_that_cannot_be_read_are_refused_in_one_line(home: Path) -> None:
    folder = run(small_release.write(home.parent / "data", workload=TABLES, mechanism="identity"), home).folder
    for text, problem in BAD.items():
        with pytest.raises(InvalidInput, match=problem) as refusal:
            load_published(parse_location(folder)).ask(text)
        assert "\n" not in str(refusal.value)
    with pytest.raises(InvalidInput, match="sums and differences"):
        load_published(parse_location(folder)).covariance(["median of age"])


def test_the_file_holds_nothing_private_and_the_same_bytes_each_time(home: Path) -> None:
    """Its arrays are the committed noisy integers and what the plan alone decides; neither salt nor key nor tally is near it."""
    path = small_release.write(home.parent / "data", workload=TABLES, mechanism="coa")
    done = run(path, home)
    place = done.folder / "measurement.npz"
    first = place.read_bytes()
    with np.load(place, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    facts = json.loads(arrays.pop("facts").item())
    assert set(facts) == {
        "format",
        "release",
        "shape",
        "attributes",
        "noise",
        "measurement",
        "strategy",
        "queries",
        "bound",
        "largest",
    }
    assert set(facts["noise"]) == {"kind", "scale", "deviation"}
    stored = Store(home / "store").open("measurements/small-1")
    np.testing.assert_array_equal(arrays.pop("values"), Store(home / "store").read_array(stored))
    assert (
        facts["measurement"] == stored.digest == done.certificate.get("measurements", {"small-1": stored.digest})["small-1"]
    )
    grid: Any = done.plan.measurement
    np.testing.assert_array_equal(arrays.pop("mixing"), grid.mixing)
    for axis, codes in enumerate(grid.base.codes):
        np.testing.assert_array_equal(arrays.pop(f"codes_{axis}"), codes)
    assert {name.partition("_")[0] for name in arrays} <= {
        "query",
        "bound",
    }  # rows that the spec asks for, and weights of cells
    shutil.rmtree(done.folder)
    assert (run(path, home).folder / "measurement.npz").read_bytes() == first


def test_the_certificate_covers_the_file_and_an_altered_one_is_refused(home: Path) -> None:
    folder = run(small_release.write(home.parent / "data", workload=TABLES, mechanism="identity"), home).folder
    certificate = json.loads((folder / "release.json").read_text())
    assert certificate["measurement"] == {"file": "measurement.npz", "format": 1, "values": 72, "why": None}
    assert "measurement.npz" in certificate["files"]
    assert "dpdist ask small-1" in (folder / "index.html").read_text()
    (folder / "measurement.npz").write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(StoreError, match="altered"):
        load_published(parse_location(folder))
    with pytest.raises(StoreError, match="cannot be read"):
        measurement_file.read_measurement(folder / "measurement.npz")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"output": {"measurement": False}}, "the publisher left it out"),
        (
            {
                "mechanism": "dawa",
                "workload": [{"cdf": {"of": "age"}}],
                "domain": {"age": {"from": 0, "to": 11}},
                "budget": {"epsilon": 1},
                "ledger": {"dataset": "small", "cap": {"epsilon": 2}},
            },
            "not linear functions",
        ),
    ],
)
def test_a_release_without_its_measurement_says_why(home: Path, changes: dict[str, Any], why: str) -> None:
    folder = run(small_release.write(home.parent / "data", **changes), home).folder
    assert not (folder / "measurement.npz").exists()
    assert "dpdist ask" not in (folder / "index.html").read_text()
    assert why in json.loads((folder / "release.json").read_text())["measurement"]["why"]
    with pytest.raises(InvalidInput, match=f"answers no further questions: .*{why}"):
        load_published(parse_location(folder))


def test_numpy_alone_answers_from_the_file(home: Path) -> None:
    """The recipe of docs/reference/files.md."""
    done = run(small_release.write(home.parent / "data", workload=TABLES, mechanism="residual"), home)
    file = np.load(done.folder / "measurement.npz")
    facts = json.loads(file["facts"].item())
    term = next(each for each in facts["strategy"]["terms"] if each["attributes"] == [2])
    total = next(each for each in facts["strategy"]["terms"] if each["attributes"] == [])
    weights, deviation = np.array([0.0, 1.0, 0.0]), facts["noise"]["deviation"]
    value = variance = 0.0
    for each, vector in ((total, np.array([1.0])), (term, weights @ np.linalg.pinv(file[term["factors"][0]["array"]]))):
        unit = 2.0 ** each["shift"] / each["multiplier"] * (1 / 3 if each is total else 1.0)
        z = file["values"][each["first"] : each["first"] + each["values"]]
        value, variance = value + unit * vector @ z, variance + (unit * deviation) ** 2 * vector @ vector
    answer = done.ask("work=b")[0]
    assert answer.value == pytest.approx(value, rel=1e-9)
    assert answer.standard_error == pytest.approx(np.sqrt(variance), rel=1e-9)


def test_the_command_prints_answers_covariances_and_notes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_output.console, "_width", 240)
    path = small_release.write(home.parent / "data", workload=TABLES, mechanism="identity", postprocess={"integer": True})
    folder = run(path, home).folder
    told = CliRunner().invoke(
        cli.app,
        ["ask", str(folder), "sum of sex=f", "sum of sex=f divided by sum of all", "top 2 of work"],
    )
    assert told.exit_code == 0, told.output
    assert "in the top 2" in told.output
    assert "before rounding" in " ".join(told.output.split())
    told = CliRunner().invoke(cli.app, ["ask", str(folder), "sex=f", "sex=m", "--covariance", "--json"])
    given = json.loads(told.output)
    assert [each["question"] for each in given["answers"]] == ["sex=f", "sex=m"]
    assert given["covariance"][0][0] == pytest.approx(given["answers"][0]["standard_error"] ** 2)
    assert given["covariance"][0][1] == pytest.approx(0.0, abs=1e-6)
    for form in ([], ["--json"], ["--csv"]):  # a ratio that is none is not a number that JSON does not have
        told = CliRunner().invoke(cli.app, ["ask", str(folder), "sex=f divided by sex=m minus sex=m", *form])
        assert told.exit_code == 0, told.output
        assert "the denominator is zero" in told.output
        assert not re.search(r"\b(nan|None)\b", told.output, re.IGNORECASE)


def test_levels_are_asked_for_by_their_names(home: Path) -> None:
    """Groups of levels are sums of values, with the error of these sums; medians, tops and thresholds take levels, too."""
    domain = small_release.spec()["domain"]
    domain["work"]["levels"] = {"kind": {"hand": ["a", "b"], "head": ["c"]}}
    domain["age"]["levels"] = {"age group": [0, 3, 8, 12], "any age": [0, 12]}
    done = run(
        small_release.write(home.parent / "data", domain=domain, workload=[{"marginals": {"of": [["age", "work"]]}}]), home
    )
    (hand, head) = sorted(done.ask("kind with at least 0"), key=lambda each: each.group["kind"])
    (same,) = done.ask("work=a plus work=b")
    assert (hand.value, hand.standard_error) == (pytest.approx(same.value), pytest.approx(same.standard_error))
    assert [each.group for each in done.ask("top 1 of kind where 'age group'='3 to <8'")] == [{"kind": "hand"}]
    medians = {each.group["kind"]: each.value for each in done.ask("median of age group by kind")}
    assert [each.value for each in done.ask("median of 'any age'")] == ["0 to <12"]  # the only one that there is
    means = {each.group["kind"]: each.value for each in done.ask("mean of age by kind")}
    assert medians == {"hand": "3 to <8", "head": "3 to <8"}
    assert {each.group["kind"]: each.value for each in done.ask("median of age by kind")}["hand"] in ("5", "6")
    assert means["hand"] == pytest.approx(5.5, abs=0.3)
    assert head.value == pytest.approx(done.ask("kind=head")[0].value)
