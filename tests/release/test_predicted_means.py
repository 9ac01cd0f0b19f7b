"""What ``dpdist plan`` says of means and variances: the intervals that a release of the assumed records has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from rich.console import Console

from dpdist.session import PlannedRelease
from tests import small
from tests.command_line import CommandLine

RECORDS = 1200
MINUTES = {"from": 0, "to": 240, "unit": "minutes"}


def _assumed() -> pa.Table:
    """Records spread evenly over both groups, with amounts that lie evenly over their range."""
    minutes = np.tile(np.linspace(0, 240, RECORDS // 2), 2)
    return pa.table({"sex": np.repeat(["f", "m"], RECORDS // 2), "minutes": minutes})


def test_predicted_half_widths_are_those_of_releases(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half width depends on the noise in second order only: the mean of ten intervals lies within a twentieth of it."""
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    widths: dict[str, list[float]] = {}
    for release in range(5):
        path = small.write(
            Path("data"), table=_assumed(), release=f"small-{release}", domain={"sex": {"categories": ["f", "m"]}},
            sums={"minutes": MINUTES}, workload=[{"marginals": {"ways": [1]}, name: "minutes"} for name in ("mean", "variance")],
            ledger={"dataset": "small", "cap": {"rho": 10}},
        )  # fmt: skip
        planned = PlannedRelease.read(path)
        folder = planned.publish().folder
        for table in ("means", "variances"):
            for row in pyarrow.csv.read_csv(folder / f"{table}.csv").to_pylist():
                widths.setdefault(row["group"], []).append((row["high_95"] - row["low_95"]) / 2)
    found = {each.group: each for each in planned.statistics(RECORDS).groups}
    assert {name: (each.unit, each.queries) for name, each in found.items()} == {
        "mean of minutes by sex": ("minutes", 2),
        "variance of minutes by sex": ("minutes squared", 2),
        "standard deviation of minutes by sex": ("minutes", 2),
    }
    assert {name: len(each) for name, each in widths.items()} == dict.fromkeys(found, 10)
    for name, each in widths.items():
        assert np.mean(each) == pytest.approx(found[name].half_width, rel=0.05), name


def test_plan_tells_of_means_where_records_are_assumed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    command = CommandLine(monkeypatch, capsys)
    path = small.write(Path("data"), sums={"minutes": MINUTES}, workload=[{"marginals": {"ways": [1]}, "mean": "minutes"}])
    assert "mean of minutes by sex" not in command("plan", str(path)).out
    few, many = (
        {each["group"]: each["half_width"] for each in json.loads(command("plan", str(path), "--records", number, "--json").out)["errors"]}
        for number in ("4", "4000")
    )  # fmt: skip
    assert few["mean of minutes by sex"] == pytest.approx(120), "with few records every mean is possible"
    assert many["mean of minutes by sex"] < few["mean of minutes by sex"] / 10
    assert "mean of minutes by sex 2 ± " in " ".join(command("plan", str(path), "--records", "4000").out.split())


def test_narrow_terminals_cut_no_number(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    monkeypatch.setattr("flows.predictions.out", Console(width=50, highlight=False, markup=False))
    sums = {"person": {"from": 0, "to": 1500}}
    asked = [{"marginals": {"ways": [1, 2]}}, {"marginals": {"of": [["sex"]]}, "mean": "person"}]
    path = small.write(Path("data"), sums=sums, workload=asked)
    (found,) = (each for each in PlannedRelease.read(path).errors.groups if each.group == "sum of person by sex")
    printed = CommandLine(monkeypatch, capsys)("plan", str(path), "--records", "3000").out
    assert f"± {found.half_width:,.4g}" in printed
    assert "…" not in printed.partition("95 %")[2]
