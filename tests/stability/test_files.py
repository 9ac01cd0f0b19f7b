"""Neighbouring files through the whole pipeline: the exact integers move by no more than the steps declare, and by that much.

Files are counted by ``records.counting.count`` and measured by ``Grid.exact`` under the grids of real plans.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.counting import contribution_bounding, histogram_counting
from dpdist.domain import Layout
from dpdist.engine import inline
from dpdist.pipeline import histogram
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources import record_sources
from dpdist.spec import load
from dpdist.stability import Distance
from dpdist.statistics.statistic import Distances, RecordCounts
from dpdist.storage.array_store import Store, StoredArray
from tests.stability.files import BASE, FORMS, PROTECTIONS, Data, changed, fits_protection
from tests.support import small_release
from tests.support.measurement_readers import measured

MARGINALS = [{"marginals": {"of": [["a"], ["b"]]}}]
PAST = {"filters": {"of": "a", "by": ["b"], "apply": [{"exponential": 0.6}]}}
AROUND = {"filters": {"of": "a", "by": ["b"], "apply": [{"exponential": 0.6}], "around": 2}}
MECHANISMS: dict[str, dict[str, Any]] = {
    "identity": {"mechanism": "identity"},
    "coa": {"mechanism": "coa"},
    "marginals": {"mechanism": "marginals"},
    "laplace": {"mechanism": "laplace", "budget": {"epsilon": 1}, "cap": {"epsilon": 1}},
    "circle": {"mechanism": "convolution", "workload": [PAST]},
    "square root": {"mechanism": "square-root", "workload": [PAST]},
    "around": {"mechanism": "convolution", "workload": [AROUND]},
}
LEAST = {"identity": 1.0, "marginals": 0.4, "laplace": 0.99, "around": 0.1}
SMALL = ("identity", "marginals")
"""The part of the declared squared distance that some neighbour reaches: a bound that nothing comes near would show nothing."""


BINS: dict[str, dict[str, Any]] = {
    "labelled": {
        "a": {"from": 0, "to": 2, "missing": "unknown", "other": "beyond"},
        "b": {"categories": ["x", "y"], "missing": "unknown", "other": "unknown"},
    },
    "dropped": {
        "a": {"from": 0, "to": 2, "missing": "drop", "other": "drop"},
        "b": {"categories": ["x", "y"], "missing": "drop", "other": "beyond"},
    },
}
"""Attributes whose missing and other values have bins of their own: counted ones, and ones that no query asks for."""


def planned(folder: Path, mechanism: str, protection: Protection, outside: str, **changes: Any) -> ReleasePlan:
    """The plan of a release of such files."""
    asked = dict(MECHANISMS[mechanism])
    path = small_release.write(
        folder,
        neighbours=protection.neighbours,
        records={
            "path": "records.parquet",
            "person": {"column": protection.person, "most_records": protection.most_records},
        },
        budget=asked.pop("budget", {"rho": 0.1}),
        ledger={"dataset": "small", "cap": asked.pop("cap", {"rho": 1})},
        **{
            "workload": MARGINALS,
            "domain": {"a": {"from": 0, "to": 2, "outside": outside}, "b": {"categories": ["x", "y"], "outside": "drop"}},
            **asked,
            **changes,
        },
    )
    context = Context(folder, Store(folder / "store"), inline(), ignore_progress)
    return plan(context, load(path))


class Pipeline:
    """Counts and exact integers of files, each different one computed once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.engine, self.made = folder, Store(folder / "store"), inline(), 0
        self.counted: dict[tuple[object, ...], StoredArray] = {}
        self.measured: dict[tuple[str, str], list[int]] = {}

    def counts(self, data: Data, form: str, protection: Protection, spec: Any, layout: Layout) -> StoredArray:
        bound = protection.most_records if protection.person else 0
        key = (data, form, bound, layout.tables)
        if key not in self.counted:
            self.made += 1
            folder = self.folder / str(self.made)
            folder.mkdir()
            where = FORMS[form][0](data, folder)
            column = "n" if form == "counts, clip" else None
            source = record_sources.source_of(
                where,
                columns={},
                **small_release.whose(protection.person, most_records=protection.most_records, counts=column),
            )
            found, _ = histogram_counting.count(
                source,
                spec.measured.domain,
                self.store,
                self.engine,
                root=keys.Secret(bytes(range(32))),
                tables=layout.tables,
            )
            shutil.rmtree(folder)
            self.counted[key] = found
        return self.counted[key]

    def integers(self, counts: StoredArray, plan: ReleasePlan) -> list[int]:
        """What is measured, without noise."""
        context = Context(self.folder, self.store, self.engine, ignore_progress)
        around = plan.job.measured.centre
        near = counts if around is None else histogram._distances(context, counts, around)
        key = (plan.measurement.digest, near.digest)
        if key not in self.measured:
            values = measured(self.store, self.engine, plan.measurement, near, plan.layout)
            self.measured[key] = [int(v) for v in values]
        return self.measured[key]


