"""What a record of a CSV file is, said line by line: slow and plain, so that it can be checked against the words of the guide.

One line is one record, whatever the lines before and after it say. ``csv_files`` reads whole files by the same grammar.
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


class MalformedLine(Exception):
    """A line that stops the run: its number and what is wrong, nothing of its text."""

    def __init__(self, line_number: int, problem: str) -> None:
        super().__init__(line_number, problem)
        self.line_number, self.problem = line_number, problem


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
    def allows_quotes(self) -> bool:
        """Whether quotation marks may stand around values."""
        return self.quoting == "double"

    @property
    def facts(self) -> dict[str, object]:
        """What differs from a plain file."""
        defaults = asdict(DEFAULT_GRAMMAR)
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    @property
    def record(self) -> str:
        """What is one record, for readers."""
        if self.multiline:
            return "one record of a CSV file as RFC 4180 has it, whose quoted values may span lines"
        return "one line of a CSV file; a line with too few or too many values is one without values"


DEFAULT_GRAMMAR = Grammar()
"""Commas, UTF-8, ISO dates, and a record a line."""


class Record(NamedTuple):
    """A record of a text.

    Attributes:
        line_number: the number of its first line.
        values: in the order of the columns; None where nobody can say which value belongs to which column.
        end: where the text goes on after it.
    """

    line_number: int
    values: list[str] | None
    end: int


def records_in(text: str, grammar: Grammar, *, columns: int | None = None, line_number: int = 1) -> Iterator[Record]:
    """The records of a text that begins with a record, one by one.

    Args:
        columns: how many values a record has.
        line_number: the number of the text's first line.

    Raises: Broken.
    """
    position = 0
    while position < len(text):
        end = text.find("\n", position) + 1 or len(text)
        quotes = text.count(QUOTE, position, end)
        while grammar.multiline and quotes % 2 and end < len(text):
            begin, end = end, text.find("\n", end) + 1 or len(text)
            quotes += text.count(QUOTE, begin, end)
        body = text[position:end]
        if body.endswith("\n"):
            body = body[:-1].removesuffix("\r")
        if body:
            yield Record(line_number, values_of(body, grammar, columns=columns, line_number=line_number), end)
        line_number += text.count("\n", position, end)
        position = end


def values_of(body: str, grammar: Grammar, *, columns: int | None = None, line_number: int = 1) -> list[str] | None:
    """The values of a record without its line end; None where it has another number of them, or text after a closing quotation mark.

    Raises: Broken, where a quotation mark is still open at its end; of multiline files, for all that breaks RFC 4180.
    """
    values, position, whole = [], 0, True
    while True:
        if grammar.allows_quotes and body.startswith(QUOTE, position):
            quoted_match = _QUOTED.match(body, position)
            if quoted_match is None:
                raise MalformedLine(line_number + body.count("\n", 0, position), NEVER_CLOSED if grammar.multiline else OPEN)
            values.append(quoted_match[0][1:-1].replace('""', QUOTE))
            if quoted_match.end() < len(body) and not body.startswith(grammar.delimiter, quoted_match.end()):
                whole = False
                _check(grammar, line_number + body.count("\n", 0, quoted_match.end()), TEXT_AFTER)
            stop = body.find(grammar.delimiter, quoted_match.end())
        else:
            stop = body.find(grammar.delimiter, position)
            values.append(body[position : stop if stop >= 0 else None])
            if grammar.multiline and (QUOTE in values[-1] or "\r" in values[-1]):
                _check(
                    grammar, line_number + body.count("\n", 0, position), NOT_AROUND if QUOTE in values[-1] else LONE_RETURN
                )
        if stop < 0:
            break
        position = stop + len(grammar.delimiter)
    if columns is not None and len(values) != columns:
        whole = False
        _check(grammar, line_number, f"the record has {len(values)} values instead of {columns}")
    return values if whole else None


def _check(grammar: Grammar, line_number: int, problem: str) -> None:
    """Accept what is one record's problem alone. Raises: Broken, where a file keeps to RFC 4180."""
    if grammar.multiline:
        raise MalformedLine(line_number, f"{problem}; {STRICT}")


def is_encoding(name: str) -> bool:
    """Whether files may be in an encoding: UTF-8, or one of a byte for each character in which ASCII is ASCII.

    Then a delimiter, a quotation mark and a line end are found among the bytes, whatever stands before them.
    """
    try:
        if codecs.lookup(name).name == UTF_8:
            return True
        # a byte that begins a longer character, or switches to other ones, gives no character yet
        characters = [codecs.getincrementaldecoder(name)("replace").decode(bytes([byte])) for byte in range(256)]
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError):  # codecs of other things than texts
        return False
    return all(
        len(character) == 1 and character.isascii() == (byte < 128) for byte, character in enumerate(characters)
    ) and "".join(characters[:128]) == bytes(range(128)).decode("ascii")


_DIRECTIVE = re.compile(r"%(.?)")
_TIMES = frozenset("HMSfz")


def check_dates(form: str) -> None:
    """Accept a form of dates that says the same on every machine, and which day or month is meant. Raises: ValueError."""
    directives = _DIRECTIVE.findall(form)
    distinct_directives = set(directives) - {"%"}
    if (
        not form.isascii()
        or any(directive not in "YymdjHMSfz%" or not directive for directive in directives)
        or any(ord(c) < 32 for c in form)
    ):
        raise ValueError(
            "a form of dates is written with %Y, %y, %m, %d, %j, %H, %M, %S, %f, %z, %% and plain ASCII text between them"
        )
    if len(set(directives) - {"%"}) < len([directive for directive in directives if directive != "%"]):
        raise ValueError("a form of dates names each of its parts once")
    if not distinct_directives & {"Y", "y"} or {"Y", "y"} <= distinct_directives:
        raise ValueError("a form of dates needs the year, as %Y or as %y")
    if ("d" in distinct_directives and "m" not in distinct_directives) or (
        "j" in distinct_directives and distinct_directives & {"m", "d"}
    ):
        raise ValueError("a form of dates names the day with its month (%d and %m), or as the day of the year (%j) alone")
    if distinct_directives & _TIMES and not distinct_directives & {"d", "j"}:
        raise ValueError("a form of dates with a time needs the day, too")
    if (
        (distinct_directives & _TIMES and "H" not in distinct_directives)
        or ("S" in distinct_directives and "M" not in distinct_directives)
        or ("f" in distinct_directives and "S" not in distinct_directives)
    ):
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
