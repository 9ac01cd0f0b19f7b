"""Releases that publish what their declared bounds leave out: charged and drawn once, said beside the answers, right."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import numpy as np
import pytest

from dpdist import engine
from dpdist.errors import BudgetExceeded, InvalidSpec
from dpdist.page.truncation_text import bound_loss_sentences
from dpdist.pipeline import preprocess
from dpdist.planner.error_prediction import standard_errors
from dpdist.planner.release_plan import plan
from dpdist.plugins.truncation_loss.loss_step import TruncationLossMeasurement
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.complete_tree import needs_plugin
from tests.support.purchase_releases import BOUND, BUDGETS, RANGE, loss_release, purchases, purchases_with_amounts


def written(home: Path, **changes: Any) -> Path:
    return small_release.write(home.parent / "data", table=purchases_with_amounts(), **loss_release(**changes))


def near(said: dict[str, float], truth: float, name: str = "share") -> bool:
    """One draw lies within twice its interval; its 95 % are simulated in tests/statistics."""
    return said[name] - 2 * (said[name] - said["low_95"]) <= truth <= said[name] + 2 * (said["high_95"] - said[name])


@pytest.mark.parametrize(
    ("budget", "neighbours"),
    [
        ("rho", "add-remove"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [("delta", "replace-one"), ("pure", "add-remove")]),
    ],
)
def test_what_bounds_leave_out_is_measured_charged_and_said(home: Path, budget: str, neighbours: str) -> None:
    done = small_release.run(written(home, neighbours=neighbours, **BUDGETS[budget]), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    jsonschema.validate(facts, json.loads((Path(__file__).parents[3] / "docs/certificate.schema.json").read_text()))
    table, said = purchases_with_amounts(), facts["left_out"]
    numbers, amounts = np.bincount(table["person"].to_numpy()), table["amount"].to_numpy()
    assert near(said["persons"]["beyond"], (numbers > BOUND).mean())
    lost = np.maximum(numbers - BOUND, 0)
    seen = lost[lost <= said["persons"]["up_to"]].sum()
    assert near(said["persons"]["records"], seen / (seen + np.minimum(numbers, BOUND).sum()))
    outside = np.mean((amounts < RANGE[0]) | (amounts > RANGE[1]))  # of all records: those that count are a random part
    assert near(said["amounts"]["amount"]["outside"], outside)
    page = (Path(done.folder) / "index.html").read_text()
    text = json.dumps([said["amounts"], said["persons"]])  # noisy numbers have no more digits than they can use
    assert max(len(digits) for digits in re.findall(r"\.(\d+)", text)) == 4
    for sentence in bound_loss_sentences(facts):
        assert sentence in page
    assert "Counts the first 3 purchases of each person" in page
    hidden = {**said["persons"], "beyond": {"share": 0.3, "low_95": 0.2, "high_95": 0.4}}
    hidden["records"] = {"share": 0.007, "low_95": 0.0, "high_95": 0.02}  # of whoever has one more, where nobody is seen
    told = bound_loss_sentences({**facts, "left_out": {**said, "persons": hidden}})[0]
    assert "30.0% (20.0% to 40.0%) of the persons have more, and how many of the purchases are not counted is hidden" in told
    assert "0.7%" not in told
    assert "intervals of the records that count" in page or "count of the records that count lies" in page
    with open_ledger(home) as ledger:
        own, before = ledger.receipt("small-1"), ledger.receipt("small-1~left-out")
        assert own is not None
        assert before is not None
        together = own.own_loss + before.own_loss
        assert (own.state, before.state) == ("committed", "committed")
    budgeted = done.job.declared_job.guarantee.budget.loss
    assert (together.rho, together.pure) == (budgeted.rho, budgeted.pure)
    assert (before.own_loss.rho, before.own_loss.pure) == (budgeted.rho / 5, budgeted.pure / 5)
    assert Fraction(facts["privacy"]["rho"]) == together.zcdp
    assert not [each for each in small_release.verified(home, "small-1") if "the ledger says" in each]


def test_a_run_that_goes_on_draws_nothing_twice(home: Path) -> None:
    """Killed before the draw and before the commit: one charge, one draw, the same bytes; a corrected workload keeps them."""
    path = written(home)
    small_release.reserved(path, home)
    with open_ledger(home) as ledger:
        receipt = ledger.receipt("small-1~left-out")
        assert receipt is not None
        assert (receipt.state, ledger.receipt("small-1")) == ("reserved", None)
    with mock.patch.object(Ledger, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    with mock.patch.object(preprocess, "_write", mock.Mock(side_effect=AssertionError("drawn twice"))):
        done = small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert len([row for row in ledger.entries("small-1~left-out") if row["event"] == "reserved"]) == 1
    again = small_release.run(path, home)
    assert (again.charged, small_release.tree(Path(again.folder))) == (False, small_release.tree(Path(done.folder)))


def test_both_charges_must_fit_before_either_is_made(home: Path) -> None:
    once = {"records": {"path": "records.parquet", "person": {"column": "person", "most_records": 1}}}
    small_release.run(small_release.write(home.parent / "other", release="other", table=purchases(seed=9), **once), home)
    with pytest.raises(BudgetExceeded):
        small_release.run(written(home, budget={"rho": 0.16}), home)  # 0.15 are left: enough for either of them alone
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1~left-out") is None


def test_declared_bounds_without_it_say_that_it_is_not_known(home: Path) -> None:
    """And the plan is the same as ever: nothing is charged for what is not asked for."""
    path = written(home, left_out=None)
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    planned = plan(context, load(path))
    context.close()
    assert planned.loss.rho == Fraction(1, 10)
    (said,) = bound_loss_sentences(planned.certificate())
    assert said.startswith("Counts the first 3 purchases of each person; how many do not is not known")


def test_of_persons_in_steps_of_a_series_it_is_measured_too(home: Path) -> None:
    """Of each person two records count in each of two years that are three apart. Only a stream goes without it."""
    person = {"column": "person", "most_records": 2, "participations": 2, "separation": 3}
    series = {
        "domain": {"age": {"from": 0, "to": 11}},
        "sums": {},
        "workload": [{"filters": {"of": "age", "apply": [{"running_sum": True}]}}],
        "records": {"path": "records.parquet", "person": person},
        "mechanism": "auto",
    }
    done, rows = (
        small_release.run(written(home, **series), home),
        purchases_with_amounts().select(["person", "age"]).to_pylist(),
    )
    ages: dict[int, list[int]] = {}
    for row in rows:
        ages.setdefault(row["person"], []).append(row["age"])
    lost = []
    for own in ages.values():
        first = min(own)
        later = [age for age in own if age >= first + 3]
        lost.append(len(own) - min(2, own.count(first)) - min(2, later.count(min(later, default=0))))
    facts = json.loads((Path(done.folder) / "release.json").read_text())["left_out"]["persons"]
    assert near(facts["beyond"], np.mean(np.array(lost) > 0))
    assert near(
        facts["records"],
        sum(each for each in lost if each <= facts["up_to"])
        / (len(rows) - sum(each for each in lost if each > facts["up_to"])),
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"left_out": {"share": 1.5}}, "'share' lies between 0 and 1"),
        ({"left_out": {"most": 0}}, "at least 1 is needed"),
        (
            {"records": {"path": "records.parquet"}, "sums": {}, "workload": [{"marginals": {"ways": [1]}}]},
            "nothing is bounded",
        ),
        (
            {"records": {"path": "records.parquet", "counts": {"column": "age", "of": "visits"}}},
            "nobody knows any more which were counted before, nor whose",
        ),
        (
            {"sums": {"amount": {"from": 0, "to": 40, "most_per_person": 80, "missing": "drop"}}},
            "cuts the amounts of a person down by their sum",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, table=purchases_with_amounts(), **loss_release(**change)))


def test_plan_says_that_it_will_be_measured_and_show_what_was(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, command = written(home), CommandLine(monkeypatch, capsys)
    monkeypatch.setenv("DPDIST_HOME", str(home))
    planned = command("plan", str(path)).out
    assert "of the budget 20% for 'left_out', 80% for the answers " in planned
    assert planned.count("guarantee: rho=") == 1  # more than the answers would charge
    done = small_release.run(path, home)
    shown = command("show", str(done.folder)).out
    assert "Counts the first 3 purchases of each person; " in command("plan", str(path)).out
    assert "Counts the first 3 purchases of each person; " in shown


@needs_plugin("postprocess.consistent_with")
def test_releases_are_combined_with_what_was_measured_beside_each(home: Path) -> None:
    data, tables = home.parent / "data", {"sums": {}, "mechanism": "auto"}
    earlier = loss_release(release="earlier", workload=[{"marginals": {"ways": [0, 1]}}], **tables)
    small_release.write(data, table=purchases_with_amounts(), **earlier).rename(data / "earlier.yaml")
    combined = {
        "workload": [{"marginals": {"ways": [1, 2]}}],
        "postprocess": {"consistent_with": ["earlier.yaml"]},
        **tables,
    }
    small_release.run(data / "earlier.yaml", home)
    done = small_release.run(small_release.write(data, table=purchases_with_amounts(), **loss_release(**combined)), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    assert "earlier" in facts["post_processing"][0]
    assert facts["left_out"]["persons"]
    found, alone = release_folder.load_release(done.folder)[0]["standard_error"].to_numpy(), standard_errors(done.plan)
    assert (found <= alone * (1 + 1e-3)).all()
    assert found.mean() < 0.95 * alone.mean()


def test_nothing_is_measured_that_a_spec_does_not_name(tmp_path: Path) -> None:
    """A spec without the key is the one that says ``left_out: null``, whatever it bounds: the whole budget is for the answers."""
    bounded = {"records": {"path": "records.parquet", "person": {"column": "person"}}}
    content = {key: each for key, each in small_release.spec(**bounded).items() if key != "left_out"}
    without, asked, declined = (
        load({**content, **more}, folder=tmp_path) for more in ({}, {"left_out": {}}, {"left_out": None})
    )
    assert without.guarantee.stated == declined.guarantee.stated != asked.guarantee.stated
    assert (without.guarantee.next_step, declined.guarantee.next_step) == (None, None)
    assert isinstance(asked.guarantee.next_step, TruncationLossMeasurement)
    assert asked.guarantee.next_step.budget_share == Fraction(1, 20)
    laplace = {
        "noise": "laplace",
        "budget": {"epsilon": 1, "delta": 1e-6},
        "ledger": {"dataset": "small", "cap": {"epsilon": 2, "delta": 1e-5}},
    }
    leaving_delta = load({**content, **laplace, "left_out": {}}, folder=tmp_path)
    before = leaving_delta.next_step
    assert before is not None
    assert (before.loss.pure, leaving_delta.without_extra_steps.guarantee.budget.loss.pure) == (
        Fraction(1, 20),
        Fraction(19, 20),
    )