def farthest(
    pipeline: Pipeline, plan: ReleasePlan, form: str, protection: Protection, *, thorough: bool = False
) -> tuple[int, int]:
    """The largest distance of counts (L1), and of what is measured (squared; of Laplace noise the squared L1), over all neighbours."""
    counts, integers = [], []
    for data in (BASE, *changed(BASE, protection, thorough=thorough)):
        stored = pipeline.counts(data, form, protection, plan.job, plan.layout)
        counts.append(pipeline.store.read_array(stored).astype(np.int64))
        integers.append(pipeline.integers(stored, plan))
    tables = max(1, len(plan.layout.tables))
    moved = max(int(np.abs(other - counts[0]).sum()) for other in counts) // tables
    power = 1 if plan.measurement.norm == "l1" else 2
    reach = max(sum(abs(u - v) ** power for u, v in zip(other, integers[0], strict=True)) for other in integers)
    return moved, reach ** (2 // power)


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cache(lambda form: Pipeline(tmp_path_factory.mktemp(form.split(",")[0])))


def compare(pipeline: Pipeline, form: str, protection: Protection, mechanism: str, folder: Path, *, thorough: bool) -> None:
    plan = planned(folder, mechanism, protection, FORMS[form][1])
    moved, reach = farthest(pipeline, plan, form, protection, thorough=thorough)
    assert moved == protection.distance.length, mechanism
    assert reach <= plan.measurement.sensitivity_squared, mechanism
    assert reach >= LEAST.get(mechanism, 0.2) * plan.measurement.sensitivity_squared, mechanism


FOUND_BY = {
    ("csv, drop", None): "add-remove",
    ("csv, drop", "who"): "replace-one",
    ("folder, clip", None): "replace-one",
    ("folder, clip", "who"): "add-remove",
}
"""The relation under which a form is compared always; Parquet under both. So every two of form, unit and relation meet."""
OFTEN = [
    pytest.param(form, p, marks=() if FOUND_BY.get((form, p.person), p.neighbours) == p.neighbours else pytest.mark.slow)
    for form in FORMS
    for p in PROTECTIONS
    if p.most_records == 2 and fits_protection(form, p) and (form, p.neighbours) != ("counts, clip", "replace-one")
]


@pytest.mark.parametrize(("form", "protection"), OFTEN, ids=str)
def test_neighbouring_files_move_the_integers_as_declared(
    form: str, protection: Protection, pipelines: Any, tmp_path: Path
) -> None:
    """Of Parquet files all mechanisms without persons, and cells and tables with persons; of each other form one of the two."""
    mechanisms = SMALL if form == "parquet, clip" else SMALL[form == "folder, clip" :][:1]
    for mechanism in MECHANISMS if form == "parquet, clip" and protection.person is None else mechanisms:
        compare(pipelines(form), form, protection, mechanism, tmp_path / mechanism, thorough=False)


BOUNDED = [p for p in PROTECTIONS if p.most_records == 2]


OFTEN_BINS = [("labelled", "csv, drop", "who"), ("dropped", "parquet, clip", None)]
ALL_BINS = [
    pytest.param(bins, form, p, marks=() if often and p.neighbours == "replace-one" else pytest.mark.slow)
    for bins in BINS
    for form in FORMS
    for p in BOUNDED
    if fits_protection(form, p)
    for often in [(bins, form, p.person) in OFTEN_BINS]
]


@pytest.mark.parametrize(("bins", "form", "protection"), ALL_BINS, ids=str)
def test_missing_values_in_bins_of_their_own_move_the_integers_as_declared(
    bins: str, form: str, protection: Protection, tmp_path: Path
) -> None:
    """A record without a value is one record, wherever it is counted: tables with and without the attribute, and the CDF."""
    asked = [*MARGINALS, {"cdf": {"of": "a", "by": ["b"]}}]
    pipeline = Pipeline(tmp_path)
    for mechanism in ("identity", "coa"):
        plan = planned(tmp_path / mechanism, mechanism, protection, "error", domain=BINS[bins], workload=asked)
        assert plan is not None
        moved, reach = farthest(pipeline, plan, form, protection)
        assert moved == protection.distance.length
        assert 0.2 * plan.measurement.sensitivity_squared <= reach <= plan.measurement.sensitivity_squared


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("protection", PROTECTIONS, ids=str)
def test_all_mechanisms_over_all_choices_of_records(
    form: str, protection: Protection, pipelines: Any, tmp_path: Path
) -> None:
    for mechanism in MECHANISMS if fits_protection(form, protection) else ():
        compare(pipelines(form), form, protection, mechanism, tmp_path / mechanism, thorough=True)


def test_one_record_of_a_bounded_person_is_two_changes(pipelines: Any, tmp_path: Path) -> None:
    """What the certificate of 0.1.0 said: when a record that counts vanishes, the next one counts instead."""
    pipeline, person = pipelines("parquet, clip"), ProtectedPersons("add-remove", 1, "who")
    plan = planned(tmp_path, "identity", person, "clip")
    assert plan is not None
    whole, less = (
        pipeline.store.read_array(pipeline.counts(data, "parquet, clip", person, plan.job, plan.layout)).astype(int)
        for data in ((("u", 0, "x"), ("u", 2, "y")), (("u", 2, "y"),))
    )
    moved = int(np.abs(whole - less).sum())
    assert moved == 2 > person.distance.length
    steps = person.steps_to(ProtectedRecords("add-remove", 1))
    assert steps is not None
    assert moved <= steps * person.distance.length


@pytest.mark.parametrize("replaced", [False, True])
def test_distances_from_a_public_count_move_as_declared(replaced: bool) -> None:
    """A replaced record may raise two of them, which no difference of two columns covers: it counts as two records."""
    counts = np.array([0, 2, 5])
    moved = Distance(1, replaced)
    out = Distances(3, RecordCounts()).stability(moved)
    assert out == Distance(2 if replaced else 1, replaced=False)
    changes = [np.eye(3, dtype=int)[i] - (np.eye(3, dtype=int)[j] if replaced else 0) for i in range(3) for j in range(3)]
    reached = set()
    for centre in range(7):
        for change in changes + [-c for c in changes]:
            after = np.abs(counts + change - centre) - np.abs(counts - centre)
            reached.add(int(np.abs(after).sum()))
            assert np.abs(after).sum() <= out.length
            if replaced and after.min() >= 0:
                reached.add(-int(after.sum()))
    assert max(reached) == out.length
    assert not replaced or -2 in reached


FAULTS = [
    "one record more of a person",
    "nulls are counted",
    "each table counted twice",
    "the bound is forgotten",
    "numbers doubled",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above is not blind: with a fault in a step, the declared distance is exceeded."""
    of_persons = "person" in fault or "bound" in fault
    protection = ProtectedPersons("add-remove", 2, "who") if of_persons else ProtectedRecords("add-remove", 2)
    plan = planned(tmp_path / "plan", "marginals" if "table" in fault else "identity", protection, "drop")
    assert plan is not None
    if fault == "one record more of a person":
        first_of_each = contribution_bounding.first_records
        monkeypatch.setattr(contribution_bounding, "first_records", lambda rows, most: first_of_each(rows, most + 1))
    elif fault == "the bound is forgotten":
        made = plan.measurement
        plan = replace(plan, measurement=replace(made, sensitivity_squared=made.sensitivity_squared // 4))
    elif fault == "numbers doubled":
        rows = histogram_counting.counted_rows
        monkeypatch.setattr(histogram_counting, "counted_rows", lambda *given: (rows(*given)[0], 2 * rows(*given)[1]))
    else:
        positions = Layout.positions

        def twice(self: Layout, cells: Any) -> Any:
            lost = np.zeros(int((cells < 0).sum()), dtype=np.int64) if "null" in fault else cells[cells >= 0]
            return positions(self, np.concatenate([cells, lost, lost, lost]))

        monkeypatch.setattr(Layout, "positions", twice)
    pipeline = Pipeline(tmp_path)
    moved, reach = farthest(pipeline, plan, "counts, clip" if fault == "numbers doubled" else "csv, drop", protection)
    assert reach > plan.measurement.sensitivity_squared
    assert moved > protection.distance.length or fault == "the bound is forgotten"
