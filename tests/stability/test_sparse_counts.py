"""Neighbouring files and their occupied cells: counts move by what is declared, and which cells of a person count depends on them alone."""

from __future__ import annotations

import dataclasses
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.counting import sparse_counts
from dpdist.counting.contribution_bounding import PersonKey
from dpdist.counting.sparse_counts import count_cells
from dpdist.domain import Attribute, Domain
from dpdist.domain.key_spaces import IntegerKeys, KeySpace, TextKeys
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection
from dpdist.privacy.selection import thresholded_histogram
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.sources import record_sources
from dpdist.stability import Distance
from tests.case_selection import always
from tests.stability.files import BASE, Data, as_counts, as_csv, as_folder, as_parquet, changed, partitioned_records
from tests.support import small_release

FORMS = {"parquet": as_parquet, "csv": as_csv, "folder": as_folder, "counts": as_counts}
SPACE = KeySpace({"a": IntegerKeys(0, 10**9), "b": TextKeys("xyz", 1)})
DOMAIN = Domain(tuple(Attribute(name, categories=("placeholder",), other="other", missing="none") for name in "ab"))
MANY: Data = (*BASE, *((f"p{number % 5}", number % 7, "xyz"[number % 3]) for number in range(90)))


SHARDS = 3


def counted(data: Data, form: str, folder: Path, protection: Protection, cells: int = 2) -> dict[int, int]:
    """The records of every occupied cell; of a person in up to so many cells."""
    folder.mkdir()
    facts = {"person": protection.person, "most_records": 1, "counts": "n" if form == "counts" else None}
    source = record_sources.source_of(FORMS[form](data, folder), columns={}, **small_release.whose(**facts))
    bound = None if protection.person is None else cells
    found = count_cells(
        partitioned_records(source, DOMAIN, folder),
        SPACE,
        cells_per_person=bound,
        records_per_cell=protection.most_records,
        shards=SHARDS,
    )
    assert found.records_read == len(data)
    counts: dict[int, int] = {}
    for shard, occupied, numbers in found.read_shards(range(SHARDS)):
        assert (np.diff(occupied) > 0).all()
        assert (occupied % SHARDS == shard).all()
        counts |= dict(zip(occupied.tolist(), numbers.tolist(), strict=True))
    return counts


def moved(folder: Path, form: str, protection: Protection, cells: int = 2) -> tuple[int, int]:
    """The largest squared L2 and the largest L1 move of the counts over all neighbours."""
    base = counted(BASE, form, folder / "base", protection, cells)
    squared = length = 0
    for number, data in enumerate(changed(BASE, protection)):
        if data:
            other = counted(data, form, folder / str(number), protection, cells)
            steps = [base.get(cell, 0) - other.get(cell, 0) for cell in base.keys() | other.keys()]
            squared, length = max(squared, sum(step**2 for step in steps)), max(length, sum(map(abs, steps)))
    return squared, length


@pytest.mark.parametrize("form", always(["folder"], ["parquet", "csv", "folder", "counts"]))
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 2])
def test_counts_of_records_move_as_declared(tmp_path: Path, form: str, neighbours: str, most: int) -> None:
    protection = ProtectedRecords(neighbours, most)
    squared, length = moved(tmp_path, form, protection)
    sides = 2 if neighbours == "replace-one" else 1
    assert (squared, length) == (sides * most**2, sides * most)


@pytest.mark.parametrize("form", always(["folder"], ["parquet", "csv", "folder"]))
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("cells", "most"), [(1, 2), (2, 1), (2, 2), (3, 1)])
def test_counts_of_persons_move_as_declared(tmp_path: Path, form: str, neighbours: str, cells: int, most: int) -> None:
    """In up to so many cells up to so many records, whatever persons have; the bound is reached where one comes or goes."""
    protection = ProtectedPersons(neighbours, most, "who")
    squared, length = moved(tmp_path, form, protection, cells)
    sides = 2 if neighbours == "replace-one" else 1
    assert squared <= sides * cells * most**2
    assert length <= sides * cells * most
    if (cells, most) in ((1, 2), (2, 1)) and sides == 1:
        assert squared == cells * most**2


def test_which_cells_of_a_person_count_depends_on_nothing_else(tmp_path: Path) -> None:
    """Neither on the order of records and files nor on other persons; and not all persons have the same ones."""
    protection = ProtectedPersons("add-remove", 9, "who")
    whole = counted(MANY, "parquet", tmp_path / "whole", protection)
    assert counted(MANY[::-1], "folder", tmp_path / "turned", protection) == whole
    alone, summed = [], dict[int, int]()
    for who in sorted({each for each, _, _ in MANY}):
        own = counted(tuple(record for record in MANY if record[0] == who), "csv", tmp_path / who, protection)
        alone.append(tuple(own))
        for cell, number in own.items():
            summed[cell] = summed.get(cell, 0) + number
    assert summed == whole
    assert len({*alone}) > 3


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("pending", [1, 10, 1000])
def test_cells_are_counted_alike_in_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, pending: int
) -> None:
    protection = ProtectedPersons("add-remove", 2, "who")
    expected = counted(MANY, "parquet", tmp_path / "whole", protection)
    monkeypatch.setattr(sparse_counts, "choose_part_count", lambda *given: parts)
    monkeypatch.setattr(sparse_counts, "pending_rows", lambda *given: pending)
    assert counted(MANY, "parquet", tmp_path / "data", protection) == expected


