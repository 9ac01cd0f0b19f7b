"""Messages about records name files, columns and types in the words of ``dpdist.sources.source_labels`` and of the spec alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpdist
from dpdist.sources import source_labels

ROOT = Path(dpdist.__file__).parent
READER_FOLDERS = ("sources", "extracts", "counting", "plugins/databases", "plugins/lakes")
READERS = sorted(path for folder in READER_FOLDERS for path in (ROOT / folder).rglob("*.py"))
LABELS = {
    "source_label",
    "file.source_label",
    "first_file.source_label",
    "tags.source_label",
    "other_label",
    "labels_by_content[content]",
    "called",
}
"""Of ``source_labels``: nothing else says which file is meant."""
OF_THE_SPEC = {
    "attribute.name",
    "column",
    "column_label",  # the spec's name of a column, with words around it
    "column.name",  # the column of persons
    "declared",
    "duplicate",  # a column that the spec names
    "encoding_name",
    "', '.join(domain.names)",
    "labelled",
    "location",
    "missing[0]",
    "name",  # a column that the spec names, a variable of 'records.connection'
    "pattern",  # a part of a path or URL of the spec
    "scheme",
    "self.attribute",
    "self.connection",
    "self.table",
    "snapshot",
    "times.every",
    "twice[0]",
    "_fault(sql, error)",  # quotes words of the query alone
}
FIXED = {
    "DISK_GIB",
    "default",  # of an environment variable
    "disk_gib()",
    "FILE_ADVICE",
    "_finished_mark(object_names)",  # a constant, or nothing
    "_finished_mark(os.listdir(record_location.location))",
    "marks[0]",  # one of UNFINISHED_FOLDERS or UNFINISHED_FILES
    "FRAME_KINDS",
    "MOST_RECORDS",
    "STRICT",  # of csv_grammar
    "WORDS[family]",
    "_reader_fault(error)",
    "bound.records",
    "cure",
    "declare",
    "endings(ArrayFormat)",
    "endings(RowFormat)",
    "error",  # of dpdist.domain.calendar and of Unconvertible, which quote nothing of a record
    "error.strerror",
    "error_text",  # the class and the SQLSTATE of a driver's error
    "extra",
    "fault",
    "float(kinds)",
    "found",
    "MOST_KEYS",
    "digest",  # of a public file of keys
    "key_count",  # of a public file
    "kind",
    "kind_name",
    "len(names)",
    "module.partition('.')[0]",
    "'no person column' if person is None else f'up to {record_bound}'",
    "number",
    "other_forms",  # of records, beside tables in memory
    "problem",  # of csv_grammar
    "record",  # of csv_lines: "line" or "record"
    "record_bound",
    "requirement",
    "sha256",  # that the spec has
    "shown",
    "type(records).__name__",  # the class of an object that is no table
    "text",  # of an environment variable
    "use",
    "uses[name]",
}
"""Words of a few, and numbers that no record decides."""


def quoted(text: str) -> Iterator[str]:
    """What the messages of all errors that a module raises are made of, beside their words."""
    for raised in ast.walk(ast.parse(text)):
        if isinstance(raised, ast.Raise) and raised.exc is not None:
            for each in ast.walk(raised.exc):
                if isinstance(each, ast.FormattedValue):
                    yield ast.unparse(each.value)


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.stem)
def test_messages_of_readers_quote_what_the_spec_says(path: Path) -> None:
    """A new name in a message is looked at by somebody, who adds it above if it is none of the data."""
    assert set(quoted(path.read_text(encoding="utf-8"))) <= LABELS | OF_THE_SPEC | FIXED


@pytest.mark.parametrize("leak", ["{Path(path).name} x", "{column.type}", "{', '.join(found)}", "{str(error)}"])
def test_a_leak_is_found(leak: str) -> None:
    assert not set(quoted(f'raise InvalidSpec(f"{leak}")')) <= LABELS | OF_THE_SPEC | FIXED


def test_no_name_of_a_file_is_made_a_word_elsewhere() -> None:
    """``SourceLabel`` is made from the spec's text alone: in ``source_labels``, and where the spec says what a table is called."""
    made = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(
            isinstance(node, ast.Call) and ast.unparse(node.func).endswith("SourceLabel")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    }
    made -= {"plugins/databases/file_tables.py"}
    assert made == {"pipeline/histogram.py", "sources/source_labels.py", "spec/job_source.py"}


def test_what_files_are_called() -> None:
    assert source_labels.label_of_location("/data/2026/visits.csv") == "visits.csv"
    assert source_labels.label_of_location("s3://bucket/visits/") == "visits"
    assert source_labels.label_of_location("s3://bucket") == "bucket"
    assert source_labels.label_in_folder(source_labels.label_of_location("/data/visits/"), 3) == "file 3 of visits/"
