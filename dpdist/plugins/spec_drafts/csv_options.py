"""Options that say how CSV files are written, of commands that begin a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dpdist.api import InvalidInput

if TYPE_CHECKING:
    from dpdist.api.sources import Grammar

Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="the character between the values of CSV files. Default: a comma")
]
NamesInFirstRow = Annotated[
    bool,
    typer.Option("--names-in-first-row", help="the first row of CSV files holds the columns' names, and is no record"),
]


def grammar_of(delimiter: str | None) -> Grammar:
    """How CSV files are written. Raises: InvalidInput for what can be no delimiter."""
    from pydantic import ValidationError

    from dpdist.api.sources import DEFAULT_GRAMMAR, CsvSpec

    try:
        return DEFAULT_GRAMMAR if delimiter is None else CsvSpec.model_validate({"delimiter": delimiter}).grammar
    except ValidationError as error:
        raise InvalidInput(f"--delimiter: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
