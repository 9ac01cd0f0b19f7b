"""Persons bounded over groups: neighbouring files through counting and the grid of a real plan, against every change of a person."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.counting import contribution_bounding, group_choice, histogram_counting
from dpdist.counting.contribution_bounding import HASHED, count_repetitions, first_of_groups
from dpdist.domain import Attribute, Domain, amounts_attribute
from dpdist.domain.numeric_columns import Amounts
from dpdist.engine import inline
from dpdist.measurement import dense_measurement
from dpdist.measurement.dense_measurement import DenseMeasurement
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources import record_sources
from dpdist.spec import load
from dpdist.statistics import statistic
from dpdist.storage.array_store import Store
from tests.case_selection import always
from tests.stability.files import BASE, Data, as_folder, as_parquet, changed
from tests.support import small_release

DOMAIN: dict[str, dict[str, Any]] = {
    "a": {"from": 0, "to": 2, "outside": "drop"},
    "b": {"categories": ["x", "y"], "outside": "drop"},
}
SPREAD = (("v", 0, "y"), ("u", 1, "x"), ("v", 1, "y"), ("v", 1, "y"), ("u", 1, "y"), ("v", 2, "x"))
"""With these u and v have records in more groups than any bound keeps."""
FILE: Data = BASE + SPREAD


PURE: dict[str, Any] = {"budget": {"epsilon": 1}, "ledger": {"dataset": "s", "cap": {"epsilon": 1}}}


def planned(folder: Path, neighbours: str, groups: int, most: int, **changes: Any) -> ReleasePlan:
    records = {"path": "records.parquet", "person": {"column": "who", "most_records": most, "most_groups": groups}}
    asked = {"domain": DOMAIN, "workload": [{"marginals": {"of": [["a", "b"]]}}], "neighbours": neighbours}
    path = small_release.write(folder / "spec", **{"records": records, **asked, **changes})
    return plan(Context(folder, Store(folder / "store"), inline(), ignore_progress), load(path))


def cells(data: Data, folder: Path, made: ReleasePlan, form: Any = as_parquet) -> np.ndarray:
    folder.mkdir()
    person = made.job.source.records.person
    source = record_sources.source_of(
        form(data, folder),
        columns={},
        **small_release.whose("who", most_records=person.most_records, most_groups=person.most_groups),
    )
    store = Store(folder / "store")
    stored, _ = histogram_counting.count(source, made.job.measured.domain, store, inline(), root=keys.Secret(bytes(32)))
    return np.asarray(store.read_array(stored))


@pytest.mark.parametrize("neighbours", always(["replace-one"], ["add-remove", "replace-one"]))
@pytest.mark.parametrize(
    ("groups", "most"), [(2, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 1), (2, 2), (3, 1)))]
)
def test_counts_move_by_what_the_grid_was_told(tmp_path: Path, neighbours: str, groups: int, most: int) -> None:
    """Every person goes, comes or changes. Some neighbour moves as far as declared: l k^2 in L2 squared, l k in L1; twice if replaced."""
    gaussian = planned(tmp_path / "gaussian", neighbours, groups, most, mechanism="identity")
    laplace = planned(tmp_path / "laplace", neighbours, groups, most, mechanism="identity", **PURE)
    base = cells(FILE, tmp_path / "base", gaussian)
    squared = length = 0
    for number, data in enumerate(changed(FILE, gaussian.job.guarantee.protection)):
        moved = cells(data, tmp_path / str(number), gaussian) - base
        squared, length = max(squared, int((moved**2).sum())), max(length, int(np.abs(moved).sum()))
    sides = 2 if neighbours == "replace-one" else 1
    unit = 2**30
    assert gaussian.measurement.sensitivity_squared == sides * groups * (most * unit) ** 2
    assert laplace.measurement.sensitivity_squared == (sides * groups * most * unit) ** 2
    assert squared * unit**2 <= gaussian.measurement.sensitivity_squared
    assert length == gaussian.job.moved.length if sides == 1 else length <= gaussian.job.moved.length
    assert squared >= groups * most**2


def test_files_and_forms_agree(tmp_path: Path) -> None:
    made = planned(tmp_path, "add-remove", 6, 20)
    np.testing.assert_array_equal(
        cells(FILE, tmp_path / "one", made), cells(FILE, tmp_path / "parts", made, as_folder)
    )  # no bound is reached, so the order of rows does not matter
    assert cells(FILE, tmp_path / "again", made).sum() == sum(a in (0, 1, 2) and b in ("x", "y") for _, a, b in FILE)


@pytest.mark.parametrize("fault", ["groups are forgotten", "records of a group are forgotten"])
def test_a_bound_that_is_forgotten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    true = contribution_bounding.first_of_groups
    forgotten = {"groups are forgotten": (99, None), "records of a group are forgotten": (None, 99)}[fault]

    def wrong(rows: np.ndarray, group: np.ndarray, groups: int, most: int) -> np.ndarray:
        return true(rows, group, forgotten[0] or groups, forgotten[1] or most)

    monkeypatch.setattr(contribution_bounding, "first_of_groups", wrong)
    made = planned(tmp_path, "add-remove", 2, 1)
    base = cells(FILE, tmp_path / "base", made)
    moved = [
        cells(data, tmp_path / str(number), made) - base
        for number, data in enumerate(changed(FILE, made.job.guarantee.protection))
    ]
    assert max(int((each**2).sum()) for each in moved) * 2**60 > made.measurement.sensitivity_squared


IN_ALL = {name: {**part, "total": "all"} for name, part in DOMAIN.items()}
COUNTED_ONCE: dict[str, Any] = {"domain": IN_ALL, "mechanism": "identity"}


def plan_counted_once(folder: Path, neighbours: str, groups: int, **changes: Any) -> ReleasePlan:
    records = {"path": "records.parquet", "count": "persons", "person": {"column": "who", "most_groups": groups}}
    return planned(folder, neighbours, groups, 1, **{**COUNTED_ONCE, "records": records, **changes})


def farthest_file(made: ReleasePlan, folder: Path) -> tuple[int, int]:
    """How far neighbouring files move the counts at most: squared, and in absolute values."""
    base = cells(FILE, folder / "base", made)
    moved = [
        cells(data, folder / str(number), made) - base
        for number, data in enumerate(changed(FILE, made.job.guarantee.protection))
    ]
    return max(int((each**2).sum()) for each in moved), max(int(np.abs(each).sum()) for each in moved)


def move_by(reached: int, folder: Path, neighbours: str, groups: int, **changes: Any) -> None:
    """Every neighbour moves so many cells at most, as the grids of both noises were told."""
    gaussian = plan_counted_once(folder / "gaussian", neighbours, groups, **changes)
    laplace = plan_counted_once(folder / "laplace", neighbours, groups, **changes, **PURE)
    sides = 2 if neighbours == "replace-one" else 1
    squared, length = farthest_file(gaussian, folder)
    unit = 2**30
    assert gaussian.measurement.sensitivity_squared == sides * reached * unit**2
    assert laplace.measurement.sensitivity_squared == (sides * reached * unit) ** 2
    assert squared <= sides * reached
    assert length <= sides * reached
    if sides == 1 and groups <= 3:  # a person of FILE has records in so many groups of each table
        assert squared == length == reached


@pytest.mark.parametrize("neighbours", ["add-remove", pytest.param("replace-one", marks=pytest.mark.slow)])
@pytest.mark.parametrize("groups", [2, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 3, 6))])
def test_persons_in_totals_move_by_what_the_grid_was_told(tmp_path: Path, neighbours: str, groups: int) -> None:
    """l of 6 groups, of the 3 values of a, of the 2 of b, and once in all: every table by itself. Some neighbour moves as far."""
    move_by(sum(min(groups, each) for each in (6, 3, 2, 1)), tmp_path, neighbours, groups)


FAULTS = ("groups of totals are forgotten", "persons count with all records")


@pytest.mark.parametrize("fault", ["tables are added up", *(pytest.param(each, marks=pytest.mark.slow) for each in FAULTS)])
def test_totals_that_forget_something_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    true = contribution_bounding.first_of_groups

    def wrong(rows: np.ndarray, group: np.ndarray, groups: int, most: int) -> np.ndarray:
        totals = bool(np.isin(group, (2, 5, 8, 9, 10, 11)).any())
        if not totals:
            return true(rows, group, groups, most)
        return true(rows, group, 99, 1) if fault == "groups of totals are forgotten" else true(rows, group, groups, 99)

    if fault == "tables are added up":  # as if a person in l groups of one table were in no other one
        monkeypatch.setattr(statistic.PersonsByGroup, "stability", lambda self, moved: self.record_quantity.stability(moved))
    else:
        monkeypatch.setattr(contribution_bounding, "first_of_groups", wrong)
    made = plan_counted_once(tmp_path, "add-remove", 2 if fault != "groups of totals are forgotten" else 1)
    assert farthest_file(made, tmp_path)[0] * 2**60 > made.measurement.sensitivity_squared


LEVELS: dict[str, Any] = {
    "a": {**DOMAIN["a"], "levels": {"half": [0, 2, 3]}, "most_groups": {"half": 2}},
    "b": {**DOMAIN["b"], "levels": {"whole": {"any": ["x", "y"]}}, "total": "all"},
}
BY_LEVELS: dict[str, Any] = {
    "domain": LEVELS,
    "workload": [{"marginals": {"of": [["a", "b"], ["half", "b"], ["half", "whole"]]}}],
}


@pytest.mark.parametrize("neighbours", ["add-remove", pytest.param("replace-one", marks=pytest.mark.slow)])
@pytest.mark.parametrize("groups", [3, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2, 6))])
def test_persons_by_levels_move_by_what_the_grid_was_told(tmp_path: Path, neighbours: str, groups: int) -> None:
    """Of l groups of 6 and of the 3 values of a, and at most 2 of those of its halves: by b, in all of b, and by its one group."""
    move_by(sum(min(groups, each) for each in (6, 3, 2, 2, 2)), tmp_path, neighbours, groups, **BY_LEVELS)


@pytest.mark.parametrize("fault", ["the bound of a level is forgotten", "a level is forgotten"])
def test_levels_that_forget_something_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "a level is forgotten":
        true = statistic.PersonsByGroup.stability
        monkeypatch.setattr(
            statistic.PersonsByGroup, "stability", lambda self, moved: true(replace(self, groups=self.groups[:-1]), moved)
        )
    else:
        monkeypatch.setattr(contribution_bounding, "with_group_bound", lambda source, domain, table: source)
    made = plan_counted_once(tmp_path, "add-remove", 3, **BY_LEVELS)
    assert farthest_file(made, tmp_path)[0] * 2**60 > made.measurement.sensitivity_squared


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("groups", "most"), [(1, 1), (2, 3), (5, 1), (99, 2)])
def test_the_first_groups_of_each_person_are_kept(
    groups: int, most: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a walk through the rows in their order."""
    monkeypatch.setattr(group_choice, "COMPILED_FROM", 0 if compiled else 2**62)
    state = np.random.default_rng(groups)
    rows = np.zeros(500, dtype=HASHED)
    rows["high"], rows["low"], rows["cell"] = state.integers(0, 9, 500), state.integers(0, 2, 500), state.integers(0, 7, 500)
    seen: dict[tuple[int, int], dict[int, int]] = {}
    expected = []
    for place, (high, low, cell) in enumerate(rows.tolist()):
        mine = seen.setdefault((high, low), {})
        if cell in mine or len(mine) < groups:
            mine[cell] = mine.get(cell, 0) + 1
            if mine[cell] <= most:
                expected.append(place)
    assert sorted(first_of_groups(rows, rows["cell"], groups, most).tolist()) == expected
    assert count_repetitions(rows, rows["cell"]) == rows.size - np.unique(rows).size
    assert first_of_groups(rows[:0], rows["cell"][:0], groups, most).size == 0


