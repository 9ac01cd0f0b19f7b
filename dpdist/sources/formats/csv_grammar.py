"""What a record of a CSV file is, said line by line: slow and plain, so that it can be checked against the words of the guide.

One line is one record, whatever the lines before and after it say. ``csv_lines`` reads whole files by the same grammar.
"""

from __future__ import annotations

import codecs
import datetime
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

DecimalMark = Literal[".", ","]
"""What stands between whole numbers and their decimals."""
QUOTE = '"'
UTF_8 = "utf-8"
OPEN = (
    "a quotation mark is still open at the end of the line; set 'records.csv.quoting: none' if quotation marks are text like any other, "
    "or 'records.csv.multiline: true' if values span lines"
)
NEVER_CLOSED = "a quotation mark that opens here is never closed; close it, or leave 'records.csv.multiline' out"
NOT_AROUND = "a quotation mark stands inside a value that does not begin with one"
LONE_RETURN = "a carriage return stands outside quotation marks, and not at the end of the line"
TEXT_AFTER = "text follows a closing quotation mark"
STRICT = "'records.csv.multiline' takes RFC 4180 alone: correct the line"
_QUOTED = re.compile(r'"(?:[^"]++|"")*+"')


class Broken(Exception):
    """A line that stops the run: its number and what is wrong, nothing of its text."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(line, what)
        self.line, self.what = line, what


@dataclass(frozen=True)
class Grammar:
    """How a CSV file is written.

    Attributes:
        delimiter: between values.
        quoting: whether quotation marks may stand around whole values ('double': a doubled one inside is a quotation mark).
        multiline: whether quoted values may span lines; the file then keeps to RFC 4180 strictly.
        decimal: the mark before the decimals of numbers.
        encoding: of the text: UTF-8, or one with a byte for each character in which ASCII is ASCII.
        dates: how dates and times are written, by directives of ``strptime``; None: as ISO 8601 says.
    """

    delimiter: str = ","
    quoting: Literal["double", "none"] = "double"
    multiline: bool = False
    decimal: DecimalMark = "."
    encoding: str = UTF_8
    dates: str | None = None

    @property
    def quoted(self) -> bool:
        """Whether quotation marks may stand around values."""
        return self.quoting == "double"

    @property
    def facts(self) -> dict[str, object]:
        """What differs from a plain file."""
        plain = asdict(PLAIN)
        return {name: value for name, value in asdict(self).items() if value != plain[name]}

    @property
    def record(self) -> str:
        """What is one record, for readers."""
        if self.multiline:
            return "one record of a CSV file as RFC 4180 has it, whose quoted values may span lines"
        return "one line of a CSV file; a line with too few or too many values is one without values"


PLAIN = Grammar()
"""Commas, UTF-8, ISO dates, and a record a line."""


class Record(NamedTuple):
    """A record of a text.

    Attributes:
        line: the number of its first line.
        values: in the order of the columns; None where nobody can say which value belongs to which column.
        end: where the text goes on after it.
    """

    line: int
    values: list[str] | None
    end: int


def records_in(text: str, grammar: Grammar, *, columns: int | None = None, line: int = 1) -> Iterator[Record]:
    """The records of a text that begins with a record, one by one.

    Args:
        columns: how many values a record has.
        line: the number of the text's first line.

    Raises: Broken.
    """
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        quotes = text.count(QUOTE, at, end)
        while grammar.multiline and quotes % 2 and end < len(text):
            begin, end = end, text.find("\n", end) + 1 or len(text)
            quotes += text.count(QUOTE, begin, end)
        body = text[at:end]
        if body.endswith("\n"):
            body = body[:-1].removesuffix("\r")
        if body:
            yield Record(line, values_of(body, grammar, columns=columns, line=line), end)
        line += text.count("\n", at, end)
        at = end


def values_of(body: str, grammar: Grammar, *, columns: int | None = None, line: int = 1) -> list[str] | None:
    """The values of a record without its line end; None where it has another number of them, or text after a closing quotation mark.

    Raises: Broken, where a quotation mark is still open at its end; of multiline files, for all that breaks RFC 4180.
    """
    values, at, whole = [], 0, True
    while True:
        if grammar.quoted and body.startswith(QUOTE, at):
            found = _QUOTED.match(body, at)
            if found is None:
                raise Broken(line + body.count("\n", 0, at), NEVER_CLOSED if grammar.multiline else OPEN)
            values.append(found[0][1:-1].replace('""', QUOTE))
            if found.end() < len(body) and not body.startswith(grammar.delimiter, found.end()):
                whole = False
                _check(grammar, line + body.count("\n", 0, found.end()), TEXT_AFTER)
            stop = body.find(grammar.delimiter, found.end())
        else:
            stop = body.find(grammar.delimiter, at)
            values.append(body[at : stop if stop >= 0 else None])
            if grammar.multiline and (QUOTE in values[-1] or "\r" in values[-1]):
                _check(grammar, line + body.count("\n", 0, at), NOT_AROUND if QUOTE in values[-1] else LONE_RETURN)
        if stop < 0:
            break
        at = stop + len(grammar.delimiter)
    if columns is not None and len(values) != columns:
        whole = False
        _check(grammar, line, f"the record has {len(values)} values instead of {columns}")
    return values if whole else None


def _check(grammar: Grammar, line: int, what: str) -> None:
    """Accept what is one record's problem alone. Raises: Broken, where a file keeps to RFC 4180."""
    if grammar.multiline:
        raise Broken(line, f"{what}; {STRICT}")


