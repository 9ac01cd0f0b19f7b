"""Counting pushed down to the database: one SELECT bounds what each person adds and counts cells. Only the counts come back.

A cell comes back as values that stand for it, as texts: a category, the lower edge of a bin, the time at which a step begins. The reader
counts them as it counts any table of counts (``dpdist.records.tabulated``), so where a value belongs is decided in one place.

Which records of a person count depends on these alone, as in ``dpdist.records.persons``: the first ones, or those of the first groups,
in the order of a digest of person and cell. So one person more or less changes the counts by as much as in files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.records.sources import PersonColumn

COUNT = "dpdist_count"
"""The column of counts that comes back."""
MOST_VALUES = 1000
"""Declared values of an attribute up to which its cells are told apart by one CASE."""


@dataclass(frozen=True)
class Dialect:
    """How a database writes what the dialects of SQL write differently.

    Attributes:
        quote: what stands around names.
        nan, digest: with {} in place of their argument: whether a number is none, and the SHA-256 of a text
            in hexadecimal digits. Persons are told apart by it, for a database may take 'a' and 'A' for the same text.
        escapes: whether a backslash in a text begins an escape.
    """

    quote: str
    text: str
    whole: str
    number: str
    time: str
    nan: str
    digest: str
    escapes: bool = False

    def name(self, given: str) -> str:
        """A column's name."""
        inside = given.replace("\\", "\\\\") if self.escapes and self.quote == "`" else given
        return self.quote + inside.replace(self.quote, "\\`" if self.quote == "`" else self.quote * 2) + self.quote

    def literal(self, given: str) -> str:
        """A text."""
        return "'" + (given.replace("\\", "\\\\").replace("'", "\\'") if self.escapes else given.replace("'", "''")) + "'"


DIALECTS = {
    "duckdb": Dialect('"', "VARCHAR", "BIGINT", "DOUBLE", "TIMESTAMP", "isnan({})", "sha256({})"),
    "postgresql": Dialect(
        '"', "TEXT", "BIGINT", "DOUBLE PRECISION", "TIMESTAMP", "{} = 'NaN'", "encode(sha256(convert_to({}, 'UTF8')), 'hex')"
    ),
    "bigquery": Dialect("`", "STRING", "INT64", "FLOAT64", "DATETIME", "IS_NAN({})", "TO_HEX(SHA256({}))", escapes=True),
    "snowflake": Dialect(
        '"', "VARCHAR", "BIGINT", "DOUBLE", "TIMESTAMP_NTZ", "{} = 'NaN'::DOUBLE", "SHA2({}, 256)", escapes=True
    ),
}


@dataclass(frozen=True)
class PushedDown:
    """What a database counts of the rows of a query.

    Attributes:
        columns: attribute name -> column name, where they differ.
        person, most_records: as in ``Source``.
    """

    domain: Domain
    columns: Mapping[str, str] = field(default_factory=dict)
    person: PersonColumn | None = None
    most_records: int = 1

    def __post_init__(self) -> None:
        if self.person is not None and self.person.missing is None:
            raise InvalidInput(
                "a database that counts cannot refuse records without a person: set 'missing' of 'person' to 'drop' or 'each'"
            )
        for each in self.domain.attributes:
            zone = each.times is not None and each.times.zone is not None
            if each.amounts is not None or each.line is not None or zone or each.values > MOST_VALUES:
                raise InvalidInput(
                    f"with 'push_down' the database counts categories, bins and dates without a zone, up to {MOST_VALUES:,} of an "
                    f"attribute, and {each.name!r} is none of these: leave 'push_down' out"
                )

    def select(self, sql: str, dialect: Dialect) -> str:
        """The SELECT that counts the rows of a query, of columns named as attributes and ``COUNT``.

        Args:
            sql: one SELECT in the database's own dialect.
        """
        own = dialect.name
        cells = [
            f"{_cell(each, self.columns.get(each.name, each.name), dialect)} AS {own(each.name)}"
            for each in self.domain.attributes
        ]
        each_name = [own(each.name) for each in self.domain.attributes]
        names = ", ".join(each_name)
        counted = [condition for each in self.domain.attributes for condition in _counted(each, dialect)]
        person, chosen, steps = self.person, "dpdist_cells", [("dpdist_records", sql.strip().rstrip(";"))]
        if person is None:
            steps.append(("dpdist_cells", f"SELECT {', '.join(cells)} FROM dpdist_records"))
        else:
            column = f"CAST({own(person.name)} AS {dialect.whole if person.type == 'integer' else dialect.text})"
            text = f"CAST({column} AS {dialect.text})" if person.type == "integer" else f"NULLIF({column}, '')"
            key = ", '|', ".join(f"COALESCE({part}, '')" for part in ["dpdist_person", *each_name])
            steps += [
                (
                    "dpdist_cells",
                    f"SELECT {', '.join([*cells, f'{dialect.digest.format(text)} AS dpdist_person'])} FROM dpdist_records",
                ),
                (
                    "dpdist_keyed",
                    f"SELECT *, {dialect.digest.format(f'CONCAT({key})')} AS dpdist_key\nFROM dpdist_cells{_where(counted)}",
                ),
                ("dpdist_ranked", f"SELECT *, {_ranks(person, names)} FROM dpdist_keyed"),
            ]
            chosen, bounds = "dpdist_ranked", f"dpdist_record <= {self.most_records}"
            if person.most_groups is not None:
                bounds += f" AND dpdist_group <= {person.most_groups}"
            alone = "dpdist_person IS NULL OR " if person.missing == "each" else "dpdist_person IS NOT NULL AND "
            counted = [f"({alone}{bounds})"]
        before = ",\n".join(f"{name} AS (\n{part}\n)" for name, part in steps)
        return f"WITH {before}\nSELECT {names}, COUNT(*) AS {COUNT} FROM {chosen}{_where(counted)}\nGROUP BY {names}"


