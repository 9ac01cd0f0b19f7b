"""From a spec to its job: the one place that reads a whole spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from dpdist.digests import canonical_form
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes.private_values import PrivateCategories
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.job import GrowingSeries, Guarantee, Job, Outputs, SingleRelease
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.job_source import Origin
from dpdist.spec.job_workload import JobWorkload
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.amount_columns import ColumnSpec
from dpdist.spec.sections.budgets import ReleaseBudgetSpec
from dpdist.spec.sections.thresholded_cells import KeySpec
from dpdist.spec.steps.step_registry import step_classes

NONE = Fraction(0)
Before = Mapping[type[BudgetedStep], int]
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
    next_step = _next_step(spec, again, spent, before)
    persons, unknown = records.count == "persons", placeholders or next_step is not None
    uncounted_columns: dict[str, ColumnSpec | KeySpec] = {
        name: column for section in spec.plugin_sections for name, column in section.uncounted_columns.items()
    }
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
        next_step=next_step,
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
            None if spec.site is None else spec.site.theme(files),
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


def _next_step(spec: ReleaseSpec, again: Callable[..., Job], spent: Fraction, before: Before) -> BudgetedStep | None:
    """What a part of the budget finds next, None where nothing is left to be found: what is found enters what is found after it."""
    declared = ((kind, declaration) for kind in step_classes(spec) for declaration in kind.declarations(spec))
    kind, declaration = next(declared, (None, None))
    if kind is None or declaration is None:
        return None
    number, selections = before.get(kind, 0), (attribute_spec.values for attribute_spec in spec.domain.values())
    after = partial(again, spent=spent + declaration.step_spec.share, before={**before, kind: number + 1})
    return kind(
        declaration.step_spec,
        partial(_job_with, spec, after, declaration.changed_parts),
        spent,
        sum((values.selection.delta for values in selections if isinstance(values, PrivateCategories)), NONE),
        declaration.subject,
        number,
        spec.noise == LAPLACE,
    )


def _job_with(
    spec: ReleaseSpec,
    again: Callable[..., Job],
    changed_parts: Callable[[Any], Mapping[str, Any]],
    values: Any,
    budget: ReleaseBudgetSpec,
) -> Job:
    """The job with what was found, or with placeholders for it (None), and a budget."""
    return again(spec.model_copy(update={**changed_parts(values), "budget": budget}), placeholders=values is None)
