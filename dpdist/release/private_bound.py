"""A bound that a part of the budget buys: on the records or the groups of one person, or on the amounts of a column."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from dpdist.domain.amounts import AMOUNT
from dpdist.privacy.accounting import Loss
from dpdist.privacy.bounds import QUARTERS, UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.privacy.noise import Noise
from dpdist.quantities.beyond import AMOUNTS_SEEN, NoisyCounts
from dpdist.records.beyond import CountedSizes, RecordsInParts, counts_of_amounts, records_of_persons
from dpdist.release.preliminary import NoisyPreliminary, PlannedErrors, PredictedErrors
from dpdist.spec.found_first import GroupsBound, PrivateBound, RangeBound, RecordsBound
from dpdist.spec.job import Job
from dpdist.workloads import Workload


class BoundChoice(NoisyPreliminary):
    """The choice of a bound, from noisy counts by size."""

    asked: PrivateBound
    rule: CountsBySize
    purpose = "bound"
    seen: ClassVar[float] = NoisyCounts.seen
    parts: ClassVar[int] = QUARTERS

    @property
    def noise(self) -> Noise:
        return self.rule.noise

    @property
    def bound_to(self) -> Mapping[str, Any]:
        rule = {"most": self.rule.most, "noise": self.noise.kind, "scale": self.noise.scale, "bits": UNIT_BITS}
        return {"rule": rule, **self.counted_records, **self.of}

    @property
    @abstractmethod
    def of(self) -> Mapping[str, Any]:
        """Of whom it is, and of what."""

    @abstractmethod
    def chosen(self, job: Job, found: NoisyCounts) -> dict[str, Any]:
        """What a certificate says of the bound that a release has."""

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        return {} if found is None else self.chosen(job, self.estimated(found["counts"]))

    def kept(self, counted: CountedSizes, key: bytes, errors: PredictedErrors | None) -> Any:
        assert errors is not None
        noisy = self.rule.noisy(counted.counts, self.samples(key)).tolist()
        return {"counts": noisy, "bound": self.estimated(noisy).chosen(errors.variances, errors.spread)}

    def with_found(self, found: Any) -> Job:
        return self.job.with_found(found["bound"], found)

    def estimated(self, noisy: list[int]) -> NoisyCounts:
        """The noisy numbers, in persons or records."""
        scaled, rule = np.array(noisy, dtype=np.float64) / 2.0**UNIT_BITS, self.rule
        deviation, width = rule.noise.deviation / 2.0**UNIT_BITS, float(rule.noise.half_width_95(1.0))
        return NoisyCounts(rule.firsts, rule.lasts, scaled, deviation, width, self.seen)

    def _paid(self, found: NoisyCounts) -> dict[str, Any]:
        return {
            "share": float(self.asked.share),
            "rho": str(self.loss.zcdp),
            "deviation": round(found.deviation, 6),
        }


class RecordsChoice(BoundChoice):
    """The choice of ``most_records``, from persons by their number of records."""

    @property
    def of(self) -> Mapping[str, Any]:
        return {"person": self.job.guarantee.person.model_dump(include={"column", "type", "missing"})}

    def counted(self, records: RecordsInParts) -> CountedSizes:
        return records_of_persons(records, self.rule.most)

    def errors(self, planned: Callable[[int], PlannedErrors]) -> PredictedErrors:
        """Noise grows in proportion to the records."""
        largest = planned(self.rule.most)
        variances = largest.variance * (self.rule.lasts / self.rule.most) ** 2
        return PredictedErrors(variances, spread_of(largest.job.workload.queries))

    def chosen(self, job: Job, found: NoisyCounts) -> dict[str, Any]:
        bound = job.guarantee.person.most_records
        told = {"persons_beyond": found.beyond(bound).facts(), "records_left_out": found.excess(bound).facts()}
        return {"chosen_bound": {"most_records": bound, "up_to": self.rule.most, **self._paid(found), **told}}


class GroupsChoice(BoundChoice):
    """The choice of ``most_groups``, from persons by their number of groups."""

    @property
    def of(self) -> Mapping[str, Any]:
        return {"groups of": self.job.guarantee.person.model_dump(include={"column", "type", "missing"})}

    def counted(self, records: RecordsInParts) -> CountedSizes:
        return records_of_persons(records, self.rule.most, groups=True)

    def errors(self, planned: Callable[[int], PlannedErrors]) -> PredictedErrors:
        """Those of plans with doubling bounds, and powers between them: how noise grows is a matter of the strategy.

        A group that does not count is taken to lose as many records as may count in it.
        """
        bounds = sorted({*(2**doubled for doubled in range(self.rule.most.bit_length())), self.rule.most})
        found = [planned(bound) for bound in bounds]
        grown = np.interp(np.log(self.rule.lasts), np.log(bounds), np.log([each.variance for each in found]))
        lost = spread_of(found[0].job.workload.queries) * self.job.guarantee.person.most_records**2
        return PredictedErrors(np.exp(grown), lost)

    def chosen(self, job: Job, found: NoisyCounts) -> dict[str, Any]:
        bound = job.guarantee.person.most_groups
        assert bound is not None
        told = {"persons_in_more_groups": found.beyond(bound).facts(), "groups_left_out": found.excess(bound).facts()}
        return {"chosen_groups": {"most_groups": bound, "up_to": self.rule.most, **self._paid(found), **told}}


class RangeChoice(BoundChoice):
    """The choice of the largest amount of a column, from the records that count by their amount in steps."""

    parts: ClassVar[int] = WHOLES
    seen: ClassVar[float] = AMOUNTS_SEEN

    @property
    def of(self) -> Mapping[str, Any]:
        given = self.job.measured.sums[self.asked.of]
        return {"person": self.job.guarantee.person, "of": self.asked.of, "amounts": given.measured}

    def counted(self, records: RecordsInParts) -> CountedSizes:
        return counts_of_amounts(records, self.asked.of, self.rule.most)

    def errors(self, planned: Callable[[int], PlannedErrors]) -> PredictedErrors:
        """Those of the sums of the column. What noise adds to a sum grows with its range; counts do not depend on it."""
        widest = planned(self.rule.most)
        job = widest.job
        queries, column, title = (
            job.workload.queries,
            job.measured.domain.attribute(self.asked.of),
            f"sum of {self.asked.of}",
        )
        assert column.amounts is not None
        own = [each.name == title or each.name.startswith((f"{title} by ", f"{title},")) for each in queries.blocks]
        of_sums = np.repeat(own, [each.queries for each in queries.blocks])
        weighed = (queries.weights * widest.each())[of_sums]
        sums = Workload(queries.domain, tuple(each for each, summed in zip(queries.blocks, own, strict=True) if summed))
        mean = float(column.amounts.values(AMOUNT).sum()) / column.size
        variances = float(weighed @ weighed) * (self.rule.lasts / column.amounts.range[1]) ** 2
        return PredictedErrors(variances, spread_of(sums) / mean**2)

    def chosen(self, job: Job, found: NoisyCounts) -> dict[str, Any]:
        given, widest = job.measured.sums[self.asked.of], self.job.measured.sums[self.asked.of]
        told = {"amounts_beyond": found.beyond(given.steps).facts(), "sum_left_out": found.excess(given.steps).facts()}
        ends = {"to": float(given.last), "up_to": float(widest.last)}
        return {"chosen_range": {"of": self.asked.of, **ends, **self._paid(found), **told}}


CHOICES: dict[type[PrivateBound], type[BoundChoice]] = {
    RecordsBound: RecordsChoice,
    GroupsBound: GroupsChoice,
    RangeBound: RangeChoice,
}
"""How each bound is chosen."""


def choice_of(job: Job, asked: PrivateBound, part: Loss) -> BoundChoice:
    """The choice of a bound, by a part of the budget."""
    made, person = CHOICES[type(asked)], job.guarantee.person
    each = person.records * (person.participations or 1) if isinstance(asked, RangeBound) else 1
    return made(job, asked, counts_by_size(asked.most, part, job.guarantee.neighbours, each=each, parts=made.parts))


def spread_of(workload: Workload) -> float:
    """What all answers lose, squared and added, for one record in the mean over all cells, squared."""
    total = 0.0
    for block in workload.blocks:
        factors = block.scaled(block.factors)
        means = (factor.matvec(np.ones(factor.shape[1])) / factor.shape[1] for factor in factors)
        total += block.weight**2 * math.prod(float(each @ each) for each in means)
    return total
