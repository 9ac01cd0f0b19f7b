"""What ``dpdist plan`` says of errors: each group in its own unit, as a share of a usual answer, and the budget that a wanted one needs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dpdist.session import PlannedRelease
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.complete_tree import needs_plugin

AMOUNTS = {
    "sums": {"minutes": {"from": 0, "to": 240, "unit": "minutes"}},
    "workload": [{"marginals": {"ways": [1]}}, {"marginals": {"of": [["sex"]]}, "sum": "minutes"}],
}


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("DPDIST_ENGINE", "inline")
    return CommandLine(monkeypatch, capsys)


def test_plan_tells_errors_in_their_own_units(command: CommandLine) -> None:
    path = small_release.write(Path("data"), **AMOUNTS)
    told = json.loads(command("plan", str(path), "--records", "600", "--json").out)["errors"]
    by_group = {each["group"]: each for each in told}
    assert {name: each["unit"] for name, each in by_group.items()} == {
        "age": "records", "sex": "records", "work": "records", "sum of minutes by sex": "minutes"
    }  # fmt: skip
    assert by_group["sex"]["share"] == pytest.approx(by_group["sex"]["half_width"] / 300)
    assert by_group["work"]["share"] == pytest.approx(by_group["work"]["half_width"] / 200)
    assert by_group["sum of minutes by sex"]["share"] is None
    expected = PlannedRelease.read(path).errors
    assert {name: each["half_width"] for name, each in by_group.items()} == {
        each.group: each.half_width for each in expected.groups
    }
    printed = command("plan", str(path)).out
    assert "sum of minutes by sex 2 ± " in printed
    assert "of a usual answer" not in printed
    assert "of a usual answer" in command("plan", str(path), "--records", "600").out


@pytest.mark.parametrize("steps", [3, 30])
def test_a_usual_answer_is_of_whole_windows(command: CommandLine, steps: int) -> None:
    """Where a filter reaches beyond its series no answer is published, so none enters what is usual."""
    days = {"dates": {"from": "2026-01-01", "to": "2026-02-09", "every": "day"}}
    filters = {"of": "day", "by": ["sex"], "apply": [{"window": steps}]}
    path = small_release.write(
        Path("data"), domain={"day": days, "sex": {"categories": ["f", "m"]}}, workload=[{"filters": filters}]
    )
    (told,) = json.loads(command("plan", str(path), "--records", "8000", "--json").out)["errors"]
    assert told["queries"] == 2 * (40 - steps + 1)
    assert told["share"] == pytest.approx(told["half_width"] / (steps * 100))


def test_a_usual_answer_is_the_mean_of_all(command: CommandLine) -> None:
    """Of a longer group than is listed, too."""
    path = small_release.write(Path("data"), domain={"age": {"from": 0, "to": 99}}, workload=[{"cdf": {"of": "age"}}])
    (told,) = json.loads(command("plan", str(path), "--records", "1000", "--json").out)["errors"]
    assert told["share"] == pytest.approx(told["half_width"] / 505)


def test_plan_tells_the_least_budget_of_a_wanted_half_width(command: CommandLine) -> None:
    path = small_release.write(Path("data"))
    found = PlannedRelease.read(path).for_half_width("age x sex", 5)
    assert (
        f"a 95 % half width of age x sex=5 needs rho={float(found.rho or 0):g}"
        in command("plan", str(path), "--half-width", "age x sex=5").out
    )
    for wrong in ("age x sex", "=5", "sex=-1", "sex=x", "sex=nan"):
        refused = command("plan", str(path), "--half-width", wrong)
        assert refused.code == 1
        assert "--half-width is a group of queries and a number, such as 'branch=20'" in refused.err
    assert "no group 'sx' is asked for" in command("plan", str(path), "--half-width", "sx=5").err


@needs_plugin("mechanism.dawa")
def test_errors_that_depend_on_the_data_are_not_told(command: CommandLine) -> None:
    path = small_release.write(Path("data"), mechanism="dawa", budget={"epsilon": 1}, ledger={"dataset": "small", "cap": {"epsilon": 2}},
                       domain={"age": {"from": 0, "to": 11}}, workload=[{"ranges": {"of": ["age"]}}])  # fmt: skip
    told = command("plan", str(path), "--json")
    assert json.loads(told.out)["errors"] == []
    assert command("plan", str(path)).code == 0


@needs_plugin("mechanism.adaptive")
def test_plan_tells_up_to_how_many_records_rounds_would_pay(command: CommandLine) -> None:
    """By errors that are known, of tables of 24, 36 and 6 cells; the mean of |noise| is sqrt(2 / pi) of its deviation."""
    path = small_release.write(Path("data"), workload=[{"marginals": {"ways": [1, 2]}}])
    errors = {each.group: each for each in PlannedRelease.read(path).errors.groups}
    pairs = ("age x sex", "age x work", "sex x work")
    assert [errors[pair].queries for pair in pairs] == [24, 36, 6]
    sums = [errors[pair].queries * errors[pair].half_width / 1.959964 for pair in pairs]
    records = sum(sums) / 3 * math.sqrt(2 / math.pi)
    line = f"adaptive: with fewer than about {float(f'{records:.2g}'):,.0f} records the noise in a table adds up to more than its records"
    assert line in command("plan", str(path)).out
    assert line in command("plan", str(path), "--records", f"{records * 0.99:.3f}").out
    assert line not in command("plan", str(path), "--records", f"{records * 1.01:.3f}").out


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": [{"cdf": {"of": "age"}}]},
        {"workload": [{"marginals": {"ways": [1]}}]},
        {
            "budget": {"epsilon": 1},
            "ledger": {"dataset": "small", "cap": {"epsilon": 2}},
            "workload": [{"marginals": {"ways": [2]}}],
        },
        {"workload": [{"marginals": {"ways": [2]}}], "mechanism": "marginals"},
    ],
    ids=["no tables", "nothing to choose", "Laplace noise", "a mechanism by name"],
)
def test_plan_says_nothing_of_rounds_where_they_cannot_answer(changes: dict[str, Any], command: CommandLine) -> None:
    told = command("plan", str(small_release.write(Path("data"), **changes)))
    assert told.code == 0
    assert "adaptive: with fewer" not in told.out
