"""The memory that every case promises for measuring and answering: a promise that changes is to be seen, and measured again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.transpose_passes import slab_bytes
from dpdist.measurement.term_measurement import TermMeasurement
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline

FILE = Path(__file__).with_name("promises.json")
PROMISED: dict[str, list[int]] = json.loads(FILE.read_text())


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
