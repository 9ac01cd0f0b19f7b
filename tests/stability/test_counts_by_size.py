"""Persons by their number of records: neighbouring files through counting, against what the noise is scaled to."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.privacy.accounting import Loss
from dpdist.privacy.bounds import UNIT_BITS, persons_by_records
from dpdist.privacy.protection import Protection
from dpdist.records import per_person, sources
from tests.stability.files import BASE, Data, as_folder, as_parquet, changed

MOST = 4
DOMAIN = Domain((Attribute("a", edges=(0, 1, 2, 3), outside="drop"), Attribute("b", categories=("x", "y"), outside="drop")))
FILE: Data = BASE + tuple(("w", number % 3, "x") for number in range(7))


def binned(data: Data, folder: Path, form: Any = as_parquet) -> np.ndarray:
    """Persons by bin, with the records of whoever has more than the largest number counted as so many."""
    folder.mkdir(parents=True)
    source = sources.source_of(form(data, folder), columns={}, person="who", most_records=MOST)
    found = per_person.records_of_persons(source, DOMAIN, MOST)
    return persons_by_records(MOST, Loss.gaussian(Fraction(1)), "add-remove").binned(found.persons)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_one_person_moves_one_bin(tmp_path: Path, neighbours: Any) -> None:
    """Every person goes, comes or changes; some neighbour moves as far as the noise takes for granted, and none farther."""
    protection = Protection.from_facts({"neighbours": neighbours, "most_records": MOST, "person": "who"})
    base = binned(FILE, tmp_path / "base")
    moved = [binned(data, tmp_path / str(number)) - base for number, data in enumerate(changed(FILE, protection))]
    squared, length = max(int((each**2).sum()) for each in moved), max(int(np.abs(each).sum()) for each in moved)
    assert (squared, length) == ((1, 1) if neighbours == "add-remove" else (2, 2))
    unit = 2**UNIT_BITS
    gaussian = persons_by_records(MOST, Loss.gaussian(Fraction(1, 2)), neighbours)
    laplace = persons_by_records(MOST, Loss.laplace(Fraction(1)), neighbours)
    assert squared * unit**2 <= gaussian.noise.scale**2 <= squared * unit**2 + 2 * gaussian.noise.scale
    assert laplace.noise.scale == length * unit


def test_files_and_forms_agree(tmp_path: Path) -> None:
    np.testing.assert_array_equal(binned(FILE, tmp_path / "one"), binned(FILE, tmp_path / "parts", as_folder))
    who = [name for name, a, b in FILE if a in (0, 1, 2) and b in ("x", "y")]
    numbers = [min(who.count(name), MOST) for name in set(who)]
    assert binned(FILE, tmp_path / "again").tolist() == [numbers.count(k) for k in range(1, MOST + 1)]


def test_a_person_in_several_bins_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had a person as many keys as batches, one person would move two bins."""
    monkeypatch.setattr(per_person, "person_hashes", _by_place)
    protection = Protection.from_facts({"neighbours": "add-remove", "most_records": MOST, "person": "who"})
    base = binned(FILE, tmp_path / "base", as_folder)
    moved = [binned(data, tmp_path / str(n), as_folder) - base for n, data in enumerate(changed(FILE, protection))]
    assert max(int((each**2).sum()) for each in moved) > 1


def _by_place(table: Any, source: Any, partition: Any, place: int, key: Any) -> Any:
    from dpdist.records.persons import person_hashes

    hashes, absent = person_hashes(table, source, partition, place, key)
    return hashes + np.uint64(hash(partition.path) % 2**32), absent
