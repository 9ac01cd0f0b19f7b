"""From a spec to its job: the one place that reads a whole spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from dpdist.identities import canonical
from dpdist.look import PLAIN
from dpdist.privacy.bounds import shares
from dpdist.privacy.distributions import GAUSSIAN
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.attributes import SelectionSpec
from dpdist.spec.attributes.private import Private
from dpdist.spec.budgets import ReleaseBudgetSpec
from dpdist.spec.cells import CountedCells
from dpdist.spec.found_first import AskedQuantiles, DeclaredNames, FoundFirst, LeftOut, PrivateBound, PrivateNames
from dpdist.spec.job import AskedQueries, GrowingSeries, Guarantee, Job, OneOff, Outputs
from dpdist.spec.model import ReleaseSpec
from dpdist.spec.origin import Origin

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
    sizes: Sizes = SIZES,
    companions: tuple[Job, ...] = (),
    placeholders: bool = False,
) -> Job:
    """The job of a spec. Domain and queries are made when they are first asked for, and refuse then.

    Args:
        folder: what relative paths start at; default: this process's.
        sizes: from which other paths are taken.
        companions: the releases that it is made consistent with.
        placeholders: whether categories stand for names that are not selected yet.
    Raises: InvalidInput for a horizon that cannot have been extended.
    """
    folder, entries, records = folder or Path.cwd(), spec.workload, spec.records
    again = partial(compiled, folder=folder, sizes=sizes, companions=companions)
    person, first = records.person, entries[0].kind
    names = _names(spec, again)
    persons, unknown = records.count == "persons", placeholders or isinstance(names, FoundFirst)
    beside = {} if spec.quantiles is None else spec.quantiles.of
    measured = CountedCells(spec.domain, spec.sums, entries, person.records, persons, folder, sizes, unknown, beside)
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
            PLAIN if spec.site is None else spec.site.look(folder),
            {name: drawn for name, given in spec.domain.items() if (drawn := given.values.boundaries(folder)) is not None},
            companions,
        ),
    )


def _stated_noise(spec: ReleaseSpec) -> dict[str, str]:
    """The kind of noise as digests cover it: as they did when Gaussian noise was the default (docs/decisions/0039-noise.md)."""
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


def _names(spec: ReleaseSpec, again: Callable[..., Job]) -> DeclaredNames | FoundFirst:
    """What a part of the budget finds first, where it finds anything."""
    found = tuple(_found_first(spec, again))
    return replace(found[0], others=tuple(each.key for each in found[1:])) if found else DeclaredNames()


def _found_first(spec: ReleaseSpec, again: Callable[..., Job]) -> Iterator[FoundFirst]:
    for attribute, given in spec.domain.items():
        if isinstance(given.values, Private):
            selection = given.values.selection
            yield PrivateNames(selection.share, partial(_over, spec, attribute, selection, again), attribute, selection)
    person, ranges = spec.records.person, ((of, given.steps, given.selection) for of, given in spec.sums.items())
    for of, most, chosen in ((None, person.most_records, person.selection), *ranges):
        if chosen is not None:
            yield PrivateBound(chosen.share, partial(_bounded, spec, of, chosen.share, again), of, most)
    if spec.left_out is not None:
        share = spec.left_out.share
        yield LeftOut(share, partial(_beside, spec, "left_out", share, again), spec.left_out.most)
    if spec.quantiles is not None:
        share = spec.quantiles.share
        yield AskedQuantiles(share, partial(_beside, spec, "quantiles", share, again), spec.quantiles)


def _over(
    spec: ReleaseSpec, attribute: str, selection: SelectionSpec, again: Callable[..., Job], names: Sequence[str] | None
) -> Job:
    """The job over selected names or placeholders (None), with the part of the budget that the selection leaves."""
    given = spec.domain[attribute].with_names(selection.placeholders if names is None else names)
    rho = spec.budget.rho_beside(selection.delta) * (1 - selection.share)
    budget = ReleaseBudgetSpec.model_construct(rho=rho, epsilon=None, delta=None, calibration=spec.budget.calibration)
    copy = spec.model_copy(update={"domain": {**spec.domain, attribute: given}, "budget": budget})
    return again(copy, placeholders=names is None)


def _bounded(spec: ReleaseSpec, of: str | None, share: Fraction, again: Callable[..., Job], bound: int | None) -> Job:
    """The job with a bound on records or amounts, or with the largest one (None), and the rest of the budget."""
    rest = _rest(spec, share)
    if of is not None:
        sums = {**spec.sums, of: spec.sums[of].up_to(bound)}
        return again(spec.model_copy(update={"sums": sums, "budget": rest}), placeholders=bound is None)
    person = spec.records.person
    given = person.model_copy(update={"most_records": bound or person.most_records, "selection": None})
    records = spec.records.model_copy(update={"person": given})
    return again(spec.model_copy(update={"records": records, "budget": rest}), placeholders=bound is None)


def _beside(spec: ReleaseSpec, key: str, share: Fraction, again: Callable[..., Job], found: bool | None) -> Job:
    """The job without what is found beside it, and with the rest of the budget, once that is found, or before (None)."""
    return again(spec.model_copy(update={key: None, "budget": _rest(spec, share)}), placeholders=found is None)


def _rest(spec: ReleaseSpec, share: Fraction) -> ReleaseBudgetSpec:
    """What a share leaves of the budget."""
    _, rest = shares(spec.budget.loss, share)
    return ReleaseBudgetSpec.model_construct(
        rho=rest.rho or None, epsilon=rest.pure or None, delta=None, calibration=spec.budget.calibration
    )
