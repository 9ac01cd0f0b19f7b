"""What was counted once is used again only for the very same question: every part of it, in both orders, in one store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpdist.publish import release_folder
from dpdist.sources.record_sources import PersonColumn, Source
from tests.case_selection import slow_after_first
from tests.support import small_release

STATE = np.random.default_rng(8)
ROWS = 240
TABLE = pa.table(
    {
        "age": STATE.integers(0, 6, ROWS),
        "years": STATE.integers(0, 6, ROWS),
        "person": STATE.integers(0, 40, ROWS),
        "household": STATE.integers(0, 12, ROWS),
    }
)
OTHER = TABLE.set_column(0, "age", pa.array(STATE.integers(0, 6, ROWS)))


def counted(table: pa.Table, column: str = "age", person: str | None = None, most: int = 1) -> list[int]:
    """How often each age is there, of the first ``most`` records of each person; one row after the other."""
    out, seen = [0] * 6, Counter[Any]()
    for row in table.to_pylist():
        seen[row.get(person)] += 1
        if person is None or seen[row[person]] <= most:
            out[row[column]] += 1
    return out


def summed(column: str) -> list[int]:
    """A column added up for each age."""
    return [sum(row[column] for row in TABLE.to_pylist() if row["age"] == age) for age in range(6)]


def in_groups(most: int) -> list[int]:
    """How many persons each age is among the first ``most`` of, where each person has the ages of their records."""
    ages: dict[int, list[int]] = {}
    for row in TABLE.to_pylist():
        mine = ages.setdefault(row["person"], [])
        if row["age"] not in mine and len(mine) < most:
            mine.append(row["age"])
    return [sum(age in mine for mine in ages.values()) for age in range(6)]


def separated_ages(separation: int) -> list[int]:
    """How many persons each age is kept of, where every kept age of a person lies so far above the one before, two ages at most."""
    counts = [0] * 6
    for person in {row["person"] for row in TABLE.to_pylist()}:
        last, kept = -separation, 0
        for age in sorted({row["age"] for row in TABLE.to_pylist() if row["person"] == person}):
            if age - last >= separation and kept < 2:
                last, kept = age, kept + 1
                counts[age] += 1
    return counts


def counting_question(
    table: pa.Table = TABLE,
    *,
    csv: str | None = None,
    named: str | None = None,
    stream: bool = False,
    csv_is: dict[str, str] | None = None,
    **records: Any,
) -> Callable[[Path, Path, str], list[int]]:
    """A question: publishes it without visible noise, and says what came out.

    Args:
        csv: how a line of a CSV file is written; None: the file is Parquet.
        named: the folder that the file lies in, which names a column of it.
        csv_is: the grammar that the spec declares.
        stream: whether the ages are steps of a stream.
    """

    def publish(folder: Path, home: Path, release: str) -> list[int]:
        folder.mkdir(exist_ok=True)
        if csv is not None:
            (folder / "records.csv").write_text("".join(csv.format(a, y) for a, y in zip(*table.columns[:2], strict=True)))
        if named is not None:
            (folder / "parts" / named).mkdir(parents=True)
            pq.write_table(table, folder / "parts" / named / "part.parquet")
        place = "parts" if named else "records.csv" if csv else "records.parquet"
        path = small_release.write(
            folder,
            table=table,
            release=release,
            records={"path": place, **({} if csv_is is None else {"csv": csv_is}), **records},
            domain={"age": {"from": 0, "to": 5}},
            workload=[{"filters": {"of": "age", "apply": [{"window": 1}]}} if stream else {"marginals": {"ways": [1]}}],
            **({"stream": {"name": release, "through": 5}} if stream else {"mechanism": "identity"}),
            budget={"rho": 10**7},
            ledger={"dataset": release, "cap": {"rho": 10**7}, "shared_records": True},
        )
        return [
            round(value)
            for value in release_folder.load_release(small_release.run(path, home).folder)[0]["answer"].to_pylist()
        ]

    return publish


Question = tuple[Callable[[Path, Path, str], list[int]], list[int]]
"""A question and its answer."""

PAIRS: dict[str, tuple[Question, Question]] = {
    "files": ((counting_question(), counted(TABLE)), (counting_question(OTHER), counted(OTHER))),
    "columns": (
        (counting_question(), counted(TABLE)),
        (counting_question(columns={"age": "years"}), counted(TABLE, "years")),
    ),
    "header": (
        (counting_question(csv="{},{}\n", header=["age", "years"]), counted(TABLE)),
        (counting_question(csv="{},{}\n", header=["years", "age"]), counted(TABLE, "years")),
    ),
    "person": (
        (counting_question(person={"column": "person"}), counted(TABLE, person="person")),
        (counting_question(person={"column": "household"}), counted(TABLE, person="household")),
    ),
    "most_records": (
        (counting_question(person={"column": "person", "most_records": 5}), counted(TABLE, person="person", most=5)),
        (counting_question(person={"column": "person", "most_records": 1}), counted(TABLE, person="person", most=1)),
    ),
    "most_groups": (
        (counting_question(person={"column": "person", "most_groups": 1}), in_groups(1)),
        (counting_question(person={"column": "person", "most_groups": 3}), in_groups(3)),
    ),
    "participations": (
        (counting_question(person={"column": "person", "participations": 2}, stream=True), separated_ages(1)),
        (
            counting_question(person={"column": "person", "participations": 2, "separation": 2}, stream=True),
            separated_ages(2),
        ),
    ),
    "counts": (
        (counting_question(counts={"column": "years", "of": "visits"}), summed("years")),
        (counting_question(counts={"column": "household", "of": "visits"}), summed("household")),
    ),
    "grammar": (
        (counting_question(csv="{},{}e-1;0\n", header=["age", "rest"]), counted(TABLE)),
        (
            counting_question(csv="{},{}e-1;0\n", header=["age", "rest"], csv_is={"delimiter": ";", "decimal": ","}),
            [ROWS, 0, 0, 0, 0, 0],
        ),
    ),
    "named": (
        (counting_question(TABLE.select(["years"]), named="age=1"), [0, ROWS, 0, 0, 0, 0]),
        (counting_question(TABLE.select(["years"]), named="age=4"), [0, 0, 0, 0, ROWS, 0]),
    ),
}


def test_every_part_of_a_source_has_a_pair() -> None:
    assert {field.name for kind in (Source, PersonColumn) for field in fields(kind) if field.compare} == {
        *PAIRS,
        *("name", "type", "missing", "snapshot", "types"),
    }, "a new part of Source needs a pair of questions here"


def test_persons_told_apart_in_another_way_are_another_question() -> None:
    kinds: tuple[Any, ...] = ("text", "integer")
    assert len({Source((("file", "0" * 64),), {}, person=PersonColumn("person", kind)).digest for kind in kinds}) == 2
    missing: tuple[Any, ...] = (None, "drop", "each")
    assert (
        len({Source((("file", "0" * 64),), {}, person=PersonColumn("person", missing=each)).digest for each in missing}) == 3
    )


def test_columns_of_another_type_are_another_question() -> None:
    kinds: tuple[Any, ...] = ({}, {"age": "whole"}, {"age": "number"}, {"years": "whole"})
    assert len({Source((("file", "0" * 64),), {}, types=kind).digest for kind in kinds}) == 4


def test_two_snapshots_of_the_same_bytes_are_two_questions() -> None:
    assert len({Source((("file", "0" * 64),), {}, snapshot=snapshot).digest for snapshot in ("", "1", "2")}) == 3


@pytest.mark.parametrize("turned", slow_after_first(1, [False, True]))
@pytest.mark.parametrize("part", PAIRS)
def test_a_count_is_not_taken_for_another(part: str, turned: bool, home: Path) -> None:
    pair = PAIRS[part][:: -1 if turned else 1]
    assert pair[0][1] != pair[1][1]
    for number, (publish, truth) in enumerate(pair):
        assert publish(home.parent / f"data-{number}", home, f"release-{number}") == truth


def test_a_count_is_not_taken_for_that_of_another_domain(home: Path) -> None:
    """Values outside the domain, clipped and then dropped."""
    found = []
    for number, outside in enumerate(("clip", "drop")):
        path = small_release.write(
            home.parent / "data",
            table=TABLE,
            release=f"release-{number}",
            domain={"age": {"from": 1, "to": 4, "outside": outside}},
            workload=[{"marginals": {"ways": [1]}}],
            mechanism="identity",
            budget={"rho": 10**7},
            ledger={"dataset": "small", "cap": {"rho": 2 * 10**7}},
        )
        found.append(
            [round(v) for v in release_folder.load_release(small_release.run(path, home).folder)[0]["answer"].to_pylist()]
        )
    ages = counted(TABLE)
    assert found == [[ages[0] + ages[1], ages[2], ages[3], ages[4] + ages[5]], ages[1:5]]
