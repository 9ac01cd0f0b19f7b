"""Persons by their number of records, records by their amount: neighbouring files through counting, against what noise is scaled to."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.counting import contribution_bounding
from dpdist.domain import DROP, Attribute, Domain, amounts_attribute
from dpdist.domain.numeric_columns import Amounts
from dpdist.plugins.private_bounds.counts_by_size import UNIT_BITS, CountsBySize, counts_by_size
from dpdist.plugins.private_bounds.size_counting import counts_of_amounts, records_of_persons
from dpdist.privacy.accounting import Loss
from dpdist.privacy.privacy_unit import Protection
from dpdist.sources import record_sources
from tests.case_selection import always
from tests.stability.files import BASE, Data, as_folder, as_parquet, changed, partitioned_records
from tests.support import small_release

MOST = 4
DOMAIN = Domain((Attribute("a", edges=(0, 1, 2, 3), outside="drop"), Attribute("b", categories=("x", "y"), outside="drop")))
FILE: Data = BASE + tuple(("w", number % 3, "x") for number in range(7))


def binned(data: Data, folder: Path, form: Any = as_parquet, *, groups: bool = False) -> np.ndarray:
    """Persons by bin, with the records or groups of whoever has more than the largest number counted as so many."""
    folder.mkdir(parents=True)
    source = record_sources.source_of(form(data, folder), columns={}, **small_release.whose("who", most_records=MOST))
    found = records_of_persons(partitioned_records(source, DOMAIN, folder), MOST, groups=groups)
    return counts_by_size(MOST, Loss.gaussian(Fraction(1)), "add-remove").binned(found.counts)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_one_person_moves_one_bin(tmp_path: Path, neighbours: Any, groups: bool) -> None:
    """Every person goes, comes or changes; some neighbour moves as far as the noise takes for granted, and none farther."""
    protection = Protection.from_facts({"neighbours": neighbours, "most_records": MOST, "person": "who"})
    base = binned(FILE, tmp_path / "base", groups=groups)
    neighbouring = enumerate(changed(FILE, protection))
    moved = [binned(data, tmp_path / str(number), groups=groups) - base for number, data in neighbouring]
    squared, length = max(int((each**2).sum()) for each in moved), max(int(np.abs(each).sum()) for each in moved)
    assert (squared, length) == ((1, 1) if neighbours == "add-remove" else (2, 2))
    unit = 2**UNIT_BITS
    gaussian = counts_by_size(MOST, Loss.gaussian(Fraction(1, 2)), neighbours)
    laplace = counts_by_size(MOST, Loss.laplace(Fraction(1)), neighbours)
    assert squared * unit**2 <= gaussian.noise.scale**2 <= squared * unit**2 + 2 * gaussian.noise.scale
    assert laplace.noise.scale == length * unit


AMOUNTS: Data = BASE + tuple(("w", number, "x") for number in (1, -3, 60))
RECORDS: dict[str, dict[str, Any]] = {
    "of a person": {"person": "who", "most_records": 2},
    "in groups": {"person": "who", "most_records": 1, "most_groups": 2},
    "promised": {"person": None, "most_records": 3},
}


def by_amount(data: Data, folder: Path, bounds: dict[str, Any], form: Any = as_parquet, *, below: int = 0) -> np.ndarray:
    """Records that count by their amount, up to four steps, and from so many beneath zero."""
    folder.mkdir(parents=True)
    source = record_sources.source_of(form(data, folder), columns={}, **small_release.whose(**bounds))
    column = amounts_attribute("a", Amounts(Fraction(-below), Fraction(1), MOST + below), DROP)
    domain = Domain((Attribute("b", categories=("x", "y"), outside="drop"), column))
    found = counts_of_amounts(partitioned_records(source, domain, folder), "a", below + MOST)
    return counts_by_size(MOST, Loss.gaussian(Fraction(1)), "add-remove", below=below).binned(found.counts)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("name", "below"), always([("in groups", 0), ("of a person", 3)], [*((name, 0) for name in RECORDS), ("of a person", 3)])
)
def test_amounts_of_one_person_move_as_many_records(tmp_path: Path, name: str, neighbours: Any, below: int) -> None:
    """Every person goes, comes or changes; records of one amount add up to as much as the noise takes for granted, and no more."""
    bounds = RECORDS[name]
    each = bounds["most_records"] * bounds.get("most_groups", 1)
    protection = Protection.from_facts({"neighbours": neighbours, **{k: v for k, v in bounds.items() if k != "most_groups"}})
    base = by_amount(AMOUNTS, tmp_path / "base", bounds, below=below)
    neighbouring = enumerate(changed(AMOUNTS, protection))
    moved = [by_amount(data, tmp_path / str(n), bounds, below=below) - base for n, data in neighbouring]
    squared, length = max(int((each**2).sum()) for each in moved), max(int(np.abs(each).sum()) for each in moved)
    unit = 2**UNIT_BITS
    gaussian = counts_by_size(MOST, Loss.gaussian(Fraction(1, 2)), neighbours, most_per_person=each, below=below)
    laplace = counts_by_size(MOST, Loss.laplace(Fraction(1)), neighbours, most_per_person=each, below=below)
    assert squared * unit**2 <= gaussian.noise.scale**2
    assert length * unit <= laplace.noise.scale
    assert squared * unit**2 >= (0.2 if each > 1 else 0.9) * gaussian.noise.scale**2  # below, all of a person's are alike
    assert length * unit >= 0.5 * laplace.noise.scale


@pytest.mark.parametrize(("neighbours", "times"), [("add-remove", 1), ("replace-one", 2)])
def test_noise_for_several_records_is_as_large_as_needed(neighbours: Any, times: int) -> None:
    """A person whose records all have one amount, and another one in the place of which they have another."""
    base, other = np.array([0, 3, 0, 0, 0]), np.array([0, 0, 0, 0, 3])
    rule = counts_by_size(MOST, Loss.gaussian(Fraction(1, 2)), neighbours, most_per_person=3)
    moved = rule.binned(base) - (rule.binned(other) if times == 2 else 0)
    scale, unit = rule.noise.scale, 2**UNIT_BITS
    assert int((moved**2).sum()) * unit**2 <= scale**2 <= int((moved**2).sum()) * unit**2 + 2 * scale
    assert (
        counts_by_size(MOST, Loss.laplace(Fraction(1)), neighbours, most_per_person=3).noise.scale
        == int(np.abs(moved).sum()) * unit
    )


def test_amounts_are_counted_alike_in_files_and_parts(tmp_path: Path) -> None:
    parts = by_amount(AMOUNTS, tmp_path / "parts", RECORDS["promised"], as_folder)
    np.testing.assert_array_equal(by_amount(AMOUNTS, tmp_path / "one", RECORDS["promised"]), parts)
    steps = [min(max(a, 0), MOST) for _, a, b in AMOUNTS if a is not None and b in ("x", "y")]
    assert parts.tolist() == [steps.count(k) for k in range(1, MOST + 1)]


def test_amounts_beneath_zero_have_bins_of_their_own(tmp_path: Path) -> None:
    found = by_amount(AMOUNTS, tmp_path / "data", RECORDS["promised"], below=3)
    steps = [min(max(a, -3), MOST) for _, a, b in AMOUNTS if a is not None and b in ("x", "y")]
    assert found.tolist() == [steps.count(k) for k in (*range(1, MOST + 1), -1, -2, -3)]


def test_a_record_that_is_in_two_bins_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had amounts beneath zero been counted above it, too, one person would move more than the noise hides."""
    binned = CountsBySize.binned
    monkeypatch.setattr(CountsBySize, "binned", lambda self, counts: binned(self, counts + counts[::-1]))
    bounds, data = RECORDS["of a person"], (*AMOUNTS, *(("w", -2, "x"),) * 2)
    protection = Protection.from_facts({"neighbours": "add-remove", **bounds})
    base = by_amount(data, tmp_path / "base", bounds, below=MOST)
    neighbouring = enumerate(changed(data, protection))
    moved = [by_amount(each, tmp_path / str(n), bounds, below=MOST) - base for n, each in neighbouring]
    assert max(int((each**2).sum()) for each in moved) > bounds["most_records"] ** 2