def test_what_is_counted_is_sealed_and_digested(tmp_path: Path) -> None:
    """Neither persons nor cells nor counts can be read in the store; the digest is of cells and counts; nothing is left."""
    (tmp_path / "data").mkdir()
    source = record_sources.source_of(as_parquet(MANY, tmp_path / "data"), columns={}, **small_release.whose(person="who"))
    digests = []
    for number, records_per_cell in enumerate((1, 1, 2)):
        records = partitioned_records(source, DOMAIN, tmp_path / str(number))
        found = count_cells(records, SPACE, cells_per_person=9, records_per_cell=records_per_cell, shards=SHARDS)
        digests.append(found.digest)
        written = b"".join(path.read_bytes() for path in (tmp_path / str(number)).rglob("*") if path.is_file())
        for shard, cells, counts in found.read_shards(range(SHARDS)):
            pairs = np.stack([cells, counts], axis=1).tobytes()
            assert pairs[:16] not in written, shard
        found.delete()
        assert not [path for path in (tmp_path / str(number)).rglob("*") if path.is_file() and found.folder in str(path)]
    assert digests[0] == digests[1] != digests[2]


def totals_moved(folder: Path, protection: Protection, cells: int, names: list[str]) -> tuple[int, int]:
    """The largest squared L2 and L1 move of totals of unpublished cells over all neighbours, whichever cells are published."""
    folder.mkdir()

    def totals(data: Data, name: str) -> dict[tuple[int, ...], np.ndarray]:
        (folder / name).mkdir()
        facts = {"person": protection.person, "most_records": 1, "counts": None}
        source = record_sources.source_of(as_parquet(data, folder / name), columns={}, **small_release.whose(**facts))
        bound = None if protection.person is None else cells
        found = count_cells(
            partitioned_records(source, DOMAIN, folder / name),
            SPACE,
            cells_per_person=bound,
            records_per_cell=protection.most_records,
            shards=SHARDS,
        )
        return {hidden: found.sum_others(np.array(hidden, dtype=np.int64), SPACE, names) for hidden in ((), (3, 5), (7,))}

    base, squared, length = totals(BASE, "base"), 0, 0
    for number, data in enumerate(changed(BASE, protection)):
        for hidden, other in totals(data, str(number)).items() if data else ():
            steps = base[hidden] - other
            squared, length = max(squared, int(steps @ steps)), max(length, int(np.abs(steps).sum()))
    return squared, length


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("unit", "cells", "most"), always([("persons", 2, 1)], [("records", 1, 1), ("persons", 2, 1), ("persons", 2, 2)])
)
@pytest.mark.parametrize("names", always([[]], [[], ["b"]]))
def test_totals_of_unpublished_cells_move_as_their_noise_allows(
    tmp_path: Path, neighbours: str, unit: str, cells: int, most: int, names: list[str]
) -> None:
    """The scale of the product's rule at rho 1/2 and epsilon 1 is the move that it allows, and the bound is reached."""
    persons = unit == "persons"
    protection = ProtectedPersons(neighbours, most, "who") if persons else ProtectedRecords(neighbours, most)
    moved = Distance(most, neighbours == "replace-one", groups=cells)
    squared, length = totals_moved(tmp_path / "files", protection, cells, names)
    gaussian = thresholded_histogram.unpublished_totals(GAUSSIAN, Loss.gaussian(Fraction(1, 2)), moved, 3).noise.scale
    laplace = thresholded_histogram.unpublished_totals(LAPLACE, Loss.laplace(Fraction(1)), moved, 3).noise.scale
    assert squared << 2 * UNIT_BITS <= gaussian**2
    assert length << UNIT_BITS <= laplace
    if (unit, most, neighbours, names) == ("persons", 1, "add-remove", []):
        assert gaussian == laplace == cells << UNIT_BITS == length << UNIT_BITS


@pytest.mark.parametrize("planted", ["cells of a person in different totals", "one person where two change"])
def test_a_fault_in_the_noise_of_totals_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    rule = thresholded_histogram.unpublished_totals
    smaller: dict[str, Any] = {"groups": 1}
    case: tuple[str, str, int, int, list[str]] = ("add-remove", "persons", 2, 1, [])
    if planted == "one person where two change":
        smaller, case = {"replaced": False}, ("replace-one", "records", 1, 1, ["b"])
    monkeypatch.setattr(
        thresholded_histogram,
        "unpublished_totals",
        lambda kind, budget, moved, groups: rule(kind, budget, dataclasses.replace(moved, **smaller), groups),
    )
    with pytest.raises(AssertionError):
        test_totals_of_unpublished_cells_move_as_their_noise_allows(tmp_path, *case)


@pytest.mark.parametrize("planted", ["another key in each run", "a bound that is forgotten", "records without a bound"])
def test_a_fault_in_the_bounds_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    bound = sparse_counts.bound_cells
    if planted == "another key in each run":
        monkeypatch.setattr(
            sparse_counts, "bound_cells", lambda rows, cells, most, key: bound(rows, cells, most, PersonKey(os.urandom(32)))
        )
        with pytest.raises(AssertionError):
            test_which_cells_of_a_person_count_depends_on_nothing_else(tmp_path)
        return
    faults = {
        "a bound that is forgotten": lambda rows, cells, most, key: bound(rows, cells + 1, most, key),
        "records without a bound": lambda rows, cells, most, key: bound(rows, cells, most + 1, key),
    }
    monkeypatch.setattr(sparse_counts, "bound_cells", faults[planted])
    with pytest.raises(AssertionError):
        test_counts_of_persons_move_as_declared(tmp_path, "folder", "add-remove", 1, 2)
