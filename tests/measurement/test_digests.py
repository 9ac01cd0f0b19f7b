"""The digest of a measurement, which the noise key is bound to, names everything that decides what is measured and how it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.operators import Dense, Operator
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline

NOT_NAMED = {
    "sizes": "the same integers from other pieces",
    "form": "the same integers through the store",
    "name": "where coefficients are stored, whose own digest is named",
    "column_bound": "part of the sensitivity, which is named",
    "first_steps": "decides the noise alone, which the key is bound to beside the digest",
    "first_squared": "likewise",
    "queries": "a workload: tests/workloads alter its fingerprint",
    "levels": "where they differ, so do the rows of the nodes or the axes",
    "symmetry": "where it differs, so do the components, whose fingerprints are named",
    "DawaMeasurement.sensitivity_squared": "a constant",
}
"""Fields that a digest may leave out, or that this test cannot alter, and why."""
DIFFERENT = {
    type_name: name
    for name, type_name in {
        "wavelet, Laplace noise": "DenseMeasurement",
        "gaussian over predicates": "DirectMeasurement",
        "oblique": "TermMeasurement",
        "p-identity-products": "LaplaceTermMeasurement",
        "weighted-marginals": "MarginalMeasurement",
        "symmetric": "OrbitMeasurement",
        "nested": "HierarchyMeasurement",
        "convolution": "FilterMeasurement",
        "triangular": "TriangularMeasurement",
        "characters": "HadamardMeasurement",
        "dawa": "DawaMeasurement",
        "adaptive": "AimMeasurement",
    }.items()
    if name in CASES
}
"""A case of every class of measurements."""


def alterations(value: Any) -> Iterator[Any]:
    """Values that differ from one in a single number or text each."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, Enum):
        return
    elif isinstance(value, int | float | str):
        yield value + ("!" if isinstance(value, str) else 1)
    elif isinstance(value, np.ndarray):
        for place in sorted({0, value.size - 1}):
            altered = value.copy()
            altered.flat[place] += 1
            yield altered
    elif isinstance(value, ArrayVector):
        yield from map(ArrayVector, alterations(to_array(value)))
    elif isinstance(value, Operator):
        yield Dense(value.dense() + 1.0)
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            yield from ((*value[:place], altered, *value[place + 1 :]) for altered in alterations(item))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (value | {key: altered} for altered in alterations(item))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from (replace(value, **{field.name: altered}) for altered in alterations(getattr(value, field.name)))


@pytest.mark.parametrize("type_name", DIFFERENT)
def test_a_digest_names_all_that_decides_what_is_measured(type_name: str, tmp_path: Path) -> None:
    case = CASES[DIFFERENT[type_name]]
    measurement = Pipeline(case, tmp_path, 4).plan("add-remove").measurement
    assert type(measurement).__name__ == type_name
    for field in fields(measurement):
        value = getattr(measurement, field.name)
        if {field.name, f"{type_name}.{field.name}"} & {*NOT_NAMED} or (
            field.default is not MISSING and value == field.default
        ):
            continue
        others = [replace(measurement, **{field.name: altered}) for altered in alterations(value)]
        assert others or len(value) == 0, f"{type_name}.{field.name} was not altered"
        assert measurement.digest not in {other.digest for other in others}, f"{type_name}.{field.name} is not in the digest"
