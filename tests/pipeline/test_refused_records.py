"""Whatever refuses because of the records refuses in the first reading: before any charge, also of what is found first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.measurement import filter_measurement, integer_measurement
from dpdist.pipeline import preprocess
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.spec import load
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.steps.thresholded_step import ThresholdedRows
from tests.case_selection import slow
from tests.pipeline.test_step_sequences import purchases, spec_changes
from tests.support import small_release

NAMES = {"categories": "private", "selection": {"share": 0.05, "delta": 1e-9, "most": 3}}
FOUND: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bound": lambda spec: spec["records"]["person"].update(most_records="private", selection={"share": 0.1, "most": 40}),
    "names": lambda spec: spec["domain"].update(town={**NAMES, "other": "drop"}),
    "other names": lambda spec: spec["domain"].update(sex=NAMES),
    "edges": lambda spec: spec["domain"].update(
        age={"edges": "private", "selection": {"from": 0, "to": 60, "bins": 2, "share": 0.1}, "outside": "error"}
    ),
    "groups": lambda spec: spec["records"]["person"].update(most_groups="private", selection={"share": 0.1, "most": 4}),
    "range": lambda spec: spec["sums"]["paid"].update(to="private", selection={"share": 0.1, "most": 2000}),
    "left out": lambda spec: spec.update(left_out={"share": 0.05}),
    "quantiles": lambda spec: spec.update(quantiles={"of": {"wait": {"from": 0, "to": 60}}, "share": 0.1}),
    "thresholded": lambda spec: (
        spec.update(thresholded={"of": {"place": {"codes": ["town 1", "town 2"]}}, "at_least": 30, "share": 0.1}),
        spec["records"].update(columns={"place": "town"}),
    ),
}
"""What parts of the budget find first, each as a change of a spec."""
TOGETHER = [
    ("bound", "quantiles"),
    ("names", "quantiles"),
    ("edges", "left out", "quantiles"),
    ("groups", "range", "quantiles"),
    ("bound", "names", "other names", "edges", "range", "left out", "quantiles"),
    ("left out",),
    ("thresholded",),
    (),
]


def spec_of(found: tuple[str, ...]) -> dict[str, Any]:
    """A release of records in two CSV files, with all that is found for it first."""
    spec = spec_changes()
    spec |= {
        "mechanism": "identity",
        "left_out": None,
        "quantiles": None,
        "ledger": {"dataset": "small", "cap": {"rho": 1, "selection": 1e-8}},
    }
    spec["records"] = {"path": "visits", "person": {"column": "person"}}
    spec["domain"] = {
        "town": {"categories": [f"town {place}" for place in range(40)], "other": "drop"},
        "sex": {"categories": ["f", "m"]},
        "age": {"from": 0, "to": 60},
    }
    spec["sums"] = {"paid": {"from": 0, "to": 500}}
    spec["workload"] = [{"marginals": {"of": [["town"], ["sex"], ["age"]]}}, {"marginals": {"of": [["sex"]]}, "sum": "paid"}]
    for each in found:
        FOUND[each](spec)
    return spec


def table() -> pa.Table:
    given = purchases(60)
    return given.append_column("age", pa.array(np.arange(len(given)) % 61))


def written(folder: Path, spec: dict[str, Any], last: pa.Table, tail: bytes = b"") -> Path:
    """The spec beside its records: the last of them, in the last file, are what somebody gave."""
    path = small_release.write(folder, **spec)
    (folder / "visits").mkdir(exist_ok=True)
    pyarrow.csv.write_csv(table(), folder / "visits" / "a.csv")
    pyarrow.csv.write_csv(last, folder / "visits" / "b.csv")
    with (folder / "visits" / "b.csv").open("ab") as file:
        file.write(tail)
    return path


def added_records(**values: Any) -> pa.Table:
    """Two records more, with other values in the last one."""
    last = {"town": "town 1", "person": 7, "sex": "f", "paid": 3.0, "wait": 5, "age": 4}
    rows = [last, last | values]
    return pa.table({name: [row[name] for row in rows] for name in table().column_names})


FAULTS: dict[str, tuple[pa.Table, bytes, str]] = {
    "no person": (added_records(person=None), b"", ""),
    "no amount of a quantile": (added_records(wait=None), b"", "quantiles"),
    "no amount of a sum": (added_records(paid=None), b"", ""),
    "an undeclared value": (added_records(age=99), b"", ""),
    "a missing value": (added_records(age=None), b"", ""),
    "an open quote": (added_records(), b'"town 2,8,f,1,1,1\n', ""),
    "no column of persons": (added_records().drop_columns("person"), b"", ""),
    "no column of a quantile": (added_records().drop_columns("wait"), b"", "quantiles"),
    "no column of names": (added_records().drop_columns("town"), b"", ""),
    "the same file twice": (table(), b"", ""),
}
"""What the last file holds, what follows it, and what must be found for it to be refused."""


REFUSED = [
    pytest.param(found, fault, id=f"{' '.join(found)}-{fault}")
    for found in TOGETHER
    for fault, (_, _, only_with) in FAULTS.items()
    if not only_with or only_with in found
]


@pytest.mark.parametrize(
    ("found", "fault"),
    [slow(case) if number % 2 else case for number, case in enumerate(REFUSED)],
)
def test_records_that_are_refused_are_refused_before_any_charge(found: tuple[str, ...], fault: str, home: Path) -> None:
    last, tail, _ = FAULTS[fault]
    spec = spec_of(found)
    path = written(home.parent / "data", spec, last, tail)
    with pytest.raises(DpdistError):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert not [entry for entry in ledger.entries() if entry["event"] != "declared"]


@pytest.mark.parametrize(
    ("postprocess", "excludes"),
    [
        ({"consistent_with": ["earlier.yaml"]}, lambda step: not step.is_independent),
        ({"known": [{"count": 400}]}, lambda step: step.chooses_records),
    ],
    ids=["consistent_with", "known"],
)
@pytest.mark.parametrize("found", FOUND)
def test_what_is_found_first_excludes_what_it_would_make_wrong(
    found: str, postprocess: dict[str, Any], excludes: Callable[[BudgetedStep], bool], tmp_path: Path
) -> None:
    """Releases are combined over one domain and one bound, and a known count is of the records that count."""
    spec, (key,) = spec_of((found,)), postprocess
    step = load(small_release.write(tmp_path, **spec)).guarantee.next_step
    assert step is not None
    small_release.write(tmp_path, **spec_of(()) | {"release": "earlier"}).rename(tmp_path / "earlier.yaml")
    path = small_release.write(tmp_path, **spec | {"postprocess": postprocess})
    if excludes(step):
        with pytest.raises(InvalidSpec, match=f"goes without '{key}'|cannot be combined: it needs the same domain"):
            load(path)
    else:
        load(path)


@pytest.mark.parametrize("measured", ["rest", "totals"])
def test_a_plan_states_the_noise_that_rows_and_totals_get(measured: str, tmp_path: Path) -> None:
    """The half width of a total, and the noise of a row, against 2,000 draws; how large rows are published against the same."""
    spec = spec_of(("thresholded",))
    spec["thresholded"]["rest"] = {"by": [], "share": 0.5, "measured": measured}
    step = load(small_release.write(tmp_path, **spec)).next_step
    assert isinstance(step, ThresholdedRows)
    assert step.totals is not None
    rows, totals = step.plan_sentences()
    assert totals.startswith("each total of " + ("the rows that are not published" if measured == "rest" else "all rows"))
    draws, key, unit = np.zeros(2000, dtype=np.int64), bytes(32), 2.0**UNIT_BITS
    assert float(totals.split("±")[1].split()[0]) == pytest.approx(
        1.96 * step.totals.draw(draws, key).std() / unit, rel=0.05
    )
    noise = step.rule.noise.draw(key, count=draws.size) / unit
    (found,) = re.findall(r"noise of ([0-9.]+) records", rows)
    assert float(found) == pytest.approx(noise.std(), rel=0.05)
    (half, always), limit = re.findall(r"row of ([0-9,]+) records is half|one of ([0-9,]+) almost", rows), 30.0
    for count, chance in ((int(half[0]), 0.5), (int(always[1]), 0.975)):
        assert (count + noise >= limit).mean() >= chance - 0.03
        assert (count - 1 + noise >= limit).mean() <= chance + 0.03


def too_many(folder: Path, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(integer_measurement, "MOST_RECORDS", 1)
    return written(folder, spec, added_records())


def none_at_all(folder: Path, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    path = written(folder, spec, added_records())
    for file in (folder / "visits").iterdir():
        file.write_text(file.read_text().partition("\n")[0] + "\n")
    return path


NUMBERS = {"without overflow": too_many, "no record in": none_at_all}
"""How many records there are, by what the refusal says."""


@pytest.mark.parametrize("said", NUMBERS)
@pytest.mark.parametrize("found", [*((name,) for name in FOUND), ()], ids=" ".join)
def test_too_many_records_or_none_are_refused_before_any_charge(
    found: tuple[str, ...], said: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever reads them first, whichever part of the budget that is: the measurement would refuse them after a charge."""
    path = NUMBERS[said](home.parent / "data", spec_of(found), monkeypatch)
    with pytest.raises(DpdistError, match=said):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert not [entry for entry in ledger.entries() if entry["event"] != "declared"]


