"""Random specs and random neighbouring files: what is planned, counted and measured moves by no more than is charged for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import pytest
import yaml

from dpdist.counting import histogram_counting
from dpdist.engine import inline
from dpdist.errors import DpdistError
from dpdist.pipeline.histogram import count
from dpdist.planner.derived_statistics import check_means
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.accounting import laplace_scale
from dpdist.privacy.privacy_unit import ProtectedPersons, Protection, RecordsInSteps
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources.formats.weighted_rows import counted_rows
from dpdist.spec import load
from dpdist.stability import Distance
from dpdist.statistics.statistic import Distances
from dpdist.storage.array_store import Store
from dpdist.strategies.strategy import Strategy
from tests.stability import specs
from tests.stability.covered import covered, squared_length
from tests.stability.specs import PEOPLE, STEPS, Content, Record
from tests.support.measurement_readers import measured


@dataclass(frozen=True)
class Case:
    """A spec that can be planned, and the generator that draws its files.

    Attributes:
        content: what the spec says, but for where its records are.
        fractions: whether the column of numbers holds floating-point numbers, not whole ones.
        refused: so many specs were refused before this one.
    """

    seed: int
    folder: Path
    content: Content
    planned: ReleasePlan
    context: Context
    state: Random
    fractions: bool
    refused: int


@dataclass(frozen=True)
class Moved:
    """How far neighbouring files moved what is measured at most, squared in the norm of the grid."""

    case: Case
    squared: int

    @property
    def covered(self) -> bool:
        """Whether it is no more than the grid declares, and the noise for that is no more than is charged."""
        return covered(self.case.planned, self.squared)

    @property
    def reach(self) -> float:
        """The part of the declared square that was reached."""
        return self.squared / self.case.planned.measurement.sensitivity_squared

    @property
    def kinds(self) -> set[str]:
        """What of all that is drawn this is a case of."""
        spec, grid = self.case.planned.job, self.case.planned.measurement
        person, sums = spec.source.records.person, self.case.content.get("sums", {})
        found = {
            "a person's total": any("most_per_person" in amounts for amounts in sums.values()),
            "sums": bool(sums),
            "groups": person.most_groups is not None,
            "counted persons": "count" in spec.source.records.model_fields_set,
            "participations": person.participations is not None,
            "filters": "filters" in self.case.content["workload"][0],
            "dates": "t" in spec.measured.attributes,
            "counts": spec.source.records.counts is not None,
            "around": spec.measured.centre is not None,
            "relations": any("relation" in entry for entry in self.case.content["workload"]),
            "squares": any({"variance", "covariance", "correlation"} & {*entry} for entry in self.case.content["workload"]),
        }
        unit = "persons" if person.column is not None else "records"
        return {unit, grid.norm, spec.guarantee.neighbours, *(kind for kind, holds in found.items() if holds)}


def drawn(seed: int, folder: Path, *, again: int = 50) -> Case:
    """The first spec of a seed that is not refused when it is planned; ``again``: of so many. Seeds from ``VARIED`` on vary it, those
    from ``COMPOSED`` on compose two of its parts, those from ``RELATED`` on ask for relations."""
    home = folder / "home"
    if not home.exists():
        keys.initialise(home)
    context = Context(home, Store(home / "store"), inline(), ignore_progress)
    state = Random(seed)
    for refused in range(again):
        content, fractions = specs.spec(state), state.random() < 0.6
        content = next(change for first, change in CHANGES if seed >= first)(state, content)
        place = folder / f"{seed}-{refused}"
        try:
            planned = plan(context, load(written(place, content, [], "one", fractions=fractions)))
            check_means(planned.job.workload, planned.measurement)
        except DpdistError:
            continue
        return Case(seed, place, content, planned, context, state, fractions, refused)
    raise AssertionError(f"every spec of seed {seed} was refused")


def _unchanged_content(state: Random, content: Content) -> Content:
    return content


def moved(case: Case, *, files: int) -> Moved:
    """What so many neighbours of one random file move."""
    base = [record for who in PEOPLE for record in specs.records_of(case.state, who, fractions=case.fractions)]
    case.state.shuffle(base)
    form = case.state.choice(["one", "two", "csv"] if case.seed >= VARIED else ["one", "two"])
    before, farthest = integers(case, "base", base, form), 0
    for number in range(files):
        change = integers(case, str(number), neighbour(case, base), form) - before
        farthest = max(farthest, squared_length(change, case.planned.measurement.norm))
    return Moved(case, farthest)


def integers(case: Case, name: str, data: list[Record], form: str) -> np.ndarray:
    """What is measured of a file, without noise, as integers of any size."""
    path = written(case.folder / name, case.content, data, form, fractions=case.fractions)
    counts, _ = count(case.context, load(path).source, load(path).measured, case.planned.layout)
    z = measured(case.context.store, inline(), case.planned.measurement, counts, case.planned.layout)
    return np.array([int(value) for value in z], dtype=object)


def written(folder: Path, content: Content, data: list[Record], form: str, *, fractions: bool) -> Path:
    """A spec and its records, as one Parquet file, or as Parquet beside Arrow or CSV; returns the spec's path."""
    records = folder / "records"
    records.mkdir(parents=True)
    half = len(data) if form == "one" else len(data) // 2
    kept = counted if "counts" in content["records"] else list
    pyarrow.parquet.write_table(table(kept(data[:half]), fractions=fractions), records / "1.parquet", row_group_size=2)
    second = table(kept(data[half:]), fractions=fractions)
    if data[half:] and form == "csv":
        pyarrow.csv.write_csv(second, records / "2.csv")
    elif data[half:]:
        with pa.ipc.new_file(records / "2.arrow", second.schema) as file:
            file.write_table(second, max_chunksize=3)
    path = folder / "release.yaml"
    found = {**content["records"], "path": "records", "empty": "allow"}
    path.write_text(yaml.safe_dump({"release": "random", "left_out": None, **content, "records": found}, sort_keys=False))
    return path


