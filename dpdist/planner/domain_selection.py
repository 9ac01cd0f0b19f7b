"""Names, edges of bins and quantiles, found by a part of a budget: ``categories: private``, ``edges: private`` and ``quantiles``."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.category_counts import Names, check_names, names_of
from dpdist.counting.person_histograms import CountedSizes, CountedValues, RecordsInParts, steps_of_records, values_by_group
from dpdist.domain import Attribute
from dpdist.errors import InvalidInput
from dpdist.planner.budgeted_step import NoisyPreliminary, PredictedErrors, Preliminary
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.privacy.partition_selection import UNIT_BITS, Selection, selection
from dpdist.privacy.private_quantiles import EdgesRule, QuantileRules, edges_rule, quantiles
from dpdist.spec.job import Job
from dpdist.spec.preprocessing_budget import AskedQuantiles, FoundEdges, PrivateNames
from dpdist.spec.sections.amount_columns import SumSpec


class PrivateChoice(Preliminary):
    """What is found before the plan by private choices alone."""

    @property
    def drawn(self) -> Mapping[str, Any]:
        return {"choices": "exponential mechanism"}

    @property
    def bound_to(self) -> Mapping[str, Any]:
        rule = [[*each.values()] for each in self.choices()]
        return {"person": self.job.guarantee.person, "rule": rule, **self.counted_records, **self.of}

    @property
    @abstractmethod
    def of(self) -> Mapping[str, Any]:
        """Of what it is."""

    @abstractmethod
    def choices(self) -> Iterator[dict[str, Any]]:
        """How each of them is made, for certificates."""


class EdgesChoice(PrivateChoice):
    """The choice of the edges of one attribute."""

    asked: FoundEdges
    rule: EdgesRule
    purpose = "edges"

    @classmethod
    def planned(cls, job: Job, asked: FoundEdges, part: Loss) -> Self:
        given = asked.selection
        return cls(job, asked, edges_rule(given.size, given.bins, _of_first_records(job), part))

    @property
    def of(self) -> Mapping[str, Any]:
        return {"of": self.asked.of}

    def choices(self) -> Iterator[dict[str, Any]]:
        for each in self.rule.splits:
            yield {"edge": each.number + 1, "level": each.level + 1, "at": str(each.at), "rate": str(each.rate)}

    def counted(self, records: RecordsInParts) -> CountedSizes:
        asked = self.asked.selection
        return steps_of_records(records, self.asked.of, asked.steps_of, asked.size)

    def kept(self, counted: CountedSizes, key: bytes, errors: PredictedErrors | None) -> Any:
        return {"steps": self.rule.chosen(counted.counts, key)}

    def with_found(self, found: Any) -> Job:
        return self.job.with_found(inner_edges(found["steps"], self.asked.selection.size), found)

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        given = self.asked.selection
        edges = None if found is None else [*map(float, job.measured.domain.attribute(self.asked.of).edges)]
        said = {
            "of": self.asked.of,
            "edges": edges,
            "bins": given.bins,
            "values": given.size,
            "step": float(given.step),
            "share": float(given.share),
            "rho": str(self.loss.zcdp),
            "moved": _of_first_records(self.job),
            "edge_choices": list(self.choices()),
        }
        return {"chosen_edges": [said]}


def inner_edges(found: list[int], size: int) -> tuple[int, ...]:
    """Different edges in rising order: each is the step after a quantile, which lies in the bin below, and none is the last edge."""
    return tuple(sorted({step + 1 for step in found if step + 1 < size}))


def _of_first_records(job: Job) -> int:
    """How many records one change adds or removes: where persons are known, of each the first ones count, whatever their groups."""
    person = job.guarantee.person
    own = person.records * (person.participations or 1) if person.column is None else person.most_records
    return own * (2 if job.guarantee.neighbours == "replace-one" else 1)


class QuantileChoice(PrivateChoice):
    """The choice of quantiles."""

    asked: AskedQuantiles
    rule: QuantileRules
    purpose = "quantiles"

    @classmethod
    def planned(cls, job: Job, asked: AskedQuantiles, part: Loss) -> Self:
        sizes = tuple(each.steps + 1 for each in asked.asked.of.values())
        return cls(job, asked, quantiles(sizes, asked.asked.at, moved_by(job), part))

    @property
    def of(self) -> Mapping[str, Any]:
        asked = self.asked.asked
        return {"of": [(name, given.measured) for name, given in asked.of.items()], "by": asked.by}

    @property
    def groups(self) -> tuple[Attribute, ...]:
        """The attributes by which records are grouped."""
        return tuple(self.job.measured.domain.attribute(name) for name in self.asked.asked.by)

    @property
    def complete(self) -> tuple[Attribute, ...]:
        return tuple(each.uncounted(name) for name, each in self.asked.asked.of.items())

    def choices(self) -> Iterator[dict[str, Any]]:
        for name, some in zip(self.asked.asked.of, self.rule.of, strict=True):
            for each in some:
                rates = {"rate": str(each.rate), "end_rate": str(each.end_rate), "beyond": each.beyond}
                yield {"of": name, "at": str(each.at), "values": each.size, **rates}

    def counted(self, records: RecordsInParts) -> CountedValues:
        return values_by_group(records, self.asked.asked.by, self.complete)

    def kept(self, counted: CountedValues, key: bytes, errors: PredictedErrors | None) -> Any:
        number, found = 0, []
        for values, some in zip(counted.values, self.rule.of, strict=True):
            for group in range(math.prod(each.shown for each in self.groups)):
                own = values[1:, values[0] == group]
                of_group = np.array([each.chosen(own[0], own[1], key, number + place) for place, each in enumerate(some)])
                found.append(in_order(of_group).tolist())
                number += len(some)
        return {"quantiles": found}

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        if found is None:
            return {}
        said = {
            "share": float(self.asked.asked.share),
            "rho": str(self.loss.zcdp),
            "columns": {
                name: _called(each.facts(), job.measured.sums.get(name)) for name, each in self.asked.asked.of.items()
            },
            "by": list(self.asked.asked.by),
            "moved": moved_by(self.job),
            "choices": list(self.choices()),
            "rows": list(self.rows(found["quantiles"])),
        }
        return {"quantiles": said}

    def rows(self, found: list[list[list[int]]]) -> Iterator[dict[str, Any]]:
        """The published quantiles: of which column and group, with their intervals."""
        chosen, names = iter(found), [each.labels[: each.shown] for each in self.groups]
        for of, given in self.asked.asked.of.items():
            for place in np.ndindex(*map(len, names)):
                group = {each.name: own[code] for each, own, code in zip(self.groups, names, place, strict=True)}
                for at, steps in zip(self.asked.asked.at, next(chosen), strict=True):
                    value, low, high = (float(given.first + given.step * step) for step in steps)
                    yield {"of": of, "at": float(at), "group": group, "value": value, "low_95": low, "high_95": high}


def _called(facts: dict[str, Any], added_up: SumSpec | None) -> dict[str, Any]:
    """What a certificate says of a column, by the title and unit of its sums where quantiles say none."""
    other = {} if added_up is None else added_up.facts()
    return {**facts, **{name: facts[name] or other.get(name) for name in ("title", "unit")}}


def in_order(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Quantiles of one group, made to rise with their shares, and within their intervals.

    Args:
        found: a row for each share: the quantile and both ends.
    """
    value = np.sort(found[:, 0])
    return np.stack([value, np.minimum(found[:, 1], value), np.maximum(found[:, 2], value)], axis=1)


