"""Edges of bins, chosen in levels: what neighbours tell apart by the exact chances of all edges together, and how well they divide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.selection.private_edges import EdgeSplit, EdgesRule, Runs, edges_rule
from tests.case_selection import always
from tests.privacy.enumeration import paths, probabilities
from tests.support.verifier_findings import verifier

Records = tuple[int, ...]
Chances = dict[tuple[int, ...], float]
SIZE = 4
BUDGETS = {"pure": Loss.laplace(Fraction(3, 2)), "rho": Loss.gaussian(Fraction(1, 4))}
BINS = (2, 3, 4)


def chances(rule: EdgesRule, counts: np.ndarray) -> Chances:
    """Of all edges together, as the rule chooses them."""
    return probabilities(lambda: tuple(rule.choose_edges(counts, bytes(32))))


def definition(rule: EdgesRule, counts: np.ndarray) -> Chances:
    """The same by the definition: every edge in turn, of the records between those that are known."""
    found: Chances = {}

    def choose(known: dict[int, int], left: tuple[EdgeSplit, ...], so_far: float) -> None:
        if not left:
            key = tuple(known[number] for number in range(len(rule.splits)))
            found[key] = found.get(key, 0.0) + so_far
            return
        split, *others = left
        low = max((step + 1 for number, step in known.items() if number < split.number), default=0)
        high = min((step for number, step in known.items() if number > split.number), default=rule.size - 1)
        values = range(low, high + 1) or [high]
        own = counts[low : high + 1]
        parts, target = split.record_share.denominator, split.record_share.numerator * own.sum()
        scores = [
            -max(parts * counts[low:step].sum() - target, target - parts * counts[low : step + 1].sum()) for step in values
        ]
        weights = np.exp(float(split.rate) * np.array(scores, dtype=np.float64))
        for step, weight in zip(values, weights / weights.sum(), strict=True):
            choose({**known, split.number: step}, tuple(others), so_far * float(weight))

    choose({}, rule.splits, 1.0)
    return found


def budget_share(one: Chances, other: Chances, loss: Loss) -> float:
    """How much of a budget two files use: of a pure epsilon, or by the deltas of the Gaussian that a rho stands for."""
    first, second = (np.array([each[key] for key in one]) for each in (one, other))
    if loss.pure:
        return float(np.abs(np.log(first / second)).max() / loss.pure)
    epsilons = np.linspace(-1.5, 1.5, 7)
    mu, power, least = math.sqrt(2 * loss.rho), np.exp(epsilons), np.maximum(0.0, 1 - np.exp(epsilons))
    delta = stats.norm.cdf(mu / 2 - epsilons / mu) - power * stats.norm.cdf(-mu / 2 - epsilons / mu)
    both = [np.maximum(p - power[:, None] * q, 0).sum(axis=1) for p, q in ((first, second), (second, first))]
    return max(float(((each - least) / (delta - least)).max()) for each in both)


def counted(records: Records) -> np.ndarray:
    return np.bincount(np.array(records, dtype=np.int64), minlength=SIZE).astype(np.int64)


def pairs(moved: int, relation: str) -> Iterator[tuple[Records, Records]]:
    """Files that one unit with so many records tells apart."""
    own = list(combinations_with_replacement(range(SIZE), moved))
    for base in ((), (1, 1, 2), (0,) * 9 + (3,) * 9):
        if relation == "add-remove":
            yield from ((base, base + new) for new in own)
        else:
            yield from ((base + old, base + new) for old in own for new in own if old < new)


def budget_shares(rule: EdgesRule, loss: Loss, moved: int, relation: str) -> Iterator[float]:
    """How much of a budget each pair of neighbours uses."""
    of = cache(lambda records: chances(rule, counted(records)))
    return (budget_share(of(one), of(other), loss) for one, other in pairs(moved, relation))


@pytest.mark.parametrize("relation", always(["replace-one"], ["add-remove", "replace-one"]))
@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("bins", BINS)
def test_no_pair_of_neighbours_is_told_apart_beyond_the_budget(bins: int, kind: str, relation: str) -> None:
    """Units of two records, which may lie on both sides of an edge: all edges together stay within what is charged."""
    loss, times = BUDGETS[kind], 2 if relation == "replace-one" else 1
    rule = edges_rule(SIZE, bins, 2 * times, loss)
    assert 0.2 < max(budget_shares(rule, loss, 2, relation)) <= 1 + 1e-9
    planted = replace(rule, splits=tuple(replace(each, rate=6 * each.rate) for each in rule.splits))
    assert any(each > 1 for each in budget_shares(planted, loss, 2, relation))


def test_a_level_costs_what_one_choice_does() -> None:
    """Of eight bins, three choices see a record: each has a third of the budget, whatever part it is of."""
    rule = edges_rule(100, 8, 1, Loss.laplace(Fraction(3)))
    assert [(each.number, each.level, each.record_share) for each in rule.splits] == [
        (3, 0, Fraction(1, 2)),
        (1, 1, Fraction(1, 2)),
        (0, 2, Fraction(1, 2)),
        (2, 2, Fraction(1, 2)),
        (5, 1, Fraction(1, 2)),
        (4, 2, Fraction(1, 2)),
        (6, 2, Fraction(1, 2)),
    ]
    assert {each.rate for each in rule.splits} == {Fraction(1, 2)}


@pytest.mark.parametrize("bins", [2, 3, 5, 6, 10, 11, 64, 100])
def test_splits_are_those_that_a_verifier_expects(bins: int) -> None:
    """The edges between two others, by levels, in equal parts: written down twice."""
    rule = edges_rule(1000, bins, 1, Loss.gaussian(Fraction(1)))
    assert [(each.number + 1, each.level + 1, each.record_share) for each in rule.splits] == verifier().edge_fractions(
        1, bins - 1
    )
    assert max(each.level for each in rule.splits) + 1 == (bins - 1).bit_length()


@pytest.mark.parametrize("bins", [2, 3, 4, 5])
def test_edges_are_chosen_as_the_definition_says(bins: int) -> None:
    """The exact chances of all edges together, whatever the records."""
    rule = edges_rule(SIZE, bins, 2, Loss.laplace(Fraction(3)))
    for records in ((), (2,), (0, 1, 1, 3), (0, 0, 0, 2, 3), (1,) * 9):
        found, defined = chances(rule, counted(records)), definition(rule, counted(records))
        assert {key for key, chance in defined.items() if chance > 0} == {*found}
        assert found == pytest.approx({key: defined[key] for key in found}, rel=1e-9)
        assert sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize("bins", [4, 5, 8])
def test_a_record_is_in_one_part_of_a_level(bins: int) -> None:
    """Whatever edges were chosen before: of each level the parts that edges are chosen from hold no record twice."""
    rule, records = edges_rule(SIZE, bins, 1, Loss.laplace(Fraction(3))), counted((0, 1, 1, 2, 2, 2, 3))
    level_of, runs_of, seen = {2 * each.number: each.level for each in rule.splits}, Runs.of, list[int]()
    with mock.patch.object(
        Runs, "of", lambda values, counts, size: seen.append(int(counts.sum())) or runs_of(values, counts, size)
    ):
        for path, _ in paths(lambda: seen.clear() or rule.choose_edges(records, bytes(32))):
            levels = [level_of[choice.number] for choice in path.choices]
            inside = np.bincount(levels, weights=seen)
            assert inside[0] == records.sum()
            assert (inside <= records.sum()).all()


@pytest.mark.statistical
def test_drawn_edges_have_the_chances_of_the_definition() -> None:
    rule, counts = edges_rule(SIZE, 3, 1, Loss.laplace(Fraction(2))), counted((0, 1, 1, 3))
    expected = chances(rule, counts)
    many = 1500
    drawn = [tuple(rule.choose_edges(counts, number.to_bytes(32, "big"))) for number in range(many)]
    keys = sorted(expected, key=lambda key: -expected[key])
    shown = keys[:6]
    seen = np.array([*(drawn.count(key) for key in shown), sum(each not in shown for each in drawn)])
    for factor, right in ((1.0, True), (1.6, False), (0.6, False)):
        other = replace(rule, splits=tuple(replace(each, rate=each.rate * Fraction(factor)) for each in rule.splits))
        planted = chances(other, counts)
        wanted = np.array([planted[key] for key in shown])
        p = stats.chisquare(seen, many * np.append(wanted, 1 - wanted.sum())).pvalue
        assert bool(p > 1e-3) == right


def test_edges_divide_many_records_evenly() -> None:
    state = np.random.default_rng(5)
    records = np.minimum(np.exp(state.normal(4, 0.8, 20_000)).astype(np.int64), 9_999)
    counts = np.bincount(records, minlength=10_000).astype(np.int64)
    found = edges_rule(10_000, 10, 1, Loss.gaussian(Fraction(1, 100))).choose_edges(counts, bytes(32))
    upto = np.cumsum(counts)[found] / records.size
    assert np.abs(upto - np.arange(1, 10) / 10).max() < 0.02


def test_a_file_without_records_has_edges_too() -> None:
    """They say nothing, and nothing refuses: whether there are records is not told."""
    rule = edges_rule(SIZE, 4, 1, Loss.laplace(Fraction(1)))
    for number in range(20):
        found = rule.choose_edges(counted(()), number.to_bytes(32, "big"))
        assert found == sorted(found)
        assert 0 <= found[0] <= found[-1] < SIZE


def test_too_little_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="so little budget"):
        edges_rule(SIZE, 2, 2**20, Loss.laplace(Fraction(1, 10**9)))
    monkeypatch.setattr("dpdist.privacy.selection.private_edges.FARTHEST", 4)
    with pytest.raises(InvalidInput, match="so little budget"):
        edges_rule(SIZE, 2, 1, Loss.laplace(Fraction(1)))
