"""What the declared bounds of a release leave out, measured by a part of its budget: ``left_out``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.domain import Domain
from dpdist.identities import digest_of
from dpdist.machine.store import Store, StoredArray
from dpdist.privacy.accounting import Loss
from dpdist.privacy.beyond import FINEST, LARGEST, UNIT, Beyond, beyond, ladder
from dpdist.privacy.noise import Noise
from dpdist.quantities.beyond import of_block
from dpdist.records.beyond import CountedBeyond, beyond_bounds
from dpdist.records.sources import Source
from dpdist.release.preliminary import NoisyPreliminary, PredictedErrors
from dpdist.spec.found_first import LeftOut
from dpdist.spec.job import Job


@dataclass(frozen=True)
class LeftOutMeasurement(NoisyPreliminary):
    """Persons and records beyond the bounds, and amounts outside their range."""

    job: Job
    share: Fraction
    rule: Beyond

    @property
    def loss(self) -> Loss:
        return self.rule.loss

    @property
    def noise(self) -> Noise:
        return self.rule.noise

    @cached_property
    def binding(self) -> str:
        guarantee, measured, rule = self.job.guarantee, self.job.measured, self.rule
        facts = {
            "person": guarantee.person,
            "neighbours": guarantee.neighbours,
            "persons": measured.persons,
            "domain": [(name, given.measured) for name, given in measured.attributes.items()],
            "sums": [(name, given.measured) for name, given in measured.sums.items()],
            "columns": guarantee.columns,
            "rule": {
                "most": rule.most,
                "records": rule.records,
                "noise": rule.noise.kind,
                "scale": rule.noise.scale,
                "unit": UNIT,
            },
        }
        return digest_of("left out", facts)

    def counted(self, source: Source) -> CountedBeyond:
        return beyond_bounds(source, self.job.measured.domain, self.rule, persons=self.job.measured.persons)

    def kept(self, counted: CountedBeyond, key: bytes, errors: PredictedErrors | None) -> NDArray[np.uint8]:
        noisy = self.rule.noisy(counted.values, self.samples(key)).tolist()
        return np.frombuffer(json.dumps({"values": noisy}).encode(), dtype=np.uint8)

    def with_kept(self, store: Store, stored: StoredArray) -> Job:
        found: Mapping[str, Any] = json.loads(np.asarray(store.read(stored)).tobytes().decode())
        return self.job.with_found(True, found)

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        if found is None:
            return {}
        rule, values = self.rule, found["values"]
        told = {"most": rule.most, "records": rule.records, "scale": rule.noise.scale, "values": values}
        shares = estimated(rule, np.array(values, dtype=np.float64), job.measured.domain)
        return {"left_out": {"share": float(self.share), "rho": str(self.loss.zcdp), **told, **shares}}


def measured_of(job: Job) -> LeftOutMeasurement | None:
    """The measurement of what bounds leave out that a release asks for."""
    given, guarantee, measured = job.guarantee.names, job.guarantee, job.measured
    if not isinstance(given, LeftOut):
        return None
    part, _ = given.parts(guarantee.budget)
    person = guarantee.person
    most, records = (given.most if person.column else None), person.records * (person.participations or 1)
    return LeftOutMeasurement(job, given.share, beyond(most, records, tuple(measured.sums), part, guarantee.neighbours))


def estimated(rule: Beyond, values: NDArray[np.float64], domain: Domain) -> dict[str, Any]:
    """The shares and sums with their intervals, of persons and of each column."""
    blocks = np.split(values, np.cumsum(rule.sizes)[:-1])
    deviation, width, found = rule.noise.deviation, float(rule.noise.half_width_95(1.0)), {}
    if rule.most is not None:
        scales, ends = (UNIT, UNIT, UNIT / rule.records), ladder(rule.most).astype(np.float64)
        found["persons"] = of_block(blocks.pop(0), deviation, scales, ends, 2 * UNIT, width).persons()
    record, ends = rule.record, ladder(LARGEST).astype(np.float64)
    amounts = {}
    for name, block in zip(rule.columns, blocks, strict=True):
        column = domain.attribute(name).amounts
        assert column is not None
        low, high = column.range
        amounts[name] = of_block(block, deviation, (record,) * 3, ends, 2 * record, width).amounts((high - low) / FINEST)
    return {**found, "amounts": amounts}
