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
    PartitionedRecords,
    count_truncation_loss,
    counts_of_amounts,
    records_of_persons,
)
from dpdist.domain import Domain
from dpdist.domain.numeric_columns import AMOUNT
from dpdist.planner.budgeted_step import CandidateErrors, NoisyStep, PlannedErrors
from dpdist.privacy.accounting import Loss
from dpdist.privacy.contribution_histogram import QUARTERS, UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import LAPLACE
from dpdist.privacy.noisy_truncation_loss import FINEST, LARGEST, UNIT, NoisyBoundLoss, calibrate_bound_loss, size_bin_ends
from dpdist.spec.job import Job
from dpdist.spec.preprocessing_budget import PrivateBound, RangeBound, TruncationLossStep
from dpdist.spec.queries import QuerySpec
from dpdist.statistics.truncation_loss import (
    AMOUNT_DETECTION_NATS,
    DETECTION_ERRORS,
    LAPLACE_DETECTION_ERRORS,
    NoisyCounts,
    SignedCounts,
    estimate_bound_loss,
)
from dpdist.workloads import Workload

SHAPE = 2**10
"""Steps of a range on the farther side of zero, whose errors are those of all ranges of its shape, but for their size."""
SHAPES = (0, SHAPE // 2, SHAPE)
"""Steps on the other side."""


class BoundChoice(NoisyStep):
    """The choice of a bound, from noisy counts by size."""

    step_spec: PrivateBound
    rule: CountsBySize
    purpose = "bound"
    detection_threshold: ClassVar[float] = NoisyCounts.detection_nats
    counted_words: ClassVar[str]
    """What lies in a bin together."""

    @classmethod
    def for_budget(cls, job: Job, step_spec: PrivateBound, step_budget: Loss) -> Self:
        return cls(
            job,
            step_spec,
            counts_by_size(
                step_spec.largest, step_budget, job.guarantee.neighbours, most_per_person=1, width_divisor=QUARTERS
            ),
        )

    @property
    def noise(self) -> Noise:
        return self.rule.noise

    @property
    def binding_facts(self) -> Mapping[str, Any]:
        rule = {"most": self.rule.largest_size, "noise": self.noise.kind, "scale": self.noise.scale, "bits": UNIT_BITS}
        rule |= {"below": self.rule.below} if self.rule.below else {}
        return {"rule": rule, **self.record_facts, **self.subject_facts}

    @property
    @abstractmethod
    def subject_facts(self) -> Mapping[str, Any]:
        """Of whom it is, and of what."""

    @abstractmethod
    def bound_facts(self, job: Job, noisy_counts: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        """What a certificate says of the bound that a release has.

        Args:
            noisy: the numbers in units that it was chosen from, by which readers recompute what is said.
        """

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        return (
            {}
            if published_numbers is None
            else self.bound_facts(job, self.estimate_counts(published_numbers["counts"]), published_numbers["counts"])
        )

    def values_to_store(self, counted: CountedSizes, key: bytes, errors: CandidateErrors | None) -> Any:
        assert errors is not None
        noisy = self.rule.noisy(counted.counts, self.samples(key)).tolist()
        return {"counts": noisy, "bound": self.best_bound(self.estimate_counts(noisy), errors)}

    def best_bound(self, noisy_counts: NoisyCounts, errors: CandidateErrors) -> Any:
        """The bound of least predicted error."""
        return noisy_counts.choose_bound(errors.variances, errors.record_loss)

    def job_with_values(self, values: Any) -> Job:
        return self.job.with_step_result(values["bound"], values)

    def estimate_counts(self, noisy: list[int]) -> NoisyCounts:
        """The noisy numbers, in persons or records."""
        scaled, rule = np.array(noisy, dtype=np.float64) / 2.0**UNIT_BITS, self.rule
        deviation, width = rule.noise.deviation / 2.0**UNIT_BITS, float(rule.noise.half_width_95(1.0))
        return NoisyCounts(
            rule.bin_starts, rule.bin_ends, scaled, deviation, width, rule.noise.kind == LAPLACE, self.detection_threshold
        )

    def detection_sentence(self) -> str:
        """How many of what is counted the choice needs, before it is made."""
        needed = math.ceil(self.estimate_counts([0] * self.rule.bin_starts.size).least_detected)
        return (
            f"{self.step_spec.key} sees {self.counted_words} from about {needed:,} on; where the file has few more than "
            "that, noise makes the choice: give a number, or raise 'share'"
        )

    def _price_facts(self, noisy_counts: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        return {
            "share": float(self.step_spec.budget_share),
            "rho": str(self.loss.zcdp),
            "deviation": round(noisy_counts.deviation, 6),
            "scale": self.noise.scale,
            "values": noisy,
        }


class RecordsChoice(BoundChoice):
    """The choice of ``most_records``, from persons by their number of records."""

    counted_words = "persons with about equally many records"

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        return {"person": self.job.guarantee.person.model_dump(include={"column", "type", "missing"})}

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return records_of_persons(records, self.rule.largest_size)

    def errors(self, planned: Callable[[int], PlannedErrors]) -> CandidateErrors:
        """Noise grows in proportion to the records."""
        largest = planned(self.rule.largest_size)
        variances = largest.variance * (self.rule.bin_ends / self.rule.largest_size) ** 2
        return CandidateErrors(variances, mean_record_loss(largest.job.workload.queries))

    def bound_facts(self, job: Job, noisy_counts: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        bound = job.guarantee.person.most_records
        excess_facts = {
            "persons_beyond": noisy_counts.person_share_above(bound).facts(),
            "records_left_out": noisy_counts.record_share_above(bound).facts(),
        }
        return {
            "chosen_bound": {
                "most_records": bound,
                "up_to": self.rule.largest_size,
                **self._price_facts(noisy_counts, noisy),
                **excess_facts,
            }
        }


class GroupsChoice(BoundChoice):
    """The choice of ``most_groups``, from persons by their number of groups."""

    counted_words = "persons with about equally many groups"

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        return {"groups of": self.job.guarantee.person.model_dump(include={"column", "type", "missing"})}

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return records_of_persons(records, self.rule.largest_size, groups=True)

    def errors(self, planned: Callable[[int], PlannedErrors]) -> CandidateErrors:
        """Those of plans with doubling bounds, and powers between them: how noise grows is a matter of the strategy.

        A group that does not count is taken to lose as many records as may count in it.
        """
        bounds = sorted({*(2**doubled for doubled in range(self.rule.largest_size.bit_length())), self.rule.largest_size})
        errors_by_bound = [planned(bound) for bound in bounds]
        grown = np.interp(
            np.log(self.rule.bin_ends), np.log(bounds), np.log([bound_errors.variance for bound_errors in errors_by_bound])
        )
        lost = mean_record_loss(errors_by_bound[0].job.workload.queries) * self.job.guarantee.person.most_records**2
        return CandidateErrors(np.exp(grown), lost)

    def bound_facts(self, job: Job, noisy_counts: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        bound = job.guarantee.person.most_groups
        assert bound is not None
        excess_facts = {
            "persons_in_more_groups": noisy_counts.person_share_above(bound).facts(),
            "groups_left_out": noisy_counts.record_share_above(bound).facts(),
        }
        return {
            "chosen_groups": {
                "most_groups": bound,
                "up_to": self.rule.largest_size,
                **self._price_facts(noisy_counts, noisy),
                **excess_facts,
            }
        }


class RangeChoice(BoundChoice):
    """The choice of the range of a column, from the records that count by their amount in steps."""

    step_spec: RangeBound
    detection_threshold: ClassVar[float] = AMOUNT_DETECTION_NATS
    counted_words = "records with about equal amounts"

    @classmethod
    def for_budget(cls, job: Job, step_spec: PrivateBound, step_budget: Loss) -> Self:
        assert isinstance(step_spec, RangeBound)
        person, neighbours = job.guarantee.person, job.guarantee.neighbours
        records_per_person = person.records * (person.participations or 1)
        return cls(
            job,
            step_spec,
            counts_by_size(
                step_spec.largest,
                step_budget,
                neighbours,
                most_per_person=records_per_person,
                width_divisor=WHOLES,
                below=step_spec.below,
            ),
        )

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        sum_column = self.job.measured.sums[self.step_spec.subject]
        return {"person": self.job.guarantee.person, "of": self.step_spec.subject, "amounts": sum_column.digest_form}

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return counts_of_amounts(records, self.step_spec.subject, self.rule.below + self.rule.largest_size)

    def errors(self, planned: Callable[[Any], PlannedErrors]) -> CandidateErrors:
        """Those of the sums of the column. What noise adds to a sum grows with its range; counts do not depend on it.

        A sum has the noise of the end that is farther from zero, and of the shape of the range beside it: plans with a lower end at zero,
        half as far and as far away tell it, and numbers between them. The error of a mean is that of the deviations from the middle of
        the range.
        """
        highest = self._signed_counts(None).highest
        if not self.rule.below:
            summed, record_loss = self._sum_errors(planned((0, self.rule.largest_size)))
            return CandidateErrors(summed * (highest[None, :] / self.rule.largest_size) ** 2, record_loss)
        errors_by_shape = [self._sum_errors(planned((low, SHAPE))) for low in SHAPES]
        low, high = np.meshgrid(self._signed_counts(None).lowest, highest, indexing="ij")
        record_loss = errors_by_shape[0][1]
        if not any(
            entry.statistic.key() == "sum" and self.step_spec.subject in entry.statistic.columns for entry in self.entries
        ):
            return CandidateErrors(errors_by_shape[-1][0] * ((low + high) / (2 * SHAPE)) ** 2, record_loss)
        farther = np.maximum(low, high)
        shape = np.interp(
            np.minimum(low, high) / farther, np.array(SHAPES) / SHAPE, [summed for summed, _ in errors_by_shape]
        )
        return CandidateErrors(shape * (farther / SHAPE) ** 2, record_loss)

    @property
    def entries(self) -> tuple[QuerySpec, ...]:
        """What the release asks for."""
        return self.job.measured.entries

    def _sum_errors(self, planned: PlannedErrors) -> tuple[float, float]:
        """The predicted squared error of all (weighted) sums of the column, and what they lose for a step that is cut off, squared."""
        job, title = planned.job, f"sum of {self.step_spec.subject}"
        queries, column = job.workload.queries, job.measured.domain.attribute(self.step_spec.subject)
        assert column.amounts is not None
        is_column_sum = [
            block.name == title or block.name.startswith((f"{title} by ", f"{title},")) for block in queries.blocks
        ]
        weighed = (queries.weights * planned.query_errors())[
            np.repeat(is_column_sum, [block.queries for block in queries.blocks])
        ]
        sums = Workload(
            queries.domain, tuple(block for block, summed in zip(queries.blocks, is_column_sum, strict=True) if summed)
        )
        mean = float(column.amounts.values(AMOUNT).sum()) / column.size
        return float(weighed @ weighed), mean_record_loss(sums) / mean**2 if mean else 0.0

    def _signed_counts(self, noisy_counts: NoisyCounts | None) -> SignedCounts:
        """The noisy numbers, or their bins alone."""
        return SignedCounts(noisy_counts or self.estimate_counts([0] * self.rule.bin_starts.size), self.rule.above)

    def best_bound(self, noisy_counts: NoisyCounts, errors: CandidateErrors) -> tuple[int, int]:
        return self._signed_counts(noisy_counts).choose_bound(errors.variances, errors.record_loss)

    def bound_facts(self, job: Job, noisy_counts: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        sum_column, widest_column = job.measured.sums[self.step_spec.subject], self.job.measured.sums[self.step_spec.subject]
        amounts, cut = self._signed_counts(noisy_counts).outside(*sum_column.around_zero)
        excess_facts = {"amounts_beyond": amounts.facts(), "sum_left_out": cut.facts()}
        ends = {
            "from": float(sum_column.first),
            "down_to": float(widest_column.first),
            "to": float(sum_column.last),
            "up_to": float(widest_column.last),
        }
        return {
            "chosen_ranges": [
                {"of": self.step_spec.subject, **ends, **self._price_facts(noisy_counts, noisy), **excess_facts}
            ]
        }


def mean_record_loss(workload: Workload) -> float:
    """What all answers lose, squared and added, for one record in the mean over all cells, squared."""
    total = 0.0
    for block in workload.blocks:
        factors = block.scaled(block.factors)
        means = (factor.matvec(np.ones(factor.shape[1])) / factor.shape[1] for factor in factors)
        total += block.weight**2 * math.prod(float(factor_means @ factor_means) for factor_means in means)
    return total


class TruncationLossMeasurement(NoisyStep):
    """Persons and records beyond the bounds, and amounts outside their range."""

    step_spec: TruncationLossStep
    rule: NoisyBoundLoss
    purpose = "left out"

    @classmethod
    def for_budget(cls, job: Job, step_spec: TruncationLossStep, step_budget: Loss) -> Self:
        person, columns = job.guarantee.person, tuple(job.measured.sums)
        largest_excess, records = (
            (step_spec.largest_excess if person.column else None),
            person.records * (person.participations or 1),
        )
        return cls(
            job, step_spec, calibrate_bound_loss(largest_excess, records, columns, step_budget, job.guarantee.neighbours)
        )

    @property
    def noise(self) -> Noise:
        return self.rule.noise

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

    def values_to_store(self, counted: CountedSizes, key: bytes, errors: CandidateErrors | None) -> Any:
        return {"values": self.rule.noisy(counted.counts, self.samples(key)).tolist()}

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        if published_numbers is None:
            return {}
        rule, values = self.rule, published_numbers["values"]
        rule_facts = {"most": rule.most_lost_records, "records": rule.records, "scale": rule.noise.scale, "values": values}
        loss_facts = truncation_loss_facts(rule, np.array(values, dtype=np.float64), job.measured.domain)
        return {
            "left_out": {"share": float(self.step_spec.budget_share), "rho": str(self.loss.zcdp), **rule_facts, **loss_facts}
        }


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
