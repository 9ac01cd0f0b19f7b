"""Series of sums through the whole pipeline: neighbouring files move the integers of a filter by no more than is declared."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.counting import histogram_counting
from dpdist.domain.numeric_columns import Amounts
from dpdist.engine import inline
from dpdist.errors import InvalidInput
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources import record_sources
from dpdist.spec import load
from dpdist.statistics.sum_statistics import RecordShares
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.measurement_readers import measured

Record = tuple[int, int | None, str]
"""Step, amount and group."""
RECORDS: list[Record] = list(product((0, 1, 4), (None, -1, 2, 5, 9), ("x", "y")))
"""Amounts below the range, at its lower end, within, beyond the upper end, and missing."""
SUMS = {"amount": {"from": 2, "to": 6, "step": 0.5, "missing": "drop"}}
FILTERS: dict[str, Any] = {"of": "step", "by": ["b"], "apply": [{"exponential": 0.6}]}
MECHANISMS: dict[str, dict[str, Any]] = {
    "convolution": {"mechanism": "convolution"},
    "circle": {"mechanism": "convolution", "workload": [{"filters": {**FILTERS, "circular": True}, "sum": "amount"}]},
    "square root": {"mechanism": "square-root"},
    "coa": {"mechanism": "coa"},
    "p-identity": {
        "mechanism": "p-identity",
        "budget": {"epsilon": 1},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1}},
    },
}


def plan_of(folder: Path, mechanism: str, neighbours: str, most: int = 1) -> tuple[Context, ReleasePlan]:
    path = small_release.write(
        folder,
        neighbours=neighbours,
        records={"path": "records.parquet", "person": {"most_records": most}},
        domain={"step": {"from": 0, "to": 4}, "b": {"categories": ["x", "y"]}},
        **{"sums": SUMS, "workload": [{"filters": FILTERS, "sum": "amount"}], **MECHANISMS[mechanism]},
    )
    context = Context(folder, Store(folder / "store"), inline(), ignore_progress)
    return context, plan(context, load(path))


def alone(context: Context, planned: ReleasePlan, folder: Path) -> list[np.ndarray]:
    """The integers of every record by itself, each different one once: those of several records add up."""
    found = {}
    for number, (step, amount, group) in enumerate(RECORDS):
        (folder / str(number)).mkdir(parents=True)
        path = folder / str(number) / "records.parquet"
        table = pa.table({"step": [step], "amount": pa.array([amount], pa.int64()), "b": [group]})
        pyarrow.parquet.write_table(table, path)
        source = record_sources.source_of(path, columns={})
        root, tables = keys.Secret(bytes(range(32))), planned.layout.tables
        counts, _ = histogram_counting.count(
            source, planned.job.measured.domain, context.store, inline(), root=root, tables=tables
        )
        z = [int(v) for v in measured(context.store, inline(), planned.measurement, counts, planned.layout)]
        found[tuple(z)] = np.array(z, dtype=object)
    return list(found.values())


def farthest(vectors: list[np.ndarray], norm: str, neighbours: str, most: int) -> int:
    """The farthest that a person with up to so many records moves the integers, for Laplace noise its squared L1 length."""
    persons = vectors if most == 1 else [first + second for first in vectors for second in vectors]
    zero = [np.zeros_like(vectors[0])]
    changes = persons if neighbours == "add-remove" else [a - b for a in [*persons, *zero] for b in [*persons, *zero]]
    power = 1 if norm == "l1" else 2
    return max(int((abs(each) ** power).sum()) ** (2 // power) for each in changes)


ALWAYS = [("convolution", "add-remove", 2), ("square root", "replace-one", 1), ("p-identity", "add-remove", 1)]
EVERY = [
    pytest.param(*each, marks=() if each in ALWAYS else pytest.mark.slow)
    for each in product(MECHANISMS, ("add-remove", "replace-one"), (1, 2))
]


@pytest.mark.parametrize(("mechanism", "neighbours", "most"), EVERY)
def test_every_record_moves_a_series_by_no_more_than_is_hidden(
    mechanism: str, neighbours: str, most: int, tmp_path: Path
) -> None:
    """Twelve steps of a half: a record counts up to twelve times; k of them at the upper end of one step reach the bound."""
    context, planned = plan_of(tmp_path / "plan", mechanism, neighbours, most)
    assert planned.job.measured.domain.shares_per_record == 12
    reach = farthest(alone(context, planned, tmp_path), planned.measurement.norm, neighbours, most)
    assert reach <= planned.measurement.sensitivity_squared
    assert reach >= (0.98 if neighbours == "add-remove" else 0.4) * planned.measurement.sensitivity_squared


def test_more_steps_than_the_integers_hold_are_refused_before_the_charge(tmp_path: Path) -> None:
    """Not records: the sum of all amounts, which is known before anything is measured."""
    context, planned = plan_of(tmp_path / "plan", "convolution", "add-remove")
    most = np.full(planned.layout.size, 2**32 // planned.layout.size, dtype=np.int64)
    most[0] += 2**32 - most.sum()
    for counts in (most, most + (np.arange(most.size) == 0)):
        stored = context.store.put(context.store.scratch(), counts)
        if counts is most:
            measured(context.store, inline(), planned.measurement, stored, planned.layout)
            continue
        with pytest.raises(InvalidInput, match="up to 4294967296 steps of all amounts without overflow"):
            measured(context.store, inline(), planned.measurement, stored, planned.layout)


@pytest.mark.parametrize(
    ("kind", "name", "fault"),
    [
        (RecordShares, "stability", lambda self, moved: moved),
        (Amounts, "shares_per_record", property(lambda self: self.steps)),  # the lower end is forgotten
    ],
)
def test_planted_faults_are_found(
    kind: type, name: str, fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison is not blind."""
    monkeypatch.setattr(kind, name, fault)
    context, planned = plan_of(tmp_path / "plan", "convolution", "add-remove")
    reach = farthest(alone(context, planned, tmp_path), "l2", "add-remove", 1)
    assert reach > planned.measurement.sensitivity_squared
