"""The choice of quantiles by a part of a budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.api import InvalidInput
from dpdist.api.steps import (
    QUANTILES,
    Attribute,
    CandidateErrors,
    CountedCells,
    Job,
    PartitionedRecords,
    PrivateChoice,
    RecordsSpec,
    ReleaseSpec,
    StepDeclaration,
    SumSpec,
)
from dpdist.plugins.quantiles.quantile_counting import CountedValues, values_by_group
from dpdist.plugins.quantiles.quantile_rules import QuantileRules, quantiles
from dpdist.plugins.quantiles.quantile_section import QuantilesSpec

MOST_QUANTILES = 10_000
"""Of all columns and groups of a release: they stand in its certificate."""


class QuantileChoice(PrivateChoice):
    """The choice of quantiles."""

    step_spec: QuantilesSpec

    purpose, is_independent = "quantiles", True
    spec_text, spec_path, ends = "'quantiles'", ("quantiles",), (QUANTILES,)

    @classmethod
    def declarations(cls, spec: ReleaseSpec) -> Iterator[StepDeclaration]:
        if isinstance(spec.quantiles, QuantilesSpec):
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