@pytest.mark.parametrize("found", [TOGETHER[0], pytest.param(TOGETHER[4], marks=pytest.mark.slow)], ids=" ".join)
def test_completed_records_are_published_under_the_same_id(found: tuple[str, ...], home: Path) -> None:
    """With little noise: under a rho of 1 a bound is often chosen so large that no name of sixty persons is frequent enough."""
    spec = spec_of(found) | {"budget": {"rho": 100}}
    spec["ledger"]["cap"]["rho"] = 100
    with pytest.raises(DpdistError, match="without 'wait'"):
        small_release.run(written(home.parent / "data", spec, added_records(wait=None)), home)
    assert small_release.run(written(home.parent / "data", spec, added_records()), home).charged


@pytest.mark.parametrize("found", TOGETHER, ids=" ".join)
def test_records_with_fractions_where_a_column_is_of_lists_are_refused_before_any_charge(
    found: tuple[str, ...], home: Path
) -> None:
    """A column that cannot be converted, in the last of two Parquet files."""
    spec = spec_of(found)
    path = small_release.write(home.parent / "data", **spec)
    (home.parent / "data" / "visits").mkdir()
    pa.parquet.write_table(table(), home.parent / "data" / "visits" / "a.parquet")
    last = added_records()
    for column in ["wait"] * ("quantiles" in found) + ["paid", "town", "person"]:
        lists = pa.array([[1], [2]])
        broken = last.set_column(last.column_names.index(column), column, lists)
        pa.parquet.write_table(broken, home.parent / "data" / "visits" / "b.parquet")
        with pytest.raises(DpdistError, match=column):
            small_release.run(path, home)
        with open_ledger(home) as ledger:
            assert not [entry for entry in ledger.entries() if entry["event"] != "declared"]


