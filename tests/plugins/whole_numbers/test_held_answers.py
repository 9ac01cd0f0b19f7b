"""Whole numbers of earlier releases are held exactly where a rounding can, and errors say what that costs."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.operators import Identity, Total
from dpdist.plugins.whole_numbers.additive_queries import Rule
from dpdist.plugins.whole_numbers.held_answers import HeldAnswers, select_held
from dpdist.plugins.whole_numbers.whole_answers import round_answers
from dpdist.workloads import Block
from tests.case_selection import slow_after_first

SHAPE = (3, 4, 2)


def table(*axes: int) -> Block:
    if not axes:
        return Block("total", (0,), (Total(SHAPE[0]),), ((0,),))
    return Block(
        " x ".join(map(str, axes)),
        axes,
        tuple(Identity(SHAPE[axis]) for axis in axes),
        tuple(range(SHAPE[axis]) for axis in axes),
    )


def sums(cells: np.ndarray, block: Block) -> np.ndarray:
    return cells.sum(axis=tuple(axis for axis in range(3) if axis not in block.axes)).ravel()


def answers(cells: np.ndarray, blocks: list[Block]) -> np.ndarray:
    return np.concatenate([sums(cells, block) for block in blocks])


CASES = {
    "a chain": ([table(0, 1, 2), table(0)], [table(0, 1), table(0)]),
    "two trees": ([table(0, 1), table(1, 2)], [table(1)]),
    "a table that adds another attribute": ([table(0, 2)], [table(0, 1)]),
    "all pairs, one of them published": ([table(0, 1), table(0, 2), table(1, 2)], [table(1, 2)]),
    "all pairs, two of them published": ([table(0, 1), table(0, 2), table(1, 2)], [table(0, 1), table(1, 2)]),
}


@pytest.mark.parametrize("rule", ["nearest", "unbiased"])
@pytest.mark.parametrize("name", CASES)
def test_published_numbers_are_held_and_everything_adds_up(name: str, rule: Rule) -> None:
    """Also where the new estimate is far from them, and below zero."""
    blocks, earlier = CASES[name]
    for seed in range(12):
        state = np.random.default_rng(seed)
        cells = state.gamma(1.0, 8.0, SHAPE) if seed % 2 else state.normal(2.0, 5.0, SHAPE)
        before = np.rint(cells + state.normal(0, 4, SHAPE))
        before = np.maximum(before, 0) if seed % 2 else before
        published = [HeldAnswers(f"{block.name} of r", block, sums(before, block)) for block in earlier]
        held, refused = select_held(blocks, SHAPE, [], published)
        assert (len(held), refused) == (len(earlier), {})
        made = round_answers(blocks, SHAPE, answers(cells, blocks), rule, seed, [], held)
        values = dict(
            zip(
                [block.name for block in blocks], np.split(made.values, np.cumsum([b.queries for b in blocks])), strict=False
            )
        )
        for entry in held:  # what both ask for is the same number; what is a sum of it agrees
            if entry.block.name in values:
                np.testing.assert_array_equal(values[entry.block.name], entry.values)
        for block in blocks:
            for other in earlier:
                shared = set(block.axes) & set(other.axes)
                mine = values[block.name].reshape([SHAPE[axis] for axis in block.axes])
                own = sums(before, other).reshape([SHAPE[axis] for axis in other.axes])
                np.testing.assert_array_equal(
                    mine.sum(axis=tuple(p for p, axis in enumerate(block.axes) if axis not in shared)),
                    own.sum(axis=tuple(p for p, axis in enumerate(other.axes) if axis not in shared)),
                )
        assert made.moved is not None
        assert (np.abs(made.values - answers(cells, blocks)) <= made.moved + made.deviation + 1e-6).all()


def test_numbers_that_contradict_each_other_are_refused_with_the_reason() -> None:
    blocks = [table(0, 1)]
    one, other = (
        HeldAnswers(f"0 of {name}", table(0), np.array([5.0, 6.0, last])) for name, last in (("r", 7.0), ("s", 8.0))
    )
    held, refused = select_held(blocks, SHAPE, [], [one, other])
    assert [entry.source for entry in held] == ["0 of r"]
    assert refused == {"0 of s": "they contradict public counts, or what other releases published"}
    known = [HeldAnswers("of all records", table(), np.array([19.0]))]
    assert list(select_held(blocks, SHAPE, known, [one])[1]) == ["0 of r"]
    assert select_held(blocks, SHAPE, [], [HeldAnswers("2 of r", table(2), np.array([1.0, 2.0]))])[0] != []  # the total
    pairs = [table(0, 1), table(0, 2), table(1, 2)]
    numbers = np.rint(np.random.default_rng(1).gamma(2, 9, SHAPE))
    triple = [HeldAnswers(f"{block.name} of r", block, sums(numbers, block)) for block in pairs]
    assert select_held([table(0, 1, 2)], SHAPE, [], triple)[1] == {
        "1 x 2 of r": "no rounding can hold them together with the other numbers that are held"
    }


@pytest.mark.statistical
@pytest.mark.parametrize("histories", slow_after_first(1, [400, 3000]))
def test_errors_and_intervals_say_what_holding_costs(histories: int) -> None:
    """Squares of errors are as large on average as stated ones, within 5 standard errors; intervals cover."""
    state, truth, deviations = np.random.default_rng(4), np.full(12, 40.0), (3.0, 1.0)
    matrix = np.kron(np.eye(3), np.ones(4))  # published: the rows of a table; measured then: its cells
    precision = matrix.T @ matrix / deviations[0] ** 2 + np.eye(12) / deviations[1] ** 2
    covariance = np.linalg.inv(precision)
    blocks = [table(0, 1), table(0)]
    queries = np.concatenate([np.eye(12), matrix])
    errors = np.sqrt(np.einsum("ij,jk,ik->i", queries, covariance, queries))
    squares, stated, covered = [], [], []
    for _ in range(histories):
        rows, cells = matrix @ truth + state.normal(0, deviations[0], 3), truth + state.normal(0, deviations[1], 12)
        estimate = queries @ covariance @ (matrix.T @ rows / deviations[0] ** 2 + cells / deviations[1] ** 2)
        held = [HeldAnswers("0 of r", table(0), np.rint(rows))]
        made = round_answers(blocks, SHAPE, estimate, "nearest", 1, [], held)
        assert made.moved is not None
        off = made.values - queries @ truth
        squares.append(off**2)
        stated.append(errors**2 + made.moved**2)
        covered.append(np.abs(off) <= 1.96 * errors + made.moved + made.deviation)
    rounding = 1 / 12  # of whole numbers, in each square
    excess = np.mean(squares, axis=0) - np.mean(stated, axis=0)
    spread = np.std(np.array(squares) - np.array(stated), axis=0) / np.sqrt(histories)
    assert (np.abs(excess - rounding) < 5 * spread + 0.1).all()
    assert 0.95 <= np.mean(covered) <= 0.999
    assert np.mean(squares, axis=0)[12:] == pytest.approx(
        9 + rounding, rel=0.15 * np.sqrt(3000 / histories)
    )  # those of the first release, which stay
