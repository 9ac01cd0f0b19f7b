"""What the columns of a file are: their names and types, and only of a file that is public its values."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdist.api import InvalidSpec
from dpdist.api.sources import (
    DEFAULT_GRAMMAR,
    File,
    Grammar,
    TypedFormat,
    check_delimiter,
    decompressed_stream,
    file_listing,
    parse_location,
    reading,
    row_format,
)
from dpdist.plugins.spec_drafts.declared_values import Column, ColumnKind

if TYPE_CHECKING:
    import pyarrow as pa

MOST_TEXTS = 100
"""Different texts of a public column that are listed."""
_NO_VALUES = ("", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan")
"""What public CSV files write where there is no value."""
_VALUE = re.compile(r"\s*[-+]?[\d.,:;/%€$£ -]*\s*|\d{4}-\d\d-\d\d.*|true|false|null|nan|na", re.IGNORECASE)
"""What a column is hardly ever called: without a header row, the first row of a CSV file is a record."""

_MONEY = re.compile(
    r"amount|balance|cost|costs|donation|expense|expenses|fare|fee|fees|income|paid|payment|payments|premium|price|prices"
    r"|rent|revenue|salary|spend|spending|spent|tip|tips|turnover|wage|wages|kosten|lohn|miete|cout|loyer|montant|prix"
    r"|revenu|salaire|coste|ingreso|importe|precio|costo|importo|prezzo|reddito|cents|chf|dollars|eur|euro|euros|gbp|jpy|usd"
    r"|.*(?:betrag|einkommen|gehalt|preis|umsatz)"
)
"""Last words of names, in English, German, French, Spanish and Italian, and of currencies."""
_DATE = re.compile(r"date|day|dob|birthday|birthdate|fecha|jour|giorno|dia|.*datum")
_TIME = re.compile(r"timestamp|datetime|zeitpunkt|zeitstempel|horodatage")
"""Last words of names, in the same languages, of columns with dates, or with a date and a time of day."""
_KINDS: dict[str, ColumnKind] = {
    "text": "text",
    "whole": "whole",
    "number": "number",
    "decimal": "number",
    "date": "date",
    "time": "time",
    "boolean": "boolean",
}
"""By the families of ``dpdist.sources.formats.column_conversion``."""
_PERSON = re.compile(
    r"(account|card|client|customer|employee|household|member|participant|passenger|patient|person|respondent|student|subject|user"
    r"|visitor|konto|kunden?|mitglieds?|nutzer|patienten|personen|versicherten|membre|personne|cliente|persona|usuario|paciente)"
    r"(ids?|nr|nummer|no)?"
)
"""Words for persons, in English, German, French, Spanish and Italian, and for numbers of theirs."""
_NUMBERS = ("code", "hash", "id", "key", "no", "nr", "num", "number", "nummer", "uuid")
_TAXED = ("gross", "net", "brutto", "netto")


def has_names(location: Path) -> bool:
    """Whether a file, or the first file of a folder, says what its columns are called: the first row of CSV may be a record."""
    format_ = row_format(file_listing.list_files(location)[0].path)
    return format_ is None or not format_.first_row_may_be_a_record


def columns_of(
    location: Path,
    *,
    header: tuple[str, ...] = (),
    public: bool = False,
    names_in_first_row: bool = False,
    grammar: Grammar = DEFAULT_GRAMMAR,
) -> list[Column]:
    """The columns of a file, or of the first file of a folder. Values are looked at only if the file is public.

    Otherwise only names and types are read, so that a large file takes no longer than a small one.
    Columns that folders name have no type, and their values are never looked at.

    Args:
        header: the columns of CSV files, whose first row is then a record.
        names_in_first_row: somebody says that the first row of CSV files is none. Without either nothing of it is shown.
        grammar: how CSV files are written.
    Raises: InvalidSpec, NoRecords.
    """
    first_file = file_listing.list_files(location)[0]
    folder_columns = [
        Column(name, "unknown") for name in file_listing.named_by_folders(parse_location(location), first_file.path)
    ]
    if not has_names(location) and not (header or public or names_in_first_row):
        raise InvalidSpec(
            f"the first row of {first_file.source_label} may hold the columns' names or a record, which nobody can see from here: say "
            "--names-in-first-row if it holds names, or name all columns to dpdist init: --header name,name,..."
        )
    return [*_columns_of_file(first_file, header, public, grammar), *folder_columns]


def _columns_of_file(file: File, header: tuple[str, ...], public: bool, grammar: Grammar) -> list[Column]:
    path = Path(file.path)
    format_ = row_format(path)
    if format_ is None:
        raise InvalidSpec(
            f"{file.source_label} holds counts and no columns; write its spec by hand, an attribute for each axis"
        )
    if format_.first_row_may_be_a_record:
        if public:
            return _public_csv(file, header, grammar)
        return [Column(name, "unknown") for name in _header(file, header, grammar)]
    with reading(file.source_label), path.open("rb") as content:
        if not isinstance(format_, TypedFormat):
            raise InvalidSpec(
                f"{file.source_label} names its keys in every record; write its spec by hand, or name a table of another format"
            )
        columns = [_typed_column(schema_field.name, schema_field.type) for schema_field in format_.schema(content)]
        return _with_values(columns, format_.every_batch(content)) if public else columns


def _header(file: File, header: tuple[str, ...], grammar: Grammar) -> tuple[str, ...]:
    """The columns of a CSV file. Raises: InvalidSpec, without a word of it, when the first row seems to be a record."""
    from dpdist.api.sources import csv_batches

    if header:
        return header
    with reading(file.source_label), Path(file.path).open("rb") as content:
        names = tuple(csv_batches.header_of(decompressed_stream(content, file.path), grammar, file.source_label))
    check_delimiter(names, file.source_label, "say so with --delimiter")
    if any(_VALUE.fullmatch(name) for name in names) or len(set(names)) < len(names):
        raise InvalidSpec(
            f"the first row of {file.source_label} seems to be a record, or names a column twice or not at all; name all {len(names)} "
            "columns with --header"
        )
    return names


def first_row(location: Path, grammar: Grammar) -> list[str]:
    """The values of the first row of a CSV file, or of the first file of a folder, for somebody who may see its records."""
    from dpdist.api.sources import csv_batches

    file = file_listing.list_files(location)[0]
    with reading(file.source_label), Path(file.path).open("rb") as content:
        return csv_batches.header_of(decompressed_stream(content, file.path), grammar, file.source_label)


def _public_csv(file: File, header: tuple[str, ...], grammar: Grammar) -> list[Column]:
    import pyarrow as pa

    names = _header(file, header, grammar)
    guessed = [pa.int64(), pa.bool_(), pa.date32(), pa.timestamp("s"), pa.timestamp("s", tz="UTC"), pa.float64()]
    kinds: dict[str, list[pa.DataType] | None] = dict.fromkeys(names)  # None: no value yet
    for batch in _texts(file, names, header, grammar):
        for name in names:
            values = batch[name].unique().drop_null()
            if len(values):
                kinds[name] = [kind for kind in (kinds[name] or guessed) if _casts_to(values, kind)] or [pa.string()]
    types = {name: pa.null() if candidate_types is None else candidate_types[0] for name, candidate_types in kinds.items()}
    typed = (
        pa.record_batch({name: batch[name].cast(types[name]) for name in names})
        for batch in _texts(file, names, header, grammar)
    )
    return _with_values([_typed_column(name, types[name]) for name in names], typed)


def _texts(file: File, names: Sequence[str], header: tuple[str, ...], grammar: Grammar) -> Iterator[pa.RecordBatch]:
    """The values of a CSV file, null where a text says that there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from dpdist.api.sources import csv_batches

    none = pa.array(_NO_VALUES)
    with reading(file.source_label), Path(file.path).open("rb") as content:
        stream = decompressed_stream(content, file.path)
        for batch in csv_batches.batches(stream, grammar, names, file.source_label, header=header):
            columns = ((name, batch[name]) for name in names)
            yield pa.record_batch(
                {name: pc.if_else(pc.is_in(column, none), pa.scalar(None, pa.string()), column) for name, column in columns}
            )


