"""What a page says, in its language (docs/decisions/0016-page.md).

Whoever writes something for readers writes ``say("{count:,} answers", count=5)``: the English sentence stands there, whole, and is the key
of its translations, which are the tables ``sentences`` and ``scripts`` of one TOML file a language. Scripts of the page say ``say(...)``,
too. Sentences that a certificate holds are English for ever, and were made elsewhere: ``recalled`` finds them in the table ``certificate``.
tests/language fails on a sentence without translation, on a translation that nothing says, and on words that pass ``say`` by.
"""

from __future__ import annotations

import datetime
import importlib.resources
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

_FILES = importlib.resources.files("dpdist.language")
LANGUAGES = ("en", *sorted(file.name.removesuffix(".toml") for file in _FILES.iterdir() if file.name.endswith(".toml")))
"""Codes of BCP 47: English, and those that have a file."""
_NUMBER = re.compile(r"[−+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?")
_POWER = re.compile(r"(?:1|(\d(?:[.,]\d*[1-9])?))(?:[.,]?0+)?e([+-]\d\d+)\b")
MINUS = "−"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Patterns = Sequence[tuple[str, str, str]]
"""What a sentence begins with, its pattern and its translation, those with the most words of their own first."""


@dataclass(frozen=True)
class Language:
    """How one language writes.

    Attributes:
        decimal, thousands: what stands between digits.
        apart_from: the least whole number whose thousands stand apart.
        percent: what stands before the sign of per cent.
        singular: the numbers that take a singular.
        patterns: of dates, by the English ones of strftime.
        months, short_months: twelve names each.
        sentences: those of pages and of scripts, by the English ones.
        scripts: of these the ones that the page's script says.
        certificate: sentences of certificates, by the English ones with their places.
        groups: names of groups of queries that dpdist chose, likewise.
    """

    code: str
    decimal: str = "."
    thousands: str = ","
    apart_from: int = 1000
    percent: str = ""
    singular: Sequence[int] = (1,)
    patterns: Mapping[str, str] = field(default_factory=dict)
    months: Sequence[str] = ()
    short_months: Sequence[str] = ()
    sentences: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    certificate: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def in_certificates(self) -> Patterns:
        """What finds each sentence of a certificate, and its translation."""
        return _patterns(self.certificate)

    @cached_property
    def of_groups(self) -> Patterns:
        """What finds each name of a group, and its translation."""
        return _patterns(self.groups)


ENGLISH = Language("en")
_SPOKEN: ContextVar[Language] = ContextVar("language", default=ENGLISH)


@cache
def _language(code: str) -> Language:
    if code == ENGLISH.code:
        return ENGLISH
    import tomllib

    tables = tomllib.loads(_FILES.joinpath(f"{code}.toml").read_text(encoding="utf-8"))
    sentences = {**tables.pop("sentences"), **tables["scripts"]}
    return Language(code, sentences=sentences, **tables.pop("numbers"), **tables.pop("dates"), **tables)


def _patterns(table: Mapping[str, str]) -> Patterns:
    own = {sentence: len(re.sub(r"\{\w+\}", "", sentence)) for sentence in table}
    return [
        (sentence.partition("{")[0], re.sub(r"\\\{(\w+)\\\}", _place, re.escape(sentence)), table[sentence])
        for sentence in sorted(own, key=own.__getitem__, reverse=True)
    ]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _place(name: re.Match[str]) -> str:
    """What finds the value of a place: those of one letter are numbers."""
    return f"(?P<{name[1]}>{_NUMBER.pattern if len(name[1]) == 1 else '.+?'})"


@contextmanager
def speaking(code: str) -> Iterator[None]:
    """What is said inside is said in a language."""
    before = _SPOKEN.set(_language(code))
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def spoken() -> Language:
    """The language that is spoken; English where nobody chose one."""
    return _SPOKEN.get()


class _Writer(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        return number(raised(text).replace("-", MINUS)) if isinstance(value, int | float) else text


_WRITER = _Writer()


def later(sentence: str) -> str:
    """The sentence itself: for one that stands in a table, and is said by ``say`` at another place."""
    return sentence


def say(sentence: str, /, **values: Any) -> str:
    """An English sentence in the language that is spoken, with its values; numbers as that language writes them."""
    return _WRITER.vformat(spoken().sentences.get(sentence, sentence), (), values)


def plural(count: int, one: str, many: str, /, **values: Any) -> str:
    """The first sentence or the second, by a number, which both know as ``count``."""
    return say(one if count in spoken().singular else many, count=count, **values)


def recalled(text: str, titles: Mapping[str, str] | None = None) -> str:
    """A sentence of a certificate in the language that is spoken, with what stands in its places; one that is not known as it is.

    Lists are looked up piece by piece, but ``labels``, which stay as they are; names that stand in a place are called by their titles,
    where these are given.
    """
    language = spoken()
    if language is ENGLISH and all(name == title for name, title in (titles or {}).items()):
        return text
    if titles and text in titles:
        return titles[text]
    if _NUMBER.fullmatch(text):
        return number(text)
    found = _filled(text, language.in_certificates or _in_english(), titles)
    if found is not None:
        return found
    for between in ("; ", ", "):
        if between in text:
            return between.join(recalled(part, titles) for part in text.split(between))
    return text


@cache
def _in_english() -> Patterns:
    """The sentences of certificates as they are: any translation has them all."""
    return _patterns({sentence: sentence for sentence in _language(LANGUAGES[1]).certificate})


def group_name(text: str) -> str:
    """The name of a group of queries in the language that is spoken, where dpdist chose it; a publisher's own as it is."""
    return _filled(text, spoken().of_groups) or text


def _filled(text: str, patterns: Patterns, titles: Mapping[str, str] | None = None) -> str | None:
    for begins, pattern, sentence in patterns:
        if text.startswith(begins) and (match := _compiled(pattern).fullmatch(text)) is not None:
            places = match.groupdict()
            return sentence.format(
                **{name: value if name == "labels" else recalled(value, titles) for name, value in places.items()}
            )
    return None


def number(text: str) -> str:
    """A number as English writes it, with commas between thousands, as the language that is spoken does."""
    language = spoken()
    if language is ENGLISH:
        return text
    whole = text.partition(".")[0].strip("−+-")
    if "," in whole and len(whole.replace(",", "")) < len(str(language.apart_from)):
        text = text.replace(",", "")
    return text.translate({ord(","): language.thousands, ord("."): language.decimal, ord("%"): language.percent + "%"})


def raised(text: str) -> str:
    """A text that dpdist alone wrote, with ``2.5e-07`` in it as 2.5 × 10⁻⁷: in a publisher's words it may be a name."""
    return _POWER.sub(_power, text)


def _power(found: re.Match[str]) -> str:
    times = f"{found[1]}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}" if found[1] else ""
    return f"{times}10{str(int(found[2])).translate(_RAISED)}"


def written(time: datetime.date, pattern: str) -> str:
    """A date or a time by a pattern of strftime, which the language may put in another one."""
    language = spoken()
    pattern = language.patterns.get(pattern, pattern)
    for sign, names in (("%B", language.months), ("%b", language.short_months)):
        if names:
            pattern = pattern.replace(sign, names[time.month - 1])
    return time.strftime(pattern)
