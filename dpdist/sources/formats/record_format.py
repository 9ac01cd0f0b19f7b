"""What a format of files says: which names its files have, which columns, and how their records are read batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, ClassVar, NamedTuple

from dpdist.errors import InvalidSpec
from dpdist.sources.formats.csv_grammar import DEFAULT_GRAMMAR, Grammar
from dpdist.sources.source_labels import File, SourceLabel
from dpdist.sources.verified_files import HashedFile, Tags, hash_with_tags

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 250_000
"""Records that are read at a time."""
UNREADABLE = "\0unreadable"
"""A column that batches of CSV files may have: whether a text for a number or a date of the record is none."""


class Partition(NamedTuple):
    """A file, or what a task reads of it: a row group, a batch or a part, by its number.

    Attributes:
        named: columns that folders name, with their values.
    """

    path: str
    group: int | None
    tags: Tags
    named: tuple[tuple[str, str | None], ...] = ()

    @property
    def source_label(self) -> SourceLabel:
        """What messages call the file."""
        return self.tags.source_label


@dataclass(frozen=True)
class WantedRows:
    """What is read of the files of a source.

    Attributes:
        columns: their names in the files.
        numbers, dates: those of them that are counted as numbers, and as dates or times.
        header: names of all columns of CSV files without a header row; empty when there is one.
        grammar: how CSV files are written.
    """

    columns: tuple[str, ...]
    numbers: frozenset[str] = frozenset()
    dates: frozenset[str] = frozenset()
    header: tuple[str, ...] = ()
    grammar: Grammar = field(default=DEFAULT_GRAMMAR)


class Format(ABC):
    """A format of files. Paths are those of files whose names end as one of ``endings``.

    Attributes:
        is_folder: whether a folder of such a name is one file.
    """

    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    is_folder: ClassVar[bool] = False

    def hash_file(self, file: File) -> tuple[str, Tags]:
        """The SHA-256 and the tags of a file."""
        return hash_with_tags(file.path, file.source_label)

    def partitions(self, path: str, tags: Tags, named: tuple[tuple[str, str | None], ...]) -> list[Partition]:
        """What tasks read: the whole file, where a format does not say otherwise."""
        return [Partition(path, None, tags, named)]


class RowFormat(Format):
    """A format of files that hold records, or rows of counts.

    Attributes:
        first_row_may_be_a_record: whether nobody can see from a file whether its first row names the columns.
    """

    first_row_may_be_a_record: ClassVar[bool] = False

    @abstractmethod
    def column_names(self, file: HashedFile | IO[bytes], source_file: File, reading: WantedRows) -> Sequence[str] | None:
        """The names of a file's columns; None where every record names its own, and lacks those that it has not."""

    @abstractmethod
    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        """The wanted columns of a partition, ``BATCH_ROWS`` records at a time. Raises: InvalidSpec."""

    @abstractmethod
    def is_empty(self, file: HashedFile, source_file: File, reading: WantedRows) -> bool:
        """Whether a file holds no record."""


class TypedFormat(RowFormat):
    """A format of tables whose columns have types."""

    def column_names(self, file: HashedFile | IO[bytes], source_file: File, reading: WantedRows) -> Sequence[str]:
        return list(self.schema(file).names)

    @abstractmethod
    def schema(self, file: HashedFile | IO[bytes]) -> pa.Schema:
        """The columns of a file with their types."""

    @abstractmethod
    def every_batch(self, file: IO[bytes]) -> Iterator[pa.RecordBatch]:
        """All columns of a public file."""


def check_names(
    file_columns: Sequence[str],
    spec_columns: Sequence[str],
    source_label: SourceLabel,
    folder_columns: Sequence[str] = (),
    *,
    csv: bool = False,
) -> None:
    """Accept columns that are there once each, and not named by folders (``folder_columns``), too. Raises: InvalidSpec.

    Args:
        file_columns: names that the file says. None of them is quoted: without a header row, the first row of a CSV file is a record.
        spec_columns, folder_columns: the spec's names of columns.
    """
    if csv:
        _check_first_line(file_columns, source_label)
    duplicate = next((column for column in folder_columns if column in file_columns), None)
    if duplicate is not None:
        raise InvalidSpec(
            f"{source_label} has a column {duplicate!r}, and so has the name of its folder; leave it out of the file"
        )
    missing = [column for column in spec_columns if column not in file_columns]
    if missing:
        check_delimiter(file_columns, source_label, "name them in 'records.csv.delimiter'")
        cure = ", or all columns in 'records.header' if the file has no header row" if csv else ""
        raise InvalidSpec(
            f"{source_label} has no column {missing[0]!r}; say in 'records.columns' which of its columns is meant{cure} (the names "
            "that it has are not shown: they may be a record)"
        )
    twice = [column for column in spec_columns if list(file_columns).count(column) > 1]
    if twice:
        raise InvalidSpec(f"{source_label} has more than one column {twice[0]!r}; rename one of them")


def _check_first_line(names: Sequence[str], source_label: SourceLabel) -> None:
    """Refuse a first line that is for spreadsheets, or that is the whole file. Raises: InvalidSpec."""
    if names[0].lower().lstrip("\ufeff").startswith("sep="):
        raise InvalidSpec(
            f"{source_label} begins with a line 'sep=' that tells spreadsheets what stands between values; delete that line, and name the "
            "character in 'records.csv.delimiter' if it is no comma"
        )
    if any("\r" in name for name in names):
        raise InvalidSpec(
            f"the lines of {source_label} end with carriage returns alone, so that the file is one line; save it with line feeds"
        )


def check_delimiter(names: Sequence[str], source_label: SourceLabel, cure: str) -> None:
    """Refuse a single name that holds what other programs write between columns. Raises: InvalidSpec."""
    separator = next((candidate for candidate in ";\t|" if len(names) == 1 and candidate in names[0]), None)
    if separator is not None:
        shown = "tabs" if separator == "\t" else f"{separator!r}"
        raise InvalidSpec(f"{source_label} seems to have {shown} between its columns; {cure}")