def _ranks(person: PersonColumn, names: str) -> str:
    """The place of each record among those of its person, or of its person and cell, and that of the cell."""
    if person.most_groups is None:
        return f"ROW_NUMBER() OVER (PARTITION BY dpdist_person ORDER BY dpdist_key, {names}) AS dpdist_record"
    return (
        f"ROW_NUMBER() OVER (PARTITION BY dpdist_person, {names} ORDER BY dpdist_key) AS dpdist_record, "
        f"DENSE_RANK() OVER (PARTITION BY dpdist_person ORDER BY dpdist_key, {names}) AS dpdist_group"
    )


def _where(conditions: list[str]) -> str:
    return f"\nWHERE {' AND '.join(conditions)}" if conditions else ""


def _cell(attribute: Attribute, column: str, dialect: Dialect) -> str:
    """The value, as a text, that stands for where a record counts; NULL where it has none."""
    if attribute.categories:
        text = f"CAST({dialect.name(column)} AS {dialect.text})"
        names = attribute.categories
        if attribute.boolean:  # one cell of the groups of a person, however it is written
            text, names = f"LOWER({text})", tuple(map(str.lower, names))
        none = f"{text} = ''" if attribute.missing is not None and "" not in names else None
        known = ", ".join(map(dialect.literal, names))
        *_, other = _stand_ins(attribute)
        empty = f" WHEN {none} THEN NULL" if none else ""
        return f"CASE WHEN {text} IS NULL THEN NULL{empty} WHEN {text} IN ({known}) THEN {text} ELSE {dialect.literal(other)} END"
    before, *inside, after = _stand_ins(attribute)
    times = attribute.times
    value = f"CAST({dialect.name(column)} AS {dialect.number if times is None else dialect.time})"
    ends = [*inside, after if times is not None else repr(float(attribute.edges[-1]))]
    compared = [f"CAST({dialect.literal(end)} AS {dialect.number if times is None else dialect.time})" for end in ends]
    none = f" OR {dialect.nan.format(value)}" if times is None else ""
    steps = zip(compared, [before, *inside], strict=True)
    cases = " ".join(f"WHEN {value} < {end} THEN {dialect.literal(stand_in)}" for end, stand_in in steps)
    return f"CASE WHEN {value} IS NULL{none} THEN NULL {cases} ELSE {dialect.literal(after)} END"


def _stand_ins(attribute: Attribute) -> list[str]:
    """A text for each place where values of an attribute lie: of categories, and then others; of bins and steps from below to above."""
    if attribute.categories:
        other = "?"
        while other in attribute.categories:
            other += "?"
        return [*attribute.categories, other]
    if attribute.times is not None:
        times = attribute.times
        return [times.begins(step).isoformat(sep=" ") for step in range(-1, attribute.values + 1)]
    edges = [float(edge) for edge in attribute.edges]
    return [repr(min(edges[0] - 1, math.nextafter(edges[0], -math.inf))), *map(repr, edges)]


def _counted(attribute: Attribute, dialect: Dialect) -> Iterator[str]:
    """Conditions of the records that count: left out is what the reader would leave out, so that it takes no place of a person's."""
    name, leaves = dialect.name(attribute.name), attribute.outside != "error"
    if attribute.missing_code < 0 and (attribute.missing is not None or leaves):
        yield f"{name} IS NOT NULL"
    if attribute.outside == "clip" or (attribute.other_code >= 0 or (attribute.other is None and not leaves)):
        return
    stand_ins = _stand_ins(attribute)
    others = stand_ins[-1:] if attribute.categories else [stand_ins[0], stand_ins[-1]]
    yield f"({name} IS NULL OR {name} NOT IN ({', '.join(map(dialect.literal, others))}))"