@pytest.mark.parametrize(("groups", "most", "places"), [(2, 1, [0, 2]), (1, 2, [0, 1]), (2, 2, [0, 1, 2])])
def test_a_group_is_one_whatever_the_amounts_of_its_records_are(groups: int, most: int, places: list[int]) -> None:
    """Two records of x with amounts of their own, then one of y: amounts that told groups apart would let x count twice."""
    amounts = amounts_attribute("m", Amounts(Fraction(0), Fraction(1), 4), None)
    domain = Domain((Attribute("b", categories=("x", "y")), amounts))
    rows = np.zeros(3, dtype=HASHED)
    rows["cell"] = [0, 3, amounts.kinds + 1]
    source = record_sources.Source((), {}, person=record_sources.PersonColumn("who", most_groups=groups), most_records=most)
    assert sorted(contribution_bounding.select_records(source, domain, rows).tolist()) == places


COUNTED: dict[str, dict[str, Any]] = {
    "every cell": {},
    "sums of cells": {"workload": [{"cdf": {"of": "a", "by": ["b"]}}]},
}


def farthest(made: ReleasePlan, groups: int, most: int) -> int:
    """How far persons in up to so many of the six cells move what is measured, squared: all, and all pairs where one is replaced."""
    rows = np.concatenate(list(made.measurement.row_blocks() or ())).astype(object)
    every = [np.array(u) * most for u in product((0, 1), repeat=rows.shape[1]) if sum(u) <= groups]
    others = every if made.job.guarantee.neighbours == "replace-one" else every[:1]
    return max(int(rows @ (u - v) @ (rows @ (u - v))) for u in every for v in others)


