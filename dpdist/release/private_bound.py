"""A bound on the records of one person that a part of the budget buys: ``most_records: private``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.identities import digest_of
from dpdist.machine.store import Store, StoredArray
from dpdist.privacy.accounting import Loss
from dpdist.privacy.bounds import UNIT_BITS, PersonsByRecords, persons_by_records, shares
from dpdist.privacy.charges import BOUND
from dpdist.privacy.noise import Noise
from dpdist.quantities.left_out import NoisyPersons
from dpdist.records.per_person import RecordsOfPersons, records_of_persons
from dpdist.records.sources import Source
from dpdist.release.preliminary import Draw, PredictedErrors, Preliminary
from dpdist.spec.job import Job, Prepared, PrivateBound


@dataclass(frozen=True)
class BoundChoice(Preliminary):
    """The choice of ``most_records``, from persons by their number of records."""

    job: Job
    most: int
    share: Fraction
    rule: PersonsByRecords

    suffix: ClassVar[str] = BOUND
    asks_errors: ClassVar[bool] = True

    @property
    def loss(self) -> Loss:
        return self.rule.loss

    @property
    def noise(self) -> Noise:
        return self.rule.noise

    @cached_property
    def binding(self) -> str:
        guarantee, domain = self.job.guarantee, self.job.measured.attributes
        person = guarantee.person.model_dump(include={"column", "type", "missing"})
        facts = {
            "person": person,
            "neighbours": guarantee.neighbours,
            "domain": [(name, given.measured) for name, given in domain.items()],  # records beyond it count for nobody
            "columns": guarantee.columns,
            "rule": {"most": self.most, "noise": self.noise.kind, "scale": self.noise.scale, "bits": UNIT_BITS},
        }
        return digest_of("bound", facts)

    def counted(self, source: Source) -> RecordsOfPersons:
        return records_of_persons(source, self.job.measured.domain, self.most)

    def kept(self, counted: RecordsOfPersons, draw: Draw, errors: PredictedErrors | None) -> NDArray[np.uint8]:
        assert errors is not None
        noisy = self.rule.noisy(counted.persons, draw).tolist()
        found = {"persons": noisy, "most_records": self.estimated(noisy).chosen(errors.variance, errors.spread)}
        return np.frombuffer(json.dumps(found).encode(), dtype=np.uint8)

    def with_kept(self, store: Store, stored: StoredArray) -> Job:
        found: Mapping[str, Any] = json.loads(np.asarray(store.read(stored)).tobytes().decode())
        return self.job.with_found(found["most_records"], found)

    def estimated(self, noisy: list[int]) -> NoisyPersons:
        """The noisy numbers, in persons."""
        scaled, rule = np.array(noisy, dtype=np.float64) / 2.0**UNIT_BITS, self.rule
        deviation, width = rule.noise.deviation / 2.0**UNIT_BITS, float(rule.noise.half_width_95(1.0))
        return NoisyPersons(rule.firsts, rule.lasts, scaled, deviation, width)


def choice_of(job: Job) -> BoundChoice | None:
    """The choice of a bound that a release asks for, None where it is declared."""
    given, guarantee = job.guarantee.names, job.guarantee
    if not isinstance(given, PrivateBound):
        return None
    part, _ = shares(guarantee.budget.loss, given.share)
    return BoundChoice(job, given.most, given.share, persons_by_records(given.most, part, guarantee.neighbours))


def bound_facts(job: Job) -> dict[str, Any] | None:
    """What a certificate says of the bound that was chosen, None where it was declared or is not known yet."""
    choice, given = choice_of(job.declared), job.guarantee.names
    if choice is None or not isinstance(given, Prepared) or given.found is None:
        return None
    bound, found = job.guarantee.person.most_records, choice.estimated(given.found["persons"])
    return {
        "most_records": bound,
        "up_to": choice.most,
        "share": float(choice.share),
        "rho": str(choice.loss.zcdp),
        "deviation": round(found.deviation, 6),
        "persons_beyond": found.persons_beyond(bound).facts(),
        "records_left_out": found.records_beyond(bound).facts(),
    }
