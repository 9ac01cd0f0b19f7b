"""Bounds on the total of a person: every person that there can be moves what is measured by no more than the noise hides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.arrays.array_workspace import InMemory
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.counting import contribution_bounding, histogram_counting
from dpdist.domain import Domain
from dpdist.domain.numeric_columns import Amounts, Bound
from dpdist.engine import inline
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Counts, check_record_limit
from dpdist.measurement.sensitivity import bounded_totals
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources import record_sources
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.complete_tree import installed_releases

BY_B = {"marginals": {"of": [[], ["b"]]}}
AMOUNTS, GROUPS, WIDTH = (None, 0, 1, 2, 9), ("x", "y"), 2
"""Missing, at both ends of a range of two steps, between them and beyond."""
Person = tuple[tuple[int | None, str], ...]
MECHANISMS = installed_releases(
    {
        "coa": {"mechanism": "coa"},
        "identity": {"mechanism": "identity"},
        "residual": {"mechanism": "residual"},
        "p-identity": {"mechanism": "p-identity", "budget": {"epsilon": 1}, "cap": {"epsilon": 1}},
        "p-identity-products": {"mechanism": "p-identity-products", "budget": {"epsilon": 1}, "cap": {"epsilon": 1}},
    }
)
EXACT = ("coa", "identity", "p-identity")
"""Strategies over cells, whose sensitivity is that of a person that there is; of terms it is a bound, as with 'replace-one'."""
BOUNDS = ((2, 1), (4, 1), (3, 2))
"""Records and times the largest amount: with the lower end at zero (twice) and below it."""


@cache
def _planned(folder: Path, mechanism: str, neighbours: str, most: int, times: int, missing: bool) -> ReleasePlan:
    chosen = dict(MECHANISMS[mechanism])
    amounts = {"from": 0, "to": WIDTH, "most_per_person": times * WIDTH, **({"missing": "drop"} if missing else {})}
    path = small_release.write(
        folder / f"{mechanism}-{neighbours}-{most}-{times}-{missing}",
        neighbours=neighbours,
        records={"path": "records.parquet", "person": {"column": "who", "most_records": most}},
        domain={"b": {"categories": list(GROUPS)}},
        sums={"a": amounts},
        workload=[BY_B, {**BY_B, "sum": "a"}],
        ledger={"dataset": "small", "cap": chosen.pop("cap", {"rho": 1})},
        **{"budget": {"rho": 0.1}, **chosen},
    )
    return plan(Context(folder, Store(folder / "store"), inline(), ignore_progress), load(path))


def people(most: int) -> Iterator[Person]:
    """All records that a person can have, in some order: one more than counts; amounts beyond the range count as those at its end."""
    kinds = list(product(AMOUNTS[:-1], GROUPS))
    for size in range(most + 2):
        yield from combinations_with_replacement(kinds, size)


def person_counts(person: Person, domain: Domain, most: int, times: int) -> np.ndarray:
    """What counting makes of a person, from its definition: the first records, their amounts scaled down to the bound."""
    amounts = domain.attributes[-1].amounts
    assert amounts is not None
    table = np.zeros(domain.shape, dtype=int)
    records = person[:most]
    clamped = [None if amount is None else min(max(amount, 0), WIDTH) for amount, _ in records]
    total, bound = sum(each or 0 for each in clamped), times * WIDTH
    for (_, group), amount in zip(records, clamped, strict=True):
        row = GROUPS.index(group)
        if amount is None:
            table[row, 2] += amounts.steps
            continue
        steps = amount if total <= bound else amount * bound // total
        table[row, 0] += amounts.steps - amounts.low - steps
        table[row, 1] += amounts.low + steps
    return table


def reached(planned: ReleasePlan, tables: list[np.ndarray], *, replaced: bool) -> int:
    """The largest distance, squared, of what is measured: of persons from nobody, or from each other."""
    grid = planned.measurement
    points = np.array(
        [
            to_array(grid.exact_values(Counts(ArrayVector(_counted(planned, table)), planned.layout), InMemory()))
            for table in tables
        ]
    ).astype(object)
    power = 1 if grid.norm == "l1" else 2
    origins = points if replaced else np.zeros_like(points[:1])
    return max(int((np.abs(points - each) ** power).sum(axis=1).max()) for each in origins) ** (2 // power)


def _counted(planned: ReleasePlan, table: np.ndarray) -> np.ndarray:
    """The tables that are counted, of a table of all cells."""
    layout = planned.layout
    cells = np.arange(table.size)
    counts = np.zeros(layout.size, dtype=np.int64)
    np.add.at(counts, layout.positions(cells), np.tile(table.ravel(), max(1, len(layout.tables))))
    return counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("totals")


def unique(tables: Iterator[np.ndarray]) -> list[np.ndarray]:
    return [np.array(each).reshape(len(GROUPS), -1) for each in sorted({tuple(t.ravel().tolist()) for t in tables})]


OFTEN = [("coa", (4, 1)), ("residual", (2, 1)), ("p-identity", (2, 1)), ("identity", (3, 2))]


@pytest.mark.parametrize(
    ("mechanism", "bound"),
    [
        pytest.param(m, b, marks=() if (m, b) in OFTEN else pytest.mark.slow, id=f"{m}-{b[0]}-{b[1]}")
        for m in MECHANISMS
        for b in BOUNDS
    ],
)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_person_moves_more_than_is_declared(
    mechanism: str, bound: tuple[int, int], neighbours: str, folder: Path
) -> None:
    """All persons with up to k + 1 records; where the sensitivity is exact, one of them reaches it."""
    planned = _planned(folder, mechanism, neighbours, *bound, missing=True)
    domain = planned.job.measured.domain
    tables = unique(person_counts(person, domain, *bound) for person in people(bound[0]))
    found = reached(planned, tables, replaced=neighbours == "replace-one")
    declared = planned.measurement.sensitivity_squared
    assert found <= declared
    least = (1 - 1e-9) if mechanism in EXACT else (0.6 if neighbours == "add-remove" else 0.3)
    assert found >= least * declared


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("pure", [True, False], ids=["laplace", "gaussian"])
def test_records_of_one_share_are_no_whole_records(neighbours: str, pure: bool, tmp_path: Path) -> None:
    """Columns whose ends are one step apart: a record with the largest amount has two shares at one end and less than none at the
    other, and only strategies that know totals measure it."""
    amount = {"epsilon": 1} if pure else {"rho": 0.1}
    path = small_release.write(
        tmp_path,
        neighbours=neighbours,
        records={"path": "records.parquet", "person": {"column": "who", "most_records": 3}},
        domain={"b": {"categories": list(GROUPS)}},
        sums={"a": {"from": 0, "to": WIDTH, "most_per_person": WIDTH, "missing": "drop"}},
        workload=[{"marginals": {"of": [["b"], []]}}, {**BY_B, "sum": "a"}],
        budget=amount,
        ledger={"dataset": "small", "cap": amount},
    )
    planned = plan(Context(tmp_path, Store(tmp_path / "store"), inline(), ignore_progress), load(path))
    domain = planned.job.measured.domain
    assert domain.shares_per_record == 1 < domain.max_abs_shares
    tables = unique(person_counts(person, domain, 3, 1) for person in people(3))
    assert reached(planned, tables, replaced=neighbours == "replace-one") <= planned.measurement.sensitivity_squared
    assert mechanism_of(planned.strategy.name).supports_fractional_records


def written(folder: Path, data: list[tuple[str, int | None, str]], rows: int = 100) -> record_sources.Source:
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(zip(*data, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int64(), pa.string())
    table = pa.table({n: pa.array(c, t) for n, c, t in zip(("who", "a", "b"), columns, types, strict=True)})
    pyarrow.parquet.write_table(table, folder / "records.parquet", row_group_size=rows)
    return record_sources.source_of(folder / "records.parquet", columns={}, **small_release.whose("who", most_records=3))


def counted(folder: Path, source: record_sources.Source, domain: Domain) -> np.ndarray:
    store = Store(folder / "store")
    found, _ = histogram_counting.count(source, domain, store, inline(), root=keys.Secret(bytes(range(32))))
    return np.asarray(store.read_array(found)).reshape(domain.shape)


def some_files() -> list[list[tuple[str, int | None, str]]]:
    """Files of three persons with up to five records each, in a random order; and one of every person alone with three."""
    state = np.random.default_rng(4)
    kinds = list(product(AMOUNTS, GROUPS))
    out = []
    for _ in range(5):
        data = [(who, *kinds[state.integers(len(kinds))]) for who in "uvw" for _ in range(state.integers(6))]
        out.append([data[i] for i in state.permutation(len(data))])
    return [*out, [("u", 2, "x")] * 3, [("u", 2, "x"), ("u", 1, "y"), ("u", 2, "y")], []]


def agrees(folder: Path, planned: ReleasePlan, rows: int) -> bool:
    """Whether counting gives what its definition says, for all files."""
    domain = planned.job.measured.domain
    for number, data in enumerate(some_files()):
        own = [tuple((a, b) for who, a, b in data if who == name) for name in "uvw"]
        expected = sum((person_counts(person, domain, 3, 1) for person in own), np.zeros(domain.shape, dtype=int))
        place = folder / str(number)
        if not np.array_equal(counted(place, written(place, data, rows), domain), expected):
            return False
    return True


def test_files_in_many_parts_are_counted_by_the_definition(folder: Path, tmp_path: Path) -> None:
    planned = _planned(folder, "coa", "add-remove", 3, 1, missing=True)
    assert agrees(tmp_path, planned, 2)


def test_the_order_of_rows_does_not_matter(folder: Path, tmp_path: Path) -> None:
    """Of persons with up to k records: every order of a person's records counts the same."""
    assert ordered_alike(folder, tmp_path)


