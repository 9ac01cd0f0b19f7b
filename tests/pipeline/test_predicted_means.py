"""What ``dpdist plan`` says of means and variances: the intervals that a release of assumed records has."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from dpdist.session import PlannedRelease
from tests.support import small_release
from tests.support.command_line import CommandLine

MINUTES = {"from": 0, "to": 240, "unit": "minutes"}


def test_plan_tells_of_means_where_records_are_assumed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    command = CommandLine(monkeypatch, capsys)
    path = small_release.write(
        Path("data"), sums={"minutes": MINUTES}, workload=[{"marginals": {"ways": [1]}, "mean": "minutes"}]
    )
    assert "mean of minutes by sex 2 ± " not in " ".join(command("plan", str(path)).out.split())
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
    monkeypatch.setattr("flows.commands.plan_output.console", Console(width=50, highlight=False, markup=False))
    sums = {"person": {"from": 0, "to": 1500}}
    asked = [{"marginals": {"ways": [1, 2]}}, {"marginals": {"of": [["sex"]]}, "mean": "person"}]
    path = small_release.write(Path("data"), sums=sums, workload=asked)
    (found,) = (each for each in PlannedRelease.read(path).errors.groups if each.group == "sum of person by sex")
    printed = CommandLine(monkeypatch, capsys)("plan", str(path), "--records", "3000").out
    assert f"± {found.half_width:,.4g}" in printed
    assert "…" not in printed.partition("95 %")[2]


def test_means_are_told_as_they_are_published(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a plan says of means and standard deviations is what the intervals of a release show, whose amounts it was told."""
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    command = CommandLine(monkeypatch, capsys)
    day: dict[str, Any] = {
        "sums": {"minutes": {"from": 0, "to": 240, "unit": "minutes"}},
        "workload": [
            {"marginals": {"of": [["sex"], []]}, "mean": "minutes"},
            {"marginals": {"of": [["sex"]]}, "variance": "minutes"},
        ],
        "budget": {"rho": 5},
        "ledger": {"dataset": "people", "cap": {"rho": 20}},
    }
    amounts = np.tile(np.linspace(30, 90, 1000), 2)
    sexes = pa.array(np.repeat(["f", "m"], 1000))
    table = pa.table({"sex": sexes, "minutes": amounts})
    day["assume"] = {"records": 2000, "amounts": {"minutes": "uniform 30 90"}}
    path = small_release.write(Path("data"), table=table, domain={"sex": {"categories": ["f", "m"]}}, **day)
    told = {each["group"]: each for each in json.loads(command("plan", str(path), "--json").out)["errors"]}
    published = small_release.run(path, home).folder
    means, variances = (list(csv.DictReader((published / f"{name}.csv").open())) for name in ("means", "variances"))
    for group, rows in (
        ("mean of minutes by sex", [row for row in means if row["group"] == "mean of minutes by sex"]),
        ("mean of minutes", [row for row in means if row["group"] == "mean of minutes"]),
        ("variance of minutes by sex", [row for row in variances if row["statistic"] == "variance"]),
        ("standard deviation of minutes by sex", [row for row in variances if row["statistic"] == "standard deviation"]),
    ):
        half = max((float(row["high_95"]) - float(row["low_95"])) / 2 for row in rows)
        assert told[group]["half_width"] == pytest.approx(half, rel=0.05), group
        assert told[group]["unit"] == ("minutes squared" if "variance" in group else "minutes")
    assert told["mean of minutes by sex"]["share"] == pytest.approx(told["mean of minutes by sex"]["half_width"] / 60)
    told_again = json.loads(command("plan", str(path), "--records", "2000", "--json").out)["errors"]
    assert {each["group"]: each for each in told_again} == told
    assert {each.group: each.half_width for each in PlannedRelease.read(path).errors.groups} == {
        group: each["half_width"] for group, each in told.items()
    }
    del day["assume"]
    small_release.write(Path("data"), table=table, domain={"sex": {"categories": ["f", "m"]}}, **day)
    evenly = {
        each["group"]: each for each in json.loads(command("plan", str(path), "--records", "2000", "--json").out)["errors"]
    }
    assert evenly["mean of minutes by sex"]["share"] is None
    for group in (
        "mean of minutes by sex",
        "variance of minutes by sex",
    ):  # less noise in the middle of the range than beside it
        assert evenly[group]["half_width"] < told[group]["half_width"]
