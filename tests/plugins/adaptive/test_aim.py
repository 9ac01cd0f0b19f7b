"""Rounds: what they spend, what one change moves, what is drawn, and whether the intervals of measured tables hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Domain, Layout
from dpdist.errors import InvalidInput, InvalidSpec, StoreError
from dpdist.measurement.integer_measurement import Counts
from dpdist.mechanisms.comparison import compared_mechanisms, exclusion_reasons
from dpdist.plugins.adaptive import aim, model_intervals
from dpdist.plugins.adaptive.adaptive_rounds import adaptive, reason_no_rounds
from dpdist.plugins.adaptive.aim import AimMeasurement, Rounds, aim_measurement
from dpdist.plugins.adaptive.junction_tree import first_holding
from dpdist.plugins.adaptive.measured_tables import MeasuredTables
from dpdist.plugins.adaptive.model_intervals import distance_bound, expected_distances, largest_distances
from dpdist.plugins.nonnegative_answers.posterior_tables import margin
from dpdist.privacy.accounting import Loss
from dpdist.privacy.accounting.laplace_calibration import gaussian_equivalent
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.privacy.noise import Noise
from dpdist.query.published_release import load_published
from dpdist.reconstruction.measured_space import Functionals
from dpdist.stability import Neighbours
from dpdist.storage.objects import parse_location
from dpdist.workloads import Workload, marginals
from tests.support import small_release
from tests.support.adaptive_release import ASKED, WIDE, like
from tests.support.verifier_findings import verifier

SHAPE = (3, 2, 2, 4)
RHO = Fraction(1, 20)


def tables(most: int = 2, shape: tuple[int, ...] = SHAPE) -> Workload:
    """All tables of up to so many attributes."""
    domain = Domain.of_shape(shape)
    return Workload(domain, tuple(block for ways in range(1, most + 1) for block in marginals(domain, ways).blocks))


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def exact(grid: AimMeasurement, cells: np.ndarray) -> np.ndarray:
    """The counted tables of a histogram of all cells."""
    return to_array(grid.exact_values(Counts(ArrayVector(cells.ravel()), Layout(grid.shape)), MEMORY))


def rounds_of(grid: AimMeasurement, cells: np.ndarray, number: int, rho: Fraction = RHO) -> Rounds:
    noise = grid.noise(Loss.gaussian(rho))
    return Rounds(grid, exact(grid, cells), Layout(grid.shape, grid.tables), noise, rho, key(number))


def people(records: int = 900) -> np.ndarray:
    """A histogram in which attributes depend on each other."""
    state = np.random.default_rng(3)
    first = state.integers(0, 3, records)
    codes = [
        first,
        (first + (state.random(records) < 0.3)) % 2,
        state.integers(0, 2, records),
        (first + 1) * (state.random(records) < 0.8),
    ]
    return np.bincount(np.ravel_multi_index(codes, SHAPE), minlength=math.prod(SHAPE)).reshape(SHAPE)


# ---- the charge


def spent(grid: AimMeasurement, number: int, rho: Fraction, *, charged: int | None = None) -> Fraction:
    """The rho of a number of rounds, if ``charged`` of them were paid for: of measuring, and of choosing."""
    paid = number if charged is None else charged
    noise = grid.noise(Loss.gaussian(rho))
    squares = len(grid.one_way_tables) * aim.one_way_weight(grid) ** 2 + number * aim.weight_of_rounds(grid, paid) ** 2
    rate = aim.rate_for(rho * aim.CHOICE_FRACTION / paid, grid.distance)
    each = grid.sensitivity_squared // aim.SQUARED_WEIGHTS_SUM
    return Fraction(each * squares, 2 * noise.scale**2) + number * gaussian_equivalent(rate * grid.distance)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 3])
def test_rounds_spend_what_is_charged_whatever_their_number(neighbours: Neighbours, most: int) -> None:
    grid = aim_measurement(tables(), neighbours, most)
    for rho in (Fraction(1, 10**4), RHO, Fraction(3)):
        for number in range(1, len(grid.importances) + 1):
            assert 0.98 * rho < spent(grid, number, rho) <= rho
            if number > 1:
                assert spent(grid, number, rho, charged=number - 1) > rho  # a planted fault: a round that is not charged


@pytest.mark.parametrize(
    ("neighbours", "most"),
    [("add-remove", 1), ("add-remove", 2), ("replace-one", 1), pytest.param("replace-one", 2, marks=pytest.mark.slow)],
)
def test_one_change_moves_tables_and_scores_by_what_is_charged_at_most(neighbours: Neighbours, most: int) -> None:
    """Every neighbour of a histogram: all sets of up to k records of a person more, or in place of others."""
    workload = tables(3, (2, 2, 2))
    grid, base = aim_measurement(workload, neighbours, most), np.random.default_rng(2).integers(0, 5, (2, 2, 2)) + 2
    one = rounds_of(grid, base, 0)
    measured = grid.read_tables(one.values())
    model = measured.model(one.noise)
    left = list(grid.importances)
    aside = expected_distances(measured.unbiased, left, 3.0)
    here = np.array(one.scores(left, model, aside))
    farthest, longest = np.zeros(len(left)), 0
    for moved in changes(8, most, neighbours == "replace-one"):
        other = rounds_of(grid, base + moved.reshape(2, 2, 2), 0)
        farthest = np.maximum(farthest, np.abs(np.array(other.scores(left, model, aside)) - here))
        for axes in (*grid.one_way_tables, *left):
            apart = one.layout.table(one.counts, axes) - other.layout.table(other.counts, axes)
            longest = max(longest, int((apart**2).sum()))
    assert longest == grid.sensitivity_squared // aim.SQUARED_WEIGHTS_SUM
    reach = np.array([grid.importances[axes] * grid.distance for axes in left])
    assert (farthest <= reach).all()
    assert (farthest > reach / 2).any()  # half the sensitivity, as a planted fault would have it, is exceeded


def changes(cells: int, most: int, replaced: bool) -> Iterator[np.ndarray]:
    ones = np.eye(cells, dtype=np.int64)
    held_by_one = [
        sum(part, np.zeros(cells, dtype=np.int64)) for k in range(most + 1) for part in combinations([*ones] * most, k)
    ]
    for more in held_by_one:
        for less in held_by_one if replaced else held_by_one[:1]:
            yield more - less


def test_rounds_choose_as_the_exponential_mechanism_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores, the rate and the number of every choice, as they reach it: one rate for all, divided by the largest importance."""
    grid, seen = aim_measurement(tables(3), "add-remove", 1), list[Any]()
    choose = aim.choose
    monkeypatch.setattr(aim, "choose", lambda *given: seen.append(given) or choose(*given))
    rounds_of(grid, people(), 1).values()
    rate = aim.rate_for(RHO * aim.CHOICE_FRACTION / len(seen), grid.distance)
    assert {given[1] * max(grid.importances.values()) for given in seen} == {rate}
    assert [given[3] for given in seen] == list(range(len(seen)))
    assert [len(given[0]) for given in seen] == [len(grid.importances) - number for number in range(len(seen))]


