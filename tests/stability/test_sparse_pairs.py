"""Two thousand neighbouring files of thresholded rows, at random: occupied cells move by what the noise is for, and reach it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from dpdist.counting import sparse_counts
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.privacy.selection.thresholded_histogram import thresholded_histogram
from dpdist.stability import Distance
from tests.stability.files import Data, Record
from tests.stability.test_sparse_counts import SPACE, counted

PERSONS = ("u", "v", "U", " u", "7", "07", "ü")
"""Texts that are as good as equal, and one that is a number's."""
NUMBERS = (0, 1, 2, 3, 4, 10**9, -1, 10**9 + 1, None)
LETTERS = ("x", "y", "z", "X", "xx", "", None)
"""Of keys that the space has, and of others: too small, too large, too long, empty or missing."""
FORMS = ("parquet", "csv", "folder")
NEIGHBOURS_OF_EACH = 8
"""Files that are compared with one."""


@dataclass(frozen=True)
class Bounds:
    """What is declared of a release, and how far its noise allows counts to move.

    Attributes:
        persons: whether persons are protected, or records.
        cells: in how many cells a person counts at most; it says nothing about records.
        most: how many records of a person count in a cell, or how many change together.
    """

    persons: bool
    neighbours: str
    cells: int
    most: int

    @property
    def protection(self) -> Protection:
        """The unit that changes."""
        if self.persons:
            return ProtectedPersons(self.neighbours, self.most, "who")
        return ProtectedRecords(self.neighbours, self.most)

    @property
    def allowed(self) -> tuple[int, int]:
        """The squared L2 and the L1 move that the product's rule has noise for: at rho 1/2 and epsilon 1 the scale is the move itself."""
        moved = Distance(self.most, self.neighbours == "replace-one", groups=self.cells if self.persons else 1)
        at_least = Fraction(10**4)
        gaussian = thresholded_histogram(GAUSSIAN, Loss.gaussian(Fraction(1, 2)), moved, SPACE.size, at_least).noise.scale
        laplace = thresholded_histogram(LAPLACE, Loss.laplace(Fraction(1)), moved, SPACE.size, at_least).noise.scale
        return gaussian**2 >> 2 * UNIT_BITS, laplace >> UNIT_BITS


def some_bounds(draw: random.Random) -> Bounds:
    """A unit, a relation and bounds."""
    return Bounds(draw.random() < 0.5, draw.choice(["add-remove", "replace-one"]), draw.randint(1, 3), draw.randint(1, 3))


def some_records(draw: random.Random, person: str, bounds: Bounds, first: int) -> list[Record]:
    """Records of a person: few of any values, or more than the bounds keep, in cells from a number on."""
    if draw.random() < 0.4:
        return [(person, draw.choice(NUMBERS), draw.choice(LETTERS)) for _ in range(draw.randint(0, 3))]
    cells = [(first + number, draw.choice("xyz")) for number in range(draw.randint(1, bounds.cells + 1))]
    records: list[Record] = [(person, *cell) for cell in cells for _ in range(draw.randint(1, bounds.most + 1))]
    return draw.sample(records, len(records))


def some_data(draw: random.Random, bounds: Bounds) -> Data:
    """Records of some persons, one after the other or mixed."""
    persons = draw.sample(PERSONS, draw.randint(1, 4))
    records = [record for person in persons for record in some_records(draw, person, bounds, draw.randint(0, 3))]
    return tuple(records or [("u", 1, "x")])


