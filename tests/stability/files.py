"""Neighbouring files: small data sets, every way to change one unit of them, and the ways to write them down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dpdist.counting.contribution_bounding import PersonKey
from dpdist.counting.name_counts import NameCounts, name_hashes
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.domain import Domain
from dpdist.engine import Engine
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection
from dpdist.sources.record_sources import Source
from dpdist.storage.array_store import Store

Record = tuple[str, int | None, str | None]
"""Person, a whole number ``a`` and a category ``b``; either may be missing or outside the domain."""
Data = tuple[Record, ...]

BOUNDS: dict[str, dict[str, Any]] = {
    "records": {"person": "who", "most_records": 2},
    "one record": {"person": "who", "most_records": 1},
    "groups": {"person": "who", "most_records": 1, "most_groups": 2},
    "persons": {"person": "who", "most_records": 1, "most_groups": 1},
    "promised": {"person": None, "most_records": 3},
}
"""Whose records count, and how many of each."""
BASE: Data = (
    ("u", 0, "x"),
    ("v", 2, "y"),
    ("u", 0, "x"),
    ("w", 9, "y"),
    ("u", 0, "x"),
    ("w", None, "x"),
    ("u", 2, "y"),
    ("w", 1, None),
)
"""Person u has more records than any bound keeps, three of them alike; w has some outside the domain and some that are missing."""
VALUES: tuple[tuple[int | None, str | None], ...] = ((2, "y"), (9, "x"), (None, "y"), (1, "z"))
SETS: tuple[tuple[tuple[int | None, str | None], ...], ...] = (
    ((2, "y"),) * 4,
    ((9, "x"),),
    ((None, "x"), (9, "y"), (0, "x"), (2, "y"), (0, "x"), (2, "y")),
    ((1, None), (1, "z")),
)
"""What the records of one person may be."""


def changed(base: Data, protection: Protection, *, thorough: bool = False) -> Iterator[Data]:
    """Data sets one change away from ``base``: every person goes, comes or changes; up to k records go, come or are replaced.

    Args:
        thorough: whether every choice of records goes, or those that are alike and every fifth of the others.
    """
    replaced = protection.neighbours == "replace-one"
    if protection.person is not None:
        for person in ("u", "v", "w", "new"):
            rest = tuple(r for r in base if r[0] != person)
            if person != "new":
                yield rest
            for some in SETS if replaced or person == "new" else ():
                own = tuple(("other" if replaced and person == "v" else person, *value) for value in some)
                yield own + rest
                if len(own) > 2:
                    yield rest[:2] + own[:1] + rest[2:] + own[1:]
        return
    most = protection.most_records
    added: list[Data] = [tuple(("t", *v) for v in (value,) * most) for value in VALUES]
    for come in added:
        yield base + come
        yield come + base
    for size in range(1, most + 1):
        for number, gone in enumerate(combinations(range(len(base)), size)):
            alike = len({base[i] for i in gone}) == 1
            if not (thorough or alike or number % 5 == 0):
                continue
            rest = tuple(r for i, r in enumerate(base) if i not in gone)
            yield rest
            yield from (rest + come for come in (added if thorough else added[:1]) if replaced)


PART_BYTES = 60_000
"""Memory of a task so small that persons are dealt out to several parts."""


def partitioned_records(source: Source, domain: Domain, folder: Path) -> PartitionedRecords:
    """The records as they are read before a release, persons in several parts."""
    engine = Engine(workers=1, memory_bytes=PART_BYTES, threads=1, connect=None, local=True)
    return PartitionedRecords(source, domain, Store(folder / "store"), engine, PersonKey(bytes(32)))


def as_parquet(data: Data, folder: Path) -> Path:
    """One file with groups of two rows."""
    path = folder / "records.parquet"
    pyarrow.parquet.write_table(_table(data), path, row_group_size=2)
    return path


def as_csv(data: Data, folder: Path) -> Path:
    path = folder / "records.csv"
    pyarrow.csv.write_csv(_table(data), path)
    return path


def as_folder(data: Data, folder: Path) -> Path:
    """Two files, Parquet and CSV, that share persons; records go to them in turn by their person's name and value."""
    path = folder / "parts"
    path.mkdir()
    halves: tuple[list[Record], list[Record]] = ([], [])
    for record in data:
        halves[sum(map(ord, repr(record))) % 2].append(record)
    pyarrow.parquet.write_table(_table(tuple(halves[0])), path / "1.parquet")
    pyarrow.csv.write_csv(_table(tuple(halves[1])), path / "2.csv")
    return path


def as_counts(data: Data, folder: Path) -> Path:
    """One file with how many records each combination of values has."""
    path = folder / "counts.parquet"
    table = _table(data).group_by(["a", "b"]).aggregate([([], "count_all")])
    pyarrow.parquet.write_table(table.rename_columns(["a", "b", "n"]), path, row_group_size=2)
    return path


def _table(data: Data) -> pa.Table:
    columns = list(zip(*data, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int64(), pa.string())
    return pa.table({name: pa.array(column, t) for name, column, t in zip(("who", "a", "b"), columns, types, strict=True)})


FORMS: dict[str, tuple[Callable[[Data, Path], Path], str]] = {
    "parquet, clip": (as_parquet, "clip"),
    "csv, drop": (as_csv, "drop"),
    "folder, clip": (as_folder, "clip"),
    "counts, clip": (as_counts, "clip"),
}
"""How records are written, and what happens to numbers outside the domain. Counts tell no persons."""


def fits_protection(form: str, protection: Protection) -> bool:
    """Whether files of a form hold what a protection needs."""
    return protection.person is None or form != "counts, clip"


PROTECTIONS = [
    ProtectedRecords(neighbours, most) if person is None else ProtectedPersons(neighbours, most, person)
    for person, most, neighbours in product((None, "who"), (1, 2, 3), ("add-remove", "replace-one"))
]


def weights_by_name(counted: NameCounts) -> dict[str, int]:
    """The weight of every name that was counted, by its text."""
    blocks = list(counted.blocks())
    names, weights = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    texts = counted.find_texts(names)
    hashes = name_hashes(texts, counted.tasks[0][1].persons).tolist()
    by_hash = dict(zip(names.tolist(), weights.tolist(), strict=True))
    assert len(by_hash) == len(texts)
    return {text: by_hash[name] for text, name in zip(texts, hashes, strict=True)}
