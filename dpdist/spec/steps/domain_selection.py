"""Names, edges of bins and quantiles, found by a part of a budget: ``categories: private``, ``edges: private`` and ``quantiles``."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.name_counts import NameCounts, check_names, count_names, task_bytes
from dpdist.counting.person_histograms import (
    CountedSizes,
    CountedValues,
    PartitionedRecords,
    steps_of_records,
    values_by_group,
)
from dpdist.domain import Attribute
from dpdist.engine import Engine
from dpdist.errors import InvalidInput
from dpdist.privacy.adaptive_weights import UNIT_BITS
from dpdist.privacy.ledger.charges import EDGES, QUANTILES, SELECTIONS
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.partition_selection import Selection, selection
from dpdist.privacy.private_quantiles import EdgesRule, QuantileRules, edges_rule, quantiles
from dpdist.spec.attributes import AttributeSpec, SelectionSpec
from dpdist.spec.attributes.private_values import EdgesSelectionSpec, PrivateCategories, PrivateEdges
from dpdist.spec.budgeted_step import BudgetedStep, CandidateErrors, NoisyStep, StepDeclaration
from dpdist.spec.job import Job
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.amount_columns import QuantilesSpec, SumSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.stability import Distance

MOST_QUANTILES = 10_000
"""Of all columns and groups of a release: they stand in its certificate."""


class PrivateChoice(BudgetedStep):
    """What is found before the plan by private choices alone."""

    job: Job

    @property
    def draw_facts(self) -> Mapping[str, Any]:
        return {"choices": "exponential mechanism"}

    @property
    def binding_facts(self) -> Mapping[str, Any]:
        rule = [[*choice.values()] for choice in self.choices()]
        return {"person": self.job.guarantee.person, "rule": rule, **self.record_facts, **self.subject_facts}

    @property
    @abstractmethod
    def subject_facts(self) -> Mapping[str, Any]:
        """Of what it is."""

    @abstractmethod
    def choices(self) -> Iterator[dict[str, Any]]:
        """How each of them is made, for certificates."""


def _selections_of_attributes(spec: ReleaseSpec, kind: type[PrivateEdges | PrivateCategories]) -> Iterator[StepDeclaration]:
    """A selection for each attribute whose values are found in the records in one way."""
    for name, attribute_spec in spec.domain.items():
        if isinstance(attribute_spec.values, kind):
            yield StepDeclaration(attribute_spec.values.selection, partial(changed_domain, spec.domain, name), name)


class EdgesChoice(PrivateChoice):
    """The choice of the edges of one attribute."""

    step_spec: EdgesSelectionSpec

    purpose, smallest_outcome = "edges", ()
    spec_text, spec_path, ends = "'edges: private'", ("domain",), EDGES

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        return _selections_of_attributes(spec, PrivateEdges)

    @cached_property
    def rule(self) -> EdgesRule:
        moved = _moved_first_records(self.job)
        return edges_rule(self.step_spec.size, self.step_spec.bins, moved, self.step_budget)

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        return {"of": self.subject}

    def choices(self) -> Iterator[dict[str, Any]]:
        for edge_split in self.rule.splits:
            yield {
                "edge": edge_split.number + 1,
                "level": edge_split.level + 1,
                "at": str(edge_split.record_share),
                "rate": str(edge_split.rate),
            }

    def count_records(self, records: PartitionedRecords) -> CountedSizes:
        return steps_of_records(records, self.subject, self.step_spec.steps_of, self.step_spec.size)

    def values_to_store(self, counted: CountedSizes, key: bytes, errors: CandidateErrors | None) -> Any:
        return {"steps": self.rule.choose_edges(counted.counts, key)}

    def job_with_values(self, values: Any) -> Job:
        return self.job.with_step_result(inner_edges(values["steps"], self.step_spec.size), values)

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        edges_spec = self.step_spec
        edges = None if published_numbers is None else [*map(float, job.measured.domain.attribute(self.subject).edges)]
        edge_facts = {
            "of": self.subject,
            "edges": edges,
            "bins": edges_spec.bins,
            "values": edges_spec.size,
            "step": float(edges_spec.step),
            "share": float(edges_spec.share),
            "rho": str(self.loss.zcdp),
            "moved": _moved_first_records(self.job),
            "edge_choices": list(self.choices()),
        }
        return {"chosen_edges": [edge_facts]}

    def plan_sentences(self) -> list[str]:
        return [
            f"edges of {self.subject!r}: 95 times of 100 each divides the records between the edges around it within "
            f"{self.rule.largest_rank_error:,} records of where it should"
        ]


def changed_domain(domain: Mapping[str, AttributeSpec], attribute: str, values: Any) -> Mapping[str, Any]:
    """The attributes of a spec, one of them with what was found, or with placeholders for it (None)."""
    return {"domain": {**domain, attribute: domain[attribute].with_selected_values(values)}}


def inner_edges(quantile_steps: list[int], size: int) -> tuple[int, ...]:
    """Different edges in rising order: each is the step after a quantile, which lies in the bin below, and none is the last edge."""
    return tuple(sorted({step + 1 for step in quantile_steps if step + 1 < size}))


def _moved_first_records(job: Job) -> int:
    """How many records one change adds or removes: where persons are known, of each the first ones count, whatever their groups."""
    person = job.guarantee.person
    records_per_person = person.records * (person.participations or 1) if person.column is None else person.most_records
    return records_per_person * (2 if job.guarantee.neighbours == "replace-one" else 1)


class QuantileChoice(PrivateChoice):
    """The choice of quantiles."""

    step_spec: QuantilesSpec

    purpose, is_independent = "quantiles", True
    spec_text, spec_path, ends = "'quantiles'", ("quantiles",), (QUANTILES,)

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        if spec.quantiles is not None:
            yield StepDeclaration(spec.quantiles, lambda _: {"quantiles": None})

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for groups that are not declared, and for too many of them."""
        super().check_measured(records, measured)
        groups = math.prod(measured.domain.grouped.attribute(name).shown for name in self.step_spec.by)
        if groups * len(self.step_spec.at) * len(self.step_spec.of) > MOST_QUANTILES:
            raise InvalidInput(
                f"a release chooses at most {MOST_QUANTILES:,} quantiles of all columns and groups: ask for fewer"
            )

    @cached_property
    def rule(self) -> QuantileRules:
        sizes = tuple(column.steps + 1 for column in self.step_spec.of.values())
        return quantiles(sizes, self.step_spec.at, moved_records(self.job), self.step_budget)

    @property
    def subject_facts(self) -> Mapping[str, Any]:
        quantiles_spec = self.step_spec
        return {"of": [(name, column.digest_form) for name, column in quantiles_spec.of.items()], "by": quantiles_spec.by}

    @property
    def groups(self) -> tuple[Attribute, ...]:
        """The attributes by which records are grouped."""
        return tuple(self.job.measured.domain.attribute(name) for name in self.step_spec.by)

    @property
    def complete(self) -> tuple[Attribute, ...]:
        return tuple(each.uncounted(name) for name, each in self.step_spec.of.items())

    def plan_sentences(self) -> list[str]:
        """From how many records on a group's quantiles may have intervals that are less than the whole range, by column."""
        sentences = []
        for name, rules in zip(self.step_spec.of, self.rule.by_column, strict=True):
            fewest = ", ".join(f"{rule.fewest_records:,} records for {float(rule.record_share):g}" for rule in rules)
            sentences.append(
                f"quantiles of {name!r} need groups of about {fewest}; of smaller ones the noise does not tell where they lie"
            )
        return sentences

    def choices(self) -> Iterator[dict[str, Any]]:
        for name, column_rules in zip(self.step_spec.of, self.rule.by_column, strict=True):
            for quantile_rule in column_rules:
                rates = {
                    "rate": str(quantile_rule.rate),
                    "end_rate": str(quantile_rule.end_rate),
                    "beyond": quantile_rule.end_margin,
                }
                yield {"of": name, "at": str(quantile_rule.record_share), "values": quantile_rule.size, **rates}

    def count_records(self, records: PartitionedRecords) -> CountedValues:
        return values_by_group(records, self.step_spec.by, self.complete)

    def values_to_store(self, counted: CountedValues, key: bytes, errors: CandidateErrors | None) -> Any:
        number, group_quantiles = 0, []
        for values, column_rules in zip(counted.values, self.rule.by_column, strict=True):
            for group in range(math.prod(member.shown for member in self.groups)):
                group_values = values[1:, values[0] == group]
                group_results = np.array(
                    [
                        member.choose_quantile(group_values[0], group_values[1], key, number + rule_index)
                        for rule_index, member in enumerate(column_rules)
                    ]
                )
                group_quantiles.append(sort_quantiles(group_results).tolist())
                number += len(column_rules)
        return {"quantiles": group_quantiles}

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        if published_numbers is None:
            return {}
        quantile_facts = {
            "share": float(self.step_spec.share),
            "rho": str(self.loss.zcdp),
            "columns": {
                name: _with_sum_titles(column.facts(), job.measured.sums.get(name))
                for name, column in self.step_spec.of.items()
            },
            "by": list(self.step_spec.by),
            "moved": moved_records(self.job),
            "choices": list(self.choices()),
            "rows": list(self.rows(published_numbers["quantiles"])),
        }
        return {"quantiles": quantile_facts}

    def rows(self, quantile_steps: list[list[list[int]]]) -> Iterator[dict[str, Any]]:
        """The published quantiles: of which column and group, with their intervals."""
        remaining_groups, names = iter(quantile_steps), [attribute.labels[: attribute.shown] for attribute in self.groups]
        for column_name, column in self.step_spec.of.items():
            for codes in np.ndindex(*map(len, names)):
                group = {
                    attribute.name: labels[code] for attribute, labels, code in zip(self.groups, names, codes, strict=True)
                }
                for probability, steps in zip(self.step_spec.at, next(remaining_groups), strict=True):
                    value, low, high = (float(column.first + column.step * step) for step in steps)
                    yield {
                        "of": column_name,
                        "at": float(probability),
                        "group": group,
                        "value": value,
                        "low_95": low,
                        "high_95": high,
                    }


