"""A release spec to complete, written from the names and types of columns: nothing in it comes from a value, unless the file is public."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpdist.api.planning import MOST_STEPS, yaml_text
from dpdist.plugin_registry import missing_plugin
from dpdist.plugins.spec_drafts.declared_values import Column, ColumnKind, value_lines

WORDS: dict[ColumnKind, str] = {
    "text": "texts",
    "whole": "whole numbers",
    "number": "numbers",
    "date": "dates",
    "time": "times",
    "boolean": "yes or no",
    "money": "numbers",
    "unknown": "",
    "other": "",
}


@dataclass(frozen=True)
class OutlineRequest:
    """What the person who starts a release has said.

    Attributes:
        path: of the records, as the spec names it.
        person: the column that identifies persons.
        delimiter: between the values of CSV files, where it is not the comma.
        untyped: whether the records are CSV whose values were not looked at.
    """

    path: str
    dataset: str
    header: tuple[str, ...] = ()
    person: str | None = None
    epsilon: float = 1.0
    delta: float = 1e-6
    delimiter: str | None = None
    untyped: bool = False


def outline(columns: Sequence[Column], request: OutlineRequest, *, schema: str, public: bool) -> str:
    """The text of a spec over some columns.

    Args:
        schema: where the JSON schema of specs is, for editors.
        public: whether the columns' values were looked at.
    """
    names = names_of(columns)
    moved = {name: column.name for name, column in zip(names, columns, strict=True) if name != column.name}
    records = [
        f"  path: {yaml_text.quoted(request.path)}",
        "  called: records        # what the page calls them: people, visits, ...",
    ]
    records += _csv(columns, request)
    records += [f"  header: [{', '.join(map(yaml_text.quoted, request.header))}]"] if request.header else []
    records += (
        [f"  columns: {{{', '.join(f'{name}: {yaml_text.quoted(column)}' for name, column in moved.items())}}}"]
        if moved
        else []
    )
    if request.person is None:
        records += [
            "  # Every record is protected by itself. If a person may have several, name the column that tells persons apart:"
        ]
        records += ["  # person: {column: COLUMN, most_records: 1}"]
    else:
        records += [
            f"  person: {{column: {yaml_text.quoted(request.person)}, most_records: 1}}   # how many records of one person count"
        ]
    named = list(zip(names, columns, strict=True))
    counted = [(name, column) for name, column in named if column.kind != "money"] or named
    amounts = [entry for entry in named if entry not in counted]
    return SPEC.format(
        schema=schema,
        release=request.dataset,
        records="\n".join(records),
        head=WITH_VALUES if public else WITHOUT_VALUES,
        attributes="\n".join(attribute_line for entry in counted for attribute_line in _attribute(*entry)),
        sums="".join([SUMS, *(_sum(*entry, alone=len(amounts) == 1) for entry in amounts)]) if amounts else "",
        totals="".join(TOTAL.format(name=name) for name, _ in amounts),
        beyond=TRUNCATION_LOSS if (request.person is not None or amounts) and not missing_plugin("left_out") else "",
        epsilon=f"{request.epsilon:g}",
        delta=f"{request.delta:g}",
        cap=f"{4 * request.epsilon:g}",
        cap_delta=f"{4 * request.delta:g}",
        dataset=request.dataset,
    )


SPEC = """# yaml-language-server: $schema={schema}
# A release to complete. Words in CAPITALS stand for what only you can say; then: dpdist plan, dpdist run.
release: {release}-1
records:
{records}

{head}
domain:
{attributes}
{sums}
# The questions. This asks for a table of each attribute by itself; [1, 2] asks for all pairs, too.
workload:
  - marginals: {{ways: [1]}}
{totals}
# What this release may reveal, and what all releases of these records may reveal together.
budget: {{epsilon: {epsilon}, delta: {delta}}}
{beyond}ledger:
  dataset: {dataset}
  cap: {{epsilon: {cap}, delta: {cap_delta}}}