def ordered_alike(folder: Path, tmp_path: Path) -> bool:
    domain = _planned(folder, "coa", "add-remove", 3, 1, missing=True).job.measured.domain
    orders = [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    data: list[tuple[str, int | None, str]] = [("u", 2, "x"), ("u", 1, "y"), ("u", 2, "y")]
    found = [
        counted(tmp_path / str(n), written(tmp_path / str(n), [data[i] for i in order]), domain)
        for n, order in enumerate(orders)
    ]
    return all(np.array_equal(each, found[0]) for each in found)


def forgotten(rows: Any, domain: Domain) -> np.ndarray:
    """No bound."""
    del domain
    return np.asarray(rows["cell"])


def by_blocks(rows: Any, domain: Domain) -> np.ndarray:
    """The bound of every two records of a person instead of all."""
    parts = [within_total(rows[start : start + 2], domain) for start in range(0, rows.size, 2)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def in_order(rows: Any, domain: Domain) -> np.ndarray:
    """Amounts are cut off where the total is reached, in the order of records."""
    column = domain.attributes[-1]
    assert column.amounts is not None
    out, left = [], {}
    for high, cell in zip(rows["high"].tolist(), rows["cell"].tolist(), strict=True):
        code = cell % column.kinds
        if code > column.amounts.width:
            out.append(cell)
            continue
        kept = min(code, left.get(high, column.amounts.width))
        left[high] = left.get(high, column.amounts.width) - kept
        out.append(cell - code + kept)
    return np.array(out, dtype=np.int64)


within_total = contribution_bounding.scale_to_total


@pytest.mark.parametrize("fault", [forgotten, by_blocks], ids=lambda fault: fault.__name__)
def test_faults_of_the_bound_are_found(
    fault: Callable[..., np.ndarray], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts differ from their definition, and a person moves what is measured by more than is declared."""
    monkeypatch.setattr(contribution_bounding, "scale_to_total", fault)
    planned = _planned(folder, "coa", "add-remove", 3, 1, missing=True)
    assert not agrees(tmp_path / "all", planned, 100)
    data: list[tuple[str, int | None, str]] = [("u", 2, "x")] * 3
    table = counted(tmp_path / "one", written(tmp_path / "one", data), planned.job.measured.domain)
    assert reached(planned, [table], replaced=False) > planned.measurement.sensitivity_squared


def test_a_bound_that_depends_on_the_order_is_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contribution_bounding, "scale_to_total", in_order)
    assert not ordered_alike(folder, tmp_path)


def test_a_sensitivity_without_mixed_corners_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person with most records of nothing in one group and the largest amounts in the other moves farther than either alone."""
    corners = bounded_totals._longest_corner

    def alone(bound: bounded_totals.Totals, products: np.ndarray, none: int) -> float:
        own = products.diagonal()
        assert corners(bound, products, none) > 0
        return max(bound.records**2 * float(own[:none].max()), bound.times**2 * float(own[none:].max()))

    monkeypatch.setattr(bounded_totals, "_longest_corner", alone)
    planned = _planned(tmp_path, "coa", "add-remove", 4, 1, missing=True)
    tables = unique(person_counts(person, planned.job.measured.domain, 4, 1) for person in people(4))
    assert reached(planned, tables, replaced=False) > planned.measurement.sensitivity_squared


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_many_groups_are_bounded_as_few_are(norm: str, neighbours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the triangle inequality, where there are too many columns or corners to compare: never less than all pairs say."""
    state = np.random.default_rng(1)
    bound = bounded_totals.Totals(5, 2, 3, (6, 3), (-4, 13))
    rows = state.integers(-50, 50, (7, 12))
    sizes = small_release.SIZES
    found = {"l2": bounded_totals.totals_l2_squared, "l1": bounded_totals.totals_l1}[norm]
    exact = found(bound, iter([rows[:4], rows[4:]]), neighbours, sizes)
    parts = np.concatenate(bound.columns(rows), axis=1)
    points = bound.matrix(8, 4) @ parts.T
    others = points if neighbours == "replace-one" else points[:1]
    power = 1 if norm == "l1" else 2
    farthest = max(int((np.abs(points - each) ** power).sum(axis=1).max()) for each in others)
    assert farthest <= exact <= farthest + 1
    monkeypatch.setattr(bounded_totals, "MOST_CORNERS", 3)
    assert found(bound, iter([rows]), neighbours, sizes) >= exact
    assert found(bound, iter([rows]), neighbours, small_release.Sizes(pair_cells=2, pair_work=2)) >= exact


def test_all_cells_alike_are_known_from_a_few(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a domain with more than four groups: the same as with all of its cells."""
    from dpdist.measurement import dense_measurement
    from dpdist.operators import Identity

    bound = bounded_totals.Totals(5, 2, 2, (6, 3), (-4, 13))
    mixing = np.broadcast_to(np.int64(7), (14,))
    for neighbours in ("add-remove", "replace-one"):
        for norm in ("l2", "l1"):
            few = dense_measurement._within_totals(mixing, Identity(14), bound, norm, neighbours, small_release.SIZES)
            whole = dense_measurement._within_totals(
                mixing.copy(), Identity(14), bound, norm, neighbours, small_release.SIZES
            )
            assert few == whole


@pytest.mark.parametrize("steps", [1, 7, 60])
@pytest.mark.parametrize(
    "bound", [Bound(records=3, times=2), Bound(records=10, times=1), Bound(records=4, times=1)], ids=str
)
def test_the_most_shares_of_a_record_are_those_of_some_amount(steps: int, bound: Bound) -> None:
    """Of every amount that a record may have, the shares at both ends, without their signs."""
    amounts = Amounts.of_persons(Fraction(1), steps, bound)
    levels = range(amounts.low, amounts.low + amounts.width + 1)
    assert amounts.max_abs_shares == max(abs(level) + abs(amounts.steps - level) for level in levels)


def test_more_records_than_fit_are_refused_by_their_shares(folder: Path) -> None:
    """A record of the largest amount has more shares, without their signs, than it is divided into."""
    layout = _planned(folder, "coa", "add-remove", 4, 1, missing=True).layout
    assert (layout.shares_per_record, layout.max_abs_shares) == (2, 4)
    assert _planned(folder, "coa", "add-remove", 3, 2, missing=True).layout.max_abs_shares == 2
    check_record_limit(2**28 * 64, 64, 2**10)
    with pytest.raises(InvalidInput, match="holds up to 268435456 records"):
        check_record_limit(2**28 * 64 + 1, 64, 2**10)


def test_counting_keeps_to_the_bound_that_the_noise_is_for(folder: Path, tmp_path: Path) -> None:
    planned = _planned(folder, "coa", "add-remove", 3, 1, missing=True)
    source = record_sources.source_of(
        written(tmp_path, [("u", 1, "x")]).files[0][0], columns={}, **small_release.whose("who", most_records=4)
    )
    with pytest.raises(InvalidInput, match="bounded for persons with up to 3 records, found up to 4"):
        counted(tmp_path, source, planned.job.measured.domain)
    with pytest.raises(InvalidInput, match="up to 3 records"):
        planned.strategy.measurement(planned.workload, neighbours="add-remove", most_records=4)


@pytest.mark.parametrize("find", [bounded_totals.totals_l1, bounded_totals.totals_l2_squared])
def test_rows_whose_shares_are_beyond_64_bits_are_refused(find: Any) -> None:
    bound = bounded_totals.Totals(2, 1, 2, (2**19, 2**19), (0, 2**20))
    rows = np.array([[2**24, 0, -(2**24), 2**24]])
    assert find(bound, iter([rows]), "add-remove", small_release.SIZES) > 0
    with pytest.raises(InvalidInput, match="grid entries are too large"):
        find(bound, iter([rows << 20]), "add-remove", small_release.SIZES)