def _with_sum_titles(facts: dict[str, Any], added_up: SumSpec | None) -> dict[str, Any]:
    """What a certificate says of a column, by the title and unit of its sums where quantiles say none."""
    sum_facts = {} if added_up is None else added_up.facts()
    return {**facts, **{name: facts[name] or sum_facts.get(name) for name in ("title", "unit")}}


def sort_quantiles(quantile_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Quantiles of one group, made to rise with their shares, and within their intervals.

    Args:
        quantile_rows: a row for each share: the quantile and both ends.
    """
    value = np.sort(quantile_rows[:, 0])
    return np.stack([value, np.minimum(quantile_rows[:, 1], value), np.maximum(quantile_rows[:, 2], value)], axis=1)


def moved_records(job: Job) -> int:
    """How many records of all groups one change adds or removes."""
    person = job.guarantee.person
    return person.records * (person.participations or 1) * (2 if job.guarantee.neighbours == "replace-one" else 1)


class NameSelection(NoisyStep):
    """The selection of the names of one attribute."""

    job: Job
    step_spec: SelectionSpec

    purpose, of_bounds = "selection", False
    spec_text, spec_path, ends = "'categories: private'", ("domain",), SELECTIONS

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        return _selections_of_attributes(spec, PrivateCategories)

    @cached_property
    def rule(self) -> Selection:
        guarantee, names_spec, budget = self.job.guarantee, self.step_spec, self.step_budget
        moved = guarantee.protection.distance
        moved = Distance(moved.records * (moved.participations or 1), moved.replaced)
        names_per_person = None if guarantee.person.column is None else names_spec.names_per_person
        kind = LAPLACE if budget.pure else GAUSSIAN
        return selection(kind, budget, names_spec.delta, moved, names_spec.most, names_per_person)

    @property
    def noise(self) -> Noise:
        return self.rule.noise

    @property
    def excluded_labels(self) -> frozenset[str]:
        """Texts that stand for other or missing values."""
        attribute = self.job.measured.attributes[self.subject]
        return frozenset(label for label in (attribute.other, attribute.missing) if label is not None)

    @property
    def binding_facts(self) -> Mapping[str, Any]:
        """What is selected, from which column of whose records, and with how much noise."""
        guarantee = self.job.guarantee
        return {
            "attribute": self.subject,
            "column": guarantee.columns.get(self.subject, self.subject),
            "person": guarantee.person,
            "left out": sorted(self.excluded_labels),
            "rule": self.rule.facts,
        }

    def check_later(self, records: PartitionedRecords) -> None:
        check_names(records, self.subject, self.excluded_labels)

    def count_records(self, records: PartitionedRecords) -> NameCounts:
        rule = self.rule
        saturation = 0 if rule.weights is None else rule.saturation
        return count_names(records, self.subject, self.excluded_labels, rule.weights, saturation)

    def task_bytes(self, engine: Engine) -> int:
        return task_bytes(engine)

    def values_to_store(self, counted: NameCounts, key: bytes, errors: CandidateErrors | None) -> Any:
        def draw(start: int, count: int) -> NDArray[np.int64]:
            return self.noise.draw(key, start=start, count=count)

        return counted.find_texts(self.rule.select_names(counted.blocks(), draw))

    def delete_scratch(self, counted: NameCounts) -> None:
        counted.delete()

    def job_with_values(self, values: Any) -> Job:
        if not values:
            raise InvalidInput(
                f"no name of {self.subject!r} is frequent enough (one of {self.rule.count_with(0.5):,} "
                f"{'records' if self.rule.names_per_person is None else 'persons with no other name'} is, half of the time): "
                "the selection stays charged and nothing else is; under a new release id give it a larger 'share', or list the categories"
            )
        return self.job.with_step_result(values, {"names": len(values)})

    def facts(self, job: Job, published_numbers: Mapping[str, Any] | None) -> dict[str, Any]:
        rule, most = self.rule, self.rule.names_per_person
        selection_facts = {
            "attribute": self.subject,
            "names": None if published_numbers is None else published_numbers["names"],
            "most": rule.most_names,
            "share": float(self.step_spec.share),
            "rho": str(rule.loss.zcdp),
            "delta": float(rule.loss.failure),
            "threshold": rule.threshold / 2**UNIT_BITS,
            "scale": str(rule.noise.scale),
            "deviation": rule.noise.deviation / 2**UNIT_BITS,
            "selected_half_of_the_time": rule.count_with(0.5),
            "selected_almost_always": rule.count_with(0.975),
            "names_per_person": most,
            "selected_half_of_the_time_beside_others": None if most is None else rule.count_with(0.5, most),
            "selected_almost_always_beside_others": None if most is None else rule.count_with(0.975, most),
        }
        return {"selections": [selection_facts]}