# ---- what is measured


def test_the_table_that_is_explained_worst_is_measured_first() -> None:
    """Attributes 0 and 3 depend on each other most; at a large budget rounds begin with them, and measure all pairs."""
    grid = aim_measurement(tables(), "add-remove", 1)
    found = grid.read_tables(rounds_of(grid, people(), 7, Fraction(500)).values())
    assert list(found.weights)[4] == (0, 3)
    assert set(found.weights) == {*grid.one_way_tables, *grid.importances}
    for axes, table in found.unbiased.items():
        np.testing.assert_allclose(table, margin(people(), (0, 1, 2, 3), axes), atol=2)


def coded(size: int = 60, groups: int = 6, records: int = 6000) -> np.ndarray:
    """A histogram of codes of which most are rare, the group that each belongs to, and what half of the records have in common with it."""
    state = np.random.default_rng(6)
    codes = np.minimum((state.pareto(0.8, records) * 2).astype(int), size - 1)
    of = state.integers(0, groups, size)[codes]
    like = np.where(state.random(records) < 0.5, of, state.integers(0, groups, records))
    shape = (size, groups, groups)
    return np.bincount(np.ravel_multi_index((codes, of, like), shape), minlength=math.prod(shape)).reshape(shape)


def noise_alone(tables: Any, wanted: Sequence[tuple[int, ...]], deviation: float) -> dict[tuple[int, ...], int]:
    """What scores left aside before decision 18: the noise of all cells."""
    sizes = {axes[0]: table.size for axes, table in tables.items() if len(axes) == 1}
    each = math.sqrt(2 / math.pi) * deviation
    return {axes: round(each * math.prod(sizes[axis] for axis in axes)) for axes in wanted}


