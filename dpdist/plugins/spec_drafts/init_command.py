"""``dpdist init``: a spec to complete, from the names and types of a file's columns."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from dpdist.api import InvalidInput
from dpdist.plugins.spec_drafts.csv_options import Delimiter, NamesInFirstRow, grammar_of
from flows.api.commands import console

if TYPE_CHECKING:
    from dpdist.plugins.spec_drafts.declared_values import Column, ColumnKind

NO_PERSON = "none"
"""In place of a column of persons."""
SCHEMA = "release.schema.json"
LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D"}
)
"""Letters that do not come apart into one of the alphabet and an accent."""


def init(
    records: Annotated[
        Path, typer.Argument(help="a .parquet, .arrow, .feather, .csv or .csv.gz file, or a folder of such files")
    ],
    spec: Annotated[
        Path | None, typer.Option("--spec", help="the file to write. Default: the records' name with .yaml")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="the columns to count, with commas between. Default: all")
    ] = None,
    person: Annotated[
        str | None,
        typer.Option("--person", help="the column that tells persons apart, or 'none'. Default: one that is called so"),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--as", help="what a column of a CSV file holds: NAME=text, whole, number, date, time, boolean or money"
        ),
    ] = None,
    header: Annotated[
        str | None, typer.Option("--header", help="the column names of CSV files without a header row")
    ] = None,
    names_in_first_row: NamesInFirstRow = False,
    delimiter: Delimiter = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="the budget of the release", min=1e-6)] = 1.0,
    public: Annotated[
        bool, typer.Option("--public", help="the file is public: take categories and ranges from its values")
    ] = False,
) -> None:
    """Write the draft of a release spec from the names and types of a file's columns. Their values are not read, except with --public.

    In a terminal it asks for what the options do not say, and first whether the first row of a CSV file holds names: if it is a record,
    nothing of it is shown or written.
    """
    from dpdist.api.planning import json_schema
    from dpdist.plugins.spec_drafts.file_columns import columns_of, has_names, is_person
    from dpdist.plugins.spec_drafts.spec_template import OutlineRequest, outline

    target = spec or Path(f"{dataset_of(records)}.yaml")
    if target.exists():
        raise InvalidInput(f"{target} exists; remove it, or name another file with --spec")
    names = tuple(_comma_separated(header))
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    if asks and not (names or public or names_in_first_row or has_names(records)):
        names_in_first_row = typer.confirm(f"Does the first row of {records.name} hold the columns' names?", default=False)
    stated = columns_of(
        records, header=names, public=public, names_in_first_row=names_in_first_row, grammar=grammar_of(delimiter)
    )
    typed_columns = _of_kinds(stated, types or [])
    if person is None and (asks or not public):
        open_ = (
            column.name
            for column in typed_columns
            if column.name not in _comma_separated(columns) and is_person(column.name)
        )
        person = next(open_, NO_PERSON)
        if asks:
            person = typer.prompt(f"Column that tells persons apart ({NO_PERSON!r}: every record by itself)", default=person)
        elif person != NO_PERSON:
            console.print(
                f"taken to tell persons apart, by its name: {person!r} (--person {NO_PERSON} if every record stands by itself)"
            )
    person = None if person == NO_PERSON else person
    if asks and columns is None:
        shown = ", ".join(column.name for column in typed_columns if column.name != person)
        columns = typer.prompt("Columns to count, with commas between", default=shown)
    counted_columns = _select_columns(typed_columns, _comma_separated(columns), person)
    counted_columns = [_ask_kind(column, asks=asks) for column in counted_columns]
    records_path = os.path.relpath(records, target.parent)
    untyped = any(column.kind == "unknown" for column in stated)
    answers = OutlineRequest(
        Path(records_path).as_posix(), dataset_of(records), names, person, epsilon, delimiter=delimiter, untyped=untyped
    )
    target.write_text(outline(counted_columns, answers, schema=SCHEMA, public=public), encoding="utf-8")
    schema = target.parent / SCHEMA
    if not schema.exists():
        schema.write_text(json.dumps(json_schema(), indent=1) + "\n", encoding="utf-8")
    console.print(f"wrote {target}: complete the words in capitals, then run 'dpdist plan {target}'")


def dataset_of(records: Path) -> str:
    """A name for the data set, from that of the file."""
    name = re.sub(r"(\.(csv|parquet|arrow|feather|ipc|gz))+$", "", records.resolve().name, flags=re.IGNORECASE)
    ascii_name = "".join(c for c in unicodedata.normalize("NFKD", name.translate(LETTERS)) if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_name).strip("-._") or "records"


def _comma_separated(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _of_kinds(columns: list[Column], types: list[str]) -> list[Column]:
    """The columns, those that are named with the given kinds."""
    from dataclasses import replace

    kinds_by_column, allowed = dict(assignment.rpartition("=")[::2] for assignment in types), _kinds()
    for name, kind in kinds_by_column.items():
        if name not in {column.name for column in columns} or kind not in allowed:
            raise InvalidInput(
                f"--as needs a column and what it holds, such as age=whole ({', '.join(allowed)}), found {name}={kind}"
            )
    return [replace(column, kind=cast("ColumnKind", kinds_by_column.get(column.name, column.kind))) for column in columns]


def _kinds() -> list[str]:
    """What a column may be said to hold."""
    from dpdist.plugins.spec_drafts.declared_values import ColumnKind

    return [kind for kind in get_args(ColumnKind) if kind not in ("unknown", "other")]


def _select_columns(columns: list[Column], names: list[str], person: str | None) -> list[Column]:
    from dpdist.api.planning import did_you_mean

    column_names = [column.name for column in columns]
    strange = next((name for name in (*names, *([person] if person else [])) if name not in column_names), None)
    if strange is not None:
        raise InvalidInput(
            f"no column is called {strange!r}{did_you_mean(strange, column_names)}; there are {', '.join(column_names)}"
        )
    selected = [column for column in columns if column.name != person and (not names or column.name in names)]
    if not selected:
        raise InvalidInput("no column is left to count; name some with --columns")
    return selected


def _ask_kind(column: Column, *, asks: bool) -> Column:
    """The column with the kind that its name or the terminal tells, where the file tells none."""
    from dataclasses import replace

    from dpdist.plugins.spec_drafts.file_columns import kind_named

    if column.kind != "unknown":
        return column
    guess, kinds = kind_named(column.name), _kinds()
    kind = "" if asks else guess
    while asks and kind not in kinds:
        kind = typer.prompt(
            f"What does {column.name!r} hold ({', '.join(kinds)})", default=guess if guess in kinds else "text"
        )
    return replace(column, kind=cast("ColumnKind", kind))
