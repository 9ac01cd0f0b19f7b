"""A thresholded histogram, drawn under a charge of its own before the plan of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from dpdist.content.truncated_intervals import truncated_intervals
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.sparse_counts import SparseCounts, count_cells
from dpdist.domain.key_spaces import KeySpace
from dpdist.errors import InvalidInput
from dpdist.privacy.ledger.charges import THRESHOLDED
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.partition_selection import UNIT_BITS
from dpdist.privacy.thresholded_histogram import Integers, ThresholdedHistogram, in_order, thresholded_histogram
from dpdist.spec.budgeted_step import BudgetedStep, CandidateErrors, StepDeclaration
from dpdist.spec.job import Job
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.sections.thresholded_cells import ThresholdedSpec
from dpdist.stability import Distance

DECIMALS = 3
"""Of noisy counts, and of the ends of their intervals."""


class ThresholdedRows(BudgetedStep):
    """The rows of a thresholded histogram."""

    job: Job
    step_spec: ThresholdedSpec

    purpose, is_independent = "thresholded", True
    spec_text, spec_path, ends = "'thresholded'", ("thresholded",), (THRESHOLDED,)

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        if spec.thresholded is not None:
            yield StepDeclaration(spec.thresholded, lambda _: {"thresholded": None})

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for columns that the release reads for something else."""
        super().check_measured(records, measured)
        named = {*measured.attributes, *measured.sums}
        both = next((name for name in self.step_spec.of if name in named), None)
        if both is not None:
            raise InvalidInput(
                f"{both!r} is an attribute or column of amounts, too: call the keys otherwise, and name their column under 'records: "
                "columns'"
            )
        _ = self.step_spec.space(measured.folder)

    @cached_property
    def space(self) -> KeySpace:
        """The cells."""
        return self.step_spec.space(self.job.measured.folder)

    @cached_property
    def rule(self) -> ThresholdedHistogram:
        spec, distance = self.step_spec, self.job.guarantee.protection.distance
        moved = Distance(distance.records * (distance.participations or 1), distance.replaced)
        if self.job.guarantee.person.column is not None:
            moved = Distance(spec.records_per_cell, distance.replaced, groups=spec.cells_per_person)
        kind = LAPLACE if self.step_budget.pure else GAUSSIAN
        return thresholded_histogram(kind, self.step_budget, moved, self.space.size, spec.at_least)

    @property
    def draw_facts(self) -> Mapping[str, Any]:
        return {"noise": self.rule.noise.kind, "scale": self.rule.noise.scale}

    @property
    def cells_per_person(self) -> int | None:
        """In how many cells a person counts at most; None where records count, whosever they are."""
        return None if self.job.guarantee.person.column is None else self.step_spec.cells_per_person

    @property
    def binding_facts(self) -> Mapping[str, Any]:
        """Which cells of whose records are counted, and with how much noise."""
        spec, guarantee = self.step_spec, self.job.guarantee
        return {
            "of": [(name, keys) for name, keys in spec.of.items()],
            "columns": guarantee.columns,
            "person": guarantee.person,
            "cells_per_person": spec.cells_per_person,
            "records_per_cell": spec.records_per_cell,
            "noise": self.rule.noise.kind,
            "scale": self.rule.noise.scale,
            "threshold": str(self.rule.threshold),
            "bits": UNIT_BITS,
        }

    def count_records(self, records: PartitionedRecords) -> SparseCounts:
        spec = self.step_spec
        return count_cells(
            records,
            self.space,
            cells_per_person=self.cells_per_person,
            records_per_cell=spec.records_per_cell,
            shards=self.rule.shards,
        )

    def values_to_store(self, counted: SparseCounts, key: bytes, errors: CandidateErrors | None) -> Any:
        shards = counted.read_shards(range(self.rule.shards))
        return self.stored_rows(*in_order(self.rule.draw_shard(*shard, key) for shard in shards))

    @staticmethod
    def stored_rows(cells: Integers, values: Integers) -> dict[str, list[int]]:
        """What the store keeps of the rows that were drawn, here or by workers."""
        return {"cells": cells.tolist(), "values": values.tolist()}

    def delete_scratch(self, counted: SparseCounts) -> None:
        counted.delete()

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        if published_numbers is None:
            return {}
        spec, rule = self.step_spec, self.rule
        thresholded_facts = {
            "share": float(spec.share),
            "rho": str(self.loss.zcdp),
            "of": {name: keys.facts(self.space.columns[name]) for name, keys in spec.of.items()},
            "cells": str(rule.cells),
            "at_least": float(spec.at_least),
            "cells_per_person": self.cells_per_person,
            "records_per_cell": None if self.cells_per_person is None else spec.records_per_cell,
            "scale": str(rule.noise.scale),
            "deviation": rule.noise.deviation / 2**UNIT_BITS,
            "expected_false_rows": rule.false_rows,
            "published_half_of_the_time": rule.count_with(0.5),
            "published_almost_always": rule.count_with(0.975),
            "rows": len(published_numbers["cells"]),
            "published_rows": list(self.rows(published_numbers)),
        }
        return {"thresholded": thresholded_facts}

    def rows(self, published_numbers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The published rows in the order of their cells, with intervals that hold the true count given that the row is shown."""
        spec, noise = self.step_spec, self.rule.noise
        # intervals follow from the numbers that are published
        values = np.round(np.array(published_numbers["values"], dtype=np.float64) / 2**UNIT_BITS, DECIMALS)
        errors, limits = np.full(values.size, noise.deviation / 2**UNIT_BITS), np.full(values.size, float(spec.at_least))
        low, high = truncated_intervals(values, errors, limits, noise.kind) if values.size else (values, values)
        low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)  # no count is below 0
        for cell, *numbers in zip(published_numbers["cells"], values.tolist(), low.tolist(), high.tolist(), strict=True):
            value, low_end, high_end = (round(number, DECIMALS) for number in numbers)
            keys = dict(zip(spec.of, self.space.keys_at(cell), strict=True))
            yield {"keys": keys, "value": value, "low_95": low_end, "high_95": high_end}

    def plan_sentences(self) -> list[str]:
        """How large the noise is, how many rows are false, and how large a row must be to be published."""
        rule = self.rule
        return [
            f"thresholded histogram of {rule.cells:,} cells: noise of {rule.noise.deviation / 2**UNIT_BITS:.3g} records; "
            f"{rule.false_rows:,.3g} rows without records are expected to be published, a row of {rule.count_with(0.5):,} records is half "
            f"of the time, and one of {rule.count_with(0.975):,} almost always"
        ]
