"""The selection that a release with private categories asks for before its plan, and the names that were selected for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput
from dpdist.identities import digest_of
from dpdist.machine.store import Store, StoredArray
from dpdist.privacy.accounting import Loss
from dpdist.privacy.distributions import GAUSSIAN
from dpdist.privacy.noise import Noise
from dpdist.privacy.selection import UNIT_BITS, Selection, selection
from dpdist.records.names import Names, names_of
from dpdist.records.sources import Source
from dpdist.release.preliminary import NoisyPreliminary, PredictedErrors
from dpdist.spec.found_first import PrivateNames
from dpdist.spec.job import Job


@dataclass(frozen=True)
class NameSelection(NoisyPreliminary):
    """The selection of the names of one attribute.

    Attributes:
        job: the release as it was written.
        names: what the spec asks for.
        rule: how it is done.
    """

    job: Job
    names: PrivateNames
    rule: Selection

    @property
    def loss(self) -> Loss:
        return self.rule.loss

    @property
    def noise(self) -> Noise:
        return Noise(GAUSSIAN, self.rule.scale)

    @property
    def attribute(self) -> str:
        """Whose names are selected."""
        return self.names.attribute

    @property
    def left_out(self) -> frozenset[str]:
        """Texts that stand for other or missing values."""
        given = self.job.measured.attributes[self.attribute]
        return frozenset(label for label in (given.other, given.missing) if label is not None)

    @property
    def candidates(self) -> int:
        """The most different names that the records may hold, as declared: it decides about memory alone."""
        return self.names.selection.candidates

    @property
    def binding(self) -> str:
        """What the charge and the key are bound to: what is selected, from which column of whose records, and with how much noise.

        The workload is not part of it: where that is corrected, the names that were paid for stay.
        """
        guarantee = self.job.guarantee
        facts = {
            "attribute": self.attribute,
            "column": guarantee.columns.get(self.attribute, self.attribute),
            "person": guarantee.person,
            "neighbours": guarantee.neighbours,
            "left out": sorted(self.left_out),
            "rule": self.rule.facts,
        }
        return digest_of("selection", facts)

    def counted(self, source: Source) -> Names:
        return names_of(source, self.job.measured.domain, self.attribute, self.left_out, self.candidates)

    def kept(self, counted: Names, key: bytes, errors: PredictedErrors | None) -> NDArray[np.uint8]:
        chosen = [counted.names[number] for number in self.rule.chosen(counted.counts, self.samples(key)).tolist()]
        return np.frombuffer(json.dumps(chosen, ensure_ascii=False).encode(), dtype=np.uint8)

    def with_kept(self, store: Store, stored: StoredArray) -> Job:
        names = json.loads(np.asarray(store.read(stored)).tobytes().decode())
        if not names:
            raise InvalidInput(
                f"no name of {self.attribute!r} is frequent enough (one of {self.rule.count_with(0.5):,} records is, half of the time): "
                "the selection stays charged and nothing else is; under a new release id give it a larger 'share', or list the categories"
            )
        return self.job.with_found(names, {"names": len(names)})

    def facts(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        del job
        rule = self.rule
        said = {
            "attribute": self.attribute,
            "names": None if found is None else found["names"],
            "most": rule.most,
            "share": float(self.names.selection.share),
            "rho": str(rule.loss.rho),
            "delta": float(rule.loss.failure),
            "threshold": rule.threshold / 2**UNIT_BITS,
            "deviation": rule.scale / 2**UNIT_BITS,
            "selected_half_of_the_time": rule.count_with(0.5),
            "selected_almost_always": rule.count_with(0.975),
        }
        return {"selection": said}


def selection_of(job: Job) -> NameSelection | None:
    """The selection that a release asks for, None where all values are known."""
    names, guarantee = job.guarantee.names, job.guarantee
    if not isinstance(names, PrivateNames):
        return None
    asked = names.selection
    moved, person = guarantee.protection.distance, guarantee.person
    if person.column is not None:  # of each person the first most_records name a name
        moved = replace(moved, groups=1, participations=None)
    moved = replace(moved, records=moved.records * (moved.participations or 1), participations=None, separation=1)
    part, _ = names.parts(guarantee.budget)
    return NameSelection(job, names, selection(part.rho, asked.delta, moved, asked.most))
