"""What a spec as a whole must keep to: rules between its parts, each told with the line that breaks it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from dpdist.errors import InvalidInput
from dpdist.mechanisms.planner import considered, of_worst
from dpdist.mechanisms.registry import AUTO, REGISTRY, mechanism_of
from dpdist.privacy.accounting import Loss
from dpdist.records import remote
from dpdist.records.column_types import ColumnType
from dpdist.records.formats.registry import format_of
from dpdist.spec.compiled import CELL_BY_CELL
from dpdist.spec.dates import through_of
from dpdist.spec.explained import located
from dpdist.spec.job import Job, PrivateNames, StreamPart
from dpdist.spec.queries import workload_of
from dpdist.spec.yaml_text import Lines
from dpdist.strategies.filters import has_square_root
from dpdist.workloads.kinds import is_long


def check(job: Job, folder: Path, lines: Lines, name: str) -> None:
    """Hold a spec to the rules between its parts. Raises: InvalidSpec with the line, what was found and what to do."""
    for attribute, part in job.measured.attributes.items():
        located(partial(part.attribute, attribute, folder=folder), ("domain", attribute), lines, name)
    located(lambda: _check_sums(job), ("sums",), lines, name)
    located(lambda: job.measured.domain, ("domain",), lines, name)
    located(lambda: remote.is_remote(job.source.records.path or ""), ("records", "path"), lines, name)
    located(lambda: remote.is_remote(job.source.records.delta or ""), ("records", "delta"), lines, name)
    located(lambda: _check_columns(job), ("records", "columns"), lines, name)
    located(lambda: _check_csv(job), ("records", "csv"), lines, name)
    located(lambda: _check_types(job), ("records", "types"), lines, name)
    located(lambda: _check_person(job), ("records", "person", "column"), lines, name)
    located(lambda: _check_groups(job), ("records", "person"), lines, name)
    located(lambda: _check_participations(job), ("records", "person", "participations"), lines, name)
    located(lambda: _check_counts(job), ("records", "counts"), lines, name)
    for i, entry in enumerate(job.workload.entries):
        located(partial(workload_of, entry, job.measured.domain, folder), ("workload", i), lines, name)
    located(lambda: job.outputs.known, ("postprocess", "known"), lines, name)
    located(lambda: _check_suppression(job), ("postprocess", "suppress"), lines, name)
    located(lambda: _check_noise(job), ("noise",), lines, name)
    located(lambda: _check_companions(job), ("postprocess", "consistent_with"), lines, name)
    located(lambda: _check_mechanism(job), ("mechanism",), lines, name)
    located(lambda: _check_around(job), ("workload",), lines, name)
    located(lambda: _check_stream(job), ("stream",), lines, name)
    located(lambda: _check_extension(job), ("stream", "extended_from"), lines, name)
    located(
        lambda: _check_selection(job),
        ("domain", getattr(job.guarantee.names, "attribute", next(iter(job.measured.attributes)))),
        lines,
        name,
    )
    located(lambda: _check_budget(job), ("budget",), lines, name)
    located(lambda: _check_period(job), ("ledger", "cap", "per"), lines, name)


def _check_columns(job: Job) -> None:
    unknown = sorted(set(job.source.records.columns) - set(job.measured.attributes) - set(job.measured.sums))
    if unknown:
        raise InvalidInput(
            f"'records.columns' names {unknown[0]!r}, which is not an attribute of the domain ({', '.join(job.measured.attributes)})"
        )


def _check_csv(job: Job) -> None:
    if job.source.records.grammar.dates is not None and not any(
        part.dates is not None for part in job.measured.attributes.values()
    ):
        raise InvalidInput("'records.csv.dates' says how dates are written, and no attribute has 'dates': leave it out")


def _check_types(job: Job) -> None:
    """Declared types convert to what the columns are counted as; a query may read more columns from files than are counted."""
    given, uses = job.source.records, job.source.uses(job.measured.domain) if job.source.table is not None else {}
    person, counts = given.person.column, None if given.counts is None else given.counts.column
    used = {given.columns.get(part.name, part.name): part for part in job.measured.domain.attributes}
    unknown = next((name for name in given.types if given.sql is None and name not in (*used, person, counts, *uses)), None)
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


def _check_person(job: Job) -> None:
    person = job.source.records.person.column
    counted = next(
        (
            name
            for name in (*job.measured.attributes, *job.measured.sums)
            if job.source.records.columns.get(name, name) == person
        ),
        None,
    )
    if counted is not None:
        raise InvalidInput(
            f"{person!r} identifies persons and is also the attribute {counted!r}; remove the attribute, or name another person column"
        )


def _check_groups(job: Job) -> None:
    """A bound on the groups of a person, and counts of persons, for which alone such a bound is needed."""
    person, attributes = job.source.records.person, job.measured.attributes
    every = set(attributes)
    if person.most_groups is not None:
        if person.column is None:
            raise InvalidInput(
                "'most_groups' bounds the groups of a person: name the 'column' that identifies persons, or leave it out"
            )
        if job.workload.mechanism not in (AUTO, CELL_BY_CELL):
            raise InvalidInput(
                f"'most_groups' measures every cell by itself: set 'mechanism: {CELL_BY_CELL}', or leave 'mechanism' out"
            )
        if (
            job.guarantee.course.grows
            or job.measured.around is not None
            or job.measured.sums
            or job.workload.objective == "worst"
        ):
            raise InvalidInput("'most_groups' goes without 'stream', 'around', 'sums' and 'objective: worst': leave one out")
        if any(entry.filters is not None for entry in job.workload.entries):
            raise InvalidInput("'most_groups' measures every cell by itself, filters measure series: leave one out")
    if job.source.records.count == "records":
        return
    if person.most_groups is None or person.most_records != 1:
        raise InvalidInput(
            "'count: persons' counts every person once in each of some groups: give 'person' a 'column' and 'most_groups', and leave "
            "'most_records' out"
        )
    asked = [
        () if entry.marginals is None or entry.marginals.of is None else entry.marginals.of for entry in job.workload.entries
    ]
    if any(len(tables) != 1 or set(tables[0]) != every or len(tables[0]) != len(every) for tables in asked):
        raise InvalidInput(
            f"'count: persons' publishes one table of all attributes, 'marginals: {{of: [[{', '.join(attributes)}]]}}': persons of other "
            "tables are no sums of these, so make a release of its own for each"
        )
    options = job.outputs.postprocess
    if options.known or options.consistent_with or any(part.levels is not None for part in job.measured.attributes.values()):
        raise InvalidInput(
            "'count: persons' goes without 'known', 'consistent_with' and levels, which add up groups: leave them out"
        )


def _check_participations(job: Job) -> None:
    """A bound on the steps of a person, which only a stream has."""
    person = job.source.records.person
    if person.participations is None:
        if person.separation != 1:
            raise InvalidInput("'separation' lies between the steps of one person: say in how many, with 'participations'")
        return
    if not job.guarantee.course.grows or person.most_groups is not None or job.source.records.counts is not None:
        raise InvalidInput(
            "'participations' bounds in how many steps of a stream one person has records: give the release a 'stream', and leave out "
            "'most_groups' and 'counts'"
        )


def _check_counts(job: Job) -> None:
    """Records that were counted before belong to nobody any more, and the numbers of them are no attribute."""
    counts, path = job.source.records.counts, (job.source.records.path or "").rstrip("/")
    format_ = format_of(path)
    array = format_ is not None and not format_.holds_rows
    if counts is None and array:
        raise InvalidInput(f"{Path(path).name} holds counts, not records: say what it counts, counts: {{of: ...}}")
    if counts is None:
        return
    if job.source.records.person.column is not None:
        raise InvalidInput(
            "a row of counts stands for records of several persons, whose contributions cannot be bounded any more: leave 'person.column' "
            "out and say with 'most_records' how many one person has at most, or give the records themselves"
        )
    if array and (counts.column is not None or job.source.records.columns or job.source.records.header):
        raise InvalidInput("an array has no columns: leave 'counts.column', 'columns' and 'header' out")
    if counts.column is None and not array:
        raise InvalidInput("name the column that says how many records a row stands for: counts: {column: ..., of: ...}")
    attribute = next(
        (name for name in job.measured.attributes if job.source.records.columns.get(name, name) == counts.column), None
    )
    if attribute is not None:
        raise InvalidInput(
            f"{counts.column!r} says how many records a row stands for and is also the attribute {attribute!r}; remove the attribute, or "
            "name another column"
        )
    if job.measured.sums:
        raise InvalidInput(
            "a row of counts has no amount of each of its records: give the records themselves, or leave 'sums' out"
        )


def _check_sums(job: Job) -> None:
    """Columns of amounts have names of their own, are asked for, and go with what divides records."""
    if not job.measured.sums:
        return
    taken = next((name for name in job.measured.sums if name in job.measured.attributes), None)
    if taken is not None:
        raise InvalidInput(f"{taken!r} is an attribute of the domain and a column of 'sums'; give one of them another name")
    idle = next((name for name in job.measured.sums if not any(entry.adds_up(name) for entry in job.workload.entries)), None)
    if idle is not None:
        raise InvalidInput(
            f"no group of the workload asks for {idle!r}; add 'sum: {idle}' to one, or leave it out of 'sums'"
        )
    if job.guarantee.course.grows or any(entry.dnf is not None for entry in job.workload.entries):
        raise InvalidInput(
            "a release with 'sums' has no stream or formulas ('dnf'): the parts of a stream do not hold the range and the step of amounts; "
            "make a release of its own for them, or publish filters of sums over whole periods"
        )
    _check_totals(job)
    options = job.outputs.postprocess
    if any(entry.filters is not None for entry in job.workload.entries):
        _check_series(job)
    if options.suppress is not None:
        raise InvalidInput(
            "'suppress' compares counts of records with a number, and sums are no counts: leave 'suppress' or 'sums' out"
        )
    made = next((entry.statistic[0] for entry in job.workload.entries if entry.statistic and entry.sum is None), None)
    if made is not None and (options.known or options.non_negative or options.consistent_with):
        raise InvalidInput(
            f"{made}s are made of the measurement alone, and 'known', 'non_negative' and 'consistent_with' would change the sums beside "
            f"them: ask for 'sum' in place of {made!r}, or leave them out"
        )
    alone = any(entry.filters is not None for entry in job.workload.entries)
    if job.workload.mechanism != AUTO and not (
        mechanism_of(job.workload.mechanism).divides or (alone and mechanism_of(job.workload.mechanism).adds)
    ):
        able = ", ".join(repr(name) for name, each in REGISTRY.items() if each.divides or (alone and each.adds))
        raise InvalidInput(
            f"mechanism {job.workload.mechanism!r} counts whole records, and sums divide them; set 'mechanism: auto', or choose {able}"
        )


def _check_totals(job: Job) -> None:
    """The total of a person is bounded where persons are told apart, of one column, and cells may then be negative."""
    bounded = next((name for name, part in job.measured.sums.items() if part.most_per_person is not None), None)
    if bounded is None:
        return
    if job.source.records.person.column is None:
        raise InvalidInput(
            f"'most_per_person' of {bounded!r} bounds the total of a person: name the 'column' that identifies persons under "
            "'records: person', or leave it out"
        )
    if len(job.measured.sums) > 1:
        raise InvalidInput(
            f"'most_per_person' of {bounded!r} needs a release with one column of 'sums', found {len(job.measured.sums)}; make "
            "a release for each, or leave it out"
        )
    if job.outputs.postprocess.non_negative:
        raise InvalidInput(
            "'non_negative' fits cells, and where 'most_per_person' bounds totals the cells of the ends may be negative: leave one out"
        )


def _check_series(job: Job) -> None:
    """Filters of sums: all that a release asks for is sums of one column."""
    if any(entry.filters is not None and entry.sum is None for entry in job.workload.entries):
        raise InvalidInput("where filters count records, a release has no 'sums': make a release of its own for each")
    asked = {entry.sum for entry in job.workload.entries}
    if len(asked) > 1:
        raise InvalidInput(
            "where filters add up amounts, every group of the workload asks for the 'sum' of the same column: make a release of its own "
            "for counts, means and other columns"
        )
    options = job.outputs.postprocess
    if options.known or options.non_negative or options.consistent_with:
        raise InvalidInput(
            "'known', 'non_negative' and 'consistent_with' are about counts of records: leave them out where filters add up amounts"
        )
    if isinstance(job.guarantee.names, PrivateNames):
        raise InvalidInput(
            "where filters add up amounts, all categories are declared: list them, or make a release of its own for private ones"
        )
    if is_long(job.workload.queries):
        raise InvalidInput("sums are not added up along a series that is too long to be held: take longer steps")


def _check_companions(job: Job) -> None:
    """Releases that are combined are of the same cells and of the same kind of noise."""
    for other in job.outputs.companions:
        if isinstance(other.guarantee.names, PrivateNames):
            raise InvalidInput(
                f"release {other.release!r} selects names privately, and nothing can be combined with it: leave it out"
            )
        if other.release == job.release or [each.release for each in job.outputs.companions].count(other.release) > 1:
            raise InvalidInput(f"release {other.release!r} is named twice; name other, earlier releases")
        if job.source.table is not None or other.source.table is not None:
            raise InvalidInput(
                "releases are combined when both read the same files: write the rows of a query or table to a file first"
            )
        if len(job.norms) > 1 or len(other.norms) > 1:
            raise InvalidInput(
                "releases are combined when their kind of noise is known: set 'noise' to 'gaussian' or 'laplace'"
            )
        same = (other.measured.domain, other.guarantee.dataset, other.norms, other.measured.around)
        if same != (job.measured.domain, job.guarantee.dataset, job.norms, job.measured.around):
            raise InvalidInput(
                f"release {other.release!r} cannot be combined: it needs the same domain, data set and kind of noise, and counts"
            )


def _check_around(job: Job) -> None:
    """Distances from a public count are taken of the counted table before anything is measured: all queries must be of them."""
    centres = {None if entry.filters is None else entry.filters.around for entry in job.workload.entries}
    if centres == {None}:
        return
    asked = {
        name for entry in job.workload.entries if entry.filters is not None for name in (entry.filters.of, *entry.filters.by)
    }
    if len(centres) > 1 or asked != set(job.measured.attributes):
        raise InvalidInput(
            "'around' filters distances from one public count: all entries of the workload must be filters around the same count, "
            "of all attributes of the domain"
        )
    if job.guarantee.neighbours != "add-remove":
        raise InvalidInput(
            "'around' needs 'neighbours: add-remove'; a replaced record is two changes: write 'most_records: 2' instead"
        )
    if job.outputs.postprocess.known or job.outputs.postprocess.non_negative or job.outputs.postprocess.consistent_with:
        raise InvalidInput(
            "'around' publishes distances, not counts: leave 'known', 'non_negative' and 'consistent_with' out"
        )


def _check_stream(job: Job) -> None:
    """A stream is one filter of the past, and every release of it measures whole steps."""
    course = job.guarantee.course
    if not isinstance(course, StreamPart):
        return
    entry = job.workload.entries[0].filters
    if (
        len(job.workload.entries) > 1
        or entry is None
        or not mechanism_of(job.workload.chosen).streams
        or mechanism_of(job.workload.chosen).refuses(job.workload.queries) is not None
        or (is_long(job.workload.queries) and not has_square_root(job.workload.queries))
    ):
        able = " or ".join(repr(name) for name, each in REGISTRY.items() if each.streams)
        raise InvalidInput(
            "a stream publishes one filter of the past (running_sum, window, mean, exponential, polynomial or a file), with "
            f"'mechanism: auto', {able}"
        )
    series = job.measured.domain.attribute(entry.of)
    edges, labels = series.edges, series.labels
    if not edges[0] <= through_of(course.stream, series) < edges[-1]:
        shown = (
            f"{edges[0]:g} to below {edges[-1]:g}" if series.times is None else f"{labels[0]} to {labels[series.values - 1]}"
        )
        raise InvalidInput(f"'through' is a value of {entry.of!r}, {shown}, found {course.stream.through}")
    options = job.outputs.postprocess
    pure = "l1" in job.norms
    if pure or entry.around is not None or options.known or options.non_negative or options.consistent_with:
        raise InvalidInput(
            "a stream uses Gaussian noise (give the budget a 'delta' or 'rho') and goes without 'around', 'known', 'non_negative' "
            "and 'consistent_with'"
        )


def _check_extension(job: Job) -> None:
    """A horizon that was extended: by a mechanism that goes on with the same integers, under a cap on all releases together."""
    course = job.guarantee.course
    if course.former is None:
        return
    if not mechanism_of(job.workload.chosen).extends:
        able = " or ".join(repr(name) for name, each in REGISTRY.items() if each.extends)
        raise InvalidInput(
            f"mechanism {job.workload.chosen!r} measures for one horizon only, which cannot be extended: begin another stream, with "
            f"{able} if it may grow further"
        )
    if job.guarantee.cap.per != "total":
        raise InvalidInput(
            f"a longer series reveals more of the records of periods whose budgets are closed: under a cap per {job.guarantee.cap.per} a "
            "stream is not extended; begin another stream"
        )
    sizes = [each.shape[1] for each in (*course.horizons, job.workload.queries)]
    if sorted(set(sizes)) != sizes:
        raise InvalidInput(
            "every extension adds steps: 'extended_from' lists the former ends, oldest first, all before the domain's end"
        )


def _check_suppression(job: Job) -> None:
    """Answers that can lie clearly above a number: counts of records with the error that is published with them."""
    options = job.outputs.postprocess
    if options.suppress is None:
        return
    if any(entry.filters is not None or entry.rows is not None for entry in job.workload.entries):
        raise InvalidInput(
            "'suppress' compares counts of records with a number; filters and rows of your own may be differences: leave one out"
        )
    if options.non_negative or (job.workload.mechanism != AUTO and mechanism_of(job.workload.mechanism).adaptive):
        raise InvalidInput(
            "'suppress' is predicted from standard errors, which do not tell the bias of 'non_negative' and of mechanism 'dawa': leave "
            "one out"
        )


def _check_selection(job: Job) -> None:
    """Names are selected for one attribute, by Gaussian noise, and released once."""
    names = job.guarantee.names
    if not isinstance(names, PrivateNames):
        return
    name, selection = names.attribute, names.selection
    others = [other for other, part in job.measured.attributes.items() if part.selection is not None and other != name]
    if others:
        raise InvalidInput(
            f"one attribute of a release can have private categories, found {name!r} and {others[0]!r}: list the others' values"
        )
    if job.guarantee.course.grows or job.measured.around is not None or job.outputs.postprocess.consistent_with:
        raise InvalidInput(
            "private categories go without 'stream', 'around' and 'consistent_with', which need one domain for several releases"
        )
    if job.source.records.counts is not None:
        raise InvalidInput(
            "private categories are selected from records: list the categories of records that were counted before"
        )
    if job.norms != ("l2",):
        raise InvalidInput(
            "'categories: private' has a delta: it needs Gaussian noise, that is 'noise: gaussian' and a budget with 'delta' or 'rho'"
        )
    if job.guarantee.cap.selection < selection.delta:
        raise InvalidInput(
            f"a selection with delta {float(selection.delta):g} needs a cap that sets as much aside for selections, found "
            f"{float(job.guarantee.cap.selection):g}: add 'selection: {float(selection.delta):g}' to 'ledger: cap'"
        )
    job.with_names(None)


def _check_noise(job: Job) -> None:
    """A kind of noise that the budget does not buy."""
    if job.guarantee.noise in ("gaussian", "laplace"):
        job.guarantee.budget.loss_with("l1" if job.guarantee.noise == "laplace" else "l2")


def _check_mechanism(job: Job) -> None:
    """A mechanism that needs the other kind of noise than the budget allows, cannot have the objective, or cannot answer."""
    pure, chosen = job.norms == ("l1",), None if job.workload.mechanism == AUTO else mechanism_of(job.workload.mechanism)
    _check_targets(job)
    if job.workload.objective == "worst":
        of_worst(() if pure else considered(job.workload.chosen, "l2", job.workload.queries, job.workload.limits))
    if chosen is None:
        return
    if pure and "l1" not in chosen.noises:
        cure = "give the budget a 'delta'" if job.guarantee.budget.pure else "set 'noise: gaussian'"
        raise InvalidInput(f"mechanism {chosen.name!r} uses Gaussian noise: {cure}, or choose another")
    if job.norms == ("l2",) and "l2" not in chosen.noises:
        cure = "give the budget an 'epsilon' alone" if job.guarantee.budget.rho is not None else "set 'noise: laplace'"
        raise InvalidInput(f"mechanism {chosen.name!r} uses Laplace noise: {cure}, or choose another")
    chosen.check(job.workload.queries)


def _check_targets(job: Job) -> None:
    """Targets are errors of all queries, and stand in the place of weights."""
    given = [entry.target is not None for entry in job.workload.entries]
    if not any(given):
        return
    if not all(given) or job.workload.objective != "worst":
        raise InvalidInput("a 'target' needs 'objective: worst' and a target in every other group of the workload; add them")
    if any(entry.relative or entry.weight != 1.0 for entry in job.workload.entries):
        raise InvalidInput("a group has a 'target', or 'weight' and 'relative'; leave one out")


def _check_budget(job: Job) -> None:
    cap = job.guarantee.cap
    names = job.guarantee.names
    if not isinstance(names, PrivateNames):
        loss = job.guarantee.budget.loss_with(job.norms[0])
    else:
        delta = names.selection.delta
        loss = replace(Loss.gaussian(job.guarantee.budget.rho_beside(delta)), failure=delta)
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


def _check_period(job: Job) -> None:
    if job.guarantee.cap.per != "total" and job.guarantee.period is None:
        raise InvalidInput(f"a budget per {job.guarantee.cap.per} needs the release's day; add 'period: YYYY-MM-DD'")
