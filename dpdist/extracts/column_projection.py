"""The columns that a release counts, of whatever a query or a table gives: of types that the spec alone decides, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from dpdist.domain.calendar import FINER_THAN_DAYS
from dpdist.errors import InvalidSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.domain import Attribute, Domain
    from dpdist.sources.column_types import ColumnType
    from dpdist.sources.formats.column_conversion import Column
    from dpdist.sources.record_sources import PersonColumn

Use = Literal["text", "number", "day", "time", "whole", "person", "numbered person"]
"""What a column is counted as: days are dates or times, times are none that are dates alone."""


def _use_of(attribute: Attribute) -> Use:
    """What an attribute's column is counted as."""
    if attribute.times is not None:
        return "time" if attribute.times.every in FINER_THAN_DAYS else "day"
    return "number" if attribute.edges else "text"


def uses_of(
    domain: Domain, columns: Mapping[str, str], person: PersonColumn | None = None, counts: str | None = None
) -> dict[str, Use]:
    """What each column is counted as. Raises: InvalidSpec for one that is to be two things."""
    uses: dict[str, Use] = {}
    for attribute in domain.column_attributes:
        name, use = columns.get(attribute.name, attribute.name), _use_of(attribute)
        if uses.setdefault(name, use) != use:
            raise InvalidSpec(
                f"the column {name!r} is counted as {uses[name]} and as {use}; give the query a column for each, with a name of its own"
            )
    if person is not None:
        uses[person.name] = "numbered person" if person.type == "integer" else "person"
    if counts is not None:
        uses[counts] = "whole"
    return uses


def column_positions(names: Sequence[str], uses: Mapping[str, Use]) -> list[int]:
    """Where the used columns stand among all, compared letter by letter. Raises: InvalidSpec for one that is not there once."""
    for name in uses:
        if names.count(name) != 1:
            found = "no column" if name not in names else "more than one column"
            raise InvalidSpec(
                f"the records have {found} {name!r}; name each once, or say under 'records.columns' what it is called there"
            )
    return [names.index(name) for name in uses]


def project_columns(
    reader: pa.RecordBatchReader, uses: Mapping[str, Use], types: Mapping[str, ColumnType]
) -> pa.RecordBatchReader:
    """The used columns of all records, each value converted by itself. Raises: InvalidSpec for columns that are not there once."""
    import pyarrow as pa

    places = column_positions(reader.schema.names, uses)
    schema = pa.schema(fields_of(uses))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = zip(places, uses.items(), strict=True)
            column_uses = ((batch.column(place), name, use, types.get(name)) for place, (name, use) in columns)
            yield pa.RecordBatch.from_arrays([convert_for_use(*column_use) for column_use in column_uses], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def fields_of(uses: Mapping[str, Use]) -> list[pa.Field]:
    """The columns as they are converted."""
    import pyarrow as pa

    kinds = {"number": pa.float64(), "whole": pa.int64()}
    return [pa.field(name, kinds.get(use, pa.string())) for name, use in uses.items()]


def convert_for_use(column: Column, name: str, use: Use, kind: ColumnType | None = None) -> pa.Array:
    """A column, each value converted by itself to its declared type and to what it is counted as. Raises: InvalidSpec."""
    from dpdist.counting.person_keys import persons_of
    from dpdist.sources.formats import column_conversion

    try:
        if use in ("day", "time"):
            return column_conversion.moments_of(column, finer=use == "time")
        declared_column = column if kind is None else column_conversion.convert_column(column, kind)
        if use in ("number", "whole"):
            return column_conversion.convert_column(declared_column, use)
        if use == "text":
            return column_conversion.texts_of(declared_column)
        return persons_of(declared_column, "integer" if use == "numbered person" else "text")
    except column_conversion.Unconvertible as error:
        raise InvalidSpec(f"the column {name!r} of the records is counted as {use} and {error}") from None
