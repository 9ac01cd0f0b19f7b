"""The files that every system reads, and the exact answers."""

from __future__ import annotations

import csv
import datetime
import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from protocol import (
    AGES,
    CODES,
    DAYS,
    FLIGHTS,
    LEVELS,
    MOST_PAID,
    MOST_SPENT,
    PURCHASES,
    REGIONS,
    SEXES,
    SPARSE,
    TABLES,
    TOWNS,
    Answers,
    cells,
    in_table,
    key,
    running,
)

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("DPDIST_DATA", ROOT.parent / "shared" / "data"))
SPARSE_NAMES = ("workclass", "education-num", "marital-status", "occupation", "relationship")
ROWS = 50_000
Rows = list[dict[str, Any]]


def people(count: int) -> Rows:
    """Invented people with a region, sex, age and payment."""
    state = np.random.default_rng(11)
    regions, sexes = state.choice(REGIONS, count, p=[0.4, 0.3, 0.2, 0.1]), state.choice(SEXES, count)
    ages = np.minimum(state.gamma(6, 7, count).astype(int), 99)
    paid = np.minimum(state.lognormal(10, 0.6, count).astype(int), MOST_PAID)
    return [
        {"region": str(r), "sex": str(s), "age": int(a), "paid": int(p)}
        for r, s, a, p in zip(regions, sexes, ages, paid, strict=True)
    ]


def flights(count: int) -> Rows:
    """Flights of the Bureau of Transportation Statistics: the hour of departure and the delay, in steps of five minutes."""
    table = np.load(SHARED / "flights_hour_delay_distance_24x64x64.npy").sum(axis=2)
    hours, delays = np.unravel_index(np.repeat(np.arange(table.size), table.ravel()), table.shape)
    some = np.random.default_rng(12).permutation(hours.size)[:count]
    return [{"departure": int(hours[i]), "delay": int(delays[i])} for i in some]


def purchases(count: int) -> Rows:
    """The first purchases of every customer of the shop of the examples, with a known town."""
    start, taken = datetime.date(2026, 9, 1), Counter[str]()
    found = []
    with gzip.open(ROOT / "examples" / "shop" / "sales.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["town"] and row["paid"] and taken[row["customer"]] < PURCHASES:
                taken[row["customer"]] += 1
                day = (datetime.date.fromisoformat(row["sold"]) - start).days
                spent = min(float(row["paid"]), MOST_SPENT)
                found.append({"customer": row["customer"], "bought": day, "town": row["town"], "spent": spent})
    return found[:count]


def births(count: int) -> Rows:
    """Persons of the Current Population Survey by country of birth, with the subregion and the region of the world."""
    folder = ROOT / "examples" / "birthplaces"
    with (folder / "levels.csv").open(encoding="utf-8") as file:
        levels = {row["born"]: row for row in csv.DictReader(file)}
    with (folder / "counts.csv").open(encoding="utf-8") as file:
        rows = [
            levels[row["born"]] for row in csv.DictReader(file) for _ in range(int(row["people"])) if row["born"] in levels
        ]
    some = np.random.default_rng(13).permutation(len(rows))[:count]
    return [{name: rows[i][name] for name in LEVELS} for i in some]


def adults(count: int) -> Rows:
    """UCI Adult: five of its attributes, as codes."""
    with np.load(SHARED / "adult_discretized.npz") as file:
        columns = [file[name].tolist() for name in SPARSE_NAMES]
    return [dict(zip(CODES, codes, strict=True)) for codes in zip(*columns, strict=True)][:count]


FILES = {"people": people, "flights": flights, "purchases": purchases, "births": births, "adults": adults}


def written(folder: Path, invented: int) -> dict[str, Rows]:
    """Every file that can be made here: so many invented people, and at most ``ROWS`` rows of the others."""
    found = {}
    for name, make in FILES.items():
        try:
            rows = make(invented if make is people else ROWS)
        except FileNotFoundError:
            continue
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        found[name] = rows
    return found


def truth(files: dict[str, Rows]) -> dict[str, Answers]:
    """The exact answers of every question whose file is there."""
    found = _of_people(files["people"])
    if "flights" in files:
        found["flights"] = _tables(FLIGHTS, files["flights"])
    shop = files["purchases"]
    found["spent"] = {town: sum(row["spent"] for row in shop if row["town"] == town) for town in TOWNS}
    days = Counter(key(row["bought"]) for row in shop)
    found["days"] = running({name: float(n) for name, n in days.items()}, range(DAYS))
    counts = {name: Counter(row[name] for row in files["births"]) for name in LEVELS}
    found["levels"] = {f"{name}: {value}": float(n) for name in LEVELS for value, n in counts[name].items()}
    if "adults" in files:
        found["sparse"] = _tables(SPARSE, files["adults"])
    return found


def _of_people(rows: Rows) -> dict[str, Answers]:
    ages = np.array([row["age"] for row in rows])
    mine = {region: [row for row in rows if row["region"] == region] for region in REGIONS}
    return {
        "tables": _tables(TABLES, rows),
        "prefix": {key(age): float((ages <= age).sum()) for age in AGES},
        "sums": {region: float(sum(row["paid"] for row in some)) for region, some in mine.items()},
        "means": {region: float(np.mean([row["paid"] for row in some])) for region, some in mine.items()},
        "medians": {region: float(np.median([row["age"] for row in some])) for region, some in mine.items()},
    }


def _tables(tables: tuple[tuple[str, ...], ...], rows: Rows) -> Answers:
    found: Answers = {}
    for of in tables:
        counts = Counter(key(*(row[name] for name in of)) for row in rows)
        found |= in_table(of, {cell: float(counts[cell]) for cell in cells(of)})
    return found
