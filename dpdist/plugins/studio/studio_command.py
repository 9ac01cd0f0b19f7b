"""The command ``dpdist studio``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dpdist.api import InvalidInput
from flows.api.commands import NamesInFirstRow, error_console


def studio(
    spec: Annotated[Path, typer.Argument(help="the spec to open, or to write where there is none")] = Path("release.yaml"),
    records: Annotated[
        Path | None,
        typer.Option("--records", help="a file or folder of records, of which names and types of columns are read"),
    ] = None,
    names_in_first_row: NamesInFirstRow = False,
    port: Annotated[int, typer.Option(help="the port at 127.0.0.1. Default: any that is free", min=0, max=65535)] = 0,
) -> None:
    """Plan a release on a page of this machine, before anything is spent; no value of a record is read."""
    from dpdist.api.planning import check_program, yaml_text
    from dpdist.plugins.studio.studio_server import StudioSession, serve

    check_program()
    path = spec.resolve()
    written = path.read_text(encoding="utf-8") if path.exists() else None
    content = _new_draft(path, records) if written is None else yaml_text.parsed(written, str(spec), exact=False)[0]
    if not isinstance(content, dict):
        raise InvalidInput(f"{spec} is no mapping of keys; name a spec, or a file that is not there yet")
    named = records or _records_of(content, path.parent)
    desk = StudioSession(path, _columns(named, names_in_first_row) if named else [], content, written)
    serve(desk, port, lambda address: error_console.print_line(f"the studio is at {address}\nIt ends with Ctrl+C."))


def _new_draft(path: Path, records: Path | None) -> dict[str, Any]:
    """A draft that nothing was said of yet."""
    import os

    from flows.api.commands import dataset_of

    name = dataset_of(records or path)
    records_entry = (
        {} if records is None else {"records": {"path": Path(os.path.relpath(records.resolve(), path.parent)).as_posix()}}
    )
    return {
        "release": f"{name}-1",
        **records_entry,
        "domain": {},
        "workload": [{"marginals": {"ways": [1]}}],
        "budget": {"epsilon": 1, "delta": 1e-6},
        "ledger": {"dataset": name, "cap": {"epsilon": 4, "delta": 4e-6}},
    }


def _records_of(content: dict[str, Any], folder: Path) -> Path | None:
    """The file of records that a spec names, if it is there."""
    records_entry = content.get("records")
    named = records_entry.get("path") if isinstance(records_entry, dict) else None
    return folder / named if isinstance(named, str) and "://" not in named and (folder / named).exists() else None


def _columns(records: Path, names_in_first_row: bool) -> list[Any]:
    from dpdist.api.planning import columns_of, has_names

    if not names_in_first_row and sys.stdin.isatty() and not has_names(records):
        names_in_first_row = typer.confirm(f"Does the first row of {records.name} hold the columns' names?", default=False)
    return columns_of(records, names_in_first_row=names_in_first_row)
