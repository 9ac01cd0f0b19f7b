"""Bounds that a part of the budget buys (on records, groups or amounts), and what declared bounds leave out (``left_out``)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.person_histograms import (
    CountedSizes,
    RecordsInParts,
    beyond_bounds,
    counts_of_amounts,
    records_of_persons,
)
from dpdist.domain import Domain
from dpdist.domain.numeric_columns import AMOUNT
from dpdist.planner.budgeted_step import NoisyPreliminary, PlannedErrors, PredictedErrors
from dpdist.privacy.accounting import Loss
from dpdist.privacy.contribution_histogram import QUARTERS, UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import LAPLACE
from dpdist.privacy.noisy_truncation_loss import FINEST, LARGEST, UNIT, Beyond, beyond, ladder
from dpdist.spec.job import Job
from dpdist.spec.preprocessing_budget import LeftOut, PrivateBound, RangeBound
from dpdist.spec.queries import QuerySpec
from dpdist.statistics.truncation_loss import AMOUNTS_SEEN, SEEN, SEEN_OF_LAPLACE, NoisyCounts, SignedCounts, of_block
from dpdist.workloads import Workload

SHAPE = 2**10
"""Steps of a range on the farther side of zero, whose errors are those of all ranges of its shape, but for their size."""
SHAPES = (0, SHAPE // 2, SHAPE)
"""Steps on the other side."""


class BoundChoice(NoisyPreliminary):
    """The choice of a bound, from noisy counts by size."""

    asked: PrivateBound
    rule: CountsBySize
    purpose = "bound"
    seen: ClassVar[float] = NoisyCounts.seen

    @classmethod
    def planned(cls, job: Job, asked: PrivateBound, part: Loss) -> Self:
        return cls(job, asked, counts_by_size(asked.most, part, job.guarantee.neighbours, each=1, parts=QUARTERS))

    @property
    def noise(self) -> Noise:
        return self.rule.noise

    @property
    def bound_to(self) -> Mapping[str, Any]:
        rule = {"most": self.rule.most, "noise": self.noise.kind, "scale": self.noise.scale, "bits": UNIT_BITS}
        rule |= {"below": self.rule.below} if self.rule.below else {}
        return {"rule": rule, **self.counted_records, **self.of}

    @property
    @abstractmethod
    def of(self) -> Mapping[str, Any]:
        """Of whom it is, and of what."""

    @abstractmethod
    def chosen(self, job: Job, found: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        """What a certificate says of the bound that a release has.

        Args:
            noisy: the numbers in units that it was chosen from, by which readers recompute what is said.
        """

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        return {} if found is None else self.chosen(job, self.estimated(found["counts"]), found["counts"])

    def kept(self, counted: CountedSizes, key: bytes, errors: PredictedErrors | None) -> Any:
        assert errors is not None
        noisy = self.rule.noisy(counted.counts, self.samples(key)).tolist()
        return {"counts": noisy, "bound": self.best(self.estimated(noisy), errors)}

    def best(self, found: NoisyCounts, errors: PredictedErrors) -> Any:
        """The bound of least predicted error."""
        return found.chosen(errors.variances, errors.spread)

    def with_found(self, found: Any) -> Job:
        return self.job.with_found(found["bound"], found)

    def estimated(self, noisy: list[int]) -> NoisyCounts:
        """The noisy numbers, in persons or records."""
        scaled, rule = np.array(noisy, dtype=np.float64) / 2.0**UNIT_BITS, self.rule
        deviation, width = rule.noise.deviation / 2.0**UNIT_BITS, float(rule.noise.half_width_95(1.0))
        return NoisyCounts(rule.firsts, rule.lasts, scaled, deviation, width, rule.noise.kind == LAPLACE, self.seen)

    def _paid(self, found: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        return {
            "share": float(self.asked.share),
            "rho": str(self.loss.zcdp),
            "deviation": round(found.deviation, 6),
            "scale": self.noise.scale,
            "values": noisy,
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

    def chosen(self, job: Job, found: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        bound = job.guarantee.person.most_records
        told = {"persons_beyond": found.beyond(bound).facts(), "records_left_out": found.excess(bound).facts()}
        return {"chosen_bound": {"most_records": bound, "up_to": self.rule.most, **self._paid(found, noisy), **told}}


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

    def chosen(self, job: Job, found: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        bound = job.guarantee.person.most_groups
        assert bound is not None
        told = {"persons_in_more_groups": found.beyond(bound).facts(), "groups_left_out": found.excess(bound).facts()}
        return {"chosen_groups": {"most_groups": bound, "up_to": self.rule.most, **self._paid(found, noisy), **told}}


class RangeChoice(BoundChoice):
    """The choice of the range of a column, from the records that count by their amount in steps."""

    asked: RangeBound
    seen: ClassVar[float] = AMOUNTS_SEEN

    @classmethod
    def planned(cls, job: Job, asked: PrivateBound, part: Loss) -> Self:
        assert isinstance(asked, RangeBound)
        person, neighbours = job.guarantee.person, job.guarantee.neighbours
        each = person.records * (person.participations or 1)
        return cls(job, asked, counts_by_size(asked.most, part, neighbours, each=each, parts=WHOLES, below=asked.below))

    @property
    def of(self) -> Mapping[str, Any]:
        given = self.job.measured.sums[self.asked.of]
        return {"person": self.job.guarantee.person, "of": self.asked.of, "amounts": given.measured}

    def counted(self, records: RecordsInParts) -> CountedSizes:
        return counts_of_amounts(records, self.asked.of, self.rule.below + self.rule.most)

    def errors(self, planned: Callable[[Any], PlannedErrors]) -> PredictedErrors:
        """Those of the sums of the column. What noise adds to a sum grows with its range; counts do not depend on it.

        A sum has the noise of the end that is farther from zero, and of the shape of the range beside it: plans with a lower end at zero,
        half as far and as far away tell it, and numbers between them. The error of a mean is that of the deviations from the middle of
        the range.
        """
        highest = self._signed(None).highest
        if not self.rule.below:
            summed, spread = self._of_sums(planned((0, self.rule.most)))
            return PredictedErrors(summed * (highest[None, :] / self.rule.most) ** 2, spread)
        found = [self._of_sums(planned((low, SHAPE))) for low in SHAPES]
        low, high = np.meshgrid(self._signed(None).lowest, highest, indexing="ij")
        spread = found[0][1]
        if not any(each.statistic.key() == "sum" and self.asked.of in each.statistic.columns for each in self.entries):
            return PredictedErrors(found[-1][0] * ((low + high) / (2 * SHAPE)) ** 2, spread)
        farther = np.maximum(low, high)
        shape = np.interp(np.minimum(low, high) / farther, np.array(SHAPES) / SHAPE, [summed for summed, _ in found])
        return PredictedErrors(shape * (farther / SHAPE) ** 2, spread)

    @property
    def entries(self) -> tuple[QuerySpec, ...]:
        """What the release asks for."""
        return self.job.measured.entries

    def _of_sums(self, planned: PlannedErrors) -> tuple[float, float]:
        """The predicted squared error of all (weighted) sums of the column, and what they lose for a step that is cut off, squared."""
        job, title = planned.job, f"sum of {self.asked.of}"
        queries, column = job.workload.queries, job.measured.domain.attribute(self.asked.of)
        assert column.amounts is not None
        own = [each.name == title or each.name.startswith((f"{title} by ", f"{title},")) for each in queries.blocks]
        weighed = (queries.weights * planned.each())[np.repeat(own, [each.queries for each in queries.blocks])]
        sums = Workload(queries.domain, tuple(each for each, summed in zip(queries.blocks, own, strict=True) if summed))
        mean = float(column.amounts.values(AMOUNT).sum()) / column.size
        return float(weighed @ weighed), spread_of(sums) / mean**2 if mean else 0.0

    def _signed(self, found: NoisyCounts | None) -> SignedCounts:
        """The noisy numbers, or their bins alone."""
        return SignedCounts(found or self.estimated([0] * self.rule.firsts.size), self.rule.above)

    def best(self, found: NoisyCounts, errors: PredictedErrors) -> tuple[int, int]:
        return self._signed(found).chosen(errors.variances, errors.spread)

    def chosen(self, job: Job, found: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        given, widest = job.measured.sums[self.asked.of], self.job.measured.sums[self.asked.of]
        amounts, cut = self._signed(found).outside(*given.around_zero)
        told = {"amounts_beyond": amounts.facts(), "sum_left_out": cut.facts()}
        ends = {
            "from": float(given.first),
            "down_to": float(widest.first),
            "to": float(given.last),
            "up_to": float(widest.last),
        }
        return {"chosen_ranges": [{"of": self.asked.of, **ends, **self._paid(found, noisy), **told}]}


def spread_of(workload: Workload) -> float:
    """What all answers lose, squared and added, for one record in the mean over all cells, squared."""
    total = 0.0
    for block in workload.blocks:
        factors = block.scaled(block.factors)
        means = (factor.matvec(np.ones(factor.shape[1])) / factor.shape[1] for factor in factors)
        total += block.weight**2 * math.prod(float(each @ each) for each in means)
    return total


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
