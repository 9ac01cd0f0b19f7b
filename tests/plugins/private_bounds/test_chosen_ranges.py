"""Releases whose largest amount is chosen by a part of the budget: charged, drawn once, said, and with less error than a guess."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from dpdist.engine import inline
from dpdist.errors import InvalidSpec
from dpdist.page.truncation_text import bound_loss_sentences
from dpdist.pipeline import preprocess
from dpdist.plugins.private_bounds.bound_selection import SHAPE, BoundChoice, RangeChoice
from dpdist.plugins.private_bounds.counts_by_size import WHOLES, counts_by_size
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.privacy.step_noise import split_budget
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.stability import Neighbours
from dpdist.storage.array_store import Store
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.purchase_releases import BUDGETS, RELATIONS_AND_BUDGETS, WIDEST, WORK, payments, range_release
from tests.support.verifier_findings import wrong_claims


def written(home: Path, **changes: Any) -> Path:
    return small_release.write(home.parent / "data", table=payments(), **range_release(**changes))


@pytest.mark.parametrize(("neighbours", "budget"), slow_after_first(1, RELATIONS_AND_BUDGETS))
def test_a_range_is_chosen_charged_and_said(home: Path, budget: str, neighbours: Neighbours) -> None:
    done = small_release.run(written(home, person=budget == "rho", neighbours=neighbours, **BUDGETS[budget]), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    said = facts["chosen_ranges"][0]
    assert 100 < said["to"] < WIDEST / 4
    assert facts["method"]["sums"]["paid"]["to"] == said["to"] == done.job.measured.sums["paid"].last
    amounts = payments()["paid"].to_numpy()
    amounts = amounts[amounts >= 0.5]  # nearest step above zero; of persons the first two records, which are any
    true = (amounts > said["to"]).mean(), np.maximum(amounts - said["to"], 0).sum() / amounts.sum()
    for truth, name in zip(true, ("amounts_beyond", "sum_left_out"), strict=True):
        assert abs(truth - said[name]["share"]) <= 3 * (said[name]["high_95"] - said[name]["share"]) + 0.02
    sentence = bound_loss_sentences(facts)[0]
    assert f"paid counts up to {said['to']:,.10g} EUR of each record" in sentence
    unknown = {**facts, "chosen_ranges": [{**said, "sum_left_out": {"share": 0.7, "low_95": 0.0, "high_95": 1.0}}]}
    assert "an unknown share of their sum" in bound_loss_sentences(unknown)[0]
    with open_ledger(home) as ledger:
        own, choice = ledger.receipt("small-1"), ledger.receipt("small-1~range")
        assert own is not None
        assert choice is not None
    loss = done.job.declared_job.guarantee.budget.loss
    choice_made = done.job.declared_job.next_step
    assert choice_made is not None
    part, each = split_budget(loss, Fraction(1, 5))[0], 2 if budget == "rho" else 1
    assert choice_made.rule == counts_by_size(WIDEST, part, neighbours, most_per_person=each, width_divisor=WHOLES)
    assert ((own.own_loss + choice.own_loss).rho, (own.own_loss + choice.own_loss).pure) == (loss.rho, loss.pure)
    assert Fraction(facts["privacy"]["rho"]) == (own.own_loss + choice.own_loss).zcdp
    assert not [each for each in small_release.verified(home, "small-1") if "the ledger says" in each]


@pytest.mark.parametrize("mechanism", slow_after_first(1, ["auto", "identity"]))
@pytest.mark.parametrize("weight", [1, 1000])
def test_errors_are_those_of_the_sums_alone(home: Path, weight: float, mechanism: str) -> None:
    """However much the counts weigh, they do not enter; what is predicted of a sum is what is published of it, as a part of the range."""
    tables = [{"marginals": {"of": [["sex"]]}, "weight": weight}, {"marginals": {"of": [["work"]]}, "sum": "paid"}]
    given = []

    def record_errors(self: Any, counted: Any, draw: Any, errors: Any) -> Any:
        given.append(errors)
        return made(self, counted, draw, errors)

    made = BoundChoice.values_to_store
    with mock.patch.object(BoundChoice, "values_to_store", record_errors):
        done = small_release.run(written(home, workload=tables, mechanism=mechanism), home)
    table, _ = release_folder.load_release(Path(done.folder))
    sums = np.array([row["standard_error"] for row in table.to_pylist() if row["group"].startswith("sum of")])
    last = float(done.job.measured.sums["paid"].last)
    assert given[0].variances[0, -1] == pytest.approx(float(sums @ sums) / last**2, rel=0.01)
    assert given[0].record_loss * WIDEST**2 == pytest.approx(len(WORK) / len(WORK) ** 2)


def with_refunds() -> pa.Table:
    """A tenth of the payments go back."""
    table, state = payments(), np.random.default_rng(8)
    amounts = np.where(state.random(table.num_rows) < 0.1, -np.exp(state.normal(3, 1, table.num_rows)), table["paid"])
    return table.set_column(table.schema.get_field_index("paid"), "paid", pa.array(np.round(amounts)))


def around_zero(statistic: str, **changes: Any) -> dict[str, Any]:
    content = range_release(person=False, **changes)
    content["sums"]["paid"] |= {"from": "private", "selection": {"share": 0.2, "least": -10_000, "most": WIDEST}}
    return content | {"workload": [{"marginals": {"of": [["sex"]]}}, {"marginals": {"of": [["work"]]}, statistic: "paid"}]}


@pytest.mark.parametrize(
    ("budget", "statistic"), [("rho", "sum"), ("pure", "mean"), pytest.param("delta", "sum", marks=pytest.mark.slow)]
)
def test_both_ends_are_chosen_where_amounts_may_be_negative(home: Path, budget: str, statistic: str) -> None:
    content = around_zero(statistic, mechanism="identity", **BUDGETS[budget])
    done = small_release.run(small_release.write(home.parent / "data", table=with_refunds(), **content), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    (said,) = facts["chosen_ranges"]
    assert (said["down_to"], said["up_to"]) == (-10_000, WIDEST)
    assert -WIDEST / 8 < said["from"] < -2
    assert 100 < said["to"] < WIDEST / 4
    (column,) = facts["method"]["sums"].values()
    assert (column["from"], column["to"]) == (said["from"], said["to"])
    amounts = with_refunds()["paid"].to_numpy()
    amounts = amounts[np.abs(amounts) >= 0.5]
    outside = (amounts < said["from"]) | (amounts > said["to"])
    cut = np.abs(amounts - np.clip(amounts, said["from"], said["to"])).sum() / np.abs(amounts).sum()
    for truth, name in ((outside.mean(), "amounts_beyond"), (cut, "sum_left_out")):
        assert abs(truth - said[name]["share"]) <= 3 * (said[name]["high_95"] - said[name]["share"]) + 0.02
    ends = f"{said['from']:,.10g} to {said['to']:,.10g}".replace("-", "−")
    assert f"paid counts from {ends} EUR" in bound_loss_sentences(facts)[0]
    made = done.job.declared_job.next_step
    assert isinstance(made, RangeChoice)
    part = split_budget(done.job.declared_job.guarantee.budget.loss, Fraction(1, 5))[0]
    assert made.rule == counts_by_size(WIDEST, part, "add-remove", most_per_person=1, width_divisor=WHOLES, below=10_000)
    assert wrong_claims(done.folder) == {}


@pytest.mark.parametrize("statistic", ["sum", "mean"])
def test_predicted_errors_are_those_of_the_range_that_is_chosen(home: Path, statistic: str) -> None:
    """Whatever its shape: of sums, those of a plan over that range; of means, as much smaller as the range."""
    context = Context(home, Store(home / "store"), inline(), ignore_progress)
    before = load(small_release.write(home.parent / "data", table=with_refunds(), **around_zero(statistic))).next_step
    assert isinstance(before, RangeChoice)
    planned = partial(preprocess.planned_errors, context, before)
    errors, found = before.errors(planned), before._signed_counts(None)
    sums = {}
    for low, high in ((0, 6), (4, 9), (7, 3), (9, 9)):
        ends = int(found.lowest[low]), int(found.highest[high])
        each, weight = before._sum_errors(planned(ends))[0], max(ends) ** 2 / SHAPE**2
        sums[low, high] = errors.variances[low, high] / (each * weight)  # the plan weighs sums by its own range
    if statistic == "sum":
        assert all(ratio == pytest.approx(1, rel=0.1) for ratio in sums.values())
    assert errors.variances[0, 6] < errors.variances[7, 6] < errors.variances[9, 9]
    assert errors.record_loss * SHAPE**2 == pytest.approx(len(WORK) / len(WORK) ** 2)


@pytest.mark.parametrize(
    ("paid", "changes", "said"),
    [
        ({"selection": None}, {}, "add 'selection"),
        ({"to": 50}, {}, "'selection' chooses a bound"),
        ({"from": 5}, {}, "around zero"),
        ({"from": "private"}, {}, "'from: private' chooses both ends"),
        ({"from": "private", "to": 50, "selection": None}, {}, "'from: private' chooses both ends"),
        ({"from": "private", "selection": {"most": 50, "least": 10}}, {}, "beneath and above zero"),
        ({"from": "private", "step": 3, "selection": {"most": 51, "least": -10}}, {}, "whole numbers of steps"),
        ({"from": "private", "step": 0, "selection": {"most": 51, "least": -10}}, {}, "and 'step' positive"),
        ({"selection": {"most": 50, "least": -10}}, {}, "set 'from: 0', or 'from: private'"),
        ({"most_per_person": WIDEST}, {}, "goes without 'most_per_person'"),
        ({"selection": {"share": 1, "most": WIDEST}}, {}, "'share' lies between 0 and 1"),
        ({"step": 100}, {"workload": [{"marginals": {"of": [["sex"]]}, "variance": "paid"}]}, "sums and means of it alone"),
        ({}, {"workload": [{"marginals": {"of": [["sex"]]}}]}, "no group of the workload asks"),
    ],
)
def test_what_cannot_be_chosen_is_refused(tmp_path: Path, paid: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    content = range_release(**changes)
    given = {**content["sums"]["paid"], **paid}
    content["sums"] = {"paid": {key: each for key, each in given.items() if each is not None}}
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, table=payments(), **content))
