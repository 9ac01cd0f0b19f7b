"""Whole answers add up; the nearest ones are the nearest of all that do, and the unbiased ones are right on average."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from dpdist.operators import Groups, Identity, Matrix, Operator, Total
from dpdist.operators.combinators import Padded
from dpdist.operators.range_operators import AllRanges, ListedRanges, Prefix
from dpdist.plugins.whole_numbers import additive_queries, controlled_rounding, query_sums, rounding_cycles
from dpdist.plugins.whole_numbers.additive_queries import joint_tables
from dpdist.plugins.whole_numbers.controlled_rounding import systematic_rounding
from dpdist.plugins.whole_numbers.held_answers import HeldAnswers
from dpdist.plugins.whole_numbers.whole_answers import round_answers
from dpdist.workloads import Block

Release = tuple[list[Block], tuple[int, ...]]


def block(name: str, *factors: tuple[int, Operator]) -> Block:
    axes, operators = zip(*factors, strict=True)
    return Block(name, axes, operators, tuple(range(operator.shape[0]) for operator in operators))


def answers_of(release: Release, cells: Matrix) -> Matrix:
    blocks, shape = release
    return np.concatenate([each.operator(shape).matvec(cells.ravel().astype(np.float64)) for each in blocks])


DISTRICTS = np.array([3, 0, 2, 1, 0, 3, 2, 1, 0, 2])
TREE: Release = (
    [
        block("all", (0, Total(10))),
        block("land", (0, Groups(DISTRICTS // 2, 2))),
        block("county", (0, Groups(DISTRICTS, 4))),
        block("district", (0, Identity(10))),
    ],
    (10,),
)
TABLE: Release = (
    [block("both", (0, Identity(3)), (1, Identity(4))), block("rows", (0, Identity(3))), block("columns", (1, Identity(4)))],
    (3, 4),
)
GEOGRAPHY: Release = (
    [
        block("county by age", (0, Groups(DISTRICTS, 4)), (1, Identity(3))),
        block("district by age", (0, Identity(10)), (1, Identity(3))),
        block("district", (0, Identity(10))),
        block("land", (0, Groups(DISTRICTS // 2, 2))),
    ],
    (10, 3),
)
DAYS: Release = (
    [
        block("days", (0, Identity(12))),
        block("weeks", (0, ListedRanges(12, np.array([[0, 2], [3, 6], [7, 11]])))),
        block("months", (0, ListedRanges(12, np.array([[0, 4], [5, 11]])))),
        block("until", (0, Prefix(12))),
        block("spans", (0, AllRanges(12))),
    ],
    (12,),
)
PAIRS: Release = (
    [block(f"{a}{b}", (a, Identity(4)), (b, Identity(4))) for a, b in itertools.combinations(range(3), 2)],
    (4, 4, 4),
)
APART: Release = ([block("rows", (0, Identity(5))), block("columns", (1, Identity(3))), block("all", (0, Total(5)))], (5, 3))
MISSING: Release = ([block("until", (0, Padded(Prefix(6), 1))), block("all", (0, Total(7)))], (7,))
RELEASES = {
    "missing": MISSING,
    "tree": TREE,
    "table": TABLE,
    "geography": GEOGRAPHY,
    "days": DAYS,
    "pairs": PAIRS,
    "apart": APART,
}
HELD = {name: release for name, release in RELEASES.items() if name != "pairs"}


@pytest.fixture(params=["few cells", "many cells"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Few cells are rounded exactly, many by a local search: both on the same tables."""
    if request.param == "many cells":
        monkeypatch.setattr(additive_queries, "MOST_EXACT", 0)
    return str(request.param)


def sums_of(release: Release, values: Matrix) -> Iterator[tuple[Matrix, Matrix]]:
    """Every group of answers, and what the cells that answers determine, found by least squares, add up to."""
    blocks, shape = release
    rows = np.concatenate([each.operator(shape).rows(0, each.queries) for each in blocks])
    cells = np.linalg.lstsq(rows, values, rcond=None)[0]
    yield values, rows @ cells


@pytest.mark.parametrize("rule", ["nearest", "unbiased"])
@pytest.mark.parametrize("name", RELEASES)
def test_whole_answers_add_up_and_zeros_stay(name: str, rule: additive_queries.Rule, size: str) -> None:
    release, state = RELEASES[name], np.random.default_rng(5)
    blocks, shape = release
    for draw in range(5):
        cells = state.gamma(0.4, 4.0, shape) * (state.random(shape) < 0.7)
        before = answers_of(release, cells)
        made = round_answers(blocks, shape, before, rule, draw)
        assert (made.values == np.rint(made.values)).all()
        assert made.values.min() >= 0
        assert (made.values[np.abs(before) < 1e-9] == 0).all()
        assert np.abs(made.values - before).max() <= made.deviation + 1e-9
        assert made.apart == ()
        assert made.deviation == 1.0 or name == "pairs"
        for values, added_up in sums_of(release, made.values):
            np.testing.assert_allclose(values, added_up, atol=1e-8)
    assert (
        round_answers(blocks, shape, before, rule, 7).values.tolist()
        == round_answers(blocks, shape, before, rule, 7).values.tolist()
    )


