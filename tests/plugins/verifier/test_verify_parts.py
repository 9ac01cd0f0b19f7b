"""Parts of the verifier, each against the same number found without it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from datetime import datetime
from fractions import Fraction
from functools import partial, reduce
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpdist.content.answer_tables import query_names
from dpdist.content.measurement_file import _attribute_facts, _encode_queries
from dpdist.domain import Domain
from dpdist.domain.attributes import Attribute, Level, amounts_attribute
from dpdist.domain.calendar import Times
from dpdist.domain.labels import EvenEdges, even_edges
from dpdist.domain.numeric_columns import Amounts
from dpdist.measurement.sensitivity.column_norms import sensitivity_squared
from dpdist.operators import Dense, Identity, Operator, Prefix
from dpdist.plugins.verifier import verify
from dpdist.statistics.ratio_intervals import without_rounding_errors
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.statistics.sum_statistics import sums_of
from dpdist.strategies import dual_bound
from dpdist.strategies.tables.product_bound import product_weights
from dpdist.workloads import Block, Workload
from dpdist.workloads.predicates import predicates
from dpdist.workloads.product_queries import listed_marginals, products
from dpdist.workloads.range_workloads import cdf, ranges_of
from dpdist.workloads.time_filters import filtered, running_sum, window


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("more", [0, 1], ids=["as many as are compared", "one more"])
def test_columns_are_compared_up_to_the_limit_and_bounded_above_it(
    power: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a single row of numbers all that is recomputed is known; a bound on it promises no more than is true."""
    monkeypatch.setattr(verify, "MOST_PAIRS", 300)
    monkeypatch.setattr(verify, "MOST_COMPARED", 300**2)
    count = verify.MOST_PAIRS + more
    row = np.arange(count) - count // 2
    longest, least, farthest = verify.columns_of(row[None, :], power)
    true_least, true_farthest = int(row[0] * row[-1]) if power == 2 else 0, int(row[-1] - row[0]) ** power
    assert longest == int(np.abs(row).max()) ** power
    if more:
        assert least <= true_least
        assert farthest >= true_farthest
    else:
        assert (least, farthest) == (true_least, true_farthest)


@pytest.mark.parametrize("largest", [9, 2**20, 2**30, 2**34], ids=["small", "products of 40 bits", "of 60", "of 68"])
def test_columns_of_large_numbers_are_compared_exactly(largest: int) -> None:
    """Where their products do not fit into 64 bits, too, and in as many columns as are compared at once and more."""
    matrix = np.random.default_rng(5).integers(-largest, largest + 1, (3, 270))
    numbers = matrix.astype(object)
    inner = numbers.T @ numbers
    own = inner.diagonal()
    longest, least, farthest = verify.columns_of(matrix, 2)
    assert (longest, least) == (max(own), inner.min())
    assert farthest == max(longest, (own[:, None] + own - 2 * inner).max())


def test_a_replaced_record_among_many_cells_is_compared_as_the_release_compares_it() -> None:
    """Dense rows over 1,156 cells were bounded by four times the longest column, and the release's claim called wrong."""
    matrix = np.random.default_rng(6).integers(-(2**28), 2**28, (40, 1156))
    claimed = sensitivity_squared(matrix, Identity(1156), "replace-one")
    assert verify.columns_of(matrix, 2)[2] <= claimed < 4 * verify.columns_of(matrix, 2)[0]


@pytest.mark.parametrize("around", [False, True], ids=["a series", "a circle"])
@pytest.mark.parametrize("seed", range(8))
def test_singular_values_of_filters_sum_to_the_bound_or_more(seed: int, around: bool) -> None:
    """Of filters that reach beyond the end of the series, and around the circle, too; around a circle the sum is known exactly."""
    state = np.random.default_rng(seed)
    steps = int(state.integers(3, 12))
    filters = [
        (state.normal(size=state.integers(1, (1 if around else 4) * steps + 1)), int(state.integers(-steps, steps)), around)
        for _ in range(int(state.integers(1, 4)))
    ]
    stacked = np.vstack([verify.toeplitz(values, lag, steps, around=around) for values, lag, _ in filters])
    true = np.linalg.svd(stacked, compute_uv=False).sum()
    bound = verify.nuclear_norm(filters, steps)
    assert (1 if around else 0.6) * true * (1 - 1e-9) <= bound <= true * (1 + 1e-9)


