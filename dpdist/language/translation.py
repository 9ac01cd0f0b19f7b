"""What a page says, in its language (docs/decisions/0016-page.md).

Whoever writes something for readers writes ``say("{count:,} answers", count=5)``: the English sentence stands there, whole, and is the key
of its translations, which are the tables ``sentences`` and ``scripts`` of TOML files of plugins, one a language. Scripts of the page say
``say(...)``, too. Sentences that a certificate holds are English for ever, and were made elsewhere: ``recalled`` finds them in the table
``certificate``. tests/plugins/languages fails on a sentence without translation, on a translation that nothing says, and on words that
pass ``say`` by.
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

from dpdist.plugin_registry import installed_plugins

LANGUAGES = ("en", "de", "es", "fr")
"""Codes of BCP 47: English, and those of which the plugin ``languages`` has a file."""
_NUMBER = re.compile(r"[−+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?")
_POWER = re.compile(r"(?:1|(\d(?:[.,]\d*[1-9])?))(?:[.,]?0+)?e([+-]\d\d+)\b")
MINUS = "−"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

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
    def certificate_patterns(self) -> Patterns:
        """What finds each sentence of a certificate, and its translation."""
        return _build_patterns(self.certificate)

    @cached_property
    def group_patterns(self) -> Patterns:
        """What finds each name of a group, and its translation."""
        return _build_patterns(self.groups)


ENGLISH = Language("en")
_CURRENT_LANGUAGE: ContextVar[Language] = ContextVar("language", default=ENGLISH)


@cache
def _load_language(code: str) -> Language:
    if code == ENGLISH.code:
        return ENGLISH
    import tomllib

    tables: dict[str, Any] = {"sentences": {}, "scripts": {}, "numbers": {}, "dates": {}}
    for plugin in installed_plugins():
        if plugin.translations and (file := importlib.resources.files(plugin.translations) / f"{code}.toml").is_file():
            for name, added in tomllib.loads(file.read_text(encoding="utf-8")).items():
                tables[name] = added | tables.get(name, {})
    sentences = {**tables.pop("sentences"), **tables["scripts"]}
    return Language(code, sentences=sentences, **tables.pop("numbers"), **tables.pop("dates"), **tables)


def _build_patterns(table: Mapping[str, str]) -> Patterns:
    literal_lengths = {sentence: len(re.sub(r"\{\w+\}", "", sentence)) for sentence in table}
    return [
        (sentence.partition("{")[0], re.sub(r"\\\{(\w+)\\\}", _placeholder_pattern, re.escape(sentence)), table[sentence])
        for sentence in sorted(literal_lengths, key=literal_lengths.__getitem__, reverse=True)
    ]


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _placeholder_pattern(name: re.Match[str]) -> str:
    """What finds the value of a place: those of one letter are numbers."""
    return f"(?P<{name[1]}>{_NUMBER.pattern if len(name[1]) == 1 else '.+?'})"


@contextmanager
def use_language(code: str) -> Iterator[None]:
    """What is said inside is said in a language."""
    token = _CURRENT_LANGUAGE.set(_load_language(code))
    try:
        yield
    finally:
        _CURRENT_LANGUAGE.reset(token)


def current_language() -> Language:
    """The language that is spoken; English where nobody chose one."""
    return _CURRENT_LANGUAGE.get()


class _NumberFormatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        return localize_number(with_superscripts(text).replace("-", MINUS)) if isinstance(value, int | float) else text


_NUMBER_FORMATTER = _NumberFormatter()


def translatable(sentence: str) -> str:
    """The sentence itself: for one that stands in a table, and is said by ``say`` at another place."""
    return sentence


def say(sentence: str, /, **values: Any) -> str:
    """An English sentence in the language that is spoken, with its values; numbers as that language writes them."""
    return _NUMBER_FORMATTER.vformat(current_language().sentences.get(sentence, sentence), (), values)


def plural(count: int, singular_sentence: str, plural_sentence: str, /, **values: Any) -> str:
    """The first sentence or the second, by a number, which both know as ``count``."""
    return say(singular_sentence if count in current_language().singular else plural_sentence, count=count, **values)


def translate_certificate(text: str, titles: Mapping[str, str] | None = None) -> str:
    """A sentence of a certificate in the language that is spoken, with what stands in its places; one that is not known as it is.

    Lists are looked up piece by piece, but ``labels``, which stay as they are; names that stand in a place are called by their titles,
    where these are given.
    """
    language = current_language()
    if language is ENGLISH and all(name == title for name, title in (titles or {}).items()):
        return text
    if titles and text in titles:
        return titles[text]
    if _NUMBER.fullmatch(text):
        return localize_number(text)
    translation = _match_pattern(text, language.certificate_patterns or _english_patterns(), titles)
    if translation is not None:
        return translation
    for separator in ("; ", ", "):
        if separator in text:
            return separator.join(translate_certificate(fragment, titles) for fragment in text.split(separator))
    return text


@cache
def _english_patterns() -> Patterns:
    """The sentences of certificates as they are; a test compares them with those that are translated."""
    text = importlib.resources.files("dpdist.language").joinpath("certificate_sentences.txt").read_text(encoding="utf-8")
    return _build_patterns({sentence: sentence for sentence in text.splitlines()})


def translate_group_name(text: str) -> str:
    """The name of a group of queries in the language that is spoken, where dpdist chose it; a publisher's own as it is."""
    return _match_pattern(text, current_language().group_patterns) or text


def _match_pattern(text: str, patterns: Patterns, titles: Mapping[str, str] | None = None) -> str | None:
    for prefix, pattern, sentence in patterns:
        if text.startswith(prefix) and (match := _compile_pattern(pattern).fullmatch(text)) is not None:
            placeholders = match.groupdict()
            return sentence.format(
                **{
                    name: value if name == "labels" else translate_certificate(value, titles)
                    for name, value in placeholders.items()
                }
            )
    return None


def localize_number(text: str) -> str:
    """A number as English writes it, with commas between thousands, as the language that is spoken does."""
    language = current_language()
    if language is ENGLISH:
        return text
    whole = text.partition(".")[0].strip("−+-")
    if "," in whole and len(whole.replace(",", "")) < len(str(language.apart_from)):
        text = text.replace(",", "")
    return text.translate({ord(","): language.thousands, ord("."): language.decimal, ord("%"): language.percent + "%"})


def with_superscripts(text: str) -> str:
    """A text that dpdist alone wrote, with ``2.5e-07`` in it as 2.5 × 10⁻⁷: in a publisher's words it may be a name."""
    return _POWER.sub(_format_power, text)


def _format_power(match: re.Match[str]) -> str:
    times = f"{match[1]}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}" if match[1] else ""
    return f"{times}10{str(int(match[2])).translate(_SUPERSCRIPTS)}"


def format_date(time: datetime.date, pattern: str) -> str:
    """A date or a time by a pattern of strftime, which the language may put in another one."""
    language = current_language()
    pattern = language.patterns.get(pattern, pattern)
    for sign, names in (("%B", language.months), ("%b", language.short_months)):
        if names:
            pattern = pattern.replace(sign, names[time.month - 1])
    return time.strftime(pattern)