"""
SUMS = """
# Columns whose sums and means are asked for. Amounts beyond the range count as its ends, and the noise grows with it: choose it
# from public knowledge, and rather too small than too large. To count amounts by bins, write them under 'domain' with 'edges'.
sums:
"""
TRUNCATION_LOSS = """\
# A twentieth of this budget measures what the bounds leave out: records of persons who have more, amounts outside a range.
left_out: {}   # without it all of the budget is spent on the answers, and the page says that it is not known
"""
TOTAL = """  - marginals: {{ways: [1]}}
    mean: {name}   # its sum is measured with it; 'sum' in place of 'mean' asks for the sum alone
"""
WITHOUT_VALUES = """# Every attribute with all values that it may have, from public knowledge and never from the records:
# a value that stands here because it was seen in them would reveal them. Delete attributes that no question needs."""
WITH_VALUES = """# Every attribute with all values that it may have. They were taken from the file, which you said is public:
# leave them so only if it is."""


def _csv(columns: Sequence[Column], asked: OutlineRequest) -> list[str]:
    """The lines that say how CSV files are written; what can be written in several ways is asked for."""
    kinds, lines = {column.kind for column in columns}, []
    if asked.delimiter is not None:
        lines.append(f"    delimiter: {yaml_text.quoted(asked.delimiter)}")
        if asked.delimiter != "," and kinds & {"number", "money", "unknown"}:
            lines.append(DECIMAL)
    if asked.untyped and kinds & {"date", "time", "unknown"}:
        lines.append(DATES)
    return ["  csv:", *lines] if lines else []


DECIMAL = "    decimal: MARK            # the mark before the decimals of numbers: ',' as in 6,06, or '.' as in 6.06"
DATES = (
    "    dates: {format: FORM}    # how dates are written: '%d.%m.%Y' as in 31.12.2026, '%m/%d/%Y' as in 12/31/2026; delete this line if "
    "there\n                             # are none, or if they are written as 2026-12-31"
)


def names_of(columns: Sequence[Column]) -> list[str]:
    """A name for each column that expressions can use: letters of any language, digits and underscores."""
    names: list[str] = []
    for column in columns:
        name = re.sub(r"\W+", "_", column.name).strip("_") or "column"
        name = f"_{name}" if name[0].isdigit() else name
        while name in names:
            name += "_"
        names.append(name)
    return names


def _attribute(name: str, column: Column) -> list[str]:
    """The lines of one attribute."""
    if column.kind == "other":
        return [f"  # {name}: its column holds values that cannot be counted (lists, maps, bytes)"]
    head = (
        f"  {name}:   # {WORDS[column.kind]}"
        if column.kind != "unknown"
        else f"  {name}:   # take the # away from the lines that fit"
    )
    title = [f"    title: {yaml_text.quoted(column.name)}"] if column.name != name else []
    return [head, *title, *(f"    {value_line}" for value_line in value_lines(column)), MISSING]


def _sum(name: str, column: Column, *, alone: bool) -> str:
    """The lines of one column of amounts."""
    title = [f"    title: {yaml_text.quoted(column.name)}\n"] if column.name != name else []
    step = CENTS if alone else 1.0
    if not column.values:
        step_line = f"    step: {step:g}               # the smallest difference that counts: 0.01 for cents\n"
        return "".join([f"  {name}:\n", *title, "    from: 0\n    to: MOST\n", step_line, NO_AMOUNT])
    low, high = (float(value) for value in column.values)
    while (high - low) / step > MOST_STEPS - 2:
        step *= 10
    coarse = max(step, 1.0)
    first_amount, last_amount = math.floor(low / coarse) * coarse, (math.floor(high / coarse) + 1) * coarse
    return "".join(
        [f"  {name}:\n", *title, f"    from: {first_amount:.0f}\n    to: {last_amount:.0f}\n    step: {step:g}\n", NO_AMOUNT]
    )


CENTS = 0.01
NO_AMOUNT = "    missing: drop            # leaves records without an amount out of sums and means, not of counts\n"
MISSING = (
    "    missing: unknown         # the label of records without a value; 'drop' leaves them out of this attribute's answers"
)
