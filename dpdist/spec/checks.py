"""What a spec as a whole must keep to: rules between its parts, each told with the line that breaks it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from dpdist.errors import InvalidInput
from dpdist.mechanisms.planner import considered, of_worst
from dpdist.mechanisms.registry import AUTO, REGISTRY, mechanism_of
from dpdist.privacy.accounting import Loss
from dpdist.records.column_types import ColumnType
from dpdist.spec.attributes.private import Private
from dpdist.spec.dates import through_of
from dpdist.spec.explained import located
from dpdist.spec.model import CELL_BY_CELL, ReleaseSpec
from dpdist.spec.queries.dnf import DnfQuery
from dpdist.spec.queries.importance import ErrorTarget
from dpdist.spec.sources import InQuery
from dpdist.spec.yaml_text import Lines
from dpdist.strategies.filters import has_square_root
from dpdist.workloads.kinds import is_long


def check(spec: ReleaseSpec, folder: Path, lines: Lines, name: str) -> None:
    """Hold a spec to the rules between its parts. Raises: InvalidSpec with the line, what was found and what to do."""
    for attribute, part in spec.domain.items():
        located(partial(part.attribute, attribute, folder=folder), ("domain", attribute), lines, name)
    located(lambda: _check_sums(spec), ("sums",), lines, name)
    located(lambda: spec.attributes, ("domain",), lines, name)
    located(spec.records.location.check_address, ("records", spec.records.location.key()), lines, name)
    located(lambda: _check_columns(spec), ("records", "columns"), lines, name)
    located(lambda: _check_csv(spec), ("records", "csv"), lines, name)
    located(lambda: _check_types(spec), ("records", "types"), lines, name)
    located(lambda: _check_person(spec), ("records", "person", "column"), lines, name)
    located(lambda: _check_groups(spec), ("records", "person"), lines, name)
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
    located(lambda: _check_stream(spec), ("stream",), lines, name)
    located(lambda: _check_extension(spec), ("stream", "extended_from"), lines, name)
    located(
        lambda: _check_selection(spec),
        ("domain", next(iter(spec.domain)) if spec.selecting is None else spec.selecting[0]),
        lines,
        name,
    )
    located(lambda: _check_budget(spec), ("budget",), lines, name)
    located(lambda: _check_period(spec), ("ledger", "cap", "per"), lines, name)


def _check_columns(spec: ReleaseSpec) -> None:
    unknown = sorted(set(spec.records.columns) - set(spec.domain) - set(spec.sums))
    if unknown:
        raise InvalidInput(
            f"'records.columns' names {unknown[0]!r}, which is not an attribute of the domain ({', '.join(spec.domain)})"
        )


def _check_csv(spec: ReleaseSpec) -> None:
    if spec.records.location.grammar.dates is not None and all(part.times is None for part in spec.attributes.attributes):
        raise InvalidInput("'records.csv.dates' says how dates are written, and no attribute has 'dates': leave it out")


def _check_types(spec: ReleaseSpec) -> None:
    """Declared types convert to what the columns are counted as; a query may read more columns from files than are counted."""
    given, uses = spec.records, spec.uses if spec.table is not None else {}
    person, counts = given.person.column, None if given.counts is None else given.counts.column
    used = {given.columns.get(part.name, part.name): part for part in spec.attributes.attributes}
    unknown = next(
        (
            name
            for name in given.types
            if not isinstance(given.location, InQuery) and name not in (*used, person, counts, *uses)
        ),
        None,
    )
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


def _check_person(spec: ReleaseSpec) -> None:
    person = spec.records.person.column
    counted = next((name for name in (*spec.domain, *spec.sums) if spec.records.columns.get(name, name) == person), None)
    if counted is not None:
        raise InvalidInput(
            f"{person!r} identifies persons and is also the attribute {counted!r}; remove the attribute, or name another person column"
        )


def _check_groups(spec: ReleaseSpec) -> None:
    """A bound on the groups of a person, and counts of persons, for which alone such a bound is needed."""
    person, every = spec.records.person, set(spec.domain)
    if person.most_groups is not None:
        if person.column is None:
            raise InvalidInput(
                "'most_groups' bounds the groups of a person: name the 'column' that identifies persons, or leave it out"
            )
        if spec.mechanism not in (AUTO, CELL_BY_CELL):
            raise InvalidInput(
                f"'most_groups' measures every cell by itself: set 'mechanism: {CELL_BY_CELL}', or leave 'mechanism' out"
            )
        if spec.stream is not None or spec.around is not None or spec.sums or spec.objective == "worst":
            raise InvalidInput("'most_groups' goes without 'stream', 'around', 'sums' and 'objective: worst': leave one out")
        if any(entry.kind.over_time for entry in spec.workload):
            raise InvalidInput("'most_groups' measures every cell by itself, filters measure series: leave one out")
    if spec.records.count == "records":
        return
    if person.most_groups is None or person.most_records != 1:
        raise InvalidInput(
            "'count: persons' counts every person once in each of some groups: give 'person' a 'column' and 'most_groups', and leave "
            "'most_records' out"
        )
    asked = [entry.kind.tables for entry in spec.workload]
    if any(len(tables) != 1 or set(tables[0]) != every or len(tables[0]) != len(every) for tables in asked):
        raise InvalidInput(
            f"'count: persons' publishes one table of all attributes, 'marginals: {{of: [[{', '.join(spec.domain)}]]}}': persons of other "
            "tables are no sums of these, so make a release of its own for each"
        )
    options = spec.postprocess
    if options.known or options.consistent_with or any(part.levels for part in spec.attributes.attributes):
        raise InvalidInput(
            "'count: persons' goes without 'known', 'consistent_with' and levels, which add up groups: leave them out"
        )


def _check_participations(spec: ReleaseSpec) -> None:
    """A bound on the steps of a person, which only a stream has."""
    person = spec.records.person
    if person.participations is None:
        if person.separation != 1:
            raise InvalidInput("'separation' lies between the steps of one person: say in how many, with 'participations'")
        return
    if spec.stream is None or person.most_groups is not None or spec.records.counts is not None:
        raise InvalidInput(
            "'participations' bounds in how many steps of a stream one person has records: give the release a 'stream', and leave out "
            "'most_groups' and 'counts'"
        )


def _check_counts(spec: ReleaseSpec) -> None:
    """Records that were counted before belong to nobody any more, and the numbers of them are no attribute."""
    counts, location = spec.records.counts, spec.records.location
    array = location.format is not None and not location.format.holds_rows
    if counts is None and array:
        raise InvalidInput(
            f"{Path(location.called).name} holds counts, not records: say what it counts, counts: {{of: ...}}"
        )
    if counts is None:
        return
    if spec.records.person.column is not None:
        raise InvalidInput(
            "a row of counts stands for records of several persons, whose contributions cannot be bounded any more: leave 'person.column' "
            "out and say with 'most_records' how many one person has at most, or give the records themselves"
        )
    if array and (counts.column is not None or spec.records.columns):
        raise InvalidInput("an array has no columns: leave 'counts.column' and 'columns' out")
    if counts.column is None and not array:
        raise InvalidInput("name the column that says how many records a row stands for: counts: {column: ..., of: ...}")
    attribute = next((name for name in spec.domain if spec.records.columns.get(name, name) == counts.column), None)
    if attribute is not None:
        raise InvalidInput(
            f"{counts.column!r} says how many records a row stands for and is also the attribute {attribute!r}; remove the attribute, or "
            "name another column"
        )
    if spec.sums:
        raise InvalidInput(
            "a row of counts has no amount of each of its records: give the records themselves, or leave 'sums' out"
        )


def _check_sums(spec: ReleaseSpec) -> None:
    """Columns of amounts have names of their own, are asked for, and go with what divides records."""
    if not spec.sums:
        return
    taken = next((name for name in spec.sums if name in spec.domain), None)
    if taken is not None:
        raise InvalidInput(f"{taken!r} is an attribute of the domain and a column of 'sums'; give one of them another name")
    idle = next((name for name in spec.sums if not any(entry.statistic.adds_up(name) for entry in spec.workload)), None)
    if idle is not None:
        raise InvalidInput(
            f"no group of the workload asks for {idle!r}; add 'sum: {idle}' to one, or leave it out of 'sums'"
        )
    if spec.stream is not None or any(isinstance(entry.kind, DnfQuery) for entry in spec.workload):
        raise InvalidInput(
            "a release with 'sums' has no stream or formulas ('dnf'): the parts of a stream do not hold the range and the step of amounts; "
            "make a release of its own for them, or publish filters of sums over whole periods"
        )
    _check_totals(spec)
    options = spec.postprocess
    if any(entry.kind.over_time for entry in spec.workload):
        _check_series(spec)
    if options.suppress is not None:
        raise InvalidInput(
            "'suppress' compares counts of records with a number, and sums are no counts: leave 'suppress' or 'sums' out"
        )
    made = next((entry.statistic.key() for entry in spec.workload if entry.statistic.made), None)
    if made is not None and (options.known or options.non_negative or options.consistent_with):
        raise InvalidInput(
            f"{made}s are made of the measurement alone, and 'known', 'non_negative' and 'consistent_with' would change the sums beside "
            f"them: ask for 'sum' in place of {made!r}, or leave them out"
        )
    alone = any(entry.kind.over_time for entry in spec.workload)
    if spec.mechanism != AUTO and not (
        mechanism_of(spec.mechanism).divides or (alone and mechanism_of(spec.mechanism).adds)
    ):
        able = ", ".join(repr(name) for name, each in REGISTRY.items() if each.divides or (alone and each.adds))
        raise InvalidInput(
            f"mechanism {spec.mechanism!r} counts whole records, and sums divide them; set 'mechanism: auto', or choose {able}"
        )


def _check_totals(spec: ReleaseSpec) -> None:
    """The total of a person is bounded where persons are told apart, of one column, and cells may then be negative."""
    bounded = next((name for name, part in spec.sums.items() if part.most_per_person is not None), None)
    if bounded is None:
        return
    if spec.records.person.column is None:
        raise InvalidInput(
            f"'most_per_person' of {bounded!r} bounds the total of a person: name the 'column' that identifies persons under "
            "'records: person', or leave it out"
        )
    if len(spec.sums) > 1:
        raise InvalidInput(
            f"'most_per_person' of {bounded!r} needs a release with one column of 'sums', found {len(spec.sums)}; make a release for each, "
            "or leave it out"
        )
    if spec.postprocess.non_negative:
        raise InvalidInput(
            "'non_negative' fits cells, and where 'most_per_person' bounds totals the cells of the ends may be negative: leave one out"
        )


def _check_series(spec: ReleaseSpec) -> None:
    """Filters of sums: all that a release asks for is sums of one column."""
    if any(entry.kind.over_time and not entry.statistic.columns for entry in spec.workload):
        raise InvalidInput("where filters count records, a release has no 'sums': make a release of its own for each")
    asked = {entry.statistic for entry in spec.workload}
    if len(asked) > 1:
        raise InvalidInput(
            "where filters add up amounts, every group of the workload asks for the 'sum' of the same column: make a release of its own "
            "for counts, means and other columns"
        )
    options = spec.postprocess
    if options.known or options.non_negative or options.consistent_with:
        raise InvalidInput(
            "'known', 'non_negative' and 'consistent_with' are about counts of records: leave them out where filters add up amounts"
        )
    if spec.selecting is not None:
        raise InvalidInput(
            "where filters add up amounts, all categories are declared: list them, or make a release of its own for private ones"
        )
    if is_long(spec.queries):
        raise InvalidInput("sums are not added up along a series that is too long to be held: take longer steps")


def _check_companions(spec: ReleaseSpec) -> None:
    """Releases that are combined are of the same cells and of the same kind of noise."""
    for other in spec.companions:
        if other.selecting is not None:
            raise InvalidInput(
                f"release {other.release!r} selects names privately, and nothing can be combined with it: leave it out"
            )
        if other.release == spec.release or [each.release for each in spec.companions].count(other.release) > 1:
            raise InvalidInput(f"release {other.release!r} is named twice; name other, earlier releases")
        if spec.table is not None or other.table is not None:
            raise InvalidInput(
                "releases are combined when both read the same files: write the rows of a query or table to a file first"
            )
        if len(spec.norms) > 1 or len(other.norms) > 1:
            raise InvalidInput(
                "releases are combined when their kind of noise is known: set 'noise' to 'gaussian' or 'laplace'"
            )
        same = (other.attributes, other.ledger.dataset, other.norms, other.around)
        if same != (spec.attributes, spec.ledger.dataset, spec.norms, spec.around):
            raise InvalidInput(
                f"release {other.release!r} cannot be combined: it needs the same domain, data set and kind of noise, and counts"
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
    if spec.neighbours != "add-remove":
        raise InvalidInput(
            "'around' needs 'neighbours: add-remove'; a replaced record is two changes: write 'most_records: 2' instead"
        )
    if spec.postprocess.known or spec.postprocess.non_negative or spec.postprocess.consistent_with:
        raise InvalidInput(
            "'around' publishes distances, not counts: leave 'known', 'non_negative' and 'consistent_with' out"
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
    series = spec.attributes.attribute(spec.series.of)
    edges, labels = series.edges, series.labels
    if not edges[0] <= through_of(spec.stream, series) < edges[-1]:
        shown = (
            f"{edges[0]:g} to below {edges[-1]:g}" if series.times is None else f"{labels[0]} to {labels[series.values - 1]}"
        )
        raise InvalidInput(f"'through' is a value of {series.name!r}, {shown}, found {spec.stream.through}")
    options = spec.postprocess
    pure = "l1" in spec.norms
    if pure or spec.around is not None or options.known or options.non_negative or options.consistent_with:
        raise InvalidInput(
            "a stream uses Gaussian noise (give the budget a 'delta' or 'rho') and goes without 'around', 'known', 'non_negative' "
            "and 'consistent_with'"
        )


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
    if not all(entry.kind.counts_records for entry in spec.workload):
        raise InvalidInput(
            "'suppress' compares counts of records with a number; filters and rows of your own may be differences: leave one out"
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
    name, selection = spec.selecting
    others = [other for other, part in spec.domain.items() if isinstance(part.values, Private) and other != name]
    if others:
        raise InvalidInput(
            f"one attribute of a release can have private categories, found {name!r} and {others[0]!r}: list the others' values"
        )
    if spec.stream is not None or spec.around is not None or spec.postprocess.consistent_with:
        raise InvalidInput(
            "private categories go without 'stream', 'around' and 'consistent_with', which need one domain for several releases"
        )
    if spec.records.counts is not None:
        raise InvalidInput(
            "private categories are selected from records: list the categories of records that were counted before"
        )
    if spec.norms != ("l2",):
        raise InvalidInput(
            "'categories: private' has a delta: it needs Gaussian noise, that is 'noise: gaussian' and a budget with 'delta' or 'rho'"
        )
    if spec.ledger.cap.selection < selection.delta:
        raise InvalidInput(
            f"a selection with delta {float(selection.delta):g} needs a cap that sets as much aside for selections, found "
            f"{float(spec.ledger.cap.selection):g}: add 'selection: {float(selection.delta):g}' to 'ledger: cap'"
        )
    spec.with_names(None)


def _check_noise(spec: ReleaseSpec) -> None:
    """A kind of noise that the budget does not buy."""
    if "noise" in spec.model_fields_set and spec.noise != AUTO:
        spec.budget.loss_with("l1" if spec.noise == "laplace" else "l2")


def _check_mechanism(spec: ReleaseSpec) -> None:
    """A mechanism that needs the other kind of noise than the budget allows, cannot have the objective, or cannot answer."""
    pure, chosen = spec.norms == ("l1",), None if spec.mechanism == AUTO else mechanism_of(spec.mechanism)
    _check_targets(spec)
    if spec.objective == "worst":
        of_worst(() if pure else considered(spec.chosen, "l2", spec.queries, spec.limits.limits))
    if chosen is None:
        return
    if pure and "l1" not in chosen.noises:
        cure = "give the budget a 'delta'" if spec.budget.pure else "set 'noise: gaussian'"
        raise InvalidInput(f"mechanism {chosen.name!r} uses Gaussian noise: {cure}, or choose another")
    if spec.norms == ("l2",) and "l2" not in chosen.noises:
        cure = "give the budget an 'epsilon' alone" if spec.budget.rho is not None else "set 'noise: laplace'"
        raise InvalidInput(f"mechanism {chosen.name!r} uses Laplace noise: {cure}, or choose another")
    chosen.check(spec.queries)


def _check_targets(spec: ReleaseSpec) -> None:
    """Targets are errors of all queries, and stand in the place of weights."""
    given = [isinstance(entry.importance, ErrorTarget) for entry in spec.workload]
    if any(given) and not (all(given) and spec.objective == "worst"):
        raise InvalidInput("a 'target' needs 'objective: worst' and a target in every other group of the workload; add them")


def _check_budget(spec: ReleaseSpec) -> None:
    cap = spec.ledger.cap.cap
    if spec.selecting is None:
        loss = spec.budget.loss_with(spec.norms[0])
    else:
        delta = spec.selecting[1].delta
        loss = replace(Loss.gaussian(spec.budget.rho_beside(delta)), failure=delta)
    if cap.pure and loss.rho:
        raise InvalidInput(
            "the data set's cap is a pure epsilon, which Gaussian noise can never keep: give the release an 'epsilon' without "
            "'delta', or the cap a 'delta'"
        )
    if not cap.allows(loss):
        amount, limit = float(cap.amount(loss)), float(cap.limit)
        raise InvalidInput(
            f"the release asks for {cap.unit}={amount:.6g}, the data set's whole cap is {cap.unit}={limit:.6g}; lower the budget"
        )


def _check_period(spec: ReleaseSpec) -> None:
    if spec.ledger.cap.per != "total" and spec.period is None:
        raise InvalidInput(f"a budget per {spec.ledger.cap.per} needs the release's day; add 'period: YYYY-MM-DD'")
