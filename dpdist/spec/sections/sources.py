"""Where records are: in files, or where a plugin reads them. One class a kind of place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from dpdist.errors import InvalidInput
from dpdist.extracts.table_extracts import RecordTable
from dpdist.sources.column_types import ColumnType
from dpdist.sources.file_listing import locate_records, refuse_pattern
from dpdist.sources.formats.csv_files import Csv
from dpdist.sources.formats.csv_grammar import DEFAULT_GRAMMAR, QUOTE, UTF_8, DecimalMark, Grammar, check_dates, is_encoding
from dpdist.sources.formats.format_registry import format_of
from dpdist.sources.formats.record_format import Format
from dpdist.spec.tagged_unions import Family, SpecKind
from dpdist.spec.value_types import PathText, SpecPart


class CsvDatesSpec(SpecPart):
    """How dates and times are written in CSV files."""

    form: str = Field(
        alias="format",
        description="the parts of a date or time: %Y (or %y, two digits), %m, %d, %j (the day of the year), %H, %M, %S, %f (a fraction of "
        "a second), %z (the offset from UTC) and other ASCII text between them. The year is needed. A text of another form is a missing "
        "value",
        examples=["%d.%m.%Y"],
    )

    @field_validator("form")
    @classmethod
    def _says_which_day(cls, form: str) -> str:
        check_dates(form)
        return form


class CsvSpec(SpecPart):
    """How CSV files are written. One line is one record. Nothing is guessed from the values."""

    delimiter: str = Field(",", description="the character between values", examples=[";"])
    quoting: Literal["double", "none"] = Field(
        "double",
        description="'double': quotation marks (\") may stand around whole values and are closed on the same line; two of them inside are "
        "a quotation mark. 'none': quotation marks are text like any other",
        examples=["none"],
    )
    multiline: bool = Field(
        False,
        description="whether values in quotation marks may hold line ends. Files must then keep to RFC 4180: the run is refused at the "
        "first line that does not",
        examples=[True],
    )
    decimal: DecimalMark = Field(".", description="the mark before the decimals of numbers", examples=[","])
    encoding: str = Field(
        UTF_8,
        description="the encoding of the text: utf-8, or one with a byte for each character",
        examples=["windows-1252"],
    )
    dates: CsvDatesSpec | None = Field(
        None,
        description="how the dates and times of attributes with 'dates' are written. Default: as ISO 8601 says, such as 2026-09-01",
        examples=[{"format": "%d.%m.%Y"}],
    )

    @model_validator(mode="after")
    def _check_grammar(self) -> CsvSpec:
        delimiter = self.delimiter
        if (
            len(delimiter) != 1
            or not delimiter.isascii()
            or delimiter.isalnum()
            or delimiter in "\r\n\0+-"
            or delimiter == QUOTE
        ):
            raise ValueError(
                "'delimiter' is one ASCII character that is no letter, digit, sign, quotation mark or line end, such as ';' or a tab"
            )
        if delimiter == self.decimal:
            raise ValueError(
                f"'delimiter' and 'decimal' are both {delimiter!r}; they must differ, so name the delimiter of the file"
            )
        if self.multiline and self.quoting == "none":
            raise ValueError("'multiline' needs quotation marks around values, and 'quoting: none' has none; leave one out")
        if not is_encoding(self.encoding):
            raise ValueError(
                "'encoding' is utf-8, or an encoding with a byte for each character such as latin-1 or windows-1252; save files in "
                "others, such as UTF-16, as UTF-8"
            )
        return self

    @property
    def grammar(self) -> Grammar:
        """As the readers know it."""
        name = UTF_8 if self.encoding.lower().replace("_", "-") in (UTF_8, "utf8") else self.encoding
        form = None if self.dates is None else self.dates.form
        return Grammar(self.delimiter, self.quoting, self.multiline, self.decimal, name, form)


class Location(SpecKind):
    """Where records are. This one: wherever dp.run is given them."""

    reads_types: ClassVar[bool] = False
    """Whether 'records.types' may declare columns that are not counted, for what reads the records."""

    def check(self) -> None:
        """Accept records that are somewhere. Raises: InvalidInput."""
        if not self.key():
            raise InvalidInput(
                f"'records' names no place: give exactly one of {LOCATIONS.choice()}; a table is given as publish(table) or "
                "dp.run(spec, records=table)"
            )

    def check_address(self, folder: Path) -> None:
        """Accept a path, or a URL without credentials. Raises: InvalidInput.

        Args:
            folder: at which relative paths start.
        """

    @property
    def source_label(self) -> str:
        """What messages call it."""
        return str(getattr(self, self.key(), "the records"))

    @property
    def grammar(self) -> Grammar:
        """How CSV files are written."""
        return DEFAULT_GRAMMAR

    @property
    def csv_record(self) -> str | None:
        """What is one record where the records are CSV, for readers; None where they are not, or nothing says."""
        return None

    @property
    def format(self) -> Format | None:
        """The format of a single file; None where it is no single file, or nothing says."""
        return None

    def table(self, folder: Path, types: Mapping[str, ColumnType]) -> RecordTable | None:
        """The table that holds the records; None where files do.

        Args:
            folder: at which relative paths start.
            types: of columns, as declared.
        """
        return None


class CsvLocation(Location):
    """A place that may hold CSV files."""

    csv: CsvSpec | None = Field(
        None,
        description="how CSV files are written. Default: values in UTF-8 with commas between them, and one line is one record",
        examples=[{"delimiter": ";", "decimal": ","}],
    )

    @property
    def grammar(self) -> Grammar:
        return DEFAULT_GRAMMAR if self.csv is None else self.csv.grammar


class FileSource(CsvLocation):
    """Files, or folders of files."""

    path: PathText = Field(
        description="a .parquet, .arrow, .feather, .csv or .csv.gz file, or a folder of such files, or the URL of either at s3://, gs:// "
        "or az://, or of a file at https://. With 'counts' also an array with an axis for each attribute: a .npy file or .zarr folder. "
        "Folders may name columns (year=2026/branch=North). A relative path starts at the folder of the spec file. Credentials come from "
        "the environment of the process and of the workers",
        examples=["visitors.csv"],
    )
    header: tuple[str, ...] = Field(
        (), description="the column names of CSV files that have no header row", examples=[["age", "branch"]]
    )

    @model_validator(mode="after")
    def _csv_of_csv(self) -> FileSource:
        if self.csv is not None and not isinstance(self.format, Csv | None):
            raise ValueError("'csv' belongs to CSV files; leave it out")
        return self

    def check_address(self, folder: Path) -> None:
        refuse_pattern(locate_records(self.path, below=folder))

    @property
    def csv_record(self) -> str | None:
        written = isinstance(self.format, Csv) or (self.format is None and self.csv is not None)
        return self.grammar.record if written else None

    @property
    def format(self) -> Format | None:
        return format_of(self.path)


LOCATIONS = Family(FileSource, default=Location(), plugin_field="sources")
"""The kinds of places that specs can name."""