def neighbour(draw: random.Random, data: Data, bounds: Bounds) -> Data:
    """The data after one change of the unit, in another order half of the time: a person goes, comes or is replaced; or some records."""
    replaced = bounds.neighbours == "replace-one"
    if bounds.persons:
        gone = draw.choice(PERSONS)
        stay = [record for record in data if record[0] != gone]
        if draw.random() < 0.5 and not replaced and len(stay) < len(data):
            come: list[Record] = []
        elif replaced or len(stay) == len(data):
            come = some_records(draw, gone, bounds, draw.choice([0, 20]))
        else:
            return data  # who is there already does not come
    else:
        size = draw.randint(0, min(bounds.most, len(data)))
        leave = set(draw.sample(range(len(data)), size))
        if draw.random() < 0.5:  # records of one cell
            leave = {place for place, record in enumerate(data) if record[1:] == data[0][1:]}
            leave = set(sorted(leave)[: bounds.most])
        stay = [record for place, record in enumerate(data) if place not in leave]
        value = (draw.choice([20, *NUMBERS]), draw.choice(LETTERS))
        comers = bounds.most if replaced else bounds.most * (draw.random() < 0.5)
        if not replaced and comers:
            stay = list(data)
        come = []
        for _ in range(comers):
            number, letter = value if draw.random() < 0.8 else (draw.choice(NUMBERS), "y")
            come.append(("t", number, letter))
    place = draw.randint(0, len(stay))
    changed = stay[:place] + come + stay[place:]
    return tuple(changed if draw.random() < 0.5 else draw.sample(changed, len(changed))) or data


def pairs_of_counts(
    folder: Path, pairs: int, seed: int
) -> Iterator[tuple[Bounds, Data, Data, dict[int, int], dict[int, int]]]:
    """Bounds, two neighbouring data sets, and the counts of their occupied cells, read from files of the same form or another one."""
    draw = random.Random(seed)
    for number in range(pairs // NEIGHBOURS_OF_EACH):
        bounds = some_bounds(draw)
        data = some_data(draw, bounds)
        base = counted(data, draw.choice(FORMS), folder / f"{number}", bounds.protection, bounds.cells)
        for other_number in range(NEIGHBOURS_OF_EACH):
            other = neighbour(draw, data, bounds)
            place = folder / f"{number}-{other_number}"
            yield bounds, data, other, base, counted(other, draw.choice(FORMS), place, bounds.protection, bounds.cells)


def check_pairs(folder: Path, pairs: int, seed: int) -> dict[Bounds, tuple[int, int]]:
    """The largest moves, by bounds. Raises: AssertionError for a pair that moves further than the noise allows."""
    largest = dict[Bounds, tuple[int, int]]()
    for bounds, data, other, base, others in pairs_of_counts(folder, pairs, seed):
        steps = [base.get(cell, 0) - others.get(cell, 0) for cell in base.keys() | others.keys()]
        squared, length = sum(step**2 for step in steps), sum(map(abs, steps))
        most_squared, most_length = bounds.allowed
        assert squared <= most_squared, (bounds, data, other)
        assert length <= most_length, (bounds, data, other)
        declared = bounds if bounds.persons else dataclasses.replace(bounds, cells=1)
        before = largest.get(declared, (0, 0))
        largest[declared] = max(before[0], squared), max(before[1], length)
    return largest


def test_eighty_neighbouring_files_move_as_declared(tmp_path: Path) -> None:
    assert check_pairs(tmp_path, 80, seed=1)


@pytest.mark.slow
def test_two_thousand_neighbouring_files_move_as_declared(tmp_path: Path) -> None:
    """For both units and both relations: no pair moves further, and for each unit, relation and bounds up to 2 some pair moves as far."""
    largest = check_pairs(tmp_path, 2000, seed=1)
    units = {(bounds.persons, bounds.neighbours) for bounds in largest}
    assert len(units) == 4
    small = {bounds: moved for bounds, moved in largest.items() if max(bounds.cells, bounds.most) <= 2}
    assert len(small) == 12
    for bounds, moved in small.items():
        assert moved == bounds.allowed, bounds


FAULTS: dict[str, Callable[..., object]] = {
    "one cell more": lambda bound: lambda rows, cells, most, key: bound(rows, cells + 1, most, key),
    "one record more": lambda bound: lambda rows, cells, most, key: bound(rows, cells, most + 1, key),
}


@pytest.mark.parametrize("planted", FAULTS)
def test_a_bound_that_is_off_by_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    """Among the first pairs, which all move as declared without it."""
    monkeypatch.setattr(sparse_counts, "bound_cells", FAULTS[planted](sparse_counts.bound_cells))
    with pytest.raises(AssertionError, match="Bounds"):
        check_pairs(tmp_path, 400, seed=1)