def moved_by(job: Job) -> int:
    """How many records of all groups one change adds or removes."""
    person = job.guarantee.person
    return person.records * (person.participations or 1) * (2 if job.guarantee.neighbours == "replace-one" else 1)


class NameSelection(NoisyPreliminary):
    """The selection of the names of one attribute."""

    asked: PrivateNames
    rule: Selection
    purpose = "selection"

    @classmethod
    def planned(cls, job: Job, asked: PrivateNames, part: Loss) -> Self:
        moved, person, given = job.guarantee.protection.distance, job.guarantee.person, asked.selection
        if person.column is not None:  # of each person the first most_records name a name
            moved = replace(moved, groups=1, participations=None)
        moved = replace(moved, records=moved.records * (moved.participations or 1), participations=None, separation=1)
        return cls(job, asked, selection(part.rho, given.delta, moved, given.most))

    @property
    def noise(self) -> Noise:
        return Noise(GAUSSIAN, self.rule.scale)

    @property
    def left_out(self) -> frozenset[str]:
        """Texts that stand for other or missing values."""
        given = self.job.measured.attributes[self.asked.of]
        return frozenset(label for label in (given.other, given.missing) if label is not None)

    @property
    def bound_to(self) -> Mapping[str, Any]:
        """What is selected, from which column of whose records, and with how much noise."""
        guarantee = self.job.guarantee
        return {
            "attribute": self.asked.of,
            "column": guarantee.columns.get(self.asked.of, self.asked.of),
            "person": guarantee.person,
            "left out": sorted(self.left_out),
            "rule": self.rule.facts,
        }

    def check_later(self, records: RecordsInParts) -> None:
        check_names(records, self.asked.of, self.left_out, self.asked.selection.candidates)

    def counted(self, records: RecordsInParts) -> Names:
        candidates = self.asked.selection.candidates  # as declared: it decides about memory alone
        return names_of(records, self.asked.of, self.left_out, candidates)

    def kept(self, counted: Names, key: bytes, errors: PredictedErrors | None) -> Any:
        return [counted.names[number] for number in self.rule.chosen(counted.counts, self.samples(key)).tolist()]

    def with_found(self, found: Any) -> Job:
        if not found:
            raise InvalidInput(
                f"no name of {self.asked.of!r} is frequent enough (one of {self.rule.count_with(0.5):,} records is, half of the time): "
                "the selection stays charged and nothing else is; under a new release id give it a larger 'share', or list the categories"
            )
        return self.job.with_found(found, {"names": len(found)})

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        rule = self.rule
        said = {
            "attribute": self.asked.of,
            "names": None if found is None else found["names"],
            "most": rule.most,
            "share": float(self.asked.selection.share),
            "rho": str(rule.loss.rho),
            "delta": float(rule.loss.failure),
            "threshold": rule.threshold / 2**UNIT_BITS,
            "deviation": rule.scale / 2**UNIT_BITS,
            "selected_half_of_the_time": rule.count_with(0.5),
            "selected_almost_always": rule.count_with(0.975),
        }
        return {"selections": [said]}
