"""Releases whose bins have edges that a part of the budget chooses: charged, drawn once, said, and of the records that count."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from dpdist.engine import inline
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.page.domain_text import edges_sentences
from dpdist.pipeline import preprocess
from dpdist.pipeline.preprocess import records_in_parts
from dpdist.planner.release_plan import plan
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.privacy.selection.private_edges import edges_rule
from dpdist.runtime.context import Context, ignore_progress
from dpdist.session import PlannedRelease
from dpdist.spec import load
from dpdist.spec.attributes.numbers import Edges
from dpdist.spec.steps.domain_selection import EdgesChoice, inner_edges
from dpdist.storage.array_store import Store
from tests.case_selection import slow_after_first
from tests.privacy.test_edges import budget_share, chances
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.purchase_releases import BUDGETS
from tests.support.verifier_findings import verifier, wrong_claims

WIDEST = 5000
"""The largest amount: few have more than 300."""
BINS = 5


def payments(many: int = 4000, seed: int = 3) -> pa.Table:
    """Lognormal amounts of persons with up to some records, and their ages."""
    state = np.random.default_rng(seed)
    amounts = np.exp(state.normal(4, 0.8, many)).round(1)
    return pa.table(
        {
            "paid": np.where(state.random(many) < 0.02, np.nan, amounts),
            "age": state.integers(0, 90, many),
            "sex": state.choice(["f", "m"], many),
            "person": state.integers(0, many // 3, many),
        }
    )


def spec_changes(person: bool = True, **changes: Any) -> dict[str, Any]:
    person_options = {"person": {"column": "person", "most_records": 2}} if person else {}
    selection = {"from": 0, "to": WIDEST, "bins": BINS, "share": 0.2}
    paid = {"edges": "private", "selection": selection, "outside": "clip", "missing": "unknown", "unit": "EUR"}
    return {
        "records": {"path": "records.parquet", **person_options},
        "domain": {"paid": paid, "sex": {"categories": ["f", "m"]}},
        "workload": [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "paid"}}],
        **changes,
    }


def written(home: Path, **changes: Any) -> Path:
    return small_release.write(home.parent / "data", table=payments(), **spec_changes(**changes))


@pytest.mark.parametrize(
    ("budget", "neighbours"),
    [
        ("rho", "add-remove"),
        ("pure", "replace-one"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [("delta", "replace-one"), ("pure", "add-remove")]),
    ],
)
def test_edges_are_chosen_charged_and_said(home: Path, budget: str, neighbours: str) -> None:
    done = small_release.run(written(home, person=budget != "delta", neighbours=neighbours, **BUDGETS[budget]), home)
    folder = Path(done.folder)
    facts = json.loads((folder / "release.json").read_text())
    jsonschema.validate(facts, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    (said,) = facts["chosen_edges"]
    first, *inner, last = said["edges"]
    assert (first, last, len(inner)) == (0, WIDEST + 1, BINS - 1)
    amounts = payments()["paid"].to_numpy()
    amounts = np.sort(amounts[~np.isnan(amounts)])
    for place, edge in enumerate(inner, 1):  # the edges are quantiles, of records of whom two of a person count
        assert abs((amounts < edge).mean() - place / BINS) < 0.06
    assert list(done.job.measured.domain.attribute("paid").edges) == said["edges"]
    (sentence,) = edges_sentences(facts)
    assert sentence.startswith("The 5 bins of paid were chosen from the records, by 20% of the budget")
    for said_in in (folder / "index.html", folder / "methodology.html"):
        if said_in.exists():
            assert "no value was learned from the records" not in said_in.read_text()
    assert sentence in (folder / "index.html").read_text()
    with open_ledger(home) as ledger:
        own, before = ledger.receipt("small-1"), ledger.receipt("small-1~edges")
    assert own is not None
    assert before is not None
    loss = done.job.declared_job.guarantee.budget.loss
    together = own.own_loss + before.own_loss
    assert (together.rho, together.pure) == (loss.rho, loss.pure)
    assert (before.own_loss.rho, before.own_loss.pure) == (loss.rho / 5, loss.pure / 5)
    assert Fraction(facts["privacy"]["rho"]) == together.zcdp
    assert wrong_claims(folder) == {}
    assert not [each for each in small_release.verified(home, "small-1") if "the ledger says" in each]


def test_it_is_planned_before_it_is_drawn(home: Path) -> None:
    """The plan is of as many bins as there can be, with the errors that the release has then."""
    path = written(home)
    planned = plan(Context(home, Store(home / "store"), inline(), ignore_progress), load(path))
    assert planned.job.measured.domain.attribute("paid").values == BINS
    (sentence,) = edges_sentences(planned.certificate())
    assert sentence.startswith("Up to 5 bins of paid were chosen")
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1~edges") is None
    done = small_release.run(path, home)
    assert done.certificate["mechanism"]["rmse"] == pytest.approx(planned.certificate()["mechanism"]["rmse"])


def test_a_run_that_goes_on_chooses_nothing_twice(home: Path) -> None:
    path = written(home)
    small_release.reserved(path, home)
    with mock.patch.object(Ledger, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    kept = {name: content for name, content in small_release.tree(home / "store").items() if "edges" in name}
    with mock.patch.object(preprocess, "_write", mock.Mock(side_effect=AssertionError("drawn twice"))):
        done = small_release.run(path, home)
    assert {name: content for name, content in small_release.tree(home / "store").items() if name in kept} == kept != {}
    with open_ledger(home) as ledger:
        assert len([row for row in ledger.entries("small-1~edges") if row["event"] == "reserved"]) == 1
    again = small_release.run(path, home)
    assert (again.charged, again.job.measured.attributes) == (False, done.job.measured.attributes)


def test_several_attributes_each_have_a_charge(home: Path) -> None:
    age = {"edges": "private", "selection": {"from": 0, "to": 89, "bins": 4, "share": 0.1}}
    done = small_release.run(written(home, domain={**spec_changes()["domain"], "age": age}), home)
    assert [(each["of"], each["share"]) for each in done.certificate["chosen_edges"]] == [("paid", 0.2), ("age", 0.1)]
    with open_ledger(home) as ledger:
        receipts = [ledger.receipt(f"small-1{suffix}") for suffix in ("~edges", "~edges-2", "")]
    assert [each and each.own_loss.rho for each in receipts] == [Fraction(1, 50), Fraction(1, 100), Fraction(7, 100)]
    assert wrong_claims(done.folder) == {}


@pytest.mark.parametrize(
    "queries", slow_after_first(1, [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "paid"}}, {"ranges": {"of": ["paid"]}}])
)
def test_a_number_that_all_have_leaves_few_bins(home: Path, queries: dict[str, Any]) -> None:
    """Whatever is found, what was paid for is answered: also a single bin, where all records have the largest number."""
    table = payments(600)
    table = table.set_column(0, "paid", [np.full(600, float(WIDEST))])
    done = small_release.run(
        small_release.write(home.parent / "data", table=table, **spec_changes(workload=[queries], budget={"rho": 0.2})), home
    )
    assert list(done.job.measured.domain.attribute("paid").edges) == [0, WIDEST + 1]


def test_edges_are_different_and_within_the_range() -> None:
    """A bin holds the values up to its quantile; quantiles need not come in order."""
    assert inner_edges([0, 0, 7, 3, 9], 10) == (1, 4, 8)
    assert inner_edges([9, 9], 10) == ()


def choice(path: Path, home: Path) -> tuple[EdgesChoice, Context]:
    found = load(path).next_step
    assert isinstance(found, EdgesChoice)
    return found, Context(home, Store(home / "store"), inline(), ignore_progress)


@pytest.mark.parametrize(
    ("person", "values", "expected"),
    [
        ({}, {}, [2, 2, 1]),
        ({"column": "person"}, {}, [1, 1, 1]),
        ({"column": "person", "most_records": 2}, {}, [2, 2, 1]),
        ({"column": "person", "most_groups": 3}, {}, [1, 1, 1]),  # of each person the first record, whatever its group
        ({}, {"outside": "drop"}, [2, 2, 0]),
        ({}, {"outside": "error", "other": "more"}, [2, 2, 0]),
    ],
)
def test_the_records_that_count_are_those_with_a_number(
    home: Path, person: dict[str, Any], values: dict[str, Any], expected: list[int]
) -> None:
    """A number between two steps counts as the lower one, as bins hold it; one beyond the range as bins take it."""
    table = pa.table(
        {
            "paid": [np.nan, 0.0, 0.4, 0.5, 0.74, 7.0],
            "person": [1, 1, 1, 2, 2, 3],
        }
    )
    paid = {
        "edges": "private",
        "selection": {"from": 0, "to": 1, "step": 0.5, "bins": 2},
        "outside": "clip",
        "missing": "drop",
    }
    paid |= values
    if "other" in values:
        del paid["outside"]
    content = spec_changes(records={"path": "records.parquet", "person": person}, domain={"paid": paid})
    content["workload"] = [{"marginals": {"ways": [1]}}]
    found, context = choice(small_release.write(home.parent / "data", table=table, **content), home)
    assert found.count_records(records_in_parts(context, found.job)).counts.tolist() == expected


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("budget", ["rho", "pure"])
def test_no_pair_of_neighbours_is_told_apart_beyond_the_charge(home: Path, budget: str, neighbours: str) -> None:
    """Files that one person tells apart, counted by the release itself, and the exact chances of all edges together."""
    selection = {"from": 0, "to": 3, "bins": 4, "share": 0.5}
    content = spec_changes(
        domain={"paid": {"edges": "private", "selection": selection}}, neighbours=neighbours, **BUDGETS[budget]
    )
    content["workload"] = [{"marginals": {"ways": [1]}}]
    of_person = list(combinations_with_replacement(range(4), 2))
    path = small_release.write(home.parent / "data", table=payments(9), **content)
    found, context = choice(path, home)

    def counted(persons: tuple[tuple[int, ...], ...]) -> np.ndarray:
        rows = [(number, value) for number, person in enumerate(persons) for value in person]
        table = pa.table({"paid": [float(value) for _, value in rows], "person": [number for number, _ in rows]})
        pa.parquet.write_table(table, path.parent / "records.parquet")
        job = load(path)
        return np.asarray(replace(found, job=job).count_records(records_in_parts(context, job)).counts)

    base = ((0, 3), (1, 1))
    one, used = chances(found.rule, counted(base)), 0.0
    for person in of_person:  # whose third record and those after it do not count
        persons = (*base, (*person, 2, 2)) if neighbours == "add-remove" else (base[0], (*person, 2, 2))
        used = max(used, budget_share(one, chances(found.rule, counted(persons)), found.loss))
    assert 0.1 < used <= 1 + 1e-9
    everyone = counted((*base, (2, 2, 2, 2)))
    assert everyone.sum() == 6
    planted = budget_share(
        one, chances(found.rule, everyone + np.array([0, 0, 30, 0])), found.loss
    )  # had all of them counted
    assert planted > 1


@pytest.mark.parametrize(
    ("selection", "changes", "said"),
    [
        (None, {}, "add 'selection"),
        ({"from": 5, "to": 5}, {}, "'from' must be smaller than 'to'"),
        ({"from": 0, "to": 2, "bins": 9}, {}, "whole number of steps apart"),
        ({"from": 0, "to": 2**21}, {}, "whole number of steps apart"),
        ({"from": 0, "to": 99, "share": 1}, {}, "'share' lies between 0 and 1"),
        ({"from": 0, "to": 99}, {"workload": [{"predicates": ["paid >= 50"]}]}, "nobody knows the bins beforehand"),
        (
            {"from": 0, "to": 99},
            {"postprocess": {"known": [{"count": 9, "where": "paid >= 50"}]}},
            "nobody knows the bins beforehand",
        ),
        (
            {"from": 0, "to": 99},
            {"workload": [{"filters": {"of": "paid", "apply": [{"window": 7}]}}]},
            "nobody knows the bins beforehand",
        ),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    tmp_path: Path, selection: dict[str, Any] | None, changes: dict[str, Any], said: str
) -> None:
    content = spec_changes(**changes)
    content["domain"]["paid"]["selection"] = selection
    if selection is None:
        del content["domain"]["paid"]["selection"]
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, table=payments(), **content))


def test_too_little_budget_is_refused_before_the_charge(home: Path) -> None:
    content = spec_changes()
    content["domain"]["paid"]["selection"]["share"] = 1e-25
    with pytest.raises(InvalidInput, match="so little budget"):
        small_release.run(small_release.write(home.parent / "data", table=payments(), **content), home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1~edges") is None


@pytest.mark.slow
def test_a_plan_says_how_far_edges_may_lie_from_their_ranks(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As often as it says so: with 200 draws of records that all differ, all edges lie within that many of them in at least 95 of 100."""
    monkeypatch.setenv("DPDIST_HOME", str(home))
    printed = CommandLine(monkeypatch, capsys)("plan", str(written(home))).out
    rule = next(each for each, _ in PlannedRelease.read(home.parent / "data" / "release.yaml").plan.job.found_steps).rule
    assert (
        f"edges of 'paid': 95 times of 100 each divides the records between the edges around it within {rule.largest_rank_error:,} "
        in printed
    )
    few = edges_rule(4000, 8, 1, Loss.gaussian(Fraction(1, 100)))
    state, beyond = np.random.default_rng(5), 0
    for _ in range(200):
        counts = np.zeros(4000, dtype=np.int64)
        counts[1000:2000] = 1
        found = [-1, *few.choose_edges(counts, state.bytes(32)), 3999]
        off = 0.0
        for each in few.splits:
            low, high = found[each.number - each.edges_below], found[each.number + each.edges_above + 2]
            part = counts[low + 1 : high + 1].sum()
            off = max(off, abs(counts[low + 1 : found[each.number + 1] + 1].sum() - float(each.record_share) * part) - 1)
        beyond += off > few.largest_rank_error
    assert beyond <= 10
    assert few.largest_rank_error < 500  # of 1,000 records: it says something


