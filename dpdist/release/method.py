"""What a certificate says of a release's method: what was counted, over which declared values, and which questions were asked.

It is written from the spec and holds what the publisher declared for the public. Paths, columns and files of records do not enter.
"""

from __future__ import annotations

from typing import Any

from dpdist.domain import Attribute
from dpdist.identities import digest_of
from dpdist.quantities.registry import STATISTICS
from dpdist.spec import Job
from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.queries import FILTER_KINDS, FilterSpec, MarginalsSpec, QuerySpec
from dpdist.spec.sums import SumSpec

LISTED = 12
"""Values that a sentence lists."""


def method(job: Job) -> dict[str, Any]:
    """Names for readers, attributes, and the questions in words."""
    records, measured, guarantee = job.source.records, job.measured, job.guarantee
    return {
        "counted": records.named,
        "meaning": meaning(job),
        **({} if records.csv_record is None else {"record": records.csv_record}),
        "attributes": {
            name: {**_attribute(given), **_levels(measured.domain.attribute(name))}
            for name, given in measured.attributes.items()
        },
        **({"sums": {name: _amounts(given) for name, given in measured.sums.items()}} if measured.sums else {}),
        "asked": [_asked(entry) for entry in job.workload.entries],
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
        "domain": [(name, given.unit, _counted_in(given, periodic)) for name, given in measured.attributes.items()],
        "sums": [(name, given.unit, given.measured) for name, given in measured.sums.items()],
        "own": [
            entry.model_copy(update={"weight": 1.0, "relative": False, "target": None})
            for entry in entries
            if entry.rows is not None or entry.dnf is not None or entry.filters is not None
        ],
        "coefficients": job.workload.queries.fingerprint if any(map(_reads_file, entries)) else None,
    }
    return digest_of("meaning", facts)


def _reads_file(entry: QuerySpec) -> bool:
    """Whether queries are in a file, whose name says nothing of what it holds."""
    return entry.rows is not None or any(each.file is not None for each in (entry.filters.apply if entry.filters else ()))


def _counted_in(part: AttributeSpec, periodic: bool) -> Any:
    """What decides which cell of an attribute a record counts in."""
    if part.dates is None or not periodic:
        return part.measured
    times = part.dates.times
    return part.measured.model_copy(update={"dates": None, "labels": ()}), times.steps, times.every, times.zone


def _amounts(part: SumSpec) -> dict[str, Any]:
    """A column of amounts: everything that its clamping and its grid do to a sum."""
    low, high, step = (float(number) for number in (part.first, part.last, part.step))
    values = f"amounts from {low:,.12g} to {high:,.12g} in steps of {step:,.12g}"
    words = {"title": part.title, "unit": part.unit, "values": values}
    most = {} if part.most_per_person is None else {"most_per_person": float(part.most_per_person)}
    return {**words, "from": low, "to": high, "step": step, "missing": part.missing, **most}


def _levels(attribute: Attribute) -> dict[str, Any]:
    """The levels of an attribute, and how many groups each has."""
    return {"levels": {level.name: len(level.labels) for level in attribute.levels}} if attribute.levels else {}


def _attribute(part: AttributeSpec) -> dict[str, Any]:
    facts: dict[str, Any] = {"title": part.title, "unit": part.unit, "values": _values(part), "outside": part.outside}
    facts |= {name: given for name, given in (("missing", part.missing), ("other", part.other)) if given is not None}
    if part.dates is not None:
        facts["time"] = {"start": part.dates.times.start.isoformat(), "step": part.dates.every}
    if part.time is not None:
        facts["time"] = {"start": part.time.start.isoformat(), "step": part.time.step}
    return facts


def _values(part: AttributeSpec) -> str:
    if part.categories is not None:
        shown = ", ".join((part.labels or part.categories)[:LISTED])
        count = len(part.categories)
        return f"{count:,} categories: {shown}" + (f" and {count - LISTED:,} more" if count > LISTED else "")
    if part.selection is not None:
        return f"up to {part.selection.most:,} names, selected from the records"
    if part.edges is not None:
        shown = ", ".join(f"{edge:g}" for edge in part.edges[: LISTED + 1])
        more = f" and {len(part.edges) - LISTED - 1:,} more" if len(part.edges) > LISTED + 1 else ""
        return f"{len(part.edges) - 1:,} bins with edges {shown}{more}; a bin holds its lower edge and not its upper one"
    if part.dates is not None:
        times = part.dates.times
        shown = f"{times.steps:,} {times.every}{'s' if times.steps != 1 else ''} from {times.label(0)} to {times.label(times.steps - 1)}"
        return shown if times.zone is None else f"{shown}, by the clock of {times.zone}"
    span = f"whole numbers from {part.first} to {part.last}"
    return span if part.width == 1 else f"{span}, {part.width} in each bin"


