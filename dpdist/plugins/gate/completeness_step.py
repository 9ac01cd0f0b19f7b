"""How complete the records are (``gate: completeness``): the shares with a missing value and outside the domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.api import InvalidInput
from dpdist.api.steps import (
    COMPLETENESS,
    UNIT_BITS,
    CountedCells,
    CountedSizes,
    Draw,
    EstimatedShare,
    Job,
    Loss,
    Noise,
    NoisyStep,
    PartitionedRecords,
    RecordsSpec,
    ReleaseSpec,
    StepDeclaration,
    StepOrder,
    noise_for,
)
from dpdist.plugins.gate.gate_section import CompletenessSpec, GateSpec
from dpdist.plugins.gate.record_completeness import CLASSES, count_completeness


@dataclass(frozen=True)
class NoisyRecordClasses:
    """How records or persons are counted by class.

    Attributes:
        moved: so many enter or leave at once, of one class and into another where they may be replaced.
        noise: in units.
        loss: what it reveals of one change.
    """

    moved: int
    noise: Noise
    loss: Loss

    def noisy(self, counts: NDArray[np.int64], draw: Draw) -> NDArray[np.int64]:
        """The numbers with noise, in units."""
        return (counts << UNIT_BITS) + draw(counts.size)


class CompletenessMeasurement(NoisyStep):
    """Records, or persons, by the worst that a record of theirs is: complete, with a missing value, or outside the domain."""

    job: Job
    step_spec: CompletenessSpec

    purpose, is_independent, of_bounds, order = "completeness", True, False, StepOrder.CLASSES
    spec_text, spec_path, ends = "'gate: completeness'", ("gate", "completeness"), (COMPLETENESS,)

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        gate = spec.gate
        if isinstance(gate, GateSpec) and gate.completeness is not None:
            yield StepDeclaration(gate.completeness, lambda _: {"gate": gate.model_copy(update={"completeness": None})})

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for records that were counted before."""
        super().check_measured(records, measured)
        if records.counts is not None:
            raise InvalidInput(
                "'gate: completeness' looks at single records, which were counted before: give the records themselves, or leave it out"
            )

    @property
    def counts_persons(self) -> bool:
        """Whether persons are counted, each once."""
        return self.job.guarantee.person.column is not None

    @cached_property
    def rule(self) -> NoisyRecordClasses:
        distance = self.job.guarantee.protection.distance
        moved = 1 if self.counts_persons else distance.records * (distance.participations or 1)
        times = 2 if distance.replaced else 1
        absolute, squared = times * moved << UNIT_BITS, times * moved**2 << 2 * UNIT_BITS
        noise, loss = noise_for(self.step_budget, absolute, squared, len(CLASSES), self.spec_text)
        return NoisyRecordClasses(moved, noise, loss)

    @property
    def binding_facts(self) -> Mapping[str, Any]:
        rule = {"moved": self.rule.moved, "noise": self.noise.kind, "scale": self.noise.scale, "unit": UNIT_BITS}
        return {"person": self.job.guarantee.person, "classes": CLASSES, "rule": rule, **self.record_facts}

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return count_completeness(records)

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        if published_numbers is None:
            return {}
        rule, values = self.rule, published_numbers["values"]
        counts, variance = np.array(values) / 2.0**UNIT_BITS, (self.noise.deviation / 2.0**UNIT_BITS) ** 2
        covariance = variance * np.array([[1, 1], [1, len(CLASSES)]])  # of a class and of all together
        width = float(self.noise.half_width_95(1.0))
        shares = {
            name: EstimatedShare.of(np.array([count, counts.sum()]), covariance, width).facts()
            for name, count in zip(CLASSES[1:], counts[1:], strict=True)
        }
        facts = {
            "share": float(self.budget_share),
            "rho": str(self.loss.zcdp),
            "of": "persons" if self.counts_persons else "records",
            "moved": rule.moved,
            "scale": rule.noise.scale,
            "values": values,
            **shares,
        }
        return {"completeness": facts}

    def plan_sentences(self) -> list[str]:
        """How large the noise is."""
        noun = "persons" if self.counts_persons else "records"
        width = float(self.noise.half_width_95(1.0)) * self.noise.deviation / 2**UNIT_BITS
        return [f"numbers of {noun} with a missing value, and of those outside the domain: each is ± {width:,.3g} {noun}"]
