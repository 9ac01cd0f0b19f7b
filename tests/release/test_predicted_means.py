"""What ``dpdist plan`` says of means and variances: the intervals that a release of the assumed records has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpdist.session import PlannedRelease
from tests import small
from tests.command_line import CommandLine

RECORDS = 1200
MINUTES = {"from": 0, "to": 240, "unit": "minutes"}


def _assumed() -> pa.Table:
    """Records spread evenly over both groups, with amounts that lie evenly over their range."""
    minutes = np.tile(np.linspace(0, 240, RECORDS // 2), 2)
    return pa.table({"sex": np.repeat(["f", "m"], RECORDS // 2), "minutes": minutes})


@pytest.mark.parametrize(
    ("statistic", "told", "unit", "table"),
    [
        ("mean", "mean of minutes by sex", "minutes", "means"),
        ("variance", "variance of minutes by sex", "minutes squared", "variances"),
        ("variance", "standard deviation of minutes by sex", "minutes", "variances"),
    ],
)
def test_predicted_half_widths_are_those_of_releases(
    statistic: str, told: str, unit: str, table: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half width depends on noise only in second order: the mean of eight releases lies within a twentieth of it."""
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    widths = []
    for release in range(8):
        path = small.write(
            Path("data"), table=_assumed(), release=f"small-{release}", domain={"sex": {"categories": ["f", "m"]}},
            sums={"minutes": MINUTES}, workload=[{"marginals": {"ways": [1]}, statistic: "minutes"}],
            ledger={"dataset": "small", "cap": {"rho": 10}},
        )  # fmt: skip
        planned = PlannedRelease.read(path)
        rows = planned.publish()[table].arrow.to_pylist() if release else []
        widths += [(row["high_95"] - row["low_95"]) / 2 for row in rows if row["group"] == told]
    (found,) = (each for each in planned.statistics(RECORDS).groups if each.group == told)
    assert (found.unit, found.queries, found.share) == (unit, 2, None)
    assert np.mean(widths) == pytest.approx(found.half_width, rel=0.05)


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
