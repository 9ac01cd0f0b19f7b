"""The memory that every case promises for measuring and answering: a promise that changes is to be seen, and measured again."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

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