def test_kinds_of_tables() -> None:
    kinds = {name: [table.kind for table in joint_tables(*release)] for name, release in RELEASES.items()}
    assert kinds == {
        "missing": ["ranges"],
        "tree": ["ranges"], "table": ["two trees"], "geography": ["two trees"], "days": ["ranges"], "pairs": ["other"],
        "apart": ["ranges", "ranges"],
    }  # fmt: skip


FEW = {
    "tree": (
        [block("all", (0, Total(5))), block("land", (0, Groups(DISTRICTS[:5] // 2, 2))), block("leaf", (0, Identity(5)))],
        (5,),
    ),
    "table": (
        [block("both", (0, Identity(2)), (1, Identity(4))), block("r", (0, Identity(2))), block("c", (1, Identity(4)))],
        (2, 4),
    ),
}


@pytest.mark.parametrize("name", FEW)
def test_the_nearest_is_the_nearest_of_all(name: str) -> None:
    """Against every table of whole cells that are a floor or a ceiling."""
    blocks, shape = FEW[name]
    state = np.random.default_rng(2)
    rows = np.concatenate([each.operator(shape).rows(0, each.queries) for each in blocks])
    for _ in range(10):
        cells = state.gamma(0.6, 3.0, math.prod(shape))
        before = rows @ cells
        all_cells = np.floor(cells) + np.array(list(itertools.product((0, 1), repeat=cells.size)))
        errors = ((all_cells @ rows.T - before) ** 2).sum(axis=1)
        is_controlled = (np.abs(all_cells @ rows.T - before) < 1).all(axis=1)
        made = round_answers(blocks, shape, before, "nearest", 0)
        assert ((made.values - before) ** 2).sum() == pytest.approx(errors[is_controlled].min())


def test_systematic_rounding_is_unbiased_for_every_range() -> None:
    """The mean over all u: between the fractions of the sums nothing changes, so that it is a finite sum."""
    values = np.random.default_rng(4).gamma(0.6, 3.0, 9)
    breaks = np.sort(np.concatenate([[0.0, 1.0], (-np.cumsum(values)) % 1.0]))
    middles, lengths = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks)
    rounded = np.array([systematic_rounding(values, u) for u in middles])
    np.testing.assert_allclose(lengths @ rounded, values, atol=1e-12)
    sums = np.concatenate([[0], np.cumsum(values)])
    for whole in rounded:
        whole_sums = np.concatenate([[0], np.cumsum(whole)])
        gaps = (whole_sums[:, None] - whole_sums) - (sums[:, None] - sums)
        assert np.abs(gaps).max() < 1


@pytest.mark.parametrize("name", ["table", "geography"])
def test_cycles_are_unbiased(name: str) -> None:
    """Means of many seeds, in standard errors; and the check rejects a rounding that is biased."""
    release, draws = RELEASES[name], 150
    blocks, shape = release
    before = answers_of(release, np.random.default_rng(6).gamma(0.6, 3.0, shape))
    made = np.array([round_answers(blocks, shape, before, "unbiased", seed).values for seed in range(draws)])
    fractions = before - np.floor(before)
    errors = np.sqrt(np.maximum(fractions * (1 - fractions), 1e-3) / draws)
    assert np.abs((made.mean(axis=0) - before) / errors).max() < 4.5
    nearest = round_answers(blocks, shape, before, "nearest", 0).values
    assert np.abs((nearest - before) / errors).max() > 4.5


def held_answers(of: Block, count: float) -> HeldAnswers:
    return HeldAnswers(of.name, of, np.array([count]))


def test_known_counts_are_held(size: str) -> None:
    """Also where no query asks for them."""
    blocks, shape = TREE
    half = block("land 0", (0, Groups(np.where(DISTRICTS // 2 == 0, 0, -1), 1)))
    cells = np.random.default_rng(8).gamma(0.6, 3.0, 10)
    inside = DISTRICTS // 2 == 0
    cells[inside] *= 7 / cells[inside].sum()
    cells[~inside] *= 12 / cells[~inside].sum()
    before = answers_of(TREE, cells)
    for rule in ("nearest", "unbiased"):
        for seed in range(20):
            made = round_answers(
                [blocks[3]], shape, cells, rule, seed, [held_answers(half, 7.0), held_answers(blocks[0], 19.0)]
            ).values
            assert (made[inside].sum(), made.sum()) == (7, 19)
            assert round_answers(blocks, shape, before, rule, seed, [held_answers(blocks[0], 19.0)]).values[0] == 19


def test_sums_that_share_no_attribute_have_one_total() -> None:
    """Two tables with a series: whichever is rounded first, the others follow its total; and unbiased ones still are."""
    blocks = [
        *TABLE[0], block("series", (2, Identity(5))),
        block("others", (3, Identity(2)), (4, Identity(2))), block("o", (3, Identity(2))), block("p", (4, Identity(2))),
    ]  # fmt: skip
    shape = (*TABLE[1], 5, 2, 2)
    ends = np.cumsum([each.queries for each in blocks])
    before = answers_of((blocks, shape), np.random.default_rng(3).gamma(0.6, 0.5, shape))
    rules: tuple[additive_queries.Rule, ...] = ("nearest", "unbiased")
    made = {
        rule: [round_answers(blocks, shape, before, rule, seed).values for seed in range(1 if rule == "nearest" else 40)]
        for rule in rules
    }
    for values in (*made["nearest"], *made["unbiased"]):
        assert len({float(part.sum()) for part in np.split(values, ends[:-1])}) == 1
    errors = np.maximum(np.std(made["unbiased"], axis=0), 0.05) / np.sqrt(40)
    assert np.abs((np.mean(made["unbiased"], axis=0) - before) / errors).max() < 4.5


@pytest.mark.parametrize("release", [DAYS, PAIRS])
def test_a_total_that_hardly_any_start_has_is_reached(release: Release, size: str) -> None:
    """Another table was rounded to the further one of both whole numbers. One that is neither is refused, which callers catch."""
    blocks, shape = release
    cells = np.full(shape, 10.0)
    cells.flat[0] += 0.01
    (table,) = joint_tables(blocks, shape, [])
    targets = [sums.add_up(cells) for sums in table.sums]
    for total in (cells.sum() - 0.01, cells.sum() + 0.99):
        whole = table.round(cells, targets, "nearest", 0, round(total))
        assert whole.sum() == round(total)
        assert np.abs(whole - cells).max() < 1
    if table.kind == "other":
        with pytest.raises(ArithmeticError, match="the number of records of the others"):
            table.round(cells, targets, "nearest", 0, round(total) + 1)


def test_compiled_and_uncompiled_code_round_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code would read beyond the end of an array without a word."""
    compiled = rounding_cycles._move_cycle
    before = {
        name: answers_of(release, np.random.default_rng(6).gamma(0.6, 3.0, release[1])) for name, release in RELEASES.items()
    }
    monkeypatch.setattr(additive_queries, "MOST_EXACT", 0)
    made = []
    for size, move_cycle in ((10**6, compiled.py_func), (0, compiled)):
        monkeypatch.setattr(rounding_cycles, "_move_cycle", move_cycle)
        monkeypatch.setattr(controlled_rounding, "COMPILED_SIZE", size)
        monkeypatch.setattr(additive_queries, "COMPILED_SIZE", size)
        made.append(
            [round_answers(*release, before[name], "nearest", 1).values.tolist() for name, release in RELEASES.items()]
        )
    assert made[0] == made[1]


def test_what_is_no_sum_is_rounded_by_itself() -> None:
    shape = TREE[1]
    odd = block("half of each", (0, ListedRanges(10, np.array([[0, 4], [3, 8]]))))
    cells = np.random.default_rng(1).gamma(0.6, 3.0, 10)
    before = np.concatenate([answers_of(([odd], shape), cells)])
    made = round_answers([odd], shape, before, "nearest", 0)
    assert made.apart == ("half of each",)
    assert made.deviation == 0.5
    np.testing.assert_array_equal(made.values, np.rint(before))


def test_ranges_beyond_the_limit_are_read_from_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are written down one by one are not looked at there: all ranges of twelve days are rounded by themselves."""
    before = answers_of(DAYS, np.random.default_rng(8).gamma(0.6, 3.0, DAYS[1]))
    assert round_answers(*DAYS, before, "unbiased", 1).apart == ()
    monkeypatch.setattr(query_sums, "DENSE_ENTRIES", 0)
    assert round_answers(*DAYS, before, "unbiased", 1).apart == ("spans",)


def test_a_table_beyond_the_limit_is_rounded_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    before = answers_of(TABLE, np.random.default_rng(9).gamma(0.6, 3.0, TABLE[1]))
    monkeypatch.setattr(additive_queries, "MOST_TABLE_CELLS", 0)
    made = round_answers(*TABLE, before, "nearest", 1)
    assert made.values.tolist() == np.rint(before).tolist()
