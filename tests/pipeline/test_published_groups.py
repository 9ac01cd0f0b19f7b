"""Every name that ``dpdist show`` prints gives its rows in Python and on the command line: answers, means, variances, quantiles."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

import dpdist as dp
from dpdist.errors import InvalidInput
from dpdist.pipeline.release_run import Release
from flows.commands import cli
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.purchase_releases import AMOUNT, purchases_with_amounts, quantile_release

AMOUNTS = {"amount": {"from": 0, "to": 100, "step": 1, "missing": "drop", "unit": "EUR"}}
WORKLOAD = [
    {"marginals": {"of": [["sex"], ["sex", "work"]]}, "mean": "amount"},
    {"marginals": {"of": [["sex"]]}, "variance": "amount"},
    {"marginals": {"ways": [0, 1]}},
]
ANSWERED = ["sex", "work", "total"]
LEDGER = {"dataset": "small", "cap": {"rho": 100}}
STATISTICS = {
    "mean of amount by sex": 2,
    "mean of amount by sex x work": 6,
    "variance of amount by sex": 2,
    "standard deviation of amount by sex": 2,
    "quantiles of amount by sex": 4,
}


@pytest.fixture
def release(home: Path) -> Release:
    quantiles = {**quantile_release()["quantiles"], "of": {"amount": {**AMOUNT, "missing": "drop"}}}
    spec = quantile_release(sums=AMOUNTS, workload=WORKLOAD, quantiles=quantiles, budget={"rho": 50}, ledger=LEDGER)
    return small_release.run(small_release.write(home.parent / "data", table=purchases_with_amounts(), **spec), home)


def test_every_printed_group_gives_its_rows(
    release: Release, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPDIST_HOME", str(home))
    monkeypatch.chdir(home.parent)
    command = CommandLine(monkeypatch, capsys)
    printed = command("show", str(release.folder), "--limit", "0").out
    for group, rows in STATISTICS.items():
        assert group in printed
        table = release[group]
        assert table.arrow.num_rows == rows
        assert set(table.arrow["group"].to_pylist()) == {group}
        shown = command("show", str(release.folder), "--group", group)
        assert shown.code == 0
        assert group in shown.out
        command.captured.readouterr()
        monkeypatch.setattr("sys.argv", ["dpdist", "show", str(release.folder), "--group", group, "--csv"])
        with pytest.raises(SystemExit):
            cli.main()
        assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == rows
    for group in ANSWERED:
        assert group in printed
        assert "answer" in release[group].arrow.column_names
    with pytest.raises(InvalidInput, match="no group 'mean of amount by sx' .did you mean 'mean of amount by sex'"):
        release["mean of amount by sx"]


def test_means_variances_and_quantiles_are_tables(release: Release) -> None:
    means = release.means.pandas()
    assert means.columns.tolist() == ["group", "query", "sex", "work", "mean", "standard_error", "low_95", "high_95"]
    assert means["mean"].between(0, 100).all()
    assert means["sex"].tolist()[:2] == ["f", "m"]
    assert set(release.variances.polars()["statistic"]) == {"variance", "standard deviation"}
    medians = release["quantiles of amount by sex"].pandas().query("at == 0.5").set_index("sex")["value"]
    rows = release.certificate["quantiles"]["rows"]
    assert medians.to_dict() == {row["group"]["sex"]: row["value"] for row in rows if row["at"] == 0.5}
    assert "4 rows: group, sex, of, at, value" in repr(release.quantiles)
    assert "<th>mean</th>" in release.means._repr_html_()


def test_a_release_without_means_says_how_to_ask_for_them(home: Path) -> None:
    release = small_release.run(small_release.write(home.parent / "data"), home)
    with pytest.raises(InvalidInput, match=r"has no means; ask for some with dp\.means"):
        assert release.means
    assert release.statistics == {}


def test_the_package_runs_as_the_command() -> None:
    ended = subprocess.run([sys.executable, "-m", "dpdist", "--version"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.split()[:1]) == (0, ["dpdist"])
    assert dp.__version__ in ended.stdout
