"""Releases that publish quantiles: charged and drawn once, in groups, of the records that count, with their intervals."""

from __future__ import annotations

import csv
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import numpy as np
import pytest

from dpdist.errors import BudgetExceeded, InvalidInput, InvalidSpec
from dpdist.pipeline import preprocess
from dpdist.plugins.quantiles.quantile_rules import QuantileRule
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.spec import load
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.purchase_releases import AMOUNT, BUDGETS, purchases_with_amounts, quantile_release
from tests.support.verifier_findings import wrong_claims


def written(home: Path, **changes: Any) -> Path:
    return small_release.write(home.parent / "data", table=purchases_with_amounts(), **quantile_release(**changes))


def test_what_was_chosen_is_answered_and_nothing_else_is(home: Path) -> None:
    """By group, by a condition, or several at once; also where the column is no attribute of the tables."""
    done = small_release.run(written(home), home)
    rows = {(each["group"]["sex"], each["at"]): each for each in done.certificate["quantiles"]["rows"]}

    def published_quantile(sex: str, at: float) -> tuple[float, float, float]:
        row = rows[sex, at]
        return row["value"], row["low_95"], row["high_95"]

    medians = done.ask("median of amount by sex")
    assert [(each.group["sex"], (each.value, each.low, each.high)) for each in medians] == [
        (s, published_quantile(s, 0.5)) for s in "fm"
    ]
    (one,) = done.ask("quantile 0.9 of 'amount' where sex=m")
    assert (one.value, one.low, one.high, one.standard_error, one.group) == (*published_quantile("m", 0.9), None, {})
    for other in ("median of amount", "quantile 0.8 of amount by sex", "median of amount by sex where work=a"):
        with pytest.raises(
            InvalidInput, match="chosen by sex at 0.5, 0.9, and no others: ask for 'quantile 0.5 of amount by sex'"
        ):
            done.ask(other)


@pytest.mark.parametrize(
    ("budget", "neighbours"),
    [
        ("pure", "add-remove"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [("delta", "replace-one"), ("rho", "add-remove")]),
    ],
)
def test_quantiles_are_chosen_charged_and_said(home: Path, budget: str, neighbours: str) -> None:
    done = small_release.run(written(home, neighbours=neighbours, **BUDGETS[budget]), home)
    folder = Path(done.folder)
    facts = json.loads((folder / "release.json").read_text())
    jsonschema.validate(facts, json.loads((Path(__file__).parents[3] / "docs/certificate.schema.json").read_text()))
    rows = facts["quantiles"]["rows"]
    assert [(each["group"]["sex"], each["at"]) for each in rows] == [("f", 0.5), ("f", 0.9), ("m", 0.5), ("m", 0.9)]
    table = purchases_with_amounts().to_pandas()
    counting = table.groupby("person", sort=False).head(2)
    for each in rows:
        own = np.sort(counting[counting.sex == each["group"]["sex"]].amount.to_numpy())
        truth = own[int(np.ceil(each["at"] * own.size)) - 1]
        assert each["low_95"] <= truth + 1e-9
        assert truth <= each["high_95"] + 1e-9
    assert abs(rows[0]["value"] - np.median(counting[counting.sex == "f"].amount)) < 4
    with (folder / "quantiles.csv").open() as file:
        assert [float(row["value"]) for row in csv.DictReader(file)] == [each["value"] for each in rows]
    assert f"{rows[0]['value']:,.12g}" in (folder / "index.html").read_text()
    with open_ledger(home) as ledger:
        own_charge, before = ledger.receipt("small-1"), ledger.receipt("small-1~quantiles")
        assert own_charge is not None
        assert before is not None
        together = own_charge.own_loss + before.own_loss
        assert (own_charge.state, before.state) == ("committed", "committed")
    budgeted = done.job.declared_job.guarantee.budget.loss
    assert (together.rho, together.pure) == (budgeted.rho, budgeted.pure)
    assert (before.own_loss.rho, before.own_loss.pure) == (budgeted.rho / 2, budgeted.pure / 2)
    assert Fraction(facts["privacy"]["rho"]) == together.zcdp
    assert not [each for each in small_release.verified(home, "small-1") if "the ledger says" in each]


