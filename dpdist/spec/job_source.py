"""Where the records of a release are: the first of the five values of its job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.extracts.column_projection import Use, uses_of
from dpdist.extracts.table_extracts import RecordTable
from dpdist.sources.column_types import ColumnType
from dpdist.sources.file_listing import list_files
from dpdist.sources.record_sources import (
    Hashing,
    Participations,
    PersonColumn,
    Source,
    hash_in_process,
    source_of,
    wanted_columns,
)
from dpdist.sources.source_labels import FRAME_LABEL, File, SourceLabel
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.sections.sources import FileSource
from dpdist.storage.objects import parse_location


@dataclass(frozen=True)
class Origin:
    """Where the records are, how they are read, and whose they are: what a charge is bound to.

    Attributes:
        folder: what relative paths start at.
        attributes: those that are counted, whose columns may be named by folders.
        series: the attribute in whose steps persons are counted, where a release filters one.
        snapshot, source_label: of a table whose rows were written to a file.
    """

    records: RecordsSpec
    folder: Path
    attributes: tuple[str, ...]
    series: str | None
    snapshot: str = ""
    source_label: SourceLabel | None = None

    @property
    def path(self) -> str:
        """The records: a URL, or a path, resolved against the spec's folder if it is relative."""
        return parse_location(self._in_files.path, below=self.folder).location

    @property
    def _in_files(self) -> FileSource:
        """The files of the records: those of a table are extracted first."""
        assert isinstance(self.records.location, FileSource)
        return self.records.location

    @property
    def name(self) -> SourceLabel:
        """What messages call the place of the records, whatever file they were written to: by the spec's own text."""
        return self.source_label or SourceLabel(self.records.location.source_label)

    @cached_property
    def table(self) -> RecordTable | None:
        """The table that holds the records; None where files do."""
        return self.records.location.table(self.folder, self.records.types)

    def with_file(self, path: Path, snapshot: str = "", *, source_label: str = FRAME_LABEL) -> Origin:
        """The same records, which were written to a file and which messages call so."""
        location = FileSource.model_validate({"path": str(path)})
        return replace(
            self,
            records=self.records.model_copy(update={"location": location}),
            snapshot=snapshot,
            source_label=SourceLabel(source_label),
        )

    @property
    def person(self) -> PersonColumn | None:
        """Who is behind a record."""
        person_spec, steps = self.records.person, None
        if person_spec.column is None:
            return None
        if person_spec.participations is not None and self.series is not None:
            steps = Participations(self.series, person_spec.participations, person_spec.separation)
        return PersonColumn(person_spec.column, person_spec.type, person_spec.missing, person_spec.most_groups, steps)

    @property
    def counts_column(self) -> str | None:
        """The column that says how many records a row stands for."""
        return None if self.records.counts is None else self.records.counts.column

    def column_names(self, domain: Domain) -> list[str]:
        """The columns that are read of the records."""
        record_source = Source((), dict(self.records.columns), person=self.person, counts=self.counts_column)
        return wanted_columns(record_source, domain)

    def uses(self, domain: Domain) -> dict[str, Use]:
        """What each column is counted as. Raises: InvalidSpec for one that is to be two things."""
        return uses_of(domain, self.records.columns, self.person, self.counts_column)

    def check_types(self, domain: Domain) -> None:
        """Accept declared types that convert to what the columns are counted as. Raises: InvalidInput.

        A query may read more columns from files than are counted.
        """
        records_spec, uses = self.records, self.uses(domain) if self.table is not None else {}
        person, counts = records_spec.person.column, self.counts_column
        attributes_by_column = {
            records_spec.columns.get(attribute.name, attribute.name): attribute for attribute in domain.column_attributes
        }
        known_columns = (
            records_spec.types if records_spec.location.reads_types else {*attributes_by_column, person, counts, *uses}
        )
        unknown = next((name for name in records_spec.types if name not in known_columns), None)
        if unknown is not None:
            raise InvalidInput(f"'records.types' declares {unknown!r}, which is no column that is counted; leave it out")
        for name, kind in records_spec.types.items():
            allowed: tuple[ColumnType, ...] = ("text", "whole", "number", "date", "time", "boolean")
            if name in attributes_by_column and attributes_by_column[name].edges:
                allowed = (
                    ("text", "date", "time") if attributes_by_column[name].times is not None else ("text", "whole", "number")
                )
            elif name == person:
                allowed = ("text", "whole")
            elif name == counts:
                allowed = ("text", "whole", "number")
            if kind not in allowed:
                those = ", ".join(map(repr, allowed))
                raise InvalidInput(
                    f"{name!r} is declared {kind!r}, which is not how it is counted; allowed are {those}: declare one of "
                    "them, or call the column that a query computes something else"
                )

    @cached_property
    def listed_files(self) -> list[File]:
        """The files of the records, listed once and not opened. Raises: InvalidSpec when there are none."""
        return list_files(self.path, self.name)

    @cached_property
    def files(self) -> Source:
        """The files of the records, each hashed once. Raises: InvalidSpec when there are none."""
        return self._files(hash_in_process)

    def files_by(self, hashing: Hashing) -> Source:
        """The same, with files that are not hashed yet hashed in another way."""
        if "files" not in self.__dict__:
            self.__dict__["files"] = self._files(hashing)
        return self.files

    def _files(self, hashing: Hashing) -> Source:
        return source_of(
            self.path,
            files=self.listed_files,
            hashing=hashing,
            attributes=self.attributes,
            snapshot=self.snapshot,
            columns=self.records.columns,
            header=self._in_files.header,
            person=self.person,
            most_records=self.records.person.most_records,
            counts=self.counts_column,
            grammar=self._in_files.grammar,
            types=self.records.types,
        )