def is_encoding(name: str) -> bool:
    """Whether files may be in an encoding: UTF-8, or one of a byte for each character in which ASCII is ASCII.

    Then a delimiter, a quotation mark and a line end are found among the bytes, whatever stands before them.
    """
    try:
        if codecs.lookup(name).name == UTF_8:
            return True
        # a byte that begins a longer character, or switches to other ones, gives no character yet
        found = [codecs.getincrementaldecoder(name)("replace").decode(bytes([byte])) for byte in range(256)]
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError):  # codecs of other things than texts
        return False
    return all(len(each) == 1 and each.isascii() == (byte < 128) for byte, each in enumerate(found)) and "".join(
        found[:128]
    ) == bytes(range(128)).decode("ascii")


_DIRECTIVE = re.compile(r"%(.?)")
_TIMES = frozenset("HMSfz")


def check_dates(form: str) -> None:
    """Accept a form of dates that says the same on every machine, and which day or month is meant. Raises: ValueError."""
    used = _DIRECTIVE.findall(form)
    parts = set(used) - {"%"}
    if not form.isascii() or any(each not in "YymdjHMSfz%" or not each for each in used) or any(ord(c) < 32 for c in form):
        raise ValueError(
            "a form of dates is written with %Y, %y, %m, %d, %j, %H, %M, %S, %f, %z, %% and plain ASCII text between them"
        )
    if len(set(used) - {"%"}) < len([each for each in used if each != "%"]):
        raise ValueError("a form of dates names each of its parts once")
    if not parts & {"Y", "y"} or {"Y", "y"} <= parts:
        raise ValueError("a form of dates needs the year, as %Y or as %y")
    if ("d" in parts and "m" not in parts) or ("j" in parts and parts & {"m", "d"}):
        raise ValueError("a form of dates names the day with its month (%d and %m), or as the day of the year (%j) alone")
    if parts & _TIMES and not parts & {"d", "j"}:
        raise ValueError("a form of dates with a time needs the day, too")
    if (parts & _TIMES and "H" not in parts) or ("S" in parts and "M" not in parts) or ("f" in parts and "S" not in parts):
        raise ValueError("a form of times begins with the hour (%H), and names minutes before seconds and their fractions")


def has_times(form: str) -> bool:
    """Whether a form of dates says the time of day."""
    return bool(set(_DIRECTIVE.findall(form)) & _TIMES)


def moment_of(text: str, form: str) -> datetime.datetime | None:
    """The date or time that a text is, in a form; None where it has another form."""
    try:
        return datetime.datetime.strptime(text, form) if text.isascii() else None
    except (ValueError, OverflowError):
        return None
