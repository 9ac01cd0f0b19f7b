"""Usual answers of assumed records: those to a histogram of records that are alike over all values and amounts, of every kind of query."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.planner.simulated_answers import AmountMoments, mean_answer
from dpdist.spec import load
from tests.support import small_release

BY_SEX = {"marginals": {"of": [["sex"]]}}
PAID = {"paid": {"from": -2, "to": 4}}
SPECS: dict[str, dict[str, Any]] = {
    "tables and cumulative counts": {},
    "ranges": {"workload": [{"ranges": {"of": ["age"], "by": ["sex"]}}]},
    "conditions": {"workload": [{"predicates": ["age < 3 or sex == 'f'", "age >= 2"]}]},
    "filters": {"workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"window": 3}, {"running_sum": True}]}}]},
    "sums": {"sums": PAID, "workload": [BY_SEX, *({**BY_SEX, how: "paid"} for how in ("sum", "mean"))]},
    "variances": {"sums": PAID, "workload": [BY_SEX, {**BY_SEX, "variance": "paid"}]},
    "sums of two columns": {
        "sums": {**PAID, "tip": {"from": 1, "to": 3}},
        "workload": [BY_SEX, *({**BY_SEX, "sum": name} for name in ("paid", "tip"))],
    },
    "sums by conditions": {"sums": PAID, "workload": [{"predicates": ["age < 3 or sex == 'f'"], "sum": "paid"}]},
    "sums alone along a series": {
        "sums": {"paid": {"from": 1, "to": 4}},
        "workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"window": 3}]}, "sum": "paid"}],
    },
}  # fmt: skip


def every_record(domain: Domain) -> tuple[np.ndarray, int, dict[int, AmountMoments]]:
    """The histogram of one record of every combination of values and amounts, how many these are, and what their amounts are like."""
    kinds, moments = np.arange(math.prod(attribute.size for attribute in domain.grouping_attributes)), {}
    for axis, attribute in enumerate(domain.attributes):
        if attribute.amounts is not None:
            steps = np.arange(attribute.amounts.width + 1)
            kinds = (kinds[:, None] * attribute.kinds + steps).ravel()
            values = np.linspace(*attribute.amounts.ends, steps.size)
            moments[axis] = AmountMoments(float(values.mean()), float((values**2).mean()))
    cells, shares = domain.divide_records(kinds)
    return np.bincount(cells, shares, minlength=domain.cells) / domain.scale, kinds.size, moments


@pytest.mark.parametrize("name", SPECS)
def test_a_usual_answer_is_that_of_records_that_are_alike(name: str, tmp_path: Path) -> None:
    job = load(small_release.write(tmp_path, **SPECS[name]))
    domain, workload = job.measured.domain, job.workload.queries
    histogram, records, moments = every_record(domain)
    for block in workload.blocks:
        exact = block.operator(domain.shape).dense() @ histogram
        assert mean_answer(workload, block, records, moments) == pytest.approx(exact.mean(), rel=1e-9, abs=1e-9)
        if any(domain.attributes[axis].amounts is not None for axis in block.axes) or domain.sums_alone:
            assert math.isnan(mean_answer(workload, block, records))
