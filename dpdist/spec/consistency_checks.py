"""What a spec as a whole must keep to: rules between its parts, each reported with the line that breaks it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from dpdist.content.table_rows import column_of
from dpdist.domain import Domain
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.mechanisms.comparison import compared_mechanisms, minimax_mechanism
from dpdist.mechanisms.mechanism import PlanSetting
from dpdist.mechanisms.mechanism_registry import AUTO, REGISTRY, mechanism_of
from dpdist.privacy.noise_distributions import Kind
from dpdist.process.yaml_text import Lines
from dpdist.sources.formats.array_files import ArrayFormat
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.error_messages import describe_line, report_line
from dpdist.spec.job import GrowingSeries, Job
from dpdist.spec.queries.query_weights import ErrorTarget
from dpdist.spec.sections.calendar_steps import last_complete_step
from dpdist.spec.sections.sources import FileSource
from dpdist.strategies.filter_strategies import has_square_root
from dpdist.workloads import Workload


def check(job: Job, folder: Path, line_numbers: Lines, name: str) -> None:
    """Hold a spec to the rules between its parts. Raises: InvalidSpec with the line, what was found and what to do."""
    for attribute, attribute_spec in job.measured.attributes.items():
        report_line(partial(attribute_spec.attribute, attribute, folder=folder), ("domain", attribute), line_numbers, name)
    for i, entry in enumerate(job.workload.entries):
        report_line(partial(job.measured.check_line, entry), ("workload", i), line_numbers, name)
    report_line(lambda: job.measured.domain, ("domain",), line_numbers, name)
    report_line(lambda: _check_published_columns(job.measured.domain), ("domain",), line_numbers, name)
    refusal = job.measured.quantity.refuses(job.release_context)
    if refusal is not None:
        raise InvalidSpec(f"{describe_line(refusal[0], line_numbers, name)}: {refusal[1]}")
    location = job.source.records.location
    report_line(partial(location.check_address, folder), ("records", location.key()), line_numbers, name)
    report_line(lambda: _check_columns(job), ("records", "columns"), line_numbers, name)
    report_line(lambda: job.source.check_types(job.measured.domain), ("records", "types"), line_numbers, name)
    report_line(lambda: _check_roles(job), ("records",), line_numbers, name)
    report_line(lambda: _check_participations(job), ("records", "person", "participations"), line_numbers, name)
    report_line(lambda: _check_array(job), ("records", "counts"), line_numbers, name)
    for i, entry in enumerate(job.workload.entries):
        report_line(partial(entry.workload, job.measured.domain, folder), ("workload", i), line_numbers, name)
    report_line(lambda: job.outputs.known_blocks, ("postprocess", "known"), line_numbers, name)
    report_line(lambda: _check_suppression(job), ("postprocess", "suppress"), line_numbers, name)
    report_line(lambda: _check_noise(job), ("noise",), line_numbers, name)
    report_line(lambda: _check_companions(job), ("postprocess", "consistent_with"), line_numbers, name)
    report_line(lambda: _check_mechanism(job), ("mechanism",), line_numbers, name)
    report_line(lambda: _check_around(job), ("workload",), line_numbers, name)
    report_line(lambda: _check_long(job), ("sums",), line_numbers, name)
    report_line(lambda: _check_stream(job), ("stream",), line_numbers, name)
    report_line(lambda: _check_extension(job), ("stream", "extended_from"), line_numbers, name)
    stage = job
    while (step := stage.next_step) is not None:
        stage = report_line(partial(_check_step, stage, step), step.key_path, line_numbers, name)
    report_line(lambda: _check_budget(job), ("budget",), line_numbers, name)
    report_line(
        lambda: job.guarantee.ledger.check_period(job.guarantee.period), ("ledger", "cap", "per"), line_numbers, name
    )


def _selection_failure(job: Job) -> Fraction:
    """The deltas of all selections of names that are still to be made."""
    step = job.guarantee.next_step
    return Fraction(0) if step is None else step.failure


def _check_published_columns(domain: Domain) -> None:
    """Accept attributes and levels of which each has a column of its own in the published tables."""
    for name in domain.columns:
        if (column := column_of(name)) != name and column in domain.columns:
            raise InvalidInput(
                f"{name!r} is a column of every published table, where the attribute of this name is called {column!r}, and so is another "
                "attribute: rename that one"
            )


def _check_columns(job: Job) -> None:
    measured = job.measured
    unknown = sorted(set(job.source.records.columns) - {*measured.attributes, *measured.sums, *measured.uncounted_columns})
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
    conflict = next(((role, column) for role, column in roles if column in columns), None)
    if conflict is not None:
        role, column = conflict
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
    has_other_values = any(
        attribute_spec.missing is not None or attribute_spec.other is not None
        for attribute_spec in job.measured.attributes.values()
    )
    header = isinstance(location, FileSource) and location.header
    columns = job.source.records.columns or header or job.measured.sums or job.source.counts_column
    related = job.measured.domain.column_attributes != job.measured.domain.attributes
    if has_other_values or columns or related or _selection_failure(job):
        raise InvalidInput(
            "an array has an axis for each attribute, with its declared values alone, and no columns: leave 'missing', 'other', "
            "'relation', 'counts.column', 'columns', 'header', 'sums' and private categories out"
        )


def _check_companions(job: Job) -> None:
    """Releases that are combined are of the same cells and of the same kind of noise."""
    for companion_job in job.outputs.companions:
        if (
            companion_job.release == job.release
            or [companion.release for companion in job.outputs.companions].count(companion_job.release) > 1
        ):
            raise InvalidInput(f"release {companion_job.release!r} is named twice; name other, earlier releases")
        if job.source.table is not None or companion_job.source.table is not None:
            raise InvalidInput(
                "releases are combined when both read the same files: write the rows of a query or table to a file first"
            )
        compared_facts = (
            companion_job.measured.domain,
            companion_job.guarantee.dataset,
            companion_job.measured.centre,
            companion_job.guarantee.next_step,
        )
        if compared_facts != (job.measured.domain, job.guarantee.dataset, job.measured.centre, None) or not (
            set(job.norms) & set(companion_job.norms)
        ):
            raise InvalidInput(
                f"release {companion_job.release!r} cannot be combined: it needs the same domain, without names that are selected "
                "privately, the same data set, counts, and the same kind of noise"
            )


def _check_around(job: Job) -> None:
    """Distances from a public count are taken of the counted table before anything is measured: all queries must be of them."""
    centres = {entry.kind.centre for entry in job.workload.entries}
    if centres == {None}:
        return
    series = [entry.kind.series for entry in job.workload.entries if entry.kind.over_time]
    filtered_names = {name for series_spec in series for name in (series_spec.of, *series_spec.by)}
    if len(centres) > 1 or filtered_names != set(job.measured.attributes):
        raise InvalidInput(
            "'around' filters distances from one public count: all entries of the workload must be filters around the same count, "
            "of all attributes of the domain"
        )


def _check_stream(job: Job) -> None:
    """A stream is one filter of the past, and every release of it measures whole steps."""
    release_mode = job.guarantee.release_mode
    if not isinstance(release_mode, GrowingSeries):
        return
    if job.outputs.postprocess.rounding == "unbiased":
        raise InvalidInput(
            "the numbers of a stream never change once they are published, so each is rounded to the nearest whole number by itself, and "
            "'integer: unbiased' has nothing to draw together: set 'integer: true'"
        )
    if release_mode.filters.ends == "normalised":
        raise InvalidInput(
            "'ends: normalised' divides by fewer steps at the ends, which a growing series does not know; leave it out"
        )
    if (
        len(job.workload.entries) > 1
        or not job.workload.entries[0].kind.over_time
        or not any(_can_stream(name, job.workload.queries) for name in _open_mechanisms(job.workload.mechanism))
    ):
        able = " or ".join(repr(name) for name, mechanism in REGISTRY.items() if mechanism.supports_streams)
        raise InvalidInput(
            "a stream publishes one filter of the past (running_sum, window, mean, exponential, polynomial or a file), with "
            f"'mechanism: auto', {able}"
        )
    if job.norms == ("l1",):
        cure = "give the budget a 'delta'" if job.guarantee.budget.pure else "set 'noise: gaussian'"
        raise InvalidInput(f"a stream uses Gaussian noise: {cure}")
    last_complete_step(release_mode.stream, release_mode.series)


def _open_mechanisms(mechanism: str) -> tuple[str, ...]:
    """The mechanisms that a spec leaves open."""
    return tuple(REGISTRY) if mechanism == AUTO else (mechanism,)


def _can_stream(name: str, queries: Workload) -> bool:
    """Whether a mechanism measures the queries step by step."""
    mechanism = mechanism_of(name)
    if not mechanism.supports_streams or mechanism.reason_unable(queries) is not None:
        return False
    return has_square_root(queries) if queries.kind.is_long else True


def _check_extension(job: Job) -> None:
    """A horizon that was extended: by a mechanism that goes on with the same integers, under a cap on all releases together."""
    release_mode = job.guarantee.release_mode
    if release_mode.former_job is None:
        return
    if not any(mechanism_of(name).supports_extension for name in _open_mechanisms(job.workload.mechanism)):
        able = " or ".join(repr(name) for name, mechanism in REGISTRY.items() if mechanism.supports_extension)
        raise InvalidInput(
            f"mechanism {job.workload.mechanism!r} measures for one horizon only, which cannot be extended: begin another stream, with "
            f"{able} if it may grow further"
        )
    if job.guarantee.cap.per != "total":
        raise InvalidInput(
            f"a longer series reveals more of the records of periods whose budgets are closed: under a cap per {job.guarantee.cap.per} a "
            "stream is not extended; begin another stream"
        )
    release_mode.check_longer(job.workload.queries)


def _check_suppression(job: Job) -> None:
    """Answers that can lie clearly above a number: counts of records with the error that is published with them."""
    options = job.outputs.postprocess
    if options.suppress is None:
        return
    if not any(job.workload.block_counts_records):
        raise InvalidInput(
            "'suppress' compares counts of records with a number, and no group of the workload has any: leave it out"
        )
    if options.non_negative or (job.workload.mechanism != AUTO and mechanism_of(job.workload.mechanism).is_data_dependent):
        raise InvalidInput(
            "'suppress' is predicted from standard errors, which do not tell the bias of 'non_negative' and of mechanisms 'dawa' and "
            "'adaptive': leave one out"
        )


def _check_step(job: Job, step: BudgetedStep) -> Job:
    """What a part of the budget finds is found once, by one kind of noise. Returns: the release with placeholders for it."""
    guarantee = job.guarantee
    step.check_share()
    if guarantee.release_mode.grows:
        raise InvalidInput(f"{step.key} {step.reason_without_stream}")
    if job.outputs.postprocess.consistent_with and not step.is_independent:
        raise InvalidInput(
            f"{step.key} goes without 'consistent_with', which needs one domain and one bound for several releases"
        )
    if job.outputs.postprocess.known and step.chooses_records:
        raise InvalidInput(
            f"{step.key} goes without 'known': a known count is of the records that count, and nobody knows how many these are before the "
            "bound is chosen; give a number as the bound, or leave 'known' out"
        )
    step.check_measured(job.source.records, job.measured)
    if step.smallest_outcome is not None:
        _check_any(step, step.make_job(step.smallest_outcome, guarantee.budget))
    return job.with_placeholder


def _check_any(step: BudgetedStep, smallest_job: Job) -> None:
    """Whatever is found, the queries can be answered: nothing may refuse them once it is paid for."""
    try:
        _ = smallest_job.workload.queries, smallest_job.outputs.known_blocks
        _check_mechanism(smallest_job)
    except InvalidInput as error:
        raise InvalidInput(
            f"with {step.key} nobody knows the bins beforehand: ask for what can be answered over any, or declare them; with a single "
            f"one, {error}"
        ) from None


def _check_long(job: Job) -> None:
    """Series of sums are held."""
    if job.measured.domain.sums_alone and job.workload.queries.kind.is_long:
        raise InvalidInput("sums are not added up along a series that is too long to be held: take longer steps")


def _check_noise(job: Job) -> None:
    """A kind of noise that the budget does not buy."""
    if job.guarantee.noise in tuple(Kind):
        job.guarantee.budget.loss_with(Kind(job.guarantee.noise).norm)


def _check_mechanism(job: Job) -> None:
    """A mechanism that needs the other kind of noise than the budget allows, cannot have the objective, or cannot answer."""
    job_workload = job.workload
    pure, mechanism = job.norms == ("l1",), None if job_workload.mechanism == AUTO else mechanism_of(job_workload.mechanism)
    _check_targets(job)
    if job_workload.objective == "worst":
        if pure:
            raise InvalidSpec(
                "'objective: worst' needs Gaussian noise: give the budget a 'delta' or 'rho', and leave 'noise: laplace' out"
            )
        setting = PlanSetting(stream=job.guarantee.release_mode.grows)
        minimax_mechanism(
            compared_mechanisms(job_workload.mechanism, "l2", job_workload.queries, job_workload.limits, setting)
        )
    if mechanism is None:
        return
    if not mechanism.noises & set(job.norms):
        noise_name = "Laplace"
        cure = "give the budget an 'epsilon' alone" if job.guarantee.budget.rho is not None else "set 'noise: laplace'"
        if pure:
            noise_name = "Gaussian"
            cure = "give the budget a 'delta'" if job.guarantee.budget.pure else "set 'noise: gaussian'"
        raise InvalidInput(f"mechanism {mechanism.name!r} uses {noise_name} noise: {cure}, or choose another")
    mechanism.check(job.workload.queries)


def _check_targets(job: Job) -> None:
    """Targets are errors of all queries, and stand in the place of weights."""
    has_target = [isinstance(entry.importance, ErrorTarget) for entry in job.workload.entries]
    if not any(has_target):
        return
    if not all(has_target) or job.workload.objective != "worst":
        raise InvalidInput("a 'target' needs 'objective: worst' and a target in every other group of the workload; add them")


def _check_budget(job: Job) -> None:
    """The loss of the release, and of the selection before it, within what the data set's cap allows at all."""
    delta, guarantee = _selection_failure(job), job.guarantee
    guarantee.ledger.check(replace(guarantee.budget.loss_beside(delta, job.norms[0]), failure=delta), delta)
