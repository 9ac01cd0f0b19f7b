"""From a spec to its job: the one place that reads a whole spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from dpdist.digests import canonical_form
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.attributes.private_values import PrivateCategories, PrivateEdges
from dpdist.spec.job import GrowingSeries, Guarantee, Job, Outputs, SingleRelease
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.job_source import Origin
from dpdist.spec.job_workload import JobWorkload
from dpdist.spec.preprocessing_budget import (
    DeclaredNames,
    EdgesStep,
    GroupsBound,
    NameSelectionStep,
    PreprocessingStep,
    QuantileStep,
    RangeBound,
    RecordsBound,
    ThresholdedStep,
    TruncationLossStep,
)
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.amount_columns import ColumnSpec, SumSpec
from dpdist.spec.sections.budgets import ReleaseBudgetSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.sections.thresholded_cells import KeySpec
from dpdist.theme import DEFAULT_THEME

NONE = Fraction(0)
Before = Mapping[Callable[..., PreprocessingStep], int]
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
    "gate",
    "site",
    "sums",
    "noise",
}
"""Parts of a spec that a digest does not cover as they are written: it covers what they mean, or they decide nothing that is measured."""


def compile_job(
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
    again = partial(compile_job, folder=folder, files=files, sizes=sizes, companions=companions)
    person, first_kind = records.person, entries[0].kind
    names = next(_preprocessing_steps(spec, again, spent, before), DeclaredNames())
    persons, unknown = records.count == "persons", placeholders or isinstance(names, PreprocessingStep)
    uncounted_columns: dict[str, ColumnSpec | KeySpec] = {} if spec.quantiles is None else {**spec.quantiles.of}
    uncounted_columns |= {} if spec.thresholded is None else spec.thresholded.of
    measured = CountedCells(
        spec.domain, spec.sums, entries, person.records, persons, files, sizes, unknown, uncounted_columns
    )
    former_spec = _former_spec(spec)
    release_mode: SingleRelease | GrowingSeries = SingleRelease()
    if spec.stream is not None:
        release_mode = GrowingSeries(spec.stream, entries[0], measured, None if former_spec is None else again(former_spec))
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
        release_mode=release_mode,
        names=names,
        stated={
            **{name: content for name, content in canonical_form(spec).items() if name not in NOT_STATED},
            **_stated_noise(spec),
        },
    )
    return Job(
        Origin(records, folder, tuple(spec.domain), first_kind.series.of if first_kind.over_time else None),
        measured,
        JobWorkload(entries, measured, spec.mechanism, spec.objective, spec.tolerance, limits, eigen),
        guarantee,
        Outputs(
            spec.title or spec.release,
            spec.language,
            measured,
            spec.output,
            spec.postprocess,
            spec.about,
            DEFAULT_THEME if spec.site is None else spec.site.theme(files),
            {
                name: drawn
                for name, content in spec.domain.items()
                if (drawn := content.values.boundaries(files)) is not None
            },
            companions,
            spec.gate,
        ),
    )


def _stated_noise(spec: ReleaseSpec) -> dict[str, str]:
    """The kind of noise as digests cover it: as they did when Gaussian noise was the default (docs/decisions/0010-mechanisms.md)."""
    return {"noise": spec.noise} if "noise" in spec.model_fields_set and spec.noise != GAUSSIAN else {}


def _former_spec(spec: ReleaseSpec) -> ReleaseSpec | None:
    """The spec of the stream before its horizon was last extended, None where it never was."""
    kind = spec.workload[0].kind
    if spec.stream is None or not spec.stream.extended_from or not kind.over_time or kind.series.of not in spec.domain:
        return None
    attribute_name = kind.series.of
    *before, end = spec.stream.extended_from
    shortened = spec.domain[attribute_name].with_end(end)
    stream = spec.stream.model_copy(update={"extended_from": tuple(before), "through": shortened.values.begin})
    return spec.model_copy(update={"domain": {**spec.domain, attribute_name: shortened}, "stream": stream})


def _preprocessing_steps(
    spec: ReleaseSpec, again: Callable[..., Job], spent: Fraction, before: Before
) -> Iterator[PreprocessingStep]:
    """What parts of the budget find, in order: what is found enters what is found after it."""
    person, loss_spec, quantiles, laplace = spec.records.person, spec.left_out, spec.quantiles, spec.noise == LAPLACE
    private = [
        (name, attribute_spec.values)
        for name, attribute_spec in spec.domain.items()
        if isinstance(attribute_spec.values, PrivateCategories)
    ]
    failure = sum((values.selection.delta for _, values in private), Fraction(0))

    def make_step(
        kind: Callable[..., PreprocessingStep], step_spec: Any, change: Callable[[Any], Any], *rule: Any, subject: str = ""
    ) -> PreprocessingStep:
        number = before.get(kind, 0)
        after = partial(again, spent=spent + step_spec.share, before={**before, kind: number + 1})
        return kind(
            step_spec.share, partial(_job_with, spec, after, change), spent, failure, subject, number, laplace, *rule
        )

    if person.selection is not None and not person.most_groups:
        yield make_step(RecordsBound, person.selection, partial(_with_person_bound, spec.records), person.selection.most)
    for name, values in private:
        yield make_step(
            NameSelectionStep, values.selection, partial(_with_attribute, spec.domain, name), values.selection, subject=name
        )
    for name, attribute_spec in spec.domain.items():
        if isinstance(attribute_spec.values, PrivateEdges):
            edges_spec = attribute_spec.values.selection
            yield make_step(EdgesStep, edges_spec, partial(_with_attribute, spec.domain, name), edges_spec, subject=name)
    if person.selection is not None and person.most_groups:
        yield make_step(GroupsBound, person.selection, partial(_with_person_bound, spec.records), person.selection.most)
    for column_name, column in spec.sums.items():
        if column.selection is not None:
            yield make_step(
                RangeBound,
                column.selection,
                partial(_with_column_range, spec.sums, column_name),
                *column.around_zero[::-1],
                subject=column_name,
            )
    if loss_spec is not None:
        yield make_step(TruncationLossStep, loss_spec, partial(_without_key, "left_out"), loss_spec.most)
    if quantiles is not None:
        yield make_step(QuantileStep, quantiles, partial(_without_key, "quantiles"), quantiles)
    if spec.thresholded is not None:
        yield make_step(ThresholdedStep, spec.thresholded, partial(_without_key, "thresholded"), spec.thresholded)


def _job_with(
    spec: ReleaseSpec,
    again: Callable[..., Job],
    change: Callable[[Any], Mapping[str, Any]],
    values: Any,
    budget: ReleaseBudgetSpec,
) -> Job:
    """The job with what was found, or with placeholders for it (None), and a budget."""
    return again(spec.model_copy(update={**change(values), "budget": budget}), placeholders=values is None)


def _with_attribute(domain: Mapping[str, AttributeSpec], attribute: str, values: Any) -> Mapping[str, Any]:
    return {"domain": {**domain, attribute: domain[attribute].with_selected_values(values)}}


def _with_person_bound(records: RecordsSpec, bound: int | None) -> Mapping[str, Any]:
    return {"records": records.model_copy(update={"person": records.person.with_bound(bound)})}


def _with_column_range(sums: Mapping[str, SumSpec], column_name: str, bound: tuple[int, int] | None) -> Mapping[str, Any]:
    return {"sums": {**sums, column_name: sums[column_name].around(bound)}}


def _without_key(key: str, ignored_values: bool | None) -> Mapping[str, Any]:
    """Without what is found beside the release."""
    return {key: None}
