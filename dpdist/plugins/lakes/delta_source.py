"""Delta tables as the records of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from dpdist.api.sources import (
    ArrowStream,
    ColumnType,
    PathText,
    RecordTable,
    TableFiles,
    Use,
    locate_records,
    package,
    parse_location,
    refuse_pattern,
)
from dpdist.plugins.lakes import table_formats
from dpdist.plugins.lakes.lake_source import LakeSource


@dataclass(frozen=True)
class DeltaTable(RecordTable):
    """A Delta table at one of its versions; the newest when it is first read, unless one is named."""

    location: str
    version: int | None

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def identity(self) -> str:
        return self.location if self.version is None else f"{self.location}\0{self.version}"

    def read_files(self) -> TableFiles:
        table = package("deltalake", "delta").DeltaTable(self.location, version=self.version)
        (commit,) = table.history(1)
        return TableFiles(len(table.file_uris()), commit["timestamp"] / 1000)

    @contextmanager
    def open_records(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        deltalake = package("deltalake", "delta")
        table = deltalake.DeltaTable(self.location, version=self.version)
        table_formats.check_delta(table, uses)
        files = table.to_pyarrow_dataset()
        table_formats.check_delta_files(files.get_fragments(), uses)
        yield str(table.version()), files.scanner(columns=list(uses)).to_reader()


class DeltaSource(LakeSource):
    """A Delta table."""

    delta: PathText = Field(
        description="in place of 'path', the folder or URL of a Delta table", examples=["s3://bucket/visits"]
    )

    def check_address(self, folder: Path) -> None:
        refuse_pattern(locate_records(self.delta, below=folder))

    def table(self, folder: Path, types: Mapping[str, ColumnType]) -> RecordTable:
        return DeltaTable(parse_location(self.delta, below=folder).location, self.snapshot)