def test_files_and_forms_agree(tmp_path: Path) -> None:
    np.testing.assert_array_equal(binned(FILE, tmp_path / "one"), binned(FILE, tmp_path / "parts", as_folder))
    who = [name for name, a, b in FILE if a in (0, 1, 2) and b in ("x", "y")]
    numbers = [min(who.count(name), MOST) for name in set(who)]
    assert binned(FILE, tmp_path / "again").tolist() == [numbers.count(k) for k in range(1, MOST + 1)]
    pairs = [name for name, *_ in {row for row in FILE if row[1] in (0, 1, 2) and row[2] in ("x", "y")}]
    groups = [min(pairs.count(name), MOST) for name in set(pairs)]
    assert groups != numbers
    found = binned(FILE, tmp_path / "groups", as_folder, groups=True)
    assert found.tolist() == [groups.count(k) for k in range(1, MOST + 1)]


def test_a_person_in_several_bins_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had a person as many keys as batches, one person would move two bins."""
    monkeypatch.setattr(contribution_bounding, "person_hashes", _hashes_by_partition)
    protection = Protection.from_facts({"neighbours": "add-remove", "most_records": MOST, "person": "who"})
    base = binned(FILE, tmp_path / "base", as_folder)
    moved = [binned(data, tmp_path / str(n), as_folder) - base for n, data in enumerate(changed(FILE, protection))]
    assert max(int((each**2).sum()) for each in moved) > 1


PERSON_HASHES = contribution_bounding.person_hashes


def _hashes_by_partition(table: Any, source: Any, partition: Any, place: int, key: Any) -> Any:
    hashes, absent = PERSON_HASHES(table, source, partition, place, key)
    return hashes + np.uint64(hash(partition.path) % 2**32), absent
