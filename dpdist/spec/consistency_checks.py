"""What a spec as a whole must keep to: rules between its parts, each reported with the line that breaks it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.mechanisms.comparison import considered, of_worst
from dpdist.mechanisms.mechanism import Setting
from dpdist.mechanisms.mechanism_registry import AUTO, REGISTRY, mechanism_of
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise_distributions import Kind
from dpdist.process.yaml_text import Lines
from dpdist.sources.formats.array_files import ArrayFormat
from dpdist.spec.error_messages import located, where_of
from dpdist.spec.job import GrowingSeries, Job
from dpdist.spec.preprocessing_budget import DeclaredNames, FoundFirst
from dpdist.spec.queries.query_weights import ErrorTarget
from dpdist.spec.sections.calendar_steps import through_of
from dpdist.spec.sections.sources import InFiles
from dpdist.strategies.filter_strategies import has_square_root
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_long


def check(job: Job, folder: Path, lines: Lines, name: str) -> None:
    """Hold a spec to the rules between its parts. Raises: InvalidSpec with the line, what was found and what to do."""
    for attribute, part in job.measured.attributes.items():
        located(partial(part.attribute, attribute, folder=folder), ("domain", attribute), lines, name)
    for i, entry in enumerate(job.workload.entries):
        located(partial(job.measured.check_line, entry), ("workload", i), lines, name)
    located(lambda: job.measured.domain, ("domain",), lines, name)
    refusal = job.measured.quantity.refuses(job.beside)
    if refusal is not None:
        raise InvalidSpec(f"{where_of(refusal[0], lines, name)}: {refusal[1]}")
    located(job.source.records.location.check_address, ("records", job.source.records.location.key()), lines, name)
    located(lambda: _check_columns(job), ("records", "columns"), lines, name)
    located(lambda: job.source.check_types(job.measured.domain), ("records", "types"), lines, name)
    located(lambda: _check_roles(job), ("records",), lines, name)
    located(lambda: _check_participations(job), ("records", "person", "participations"), lines, name)
    located(lambda: _check_array(job), ("records", "counts"), lines, name)
    for i, entry in enumerate(job.workload.entries):
        located(partial(entry.workload, job.measured.domain, folder), ("workload", i), lines, name)
    located(lambda: job.outputs.known, ("postprocess", "known"), lines, name)
    located(lambda: _check_suppression(job), ("postprocess", "suppress"), lines, name)
    located(lambda: _check_noise(job), ("noise",), lines, name)
    located(lambda: _check_companions(job), ("postprocess", "consistent_with"), lines, name)
    located(lambda: _check_mechanism(job), ("mechanism",), lines, name)
    located(lambda: _check_around(job), ("workload",), lines, name)
    located(lambda: _check_long(job), ("sums",), lines, name)
    located(lambda: _check_stream(job), ("stream",), lines, name)
    located(lambda: _check_extension(job), ("stream", "extended_from"), lines, name)
    stage = job
    while isinstance(stage.guarantee.names, FoundFirst):
        stage = located(partial(_check_found_first, stage, stage.guarantee.names), stage.guarantee.names.place, lines, name)
    located(lambda: _check_budget(job), ("budget",), lines, name)
    located(lambda: job.guarantee.ledger.check_period(job.guarantee.period), ("ledger", "cap", "per"), lines, name)


def _check_columns(job: Job) -> None:
    measured = job.measured
    unknown = sorted(set(job.source.records.columns) - {*measured.attributes, *measured.sums, *measured.beside})
    if unknown:
        raise InvalidInput(
            f"'records.columns' names {unknown[0]!r}, which is not an attribute of the domain ({', '.join(job.measured.attributes)})"
        )


def _check_roles(job: Job) -> None:
    """A column says one thing of a record."""
    source = job.source
    roles = [("identifies persons", source.records.person.column)]
    roles += [("says how many records a row stands for", source.counts_column)]
    columns = {job.source.records.columns.get(name, name): name for name in (*job.measured.attributes, *job.measured.sums)}
    found = next(((role, column) for role, column in roles if column in columns), None)
    if found is not None:
        role, column = found
        raise InvalidInput(
            f"{column!r} {role} and is also the attribute {columns[column]!r}; remove the attribute, or name another column"
        )


def _check_participations(job: Job) -> None:
    """A bound on the steps of a person, which only a series has."""
    person = job.source.records.person
    if person.participations is None:
        return
    if not job.workload.entries[0].kind.over_time or person.most_groups is not None:
        raise InvalidInput(
            "'participations' bounds in how many steps of a series one person has records: ask for 'filters' of it first, and leave "
            "'most_groups' out"
        )


def _check_array(job: Job) -> None:
    """An array has a cell for each combination of declared values, and nothing else."""
    location = job.source.records.location
    if not isinstance(location.format, ArrayFormat):
        return
    beyond = any(part.missing is not None or part.other is not None for part in job.measured.attributes.values())
    header = isinstance(location, InFiles) and location.header
    columns = job.source.records.columns or header or job.measured.sums or job.source.counts_column
    related = job.measured.domain.read != job.measured.domain.attributes
    if beyond or columns or related or job.guarantee.names.failure:
        raise InvalidInput(
            "an array has an axis for each attribute, with its declared values alone, and no columns: leave 'missing', 'other', "
            "'relation', 'counts.column', 'columns', 'header', 'sums' and private categories out"
        )


def _check_companions(job: Job) -> None:
    """Releases that are combined are of the same cells and of the same kind of noise."""
    for other in job.outputs.companions:
        if other.release == job.release or [each.release for each in job.outputs.companions].count(other.release) > 1:
            raise InvalidInput(f"release {other.release!r} is named twice; name other, earlier releases")
        if job.source.table is not None or other.source.table is not None:
            raise InvalidInput(
                "releases are combined when both read the same files: write the rows of a query or table to a file first"
            )
        same = (other.measured.domain, other.guarantee.dataset, other.measured.around, other.guarantee.names)
        if same != (job.measured.domain, job.guarantee.dataset, job.measured.around, DeclaredNames()) or not (
            set(job.norms) & set(other.norms)
        ):
            raise InvalidInput(
                f"release {other.release!r} cannot be combined: it needs the same domain, without names that are selected privately, the "
                "same data set, counts, and the same kind of noise"
            )


def _check_around(job: Job) -> None:
    """Distances from a public count are taken of the counted table before anything is measured: all queries must be of them."""
    centres = {entry.kind.centre for entry in job.workload.entries}
    if centres == {None}:
        return
    series = [entry.kind.series for entry in job.workload.entries if entry.kind.over_time]
    asked = {name for each in series for name in (each.of, *each.by)}
    if len(centres) > 1 or asked != set(job.measured.attributes):
        raise InvalidInput(
            "'around' filters distances from one public count: all entries of the workload must be filters around the same count, "
            "of all attributes of the domain"
        )


def _check_stream(job: Job) -> None:
    """A stream is one filter of the past, and every release of it measures whole steps."""
    course = job.guarantee.course
    if not isinstance(course, GrowingSeries):
        return
    if course.filters.ends == "normalised":
        raise InvalidInput(
            "'ends: normalised' divides by fewer steps at the ends, which a growing series does not know; leave it out"
        )
    if (
        len(job.workload.entries) > 1
        or not job.workload.entries[0].kind.over_time
        or not any(_streams(name, job.workload.queries) for name in _named(job.workload.mechanism))
    ):
        able = " or ".join(repr(name) for name, each in REGISTRY.items() if each.streams)
        raise InvalidInput(
            "a stream publishes one filter of the past (running_sum, window, mean, exponential, polynomial or a file), with "
            f"'mechanism: auto', {able}"
        )
    if job.norms == ("l1",):
        cure = "give the budget a 'delta'" if job.guarantee.budget.pure else "set 'noise: gaussian'"
        raise InvalidInput(f"a stream uses Gaussian noise: {cure}")
    through_of(course.stream, course.series)


def _named(mechanism: str) -> tuple[str, ...]:
    """The mechanisms that a spec leaves open."""
    return tuple(REGISTRY) if mechanism == AUTO else (mechanism,)


def _streams(name: str, queries: Workload) -> bool:
    """Whether a mechanism measures the queries step by step."""
    mechanism = mechanism_of(name)
    if not mechanism.streams or mechanism.cannot(queries) is not None:
        return False
    return has_square_root(queries) if is_long(queries) else True


def _check_extension(job: Job) -> None:
    """A horizon that was extended: by a mechanism that goes on with the same integers, under a cap on all releases together."""
    course = job.guarantee.course
    if course.former is None:
        return
    if not any(mechanism_of(name).extends for name in _named(job.workload.mechanism)):
        able = " or ".join(repr(name) for name, each in REGISTRY.items() if each.extends)
        raise InvalidInput(
            f"mechanism {job.workload.mechanism!r} measures for one horizon only, which cannot be extended: begin another stream, with "
            f"{able} if it may grow further"
        )
    if job.guarantee.cap.per != "total":
        raise InvalidInput(
            f"a longer series reveals more of the records of periods whose budgets are closed: under a cap per {job.guarantee.cap.per} a "
            "stream is not extended; begin another stream"
        )
    course.check_longer(job.workload.queries)


def _check_suppression(job: Job) -> None:
    """Answers that can lie clearly above a number: counts of records with the error that is published with them."""
    options = job.outputs.postprocess
    if options.suppress is None:
        return
    if not any(job.workload.counted):
        raise InvalidInput(
            "'suppress' compares counts of records with a number, and no group of the workload has any: leave it out"
        )
    if options.non_negative or (job.workload.mechanism != AUTO and mechanism_of(job.workload.mechanism).adaptive):
        raise InvalidInput(
            "'suppress' is predicted from standard errors, which do not tell the bias of 'non_negative' and of mechanisms 'dawa' and "
            "'adaptive': leave one out"
        )


def _check_found_first(job: Job, found: FoundFirst) -> Job:
    """What a part of the budget finds is found once, by one kind of noise. Returns: the release with placeholders for it."""
    guarantee = job.guarantee
    found.check_share()
    if guarantee.course.grows:
        raise InvalidInput(f"{found.key} is found once and goes without 'stream', whose records come one after the other")
    if job.outputs.postprocess.consistent_with and not found.beside:
        raise InvalidInput(
            f"{found.key} goes without 'consistent_with', which needs one domain and one bound for several releases"
        )
    if job.norms == ("l1",) and found.failure:
        raise InvalidInput(
            f"{found.key} needs Gaussian noise: give the budget a 'delta' or 'rho', and leave 'noise: laplace' out"
        )
    found.check_measured(job.source.records, job.measured)
    if found.fewest is not None:
        _check_any(found, found.over(found.fewest, guarantee.budget))
    return job.with_found(None)


def _check_any(found: FoundFirst, least: Job) -> None:
    """Whatever is found, the queries can be answered: nothing may refuse them once it is paid for."""
    try:
        _ = least.workload.queries, least.outputs.known
        _check_mechanism(least)
    except InvalidInput as error:
        raise InvalidInput(
            f"with {found.key} nobody knows the bins beforehand: ask for what can be answered over any, or declare them; with a single "
            f"one, {error}"
        ) from None


def _check_long(job: Job) -> None:
    """Series of sums are held."""
    if job.measured.domain.sums_alone and is_long(job.workload.queries):
        raise InvalidInput("sums are not added up along a series that is too long to be held: take longer steps")


def _check_noise(job: Job) -> None:
    """A kind of noise that the budget does not buy."""
    if job.guarantee.noise in tuple(Kind):
        job.guarantee.budget.loss_with(Kind(job.guarantee.noise).norm)


def _check_mechanism(job: Job) -> None:
    """A mechanism that needs the other kind of noise than the budget allows, cannot have the objective, or cannot answer."""
    asked = job.workload
    pure, chosen = job.norms == ("l1",), None if asked.mechanism == AUTO else mechanism_of(asked.mechanism)
    _check_targets(job)
    if asked.objective == "worst":
        if pure:
            raise InvalidSpec(
                "'objective: worst' needs Gaussian noise: give the budget a 'delta' or 'rho', and leave 'noise: laplace' out"
            )
        setting = Setting(stream=job.guarantee.course.grows)
        of_worst(considered(asked.mechanism, "l2", asked.queries, asked.limits, setting))
    if chosen is None:
        return
    if not chosen.noises & set(job.norms):
        other, cure = (
            "Laplace",
            "give the budget an 'epsilon' alone" if job.guarantee.budget.rho is not None else "set 'noise: laplace'",
        )
        if pure:
            other, cure = "Gaussian", "give the budget a 'delta'" if job.guarantee.budget.pure else "set 'noise: gaussian'"
        raise InvalidInput(f"mechanism {chosen.name!r} uses {other} noise: {cure}, or choose another")
    chosen.check(job.workload.queries)


def _check_targets(job: Job) -> None:
    """Targets are errors of all queries, and stand in the place of weights."""
    given = [isinstance(entry.importance, ErrorTarget) for entry in job.workload.entries]
    if not any(given):
        return
    if not all(given) or job.workload.objective != "worst":
        raise InvalidInput("a 'target' needs 'objective: worst' and a target in every other group of the workload; add them")


def _check_budget(job: Job) -> None:
    """The loss of the release, and of the selection before it, within what the data set's cap allows at all."""
    delta, ledger = job.guarantee.names.failure, job.guarantee.ledger
    if not delta:
        ledger.check(job.guarantee.budget.loss_with(job.norms[0]))
        return
    ledger.check(replace(Loss.gaussian(job.guarantee.budget.rho_beside(delta)), failure=delta), delta)
