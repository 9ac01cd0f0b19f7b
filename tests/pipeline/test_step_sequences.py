"""Releases for which several things are found first, one after the other: each charged with its own share, drawn once, and said."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from dpdist.engine import inline
from dpdist.errors import BudgetExceeded, InvalidSpec
from dpdist.pipeline import preprocess
from dpdist.pipeline.preprocess import records_in_parts
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.verifier_findings import wrong_claims

SHARES = {"~bound": "0.1", "~categories": "0.15", "~range": "0.2", "~left-out": "0.05", "~quantiles": "0.1"}
BUDGETS: dict[str, dict[str, Any]] = {
    "rho": {"budget": {"rho": 1}, "ledger": {"dataset": "small", "cap": {"rho": 1, "selection": 1e-9}}},
    "delta": {
        "budget": {"epsilon": 4, "delta": 1e-6},
        "ledger": {"dataset": "small", "cap": {"epsilon": 5, "delta": 2e-6, "selection": 1e-9}},
    },
    "pure": {"budget": {"epsilon": 4}, "ledger": {"dataset": "small", "cap": {"epsilon": 4}}},
}


def purchases(persons: int = 900, seed: int = 4) -> pa.Table:
    """Persons with several purchases in frequent and rare towns."""
    state = np.random.default_rng(seed)
    number = np.maximum(1, np.exp(state.normal(1, 0.8, persons)).round().astype(int))
    person = np.repeat(np.arange(persons), number)
    towns = [f"town {place}" for place in range(40)]
    weights = 1 / np.arange(1, 41) ** 2
    table = {"town": state.choice(towns, person.size, p=weights / weights.sum()), "person": person}
    amounts = np.exp(state.normal(3, 1, person.size)).round()
    return pa.table(
        {**table, "sex": state.choice(["f", "m"], person.size), "paid": amounts, "wait": state.integers(0, 60, person.size)}
    )


def spec_changes(kind: str = "rho", groups: bool = False, **changes: Any) -> dict[str, Any]:
    """Everything that can be found first; names not by a pure epsilon."""
    own = {"most_groups" if groups else "most_records": "private", "selection": {"share": 0.1, "most": 40}}
    names = {"categories": "private", "selection": {"share": 0.15, "delta": 1e-9, "most": 12}}
    town = {"categories": [f"town {place}" for place in range(8)], "other": "drop"} if kind == "pure" else names
    paid = {"from": 0, "to": "private", "unit": "EUR", "selection": {"share": 0.2, "most": 2000}}
    return {
        "records": {"path": "records.parquet", "person": {"column": "person", **own}},
        "domain": {"town": town, "sex": {"categories": ["f", "m"]}},
        "sums": {"paid": paid},
        "workload": [{"marginals": {"of": [["town"], ["sex"]]}}, {"marginals": {"of": [["sex"]]}, "sum": "paid"}],
        "left_out": {"share": 0.05},
        "quantiles": {"of": {"wait": {"from": 0, "to": 60}}, "by": ["town"], "share": 0.1},
        "mechanism": "identity",
        **BUDGETS[kind],
        **changes,
    }


def written(home: Path, kind: str = "rho", **changes: Any) -> Path:
    return small_release.write(home.parent / "data", table=purchases(), **spec_changes(kind, **changes))


@pytest.mark.parametrize(
    ("budget", "groups", "neighbours"),
    [
        ("rho", False, "add-remove"),
        pytest.param("delta", True, "replace-one", marks=pytest.mark.slow),
        pytest.param("pure", False, "replace-one", marks=pytest.mark.slow),
    ],
)
def test_each_takes_its_share_and_knows_what_was_found_before(
    home: Path, budget: str, groups: bool, neighbours: str
) -> None:
    done = small_release.run(written(home, budget, groups=groups, neighbours=neighbours), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    written_budget = done.job.declared_job.guarantee.budget
    named = budget != "pure"
    whole = written_budget.loss_beside(Fraction(1, 10**9), "l2").rho if named else written_budget.loss.pure
    with open_ledger(home) as ledger:
        receipts = {suffix: ledger.receipt(f"small-1{suffix}") for suffix in ("", *SHARES)}
    assert [suffix for suffix, receipt in receipts.items() if receipt is None] == ([] if named else ["~categories"])
    charged = {suffix: receipt.own_loss for suffix, receipt in receipts.items() if receipt is not None}
    losses = {suffix: loss.rho if named else loss.pure for suffix, loss in charged.items()}
    assert losses == {
        "": whole - sum(each for suffix, each in losses.items() if suffix),
        **{suffix: whole * Fraction(SHARES[suffix]) for suffix in losses if suffix},
    }
    together = sum((loss for suffix, loss in charged.items() if suffix), charged[""])
    assert (Fraction(facts["privacy"]["rho"]), together.failure) == (together.zcdp, Fraction(1, 10**9) * named)
    person = facts["privacy"]
    bound = person["most_groups_of_one_person"] if groups else person["most_records_of_one_person"]
    assert 1 < bound < 40
    assert facts["left_out"]["records"] == bound  # what is measured lies beyond the bound that was chosen
    outside, chosen_end = facts["left_out"]["amounts"]["paid"]["outside"], facts["chosen_ranges"][0]["to"]
    assert outside["low_95"] <= np.mean(purchases()["paid"].to_numpy() > chosen_end) <= outside["high_95"]
    assert chosen_end > 100
    if named:
        towns = done.job.measured.domain.attribute("town").categories
        assert 2 <= facts["selections"][0]["names"] == len(towns) < 12
        assert {row["group"]["town"] for row in facts["quantiles"]["rows"]} == {*towns, "other"}
    assert wrong_claims(done.folder) == {}
    assert not [each for each in small_release.verified(home, "small-1") if "the ledger says" in each]


def test_a_run_that_goes_on_draws_nothing_twice(home: Path) -> None:
    """Killed at every commit: each goes on where the last ended, with the same bytes and one charge each."""
    path, kept = written(home), dict[str, bytes]()
    for _ in SHARES:
        drawn = mock.Mock(side_effect=preprocess._write)
        with (
            mock.patch.object(preprocess, "_write", drawn),
            mock.patch.object(Ledger, "commit", _killed_after(Ledger.commit)),
            pytest.raises(KeyboardInterrupt),
        ):
            small_release.run(path, home)
        assert drawn.call_count == 1
        now = {name: content for name, content in small_release.tree(home / "store").items() if "~" in name}
        assert now | kept == now != kept
        kept = now
    with mock.patch.object(preprocess, "_write", mock.Mock(side_effect=AssertionError("drawn twice"))):
        done = small_release.run(path, home)
        again = small_release.run(path, home)
    assert (done.charged, again.charged) == (True, False)
    assert again.certificate == done.certificate
    with open_ledger(home) as ledger:
        assert all(len([r for r in ledger.entries(f"small-1{each}") if r["event"] == "reserved"]) == 1 for each in SHARES)


@pytest.mark.parametrize("budget", ["rho", pytest.param("delta", marks=pytest.mark.slow), "pure"])
def test_several_of_a_kind_have_a_charge_each(home: Path, budget: str) -> None:
    """Names of two attributes and ranges of two columns: each with a key, a share and a delta of its own."""
    content = spec_changes(
        budget, left_out=None, quantiles=None, records={"path": "records.parquet", "person": {"column": "person"}}
    )
    named = budget != "pure"
    content["sums"]["wait"] = {"from": 0, "to": "private", "selection": {"share": 0.1, "most": 100}}
    content["workload"].append({"marginals": {"of": [["sex"]]}, "mean": "wait"})
    if named:
        content["domain"]["sex"] = {"categories": "private", "selection": {"share": 0.05, "delta": 2e-9, "most": 3}}
        content["ledger"]["cap"] = {**content["ledger"]["cap"], "selection": 3e-9}
    done = small_release.run(small_release.write(home.parent / "data", table=purchases(), **content), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    shares = {"~categories": "0.15", "~categories-2": "0.05"} if named else {}
    shares |= {"~range": "0.2", "~range-2": "0.1"}
    with open_ledger(home) as ledger:
        charged = {suffix: ledger.receipt(f"small-1{suffix}").own_loss for suffix in ("", *shares)}
    written_budget, failure = done.job.declared_job.guarantee.budget, Fraction(3, 10**9) * named
    whole = written_budget.loss_beside(failure, "l2").rho if named else written_budget.loss.pure
    losses = {suffix: loss.rho if named else loss.pure for suffix, loss in charged.items()}
    assert losses == {
        "": whole * (1 - sum(map(Fraction, shares.values()))),
        **{s: whole * Fraction(n) for s, n in shares.items()},
    }
    together = sum(charged.values(), start=done.job.guarantee.budget.loss.__class__())
    assert (Fraction(facts["privacy"]["rho"]), together.failure) == (together.zcdp, failure)
    assert [each["of"] for each in facts["chosen_ranges"]] == ["paid", "wait"]
    assert [each["to"] for each in facts["chosen_ranges"]] == [
        facts["method"]["sums"][name]["to"] for name in ("paid", "wait")
    ]
    if named:
        assert [(each["attribute"], each["delta"]) for each in facts["selections"]] == [("town", 1e-9), ("sex", 2e-9)]
        assert set(done.job.measured.domain.attribute("sex").categories) == {"f", "m"}
    kept = [content for name, content in small_release.tree(home / "store").items() if "~" in name]
    assert len(set(kept)) == len(kept) >= len(shares)
    assert wrong_claims(done.folder) == {}
    assert not [each for each in small_release.verified(home, "small-1") if "the ledger says" in each]


def _killed_after(commit: Any) -> Any:
    def killed(self: Ledger, *given: Any, **more: Any) -> None:
        commit(self, *given, **more)
        raise KeyboardInterrupt

    return killed


def test_all_charges_must_fit_before_any_is_made(home: Path) -> None:
    ledger_of_both = {"dataset": "small", "cap": {"rho": 1, "selection": 2e-9}}
    other = {**spec_changes(ledger=ledger_of_both), "left_out": None, "quantiles": None}
    small_release.run(
        small_release.write(
            home.parent / "other", release="other", table=purchases(seed=9), **{**other, "budget": {"rho": 0.01}}
        ),
        home,
    )
    with pytest.raises(BudgetExceeded):
        small_release.run(written(home, ledger=ledger_of_both), home)
    with open_ledger(home) as ledger:
        assert [ledger.receipt(f"small-1{suffix}") for suffix in SHARES] == [None] * len(SHARES)


def test_shares_are_of_what_the_delta_of_a_selection_leaves(tmp_path: Path) -> None:
    """Names are selected after the bound, and their delta is set aside before it."""
    job = load(small_release.write(tmp_path, table=purchases(), **spec_changes("delta")))
    whole = job.guarantee.budget.loss_beside(Fraction(1, 10**9), "l2").rho
    bound = job.guarantee.next_step
    assert isinstance(bound, BudgetedStep)
    assert [part.rho for part in bound.split_budget(job.guarantee.budget)] == [whole / 10, whole * 9 / 10]
    names = job.with_step_result(3).guarantee.next_step
    assert isinstance(names, BudgetedStep)
    assert names.split_budget(job.with_step_result(3).guarantee.budget)[0].rho == whole * Fraction("0.15")


def test_records_of_any_name_count_for_the_bound_that_is_chosen_before_names(home: Path) -> None:
    """Also where records of other names are dropped once names are selected: until then none is another one's."""
    content = spec_changes(workload=[{"marginals": {"of": [["town"]]}}], sums={})
    content["domain"]["town"]["other"] = "drop"
    job = load(small_release.write(home.parent / "data", table=purchases(), **content))
    before = job.next_step
    assert before is not None
    counted = before.count_records(records_in_parts(Context(home, Store(home / "store"), inline(), ignore_progress), job))
    numbers = np.bincount(purchases()["person"].to_numpy())
    assert counted.counts.tolist() == np.bincount(np.minimum(numbers, 40), minlength=41).tolist()


TOWNS = [{"marginals": {"of": [["town"]]}}]
NAMES = {"categories": "private", "selection": {"share": 0.02, "delta": 1e-10, "most": 1}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"left_out": {"share": 0.5}}, "spend all of the budget"),
        ({"quantiles": {"of": {"wait": {"from": 0, "to": 60}}, "share": 0.5}}, "spend all of the budget"),
        (
            {
                "domain": {"town": NAMES, **{f"town {n}": NAMES for n in range(8)}},
                "workload": TOWNS,
                "sums": {},
                "quantiles": None,
            },
            "'categories: private' of at most 8",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    content = spec_changes(**changes)
    content["workload"] += [{"marginals": {"of": [["sex"]]}, "sum": name} for name in content["sums"] if name != "paid"]
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, table=purchases(), **content))