@pytest.mark.parametrize(("aside", "times"), [(expected_distances, 12), (noise_alone, 0)])
def test_rare_values_do_not_keep_a_table_from_being_measured(
    aside: Callable[..., Any], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code says which group it belongs to; cells of rare codes have less in them than noise, which says nothing against the others."""
    cells = coded()
    grid, rho = aim_measurement(tables(2, cells.shape), "add-remove", 1), Fraction(1, 10**4)
    monkeypatch.setattr(aim, "expected_distances", aside)
    first = [list(grid.read_tables(rounds_of(grid, cells, number, rho).values()).weights)[3] for number in range(12)]
    assert abs(first.count((0, 1)) - times) <= 1, first


def test_scores_leave_out_the_noise_of_a_cell_or_the_records_that_it_may_have() -> None:
    """Of ten records four fifths and a fifth have the values of the first attribute, half each of the second: cells of 4, 0 and 1."""
    ones = {(0,): np.array([8.0, -2.0, 2.0]), (1,): np.array([6.0, 6.0])}
    known = {**ones, (0, 1): np.full((3, 2), 1e9)}  # what was measured later is not looked at
    for mean, left_out in ((2.0, 2 + 2 + 1 + 1), (0.5, 4 * 0.5), (1e6, 10)):
        assert expected_distances(known, [(0, 1)], mean / math.sqrt(2 / math.pi)) == {(0, 1): left_out}
    known[(2,)] = np.array([10.0, 0.0])
    assert expected_distances(known, [(0, 1, 2)], 1000 / math.sqrt(2 / math.pi)) == {(0, 1, 2): 12_000}  # noise of all cells


@given(st.lists(st.lists(st.floats(-50, 500), min_size=2, max_size=6), min_size=2, max_size=4), st.floats(0.01, 1000))
def test_what_scores_leave_out_is_at_most_all_noise_and_all_records(ones: list[list[float]], deviation: float) -> None:
    """And verification finds the same from the tables of one attribute."""
    known = {(axis,): np.array(one) for axis, one in enumerate(ones)}
    wanted = [axes for k in (2, 3) for axes in combinations(range(len(ones)), k)]
    records = max(float(np.mean([table.sum() for table in known.values()])), 1.0)
    positive = [np.maximum(table, 0.0) for table in known.values()]
    shares, mean = [table / max(float(table.sum()), 1.0) for table in positive], math.sqrt(2 / math.pi) * deviation
    for axes, left_out in expected_distances(known, wanted, deviation).items():
        assert 0 <= left_out <= min(records if len(axes) == 2 else math.inf, noise_alone(known, [axes], deviation)[axes]) + 1
        assert (
            abs(left_out - verifier().noise_penalty([shares[axis] for axis in axes], records, mean)) <= 0.5 + 1e-6 * left_out
        )


def test_every_round_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, drawn = aim_measurement(tables(), "add-remove", 1), list[tuple[int, int]]()
    draw = Noise.draw

    def recorded(self: Noise, key: bytes, *, start: int = 0, count: int) -> Any:
        drawn.append((start, start + count))
        return draw(self, key, start=start, count=count)

    monkeypatch.setattr(Noise, "draw", recorded)
    values = rounds_of(grid, people(), 2).values()
    assert all(before[1] == after[0] for before, after in zip(drawn, drawn[1:], strict=False))
    assert drawn[-1][1] == values.size - 2 - int(values[0])
    assert len(drawn) == len(grid.one_way_tables) + int(values[0])


def test_the_same_key_gives_the_same_rounds_and_another_others() -> None:
    grid = aim_measurement(tables(3), "add-remove", 1)
    first, again, other = (rounds_of(grid, people(), number).values() for number in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_more_records_and_more_budget_give_more_rounds() -> None:
    grid = aim_measurement(tables(), "add-remove", 1)
    found = [aim.number_of_rounds(grid, records, rho) for records in (10, 1000, 10**6) for rho in (Fraction(1, 1000), RHO)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (len(SHAPE) - 1, len(grid.importances))


# ---- answers


@cache
def covered(draws: int) -> tuple[float, int, float, int]:
    """Of true counts the share that intervals hold, of how many; of measured cells the share within 1.96 deviations, of how many."""
    workload, cells = tables(3), people()
    grid, truth = aim_measurement(workload, "add-remove", 1), workload.matvec(cells.ravel())
    noise, inside, near = grid.noise(Loss.gaussian(RHO)), list[bool](), list[bool]()
    for number in range(draws):
        values = rounds_of(grid, cells, number).values()
        (answer, error, half), _ = grid.columns(workload, values, noise)
        known = ~np.isnan(error)
        assert not known.all()
        inside += ((np.maximum(answer - half, 0) <= truth) & (truth <= answer + half))[known].tolist()
        found = grid.read_tables(values)
        for axes, table in found.unbiased.items():
            apart = np.abs(table - margin(cells, (0, 1, 2, 3), axes)).ravel()
            near += (apart <= 1.96 * noise.deviation / found.weights[axes]).tolist()
    return float(np.mean(inside)), len(inside), float(np.mean(near)), len(near)


def covers(draws: int) -> None:
    held_by_intervals, _, near, cells = covered(draws)
    assert abs(near - 0.95) < 5 * math.sqrt(0.95 * 0.05 / cells)
    assert held_by_intervals >= 0.95 - 5 * math.sqrt(0.95 * 0.05 / cells)


@pytest.mark.statistical
def test_intervals_of_measured_tables_hold_whatever_was_chosen() -> None:
    covers(15)


@pytest.mark.statistical
@pytest.mark.slow
def test_intervals_of_measured_tables_hold_in_very_many_releases() -> None:
    covers(1500)


def test_what_is_expected_of_tables_is_nearer_than_the_nearest_ones() -> None:
    """Where most cells are nearly empty: absolute errors of all tables of two attributes, over four releases at either budget."""
    state, shape, ratios = np.random.default_rng(1), (16, 12, 10), list[float]()
    first = np.minimum(state.geometric(0.3, 2000) - 1, 9)
    codes = [first + state.integers(0, 6, 2000), first, np.minimum(state.geometric(0.4, 2000) - 1, 9)]
    cells = np.bincount(np.ravel_multi_index(codes, shape), minlength=math.prod(shape)).reshape(shape)
    grid = aim_measurement(tables(2, shape), "add-remove", 1)
    for rho in (RHO / 20, RHO):
        noise, apart = grid.noise(Loss.gaussian(rho)), np.zeros(2)
        for number in range(4):
            found = grid.read_tables(rounds_of(grid, cells, number, rho).values())
            for place, model in enumerate((found.model(noise), found.selection_model(noise))):
                apart[place] += sum(
                    float(np.abs(model.table(axes) - margin(cells, (0, 1, 2), axes)).sum()) for axes in grid.importances
                )
        ratios.append(apart[0] / apart[1])
    assert max(ratios) < 0.9, ratios


def hidden(shape: tuple[int, ...]) -> np.ndarray:
    """Codes of records of two classes, which every attribute follows with a chance of 0.7."""
    state = np.random.default_rng(4)
    kind = state.integers(0, 2, 20_000)
    return np.array(
        [np.where(state.random(kind.size) < 0.7, kind * (size - 1), state.integers(0, size, kind.size)) for size in shape]
    )


def followed(shape: tuple[int, ...]) -> np.ndarray:
    """Codes of records along a chain: each attribute depends on the one before it, and on no other."""
    state = np.random.default_rng(5)
    codes = [state.integers(0, shape[0], 20_000)]
    for size in shape[1:]:
        codes.append(np.where(state.random(20_000) < 0.7, codes[-1] % size, state.integers(0, size, 20_000)))
    return np.array(codes)


@pytest.mark.parametrize(("make", "ends"), [(hidden, (1.3, 2.0)), (followed, (1.0, 1.1))])
def test_paths_are_stretched_as_measured_pairs_say(
    make: Callable[[tuple[int, ...]], np.ndarray], ends: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two more tables than a tree has edges are measured. Where attributes share a hidden class, paths say too little, and other pairs
    are nearer once they are stretched; along a chain paths say all."""
    shape = (4, 3, 5, 3, 4, 3)
    cells = np.bincount(np.ravel_multi_index(tuple(make(shape)), shape), minlength=math.prod(shape)).reshape(shape)
    monkeypatch.setattr(aim, "number_of_rounds", lambda *_: len(shape) + 1)
    grid = aim_measurement(tables(2, shape), "add-remove", 1)
    noise, apart = grid.noise(Loss.gaussian(RHO)), np.zeros(2)
    for number in range(3):
        found = grid.read_tables(rounds_of(grid, cells, number).values())
        model = found.model(noise)
        assert ends[0] <= model.stretch <= ends[1]
        for place, each in enumerate((model, replace(model, stretch=1.0))):
            left = [axes for axes in grid.importances if axes not in found.weights]
            apart[place] += sum(
                float(np.abs(each.table(axes) - margin(cells, tuple(range(6)), axes)).sum()) for axes in left
            )
            for axes in left:
                for axis in (0, 1):
                    np.testing.assert_allclose(
                        each.table(axes).sum(axis=1 - axis), model.table((axes[axis],)), rtol=0.01, atol=1
                    )
    assert apart[0] < (0.9 if make is hidden else 1.02) * apart[1]


@pytest.mark.parametrize("rho", [RHO, Fraction(1)])
def test_answers_of_tables_that_were_not_measured_have_no_error(rho: Fraction) -> None:
    workload, cells = tables(3), people()
    grid = aim_measurement(workload, "add-remove", 1)
    values, noise = rounds_of(grid, cells, 3, rho).values(), grid.noise(Loss.gaussian(rho))
    (_, error, _), _ = grid.columns(workload, values, noise)
    measured = grid.read_tables(values).weights
    for first, block in workload.block_starts():
        own = slice(first, first + block.queries)
        held_by = [axes for axes in measured if {*block.asked_axes} <= {*axes}]
        assert np.isnan(error[own]).all() == (not held_by)
        if held_by:  # the first that holds it, and not the best: which one is settled before its noise is drawn
            parts = math.prod(SHAPE[axis] for axis in held_by[0]) / block.queries
            np.testing.assert_allclose(error[own], noise.deviation / measured[held_by[0]] * math.sqrt(parts))


@cache
def modelled(draws: int) -> tuple[list[float], float]:
    """Of tables that come from a model: their errors over their bounds, and the share of true counts that intervals hold."""
    workload, cells = tables(3), people()
    grid, truth = aim_measurement(workload, "add-remove", 1), workload.matvec(cells.ravel())
    noise, inside, used = grid.noise(Loss.gaussian(RHO)), list[bool](), list[float]()
    for number in range(draws):
        values = rounds_of(grid, cells, number).values()
        (answer, error, half), bounds = grid.columns(workload, values, noise)
        apart, unknown = np.abs(answer - truth), np.isnan(error)
        inside += (apart <= half)[unknown].tolist()
        shares = [
            float(apart[first : first + block.queries].sum()) / bounds[block.asked_axes]
            for first, block in workload.block_starts()
            if block.asked_axes in bounds
        ]
        used.append(max(shares))
    return used, float(np.mean(inside))


@pytest.mark.statistical
def test_bounds_of_modelled_tables_hold_and_intervals_hold_the_truth() -> None:
    """All bounds of a release at once in 95 of 100; they are within reach, so that a tenth of each would be exceeded."""
    used, held_by_intervals = modelled(10)
    assert np.mean(np.array(used) > 1) <= 0.05
    assert max(used) > 0.1
    assert held_by_intervals >= 0.95


@pytest.mark.statistical
def test_bounds_hold_where_choices_are_nearly_random() -> None:
    """A table may then be left that is explained much worse than the one that was chosen last."""
    grid, cells, used = aim_measurement(tables(), "add-remove", 1), people(9000), list[float]()
    with mock.patch.object(aim, "CHOICE_FRACTION", Fraction(1, 10**7)), mock.patch.object(aim, "ROUND_DIVISOR", 200.0):
        noise = grid.noise(Loss.gaussian(RHO))
        for number in range(12):
            found = grid.read_tables(rounds_of(grid, cells, number).values())
            model = found.model(noise)
            bounds = largest_distances(found, grid.importances, model, noise)
            used += [
                float(np.abs(model.table(axes) - margin(cells, (0, 1, 2, 3), axes)).sum()) / bounds[axes] for axes in bounds
            ]
    assert len(used) > 30
    assert max(used) <= 1


@pytest.mark.parametrize(
    ("aside", "holds"),
    [
        pytest.param(expected_distances, True, marks=pytest.mark.statistical),
        (noise_alone, False),
    ],  # not every seed shows a wrong rule
)
def test_bounds_hold_where_most_values_are_rare(
    aside: Callable[..., Any], holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take off what scores left aside, and no more: not the noise of all cells of the table that was chosen last."""
    cells, used = coded(), list[float]()
    grid, rho = aim_measurement(tables(2, cells.shape), "add-remove", 1), Fraction(1, 10**4)
    noise = grid.noise(Loss.gaussian(rho))
    monkeypatch.setattr(aim, "number_of_rounds", lambda *_: 1)
    monkeypatch.setattr(model_intervals, "expected_distances", aside)
    for number in range(12):
        found = grid.read_tables(rounds_of(grid, cells, number, rho).values())
        model = found.model(noise)
        bounds = largest_distances(found, grid.importances, model, noise)
        used += [float(np.abs(model.table(axes) - margin(cells, (0, 1, 2), axes)).sum()) - bounds[axes] for axes in bounds]
    assert (max(used) <= 0) == holds


@pytest.mark.parametrize(("apart", "cells"), [(0.0, 50), (40.0, 50), (3000.0, 7)])
def test_how_far_cells_are_apart_is_read_from_noisy_ones(apart: float, cells: int) -> None:
    """Above the truth in at least 97.5 of 100 draws, and not by much where it is large."""
    state = np.random.default_rng(1)
    true = np.full(cells, apart / cells)
    read = [distance_bound(float(np.abs(true + state.normal(0, 3, cells)).sum()), cells, 3.0) for _ in range(200)]
    assert np.mean(np.array(read) < apart) <= 0.025
    assert np.median(read) <= apart + 3 * 3 * cells


# ---- whole releases


@pytest.mark.usefixtures("home")
def test_a_release_says_what_was_chosen_and_what_has_no_interval(tmp_path: Path, home: Path) -> None:
    folder = small_release.run(small_release.write(tmp_path / "data", table=like(), **ASKED), home).folder
    certificate = json.loads((folder / "release.json").read_text())
    chosen = [each["table"] for each in certificate["rounds"]]
    assert chosen
    assert "the latter have no standard error, and their intervals are no proven ones" in certificate["post_processing"][0]
    modelled = {frozenset(each["table"]): each["sum_of_errors_at_most"] for each in certificate["modelled"]}
    rows = pyarrow.parquet.read_table(folder / "answers.parquet").to_pylist()
    for group in {row["group"] for row in rows}:
        names = {name for name in WIDE if name in group}
        known = len(names) < 2 or any(names <= {*table} for table in chosen)
        assert all(row["low_95"] <= row["answer"] <= row["high_95"] for row in rows if row["group"] == group)
        assert (frozenset(names) in modelled) == (not known)
        assert {row["standard_error"] is not None for row in rows if row["group"] == group} == {known}
    page = (folder / "index.html").read_text()
    assert "their intervals are made of simulated noise and of bounds, and are not proven" in page
    assert page.count("</li>") >= len(modelled) > 0
    assert all(f": {bound:,.0f}</li>" in page for bound in modelled.values())
    found = verifier().verify(folder)
    assert not [line for line in found.values() if line.startswith("wrong")]
    assert {"rho", "epsilon", "sensitivity"} <= {claim for claim, line in found.items() if line.startswith("right")}
    asked_of = load_published(parse_location(str(folder)))
    pairs = [pair for pair in combinations(WIDE, 2) if any({*pair} <= {*table} for table in chosen)]
    (answer,) = asked_of.ask(f"count where {pairs[0][0]}=1, {pairs[0][1]}=1")
    first = next(each for each in certificate["rounds"] if {*pairs[0]} <= {*each["table"]})
    assert answer.standard_error == pytest.approx(first["standard_error"] * 2 ** (len(first["table"]) - 2))
    lacking = next(each for each in combinations(WIDE, 3) if not any({*each} <= {*table} for table in chosen))
    with pytest.raises(InvalidInput, match="did not measure the table of " + " by ".join(lacking)):
        asked_of.ask("count where " + ", ".join(f"{name}=1" for name in lacking))


@cache
def reread(draws: int) -> list[float]:
    """How far further answers lie from the truth, in their standard errors: a count of two attributes, and one of one of them."""
    workload, cells, out = tables(3), people(), list[float]()
    grid = aim_measurement(workload, "add-remove", 1)
    noise, truth = grid.noise(Loss.gaussian(RHO)), margin(cells, (0, 1, 2, 3), (0, 3))
    for number in range(draws):
        found = grid.read_tables(rounds_of(grid, cells, number).values())
        for axes, value in (((0, 3), truth[0, 2]), ((0,), truth[0].sum())):
            if first_holding(found.weights, axes) is not None:
                vectors = {axis: np.eye(SHAPE[axis])[[2 * (axis == 3)]] for axis in axes}
                read = found.estimate(Functionals(np.ones(1), np.zeros(1, dtype=int), vectors, 1))
                out.append(float((read.values[0] - value) / math.sqrt(read.squares[0]) / noise.deviation))
    return out


def test_further_answers_have_exact_errors_whatever_was_chosen() -> None:
    """Each is read from the first table that holds it: one that weighs all of them would depend on the noise that chose them."""
    apart = np.array(reread(60))
    assert apart.size > 80
    assert abs(apart.mean()) < 4 / math.sqrt(apart.size)
    assert abs((apart**2).mean() - 1) < 4 * math.sqrt(2 / apart.size)


@pytest.mark.usefixtures("home")
def test_the_model_is_computed_once_and_its_bounds_are_kept(tmp_path: Path, home: Path) -> None:
    """Also where the run ends between the answers and the certificate, which states the bounds."""
    path = small_release.write(tmp_path / "data", table=like(), **ASKED)
    expected = small_release.undisturbed(path, home)
    with mock.patch.object(MeasuredTables, "model", autospec=True, side_effect=MeasuredTables.model) as made:
        with (
            mock.patch("dpdist.publish.release_folder.write_release", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            small_release.run(path, home)
        release = small_release.run(path, home)
    assert made.call_count == 1
    assert small_release.tree(release.folder) == expected
    assert len(release.ask("count")) == 1
    with (
        mock.patch("dpdist.content.measurement_file.installed_plugins", return_value=()),
        pytest.raises(StoreError, match="read by the plugin 'adaptive'.*not installed here"),
    ):
        load_published(release.location)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "draw", [draw if draw in (2, 7) else pytest.param(draw, marks=pytest.mark.slow) for draw in range(10)]
)
def test_a_release_killed_in_any_round_goes_on_with_the_same_bytes(draw: int, tmp_path: Path, home: Path) -> None:
    path = small_release.write(tmp_path / "data", table=like(), **ASKED)
    expected, drawn = small_release.undisturbed(path, home), 0
    whole = Noise.draw

    def killed(self: Noise, key: bytes, *, start: int = 0, count: int) -> Any:
        nonlocal drawn
        drawn += 1
        if drawn == draw + 1:
            raise KeyboardInterrupt
        return whole(self, key, start=start, count=count)

    with mock.patch.object(Noise, "draw", killed), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    release = small_release.run(path, home)
    assert small_release.tree(release.folder) == expected
    with open_ledger(home) as ledger:
        (budget,) = ledger.budgets("small", charges=True)
        assert budget.spent.rho == Fraction(4, 1000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload": [{"cdf": {"of": "x0"}}]}, "the workload asks for more than tables of whole attributes"),
        ({"workload": [{"marginals": {"ways": [1]}}]}, "it chooses among tables of two or more attributes"),
        ({"postprocess": {"known": [{"count": 600}]}}, "need one unbiased estimate"),
        ({"postprocess": {"non_negative": True}}, "need one unbiased estimate"),
        ({"postprocess": {"suppress": {"below": 5}}}, "mechanisms 'dawa' and 'adaptive'"),
        ({"budget": {"epsilon": 1}}, "Gaussian"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_rounds_cannot_do_is_refused_before_the_charge(
    changes: dict[str, Any], message: str, tmp_path: Path, home: Path
) -> None:
    path = small_release.write(tmp_path / "data", table=like(), **{**ASKED, **changes})
    with pytest.raises((InvalidInput, InvalidSpec), match=message) as refused:
        small_release.run(path, home)
    assert "\n" not in str(refused.value)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


def test_auto_never_takes_it() -> None:
    for workload in (tables(2), tables(3)):
        assert "adaptive" not in compared_mechanisms("auto", "l2", workload)
    assert "ask for it by name" in exclusion_reasons("l2", tables(2))["adaptive"]


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("dpdist.plugins.adaptive.adaptive_rounds.MOST_CANDIDATES", "it chooses among up to 2 tables"),
        ("dpdist.plugins.adaptive.adaptive_rounds.MOST_CELLS", "it takes up to 2"),
    ],
)
def test_too_many_tables_or_cells_are_refused(limit: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason_no_rounds(tables(2)) is None
    monkeypatch.setattr(limit, 2)
    assert message in str(reason_no_rounds(tables(2)))
    with pytest.raises(InvalidInput, match="mechanism 'adaptive' cannot answer this workload"):
        adaptive(tables(2))
