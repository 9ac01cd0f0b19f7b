"""The command ``dpdist studio``."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpdist.api import InvalidInput
from dpdist.plugins.spec_drafts.csv_options import Delimiter, NamesInFirstRow, grammar_of
from flows.api.commands import EngineAddress, Period, error_console

if TYPE_CHECKING:
    from dpdist.api.planning import Grammar
    from dpdist.plugins.spec_drafts.declared_values import Column


def studio(
    spec: Annotated[Path, typer.Argument(help="the spec to open, or to write where there is none")] = Path("release.yaml"),
    records: Annotated[
        Path | None,
        typer.Option("--records", help="a file or folder of records, of which names and types of columns are read"),
    ] = None,
    names_in_first_row: NamesInFirstRow = False,
    delimiter: Delimiter = None,
    period: Period = None,
    engine_address: EngineAddress = None,
    port: Annotated[int, typer.Option(help="the port at 127.0.0.1. Default: any that is free", min=0, max=65535)] = 0,
) -> None:
    """Plan a release on a page of this machine, before anything is spent.

    No value of a record is read. In a terminal the first row of a CSV file is shown, to ask whether it holds names, where no spec says so.
    """
    from dpdist.api.planning import check_program, yaml_text
    from dpdist.plugins.studio.studio_server import StudioOptions, StudioSession, serve

    check_program()
    path = spec.resolve()
    written = path.read_text(encoding="utf-8") if path.exists() else None
    content = (
        _new_draft(path, records, delimiter) if written is None else yaml_text.parsed(written, str(spec), exact=False)[0]
    )
    if not isinstance(content, dict):
        raise InvalidInput(f"{spec} is no mapping of keys; name a spec, or a file that is not there yet")
    columns = (
        _columns_of_spec(content, path.parent, period)
        if records is None
        else _columns_of_file(records, names_in_first_row, grammar_of(delimiter))
    )
    desk = StudioSession(path, columns, content, written, StudioOptions(period, engine_address))
    serve(desk, port, lambda address: error_console.print_line(f"the studio is at {address}\nIt ends with Ctrl+C."))


def _new_draft(path: Path, records: Path | None, delimiter: str | None = None) -> dict[str, Any]:
    """A draft that nothing was said of yet."""
    import os

    from dpdist.plugins.spec_drafts.init_command import dataset_of

    name = dataset_of(records or path)
    records_entry: dict[str, Any] = {}
    if records is not None:
        csv = {} if delimiter is None else {"csv": {"delimiter": delimiter}}
        records_entry = {"records": {"path": Path(os.path.relpath(records.resolve(), path.parent)).as_posix(), **csv}}
    return {
        "release": f"{name}-1",
        **records_entry,
        "domain": {},
        "workload": [{"marginals": {"ways": [1]}}],
        "budget": {"epsilon": 1, "delta": 1e-6},
        "ledger": {"dataset": name, "cap": {"epsilon": 4, "delta": 4e-6}},
    }


def _columns_of_spec(content: dict[str, Any], folder: Path, period: datetime.date | None) -> list[Column]:
    """The columns of the files that a spec names, read as the spec says that they are written; none where no file is there yet."""
    from pydantic import ValidationError

    from dpdist.api.planning import PERIOD, FileSource, RecordsSpec
    from dpdist.plugins.spec_drafts.file_columns import columns_of

    try:
        location = RecordsSpec.model_validate(content.get("records")).location
    except ValidationError:  # the page says what is wrong
        return []
    if not isinstance(location, FileSource) or "://" in location.path:
        return []
    files = folder / location.path.replace(PERIOD, "" if period is None else period.isoformat())
    if not files.exists():
        return []
    return columns_of(files, header=location.header, names_in_first_row=not location.header, grammar=location.grammar)


def _columns_of_file(records: Path, names_in_first_row: bool, grammar: Grammar) -> list[Column]:
    from dpdist.plugins.spec_drafts.file_columns import columns_of, first_row, has_names

    if not names_in_first_row and sys.stdin.isatty() and not has_names(records):
        error_console.print_line(f"The first row of {records.name}: {' | '.join(first_row(records, grammar))}")
        names_in_first_row = typer.confirm("Does it hold the columns' names?", default=False)
    return columns_of(records, names_in_first_row=names_in_first_row, grammar=grammar)
