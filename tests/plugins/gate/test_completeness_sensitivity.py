"""Neighbouring files whose completeness is published: the classes of records and persons move by no more than is charged.

Files are written in every form, as bytes too, read as a release reads them, and counted by the budgeted step that a spec asks for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dpdist.counting.contribution_bounding import number_persons
from dpdist.engine import Engine
from dpdist.errors import DpdistError
from dpdist.pipeline.histogram import materialize_table
from dpdist.pipeline.preprocess import records_in_parts
from dpdist.plugins.gate import record_completeness
from dpdist.plugins.gate.completeness_step import CompletenessMeasurement
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import always
from tests.stability.files import BASE, PART_BYTES, Data, as_csv, as_folder, as_parquet, changed
from tests.stability.test_bytes import DOMAIN, ODD, TEXTS, VALUES, key_and_databases, random_lines, rows_of  # noqa: F401 - a fixture
from tests.stability.test_worst_pairs import BUDGETS, noise_spent, numbers
from tests.support import small_release
from tests.support.complete_tree import needs_plugin

pytestmark = needs_plugin("gate")
NEIGHBOURS = ("add-remove", "replace-one")
FILES: dict[str, Callable[[Data, Path], Path]] = {"parquet": as_parquet, "csv": as_csv, "folder": as_folder}
UNITS: dict[str, dict[str, Any]] = {
    "a record": {"most_records": 1},
    "two records": {"most_records": 2},
    "a person": {"column": "who", "most_records": 2},
    "a person in groups": {"column": "who", "most_records": 1, "most_groups": 2},
}
IN_ORDER: dict[str, Any] = {
    "domain": {
        "a": {"from": 0, "to": 2, "outside": "drop", "missing": "unknown"},
        "b": {"categories": ["x", "y"], "outside": "drop", "missing": "drop"},
    },
    "workload": [{"marginals": {"of": [["b"]]}}],
}
ENGINE = Engine(workers=1, memory_bytes=PART_BYTES, threads=1, connect=None, local=True)
Counted = tuple[CompletenessMeasurement, np.ndarray]
"""The step of a spec, and how many records or persons of a file it finds in each class."""


def count_classes(folder: Path, records: dict[str, Any], **asked: Any) -> Counted:
    """What a spec counts of the records in a folder, persons in several parts. Raises: DpdistError where they are refused."""
    gate = {"completeness": {"share": 0.5}}
    spec = small_release.spec(gate=gate, records={**records, "most_missing": "100%"}, **asked)
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    home = folder / "home"
    context = Context(home, Store(home / "store"), ENGINE, ignore_progress)
    job = materialize_table(context, load(path), home / "records")
    step = job.next_step
    assert isinstance(step, CompletenessMeasurement)
    return step, step.count_records(records_in_parts(context, job)).counts


def most_spent(folder: Path, form: str, unit: str, neighbours: str, budget: str) -> float:
    """The largest part of what is charged that neighbours of a file spend."""
    asked = {**IN_ORDER, "neighbours": neighbours, **BUDGETS[budget]}

    def exact_numbers(data: Data, name: str) -> Counted:
        place = folder / name
        place.mkdir(parents=True)
        records = {"path": FILES[form](data, place).name, "person": UNITS[unit]}
        step, counts = count_classes(place, records, **asked)
        return step, numbers(step, record_completeness.CountedSizes(counts, len(data)))

    step, before = exact_numbers(BASE, "base")
    after = [
        exact_numbers(data, str(number))[1]
        for number, data in enumerate(changed(BASE, step.job.guarantee.protection))
        if data
    ]
    return max(float(noise_spent(step, before, each)) for each in after)


OFTEN = [("folder", "a person", "replace-one"), ("csv", "two records", "add-remove")]


@pytest.mark.parametrize(
    ("form", "unit", "neighbours"),
    always(OFTEN, [(form, unit, neighbours) for form in FILES for unit in UNITS for neighbours in NEIGHBOURS]),
)
def test_neighbouring_files_spend_what_is_charged(form: str, unit: str, neighbours: str, tmp_path: Path) -> None:
    """And no more: some neighbour spends all of it, whatever the noise is; two records are never replaced by two of one class here."""
    spent = {budget: most_spent(tmp_path / budget, form, unit, neighbours, budget) for budget in BUDGETS}
    assert max(spent.values()) <= 1
    assert min(spent.values()) >= (0.6 if (unit, neighbours) == ("two records", "replace-one") else 1 - 1e-5)


def _persons_are_their_records(rows: Any) -> np.ndarray:
    return np.arange(rows.size)


def _every_class_of_a_person(rows: Any) -> np.ndarray:
    """The worst class is forgotten: a person counts in each class that a record of theirs is in."""
    pairs = np.column_stack([number_persons(rows), rows["cell"]])
    return np.unique(pairs, axis=0, return_inverse=True)[1].ravel()


@pytest.mark.parametrize("fault", [_persons_are_their_records, _every_class_of_a_person])
def test_planted_faults_spend_more(fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_completeness, "number_persons", fault)
    assert most_spent(tmp_path, "csv", "a person", "add-remove", "rho") > 1


# Neighbours as bytes.

NARROW = {
    name: {
        **{key: part for key, part in declared.items() if key != "other"},
        "other" if name == "day" else "outside": "drop",
    }
    for name, declared in DOMAIN.items()
}
"""Odd values lie outside the domain, or are missing."""


def moved(folder: Path, build: Callable[..., Any], before: Sequence[Any], after: Sequence[Any], person: Any) -> Any:
    """By how much each class of one file differs from that of its neighbour; None where one of them is refused."""
    found = []
    for name, records in (("before", before), ("after", after)):
        place = folder / name
        place.mkdir(parents=True)
        asked: dict[str, Any] = {"domain": {key: part for key, part in NARROW.items() if key != person.get("column")}}
        asked["workload"] = [{"marginals": {"ways": [1]}}]
        try:
            found.append(count_classes(place, {**build(place, records), "person": person}, **asked)[1])
        except DpdistError:
            return None
    return found[1] - found[0]


def is_one_change(change: np.ndarray) -> bool:
    """Whether one more record is one more of its class, or its person leaves a class for another one, or nothing is different."""
    return np.abs(change).max() <= 1 and abs(change.sum()) <= 1 and np.abs(change).sum() <= 2 - abs(change.sum())


@pytest.mark.parametrize("form", always(["csv", "csv_files"], TEXTS))
@pytest.mark.parametrize("person", [{}, {"column": "who", "most_records": 1, "missing": "each"}], ids=["record", "person"])
def test_one_more_line_is_one_more_of_a_class(form: str, person: dict[str, Any], tmp_path: Path) -> None:
    """Whatever its bytes are, or it is refused; without persons no record changes its class."""
    chance, compared, odd = random.Random(form), 0, ODD[::3]
    for number, more in enumerate(odd):
        base = random_lines(chance, 8)
        at = chance.randint(0, len(base))
        change = moved(tmp_path / str(number), TEXTS[form], base, [*base[:at], more, *base[at:]], person)
        assert change is None or is_one_change(change), (base, more)
        assert change is None or person or np.abs(change).sum() <= 1, (base, more)
        compared += change is not None
    assert compared >= len(odd) * 0.4


@pytest.mark.parametrize("form", always(["arrow", "json_lines", "database"], VALUES))
def test_rows_of_a_person_move_one_of_a_class(form: str, tmp_path: Path) -> None:
    """Types are inferred from all values; a new person comes with some rows, and then all rows of another one are replaced."""
    chance, compared = random.Random(form), 0
    person = {"column": "p", "most_records": 2}
    for number in range(6):
        base, own = rows_of(chance, 7, odd=False), [{**row, "p": "new"} for row in rows_of(chance, 3, odd=True)]
        after = [*own[:1], *base, *own[1:]] if number % 2 else [*own, *(row for row in base if row["p"] != base[0]["p"])]
        change = moved(tmp_path / str(number), VALUES[form], base, after, person)
        if change is not None:
            assert is_one_change(change)
            assert change.sum() == number % 2
            compared += 1
    assert compared >= 3
