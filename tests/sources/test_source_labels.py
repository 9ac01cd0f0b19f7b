"""Messages about records name files, columns and types in the words of ``dpdist.sources.source_labels`` and of the spec alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpdist
from dpdist.sources import source_labels

ROOT = Path(dpdist.__file__).parent
READERS = sorted((ROOT / "records").glob("*.py"))
CALLED = {
    "called",
    "file.called",
    "first.called",
    "tags.called",
    "self._tags.called",
    "source.tags[0].called",
    "seen[content]",
    "other",  # of _named: the file that lacks a folder
}
"""Of ``wording``: nothing else says what was found."""
OF_THE_SPEC = {
    "attribute",
    "attribute.name",
    "binned[name]",
    "both",
    "candidates",
    "self.attribute",
    "self.candidates",
    "column",
    "declared",
    "', '.join(domain.names)",
    "labelled",
    "location",
    "place",
    "scheme",
    "location.partition('://')[0]",
    "missing[0]",
    "name",  # a column that the spec names (_named, _named_columns), a variable of 'records.connection' (_secret)
    "person",
    "self.connection",
    "self.table",
    "snapshot",
    "column.name",  # the column of persons
    "times.every",
    "twice[0]",
    "what",
    "_split(location)[0]",
    "_fault(sql, error)",  # quotes words of the query alone
}
FIXED = {
    "GIVEN",
    "endings(ArrayFormat)",
    "endings(RowFormat)",
    "MOST_RECORDS",
    "DEFAULTS[name]",  # of an environment variable
    "text",  # of an environment variable
    "'no person column' if person is None else f'up to {found}'",
    "_what(error)",
    "STRICT",  # of csv_grammar
    "declare",
    "number",
    "record",  # of csv_lines: "line" or "record"
    "use",
    "uses[name]",
    "WORDS[family]",
    "bound.records",
    "cure",
    "error",  # of dpdist.domain.calendar, which quotes nothing of a record
    "error.strerror",
    "extra",
    "needed",
    "float(kinds)",
    "found",
    "kind",
    "len(names)",
    "module.partition('.')[0]",
    "reason(error)",
    "said",
    "shown",
    "'no person column' if person is None else f'up to {source.most_records}'",
    "source.most_records",
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
    assert set(quoted(path.read_text(encoding="utf-8"))) <= CALLED | OF_THE_SPEC | FIXED


@pytest.mark.parametrize("leak", ["{Path(path).name} x", "{column.type}", "{', '.join(found)}", "{str(error)}"])
def test_a_leak_is_found(leak: str) -> None:
    assert not set(quoted(f'raise InvalidSpec(f"{leak}")')) <= CALLED | OF_THE_SPEC | FIXED


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
    assert made == {"extracts/file_tables.py", "pipeline/histogram.py", "sources/source_labels.py", "spec/job_source.py"}


def test_what_files_are_called() -> None:
    assert source_labels.label_of_location("/data/2026/visits.csv") == "visits.csv"
    assert source_labels.label_of_location("s3://bucket/visits/") == "visits"
    assert source_labels.label_of_location("s3://bucket") == "bucket"
    assert source_labels.label_in_folder(source_labels.label_of_location("/data/visits/"), 3) == "file 3 of visits/"
