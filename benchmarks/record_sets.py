"""Record sets for ``benchmarks/adaptive_tables.py``: NAME.npz (an array of whole numbers for each attribute) and NAME.json (their sizes).

    python benchmarks/record_sets.py FOLDER TO

FOLDER holds public data: ``adult_discretized.npz`` with its ``.domain.json`` (UCI Adult), ``census_kdd.npz`` (UCI Census-Income, of which
fourteen attributes that are codes already are taken), ``ca_pums_10000.csv`` (US Census Bureau, California; incomes in 16 bins that end at
quarters of powers of ten) and ``flights_hour_delay_distance_24x64x64.npy`` (US Bureau of Transportation Statistics). A file that is not
there is left out. Two wide and sparse sets are drawn: 'classes' has 24 attributes of 16 values, of 10,000 records in twelve classes,
within which attributes are independent and favour few values; 'chain' has 40 attributes of 3 to 12 values, of 20,000 records, each of
which keeps the rank of the one before it with probability 0.7 and has mostly small values.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

CENSUS = {
    "age": 91, "class_worker": 9, "det_ind_code": 52, "det_occ_code": 47, "education": 17, "marital_status": 7, "major_ind": 24,
    "major_occ": 15, "race": 5, "sex": 2, "num_emp": 7, "weeks_worked": 53, "year": 2, "income": 2,
}  # fmt: skip
Set = tuple[dict[str, np.ndarray], dict[str, int]]


def adult(folder: Path) -> Set:
    """All attributes of Adult."""
    sizes = json.loads((folder / "adult_discretized.domain.json").read_text())
    columns = np.load(folder / "adult_discretized.npz")
    return {name: columns[name] for name in sizes}, sizes


def census(folder: Path) -> Set:
    """Fourteen attributes of the census."""
    columns = np.load(folder / "census_kdd.npz")
    found = {name: columns[name].astype(np.int64) for name in CENSUS}
    found["year"] = found["year"] - found["year"].min()
    return found, CENSUS


def pums(folder: Path) -> Set:
    """Six attributes of Californians."""
    with (folder / "ca_pums_10000.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    columns["income"] = np.digitize(columns["income"], np.concatenate([[1], 10 ** (np.arange(10, 24) / 4)]))
    found = {name: (column - (name != "income") * column.min()).astype(np.int64) for name, column in columns.items()}
    return found, {name: int(column.max()) + 1 for name, column in found.items()}


def flights(folder: Path) -> Set:
    """Hour, delay and distance of flights."""
    counts = np.load(folder / "flights_hour_delay_distance_24x64x64.npy")
    codes = np.unravel_index(np.repeat(np.arange(counts.size), counts.ravel()), counts.shape)
    names = ("hour", "delay", "distance")
    return dict(zip(names, codes, strict=True)), dict(zip(names, counts.shape, strict=True))


def classes(_: Path) -> Set:
    """Records of twelve classes."""
    state, sizes = np.random.default_rng(1), {f"x{i}": 16 for i in range(24)}
    member = state.choice(12, 10_000, p=state.dirichlet(np.ones(12)))
    found = {}
    for name, size in sizes.items():
        shares = state.dirichlet(np.full(size, 0.15), 12).cumsum(axis=1)
        found[name] = np.minimum((state.random((member.size, 1)) > shares[member]).sum(axis=1), size - 1)
    return found, sizes


def chain(_: Path) -> Set:
    """Records along a chain."""
    state = np.random.default_rng(2)
    sizes = {f"x{i}": int(size) for i, size in enumerate(state.integers(3, 13, 40))}
    found, rank = {}, state.random(20_000)
    for name, size in sizes.items():
        rank = np.where(state.random(rank.size) < 0.7, rank, state.random(rank.size))
        found[name] = np.minimum((size * rank**3).astype(np.int64), size - 1)
    return found, sizes


def sets(folder: Path) -> Iterator[tuple[str, Set]]:
    """All that can be made."""
    for make in (adult, census, pums, flights, classes, chain):
        try:
            yield make.__name__, make(folder)
        except FileNotFoundError as lacking:
            print(f"left out {make.__name__}: {lacking}", file=sys.stderr)


def main(folder: Path, to: Path) -> None:
    """Write them."""
    to.mkdir(parents=True, exist_ok=True)
    for name, (columns, sizes) in sets(folder):
        for each, size in sizes.items():
            assert 0 <= columns[each].min() <= columns[each].max() < size, (name, each)
        np.savez_compressed(to / f"{name}.npz", **{each: column.astype(np.int32) for each, column in columns.items()})
        (to / f"{name}.json").write_text(json.dumps(sizes))
        print(f"{name}: {len(next(iter(columns.values()))):,} records, {len(sizes)} attributes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
