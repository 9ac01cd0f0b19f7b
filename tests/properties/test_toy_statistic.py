"""A statistic is one class and one line: a toy one is planned, released, certified, shown, asked, documented and refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dpdist.domain.numeric_columns import DEVIATION, PRESENCE, SQUARE
from dpdist.operators import Matrix
from dpdist.spec import load
from dpdist.statistics.ratio_intervals import fieller, ratio_error
from dpdist.statistics.statistic import Estimated, Range, Statistic
from dpdist.statistics.statistic_registry import STATISTICS
from tests.support import small_release


class SecondMoment(Statistic):
    """The mean of the squares of a column's amounts."""

    name = "second_moment"
    summands = ((PRESENCE,), (DEVIATION,), (SQUARE,))
    statistic_names = ("second moment",)
    published = statistic_names
    help_text = "asks for the mean of the squares of these amounts, with its interval"
    plural = "counts, deviations, squares and second moments"
    interval = "Fieller 1954, of the mean of squares"

    def compute(
        self, statistic: str, values: Matrix, covariance: Matrix, width: float, ranges: Sequence[Range]
    ) -> Estimated:
        ((low, high),) = ranges
        middle = (low + high) / 2
        rows = np.array([[middle**2, 2 * middle, 1.0], [1.0, 0.0, 0.0]])  # the sum of squares, and the number
        both, joint = rows @ values, rows @ covariance @ rows.T
        first, last = fieller(both, joint, width) or (0.0, high**2)
        return Estimated(statistic, float(both[0] / both[1]), ratio_error(both, joint), max(first, 0.0), last)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATISTICS, SecondMoment.name, SecondMoment())  # the one line


ROWS = 4000
ASKED: dict[str, Any] = {
    "domain": {"work": {"categories": ["a", "b"]}},
    "sums": {"paid": {"from": 0, "to": 8}},
    "workload": [{"marginals": {"of": [["work"]]}, "second_moment": "paid"}],
}


def table() -> pa.Table:
    state = np.random.default_rng(5)
    return pa.table({"work": state.choice(["a", "b"], ROWS), "paid": state.integers(0, 9, ROWS)})


def test_it_is_planned_released_certified_shown_and_asked(home: Path) -> None:
    from flows.commands.cli import app

    done = small_release.run(small_release.write(home.parent / "data", table=table(), **ASKED), home)
    assert done.charged
    assert done.certificate["method"]["asked"] == [
        "counts, deviations, squares and second moments of paid over every combination of values of work"
    ]
    certificate = json.loads((Path(done.folder) / "release.json").read_text())
    assert certificate["variances"] == {"file": "variances.csv", "rows": 2, "interval": SecondMoment.interval}
    records = table().to_pylist()
    truth = {work: np.mean([row["paid"] ** 2 for row in records if row["work"] == work]) for work in "ab"}
    with (Path(done.folder) / "variances.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert (row["group"], row["statistic"]) == ("second moment of paid by work", "second moment")
        assert abs(float(row["value"]) - truth[row["work"]]) < 5 * float(row["standard_error"])  # fails once in 10^6 seeds
        assert float(row["low_95"]) < float(row["value"]) < float(row["high_95"])
    for answer, row in zip(done.ask("second moment of paid by work"), rows, strict=True):
        assert answer.value == pytest.approx(float(row["value"]), rel=1e-3)
    assert "second moment of paid by work" in (Path(done.folder) / "index.html").read_text()
    shown = CliRunner().invoke(app, ["show", str(done.folder), "--json"])
    assert json.loads(shown.output)["certificate"]["variances"]["rows"] == 2


def test_it_is_documented() -> None:
    from docs.generate import spec_page

    assert "`workload[].second_moment`" in spec_page()
    assert "Asks for the mean of the squares of these amounts, with its interval." in spec_page()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": [{**ASKED["workload"][0], "mean": "paid"}]}, "at most one of 'sum', 'mean', 'variance'"),
        ({"workload": [{**ASKED["workload"][0], "second_moment": "age"}]}, "no group of the workload asks for 'paid'"),
        ({"workload": [{**ASKED["workload"][0], "target": 2}]}, "a 'target' is the error of a count or a sum"),
        ({"mechanism": "marginals"}, "this mechanism counts whole records only"),
        (
            {"sums": {"paid": {"from": 0, "to": 2**17}}},
            "a column whose variance, covariance or correlation is asked for has at most",
        ),
    ],
)
def test_it_is_refused_before_anything_is_charged(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    small_release.refused_in_one_line(small_release.write(tmp_path, table=table(), **{**ASKED, **changes}), said)


def test_without_its_line_nobody_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_release.write(tmp_path, table=table(), **ASKED)
    assert load(path).workload.entries[0].statistic.columns == ("paid",)
    monkeypatch.delitem(STATISTICS, "second_moment")
    small_release.refused_in_one_line(path, "second_moment")
