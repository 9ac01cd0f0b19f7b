"""From a spec to its job: the one place that reads a whole spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from dpdist.digests import canonical
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.attributes.private_values import Private, PrivateEdges
from dpdist.spec.job import AskedQueries, GrowingSeries, Guarantee, Job, OneOff, Outputs
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.job_source import Origin
from dpdist.spec.preprocessing_budget import (
    AskedQuantiles,
    DeclaredNames,
    FoundEdges,
    FoundFirst,
    GroupsBound,
    LeftOut,
    PrivateNames,
    RangeBound,
    RecordsBound,
)
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.amount_columns import SumSpec
from dpdist.spec.sections.budgets import ReleaseBudgetSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.theme import PLAIN

NONE = Fraction(0)
Before = Mapping[Callable[..., FoundFirst], int]
"""How many of each kind were found."""
NOTHING: Before = {}
NOT_STATED = {
    "assume",
    "title",
    "language",
    "output",
    "records",
    "ledger",
    "postprocess",
    "domain",
    "about",
    "site",
    "sums",
    "noise",
}
"""Parts of a spec that a digest does not cover as they are written: it covers what they mean, or they decide nothing that is measured."""


def compiled(
    spec: ReleaseSpec,
    *,
    folder: Path | None = None,
    files: Path | None = None,
    sizes: Sizes = SIZES,
    companions: tuple[Job, ...] = (),
    placeholders: bool = False,
    spent: Fraction = NONE,
    before: Before = NOTHING,
) -> Job:
    """The job of a spec. Domain and queries are made when they are first asked for, and refuse then.

    Args:
        folder: what relative paths start at; default: this process's.
        files: where the files lie that a spec names beside its records; default: in the same folder.
        sizes: from which other paths are taken.
        companions: the releases that it is made consistent with.
        placeholders: whether categories stand for names that are not selected yet.
        spent: the share of the budget that was spent on what was found before: the spec has the rest.
        before: how many of each kind were found before.
    Raises: InvalidInput for a horizon that cannot have been extended.
    """
    folder, entries, records = folder or Path.cwd(), spec.workload, spec.records
    files = files or folder
    again = partial(compiled, folder=folder, files=files, sizes=sizes, companions=companions)
    person, first = records.person, entries[0].kind
    names = next(_found_first(spec, again, spent, before), DeclaredNames())
    persons, unknown = records.count == "persons", placeholders or isinstance(names, FoundFirst)
    beside = {} if spec.quantiles is None else spec.quantiles.of
    measured = CountedCells(spec.domain, spec.sums, entries, person.records, persons, files, sizes, unknown, beside)
    former = _former(spec)
    course: OneOff | GrowingSeries = OneOff()
    if spec.stream is not None:
        course = GrowingSeries(spec.stream, entries[0], measured, None if former is None else again(former))
    limits, eigen = spec.limits.limits, spec.eigen
    guarantee = Guarantee(
        release=spec.release,
        period=spec.period,
        ledger=spec.ledger,
        neighbours=spec.neighbours,
        person=person,
        columns=records.columns,
        counted=None if records.counts is None else records.counts.of,
        budget=spec.budget,
        noise=spec.noise,
        course=course,
        names=names,
        stated={**{name: given for name, given in canonical(spec).items() if name not in NOT_STATED}, **_stated_noise(spec)},
    )
    return Job(
        Origin(records, folder, tuple(spec.domain), first.series.of if first.over_time else None),
        measured,
        AskedQueries(entries, measured, spec.mechanism, spec.objective, spec.tolerance, limits, eigen),
        guarantee,
        Outputs(
            spec.title or spec.release,
            spec.language,
            measured,
            spec.output,
            spec.postprocess,
            spec.about,
            PLAIN if spec.site is None else spec.site.look(files),
            {name: drawn for name, given in spec.domain.items() if (drawn := given.values.boundaries(files)) is not None},
            companions,
        ),
    )


def _stated_noise(spec: ReleaseSpec) -> dict[str, str]:
    """The kind of noise as digests cover it: as they did when Gaussian noise was the default (docs/decisions/0010-mechanisms.md)."""
    return {"noise": spec.noise} if "noise" in spec.model_fields_set and spec.noise != GAUSSIAN else {}


def _former(spec: ReleaseSpec) -> ReleaseSpec | None:
    """The spec of the stream before its horizon was last extended, None where it never was."""
    kind = spec.workload[0].kind
    if spec.stream is None or not spec.stream.extended_from or not kind.over_time or kind.series.of not in spec.domain:
        return None
    of = kind.series.of
    *before, end = spec.stream.extended_from
    given = spec.domain[of].until(end)
    stream = spec.stream.model_copy(update={"extended_from": tuple(before), "through": given.values.begin})
    return spec.model_copy(update={"domain": {**spec.domain, of: given}, "stream": stream})


def _found_first(spec: ReleaseSpec, again: Callable[..., Job], spent: Fraction, before: Before) -> Iterator[FoundFirst]:
    """What parts of the budget find, in order: what is found enters what is found after it."""
    person, left_out, quantiles, laplace = spec.records.person, spec.left_out, spec.quantiles, spec.noise == LAPLACE
    private = [(name, each.values) for name, each in spec.domain.items() if isinstance(each.values, Private)]
    failure = sum((values.selection.delta for _, values in private), Fraction(0))

    def found(
        kind: Callable[..., FoundFirst], given: Any, change: Callable[[Any], Any], *rule: Any, of: str = ""
    ) -> FoundFirst:
        number = before.get(kind, 0)
        after = partial(again, spent=spent + given.share, before={**before, kind: number + 1})
        return kind(given.share, partial(_with, spec, after, change), spent, failure, of, number, laplace, *rule)

    if person.selection is not None and not person.most_groups:
        yield found(RecordsBound, person.selection, partial(_of_person, spec.records), person.selection.most)
    for name, values in private:
        yield found(PrivateNames, values.selection, partial(_of_attribute, spec.domain, name), values.selection, of=name)
    for name, each in spec.domain.items():
        if isinstance(each.values, PrivateEdges):
            asked = each.values.selection
            yield found(FoundEdges, asked, partial(_of_attribute, spec.domain, name), asked, of=name)
    if person.selection is not None and person.most_groups:
        yield found(GroupsBound, person.selection, partial(_of_person, spec.records), person.selection.most)
    for of, column in spec.sums.items():
        if column.selection is not None:
            yield found(RangeBound, column.selection, partial(_of_column, spec.sums, of), *column.around_zero[::-1], of=of)
    if left_out is not None:
        yield found(LeftOut, left_out, partial(_without, "left_out"), left_out.most)
    if quantiles is not None:
        yield found(AskedQuantiles, quantiles, partial(_without, "quantiles"), quantiles)


def _with(
    spec: ReleaseSpec,
    again: Callable[..., Job],
    change: Callable[[Any], Mapping[str, Any]],
    found: Any,
    budget: ReleaseBudgetSpec,
) -> Job:
    """The job with what was found, or with placeholders for it (None), and a budget."""
    return again(spec.model_copy(update={**change(found), "budget": budget}), placeholders=found is None)


def _of_attribute(domain: Mapping[str, AttributeSpec], attribute: str, found: Any) -> Mapping[str, Any]:
    return {"domain": {**domain, attribute: domain[attribute].with_found(found)}}


def _of_person(records: RecordsSpec, bound: int | None) -> Mapping[str, Any]:
    return {"records": records.model_copy(update={"person": records.person.with_chosen(bound)})}


def _of_column(sums: Mapping[str, SumSpec], of: str, bound: tuple[int, int] | None) -> Mapping[str, Any]:
    return {"sums": {**sums, of: sums[of].around(bound)}}


def _without(key: str, found: bool | None) -> Mapping[str, Any]:
    """Without what is found beside the release."""
    return {key: None}
