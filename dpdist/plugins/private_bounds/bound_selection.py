"""Bounds that a part of the budget chooses: on records, groups or amounts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.steps import (
    AMOUNT,
    BOUND,
    LAPLACE,
    RANGES,
    CandidateErrors,
    CountedCells,
    CountedSizes,
    Job,
    NoisyStep,
    PartitionedRecords,
    PlannedErrors,
    QuerySpec,
    RecordsSpec,
    ReleaseSpec,
    StepDeclaration,
    StepOrder,
    SumSpec,
    Workload,
)
from dpdist.plugins.private_bounds.bound_sections import BoundSelectionSpec, RangeSelectionSpec
from dpdist.plugins.private_bounds.counts_by_size import QUARTERS, UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.plugins.private_bounds.noisy_counts import AMOUNT_DETECTION_NATS, NoisyCounts, SignedCounts
from dpdist.plugins.private_bounds.size_counting import counts_of_amounts, records_of_persons

SHAPE = 2**10
"""Steps of a range on the farther side of zero, whose errors are those of all ranges of its shape, but for their size."""
SHAPES = (0, SHAPE // 2, SHAPE)
"""Steps on the other side."""


class BoundChoice(NoisyStep):
    """The choice of a bound, from noisy counts by size."""

    job: Job

    purpose, says_bound_loss, chooses_bound = "bound", True, True
    detection_threshold: ClassVar[float] = NoisyCounts.detection_nats
    counted_words: ClassVar[str]
    """What lies in a bin together."""

    @property
    @abstractmethod
    def rule(self) -> CountsBySize:
        """The noisy counts that the bound is chosen from."""

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

    def plan_sentences(self) -> list[str]:
        """How many of what is counted the choice needs, before it is made."""
        needed = math.ceil(self.estimate_counts([0] * self.rule.bin_starts.size).least_detected)
        return [
            f"{self.key} sees {self.counted_words} from about {needed:,} on; where the file has few more than "
            "that, noise makes the choice: give a number, or raise 'share'"
        ]

    def _price_facts(self, noisy_counts: NoisyCounts, noisy: list[int]) -> dict[str, Any]:
        return {
            "share": float(self.budget_share),
            "rho": str(self.loss.zcdp),
            "deviation": round(noisy_counts.deviation, 6),
            "scale": self.noise.scale,
            "values": noisy,
        }


class PersonBoundChoice(BoundChoice):
    """The choice of a bound on persons, from how many there are with each number of records or groups."""

    step_spec: BoundSelectionSpec

    bounds_groups: ClassVar[bool]
    chooses_records, spec_path, ends = True, ("records", "person", "selection"), (BOUND,)

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        selection_spec = spec.records.person.selection
        if isinstance(selection_spec, BoundSelectionSpec) and bool(spec.records.person.most_groups) == cls.bounds_groups:
            yield StepDeclaration(selection_spec, partial(_changed_person_bound, spec.records))

    @cached_property
    def rule(self) -> CountsBySize:
        largest, neighbours = self.step_spec.most, self.job.guarantee.neighbours
        return counts_by_size(largest, self.step_budget, neighbours, most_per_person=1, width_divisor=QUARTERS)

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return records_of_persons(records, self.rule.largest_size, groups=self.bounds_groups)


def _changed_person_bound(records: RecordsSpec, bound: int | None) -> Mapping[str, Any]:
    return {"records": records.model_copy(update={"person": records.person.with_bound(bound)})}


class RecordsChoice(PersonBoundChoice):
    """The choice of ``most_records``, from persons by their number of records."""

    spec_text, bounds_groups, order = "'most_records: private'", False, StepOrder.RECORDS
    counted_words = "persons with about equally many records"

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for steps, in each of which so many records would count, and for persons, who count once in a group."""
        super().check_measured(records, measured)
        if records.person.participations or measured.persons:
            raise InvalidInput(f"{self.key} goes without 'participations' and 'count: persons': give a number")

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        return {"person": self.job.guarantee.person.model_dump(include={"column", "type", "missing"})}

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


class GroupsChoice(PersonBoundChoice):
    """The choice of ``most_groups``, from persons by their number of groups."""

    spec_text, bounds_groups, order = "'most_groups: private'", True, StepOrder.GROUPS
    counted_words = "persons with about equally many groups"

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        return {"groups of": self.job.guarantee.person.model_dump(include={"column", "type", "missing"})}

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

    step_spec: RangeSelectionSpec

    spec_text, spec_path, ends, order = "'to: private'", ("sums",), RANGES, StepOrder.AMOUNTS
    detection_threshold: ClassVar[float] = AMOUNT_DETECTION_NATS
    counted_words = "records with about equal amounts"

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        for name, column in spec.sums.items():
            if isinstance(column.selection, RangeSelectionSpec):
                yield StepDeclaration(column.selection, partial(_changed_range, spec.sums, name), name)

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for other statistics of the column than sums and means."""
        super().check_measured(records, measured)
        statistic_specs = (entry.statistic for entry in measured.entries)
        statistics = {statistic_spec.key() for statistic_spec in statistic_specs if self.subject in statistic_spec.columns}
        if not statistics or not statistics <= {"sum", "mean"}:
            raise InvalidInput(f"{self.key} is chosen for sums and means of it alone: ask for these, or give a number")

    @cached_property
    def rule(self) -> CountsBySize:
        person, neighbours = self.job.guarantee.person, self.job.guarantee.neighbours
        below, largest = self.job.measured.sums[self.subject].around_zero
        records_per_person = person.records * (person.participations or 1)
        return counts_by_size(
            largest, self.step_budget, neighbours, most_per_person=records_per_person, width_divisor=WHOLES, below=below
        )

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        sum_column = self.job.measured.sums[self.subject]
        return {"person": self.job.guarantee.person, "of": self.subject, "amounts": sum_column.digest_form}

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return counts_of_amounts(records, self.subject, self.rule.below + self.rule.largest_size)

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
        if not any(entry.statistic.key() == "sum" and self.subject in entry.statistic.columns for entry in self.entries):
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
        job, title = planned.job, f"sum of {self.subject}"
        queries, column = job.workload.queries, job.measured.domain.attribute(self.subject)
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
        sum_column, widest_column = job.measured.sums[self.subject], self.job.measured.sums[self.subject]
        amounts, cut = self._signed_counts(noisy_counts).outside(*sum_column.around_zero)
        excess_facts = {"amounts_beyond": amounts.facts(), "sum_left_out": cut.facts()}
        ends = {
            "from": float(sum_column.first),
            "down_to": float(widest_column.first),
            "to": float(sum_column.last),
            "up_to": float(widest_column.last),
        }
        return {"chosen_ranges": [{"of": self.subject, **ends, **self._price_facts(noisy_counts, noisy), **excess_facts}]}


def _changed_range(sums: Mapping[str, SumSpec], column_name: str, bound: tuple[int, int] | None) -> Mapping[str, Any]:
    return {"sums": {**sums, column_name: sums[column_name].around(bound)}}


def mean_record_loss(workload: Workload) -> float:
    """What all answers lose, squared and added, for one record in the mean over all cells, squared."""
    total = 0.0
    for block in workload.blocks:
        factors = block.scaled(block.factors)
        means = (factor.matvec(np.ones(factor.shape[1])) / factor.shape[1] for factor in factors)
        total += block.weight**2 * math.prod(float(factor_means @ factor_means) for factor_means in means)
    return total
