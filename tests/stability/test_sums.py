"""Sums of amounts through the whole pipeline: neighbouring files move the shares of records by no more than is declared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.engine import inline
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import check_record_limit
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.statistics.sum_statistics import RecordShares
from dpdist.storage.array_store import Store
from tests.stability.files import FORMS, PROTECTIONS, Data, fits_protection
from tests.stability.test_files import Pipeline, farthest
from tests.support import small_release
from tests.support.complete_tree import installed_releases

AMOUNTS = {"sums": {"a": {"from": 0, "to": 2, "step": 0.5, "missing": "drop"}}}
"""Of the values in ``files``: some at both ends, some between them, some beyond the upper end, and missing ones."""
BY_B = {"marginals": {"of": [[], ["b"]]}}
ASKED = {
    "counts and sums": [BY_B, {**BY_B, "sum": "a"}],
    "means alone": [{**BY_B, "mean": "a"}],
    "variances": [{**BY_B, "variance": "a"}],
}
MECHANISMS = installed_releases(
    {
        "coa": {"mechanism": "coa"},
        "identity": {"mechanism": "identity"},
        "residual": {"mechanism": "residual"},
        "p-identity": {"mechanism": "p-identity", "budget": {"epsilon": 1}, "cap": {"epsilon": 1}},
        "weighted-design": {"mechanism": "weighted-design", "budget": {"epsilon": 1}, "cap": {"epsilon": 1}},
        "p-identity-products": {"mechanism": "p-identity-products", "budget": {"epsilon": 1}, "cap": {"epsilon": 1}},
    }
)


def plan_of(folder: Path, mechanism: str, protection: Protection, asked: str) -> ReleasePlan:
    chosen = dict(MECHANISMS[mechanism])
    path = small_release.write(
        folder,
        neighbours=protection.neighbours,
        records={
            "path": "records.parquet",
            "person": {"column": protection.person, "most_records": protection.most_records},
        },
        domain={"b": {"categories": ["x", "y"], "missing": "drop", "other": "drop"}},
        workload=ASKED[asked],
        ledger={"dataset": "small", "cap": chosen.pop("cap", {"rho": 1})},
        **{"budget": {"rho": 0.1}, **AMOUNTS, **chosen},
    )
    return plan(Context(folder, Store(folder / "store"), inline(), ignore_progress), load(path))


OFTEN = [("csv, drop", PROTECTIONS[3], "coa")]
"""k = 2 records replaced."""
EVERY = [
    pytest.param(form, p, mechanism, marks=() if (form, p, mechanism) in OFTEN else pytest.mark.slow)
    for form in FORMS
    for p in PROTECTIONS
    for mechanism in MECHANISMS
    if (p.most_records == 2 or form == "parquet, clip") and fits_protection(form, p)
]


@pytest.mark.parametrize(("form", "protection", "mechanism"), EVERY, ids=str)
def test_neighbouring_files_move_shares_as_declared(
    form: str, protection: Protection, mechanism: str, tmp_path: Path
) -> None:
    """Four steps of a half: a record is four shares, or two where squares are told, wherever they lie; k of them move the integers by
    what the noise hides."""
    for asked in ASKED if form == "parquet, clip" else ("counts and sums", "variances"):
        planned = plan_of(tmp_path / asked / "plan", mechanism, protection, asked)
        moved, reach = farthest(Pipeline(tmp_path / asked), planned, form, protection)
        shares = planned.job.measured.domain.shares_per_record
        assert shares == (2 if asked == "variances" else 4)
        assert moved == planned.job.moved.length == shares * protection.distance.length
        assert 0.2 * planned.measurement.sensitivity_squared <= reach <= planned.measurement.sensitivity_squared


def small_files(most: int) -> Iterator[Data]:
    """Every file of up to so many records: amounts below, at, between, beyond and missing; two persons, two groups."""
    amounts, persons, groups = (None, -1, 0, 1, 2, 9), ("u", "v"), ("x", "y")
    kinds = [(p, a, b) for p, a, b in product(persons, amounts, groups)]
    for size in range(most + 1):
        yield from product(kinds, repeat=size)


def pushed(planned: ReleasePlan, data: Data, most: int | None) -> np.ndarray:
    """The counted shares of a file, from its definition: a person's first records, each divided between the ends by its amount."""
    domain, seen = planned.job.measured.domain, dict.fromkeys("uv", 0)
    table = np.zeros(domain.shape, dtype=int)
    whole = domain.shares_per_record
    for person, amount, group in data:
        seen[person] += 1
        if most is not None and seen[person] > most:
            continue
        cell = "xy".index(str(group))
        if amount is None:
            table[cell, 2] += whole
            continue
        high = min(max(amount, 0), 2) * 2
        table[cell, 0] += whole - high
        table[cell, 1] += high
    return table


