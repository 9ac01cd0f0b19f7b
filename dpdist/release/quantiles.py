"""Quantiles of columns by group, chosen by a part of a release's budget: ``quantiles``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.domain import Attribute
from dpdist.machine.store import Store, StoredArray
from dpdist.privacy.accounting import Loss
from dpdist.privacy.quantiles import QuantileRules, quantiles
from dpdist.records.beyond import CountedValues, values_by_group
from dpdist.records.sources import Source
from dpdist.release.preliminary import PredictedErrors, PrivateChoice
from dpdist.spec.found_first import AskedQuantiles
from dpdist.spec.job import Job
from dpdist.spec.sums import QuantilesSpec


@dataclass(frozen=True)
class QuantileChoice(PrivateChoice):
    """The choice of quantiles."""

    job: Job
    asked: QuantilesSpec
    rule: QuantileRules

    purpose: ClassVar[str] = "quantiles"

    @property
    def loss(self) -> Loss:
        return self.rule.loss

    @property
    def bound_to(self) -> Mapping[str, Any]:
        of = [(name, given.measured) for name, given in self.asked.of.items()]
        return {"of": of, "by": self.asked.by}

    @property
    def groups(self) -> tuple[Attribute, ...]:
        """The attributes by which records are grouped."""
        return tuple(self.job.measured.domain.attribute(name) for name in self.asked.by)

    def choices(self) -> Iterator[dict[str, Any]]:
        for name, some in zip(self.asked.of, self.rule.of, strict=True):
            for each in some:
                rates = {"rate": str(each.rate), "end_rate": str(each.end_rate), "beyond": each.beyond}
                yield {"of": name, "at": str(each.at), "values": each.size, **rates}

    def counted(self, source: Source) -> CountedValues:
        of = tuple(each.uncounted(name) for name, each in self.asked.of.items())
        return values_by_group(source, self.job.measured.domain, self.asked.by, of)

    def kept(self, counted: CountedValues, key: bytes, errors: PredictedErrors | None) -> NDArray[np.uint8]:
        number, found = 0, []
        for values, some in zip(counted.values, self.rule.of, strict=True):
            for group in range(math.prod(each.shown for each in self.groups)):
                own = values[1:, values[0] == group]
                of_group = np.array([each.chosen(own[0], own[1], key, number + place) for place, each in enumerate(some)])
                found.append(in_order(of_group).tolist())
                number += len(some)
        return np.frombuffer(json.dumps({"quantiles": found}).encode(), dtype=np.uint8)

    def with_kept(self, store: Store, stored: StoredArray) -> Job:
        found: Mapping[str, Any] = json.loads(np.asarray(store.read(stored)).tobytes().decode())
        return self.job.with_found(True, found)

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        del job
        if found is None:
            return {}
        said = {
            "share": float(self.asked.share),
            "rho": str(self.loss.zcdp),
            "columns": {name: each.facts() for name, each in self.asked.of.items()},
            "by": list(self.asked.by),
            "moved": moved_by(self.job),
            "choices": list(self.choices()),
            "rows": list(self.rows(found["quantiles"])),
        }
        return {"quantiles": said}

    def rows(self, found: list[list[list[int]]]) -> Iterator[dict[str, Any]]:
        """The published quantiles: of which column and group, with their intervals."""
        chosen, names = iter(found), [each.labels[: each.shown] for each in self.groups]
        for of, given in self.asked.of.items():
            for place in np.ndindex(*map(len, names)):
                group = {each.name: own[code] for each, own, code in zip(self.groups, names, place, strict=True)}
                for at, steps in zip(self.asked.at, next(chosen), strict=True):
                    value, low, high = (float(given.first + given.step * step) for step in steps)
                    yield {"of": of, "at": float(at), "group": group, "value": value, "low_95": low, "high_95": high}


def in_order(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Quantiles of one group, made to rise with their shares, and within their intervals.

    Args:
        found: a row for each share: the quantile and both ends.
    """
    value = np.sort(found[:, 0])
    return np.stack([value, np.minimum(found[:, 1], value), np.maximum(found[:, 2], value)], axis=1)


def quantiles_of(job: Job) -> QuantileChoice | None:
    """The choice of quantiles that a release asks for."""
    given, guarantee = job.guarantee.names, job.guarantee
    if not isinstance(given, AskedQuantiles):
        return None
    part, _ = given.parts(guarantee.budget)
    sizes = tuple(each.steps + 1 for each in given.asked.of.values())
    return QuantileChoice(job, given.asked, quantiles(sizes, given.asked.at, moved_by(job), part))


def moved_by(job: Job) -> int:
    """How many records of all groups one change adds or removes."""
    person = job.guarantee.person
    return person.records * (person.participations or 1) * (2 if job.guarantee.neighbours == "replace-one" else 1)
