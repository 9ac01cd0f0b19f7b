"""Names and edges of bins, found by a part of a budget: ``categories: private`` and ``edges: private``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.name_counts import PAIR, NameCounts, check_names, count_names
from dpdist.counting.person_histograms import (
    CountedSizes,
    PartitionedRecords,
    steps_of_records,
)
from dpdist.counting.sparse_counts import task_bytes
from dpdist.engine import Engine
from dpdist.errors import InvalidInput
from dpdist.privacy.ledger.charges import EDGES, SELECTIONS
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.privacy.selection.partition_selection import Selection, selection
from dpdist.privacy.selection.private_edges import EdgesRule, edges_rule
from dpdist.spec.attributes import AttributeSpec, SelectionSpec
from dpdist.spec.attributes.private_values import EdgesSelectionSpec, PrivateCategories, PrivateEdges
from dpdist.spec.budgeted_step import BudgetedStep, CandidateErrors, NoisyStep, StepDeclaration, StepOrder
from dpdist.spec.job import Job
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.stability import Distance


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
            yield StepDeclaration(attribute_spec.values.selection, partial(_changed_domain, spec.domain, name), name)


class EdgesChoice(PrivateChoice):
    """The choice of the edges of one attribute."""

    step_spec: EdgesSelectionSpec

    purpose, smallest_outcome, order = "edges", (), StepOrder.VALUES
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


def _changed_domain(domain: Mapping[str, AttributeSpec], attribute: str, values: Any) -> Mapping[str, Any]:
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


class NameSelection(NoisyStep):
    """The selection of the names of one attribute."""

    job: Job
    step_spec: SelectionSpec

    purpose, of_bounds, order = "selection", False, StepOrder.VALUES
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
        return task_bytes(engine, PAIR)

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
