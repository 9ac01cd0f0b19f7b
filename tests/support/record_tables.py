"""Records out of tables that are no files, as a release extracts them; the tests of the plugins that read such tables use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpdist.domain import Domain
from dpdist.extracts.column_projection import Use, uses_of
from dpdist.extracts.table_extracts import Extract, RecordTable, extract_table
from dpdist.privacy.keys import Secret
from dpdist.sources.column_types import ColumnType
from dpdist.sources.record_sources import PersonColumn
from tests.support import small_release

ROOT = Secret(bytes(range(32)))
TABLE = small_release.records()
MEMORY = 2**30
USES: dict[str, Use] = {"age": "number", "sex": "text", "work": "text", "person": "person"}
TYPES: dict[str, ColumnType] = {"age": "whole", "sex": "text", "work": "text", "person": "whole"}


def extract_records(
    table: RecordTable, home: Path, release: str = "r", uses: dict[str, Use] = USES, **given: Any
) -> Extract:
    home.mkdir(exist_ok=True)
    return extract_table(table, release, home / "records", home, ROOT, MEMORY, uses, **given)


def extract(table: RecordTable, work: Path, domain: Domain, types: dict[str, ColumnType], person: str | None = None) -> Path:
    work.mkdir(exist_ok=True, parents=True)
    return extract_table(
        table,
        "r",
        work / "records",
        work,
        ROOT,
        2**30,
        uses_of(domain, {}, None if person is None else PersonColumn(person)),
        types,
    ).path