FULL_ROWS = verify.Rows((0,), (verify.AxisFactor(4, 4),), (), 1.0)
DIRECT: dict[str, tuple[str, int, Callable[[], object]]] = {
    "an identity": ("MOST_NUMBERS", 16, lambda: verify.AxisFactor(4, 4).dense),
    "'measured rows' over all cells": ("MOST_NUMBERS", 16, lambda: FULL_ROWS.dense((4,))),
    "a filter": ("MOST_NUMBERS", 16, lambda: verify.toeplitz(np.ones(2), 0, 4, around=True)),
    "a series": ("MOST_NUMBERS", 8, lambda: verify.nuclear_norm([(np.ones(2), 0, True), (np.ones(3), 0, True)], 4)),
    "a factor of": ("MOST_NUMBERS", 40, lambda: verify.read_factor({}, {"kind": "ranges", "values": 4}, 4).matrix),
    "a factor": ("MOST_CELLS", 3, lambda: verify.ReleaseClaims.reconstruction_weights(
        SimpleNamespace(facts={"strategy": {"directions": []}}), verify.AxisFactor(3, 3), 0, verify.AxisFactor(3, 3, lambda: np.eye(3)))),
    "a table": ("MOST_NUMBERS", 12, lambda: verify.tables([np.arange(4)], [0])),
    "a strategy": ("MOST_NUMBERS", 12, lambda: verify.columns_of(np.ones((3, 4), dtype=np.int64), 2, pairs=False)),
    "a calendar": ("MOST_NUMBERS", 70, lambda: verify.time_texts({"first": "2026-11-29T00:00:00", "every": "day", "steps": 70})),
    "an attribute": ("MOST_NUMBERS", 9, lambda: verify.bin_edges({"even": {"first": 0, "width": 2, "bins": 9}})),
    "intervals": ("MOST_NUMBERS", 8, lambda: verify.interval_texts(verify.AxisFactor(4, 2, lambda: np.eye(2, 4)), "abcd")),
    "the steps of persons": ("MOST_CELLS", 8, lambda: verify.mean_of_chain(np.full(4, 0.25), np.zeros(3), 2, 2)),
}  # fmt: skip
"""What is refused: by which limit, the least of it that lets a call through, and the call."""


