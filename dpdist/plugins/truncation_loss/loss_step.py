"""What declared bounds leave out (``left_out``): persons and records beyond them, and amounts outside their range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.api import InvalidInput
from dpdist.api.steps import (
    BOUND_LOSS,
    LAPLACE,
    CountedCells,
    CountedSizes,
    Domain,
    Job,
    NoisyStep,
    PartitionedRecords,
    RecordsSpec,
    ReleaseSpec,
    StepDeclaration,
)
from dpdist.plugins.truncation_loss.loss_counting import count_truncation_loss
from dpdist.plugins.truncation_loss.loss_estimates import DETECTION_ERRORS, LAPLACE_DETECTION_ERRORS, estimate_bound_loss
from dpdist.plugins.truncation_loss.loss_section import LeftOutSpec
from dpdist.plugins.truncation_loss.noisy_loss import (
    FINEST,
    LARGEST,
    UNIT,
    NoisyBoundLoss,
    calibrate_bound_loss,
    size_bin_ends,
)


class TruncationLossMeasurement(NoisyStep):
    """Persons and records beyond the bounds, and amounts outside their range."""

    job: Job
    step_spec: LeftOutSpec

    purpose, is_independent, says_bound_loss = "left out", True, True
    spec_text, spec_path, ends = "'left_out'", ("left_out",), (BOUND_LOSS,)

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        if isinstance(spec.left_out, LeftOutSpec):
            yield StepDeclaration(spec.left_out, lambda _: {"left_out": None})

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput where nothing is bounded."""
        super().check_measured(records, measured)
        if records.person.column is None and not measured.sums:
            raise InvalidInput("nothing is bounded: 'left_out' needs a person 'column' or 'sums'; leave it out")

    @cached_property
    def rule(self) -> NoisyBoundLoss:
        guarantee, columns = self.job.guarantee, tuple(self.job.measured.sums)
        person = guarantee.person
        largest_excess = self.step_spec.most if person.column else None
        records = person.records * (person.participations or 1)
        return calibrate_bound_loss(largest_excess, records, columns, self.step_budget, guarantee.neighbours)

    @property
    def binding_facts(self) -> Mapping[str, Any]:
        measured, rule = self.job.measured, self.rule
        return {
            "person": self.job.guarantee.person,
            "persons": measured.persons,
            "sums": [(name, sum_column.digest_form) for name, sum_column in measured.sums.items()],
            "rule": {
                "most": rule.most_lost_records,
                "records": rule.records,
                "noise": rule.noise.kind,
                "scale": rule.noise.scale,
                "unit": UNIT,
            },
            **self.record_facts,
        }

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return count_truncation_loss(records, self.rule, persons=self.job.measured.persons)

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        if published_numbers is None:
            return {}
        rule, values = self.rule, published_numbers["values"]
        rule_facts = {"most": rule.most_lost_records, "records": rule.records, "scale": rule.noise.scale, "values": values}
        loss_facts = truncation_loss_facts(rule, np.array(values, dtype=np.float64), job.measured.domain)
        return {"left_out": {"share": float(self.budget_share), "rho": str(self.loss.zcdp), **rule_facts, **loss_facts}}


def truncation_loss_facts(rule: NoisyBoundLoss, values: NDArray[np.float64], domain: Domain) -> dict[str, Any]:
    """The shares and sums with their intervals, of persons and of each column."""
    blocks = np.split(values, np.cumsum(rule.sizes)[:-1])
    deviation, facts = rule.noise.deviation, {}
    interval_terms = (
        float(rule.noise.half_width_95(1.0)),
        LAPLACE_DETECTION_ERRORS if rule.noise.kind == LAPLACE else DETECTION_ERRORS,
    )
    if rule.most_lost_records is not None:
        scales, ends = (UNIT, UNIT, UNIT / rule.records), size_bin_ends(rule.most_lost_records).astype(np.float64)
        facts["persons"] = estimate_bound_loss(blocks.pop(0), deviation, scales, ends, 2 * UNIT, *interval_terms).persons()
    record, ends = rule.record, size_bin_ends(LARGEST).astype(np.float64)
    amounts = {}
    for name, block in zip(rule.columns, blocks, strict=True):
        column = domain.attribute(name).amounts
        assert column is not None
        low, high = column.range
        amounts[name] = estimate_bound_loss(block, deviation, (record,) * 3, ends, 2 * record, *interval_terms).amounts(
            (high - low) / FINEST
        )
    return {**facts, "amounts": amounts}
