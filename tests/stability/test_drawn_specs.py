"""Neighbouring files of specs of which every part is drawn by itself: what is measured moves by no more than is charged.

What a part of the budget would find first (names, edges, bounds) is declared here: finding it has tests of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dpdist.engine import inline
from dpdist.errors import InvalidInput, UnknownValue
from dpdist.pipeline.histogram import count
from dpdist.pipeline.preprocess import records_in_parts
from dpdist.planner.derived_statistics import check_means
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy.privacy_unit import ProtectedPersons, Protection
from dpdist.spec import load
from dpdist.spec.budgeted_step import NoisyStep
from tests.case_selection import slow_after_first
from tests.properties.compositions import context_of_all
from tests.properties.random_specs import Content, Draw
from tests.properties.wider_specs import Wider
from tests.stability.covered import covered, squared_length
from tests.stability.test_worst_pairs import noise_spent, numbers, step_of
from tests.support.complete_tree import needs_plugin
from tests.support.measurement_readers import measured

FIRST = int(os.environ.get("DPDIST_TEST_FIRST_SPEC", "0"))
"""Other specs than those of every run: this number and those after it."""
OF_PERSONS = (8, 10, 27, 32)
"""Specs of persons in several records and groups, under both noises, which their neighbours come near."""
NEIGHBOURS = 4
NEW = 10**9
"""The name of a person who comes: nobody else has it."""
IDLE = ("quantiles", "postprocess", "title", "language", "about", "site", "assume", "output", "period")
"""Parts that move nothing that is measured, and that others do not go with."""
PLACES = ("path", "sql", "connection", "delta", "snapshot", "csv", "header", "columns", "types", "counts")
"""Of records, which are given as one file of rows here."""
Rows = list[dict[str, Any]]


def files_of(draw: Draw, planned: ReleasePlan) -> Iterator[Rows]:
    """Records, and after them the records of neighbours, each with one person's or unit's records less, more, or other ones."""
    random, protection = Random(1), planned.job.guarantee.protection
    before = drawn_records(draw)
    yield before
    changes = ["go", "come"] if planned.job.guarantee.neighbours == "add-remove" else ["go", "come", "both", "both"]
    for _ in range(NEIGHBOURS):
        change, others = random.choice(changes), drawn_records(draw)
        gone = rows_of_unit(random, before, protection) if change != "come" else set()
        kept = [row for place, row in enumerate(before) if place not in gone]
        alone = protection.person is None or (change == "both" and before[min(gone)]["who"] is None)
        most = protection.most_records if protection.person is None else 1 if alone else random.randint(1, 8)
        come = random.choices(others, k=most) if random.random() < 0.5 else [random.choice(others)] * most
        for row in come if change != "go" else []:
            kept.insert(random.randint(0, len(kept)), {**row, "who": NEW if isinstance(row["who"], int) else str(NEW)})
        yield kept


def drawn_records(draw: Draw) -> Rows:
    """Records of a draw, a few at least."""
    while not (rows := draw.table().to_pylist()):
        pass
    return rows


def rows_of_unit(random: Random, rows: Rows, protection: Protection) -> set[int]:
    """Where the records of one unit are: of a person, of one record without a person, or of as many records as are promised."""
    if protection.person is None:
        return set(random.sample(range(len(rows)), min(protection.most_records, len(rows))))
    chosen = random.randrange(len(rows))
    who = rows[chosen]["who"]
    return {chosen} if who is None else {place for place, row in enumerate(rows) if row["who"] == who}


def integers(planned: ReleasePlan, content: Content, records: pa.Table, folder: Path) -> np.ndarray:
    """What is measured of a file, without noise, as integers of any size."""
    context = context_of_all()
    folder.mkdir()
    for named in (*folder.parent.glob("*.npy"), *folder.parent.glob("keys.txt")):
        shutil.copy(named, folder)
    pyarrow.parquet.write_table(records, folder / "records.parquet", row_group_size=7)
    (folder / "release.yaml").write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False))
    job = load(folder / "release.yaml")
    counts, _ = count(context, job.source, job.measured, planned.layout)
    z = measured(context.store, inline(), planned.measurement, counts, planned.layout)
    return np.array([int(value) for value in z], dtype=object)


def farthest(draw: Draw, planned: ReleasePlan, folder: Path) -> int:
    """How far neighbours move what is measured, squared. Raises: DpdistError for records that the spec refuses."""
    check_means(planned.job.workload, planned.measurement)
    schema = draw.table().schema
    tables = (pa.Table.from_pylist(rows, schema) for rows in files_of(draw, planned))
    first, *after = (integers(planned, draw.content, each, folder / str(n)) for n, each in enumerate(tables))
    return max(squared_length(each - first, planned.measurement.norm) for each in after)


def drawn(draw: Draw) -> tuple[Draw, ReleasePlan] | None:
    """A spec that can be planned, with what it would find first declared; None where nothing is left of it."""
    content, person = draw.content, draw.content["records"].get("person", {})
    for part in IDLE:
        content.pop(part, None)
    places = {name: part for name, part in content["records"].items() if name not in PLACES}
    content["records"] = {"path": "records.parquet", **places}
    content["ledger"]["cap"].pop("per", None)
    if content.pop("stream", None) is not None:
        content["records"].pop("person", None)  # steps of one person have tests of their own
    for name, part in content["domain"].items():
        if "private" in part.values():
            kept = {key: each for key, each in part.items() if key == "missing"}
            content["domain"][name] = {**draw.declared[name], **kept, "outside": "drop"}
    for part in (person, *content.get("sums", {}).values()):
        part |= {key: -2 if key == "from" else 2 for key, each in part.items() if each == "private"}
        part.pop("selection", None)
    if draw.planned(lambda job: plan(context_of_all(), job)) is None:
        return None
    draw.content["left_out"] = None
    return draw, plan(context_of_all(), load(draw.content))


@pytest.mark.parametrize(
    "seed", slow_after_first(2, dict.fromkeys([*([] if FIRST else OF_PERSONS), *range(FIRST, FIRST + 150)]))
)
def test_neighbours_of_what_is_asked_together_are_covered(seed: int, tmp_path: Path) -> None:
    check_covered(Draw(seed), tmp_path)


@pytest.mark.parametrize("seed", slow_after_first(1, range(FIRST, FIRST + 150)))
def test_neighbours_of_what_else_is_asked_together_are_covered(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = Wider(seed)
    draw.write_named_files(tmp_path)
    check_covered(draw, tmp_path)


def check_covered(draw: Draw, tmp_path: Path) -> None:
    """Neighbours of a file of a draw move what is measured by no more than is charged, or the spec refuses the records."""
    found = drawn(draw)
    if found is None:
        return
    draw, planned = found
    with contextlib.suppress(InvalidInput, UnknownValue):  # records that the spec refuses
        assert covered(planned, farthest(draw, planned, tmp_path)), draw.content


@needs_plugin("gate")
@pytest.mark.parametrize("seed", slow_after_first(2, dict.fromkeys([*OF_PERSONS, *range(FIRST, FIRST + 60)])))
def test_neighbours_whose_completeness_is_asked_for_are_covered(seed: int, tmp_path: Path) -> None:
    found = drawn(Draw(seed))
    if found is None:
        return
    draw, planned = found
    draw.content["gate"] = {"completeness": {"share": 0.5}}
    schema, exact = draw.table().schema, list[np.ndarray]()
    for number, rows in enumerate(files_of(draw, planned)):
        place = tmp_path / str(number)
        place.mkdir()
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema), place / "records.parquet", row_group_size=7)
        (place / "release.yaml").write_text(yaml.safe_dump(draw.content, allow_unicode=True, sort_keys=False))
        try:
            step = step_of(place / "release.yaml")
            exact.append(numbers(step, step.count_records(records_in_parts(context_of_all(), step.job))))
        except (InvalidInput, UnknownValue):  # the spec goes without it, or refuses the records
            return
    assert isinstance(step, NoisyStep)
    assert max(noise_spent(step, exact[0], each) for each in exact[1:]) <= 1, draw.content


def test_half_of_a_persons_records_is_too_little_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = ProtectedPersons.distance.fget
    monkeypatch.setattr(ProtectedPersons, "distance", property(lambda self: replace(true(self), records=1)))
    draw, planned = drawn(Draw(OF_PERSONS[0])) or pytest.fail("it can be planned")
    assert not covered(planned, farthest(draw, planned, tmp_path))