def _asked(entry: QuerySpec) -> str:
    weighed = [f"weight {entry.weight:g}"] if entry.weight != 1.0 else []
    weighed += ["each as precise as its own size asks"] if entry.relative else []
    return _of_amounts(entry) + (f" ({', '.join(weighed)})" if weighed else "")


def _of_amounts(entry: QuerySpec) -> str:
    """The question, for statistics of amounts with what is added up in place of counts."""
    asked = _question(entry)
    if entry.statistic is None:
        return asked
    statistic, names = entry.statistic
    if entry.filters is not None:
        return asked.replace("the series of counts", f"the series of sums of {names[0]}", 1)
    what = f"{STATISTICS[statistic].plural} of {' and '.join(names)}"
    if asked == "the count of all records":
        return f"{what} over all records"
    told = asked.removeprefix("counts ")
    return f"{what} over {told.removeprefix('of ')}" if told.startswith("of ") else f"{what} {told}"


def _question(entry: QuerySpec) -> str:
    if entry.marginals is not None:
        return _marginals(entry.marginals)
    if entry.cdf is not None:
        return f"counts at or below each value of {entry.cdf.of}{_by(entry.cdf.by)}"
    if entry.ranges is not None:
        given = entry.ranges.listed is not None or bool(entry.ranges.lists)
        return f"counts of {'listed' if given else 'all'} intervals of {' and '.join(entry.ranges.of)}{_by(entry.ranges.by)}"
    if entry.filters is not None:
        kinds = ", ".join(map(_filter, entry.filters.apply))
        return f"the series of counts over {entry.filters.of}, filtered{_by(entry.filters.by)}: {kinds}"
    return _others(entry)


def _others(entry: QuerySpec) -> str:
    if entry.product is not None:
        parts = ", ".join(_of_attribute(*each) for each in entry.product.items())
        return f"counts for every combination of {parts}" if parts else "the count of all records"
    if entry.predicates is not None:
        count = len(entry.predicates)
        return f"counts of records that satisfy {'an expression' if count == 1 else f'each of {count:,} expressions'}"
    formula = "counts of a formula over binary attributes, for every way to negate them"
    return formula if entry.dnf is not None else "weighted counts by the publisher's own matrix"


_KINDS = {"identity": "the values", "prefix": "the sums up to each value", "ranges": "all intervals", "total": "all values"}


def _of_attribute(name: str, asked: str | tuple[str, ...]) -> str:
    """What a product asks of one attribute."""
    if isinstance(asked, str):
        return f"{_KINDS[asked]} of {name}"
    return f"{len(asked):,} listed conditions on {name}" if len(asked) > 1 else f"the condition {asked[0]}"


def _marginals(asked: MarginalsSpec) -> str:
    what = "all intervals of values" if asked.ranges else "every combination of values"
    if asked.of is not None:
        tables = "; ".join(" by ".join(names) or "all records" for names in asked.of[:LISTED])
        return f"counts of {what} of {tables}" + (" and more" if len(asked.of) > LISTED else "")
    ways = " and ".join(map(str, asked.ways or ()))
    among = f" among {', '.join(asked.among)}" if asked.among else ""
    return f"counts of {what} of any {ways} attributes{among}"


def _by(names: tuple[str, ...]) -> str:
    return f", for each {' and '.join(names)}" if names else ""


def _filter(each: FilterSpec) -> str:
    kind = next(kind for kind in FILTER_KINDS if getattr(each, kind) is not None)
    given = getattr(each, kind)
    if kind in ("running_sum", "file"):
        return "running sum" if kind == "running_sum" else "the publisher's own coefficients"
    shown = " to ".join(f"{end:g}" for end in given) if isinstance(given, tuple) else f"{given:g}"
    return f"{kind} {shown}"