def test_no_records_at_all_are_no_reason_to_refuse(home: Path) -> None:
    """An empty file has edges, and answers, as any other, where the spec allows that."""
    content = spec_changes()
    content["records"]["empty"] = "allow"
    done = small_release.run(small_release.write(home.parent / "data", table=payments().slice(0, 0), **content), home)
    (said,) = done.certificate["chosen_edges"]
    assert said["edges"] == sorted(set(said["edges"]))
    assert done.certificate["privacy"]["rho"] == "1/10"
    assert wrong_claims(done.folder) == {}


def test_a_verifier_finds_edges_that_cost_more_than_they_say(home: Path) -> None:
    """A choice that is said to be of another level, which would hide what it cost, and a rate that is too high."""
    folder = Path(small_release.run(written(home), home).folder)
    path = folder / "release.json"
    facts = json.loads(path.read_text())
    for name, value in (("level", 9), ("rate", "9")):
        wrong = json.loads(json.dumps(facts))
        wrong["chosen_edges"][0]["edge_choices"][1][name] = value
        path.chmod(0o600)
        path.write_text(json.dumps(wrong))
        assert verifier().verify(folder)["edges that were chosen"].startswith("wrong")
    wrong = json.loads(json.dumps(facts))
    wrong["chosen_edges"][0]["edges"][2] += 1  # another bin than the one that is counted
    path.write_text(json.dumps(wrong))
    assert "the bins that are counted: found 5 bins with edges 0, " in verifier().verify(folder)["edges that were chosen"]
    path.write_text(json.dumps(facts))
    assert not verifier().verify(folder)["edges that were chosen"].startswith("wrong")


@pytest.mark.parametrize("bins", [1, 12, 13, 40])
def test_a_verifier_names_bins_as_a_method_does(bins: int) -> None:
    edges = [*np.linspace(-1e6, 1e6 / 3, bins + 1)]
    assert Edges.model_validate({"edges": edges}).words().partition(";")[0] == verifier().bins_in_words(edges)


def test_labels_and_levels_need_known_bins(tmp_path: Path) -> None:
    for key, value in (("labels", ["a", "b"]), ("levels", {"wide": [0, 50]})):
        content = spec_changes()
        content["domain"]["paid"][key] = value
        with pytest.raises(InvalidSpec, match="nobody knows the bins of 'edges: private'"):
            load(small_release.write(tmp_path, table=payments(), **content))
