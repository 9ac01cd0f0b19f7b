"""The memory that every case promises for measuring and answering, and what planning it takes: a promise that changes is to be seen,
and measured again. ``DPDIST_GOLDEN=write .venv/bin/python -m pytest -n 0 tests/contracts/test_promises.py`` writes the efforts anew."""

from __future__ import annotations

import json
import os
from dataclasses import astuple, replace
from pathlib import Path
from unittest import mock

import pytest

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.transpose_passes import slab_bytes
from dpdist.measurement.term_measurement import TermMeasurement
from dpdist.mechanisms.mechanism import SINGLE_RECORD, PlanSetting
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.stability import Distance
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline

FILE = Path(__file__).with_name("promises.json")
PROMISED: dict[str, list[int]] = json.loads(FILE.read_text())
EFFORTS = FILE.with_name("efforts.json")
"""By case and mechanism: cells, rank, bytes and products of a single record, and of those of ``SETTINGS`` for which they are others."""
ASKED = [
    name
    for name in ("coa over cells", "coa over a basis of tables", "wavelet", "marginals", "banded stream", "nested")
    if name in CASES
]
SETTINGS = (
    SINGLE_RECORD,
    PlanSetting(moved=Distance(1, replaced=False, groups=3)),
    PlanSetting(moved=Distance(1, replaced=False, participations=2, separation=20)),
    PlanSetting(moved=Distance(1, replaced=True, participations=2, separation=20)),
)


def promised(name: str, folder: Path) -> list[int]:
    """Bytes of measuring and of answering over a few cells, on two cores."""
    planned = Pipeline(CASES[name], folder, 3).plan("add-remove")
    with mock.patch("dpdist.measurement.integer_measurement.cores", return_value=2):
        takes = planned.measurement.memory(planned.workload, planned.layout, 2**30)
    return [takes.measure, takes.answer]


@pytest.mark.parametrize("name", PROMISED)
def test_memory_is_promised_as_ever(name: str, tmp_path: Path) -> None:
    assert promised(name, tmp_path) == PROMISED[name]


@pytest.mark.parametrize("name", [name for name in PROMISED if name.startswith("kronecker")])
def test_a_table_that_is_measured_in_passes_is_promised_its_inverses_too(name: str, tmp_path: Path) -> None:
    """Beside a slab. Of all cases only those of one product have one table of several attributes."""
    planned = Pipeline(CASES[name], tmp_path, 3).plan("add-remove")
    measurement = planned.measurement
    assert isinstance(measurement, TermMeasurement)
    streamed = replace(measurement, sizes=replace(measurement.sizes, streamed_cells=1))
    assert streamed.is_streamed
    held_bytes = sum(inverse.nbytes for inverses in streamed.inverses(MEMORY) for inverse in inverses)
    slab = slab_bytes(2**30, max(planned.layout.size, streamed.rows))
    assert streamed.memory(planned.workload, planned.layout, 2**30).answer >= slab + held_bytes


@pytest.mark.parametrize("name", ASKED)
def test_planning_takes_what_it_ever_took(name: str, tmp_path: Path) -> None:
    """By which ``auto`` decides what it compares, and stages what they start: every mechanism that answers what a case asks for."""
    queries, efforts = CASES[name].spec(tmp_path, "add-remove", ages=40).workload.queries, dict[str, list[list[float]]]()
    for mechanism in (each for each in REGISTRY.values() if each.reason_refused(queries) is None):
        rows = [list(astuple(mechanism.effort(queries, setting))) for setting in SETTINGS]
        efforts[mechanism.name] = [row for place, row in enumerate(rows) if place == 0 or rows[0] != row]
    known = json.loads(EFFORTS.read_text())
    if os.environ.get("DPDIST_GOLDEN") == "write":
        cases = (f"{json.dumps(case)}: {json.dumps(each)}" for case, each in sorted((known | {name: efforts}).items()))
        EFFORTS.write_text("{" + ",\n".join(cases).replace("]], ", "]],\n") + "}\n")
        return
    assert efforts == {mechanism: [pytest.approx(row, rel=1e-9) for row in known[name][mechanism]] for mechanism in efforts}
