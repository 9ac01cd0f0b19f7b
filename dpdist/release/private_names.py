"""The selection that a release with private categories asks for before its plan, and the names that were selected for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.distributions import GAUSSIAN
from dpdist.privacy.noise import Noise
from dpdist.privacy.selection import UNIT_BITS, Selection, selection
from dpdist.records.beyond import RecordsInParts
from dpdist.records.names import Names, names_of
from dpdist.release.preliminary import NoisyPreliminary, PredictedErrors
from dpdist.spec.found_first import PrivateNames
from dpdist.spec.job import Job


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