def test_a_run_that_goes_on_chooses_nothing_twice(home: Path) -> None:
    """Killed before the draw and before the commit: one charge, the same choices; a run of its own from the same key is the same."""
    path = written(home)
    small_release.reserved(path, home)
    with mock.patch.object(Ledger, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    with mock.patch.object(preprocess, "_write", mock.Mock(side_effect=AssertionError("drawn twice"))):
        done = small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert len([row for row in ledger.entries("small-1~quantiles") if row["event"] == "reserved"]) == 1
    again = small_release.run(path, home)
    assert (again.charged, small_release.tree(Path(again.folder))) == (False, small_release.tree(Path(done.folder)))


def test_both_charges_must_fit_before_either_is_made(home: Path) -> None:
    small_release.run(written(home, release="other"), home)
    with pytest.raises(BudgetExceeded):
        small_release.run(written(home, budget={"rho": 0.16}), home)  # 0.15 are left: enough for either of them alone
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1~quantiles") is None


def test_persons_by_group_and_columns_of_the_domain(home: Path) -> None:
    """Of each person one record of each group; the column is an attribute, too; a missing amount is in no quantile."""
    table = purchases_with_amounts()
    amounts = table["amount"].to_pandas().to_numpy(copy=True)
    amounts[::7] = np.nan
    table = table.set_column(table.schema.get_field_index("amount"), "amount", [amounts])
    person = {"column": "person", "most_groups": 2}
    changes: dict[str, Any] = {
        "records": {"path": "records.parquet", "person": person, "count": "persons"},
        "domain": {"sex": {"categories": ["f", "m"]}, "age": {"from": 0, "to": 11}},
        "workload": [{"marginals": {"of": [["sex", "age"]]}}],
        "quantiles": {"of": {"age": {"from": 0, "to": 11}, "amount": {**AMOUNT, "missing": "drop"}}, "share": 0.8},
    }
    done = small_release.run(
        small_release.write(home.parent / "data", table=table, **quantile_release(**changes, **BUDGETS["pure"])), home
    )
    rows = json.loads((Path(done.folder) / "release.json").read_text())["quantiles"]["rows"]
    assert [each["of"] for each in rows] == ["age", "amount"]
    assert 3 <= rows[0]["value"] <= 8
    assert all(each["low_95"] <= each["value"] <= each["high_95"] for each in rows)


def test_quantiles_are_called_as_the_sums_of_their_column(home: Path) -> None:
    sums = {"amount": {"from": 0, "to": 20, "unit": "EUR", "title": "Amount paid", "missing": "drop"}}
    tables = [*quantile_release()["workload"], {"marginals": {"of": [["sex"]]}, "sum": "amount"}]
    plain = {"from": 0, "to": 100}
    done = small_release.run(
        written(home, sums=sums, workload=tables, quantiles={**quantile_release()["quantiles"], "of": {"amount": plain}}),
        home,
    )
    assert "<td>Amount paid (EUR)</td>" in (Path(done.folder) / "index.html").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at": [0.5, 0.5]}, "different shares in rising order"),
        ({"at": [1]}, "between 0 and 1"),
        ({"by": ["town"]}, "'town' does not exist"),
        ({"by": ["sex", "sex"]}, "twice"),
        ({"share": 1}, "'share' lies between 0 and 1"),
        ({"of": {"amount": {**AMOUNT, "from": 0, "to": "private", "selection": {"most": 100}}}}, "to: a number is needed"),
    ],
)
def test_what_cannot_be_chosen_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(
            small_release.write(
                tmp_path,
                table=purchases_with_amounts(),
                **quantile_release(quantiles={**quantile_release()["quantiles"], **change}),
            )
        )


def test_records_without_an_amount_are_refused_before_the_charge(home: Path) -> None:
    table = purchases_with_amounts()
    amounts = table["amount"].to_pandas().to_numpy(copy=True)
    amounts[3] = np.nan
    table = table.set_column(table.schema.get_field_index("amount"), "amount", [amounts])
    with pytest.raises(InvalidSpec, match="'missing: drop'"):
        small_release.run(small_release.write(home.parent / "data", table=table, **quantile_release()), home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1~quantiles") is None


def test_show_and_run_print_them(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spec, command = written(home), CommandLine(monkeypatch, capsys)
    done = small_release.run(spec, home)
    monkeypatch.setenv("DPDIST_HOME", str(home))
    row = json.loads((Path(done.folder) / "release.json").read_text())["quantiles"]["rows"][0]
    for words in (("show", str(done.folder)), ("run", str(spec))):
        text = command(*words).printed
        assert f"{row['value']:,.12g}" in text
        assert "quantiles of amount by sex sex f" in text


def test_quantiles_that_noise_does_not_tell_are_said_to_be_that(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their interval is the whole range: plans say from how many records on it may be less, and no output shows a value."""
    command = CommandLine(monkeypatch, capsys)
    spec = written(home, budget={"rho": 0.0002}, ledger={"dataset": "small", "cap": {"rho": 1}})
    monkeypatch.setenv("DPDIST_HOME", str(home))
    assert re.search(
        r"quantiles of 'amount' need groups of about [\d,]+ records for 0.5, [\d,]+ records for 0.9; of smaller ones the noise does not",
        command("plan", str(spec)).out,
    )
    done = small_release.run(spec, home)
    rows = json.loads((Path(done.folder) / "release.json").read_text())["quantiles"]["rows"]
    assert {(row["low_95"], row["high_95"]) for row in rows} == {(0.0, 5000.0)}
    text = command("show", str(done.folder)).out
    assert text.count("the noise does not tell") == len(rows)
    page = (Path(done.folder) / "index.html").read_text()
    assert page.count("<td>the noise does not tell</td>") == len(rows)
    assert wrong_claims(done.folder) == {}


def test_how_few_records_leave_an_interval_its_whole_range() -> None:
    rule = QuantileRule(Fraction(9, 10), 101, 9, Fraction(1, 100), Fraction(1, 200))
    fewest = rule.fewest_records
    for records, beyond in ((fewest, False), (fewest - 1, True)):
        assert (
            rule.end_margin >= 9 * records
        ) is beyond  # both ends, of which the nearer one is a tenth of the records away


@pytest.mark.parametrize("name", ["of", "at", "value"])
def test_groups_called_like_columns_of_quantiles_stand_in_a_column_of_their_own(name: str, home: Path) -> None:
    table, changes = purchases_with_amounts(), quantile_release()
    spec = small_release.write(
        home.parent / "data",
        table=table.rename_columns([name if column == "sex" else column for column in table.column_names]),
        **{**changes, "domain": {name if each == "sex" else each: of for each, of in changes["domain"].items()},
           "quantiles": {**changes["quantiles"], "by": [name]}},
    )  # fmt: skip
    done = small_release.run(spec, home)
    with (Path(done.folder) / "quantiles.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row[f"attribute_{name}"] for row in rows] == [
        row["group"][name] for row in done.certificate["quantiles"]["rows"]
    ]
    assert ({row["of"] for row in rows}, {row["at"] for row in rows}) == ({"amount"}, {"0.5", "0.9"})
    assert wrong_claims(Path(done.folder)) == {}
