"""What readers see and hear of a page, a line each: sentences, rows of tables, elements of charts, and the numbers that scripts read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

import numpy as np

HEARD = (
    "aria-label",
    "alt",
    "placeholder",
    "title",
    "value",
    "label",
    "download",
    "start",
    "max",
    "open",
    "hidden",
    "disabled",
    "checked",
)
"""Attributes that readers see, hear or find switched on."""
INLINE = frozenset(
    [
        "a",
        "abbr",
        "b",
        "bdi",
        "cite",
        "code",
        "em",
        "i",
        "kbd",
        "label",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
        "time",
        "u",
        "var",
        "wbr",
    ]
)
SILENT = ("style", "script")
VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "use",
        "path",
        "rect",
        "circle",
        "line",
        "polyline",
        "polygon",
        "stop",
    ]
)
LONGEST_PATH = 1200
LONGEST_LINE = 400
"""Characters of a line of numbers, after which lists are broken."""


def page_lines(page: str, drawings: Iterable[str] = (), *, numbers: bool = False) -> list[str]:
    """The lines of a page of HTML.

    Args:
        drawings: classes of the drawings that are read.
        numbers: whether what scripts read is read, too.
    """
    reader = _PageReader(tuple(drawings), numbers)
    reader.feed(page)
    reader.close()
    return [line for line in reader.lines() if line]


def json_lines(value: object, place: str = "") -> Iterator[str]:
    """A line for every part of a value that fits into one."""
    value = _rounded(_decoded(value) if place.startswith("arrays") else value)
    text = json.dumps(value, ensure_ascii=False)
    if len(place) + len(text) <= LONGEST_LINE // 4 or not isinstance(value, dict | list) or not value:
        yield f"{place}: {text}" if place else text
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from json_lines(part, f"{place}.{name}" if place else name)
    elif all(not isinstance(part, dict | list) for part in value) and place != "arrays":
        yield from (f"{place}: {line}" for line in _broken(text))
    else:
        for index, part in enumerate(value):
            yield from json_lines(part, f"{place}[{index}]")


def _decoded(value: object) -> object:
    """The numbers of a text that holds them as bytes."""
    if not isinstance(value, str):
        return value
    return np.frombuffer(base64.b64decode(value), "<f8").tolist()


def _rounded(value: object) -> object:
    """Numbers without the digits that other machines may compute otherwise, so that lines end at the same places."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def _shortened(value: str) -> str:
    """The beginning and the end of a very long path, and how long it is: outlines of countries."""
    return value if len(value) < LONGEST_PATH else f"{value[:80]}...{value[-40:]} ({len(value)} characters)"


def _broken(text: str) -> Iterator[str]:
    """A text in lines that end between two numbers."""
    while len(text) > LONGEST_LINE:
        end = text.rfind(" ", 1, LONGEST_LINE)
        if end < 0:
            break
        yield text[:end]
        text = text[end + 1 :]
    yield text


class _PageReader(HTMLParser):
    """Collects the lines of a page."""

    def __init__(self, drawings: tuple[str, ...], numbers: bool) -> None:
        super().__init__()
        self._drawings = drawings
        self._numbers = numbers
        self._is_drawn = True
        self._lines: list[str] = []
        self._line = ""
        self._open: list[str] = []
        self._chart = 0
        self._script: str | None = None

    def lines(self) -> list[str]:
        self._end_line()
        return self._lines

    def _end_line(self) -> None:
        text = " ".join(self._line.split()).strip()
        if text.replace("|", "").strip() and (self._is_drawn or not self._chart):
            self._lines.append(text if self._chart else text.strip(" |"))
        self._line = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self._open.append(tag)
        if tag in SILENT:
            self._script = given.get("type", tag)
        if tag == "svg" or self._chart:
            self._end_line()
            self._chart += tag == "svg"
            if tag == "svg":
                self._is_drawn = bool({*given.get("class", "").split()} & {*self._drawings})
            parts = (f"{name}={_shortened(value)}" for name, value in given.items() if name not in ("id", "xmlns", "style"))
            self._line = " ".join([f"<{tag}>", *parts, ""])
            return
        if tag == "meta" and ("http-equiv" in given or given.get("name") in ("viewport", "color-scheme")):
            return
        if tag in ("td", "th"):
            self._line += " | "
        elif tag not in INLINE:
            self._end_line()
        if tag in ("h1", "h2", "h3", "h4", "summary", "li", "option", "button", "caption", "figcaption"):
            self._line += f"{tag}: "
        heard = [
            f"{name}={given[name]}" for name in given if name in HEARD or (name.startswith("data-") and " " in given[name])
        ]
        heard += [f"{name}={given[name]}" for name in ("name", "property", "content") if tag == "meta" and name in given]
        heard += (
            [f"href={given['href']}"] if given.get("href", "#")[0] != "#" and not given["href"].startswith("data:") else []
        )
        self._line += f" [{tag} {' '.join(heard)}] " if heard else ""

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open and self._open.pop() != tag:
            pass
        if tag in SILENT:
            self._script = None
        if self._chart:
            self._end_line()
            self._chart -= tag == "svg"
        elif tag not in INLINE and tag not in ("td", "th"):
            self._end_line()

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self._line += data
        elif self._script == "application/json" and self._numbers:
            self._end_line()
            self._lines += json_lines(json.loads(data))