@pytest.mark.parametrize("neighbours", always(["replace-one"], ["add-remove", "replace-one"]))
@pytest.mark.parametrize("counted", ["every cell", pytest.param("sums of cells", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("groups", "most"), [(6, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 1), (3, 2), (4, 1)))]
)
def test_the_optimum_for_persons_is_hidden(tmp_path: Path, neighbours: str, counted: str, groups: int, most: int) -> None:
    """Files of neighbours through counting, and every person there can be: none moves farther, and without replacing one just as far."""
    made = planned(tmp_path, neighbours, groups, most, mechanism="coa", **COUNTED[counted])
    rows = np.concatenate(list(made.measurement.row_blocks() or ())).astype(object)
    base = cells(FILE, tmp_path / "base", made)
    for number, data in enumerate(changed(FILE, made.job.guarantee.protection)):
        moved = rows @ (cells(data, tmp_path / str(number), made) - base)
        assert int(moved @ moved) <= made.measurement.sensitivity_squared
    found = farthest(made, groups, most)
    assert found <= made.measurement.sensitivity_squared
    if neighbours == "add-remove":
        assert made.measurement.sensitivity_squared - found <= found // 2**24
        assert made.table[0].gap is not None
        assert -1e-9 < made.table[0].gap < 1e-5


@pytest.mark.parametrize("fault", ["a cross term", "its sign", "a group"])
def test_a_sensitivity_that_forgets_something_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    true = dense_measurement.squared_cells_bound

    def wrong(gram: np.ndarray, most: int, *, replaced: bool) -> int:
        alone = np.diag(np.diag(gram))
        forgotten = {"a cross term": alone, "its sign": 2 * alone - gram, "a group": gram}[fault]
        return true(forgotten, most - (fault == "a group"), replaced=replaced)

    monkeypatch.setattr(dense_measurement, "squared_cells_bound", wrong)
    made = planned(tmp_path, "add-remove", 3, 1, mechanism="wavelet", workload=[{"ranges": {"of": ["a"], "by": ["b"]}}])
    assert farthest(made, 3, 1) > made.measurement.sensitivity_squared