def counted(data: list[Record]) -> list[Record]:
    """One row for all records that are alike but for their person, with their number, and a row of none."""
    alike = Counter(repr({**record, "who": ""}) for record in data)
    first = {repr({**record, "who": ""}): record for record in data}
    return [*({**first[key], "n": number} for key, number in alike.items()), *({**record, "n": 0} for record in data[:1])]


def table(data: list[Record], *, fractions: bool) -> pa.Table:
    types = {"who": pa.string(), "a": pa.float64() if fractions else pa.int64(), "b": pa.string()}
    types |= {"t": pa.timestamp("us", tz="UTC"), "m": pa.float64(), "c": pa.float64(), "n": pa.int64()}
    return pa.table(
        {name: pa.array([r.get(name, 1) for r in data], kind, from_pandas=False) for name, kind in types.items()}
    )


def neighbour(case: Case, base: list[Record]) -> list[Record]:
    """A file one change away: records go, come, or under replace-one both."""
    changes = ["go", "come"] if case.planned.job.guarantee.neighbours == "add-remove" else ["go", "come", "both", "both"]
    change = case.state.choice(changes)
    gone, come = one_change(case, base, change)
    left = [record for place, record in enumerate(base) if change == "come" or place not in gone]
    for record in come if change != "go" else []:
        left.insert(case.state.randint(0, len(left)), record)
    return left


def one_change(case: Case, base: list[Record], change: str) -> tuple[set[int], list[Record]]:
    """The places of records that may go together, and records that may come together: of a person, or as many as are promised."""
    state, protection = case.state, case.planned.job.guarantee.protection
    most = protection.most_records
    if protection.person is not None:
        who = state.choice(PEOPLE)
        gone = {place for place, record in enumerate(base) if record["who"] == who}
        come = specs.records_of(state, who if change == "both" and state.random() < 0.7 else "new", fractions=case.fractions)
        return gone, come
    if isinstance(protection, RecordsInSteps):  # a promise: with a column persons were told apart above
        places = {step: [place for place, record in enumerate(base) if record["a"] == step][:most] for step in range(STEPS)}
        gone = {place for step in steps_apart(state, protection) for place in places[step]}
        return gone, [
            {**specs.plain_record(state, "t"), "a": step} for step in steps_apart(state, protection) for _ in range(most)
        ]
    come = specs.records_of(state, "t", fractions=case.fractions)[:most]
    return set(state.sample(range(len(base)), min(len(base), most))), come


def steps_apart(state: Random, protection: RecordsInSteps) -> list[int]:
    """Steps in which one unit takes part: up to as many, and at least as far apart, as promised."""
    chosen: list[int] = []
    for step in state.sample(range(STEPS), STEPS):
        if len(chosen) < protection.participations and all(abs(step - each) >= protection.separation for each in chosen):
            chosen.append(step)
    return chosen


def checked(seeds: Sequence[int], folder: Path, *, files: int) -> list[Moved]:
    """The cases of seeds, none of which moves farther than is charged; most specs can be planned, and many cases come near."""
    found = [moved(drawn(seed, folder), files=files) for seed in seeds]
    assert [each.case.seed for each in found if not each.covered] == []
    assert sum(each.case.refused for each in found) <= 2 * len(found)  # a third of all specs can be planned
    near = sum(each.reach >= 0.5 for each in found)
    assert near >= len(found) / 5  # a comparison that nothing comes near would show nothing
    return found


