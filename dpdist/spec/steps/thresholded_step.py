"""A thresholded histogram, drawn under a charge of its own before the plan of a release."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dpdist.content.table_rows import THRESHOLDED_FILE, THRESHOLDED_NUMBERS
from dpdist.content.truncated_intervals import truncated_intervals
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.sparse_counts import SparseCounts, count_cells, task_bytes
from dpdist.domain.key_spaces import KeySpace
from dpdist.engine import Engine
from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.charges import THRESHOLDED
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.privacy.selection.thresholded_histogram import (
    Integers,
    ThresholdedHistogram,
    UnpublishedTotals,
    in_order,
    thresholded_histogram,
    unpublished_totals,
)
from dpdist.privacy.step_noise import split_budget
from dpdist.spec.budgeted_step import BudgetedStep, CandidateErrors, StepDeclaration, StepOrder
from dpdist.spec.job import Job
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.sections.thresholded_cells import ThresholdedSpec
from dpdist.stability import Distance

MOST_TOTALS = 100_000
"""Of unpublished rows."""
DECIMALS = 3
"""Of noisy counts, and of the ends of their intervals."""


class ThresholdedRows(BudgetedStep):
    """The rows of a thresholded histogram."""

    job: Job
    step_spec: ThresholdedSpec

    purpose, is_independent, order = "thresholded", True, StepOrder.ROWS
    spec_text, spec_path, ends = "'thresholded'", ("thresholded",), (THRESHOLDED,)
    reason_without_stream = (
        "goes without 'stream': the rows of each step would need noise and a charge of their own, because the same noise at two steps "
        "would show exactly by how much a row grew; publish a release for each period, such as each day, under one cap"
    )

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
        space, rest = self.step_spec.space(measured.folder), self.step_spec.rest
        totals = 0 if rest is None else math.prod(space.columns[name].size for name in rest.by)
        if totals > MOST_TOTALS:
            raise InvalidInput(
                f"'rest: by' asks for {totals:,} totals, and at most {MOST_TOTALS:,} are published: name fewer columns"
            )

    @cached_property
    def space(self) -> KeySpace:
        """The cells."""
        return self.step_spec.space(self.job.measured.folder)

    @cached_property
    def moved(self) -> Distance:
        """How far one change of the files moves the counts of the cells."""
        spec, distance = self.step_spec, self.job.guarantee.protection.distance
        if self.job.guarantee.person.column is not None:
            return Distance(spec.records_per_cell, distance.replaced, groups=spec.cells_per_person)
        return Distance(distance.records * (distance.participations or 1), distance.replaced)

    @property
    def kind(self) -> Kind:
        """Of the noise."""
        return LAPLACE if self.step_budget.pure else GAUSSIAN

    @cached_property
    def rule(self) -> ThresholdedHistogram:
        spec, budget = self.step_spec, self.step_budget
        if spec.rest is not None:
            _, budget = split_budget(budget, spec.rest.share)
        return thresholded_histogram(self.kind, budget, self.moved, self.space.size, spec.at_least)

    @cached_property
    def totals(self) -> UnpublishedTotals | None:
        """The totals of unpublished rows, where they are asked for."""
        rest = self.step_spec.rest
        if rest is None:
            return None
        groups = math.prod(self.space.columns[name].size for name in rest.by)
        return unpublished_totals(self.kind, split_budget(self.step_budget, rest.share)[0], self.moved, groups)

    @property
    def loss(self) -> Loss:
        if self.totals is None:
            return self.rule.loss
        if self.step_budget.pure:  # one charge has one epsilon
            return Loss.laplace(self.rule.loss.pure + self.totals.loss.pure)
        return self.rule.loss + self.totals.loss

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
            **({} if self.totals is None else {"rest": spec.rest, "rest_scale": self.totals.noise.scale}),
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

    def task_bytes(self, engine: Engine) -> int:
        return task_bytes(engine)

    def values_to_store(self, counted: SparseCounts, key: bytes, errors: CandidateErrors | None) -> Any:
        shards = counted.read_shards(range(self.rule.shards))
        return self.stored_rows(*in_order(self.rule.draw_shard(*shard, key) for shard in shards), counted, key)

    def stored_rows(self, cells: Integers, values: Integers, counted: SparseCounts, key: bytes) -> dict[str, list[int]]:
        """What the store keeps of the rows that were drawn, here or by workers, with the totals of all others."""
        stored = {"cells": cells.tolist(), "values": values.tolist()}
        if self.totals is not None and self.step_spec.rest is not None:
            left_out = cells if self.step_spec.rest.measured == "rest" else cells[:0]
            exact = counted.sum_others(left_out, self.space, self.total_columns)
            stored["rest"] = self.totals.draw(exact, key).tolist()
        return stored

    @property
    def total_columns(self) -> list[str]:
        """The columns by whose keys there are totals, in the order of the key space."""
        rest = self.step_spec.rest
        return [] if rest is None else [name for name in self.space.columns if name in rest.by]

    def delete_scratch(self, counted: SparseCounts) -> None:
        counted.delete()

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        if published_numbers is None:
            return {}
        spec, rule = self.step_spec, self.rule
        thresholded_facts = {
            "share": float(spec.share),
            "rho": str(rule.loss.zcdp),
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
            **self.rest_facts(published_numbers),
        }
        return {"thresholded": thresholded_facts}

    def rest_facts(self, published_numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The totals of unpublished rows and of all rows, where they are asked for: with the published rows they add up exactly."""
        rest, names = self.step_spec.rest, self.total_columns
        if rest is None or self.totals is None:
            return {}
        noise, totals = self.totals.noise, []
        width = noise.half_width_95(1.0) * noise.deviation
        # without columns there is one total, and a space has one column or more
        space = KeySpace({name: self.space.columns[name] for name in names}) if names else None
        measured_steps, row_steps = (_whole_thousandths(published_numbers[name]) for name in ("rest", "values"))
        published_steps = np.zeros_like(measured_steps)
        np.add.at(
            published_steps, self.space.project(np.array(published_numbers["cells"], dtype=np.int64), names), row_steps
        )
        sign = 1 if rest.measured == "rest" else -1
        derived = (measured_steps + sign * published_steps) / 10**DECIMALS
        for number, total in enumerate(published_numbers["rest"]):
            keys = dict(zip(names, space.keys_at(number), strict=True)) if space else {}
            low, high = (round(max(0.0, (total + side * width) / 2**UNIT_BITS), DECIMALS) for side in (-1, 1))
            both = (measured_steps[number] / 10**DECIMALS, derived[number])[::sign]
            totals.append({"keys": keys, "rest": float(both[0]), "total": float(both[1]), "low_95": low, "high_95": high})
        rest_facts = {
            "share": float(rest.share),
            "rho": str(self.totals.loss.zcdp),
            "by": names,
            "measured": rest.measured,
            "scale": str(noise.scale),
            "deviation": noise.deviation / 2**UNIT_BITS,
            "totals": totals,
        }
        return {"rest": rest_facts}

    def tables(self, published_numbers: Mapping[str, Any]) -> dict[str, Mapping[str, Sequence[Any]]]:
        """The published rows in the order of their cells, with intervals that hold the true count given that the row is shown."""
        spec, noise = self.step_spec, self.rule.noise
        # intervals follow from the numbers that are published
        values = _whole_thousandths(published_numbers["values"]) / 10**DECIMALS
        errors, limits = np.full(values.size, noise.deviation / 2**UNIT_BITS), np.full(values.size, float(spec.at_least))
        low, high = truncated_intervals(values, errors, limits, noise.kind) if values.size else (values, values)
        low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)  # no count is below 0
        keys = [self.space.keys_at(cell) for cell in published_numbers["cells"]]
        key_columns = {name: [row_keys[place] for row_keys in keys] for place, name in enumerate(spec.of)}
        numbers = zip(THRESHOLDED_NUMBERS, (values, low, high), strict=True)
        rounded = {name: [round(number, DECIMALS) for number in column.tolist()] for name, column in numbers}
        return {THRESHOLDED_FILE: {**key_columns, **rounded}}

    def plan_sentences(self) -> list[str]:
        """How large the noise is, how many rows are false, and how large a row must be to be published."""
        rule = self.rule
        sentences = [
            f"thresholded histogram of {rule.cells:,} cells: noise of {rule.noise.deviation / 2**UNIT_BITS:.3g} records; "
            f"{rule.false_rows:,.3g} rows without records are expected to be published, a row of {rule.count_with(0.5):,} records is half "
            f"of the time, and one of {rule.count_with(0.975):,} almost always"
        ]
        if self.totals is None or self.step_spec.rest is None:
            return sentences
        width = self.totals.noise.half_width_95(1.0) * self.totals.noise.deviation / 2**UNIT_BITS
        which = "of the rows that are not published" if self.step_spec.rest.measured == "rest" else "of all rows"
        return [*sentences, f"each total {which} is \u00b1 {width:,.3g} records"]


def _whole_thousandths(values: list[int]) -> Integers:
    """Noisy counts as they are published, in whole thousandths of a record."""
    counts = np.array(values, dtype=np.float64) / 2**UNIT_BITS
    thousandths: Integers = np.rint(counts * 10**DECIMALS).astype(np.int64)
    return thousandths
