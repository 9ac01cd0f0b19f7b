"""Releases whose bound on the records of a person is chosen by a part of the budget: charged, drawn once, said."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpdist.engine import inline
from dpdist.errors import InvalidSpec
from dpdist.page.truncation_text import bound_loss_sentences
from dpdist.pipeline import preprocess
from dpdist.planner.release_plan import plan
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.purchase_releases import (
    BUDGETS,
    LARGEST_BOUND,
    RELATIONS_AND_BUDGETS,
    bound_release,
    groups_release,
    purchases,
)


def written(home: Path, **changes: Any) -> Path:
    return small_release.write(home.parent / "data", table=purchases(), **bound_release(**changes))


def test_plan_says_that_its_errors_are_those_of_the_largest_bound(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = CommandLine(monkeypatch, capsys)("plan", str(written(home))).out
    assert (
        "above are for the largest bounds that 'most_records: private' may choose; a smaller choice means less noise" in told
    )
    needed = (
        "'most_records: private' sees persons with about equally many records from about 29 on; where the file has few more"
    )
    assert needed in " ".join(told.split())


@pytest.mark.parametrize(("neighbours", "budget"), RELATIONS_AND_BUDGETS)
def test_a_bound_is_chosen_charged_and_said(home: Path, budget: str, neighbours: str) -> None:
    done = small_release.run(written(home, neighbours=neighbours, **BUDGETS[budget]), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    bound, said = facts["privacy"]["most_records_of_one_person"], facts["chosen_bound"]
    assert 1 < bound < LARGEST_BOUND
    assert bound == said["most_records"] == done.job.guarantee.person.most_records
    numbers = np.bincount(purchases()["person"].to_numpy())
    true = (numbers > bound).mean(), np.maximum(numbers - bound, 0).sum() / numbers.sum()
    for truth, name in zip(true, ("persons_beyond", "records_left_out"), strict=True):
        off = (
            3 * (said[name]["high_95"] - said[name]["share"]) + 0.02
        )  # one draw: its 95 % are simulated in tests/statistics
        assert abs(truth - said[name]["share"]) <= off
    assert done.tally.beyond_bound == np.maximum(numbers - bound, 0).sum()
    page = (Path(done.folder) / "index.html").read_text()
    assert f"Counts the first {bound} purchases of each person; 10% of the budget was spent on choosing this number" in page
    unknown = {**facts, "chosen_bound": {**said, "records_left_out": {"share": 0.0, "low_95": 0.0, "high_95": 1.0}}}
    assert "have more, and an unknown share of all purchases" in bound_loss_sentences(unknown)[0]
    assert "hides how much a larger limit would add" in bound_loss_sentences(unknown)[-1]
    assert "Intervals of answers are of the records that count" in page
    with open_ledger(home) as ledger:
        own, choice = ledger.receipt("small-1"), ledger.receipt("small-1~bound")
        assert own is not None
        assert choice is not None
        together = own.own_loss + choice.own_loss
        assert (own.state, choice.state) == ("committed", "committed")
    written_budget = done.job.declared_job.guarantee.budget.loss
    assert (together.rho, together.pure) == (written_budget.rho, written_budget.pure)
    assert choice.own_loss.rho == written_budget.rho / 10
    assert choice.own_loss.pure == written_budget.pure / 10
    assert Fraction(facts["privacy"]["rho"]) == together.zcdp
    said_of_it = small_release.verified(home, "small-1")
    assert not [each for each in said_of_it if "the ledger says" in each]


@pytest.mark.parametrize(("neighbours", "budget"), slow_after_first(1, RELATIONS_AND_BUDGETS))
def test_a_bound_on_groups_is_chosen_charged_and_said(home: Path, budget: str, neighbours: str) -> None:
    table = purchases()
    path = small_release.write(home.parent / "data", table=table, **groups_release(neighbours=neighbours, **BUDGETS[budget]))
    done = small_release.run(path, home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    bound, said = facts["privacy"]["most_groups_of_one_person"], facts["chosen_groups"]
    assert 1 < bound < LARGEST_BOUND
    assert bound == said["most_groups"] == done.job.guarantee.person.most_groups
    pairs = {tuple(row.values()) for row in table.select(["person", "age", "sex", "work"]).to_pylist()}
    numbers = np.bincount([person for person, *_ in pairs])
    true = (numbers > bound).mean(), np.maximum(numbers - bound, 0).sum() / numbers.sum()
    for truth, name in zip(true, ("persons_in_more_groups", "groups_left_out"), strict=True):
        assert abs(truth - said[name]["share"]) <= 3 * (said[name]["high_95"] - said[name]["share"]) + 0.02
    page = (Path(done.folder) / "index.html").read_text()
    assert (
        f"Counts each person in the first {bound} of their groups; 10% of the budget was spent on choosing this number of groups"
        in page
    )
    with open_ledger(home) as ledger:
        own, choice = ledger.receipt("small-1"), ledger.receipt("small-1~bound")
    assert own is not None
    assert choice is not None
    together, whole = own.own_loss + choice.own_loss, done.job.declared_job.guarantee.budget.loss
    assert (together.rho, together.pure) == (whole.rho, whole.pure)
    assert (choice.own_loss.rho, choice.own_loss.pure) == (whole.rho / 10, whole.pure / 10)
    assert Fraction(facts["privacy"]["rho"]) == together.zcdp
    assert not [each for each in small_release.verified(home, "small-1") if "the ledger says" in each]


@pytest.mark.parametrize("mechanism", slow_after_first(1, ["auto", "identity"]))
def test_the_noise_of_every_number_of_groups_is_that_of_its_plan(home: Path, mechanism: str) -> None:
    """For cells measured by themselves the variance grows with the groups, and not with their square."""
    path = small_release.write(home.parent / "data", table=purchases(), **groups_release(mechanism=mechanism))
    context, job = Context(home, Store(home / "store"), inline(), ignore_progress), load(path)
    before = job.next_step
    assert before is not None
    errors = before.errors(partial(preprocess.planned_errors, context, before))
    bounds = [2, 3, 12, LARGEST_BOUND]
    variances = [plan(context, job.with_step_result(bound)).variance for bound in bounds]
    np.testing.assert_allclose(errors.variances[np.searchsorted(before.rule.bin_ends, bounds)], variances, rtol=0.02)
    if mechanism == "identity":
        np.testing.assert_allclose(errors.variances, errors.variances[0] * before.rule.bin_ends, rtol=0.01)


@pytest.mark.parametrize("asking", slow_after_first(1, [bound_release, groups_release]))
def test_a_run_that_goes_on_draws_nothing_twice(home: Path, asking: Callable[[], dict[str, Any]]) -> None:
    """Killed before the draw, after it, and before the measurement: the charge, the noise and the bytes are the same."""
    path = small_release.write(home.parent / "data", table=purchases(), **asking())
    with mock.patch.object(Ledger, "begin_drawing", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        receipt = ledger.receipt("small-1~bound")
        assert receipt is not None
        assert (receipt.state, ledger.receipt("small-1")) == ("reserved", None)  # the charge is there before the draw
    with mock.patch.object(Ledger, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    kept = {name: content for name, content in small_release.tree(home / "store").items() if "bound" in name}
    draws = mock.Mock(side_effect=AssertionError("drawn twice"))
    with mock.patch.object(preprocess, "_write", draws):
        done = small_release.run(path, home)
    assert {name: content for name, content in small_release.tree(home / "store").items() if name in kept} == kept != {}
    assert done.charged
    with open_ledger(home) as ledger:
        spent = [row["facts"]["loss"] for row in ledger.entries("small-1~bound") if row["event"] == "reserved"]
    assert len(spent) == 1
    again = small_release.run(path, home)
    assert not again.charged
    assert again.job.guarantee.person == done.job.guarantee.person


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"selection": None}, "add 'selection"),
        ({"most_records": 5}, "'selection' chooses a bound"),
        ({"column": None}, "name the 'column'"),
        ({"most_groups": 3}, "goes without 'most_groups'"),
        ({"selection": {"share": 1.5, "most": 9}}, "'share' lies between 0 and 1"),
        ({"most_groups": "private"}, "depends on which groups count"),
        ({"most_records": 1, "most_groups": "private", "column": None}, "name the 'column'"),
        ({"most_records": 1, "most_groups": "private", "selection": None}, "'most_groups: private' chooses a bound"),
    ],
)
def test_what_cannot_be_chosen_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    content = bound_release()
    content["records"]["person"] = {k: v for k, v in {**content["records"]["person"], **change}.items() if v is not None}
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, table=purchases(), **content))


def test_a_known_count_of_records_that_a_bound_decides_is_refused(tmp_path: Path) -> None:
    """The whole budget was charged before the count contradicted the noisy records."""
    content = bound_release(postprocess={"known": [{"count": 800}]})
    with pytest.raises(InvalidSpec, match="nobody knows how many these are before the bound is chosen"):
        load(small_release.write(tmp_path, table=purchases(), **content))