VARIED = 100_000
"""Seeds from here on vary the spec that is drawn first (``specs.varied``); earlier ones draw what they always drew."""
COMPOSED = 200_000
"""Seeds from here on draw parts that went by themselves once together (``specs.composed``)."""
RELATED = 300_000
"""Seeds from here on ask for relations of two numbers (``specs.related``)."""
CHANGES: tuple[tuple[int, Callable[[Random, specs.Content], specs.Content]], ...] = (
    (RELATED, specs.related),
    (COMPOSED, specs.composed),
    (VARIED, specs.varied),
    (0, _unchanged_content),
)
FEW = (45, 171, 236, 886, 3598, 100_009, 100_026)
"""Seeds that together show every kind of case, and whose first neighbours come near."""
KINDS = {
    *("records", "persons", "groups", "counted persons", "participations"),
    *("counts", "around"),
    *("sums", "a person's total", "squares", "filters", "dates"),
    *("l1", "l2", "add-remove", "replace-one"),
}


FEW_COMPOSED = (200_003, 200_007, 200_008, 200_013, 200_016, 200_022, 200_036)
"""The same of parts that went by themselves once: counts in steps, a stream of sums, groups in a series, around a count and of sums,
formulas of sums, and counts of sums."""


FEW_RELATED = (300_001, 300_007, 300_009, 300_011, 300_015)


def test_parts_that_went_by_themselves_move_by_no_more_than_is_charged(tmp_path: Path) -> None:
    found = [moved(drawn(seed, tmp_path), files=1) for seed in FEW_COMPOSED]
    assert [each.case.seed for each in found if not each.covered] == []
    assert {"groups", "participations", "counts", "around", "sums", "filters"} <= set().union(
        *(each.kinds for each in found)
    )


def test_relations_of_two_numbers_move_by_no_more_than_is_charged(tmp_path: Path) -> None:
    """Of records and of persons, in several groups, with sums and beside tables, under both noises; all of them come near."""
    found = [moved(drawn(seed, tmp_path), files=2) for seed in FEW_RELATED]
    assert [each.case.seed for each in found if not each.covered or each.reach < 0.5] == []
    assert {"relations", "sums", "groups", "l1", "l2", "replace-one", "records"} <= set().union(
        *(each.kinds for each in found)
    )


def test_a_few_random_files_move_by_no_more_than_is_charged(tmp_path: Path) -> None:
    assert set().union(*(each.kinds for each in checked(FEW, tmp_path, files=2))) == KINDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        *range(0, 480, 20),
        *range(VARIED, VARIED + 240, 20),
        *range(COMPOSED, COMPOSED + 480, 20),
        *range(RELATED, RELATED + 60, 20),
    ],
)
def test_random_files_move_by_no_more_than_is_charged(start: int, tmp_path: Path) -> None:
    checked(range(start, start + 20), tmp_path, files=10)


def twice(table: pa.Table, column: str, path: str) -> tuple[pa.Table, np.ndarray]:
    """Rows whose numbers of records count twice."""
    rows, numbers = counted_rows(table, column, path)
    return rows, 2 * numbers


FAULTS = {
    "half of a person's records": 45,
    "distances of half of the records": 100_007,
    "numbers of records twice": 100_026,
    "noise for half of it": 45,
    "the groups of a person are one": 200_012,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a sensitivity, records counted twice, and too little noise."""
    true_distance = Protection.distance

    def half(protection: Protection) -> Distance:
        true = true_distance.fget(protection)
        return replace(true, records=max(1, true.records // 2))

    if fault == "half of a person's records":
        monkeypatch.setattr(ProtectedPersons, "distance", property(half))
    elif fault == "distances of half of the records":
        monkeypatch.setattr(Distances, "stability", lambda self, moved: Distance(moved.length // 2, replaced=False))
    elif fault == "the groups of a person are one":
        true = Strategy.measurement_for
        monkeypatch.setattr(
            Strategy, "measurement_for", lambda self, asked, moved: true(self, asked, replace(moved, groups=1))
        )
    elif fault == "numbers of records twice":
        monkeypatch.setattr(histogram_counting, "counted_rows", twice)
    else:
        monkeypatch.setattr(
            "dpdist.privacy.noise_distributions.laplace_scale", lambda length, epsilon: laplace_scale(length // 2, epsilon)
        )
    assert not moved(drawn(FAULTS[fault], tmp_path), files=2).covered