@pytest.mark.parametrize("most", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("person", [None, "who"])
def test_every_small_file_is_counted_by_its_definition_and_hidden(person: str | None, most: int, tmp_path: Path) -> None:
    """Every neighbour of every small file: one record, or one person with all records, more, less or replaced."""
    pipeline = Pipeline(tmp_path)
    protection = ProtectedRecords("replace-one", 1) if person is None else ProtectedPersons("replace-one", 1, person)
    plans = [plan_of(tmp_path / mechanism, mechanism, protection, "counts and sums") for mechanism in ("coa", "p-identity")]
    matrices = [np.concatenate(list(each.measurement.row_blocks() or ())).astype(object) for each in plans]
    tables = {}
    for number, data in enumerate(small_files(most)):
        tables[data] = pushed(plans[0], data, 1 if person else None)
        if number % 199 == 0:
            found = pipeline.counts(data, "parquet, clip", protection, plans[0].job, plans[0].layout)
            np.testing.assert_array_equal(pipeline.store.read_array(found).reshape(tables[data].shape), tables[data])
    moved: set[tuple[int, ...]] = set()
    for data, table in tables.items():
        for place, record in enumerate(data):
            rest = data[:place] + data[place + 1 :]
            if person:
                rest = tuple(r for r in data if r[0] != record[0])
            moved.add(tuple((table - tables[rest]).ravel()))
            if person is None:  # replaced in place
                others = [(record[0], a, b) for a, b in product((None, -1, 0, 1, 2, 9), ("x", "y"))]
                moved |= {tuple((table - tables[(*data[:place], o, *data[place + 1 :])]).ravel()) for o in others}
    changes = np.array(sorted(moved)).astype(object)
    for planned, rows in zip(plans, matrices, strict=True):
        power = 1 if planned.measurement.norm == "l1" else 2
        distances = (np.abs(changes @ rows.T) ** power).sum(axis=1) ** (2 // power)
        assert max(distances) <= planned.measurement.sensitivity_squared
        assert person or max(distances) >= 0.99 * planned.measurement.sensitivity_squared  # the bound is reached


def test_shares_that_are_forgotten_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is not blind: with noise for one record in place of its four shares the bound is exceeded."""
    protection = ProtectedRecords("add-remove", 1)
    monkeypatch.setattr(RecordShares, "stability", lambda self, moved: moved)
    planned = plan_of(tmp_path / "plan", "coa", protection, "counts and sums")
    _, reach = farthest(Pipeline(tmp_path), planned, "parquet, clip", protection)
    assert reach > planned.measurement.sensitivity_squared


@pytest.mark.slow
def test_amounts_beyond_the_range_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with amounts that are not clamped: the record of 9 has 18 of 4 shares."""
    protection = ProtectedRecords("add-remove", 1)
    planned = plan_of(tmp_path / "plan", "coa", protection, "counts and sums")

    def unclamped(self: Domain, kinds: np.ndarray, numbers: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        cells, shares = divided(self, kinds, numbers)
        return cells, np.where(shares == 4, 18, shares)

    divided = Domain.divide_records
    monkeypatch.setattr(Domain, "divide_records", unclamped)
    _, reach = farthest(Pipeline(tmp_path), planned, "parquet, clip", protection)
    assert reach > planned.measurement.sensitivity_squared


def test_no_file_is_read_before_the_records_fit(tmp_path: Path) -> None:
    """More records than the grid holds are refused by their number alone."""
    planned = plan_of(tmp_path, "coa", ProtectedRecords("add-remove", 1), "counts and sums")
    assert planned.layout.shares_per_record == 4
    check_record_limit(2**32, 4)
    with pytest.raises(InvalidInput, match="holds up to 1073741824 records without overflow"):
        check_record_limit(2**32 + 1, 4)
    for bits in (4, 5, 16, 20):
        check_record_limit(2 ** (28 + bits), 2**bits)
        with pytest.raises(InvalidInput, match="holds up to 268435456 records"):
            check_record_limit(2 ** (28 + bits) + 1, 2**bits)