@pytest.mark.parametrize("mechanism", ["convolution", "square-root", "identity"])
def test_more_steps_of_amounts_than_a_filter_holds_are_refused_before_any_charge(
    mechanism: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of all amounts are added up in the first reading: the measurement bounds them, after what was found first."""
    monkeypatch.setattr(integer_measurement, "MOST_RECORDS", 4000)
    monkeypatch.setattr(preprocess, "MOST_RECORDS", 4000)
    assert filter_measurement.check_record_limit is integer_measurement.check_record_limit
    spec = {
        "records": {"path": "records.parquet", "person": {"column": "person"}},
        "domain": {"age": {"from": 0, "to": 60}},
        "sums": {"paid": {"from": 0, "to": 500}},
        "mechanism": mechanism,
        "workload": [{"filters": {"of": "age", "apply": [{"running_sum": True}]}, "sum": "paid"}],
        "left_out": {"share": 0.05},
    }
    large = pa.table({"person": [*range(60)], "age": [1] * 60, "paid": [500] * 60})
    path = small_release.write(home.parent / "data", table=large, **spec)
    if mechanism == "identity":  # which bounds the number of records
        assert small_release.run(path, home).charged
        return
    with pytest.raises(DpdistError, match="without overflow"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert not [entry for entry in ledger.entries() if entry["event"] != "declared"]