@pytest.mark.parametrize("label", DIRECT)
def test_every_limit_refuses_one_more_than_it_allows(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, least, call = DIRECT[label]
    monkeypatch.setattr(verify, name, least)
    call()
    monkeypatch.setattr(verify, name, least - 1)
    with pytest.raises(verify.UncheckedClaim, match=f"^{label.removesuffix(' of')} has "):
        call()


ALIKE = np.ones((4, 4), dtype=np.int64) + 2 * np.eye(4, dtype=np.int64)


@pytest.mark.parametrize("replaced", [0, 1])
@pytest.mark.parametrize("rows", [ALIKE, *(np.random.default_rng(seed).integers(-3, 4, (3, 4)) for seed in range(6))])
def test_persons_in_several_cells_move_rows_as_far_as_any_choice_of_cells_does(rows: np.ndarray, replaced: int) -> None:
    """Of every two persons with k records in each of up to so many cells, of whom one comes, or takes the place of the other."""
    release = SimpleNamespace(rows=rows)
    chosen = [np.array(cells) for cells in product((0, 1), repeat=4)]
    for k, most in product((1, 2), (1, 2, 3, 4, 9)):
        allowed = [cells for cells in chosen if cells.sum() <= most]
        moved = [k * (one - other) for one in allowed for other in (allowed if replaced else chosen[:1])]
        expected = max(int((rows @ move) @ (rows @ move)) for move in moved)
        assert verify.ReleaseClaims.cells_sensitivity(release, k, most, replaced) == expected


def steps_of(rows: np.ndarray, **changes: object) -> SimpleNamespace:
    term = SimpleNamespace(factors=[SimpleNamespace(matrix=rows)], rows=len(rows))
    return SimpleNamespace(**{"terms": [term], "laplace": False, "is_signed": False, "squared": 0, **changes})


@pytest.mark.parametrize("seed", range(6))
def test_persons_in_several_steps_move_rows_as_far_as_any_choice_of_steps_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any rows by all choices, of falling coefficients by the earliest steps, and of rows that meet in sequence alone by chains."""
    state, steps = np.random.default_rng(seed), 7
    falling = np.sort(state.integers(0, 9, steps))[::-1]
    band = np.tril(np.triu(state.integers(-3, 4, (steps, steps)), -2))
    for rows, separations in (
        (np.tril(state.integers(-3, 4, (steps, steps))), (1, 2, 3)),
        (verify.toeplitz(falling, 0, steps, around=False).astype(np.int64), (1, 2, 3)),
        (band, (2, 3)),
    ):
        for k, most, separation in product((1, 2), (1, 2, 3, 9), separations):
            choices = (
                chosen
                for chosen in map(np.flatnonzero, product((0, 1), repeat=steps))
                if 0 < len(chosen) <= most and (np.diff(chosen) >= separation).all()
            )
            expected = max(int((moved := rows[:, chosen].sum(axis=1)) @ moved) for chosen in choices) * k**2
            sign_doubled = 4 if (rows < 0).any() else 2
            for limit in (2**20, 0) if rows is band else (2**20,):
                monkeypatch.setattr(verify, "MOST_SETS", limit)
                one_more, another = (
                    verify.ReleaseClaims.steps_sensitivity(steps_of(rows), k, most, separation, replaced)
                    for replaced in (0, 1)
                )
                assert one_more == expected, (most, separation, limit)
                # a chain takes steps that meet with either sign, as two persons' may
                assert another == sign_doubled * expected if limit else another >= sign_doubled * expected


def test_what_queries_can_count_has_the_signs_of_their_entries() -> None:
    state, seen = np.random.default_rng(37), set()
    for _ in range(60):
        sizes = tuple(state.integers(1, 4, 2).tolist())
        entries = [state.integers(*ends, (2, size)) for ends, size in zip(state.permutation(SIGNS)[:2], sizes, strict=True)]
        factors = tuple(
            verify.AxisFactor(size, 2, lambda each=each: each) for each, size in zip(entries, sizes, strict=True)
        )
        dense = reduce(np.kron, entries)
        low, high = verify.Rows((0, 1), factors, (), 1.0).ends
        assert low == (0 if dense.min() >= 0 else -np.inf)
        assert high == (0 if dense.max() <= 0 else np.inf)
        seen.add((low, high))
    assert len(seen) == 4


SIGNS = [(-2, 0), (0, 3), (-2, 3), (1, 3), (-1, 1), (0, 1)]
"""Ranges of entries, the upper end excluded: no sign, one, or both."""


@pytest.mark.parametrize("number", [400.0, -3.0], ids=["records", "less than none"])
def test_the_covariance_with_a_negated_column_is_the_negated_covariance(number: float) -> None:
    """Its interval is mirrored: the range of a covariance reaches as far below zero as above."""
    values, root = np.array([number, 30.0, -50.0, 9000.0]), np.random.default_rng(1).normal(size=(4, 4))
    joint, flip, spans = root @ root.T * 9.0, np.array([1.0, 1.0, -1.0, -1.0]), [(-10.0, 10.0), (-20.0, 20.0)]
    value, error, low, high = verify.statistic("covariance", values, joint, 1.96, spans)
    mirrored = verify.statistic("covariance", values * flip, joint * np.outer(flip, flip), 1.96, spans)
    assert mirrored == pytest.approx((-value, error, -high, -low))
    assert low < value < high


@pytest.mark.parametrize("name", verify.SUMS)
def test_statistics_and_intervals_are_those_of_the_product(name: str) -> None:
    """Of random sums, with few or no records (a count of zero, too), spreads below zero and correlations beyond one among them."""
    among = next(each for each in STATISTICS.values() if name in each.statistic_names)
    state, spans, ended = np.random.default_rng(5), [(-10.0, 10.0), (-20.0, 20.0)][: among.columns], set[bool]()
    count = len(among.summands)
    for _ in range(200):
        number = float(state.choice([-3.0, 0.0, 2.0, 400.0]))
        moved = (
            float(state.choice([0.0, -1e-12, 1e-12])) if number == 0.0 else 0.0
        )  # by rounding, here and there another way
        values = np.array([number, *(state.normal(size=count - 1) * state.choice([3.0, 3000.0], size=count - 1))])
        root = state.normal(size=(count, count)) * state.choice([0.1, 10.0])
        read = without_rounding_errors(np.array([number + moved, *values[1:]]), root @ root.T)
        found = among.compute(name, read, root @ root.T, 1.96, spans)
        expected = [found.value, found.standard_error, found.low, found.high]
        values[0] -= moved
        told = list(verify.statistic(name, values, root @ root.T, 1.96, spans))
        assert [each is None for each in told] == [each is None for each in expected], values
        assert [each or 0.0 for each in told] == pytest.approx([each or 0.0 for each in expected], 1e-9, 1e-9)
        ended.add(found.standard_error is None)
    assert ended == {True, False}


def some_products(seed: int) -> Workload:
    """Queries of three attributes, of which one may have a single value: each by value, with weights, in prefixes or in sums of amounts."""
    state = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in state.permutation([1, 3, 4] if seed % 2 else [2, 3, 4]))
    kinds, blocks = state.integers(0, 3, 3), list[Block]()
    for axes in [(0, 1), (1, 2), (0, 1, 2)][: int(state.integers(1, 4))]:
        factors: list[Operator] = []
        for axis in axes:
            n, prefix_or_sums = sizes[axis], [Prefix(sizes[axis]), Dense(state.normal(size=(2, sizes[axis])))]
            factors.append([Identity(n), Identity(n), prefix_or_sums[int(state.integers(2))]][int(kinds[axis])])
        scales = tuple(np.full(f.shape[0], 0.5) if kinds[axis] == 1 else None for axis, f in zip(axes, factors, strict=True))
        blocks.append(Block("b", axes, tuple(factors), (), float(state.uniform(0.2, 3)), scales))
    return Workload(Domain.of_shape(sizes), tuple(blocks))


@pytest.mark.parametrize("seed", range(24))
def test_the_bound_of_products_is_what_the_release_proves_and_no_more_than_of_all_cells(seed: int) -> None:
    """An attribute that is asked value by value has no gram; one of a single value, or of one weight for all, is asked otherwise."""
    workload = some_products(seed)
    claimed, weights = product_weights(workload, steps=10)
    axis_weights = [weights.get(axis, np.full(size, 1 / size)) for axis, size in enumerate(workload.domain.shape)]
    groups = [
        verify.Rows(
            block.axes,
            tuple(
                verify.AxisFactor(f.shape[1], f.shape[0], None if isinstance(f, Identity) else f.dense)
                for f in block.factors
            ),
            tuple(
                np.ones(f.shape[0]) if scale is None else scale for f, scale in zip(block.factors, block.scales, strict=True)
            ),
            block.weight,
        )
        for block in workload.blocks
    ]
    release = SimpleNamespace(groups=groups, shape=workload.domain.shape, bound_along=verify.ReleaseClaims.bound_along)
    found = verify.ReleaseClaims.product_bound(release, axis_weights)
    assert found >= claimed * (1 - 1e-6)
    assert found <= dual_bound(workload, reduce(np.kron, axis_weights)) * (1 + 1e-9)


def test_it_trusts_nothing_of_what_it_checks() -> None:
    """NumPy and the standard library are all that it imports, so that anybody can copy the file out."""
    imports = [*ast.walk(ast.parse(Path(verify.__file__).read_text(encoding="utf-8")))]
    modules = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= {*sys.stdlib_module_names, "numpy"}


UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
ATTRIBUTES = {
    "categories": Attribute("a", categories=("f", "m"), missing="not said", other="others", total="all"),
    "categories with other names": Attribute("a", categories=("f", "m"), labels=("women", "men"), missing="drop"),
    "whole numbers": Attribute("a", edges=(-1, 0, 1, 2), outside="clip", missing="unknown"),
    "bins": Attribute("a", edges=(0, 18, 65, 120)),
    "bins with open ends": Attribute("a", edges=(0, 18, 65, 120), outside="clip"),
    "bins of fractions": Attribute("a", edges=(0, 0.25, 2.5e-1 + 1, 1e6), outside="drop"),
    "one bin with open ends": Attribute("a", edges=(0, 18), outside="clip"),
    "two numbers with open ends": Attribute("a", edges=(3, 4, 5), outside="clip"),
    "even bins": Attribute("a", edges=EvenEdges(-6, 3, 40), outside="drop"),
    "even bins with open ends": Attribute("a", edges=EvenEdges(-6, 3, 40), outside="clip", other=None),
    "many numbers": Attribute("a", edges=EvenEdges(5, 1, 30)),
    **{
        f"{steps} {every}s, {outside}": Attribute(
            "a", edges=even_edges(0, 1, steps), outside=outside, times=Times(datetime(2026, 11, 29, 22, 57, 58), steps, every)
        )
        for every in UNITS
        for steps, outside in ((70, "error"), (1, "clip"), (3, "clip"))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_values_are_called_as_the_release_calls_them(name: str) -> None:
    """Read from the file's facts alone; and the number of bins is that of the attribute."""
    attribute = ATTRIBUTES[name]
    facts = json.loads(json.dumps(_attribute_facts(attribute)))
    assert verify.value_texts(facts) == list(attribute.labels)
    verify.check_bins(facts, attribute.size)
    with pytest.raises(verify.WrongClaim, match="bins of a: found"):
        verify.check_bins(facts, attribute.size + 1)


SEX = Attribute("sex", categories=("f", "m", "x"), missing="unknown", levels=(Level("kind", ("one", "two"), (0, 0, 1)),))
DAY = Attribute("day", edges=even_edges(0, 1, 5), times=Times(datetime(2026, 11, 29), 5, "day"))
AGE = Attribute("age", edges=(0, 4, 8, 20), outside="clip")
PAID = amounts_attribute("paid", Amounts(Fraction(0), Fraction(1), 9), None)
TIP = amounts_attribute("tip and tax by day", Amounts(Fraction(0), Fraction(1), 5), None)
COUNTED = (SEX, DAY, AGE)
WHOLE = Domain(COUNTED)
TABLES = listed_marginals(WHOLE, [("sex", "age"), ("kind", "day"), ("kind",), ("age",), ()])
QUERIES = {
    "tables": TABLES,
    "cumulative": cdf(WHOLE, "age", ("sex",)),
    "intervals": ranges_of(WHOLE, ("day", "age"), ("sex",)),
    "some intervals": ranges_of(WHOLE, ("age",), ("sex",), intervals={"age": [(0, 1), (1, 1)]}),
    "filters": filtered(WHOLE, "day", [running_sum(5), window(2, mean=True)], by=("sex",)),
    "around a circle": filtered(WHOLE, "day", [window(2)], circular=True),
    "products": products(WHOLE, {"sex": "values", "age": "prefix", "day": "ranges"}),
    "conditions": predicates(WHOLE, ["age < 4 and sex == 'f'", "sex == 'm'"]),
    **{
        name: sums_of(TABLES, Domain((*COUNTED, PAID, TIP)), STATISTICS[name], columns, scaled=False)
        for name, columns in (
            ("mean", ["paid"]),
            ("variance", ["tip and tax by day"]),
            ("covariance", ["tip and tax by day", "paid"]),
        )
    },
}


@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_called_as_the_release_calls_them(name: str) -> None:
    """The texts of every row of every group, column by column, from what the measurement holds of queries and attributes."""
    workload = QUERIES[name]
    facts, arrays = _encode_queries(workload)
    attributes = json.loads(json.dumps([_attribute_facts(attribute) for attribute in workload.domain.attributes]))
    release: Any = SimpleNamespace(facts={"attributes": attributes}, shape=workload.domain.shape, arrays=arrays)
    release.statistic_in = partial(verify.ReleaseClaims.statistic_in, release)
    for block, group_facts in zip(workload.blocks, facts["groups"], strict=True):
        group = verify.ReleaseClaims.rows_of(release, group_facts, unit=1.0, name=block.name)
        query, columns = query_names(block, workload.domain.columns, 0, block.queries)
        texts = [query.to_pylist(), *(column.to_pylist() for column in columns.values())]
        rows = [dict(zip(("query", *columns), row, strict=True)) for row in zip(*texts, strict=True)]
        expected = list(verify.texts_of_group(release, group, group_facts))
        assert len(expected) == len(rows)
        for number, (row, row_texts) in enumerate(zip(rows, expected, strict=True)):
            row_texts.check(number, row)
            assert None not in row_texts.columns.values() or "conditions" in name or "matrix" in str(group_facts)
            for column in row:
                with pytest.raises(verify.WrongClaim, match=f"row {number}: (query: found|texts beside|{column} is)"):
                    row_texts.check(number, {**row, column: f"{row[column]}x"})


BROKEN: dict[str, Any] = {
    "no number": [0.0, np.nan], "without end": [np.inf, 0.0], "complex": [1j], "of truth": [True],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_arrays_of_anything_but_finite_numbers_are_refused(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "right.npz", values=np.arange(3), weights=np.ones(2, dtype=np.float32), facts=np.array("{}"))
    assert verify.read_arrays(tmp_path / "right.npz").keys() == {"values", "weights", "facts"}
    np.savez(tmp_path / "wrong.npz", values=np.array(BROKEN[name]))
    with pytest.raises(verify.WrongClaim, match="values holds finite numbers"):
        verify.read_arrays(tmp_path / "wrong.npz")


def test_rows_of_three_attributes_are_products_of_large_numbers_beyond_64_bits() -> None:
    factor = verify.AxisFactor(2, 1, lambda: np.array([[2**31, -1]]))
    rows = verify.Rows((0, 1, 2), (factor,) * 3, (np.ones(1),) * 3, 1.0).dense((2, 2, 2))
    exact = [a * b * c for a in (2**31, -1) for b in (2**31, -1) for c in (2**31, -1)]
    assert [int(number) for number in rows[0]] == exact