def _casts_to(values: pa.Array, kind: pa.DataType) -> bool:
    import pyarrow as pa

    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _typed_column(name: str, arrow_type: pa.DataType) -> Column:
    from dpdist.api.sources import family_of

    kind = _KINDS.get(family_of(arrow_type), "other")
    return Column(
        name,
        "money" if kind in ("whole", "number") and is_money(name) else kind,
        zoned=getattr(arrow_type, "tz", None) is not None,
    )


def is_money(name: str) -> bool:
    """Whether a column's name ends in a word for money: "paid", "amount_eur", "unitPrice", "Rechnungsbetrag (brutto)"."""
    words = [word for word in _words(name) if word not in _TAXED]
    return bool(words and _MONEY.fullmatch(words[-1])) or any(sign in name for sign in "€$£¥")


def kind_named(name: str) -> ColumnKind:
    """What a column holds by its name alone: money, dates ("visit_date", "Geburtsdatum"), times ("createdAt"), or unknown."""
    words = _words(name)
    last_word = words[-1] if words else ""
    if is_money(name):
        return "money"
    if _TIME.fullmatch(last_word) or (last_word == "at" and len(words) > 1):
        return "time"
    return "date" if _DATE.fullmatch(last_word) else "unknown"


def is_person(name: str) -> bool:
    """Whether a column's name is that of persons, or of numbers of theirs: "card", "customer_id", "Kundennr", "PatientNo"."""
    words = _words(name)
    numbered = words[:-1] if len(words) > 1 and words[-1] in _NUMBERS else words
    return len(numbered) == 1 and bool(_PERSON.fullmatch(numbered[0]))


def _words(name: str) -> list[str]:
    """The words of a column's name, without accents."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFKD", name)).lower()
    return re.findall(r"[a-z]+", "".join(letter for letter in spaced if not unicodedata.combining(letter)))


def _with_values(columns: list[Column], batches: Iterator[pa.RecordBatch]) -> list[Column]:
    """The columns with what their values are, batch by batch."""
    import pyarrow.compute as pc

    values_by_column: dict[str, set[Any]] = {column.name: set() for column in columns}
    for batch in batches:
        for column in columns:
            column_values = batch.column(batch.schema.get_field_index(column.name)).drop_null()
            if column.kind == "text" and len(values_by_column[column.name]) <= MOST_TEXTS:
                values_by_column[column.name] |= set(pc.unique(column_values).to_pylist()[: MOST_TEXTS + 1])
            elif column.kind in ("whole", "number", "money", "date", "time") and len(column_values):
                ends = pc.min_max(column_values)
                values_by_column[column.name] |= {ends["min"].as_py(), ends["max"].as_py()}
    return [
        Column(column.name, column.kind, _values(column.kind, values_by_column[column.name]), column.zoned)
        for column in columns
    ]


def _values(kind: ColumnKind, distinct_values: set[Any]) -> tuple[Any, ...] | None:
    if not distinct_values or (len(distinct_values) > MOST_TEXTS and kind == "text"):
        return None
    if kind == "text":
        return tuple(sorted(distinct_values - {""}))
    low, high = min(distinct_values), max(distinct_values)
    return tuple(end_value.date() if isinstance(end_value, datetime.datetime) else end_value for end_value in (low, high))
