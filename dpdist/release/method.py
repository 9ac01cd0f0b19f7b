"""What a certificate says of a release's method: what was counted, over which declared values, and which questions were asked.

It is written from the spec and holds what the publisher declared for the public. Paths, columns and files of records do not enter.
"""

from __future__ import annotations

from typing import Any

from dpdist.domain import DROP, Attribute, Domain
from dpdist.identities import digest_of
from dpdist.spec import Job


def method(job: Job) -> dict[str, Any]:
    """Names for readers, attributes, and the questions in words."""
    records, measured, guarantee = job.source.records, job.measured, job.guarantee
    return {
        "counted": records.named,
        "meaning": meaning(job),
        **({} if records.csv_record is None else {"record": records.csv_record}),
        "attributes": {
            **{name: {**given.facts(), **_levels(measured.domain, name)} for name, given in measured.attributes.items()},
            **{line.name: _line_facts(line) for line in measured.domain.attributes if line.line is not None},
        },
        **({"sums": {name: given.facts() for name, given in measured.sums.items()}} if measured.sums else {}),
        "asked": [entry.words for entry in job.workload.entries],
        "calibration": guarantee.budget.calibration,
        "cap": str(guarantee.cap),
    }


def meaning(job: Job) -> str:
    """SHA-256 of everything that decides what a number says, beside its query: equal numbers of two releases differ by time alone.

    Budget, mechanism, noise, questions that name themselves, titles and places do not enter. Of dates in a release for a period it is
    their number and length, not their begin; of a stream whose horizon was extended it is the first one.
    """
    if job.guarantee.course.former is not None:
        return meaning(job.guarantee.course.former)
    records, measured, entries = job.source.records, job.measured, job.workload.entries
    periodic = job.guarantee.period is not None
    facts = {
        "counted": (records.named, records.count, records.counts),
        "person": records.person,
        "columns": records.columns,
        "domain": [(name, given.meant(periodic=periodic)) for name, given in measured.attributes.items()],
        "sums": [(name, given.unit, given.measured) for name, given in measured.sums.items()],
        "own": [(entry.kind, entry.statistic) for entry in entries if not entry.kind.names_itself],
        "coefficients": job.workload.queries.fingerprint if any(entry.kind.reads_file for entry in entries) else None,
    }
    return digest_of("meaning", facts)


def _levels(domain: Domain, name: str) -> dict[str, Any]:
    """The levels of an attribute, and how many groups each has; none of one that is not counted by itself."""
    levels = domain.attribute(name).levels if name in domain.names else ()
    return {"levels": {level.name: len(level.labels) for level in levels}} if levels else {}


def _line_facts(line: Attribute) -> dict[str, Any]:
    """What a certificate says of a number that follows from two attributes."""
    words = f"whole numbers from {line.edges[0]:g} to {line.edges[-1] - 1:g}, in {line.values:,} bins"
    return {
        "title": None,
        "unit": None,
        "values": words,
        "outside": line.outside,
        **({"missing": DROP} if line.missing else {}),
    }
