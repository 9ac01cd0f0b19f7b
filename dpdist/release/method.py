"""What a certificate says of a release's method: what was counted, over which declared values, and which questions were asked.

It is written from the spec and holds what the publisher declared for the public. Paths, columns and files of records do not enter.
"""

from __future__ import annotations

from typing import Any

from dpdist.domain import Attribute
from dpdist.identities import digest_of
from dpdist.spec import ReleaseSpec


def method(spec: ReleaseSpec) -> dict[str, Any]:
    """Names for readers, attributes, and the questions in words."""
    return {
        "counted": spec.records.named,
        "meaning": meaning(spec),
        **({} if spec.records.csv_record is None else {"record": spec.records.csv_record}),
        "attributes": {
            name: {**part.facts(), **_levels(spec.attributes.attribute(name))} for name, part in spec.domain.items()
        },
        **({"sums": {name: part.facts() for name, part in spec.sums.items()}} if spec.sums else {}),
        "asked": [entry.words for entry in spec.workload],
        "calibration": spec.budget.calibration,
        "cap": str(spec.ledger.cap.cap),
    }


def meaning(spec: ReleaseSpec) -> str:
    """SHA-256 of everything that decides what a number says, beside its query: equal numbers of two releases differ by time alone.

    Budget, mechanism, noise, questions that name themselves, titles and places do not enter. Of dates in a release for a period it is
    their number and length, not their begin; of a stream whose horizon was extended it is the first one.
    """
    if spec.formerly is not None:
        return meaning(spec.formerly)
    facts = {
        "counted": (spec.records.named, spec.records.count, spec.records.counts),
        "person": spec.records.person,
        "columns": spec.records.columns,
        "domain": [(name, part.meant(periodic=spec.period is not None)) for name, part in spec.domain.items()],
        "sums": [(name, part.unit, part.measured) for name, part in spec.sums.items()],
        "own": [(entry.kind, entry.statistic) for entry in spec.workload if not entry.kind.names_itself],
        "coefficients": spec.queries.fingerprint if any(entry.kind.reads_file for entry in spec.workload) else None,
    }
    return digest_of("meaning", facts)


def _levels(attribute: Attribute) -> dict[str, Any]:
    """The levels of an attribute, and how many groups each has."""
    return {"levels": {level.name: len(level.labels) for level in attribute.levels}} if attribute.levels else {}
