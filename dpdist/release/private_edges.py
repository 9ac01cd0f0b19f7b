"""Edges of the bins of an attribute, chosen by a part of a release's budget: ``edges: private``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.machine.store import Store, StoredArray
from dpdist.privacy.accounting import Loss
from dpdist.privacy.edges import EdgesRule, edges_rule
from dpdist.records.beyond import CountedSizes, steps_of_records
from dpdist.records.sources import Source
from dpdist.release.preliminary import PredictedErrors, PrivateChoice
from dpdist.spec.found_first import FoundEdges
from dpdist.spec.job import Job


@dataclass(frozen=True)
class EdgesChoice(PrivateChoice):
    """The choice of the edges of one attribute."""

    job: Job
    asked: FoundEdges
    rule: EdgesRule

    purpose: ClassVar[str] = "edges"

    @property
    def loss(self) -> Loss:
        return self.rule.loss

    @property
    def bound_to(self) -> Mapping[str, Any]:
        return {"of": self.asked.attribute}

    def choices(self) -> Iterator[dict[str, Any]]:
        for each in self.rule.splits:
            yield {"edge": each.number + 1, "level": each.level + 1, "at": str(each.at), "rate": str(each.rate)}

    def counted(self, source: Source) -> CountedSizes:
        asked = self.asked.selection
        return steps_of_records(source, self.job.measured.domain, self.asked.attribute, asked.steps_of, asked.size)

    def kept(self, counted: CountedSizes, key: bytes, errors: PredictedErrors | None) -> NDArray[np.uint8]:
        return np.frombuffer(json.dumps({"steps": self.rule.chosen(counted.counts, key)}).encode(), dtype=np.uint8)

    def with_kept(self, store: Store, stored: StoredArray) -> Job:
        found: Mapping[str, Any] = json.loads(np.asarray(store.read(stored)).tobytes().decode())
        return self.job.with_found(inner_edges(found["steps"], self.asked.selection.size), found)

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        given = self.asked.selection
        edges = None if found is None else [*map(float, job.measured.domain.attribute(self.asked.attribute).edges)]
        said = {
            "of": self.asked.attribute,
            "edges": edges,
            "bins": given.bins,
            "values": given.size,
            "step": float(given.step),
            "share": float(given.share),
            "rho": str(self.loss.zcdp),
            "moved": moved_by(self.job),
            "edge_choices": list(self.choices()),
        }
        return {"chosen_edges": [said]}


def inner_edges(found: list[int], size: int) -> tuple[int, ...]:
    """Different edges in rising order: each is the step after a quantile, which lies in the bin below, and none is the last edge."""
    return tuple(sorted({step + 1 for step in found if step + 1 < size}))


def edges_of(job: Job) -> EdgesChoice | None:
    """The choice of edges that a release asks for next."""
    given, guarantee = job.guarantee.names, job.guarantee
    if not isinstance(given, FoundEdges):
        return None
    part, _ = given.parts(guarantee.budget)
    asked = given.selection
    return EdgesChoice(job, given, edges_rule(asked.size, asked.bins, moved_by(job), part))


def moved_by(job: Job) -> int:
    """How many records one change adds or removes: where persons are known, of each the first ones count, whatever their groups."""
    person = job.guarantee.person
    own = person.records * (person.participations or 1) if person.column is None else person.most_records
    return own * (2 if job.guarantee.neighbours == "replace-one" else 1)
