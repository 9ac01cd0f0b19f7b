"""What the declared bounds of a release leave out, measured by a part of its budget: ``left_out``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.domain import Domain
from dpdist.privacy.accounting import Loss
from dpdist.privacy.beyond import FINEST, LARGEST, UNIT, Beyond, beyond, ladder
from dpdist.privacy.distributions import LAPLACE
from dpdist.privacy.noise import Noise
from dpdist.quantities.beyond import SEEN, SEEN_OF_LAPLACE, of_block
from dpdist.records.beyond import CountedSizes, RecordsInParts, beyond_bounds
from dpdist.release.preliminary import NoisyPreliminary, PredictedErrors
from dpdist.spec.found_first import LeftOut
from dpdist.spec.job import Job


class LeftOutMeasurement(NoisyPreliminary):
    """Persons and records beyond the bounds, and amounts outside their range."""

    asked: LeftOut
    rule: Beyond
    purpose = "left out"

    @classmethod
    def planned(cls, job: Job, asked: LeftOut, part: Loss) -> Self:
        person, columns = job.guarantee.person, tuple(job.measured.sums)
        most, records = (asked.most if person.column else None), person.records * (person.participations or 1)
        return cls(job, asked, beyond(most, records, columns, part, job.guarantee.neighbours))

    @property
    def noise(self) -> Noise:
        return self.rule.noise

    @property
    def bound_to(self) -> Mapping[str, Any]:
        measured, rule = self.job.measured, self.rule
        return {
            "person": self.job.guarantee.person,
            "persons": measured.persons,
            "sums": [(name, given.measured) for name, given in measured.sums.items()],
            "rule": {
                "most": rule.most,
                "records": rule.records,
                "noise": rule.noise.kind,
                "scale": rule.noise.scale,
                "unit": UNIT,
            },
            **self.counted_records,
        }

    def counted(self, records: RecordsInParts) -> CountedSizes:
        return beyond_bounds(records, self.rule, persons=self.job.measured.persons)

    def kept(self, counted: CountedSizes, key: bytes, errors: PredictedErrors | None) -> Any:
        return {"values": self.rule.noisy(counted.counts, self.samples(key)).tolist()}

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        if found is None:
            return {}
        rule, values = self.rule, found["values"]
        told = {"most": rule.most, "records": rule.records, "scale": rule.noise.scale, "values": values}
        shares = estimated(rule, np.array(values, dtype=np.float64), job.measured.domain)
        return {"left_out": {"share": float(self.asked.share), "rho": str(self.loss.zcdp), **told, **shares}}


def estimated(rule: Beyond, values: NDArray[np.float64], domain: Domain) -> dict[str, Any]:
    """The shares and sums with their intervals, of persons and of each column."""
    blocks = np.split(values, np.cumsum(rule.sizes)[:-1])
    deviation, found = rule.noise.deviation, {}
    by = float(rule.noise.half_width_95(1.0)), SEEN_OF_LAPLACE if rule.noise.kind == LAPLACE else SEEN
    if rule.most is not None:
        scales, ends = (UNIT, UNIT, UNIT / rule.records), ladder(rule.most).astype(np.float64)
        found["persons"] = of_block(blocks.pop(0), deviation, scales, ends, 2 * UNIT, *by).persons()
    record, ends = rule.record, ladder(LARGEST).astype(np.float64)
    amounts = {}
    for name, block in zip(rule.columns, blocks, strict=True):
        column = domain.attribute(name).amounts
        assert column is not None
        low, high = column.range
        amounts[name] = of_block(block, deviation, (record,) * 3, ends, 2 * record, *by).amounts((high - low) / FINEST)
    return {**found, "amounts": amounts}
