"""What a spec as a whole must keep to: rules between its parts, each told with the line that breaks it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.mechanisms.planner import considered, of_worst
from dpdist.mechanisms.registry import AUTO, REGISTRY, mechanism_of
from dpdist.privacy.accounting import Loss
from dpdist.privacy.distributions import Kind
from dpdist.records.column_types import ColumnType
from dpdist.spec.attributes.private import Private
from dpdist.spec.dates import through_of
from dpdist.spec.explained import located, where_of
from dpdist.spec.model import ReleaseSpec
from dpdist.spec.queries.importance import ErrorTarget
from dpdist.spec.sources import InFiles, InQuery
from dpdist.spec.yaml_text import Lines
from dpdist.strategies.filters import has_square_root
from dpdist.workloads.kinds import is_long


def check(spec: ReleaseSpec, folder: Path, lines: Lines, name: str) -> None:
    """Hold a spec to the rules between its parts. Raises: InvalidSpec with the line, what was found and what to do."""
    for attribute, part in spec.domain.items():
        located(partial(part.attribute, attribute, folder=folder), ("domain", attribute), lines, name)
    located(lambda: spec.attributes, ("domain",), lines, name)
    refusal = spec.quantity.refuses(spec.beside)
    if refusal is not None:
        raise InvalidSpec(f"{where_of(refusal[0], lines, name)}: {refusal[1]}")
    located(spec.records.location.check_address, ("records", spec.records.location.key()), lines, name)
    located(lambda: _check_columns(spec), ("records", "columns"), lines, name)
    located(lambda: _check_types(spec), ("records", "types"), lines, name)
    located(lambda: _check_roles(spec), ("records",), lines, name)
    located(lambda: _check_participations(spec), ("records", "person", "participations"), lines, name)
    located(lambda: _check_counts(spec), ("records", "counts"), lines, name)
    for i, entry in enumerate(spec.workload):
        located(partial(entry.workload, spec.attributes, folder), ("workload", i), lines, name)
    located(lambda: spec.known, ("postprocess", "known"), lines, name)
    located(lambda: _check_suppression(spec), ("postprocess", "suppress"), lines, name)
    located(lambda: _check_noise(spec), ("noise",), lines, name)
    located(lambda: _check_companions(spec), ("postprocess", "consistent_with"), lines, name)
    located(lambda: _check_mechanism(spec), ("mechanism",), lines, name)
    located(lambda: _check_around(spec), ("workload",), lines, name)
    located(lambda: _check_long(spec), ("sums",), lines, name)
    located(lambda: _check_stream(spec), ("stream",), lines, name)
    located(lambda: _check_extension(spec), ("stream", "extended_from"), lines, name)
    located(
        lambda: _check_selection(spec),
        ("domain", next(iter(spec.domain)) if spec.selecting is None else spec.selecting[0]),
        lines,
        name,
    )
    located(lambda: _check_budget(spec), ("budget",), lines, name)
    located(lambda: spec.ledger.check_period(spec.period), ("ledger", "cap", "per"), lines, name)


def _check_columns(spec: ReleaseSpec) -> None:
    unknown = sorted(set(spec.records.columns) - set(spec.domain) - set(spec.sums))
    if unknown:
        raise InvalidInput(
            f"'records.columns' names {unknown[0]!r}, which is not an attribute of the domain ({', '.join(spec.domain)})"
        )


def _check_types(spec: ReleaseSpec) -> None:
    """Declared types convert to what the columns are counted as; a query may read more columns from files than are counted."""
    given, uses = spec.records, spec.uses if spec.table is not None else {}
    person, counts = given.person.column, None if given.counts is None else given.counts.column
    used = {given.columns.get(part.name, part.name): part for part in spec.attributes.attributes}
    known = given.types if isinstance(given.location, InQuery) else {*used, person, counts, *uses}
    unknown = next((name for name in given.types if name not in known), None)
    if unknown is not None:
        raise InvalidInput(f"'records.types' declares {unknown!r}, which is no column that is counted; leave it out")
    for name, kind in given.types.items():
        allowed: tuple[ColumnType, ...] = ("text", "whole", "number", "date", "time", "boolean")
        if name in used and used[name].edges:
            allowed = ("text", "date", "time") if used[name].times is not None else ("text", "whole", "number")
        elif name == person:
            allowed = ("text", "whole")
        elif name == counts:
            allowed = ("text", "whole", "number")
        if kind not in allowed:
            those = ", ".join(map(repr, allowed))
            raise InvalidInput(
                f"{name!r} is declared {kind!r}, which is not how it is counted; allowed are {those}: declare one of "
                "them, or call the column that a query computes something else"
            )


def _check_roles(spec: ReleaseSpec) -> None:
    """A column says one thing of a record."""
    counts = None if spec.records.counts is None else spec.records.counts.column
    roles = (("identifies persons", spec.records.person.column), ("says how many records a row stands for", counts))
    columns = {spec.records.columns.get(name, name): name for name in (*spec.domain, *spec.sums)}
    found = next(((role, column) for role, column in roles if column in columns), None)
    if found is not None:
        role, column = found
        raise InvalidInput(
            f"{column!r} {role} and is also the attribute {columns[column]!r}; remove the attribute, or name another column"
        )


def _check_participations(spec: ReleaseSpec) -> None:
    """A bound on the steps of a person, which only a series has."""
    person = spec.records.person
    if person.participations is None:
        return
    if not spec.workload[0].kind.over_time or person.most_groups is not None:
        raise InvalidInput(
            "'participations' bounds in how many steps of a series one person has records: ask for 'filters' of it first, and leave "
            "'most_groups' out"
        )


def _check_counts(spec: ReleaseSpec) -> None:
    """Records that were counted before belong to nobody any more."""
    counts, location = spec.records.counts, spec.records.location
    array = location.format is not None and not location.format.holds_rows
    if (counts is None and array) or (counts is not None and counts.column is None and not array):
        raise InvalidInput(
            f"{Path(location.called).name} holds counts, not records: say what it counts, counts: {{of: ...}}"
            if array
            else "name the column that says how many records a row stands for: counts: {column: ..., of: ...}"
        )
    if counts is not None and spec.records.person.column is not None:
        raise InvalidInput(
            "a row of counts stands for records of several persons, whose contributions cannot be bounded any more: leave 'person.column' "
            "out and say with 'most_records' how many one person has at most, or give the records themselves"
        )
    beyond = any(part.missing is not None or part.other is not None for part in spec.domain.values())
    header = isinstance(location, InFiles) and location.header
    columns = spec.records.columns or header or spec.sums or (counts and counts.column)
    if array and (beyond or columns or spec.selecting):
        raise InvalidInput(
            "an array has an axis for each attribute, with its declared values alone, and no columns: leave 'missing', 'other', "
            "'counts.column', 'columns', 'header', 'sums' and private categories out"
        )


def _check_companions(spec: ReleaseSpec) -> None:
    """Releases that are combined are of the same cells and of the same kind of noise."""
    for other in spec.companions:
        if other.release == spec.release or [each.release for each in spec.companions].count(other.release) > 1:
            raise InvalidInput(f"release {other.release!r} is named twice; name other, earlier releases")
        if spec.table is not None or other.table is not None:
            raise InvalidInput(
                "releases are combined when both read the same files: write the rows of a query or table to a file first"
            )
        same = (other.attributes, other.ledger.dataset, other.norms, other.around, other.selecting)
        if same != (spec.attributes, spec.ledger.dataset, spec.norms, spec.around, None) or len(spec.norms) > 1:
            raise InvalidInput(
                f"release {other.release!r} cannot be combined: it needs the same domain, without names that are selected privately, the "
                "same data set, counts, and the same kind of noise, which 'noise: auto' does not say"
            )


def _check_around(spec: ReleaseSpec) -> None:
    """Distances from a public count are taken of the counted table before anything is measured: all queries must be of them."""
    centres = {entry.kind.centre for entry in spec.workload}
    if centres == {None}:
        return
    series = [entry.kind.series for entry in spec.workload if entry.kind.over_time]
    asked = {name for each in series for name in (each.of, *each.by)}
    if len(centres) > 1 or asked != set(spec.domain):
        raise InvalidInput(
            "'around' filters distances from one public count: all entries of the workload must be filters around the same count, "
            "of all attributes of the domain"
        )


def _check_stream(spec: ReleaseSpec) -> None:
    """A stream is one filter of the past, and every release of it measures whole steps."""
    if spec.stream is None:
        return
    if (
        len(spec.workload) > 1
        or not spec.workload[0].kind.over_time
        or not mechanism_of(spec.chosen).streams
        or mechanism_of(spec.chosen).refuses(spec.queries) is not None
        or (is_long(spec.queries) and not has_square_root(spec.queries))
    ):
        able = " or ".join(repr(name) for name, each in REGISTRY.items() if each.streams)
        raise InvalidInput(
            "a stream publishes one filter of the past (running_sum, window, mean, exponential, polynomial or a file), with "
            f"'mechanism: auto', {able}"
        )
    through_of(spec.stream, spec.attributes.attribute(spec.series.of))


def _check_extension(spec: ReleaseSpec) -> None:
    """A horizon that was extended: by a mechanism that goes on with the same integers, under a cap on all releases together."""
    if spec.stream is None or not spec.stream.extended_from:
        return
    if not mechanism_of(spec.chosen).extends:
        able = " or ".join(repr(name) for name, each in REGISTRY.items() if each.extends)
        raise InvalidInput(
            f"mechanism {spec.chosen!r} measures for one horizon only, which cannot be extended: begin another stream, with {able} if it "
            "may grow further"
        )
    if spec.ledger.cap.per != "total":
        raise InvalidInput(
            f"a longer series reveals more of the records of periods whose budgets are closed: under a cap per {spec.ledger.cap.per} a "
            "stream is not extended; begin another stream"
        )
    sizes = [each.queries.shape[1] for each in spec.horizons]
    if sorted(set(sizes)) != sizes:
        raise InvalidInput(
            "every extension adds steps: 'extended_from' lists the former ends, oldest first, all before the domain's end"
        )


def _check_suppression(spec: ReleaseSpec) -> None:
    """Answers that can lie clearly above a number: counts of records with the error that is published with them."""
    options = spec.postprocess
    if options.suppress is None:
        return
    if not any(spec.counted):
        raise InvalidInput(
            "'suppress' compares counts of records with a number, and no group of the workload has any: leave it out"
        )
    if options.non_negative or (spec.mechanism != AUTO and mechanism_of(spec.mechanism).adaptive):
        raise InvalidInput(
            "'suppress' is predicted from standard errors, which do not tell the bias of 'non_negative' and of mechanism 'dawa': leave "
            "one out"
        )


def _check_selection(spec: ReleaseSpec) -> None:
    """Names are selected for one attribute, by Gaussian noise, and released once."""
    if spec.selecting is None:
        return
    name, _ = spec.selecting
    others = [other for other, part in spec.domain.items() if isinstance(part.values, Private) and other != name]
    if others:
        raise InvalidInput(
            f"one attribute of a release can have private categories, found {name!r} and {others[0]!r}: list the others' values"
        )
    if spec.stream is not None or spec.postprocess.consistent_with:
        raise InvalidInput(
            "private categories go without 'stream' and 'consistent_with', which need one domain for several releases"
        )
    if spec.norms != ("l2",):
        raise InvalidInput(
            "'categories: private' has a delta: it needs Gaussian noise, that is 'noise: gaussian' and a budget with 'delta' or 'rho'"
        )
    spec.with_names(None)


def _check_long(spec: ReleaseSpec) -> None:
    """Series of sums are held."""
    if spec.attributes.sums_alone and is_long(spec.queries):
        raise InvalidInput("sums are not added up along a series that is too long to be held: take longer steps")


def _check_noise(spec: ReleaseSpec) -> None:
    """A kind of noise that the budget does not buy."""
    if "noise" in spec.model_fields_set and spec.noise != AUTO:
        spec.budget.loss_with(Kind(spec.noise).norm)


def _check_mechanism(spec: ReleaseSpec) -> None:
    """A mechanism that needs the other kind of noise than the budget allows, cannot have the objective, or cannot answer."""
    pure, chosen = spec.norms == ("l1",), None if spec.chosen == AUTO else mechanism_of(spec.chosen)
    _check_targets(spec)
    if spec.objective == "worst":
        of_worst(() if pure else considered(spec.chosen, "l2", spec.queries, spec.limits.limits))
    if chosen is None:
        return
    if not chosen.noises & set(spec.norms):
        other, cure = (
            "Laplace",
            "give the budget an 'epsilon' alone" if spec.budget.rho is not None else "set 'noise: laplace'",
        )
        if pure:
            other, cure = "Gaussian", "give the budget a 'delta'" if spec.budget.pure else "set 'noise: gaussian'"
        raise InvalidInput(f"mechanism {chosen.name!r} uses {other} noise: {cure}, or choose another")
    chosen.check(spec.queries)


def _check_targets(spec: ReleaseSpec) -> None:
    """Targets are errors of all queries, and stand in the place of weights."""
    given = [isinstance(entry.importance, ErrorTarget) for entry in spec.workload]
    if not any(given):
        return
    if not all(given) or spec.objective != "worst":
        raise InvalidInput("a 'target' needs 'objective: worst' and a target in every other group of the workload; add them")


def _check_budget(spec: ReleaseSpec) -> None:
    """The loss of the release, and of the selection before it, within what the data set's cap allows at all."""
    if spec.selecting is None:
        spec.ledger.check(spec.budget.loss_with(spec.norms[0]))
        return
    delta = spec.selecting[1].delta
    spec.ledger.check(replace(Loss.gaussian(spec.budget.rho_beside(delta)), failure=delta), delta)