def test_persons_by_group_get_the_optimum(tmp_path: Path) -> None:
    """Seven days, all allowed, (1, 1e-6): 7.70, where every day by itself has 11.18."""
    asked: dict[str, Any] = {
        "domain": {"a": {"from": 0, "to": 6, "outside": "drop"}},
        "workload": [{"marginals": {"of": [["a"]]}}],
        "budget": {"epsilon": 1, "delta": 1e-6},
        "ledger": {"dataset": "s", "cap": {"epsilon": 2, "delta": 1e-5}},
        "records": {"path": "records.parquet", "count": "persons", "person": {"column": "who", "most_groups": 7}},
    }
    made = planned(tmp_path, "add-remove", 7, 1, **asked)
    found = made.certificate()["mechanism"]
    assert made.strategy.name == "coa"
    assert 7.69 < found["rmse"] < 7.70
    assert {row["mechanism"]: round(row["rmse"], 2) for row in found["compared"]}["identity"] == 11.18
    assert found["certified_gap"] == pytest.approx(0, abs=1e-6)


def test_other_grids_take_what_their_columns_have_together(tmp_path: Path) -> None:
    """A strategy whose rows add up what cells share takes a person in l groups for less than l times one record, squared l^2."""
    asked: dict[str, Any] = {"workload": [{"cdf": {"of": "a"}}]}
    one = planned(tmp_path / "one", "add-remove", 1, 2, mechanism="eigen", **asked)
    made = planned(tmp_path / "made", "add-remove", 3, 2, mechanism="eigen", **asked)
    assert not (isinstance(made.measurement, DenseMeasurement) and made.measurement.mixing.ndim == 1)
    assert (
        3 * one.measurement.sensitivity_squared
        < made.measurement.sensitivity_squared
        <= 9 * one.measurement.sensitivity_squared
    )
    assert planned(tmp_path / "auto", "add-remove", 6, 1, **asked).strategy.name == "coa"
