"""Quantiles: neighbouring files through counting, against the records that choices take one change to move."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.counting import person_histograms as counting
from dpdist.domain import EXCLUDE_RECORD, Attribute, Domain, amounts_attribute
from dpdist.domain.numeric_columns import Amounts
from dpdist.plugins.quantiles.quantile_counting import values_by_group
from dpdist.privacy.privacy_unit import Protection
from dpdist.sources import record_sources
from tests.case_selection import always
from tests.stability.files import BASE, BOUNDS, Data, as_folder, as_parquet, changed, partitioned_records
from tests.support import small_release

FILE: Data = BASE + tuple(("w", number, "x") for number in (1, -3, 60))
COLUMN = amounts_attribute("a", Amounts(Fraction(0), Fraction(1), 9), EXCLUDE_RECORD)


def counted(data: Data, folder: Path, name: str, form: Any = as_parquet) -> np.ndarray:
    """Records by group and amount, all that counts."""
    folder.mkdir(parents=True)
    source = record_sources.source_of(form(data, folder), columns={}, **small_release.whose(**BOUNDS[name]))
    domain = Domain((Attribute("b", categories=("x", "y"), outside="drop"),), beside=(COLUMN,))
    (values,) = values_by_group(partitioned_records(source, domain, folder), ["b"], [COLUMN]).values
    table = np.zeros((2, 10), dtype=np.int64)
    table[values[0], values[1]] = values[2]
    return table


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", always(["records", "groups"], BOUNDS))
def test_no_person_moves_more_records_than_choices_hide(
    tmp_path: Path, name: str, neighbours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every person goes, comes or changes: in all groups together so many records at most, and some neighbour comes near it."""
    bounds = BOUNDS[name]
    facts = {key: value for key, value in bounds.items() if key != "most_groups"}
    protection = Protection.from_facts({"neighbours": neighbours, **facts})
    most = bounds["most_records"] * bounds.get("most_groups", 1) * (2 if neighbours == "replace-one" else 1)

    def moved(folder: Path) -> int:
        base = counted(FILE, folder / "base", name)
        found = (counted(data, folder / str(n), name) - base for n, data in enumerate(changed(FILE, protection)))
        return max(int(np.abs(each).sum()) for each in found)

    assert most - 1 <= moved(tmp_path / "right") <= most
    if bounds["person"]:
        monkeypatch.setattr(counting, "select_records", lambda source, domain, rows: np.arange(rows.size))
        assert moved(tmp_path / "wrong") > most  # a planted fault: all records of a person


def test_files_and_forms_agree(tmp_path: Path) -> None:
    """By hand: of persons u, v and w two records count."""
    one = counted(FILE, tmp_path / "one", "records")
    assert one.tolist() == counted(FILE, tmp_path / "parts", "records", as_folder).tolist()
    assert one.sum() <= 2 * 3
    every = counted(FILE, tmp_path / "every", "promised")
    assert every[0].tolist() == [4, 1, 0, 0, 0, 0, 0, 0, 0, 1]  # 0 three times and -3; 1; 60
    assert every[1].tolist() == [0, 0, 2, 0, 0, 0, 0, 0, 0, 1]
